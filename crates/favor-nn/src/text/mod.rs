//! Texts as tokens: the tokenizer of a model's folder, and batches of like length.

mod batch;
mod corpus;
mod file;
mod tokenizer;

pub use batch::{Batch, Encoded};
pub(crate) use corpus::pieces;
pub use file::read;
pub(crate) use tokenizer::TOKENIZER_FILES;
pub use tokenizer::{Special, TextTokenizer};
