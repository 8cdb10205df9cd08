//! The library's errors as Python exceptions, with the library's own words.

use pyo3::PyErr;
use pyo3::exceptions::{PyTypeError, PyValueError};

/// A `ValueError`.
pub(crate) fn value(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}

/// A `TypeError`.
pub(crate) fn kind(message: impl Into<String>) -> PyErr {
    PyTypeError::new_err(message.into())
}

/// What the library refused.
pub(crate) fn library(error: favor::Error) -> PyErr {
    value(error.to_string())
}
