//! What can go wrong in an inspection.

/// The result of an inspection.
pub type Result<T> = std::result::Result<T, Error>;

/// Why arrays were not inspected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library rejected the data.
    #[error("{place}: {reason}")]
    Library {
        /// Which part of the data, such as `head 3`.
        place: String,
        /// Why.
        #[source]
        reason: favor::Error,
    },
    /// An option outside its domain.
    #[error("{what}: {reason}")]
    Invalid {
        /// The option.
        what: &'static str,
        /// What is wrong with it and what would be right.
        reason: String,
    },
}

impl Error {
    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { what, reason: reason.into() }
    }
}
