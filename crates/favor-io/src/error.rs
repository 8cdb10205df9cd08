//! What can go wrong with files, as one line for a person.

use crate::OutputError;
use std::path::PathBuf;

/// Why files could not be read, written or used together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[cfg(feature = "arrays")]
    #[error(transparent)]
    Input(#[from] crate::arrays::InputError),
    /// A file could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The folder of data does not exist.
    #[error("the folder {} does not exist; it should hold {wanted}", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
        /// What should be in it.
        wanted: String,
    },
}
