//! Do two sets of rows have the same distribution? The maximum mean discrepancy, from sums.
//!
//! The distance of the mean features is that of the distributions in the kernel's metric (Gretton et al.
//! 2012). If both are the same, the difference of the means is nearly normal, with the covariance of the
//! features over the numbers of rows, and its square is a weighted sum of independent χ² of one degree,
//! the weights being the covariance's eigenvalues.

use super::GramSums;
use crate::draw::Stream;
use crate::linalg::eigen;
use crate::{Error, Matrix, Result};
use serde::{Deserialize, Serialize};

/// What the stream of the null distribution is for.
const NULL: u64 = 1 << 35;
/// Draws of the null distribution: the least probability that can be told apart is one in so many.
const DRAWS: usize = 10_000;

/// Two sets of rows compared.
///
/// ```
/// use favor::learn::TwoSampleTest;
/// let differ = |test: &TwoSampleTest| test.p_value < 0.01;
/// assert!(differ(&TwoSampleTest { distance: 0.3, unbiased_square: 0.09, p_value: 1e-4 }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TwoSampleTest {
    /// The distance of the mean features: 0 for equal distributions, and at most √2.
    pub distance: f64,
    /// Its square without the part that chance has in it; it may be below 0.
    pub unbiased_square: f64,
    /// How likely a distance as large is if the distributions are equal.
    pub p_value: f64,
}

impl GramSums {
    /// Compares these rows with others, both summed with the same design. Weights count as numbers of rows.
    ///
    /// ```
    /// use favor::learn::{DesignSpec, GramSums, Known, Outcome};
    /// use favor::{Matrix, Moments, draw::Stream};
    /// let mut stream = Stream::new(1, 0);
    /// let a = Matrix::from_fn(500, 2, |_, _| stream.normal());
    /// let b = Matrix::from_fn(500, 2, |_, _| 1.3 * stream.normal());
    /// let design = DesignSpec::new(64).bandwidth(1.5).fit(&Moments::of(a.view())?, a.view())?;
    /// let mut one = GramSums::new(&design, Outcome::Numbers(vec![]), 1)?;
    /// let mut other = one.clone();
    /// one.add(&design, a.view(), Known::Nothing, None, None)?;
    /// other.add(&design, b.view(), Known::Nothing, None, None)?;
    /// assert!(one.compare(&other, 0)?.p_value < 0.01);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn compare(&self, other: &Self, seed: u64) -> Result<TwoSampleTest> {
        if (self.width(), self.offset()) != (other.width(), other.offset()) {
            return Err(Error::invalid("compare", "the sums are of different designs"));
        }
        let columns = self.width() - 1;
        let (a, b) = (self.products(None, columns), other.products(None, columns));
        let (m, n) = (a.weight(), b.weight());
        if m <= 1.0 || n <= 1.0 {
            return Err(Error::invalid("compare", "both sides need rows of a weight above 1"));
        }
        let ((mean_a, targets_a), (mean_b, targets_b)) = (a.means(), b.means());
        let difference: Vec<f64> = mean_a.iter().zip(&mean_b).map(|(p, q)| p - q).collect();
        let square: f64 = difference.iter().map(|d| d * d).sum();
        let (a, b) = (a.centred(&mean_a, &targets_a), b.centred(&mean_b, &targets_b));
        // The covariance within both sets.
        let size = mean_a.len();
        let covariance =
            Matrix::from_fn(size, size, |i, j| (a.gram[(i, j)] + b.gram[(i, j)]) / (m + n - 2.0));
        let chance = (1.0 / m + 1.0 / n) * crate::linalg::trace(&covariance);
        let p_value = p_value(square / (1.0 / m + 1.0 / n), &covariance, seed)?;
        Ok(TwoSampleTest { distance: square.sqrt(), unbiased_square: square - chance, p_value })
    }
}

/// How often `Σ λ_i χ²_i` is at least `value`, with the eigenvalues of the covariance.
fn p_value(value: f64, covariance: &Matrix<f64>, seed: u64) -> Result<f64> {
    let values = eigen(covariance)?.values;
    let total: f64 = values.iter().sum();
    if total <= 0.0 {
        return Ok(1.0);
    }
    // Small eigenvalues add up to a constant.
    let mut kept = 0.0;
    let large: Vec<f64> = values
        .iter()
        .copied()
        .take_while(|v| {
            let more = kept < 0.999 * total;
            kept += v;
            more
        })
        .collect();
    let rest = total - large.iter().sum::<f64>();
    let mut stream = Stream::new(seed, NULL);
    let mut draw = || rest + large.iter().map(|l| l * stream.normal().powi(2)).sum::<f64>();
    let beyond = (0..DRAWS).filter(|_| draw() >= value).count();
    Ok((beyond + 1) as f64 / (DRAWS + 1) as f64)
}
