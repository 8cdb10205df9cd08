//! What can go wrong.

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a fit or a prediction was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The numerics refused: parameters, or records that do not fit the model.
    #[error(transparent)]
    Favor(#[from] favor::Error),
    /// linfa refused.
    #[error(transparent)]
    Linfa(#[from] linfa::error::Error),
}

impl Error {
    pub(crate) fn parameter(what: &str, reason: impl std::fmt::Display) -> Self {
        Self::Linfa(linfa::error::Error::Parameters(format!("{what}: {reason}")))
    }
}
