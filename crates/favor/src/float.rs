//! The number formats of data.

use crate::Scalar;
use crate::engine::entry::RowsEntry;

/// A number format of the caller's data: `f32` or `f64`.
///
/// ```
/// use favor::{Float, Rows};
/// fn largest<T: Float>(rows: Rows<'_, T>) -> f64 {
///     rows.iter().flatten().map(|v| v.to_f64()).fold(f64::NEG_INFINITY, f64::max)
/// }
/// assert_eq!(largest(Rows::new(&[1.0_f32, 3.0, 2.0, 0.0], 2, 2)?), 3.0);
/// # Ok::<(), favor::Error>(())
/// ```
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
