//! The recogniser: a Conformer-Transducer with any kind of attention.

mod config;
mod conformer;
mod depthwise;
mod frames;
mod recogniser;
mod saved;
mod search;

pub use config::SpeechConfig;
pub use conformer::{Block, Conformer};
pub use frames::{Frames, SUBSAMPLING, subsampled};
pub use recogniser::Recogniser;
pub use saved::SpeechModel;
pub use search::{Heard, Search};
