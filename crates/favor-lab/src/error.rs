//! What can go wrong in an experiment, as one line for the person who started it.

use crate::input::InputError;
use crate::output::OutputError;

/// The result of every experiment.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an experiment was not run, or not written down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A file could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The library refused the data.
    #[error("{place}{reason}")]
    Library {
        /// Which part of the data, such as `head 3: `; may be empty.
        place: String,
        /// Why.
        #[source]
        reason: favor::Error,
    },
    /// The request makes no sense: what is wrong and what would be right.
    #[error("{0}")]
    Invalid(String),
}

impl From<favor::Error> for Error {
    fn from(reason: favor::Error) -> Self {
        Self::Library { place: String::new(), reason }
    }
}

impl Error {
    pub(crate) fn at(place: impl Into<String>, reason: favor::Error) -> Self {
        Self::Library { place: place.into(), reason }
    }
}
