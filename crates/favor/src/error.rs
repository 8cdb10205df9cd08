//! The errors of this crate.

use std::borrow::Cow;

/// The result of every fallible function of this crate.
///
/// ```
/// fn norm(x: favor::Rows<'_, f64>) -> favor::Result<f64> {
///     x.check_nonempty("rows")?;
///     Ok(x.row(0).iter().map(|v| v * v).sum::<f64>().sqrt())
/// }
/// assert_eq!(norm(favor::Rows::new(&[3.0, 4.0], 1, 2)?)?, 5.0);
/// # Ok::<(), favor::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Every message says what was wrong and where.
///
/// ```
/// use favor::{Error, Rows};
/// let x = Rows::new(&[1.0, 2.0, 3.0, f64::NAN], 2, 2)?;
/// let error = x.check_finite("queries").unwrap_err();
/// assert!(matches!(error, Error::NonFinite { row: 1, column: 1, .. }));
/// assert_eq!(
///     error.to_string(),
///     "queries holds NaN at row 1, column 1; every entry must be finite"
/// );
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two arguments have incompatible shapes.
    #[error("{operation}: {left} has shape {left_shape:?} but {right} has shape {right_shape:?}")]
    Shape {
        /// The function that was called.
        operation: &'static str,
        /// The first argument.
        left: &'static str,
        /// Its rows and columns.
        left_shape: (usize, usize),
        /// The second argument.
        right: &'static str,
        /// Its rows and columns.
        right_shape: (usize, usize),
    },
    /// The data contains a NaN or an infinity.
    #[error("{what} holds {value} at row {row}, column {column}; every entry must be finite")]
    NonFinite {
        /// The argument.
        what: Cow<'static, str>,
        /// Row of the first bad entry, from 0.
        row: usize,
        /// Column of the first bad entry, from 0.
        column: usize,
        /// The entry.
        value: f64,
    },
    /// A set of vectors has no rows or no columns where at least one is needed.
    #[error("{what} is empty ({rows} rows, {columns} columns); at least one of each is needed")]
    Empty {
        /// The argument.
        what: Cow<'static, str>,
        /// Number of rows.
        rows: usize,
        /// Number of columns.
        columns: usize,
    },
    /// An argument lies outside its domain, or supplied parameters are not a valid estimator.
    #[error("{what}: {reason}")]
    Invalid {
        /// The argument.
        what: Cow<'static, str>,
        /// What is wrong with it and what would be right.
        reason: String,
    },
    /// Finite input whose result overflows the number format.
    #[error("{operation} overflows {format}: {hint}")]
    Overflow {
        /// The computation.
        operation: &'static str,
        /// The number format.
        format: &'static str,
        /// What to do about it.
        hint: &'static str,
    },
    /// The caller asked to stop.
    #[error("cancelled before the end")]
    Cancelled,
    /// Bytes that are not what they should be, or of another version.
    #[error("not a readable {what}: {reason}")]
    Format {
        /// What should have been read.
        what: Cow<'static, str>,
        /// What is wrong with the bytes.
        reason: String,
    },
}

impl Error {
    /// An argument outside its domain: which one, and what is wrong with it.
    pub fn invalid(what: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), reason: reason.into() }
    }
}
