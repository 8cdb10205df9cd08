//! What can go wrong, as values with one line each.

use datafusion::error::DataFusionError;

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was refused. Every message names what was wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file, a folder or a query that gives no table.
    #[error("{place}: {reason}")]
    Source {
        /// The path or the query.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A column that is not there or whose contents do not serve.
    #[error("column '{column}' {reason}")]
    Column {
        /// Its name.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A wish that cannot be met.
    #[error("{what}: {reason}")]
    Request {
        /// The option.
        what: &'static str,
        /// What is wrong with it and what would be right.
        reason: String,
    },
    /// Bytes that are not a model this version can read.
    #[error("{place}: not a readable model: {reason}")]
    Model {
        /// The file, or what the bytes were for.
        place: String,
        /// What is wrong with them.
        reason: String,
    },
    /// Two models that do not belong together.
    #[error("the models cannot be merged: {0}")]
    Merge(String),
    /// A file that cannot be written.
    #[error("{place} cannot be written: {reason}")]
    Output {
        /// The path.
        place: String,
        /// Why.
        reason: String,
    },
    /// The numerics refused.
    #[error(transparent)]
    Favor(#[from] favor::Error),
    /// The query engine refused.
    #[error("{0}")]
    Engine(String),
}

impl Error {
    pub(crate) fn source(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Source { place: place.into(), reason: reason.into() }
    }

    pub(crate) fn column(column: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Column { column: column.into(), reason: reason.into() }
    }

    pub(crate) fn request(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Request { what, reason: reason.into() }
    }

    pub(crate) fn output(place: &std::path::Path, reason: impl ToString) -> Self {
        Self::Output { place: place.display().to_string(), reason: reason.to_string() }
    }
}

/// An error of ours that came through the query engine is taken out again; any other is told in
/// one line.
impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(inner) = source {
            if let Some(own) = inner.downcast_ref::<Self>() {
                return own.clone();
            }
            source = match inner.downcast_ref::<DataFusionError>() {
                Some(DataFusionError::External(boxed)) => Some(boxed.as_ref()),
                Some(DataFusionError::Shared(shared)) => Some(shared.as_ref()),
                _ => inner.source(),
            };
        }
        let text = error.strip_backtrace();
        Self::Engine(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<datafusion::arrow::error::ArrowError> for Error {
    fn from(error: datafusion::arrow::error::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}
