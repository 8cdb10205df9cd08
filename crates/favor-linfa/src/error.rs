//! What can go wrong.

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a fit or a prediction failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the numerics: invalid parameters, or records that do not match the model.
    #[error(transparent)]
    Favor(#[from] favor::Error),
    /// An error of linfa.
    #[error(transparent)]
    Linfa(#[from] linfa::error::Error),
}
