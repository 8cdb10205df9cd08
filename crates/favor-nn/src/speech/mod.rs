//! Speech recognition: a Conformer-Transducer with any kind of attention.

mod config;
mod conformer;
mod ctc;
mod depthwise;
mod frames;
mod import;
mod manifest;
mod metric;
mod model;
mod saved;
mod search;
mod spread;
mod transducer;
mod vocabulary;

pub use config::SpeechConfig;
pub use conformer::{Block, Conformer};
pub use frames::{Frames, SUBSAMPLING, subsampled};
pub use import::{Corpus, import};
pub use manifest::{Manifest, Utterance};
pub use metric::{Edits, Errors, Rate};
pub use model::Recogniser;
pub use saved::SpeechModel;
pub use search::{Heard, Search};
pub use transducer::{BLANK, transducer_loss};
pub use vocabulary::{Units, Vocabulary, plain};
