//! Which columns a fitted function depends on: the mean square of its gradient, and the bandwidths per
//! column that follow from it.
//!
//! This is the diagonal of the average gradient outer product (Radhakrishnan et al. 2024): a kernel whose
//! distance stretches the columns by the function's slope along them spends its features where they count.

use super::design::Design;
use super::{DesignSpec, Head};
use crate::linalg::product;
use crate::{Error, Float, Matrix, Result, Rows};
use rayon::prelude::*;

/// The least slope of a column, as a share of the largest: a column that seems not to count may do so after
/// all.
const LEAST: f64 = 0.02;

/// Rows whose gradients are computed at a time.
const BLOCK: usize = 256;

impl Head {
    /// The root mean square of the slope along each column over some rows and all targets, in the units of
    /// the standardised columns and the targets as they are summed. Of a softmax, the slope of the logits.
    ///
    /// ```
    /// use favor::learn::{DesignSpec, GramSums, Known, Outcome, RidgeOptions, Scaling};
    /// use favor::{Matrix, Moments};
    /// let rows = Matrix::from_fn(500, 2, |i, l| ((i * (3 + l)) as f64 * 0.71).sin());
    /// let y = Matrix::from_fn(500, 1, |i, _| (2.0 * rows[(i, 0)]).sin());
    /// let design = DesignSpec::new(64).bandwidth(2.0).fit(&Moments::of(rows.view())?, rows.view())?;
    /// let mut sums = GramSums::new(&design, Outcome::Numbers(vec![Scaling::IDENTITY]), 4)?;
    /// sums.add(&design, rows.view(), Known::Numbers(y.view()), None, None)?;
    /// let head = sums.ridge(&RidgeOptions::default())?.head;
    /// let slopes = head.slopes(&design, rows.view(), None)?;
    /// assert!(slopes[0] > 20.0 * slopes[1]); // the second column does not count
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn slopes<T: Float>(
        &self,
        design: &Design,
        rows: Rows<'_, T>,
        weights: Option<&[f64]>,
    ) -> Result<Vec<f64>> {
        design.check(rows)?;
        if weights.is_some_and(|w| w.len() != rows.rows()) {
            return Err(Error::invalid("weights", format!("{} are needed", rows.rows())));
        }
        let dim = design.dim();
        let starts: Vec<usize> = (0..rows.rows()).step_by(BLOCK).collect();
        let parts: Vec<Vec<f64>> = starts
            .into_par_iter()
            .map(|start| {
                let scaled = design.scaled(rows.slice(start, start + BLOCK));
                let mut squares = vec![0.0; dim];
                for gradients in design.gradients(&scaled, self.coefficients()) {
                    for i in 0..gradients.rows() {
                        let weight = weights.map_or(1.0, |w| w[start + i]);
                        let pairs = squares.iter_mut().zip(gradients.row(i));
                        pairs.for_each(|(s, g)| *s += weight * g * g);
                    }
                }
                squares
            })
            .collect();
        let total = weights.map_or(rows.rows() as f64, |w| w.iter().sum());
        if total <= 0.0 {
            return Err(Error::invalid("rows", "there are none of positive weight"));
        }
        let sum = |l: usize| parts.iter().map(|p| p[l]).sum::<f64>();
        // From the units of the kernel to those of the standardised columns.
        let slope = |l: usize| (sum(l) / total).sqrt() / design.spec().bandwidth_of(l);
        Ok((0..dim).map(slope).collect())
    }
}

/// A spec whose bandwidths are inverse to the slopes along the columns. Their overall size is that of the
/// spec; choose it again.
///
/// ```
/// use favor::learn::{DesignSpec, learned_bandwidths};
/// let spec = learned_bandwidths(&DesignSpec::new(64).bandwidth(2.0), &[4.0, 1.0]);
/// assert!((spec.bandwidths[1] / spec.bandwidths[0] - 4.0).abs() < 1e-12);
/// ```
pub fn learned_bandwidths(spec: &DesignSpec, slopes: &[f64]) -> DesignSpec {
    let largest = slopes.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return spec.clone();
    }
    let stretch: Vec<f64> = slopes.iter().map(|s| (s / largest).max(LEAST)).collect();
    // The mean squared distance of standardised rows stays what it was.
    let mean = stretch.iter().map(|s| s * s).sum::<f64>() / stretch.len() as f64;
    let width = |(l, s): (usize, &f64)| spec.bandwidth_of(l) * mean.sqrt() / s;
    let bandwidths = stretch.iter().enumerate().map(width).collect();
    spec.clone().bandwidths(bandwidths)
}

impl Design {
    /// The gradients of each target's readout at scaled rows, by the scaled coordinates.
    fn gradients(&self, scaled: &Matrix<f64>, coefficients: &Matrix<f64>) -> Vec<Matrix<f64>> {
        let before = self.offset() - 1;
        let own = coefficients.view().slice(before, coefficients.rows()).to_f64(1.0);
        let mut out = self.feature_gradients(scaled, &own);
        if before > 0 {
            let unit = (self.dim() as f64).sqrt();
            for (target, gradients) in out.iter_mut().enumerate() {
                for i in 0..gradients.rows() {
                    for (l, g) in gradients.row_mut(i).iter_mut().enumerate() {
                        *g += coefficients[(l, target)] * self.spec().bandwidth_of(l) / unit;
                    }
                }
            }
        }
        out
    }
}

/// `Σ_j s_ij (z_j − x_i)` for weights `s`, one row per row.
pub(super) fn pulls(
    weights: &Matrix<f64>,
    points: &Matrix<f64>,
    rows: &Matrix<f64>,
) -> Matrix<f64> {
    let mut out = product(weights, points);
    for i in 0..out.rows() {
        let total: f64 = weights.row(i).iter().sum();
        out.row_mut(i).iter_mut().zip(rows.row(i)).for_each(|(o, x)| *o -= total * x);
    }
    out
}
