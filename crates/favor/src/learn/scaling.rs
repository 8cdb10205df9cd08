//! Numbers brought to mean 0 and variance 1.

use crate::{Float, Matrix, Moments, Rows};
use serde::{Deserialize, Serialize};

/// `(value − centre) / scale`.
///
/// ```
/// use favor::learn::Scaling;
/// let celsius = Scaling { centre: 32.0, scale: 1.8 };
/// assert_eq!(celsius.apply(212.0), 100.0);
/// assert_eq!(celsius.undo(100.0), 212.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// What is subtracted.
    pub centre: f64,
    /// What is divided by.
    pub scale: f64,
}

impl Scaling {
    /// Changes nothing.
    pub const IDENTITY: Self = Self { centre: 0.0, scale: 1.0 };

    /// The scaled value.
    pub fn apply(self, value: f64) -> f64 {
        (value - self.centre) / self.scale
    }

    /// The value that was scaled.
    pub fn undo(self, scaled: f64) -> f64 {
        self.centre + self.scale * scaled
    }

    /// For each coordinate the scaling to mean 0 and variance 1. A constant coordinate is centred only.
    pub fn standard(moments: &Moments) -> Vec<Self> {
        let covariance = moments.covariance();
        let each = |(l, &centre): (usize, &f64)| {
            let deviation = covariance[(l, l)].sqrt();
            // Rounding may leave a little of a constant coordinate.
            let scale = if deviation > 1e-13 * centre.abs() { deviation } else { 1.0 };
            Self { centre, scale }
        };
        moments.mean().iter().enumerate().map(each).collect()
    }
}

/// Rows with each coordinate scaled.
pub(super) fn scaled<T: Float>(rows: Rows<'_, T>, scalings: &[Scaling]) -> Matrix<T> {
    let entry = |i: usize, l: usize| T::from_f64(scalings[l].apply(rows.row(i)[l].to_f64()));
    Matrix::from_fn(rows.rows(), rows.columns(), entry)
}
