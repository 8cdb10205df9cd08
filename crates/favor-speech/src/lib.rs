//! Speech recognition on burn with attention by random features: a Conformer-Transducer whose attention
//! is any of [`favor_nn::Attention`], from sound files to transcripts.
//!
//! - [`audio`] turns files into frames,
//! - [`Manifest`], [`Vocabulary`] and [`import`] hold the transcripts,
//! - [`Recogniser`] is the network, and [`SpeechModel`] a network with everything needed to use it,
//! - [`run`] trains and evaluates.

pub mod audio;
mod corpus;
mod loss;
mod metric;
mod model;
pub mod run;

pub use corpus::{Corpus, Manifest, Units, Utterance, Vocabulary, import, plain};
pub use favor_nn::{Error, Result};
pub use loss::{BLANK, transducer_loss};
pub use metric::{Edits, Errors, Rate};
pub use model::{
    Block, Conformer, Frames, Heard, Recogniser, SUBSAMPLING, Search, SpeechConfig, SpeechModel,
    subsampled,
};
