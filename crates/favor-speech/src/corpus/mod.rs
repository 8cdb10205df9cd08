//! Transcribed speech: lists of utterances, their texts as labels, and public corpora.

mod import;
mod manifest;
mod strings;
mod vocabulary;

pub use import::{Corpus, import};
pub use manifest::{Manifest, Utterance};
pub use vocabulary::{Units, Vocabulary, plain};
