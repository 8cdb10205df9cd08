//! Training losses: over all alignments of labels with frames, and over a first guess.

mod ctc;
mod spread;
mod transducer;

pub(crate) use ctc::ctc_loss;
pub(crate) use spread::spread;
pub use transducer::{BLANK, transducer_loss};
pub(crate) use transducer::{log_add, log_sum};
