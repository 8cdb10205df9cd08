//! What the crates around `favor` share: reading and writing files, progress, human-readable text.
//!
//! - [`Stack`] is an array as matrices, one per head, and [`HeadArrays`] are matching queries, keys
//!   and values,
//! - [`Sequences`] is an array of sequences with heads, and [`SequenceArrays`] are queries, keys and
//!   values of the same sequences,
//! - `arrays` reads them from `.npy`, `.npz`, `.safetensors` and `.csv` files (cargo feature
//!   `arrays`),
//! - [`write_atomically`] and [`AtomicFile`] write files so that a reader never sees half of one,
//! - [`data`] finds the folder of data that is not in the repository,
//! - [`progress`] reports how far a long run has come,
//! - [`table`] formats text tables,
//! - [`setters!`] generates the chained setters that options are built with,
//! - [`numbers`] formats numbers for people, and [`stats`] summarises them.

#[cfg(feature = "arrays")]
pub mod arrays;
pub mod data;
pub mod numbers;
pub mod progress;
pub mod stats;
pub mod table;

mod error;
mod heads;
mod output;
mod problem;
mod sequences;
mod setters;
mod side;
mod stack;

pub use error::Error;
pub use heads::{Head, HeadArrays};
pub use output::{AtomicFile, OutputError, create_folder, write_atomically};
pub use problem::{InputError, Problem};
pub use sequences::{SequenceArrays, Sequences};
pub use stack::Stack;
