//! What can go wrong in an experiment, as one line for the person who started it.

use favor_io::{InputError, OutputError};

/// The result of every experiment.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an experiment was not run, or not written down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] favor_io::Error),
    /// The library refused the data.
    #[error("{place}{reason}")]
    Library {
        /// Which part of the data, such as `head 3: `; may be empty.
        place: String,
        /// Why.
        #[source]
        reason: favor::Error,
    },
    /// An option outside its domain, or data that an experiment cannot use.
    #[error("{what}: {reason}")]
    Invalid {
        /// The option or the data.
        what: String,
        /// What is wrong and what would be right.
        reason: String,
    },
}

impl From<InputError> for Error {
    fn from(reason: InputError) -> Self {
        Self::Io(reason.into())
    }
}

impl From<OutputError> for Error {
    fn from(reason: OutputError) -> Self {
        Self::Io(reason.into())
    }
}

impl From<favor::Error> for Error {
    fn from(reason: favor::Error) -> Self {
        Self::Library { place: String::new(), reason }
    }
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), reason: reason.into() }
    }

    pub(crate) fn at(place: impl Into<String>, reason: favor::Error) -> Self {
        Self::Library { place: place.into(), reason }
    }
}
