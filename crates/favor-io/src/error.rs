//! What can go wrong with files, as one readable line.

use crate::data::DataFolder;
use crate::{InputError, OutputError};

/// Why files could not be read, written or used together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A file could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Arrays that belong together have different sizes.
    #[error("{left} and {right} do not fit: {rule}")]
    Misfit {
        /// The first array and its shape.
        left: String,
        /// The second array and its shape.
        right: String,
        /// What would be right.
        rule: &'static str,
    },
    /// The folder of data does not exist.
    #[error("the folder {folder} does not exist; it should hold {wanted}")]
    NoFolder {
        /// The folder.
        folder: DataFolder,
        /// What should be in it.
        wanted: String,
    },
}
