//! What can go wrong, as values with one line each.

use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The result of every fallible function of this crate.
///
/// ```
/// fn rows(path: &std::path::Path) -> favor_tables::Result<u64> {
///     Ok(favor_tables::Model::load(path)?.info().rows)
/// }
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was refused. Every message names what was wrong, where, and what to do.
///
/// ```
/// use favor_tables::{Error, Remedy};
/// let (column, reason) = ("id".to_owned(), "is of type Binary".to_owned());
/// let error = Error::Column { column, reason, remedy: Some(Remedy::Ignore) };
/// assert_eq!(error.to_string(), "column 'id' is of type Binary; leave it out");
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or a folder that gives no table.
    #[error("{place}: {reason}")]
    Source {
        /// The path.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A column that is not there or whose contents cannot be used.
    #[error("column '{column}' {reason}{}", and_then(remedy))]
    Column {
        /// Its name.
        column: String,
        /// What is wrong with it.
        reason: String,
        /// What would help.
        remedy: Option<Remedy>,
    },
    /// A setting of a request that makes no sense.
    #[error("{setting}: {reason}")]
    Request {
        /// Which.
        setting: Setting,
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
    #[error(
        "the models cannot be merged: their {what} differ; fit the second with the map of the first"
    )]
    Merge {
        /// In what they differ.
        what: &'static str,
    },
    /// Rows that are to leave a model and cannot all have been in it.
    #[error("there are more rows to subtract than the model has, of all or of one class")]
    TooMany,
    /// A model that cannot be merged, updated or subtracted from.
    #[error(
        "a logistic model needs all its rows at once: it cannot be merged, updated or subtracted \
         from; a ridge model can"
    )]
    NotMergeable,
    /// Two passes over a table that have seen different rows.
    #[error(
        "the first pass saw {first} rows and the second {second}: files changed or were lost in \
         between; fit again"
    )]
    Incomplete {
        /// Rows of the first pass.
        first: u64,
        /// Rows of the second pass.
        second: u64,
    },
    /// A file that cannot be written.
    #[error("{place} cannot be written: {reason}")]
    Output {
        /// The path.
        place: String,
        /// Why.
        reason: String,
    },
    /// Bytes of a function or of what it gave that cannot be read.
    #[error("cannot be decoded as {what}: {reason}")]
    Bytes {
        /// What they should be.
        what: &'static str,
        /// What is wrong with them.
        reason: String,
    },
    /// The numerics refused.
    #[error(transparent)]
    Favor(#[from] favor::Error),
    /// The query engine refused.
    #[error("{reason}")]
    Query {
        /// Why, in one line.
        reason: String,
        /// Its own error.
        source: Option<Cause>,
    },
}

/// What would make a column usable.
///
/// ```
/// assert_eq!(favor_tables::Remedy::Ignore.to_string(), "leave it out");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Remedy {
    /// Ignore the column.
    Ignore,
    /// Leave out the rows with missing values.
    DropMissing,
    /// Leave out the rows with missing values, or fill in means.
    DropOrFillMissing,
    /// Say which task is meant.
    NameTask,
    /// Regress instead of classifying.
    Regress,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignore => "leave it out",
            Self::DropMissing => "leave out the rows with missing values",
            Self::DropOrFillMissing => "leave out the rows with missing values, or fill in means",
            Self::NameTask => "say whether to classify or to regress",
            Self::Regress => "is a regression meant?",
        })
    }
}

fn and_then(remedy: &Option<Remedy>) -> String {
    remedy.map_or(String::new(), |remedy| format!("; {remedy}"))
}

/// A setting of a request.
///
/// ```
/// assert_eq!(favor_tables::Setting::Bandwidth.to_string(), "bandwidth");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// Where the rows come from.
    Data,
    /// The query that gives the rows.
    Query,
    /// The columns to predict from.
    Columns,
    /// The column to predict.
    Target,
    /// The column of weights.
    Weight,
    /// The number of features.
    Features,
    /// The bandwidth of the kernel.
    Bandwidth,
    /// In how many parts a bandwidth is cross-validated.
    Folds,
    /// How likely the classes are held to be.
    Prior,
    /// Whether probabilities are predicted.
    Probabilities,
    /// What turns features into predictions.
    Head,
    /// The family of the features or the kernel.
    Family,
    /// The probability of an interval.
    Interval,
    /// The number of principal components.
    Components,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Query => "query",
            Self::Columns => "columns",
            Self::Target => "target",
            Self::Weight => "weight",
            Self::Features => "features",
            Self::Bandwidth => "bandwidth",
            Self::Folds => "folds",
            Self::Prior => "prior",
            Self::Probabilities => "probabilities",
            Self::Head => "head",
            Self::Family => "family",
            Self::Interval => "interval",
            Self::Components => "components",
        })
    }
}

/// An error of another library. Two are equal when they say the same.
///
/// ```
/// let cause = favor_tables::Cause::new(std::io::Error::other("the disk is full"));
/// assert_eq!(cause.to_string(), "the disk is full");
/// ```
#[derive(Debug, Clone)]
pub struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl Cause {
    /// Keeps an error.
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl Error {
    pub(crate) fn source(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Source { place: place.into(), reason: reason.into() }
    }

    pub(crate) fn column(column: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Column { column: column.into(), reason: reason.into(), remedy: None }
    }

    pub(crate) fn mendable(
        column: impl Into<String>,
        reason: impl Into<String>,
        remedy: Remedy,
    ) -> Self {
        Self::Column { column: column.into(), reason: reason.into(), remedy: Some(remedy) }
    }

    pub(crate) fn request(setting: Setting, reason: impl Into<String>) -> Self {
        Self::Request { setting, reason: reason.into() }
    }

    pub(crate) fn output(place: &std::path::Path, reason: impl ToString) -> Self {
        Self::Output { place: place.display().to_string(), reason: reason.to_string() }
    }

    pub(crate) fn query(reason: impl Into<String>) -> Self {
        Self::Query { reason: reason.into(), source: None }
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
        let reason = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Query { reason, source: Some(Cause::new(error)) }
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
