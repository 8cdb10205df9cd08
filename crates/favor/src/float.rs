//! The number formats of data.

use crate::Scalar;
use crate::engine::entry::RowsEntry;

/// A number format of the caller's data: `f32` or `f64`.
pub trait Float: Scalar + RowsEntry + PartialEq + std::fmt::Debug {
    /// The nearest `f64`, exactly.
    fn to_f64(self) -> f64;
    /// The nearest number of this format.
    fn from_f64(value: f64) -> Self;
    /// Neither NaN nor infinite.
    fn is_finite(self) -> bool;
}

impl Float for f32 {
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

impl Float for f64 {
    fn to_f64(self) -> f64 {
        self
    }
    fn from_f64(value: f64) -> Self {
        value
    }
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}
