//! Means of the variance over all pairs of two sets.
//!
//! Up to a family's own function `g`, every variance is one exponential of one quadratic form `z`
//! of the pair:
//!
//! ```text
//! log(Var/K²) = z + log g(e^{−z})
//!   positive families     z = Σ_l log(1−4a_l) − ½log(1−8a_l) + γ_l w_l²     g(q) = 1 − q
//!   pairs ω, −ω           z = ‖x+y‖²                                        g(q) = (1 − q)²
//!   cosines               z = ‖x−y‖²                                        g(q) = 1 − q + q²/2
//!   sine and cosine       z = ‖x−y‖²                                        g(q) = (1 − q)²
//! ```
//!
//! The matrix of all pairs is [`Estimator::log_relative_variances`]. Experiments need the mean of millions of
//! pairs, and the mean of logarithms is the logarithm of a product: one logarithm covers eight pairs, and
//! pairs with large `z` need neither exponential nor logarithm.

use super::Estimator;
use super::estimator::LEAST_LOG_VARIANCE;
use crate::linalg::{dot, product_transposed};
use crate::parameters::overflow;
use crate::{Family, Float, Matrix, Result, Rows};

/// Rows whose pairs are processed together, so that they stay in cache.
const BLOCK: usize = 128;
/// Beyond this, `e^{−z}` is lost next to 1.
const LARGE: f64 = 40.0;

/// Means over all pairs of two sets.
///
/// [`Estimator::pair_means`] returns them; its page has an example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairMeans {
    /// Of `log(Var/K²)`, for one feature.
    pub log_relative_variance: f64,
    /// Of `log(1 + Var/K²)`: the objective's excess over its floor.
    pub excess: f64,
}

impl Estimator {
    /// The means of the variance over all pairs of the two sets, in memory linear in their sizes.
    ///
    /// ```
    /// use favor::{Family, Kernel, Moments, Rows, diagnose::Estimator};
    /// let x = Rows::new(&[0.3, 0.1, -0.2, 0.4], 2, 2)?;
    /// let m = Moments::of(x)?;
    /// let pos = Estimator::fit(Family::Pos, Kernel::softmax(), &m, &m)?;
    /// let all = pos.log_relative_variances(x, x)?;
    /// let mean = all.as_slice().iter().sum::<f64>() / 4.0;
    /// assert!((pos.pair_means(x, x)?.log_relative_variance - mean).abs() < 1e-12);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn pair_means<T: Float>(&self, x: Rows<'_, T>, y: Rows<'_, T>) -> Result<PairMeans> {
        let (kind, constant) = match self.family() {
            Family::Trig => (Kind::Cosine, 0.0),
            Family::TrigPair | Family::Hyperbolic => (Kind::Pair, 0.0),
            _ => (Kind::Positive, self.constant()),
        };
        let (u, v) = self.transformed(x, y)?;
        let roots: Option<Vec<f64>> = self
            .parameters()
            .map(|p| p.quadratic().iter().map(|a| (1.0 / (1.0 - 8.0 * a)).sqrt()).collect());
        let weighted = |m: Matrix<f64>| match &roots {
            Some(roots) => Matrix::from_fn(m.rows(), m.columns(), |i, l| m[(i, l)] * roots[l]),
            None => m,
        };
        let (u, v) = (weighted(u), weighted(v));
        let norm = |row: &[f64]| dot(row, row);
        let norms: Vec<f64> = v.view().iter().map(norm).collect();
        let mut sums = Sums::default();
        for block in u.view().blocks(BLOCK) {
            let inner = product_transposed(&block.to_f64(1.0), &v);
            for (row, own) in inner.view().iter().zip(block.iter().map(norm)) {
                let z =
                    row.iter().zip(&norms).map(|(g, n)| constant + (own + n + 2.0 * g).max(0.0));
                sums.add(kind, z);
            }
        }
        let pairs = x.rows() as f64 * y.rows() as f64;
        let means =
            PairMeans { log_relative_variance: sums.log / pairs, excess: sums.excess / pairs };
        if means.log_relative_variance.is_finite() && means.excess.is_finite() {
            return Ok(means);
        }
        Err(overflow("the logarithm of the variance"))
    }
}

/// The function `g` of a family.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Positive,
    Pair,
    Cosine,
}

#[derive(Debug, Default)]
struct Sums {
    log: f64,
    excess: f64,
}

impl Sums {
    /// Adds the pairs of one row.
    fn add(&mut self, kind: Kind, z: impl Iterator<Item = f64>) {
        let least = LEAST_LOG_VARIANCE.exp();
        let (mut product, mut excess_product, mut waiting) = (1.0, 1.0, 0);
        let (mut log, mut excess) = (0.0, 0.0);
        for z in z {
            log += z;
            excess += z;
            if z > LARGE {
                continue;
            }
            let q = (-z).exp();
            // 1 − q without cancellation.
            let p = if z < 1e-2 { -(-z).exp_m1() } else { 1.0 - q };
            let (g, h) = match kind {
                Kind::Positive => (p, 1.0),
                Kind::Pair => (p * p, p + q * q),
                Kind::Cosine => (p + 0.5 * q * q, 1.0 + 0.5 * q * q),
            };
            product *= g.max(least);
            excess_product *= h;
            waiting += 1;
            // Eight factors of at least e^{−72} do not underflow.
            if waiting == 8 {
                log += f64::ln(product);
                if kind != Kind::Positive {
                    excess += f64::ln(excess_product);
                }
                (product, excess_product, waiting) = (1.0, 1.0, 0);
            }
        }
        self.log += log + product.ln();
        self.excess += excess + excess_product.ln();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Stream;
    use crate::{Kernel, Moments};

    #[test]
    fn equal_to_the_mean_of_the_matrix() {
        let mut stream = Stream::new(1, 0);
        let x = Matrix::from_fn(150, 5, |_, c| 0.3 * c as f64 + stream.normal());
        let y = Matrix::from_fn(70, 5, |_, c| 0.2 + (1.0 + c as f64) * 0.4 * stream.normal());
        let moments = |m: &Matrix<f64>| Moments::of(m.view()).unwrap();
        for scale in [1e-9, 0.01, 0.7, 5.0] {
            let kernel = Kernel::new(0.0, scale).unwrap();
            // For tiny vectors the library's hyperbolic figure is a difference of near-equal numbers.
            let exact = |f: &Family| scale > 1e-3 || *f != Family::Hyperbolic;
            for family in Family::ALL.into_iter().filter(exact) {
                let e = Estimator::fit(family, kernel, &moments(&x), &moments(&y)).unwrap();
                let logs = e.log_relative_variances(x.view(), y.view()).unwrap();
                let moment = e.log_second_moments(x.view(), y.view()).unwrap();
                let mean =
                    |m: &Matrix<f64>| m.as_slice().iter().sum::<f64>() / m.as_slice().len() as f64;
                let floor = e.objective_floor(&moments(&x), &moments(&y));
                let found = e.pair_means(x.view(), y.view()).unwrap();
                let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * (1.0 + a.abs().max(b.abs()));
                let wanted = mean(&logs);
                assert!(
                    close(found.log_relative_variance, wanted),
                    "{family} at {scale}: {} {wanted}",
                    found.log_relative_variance
                );
                assert!(close(found.excess, mean(&moment) - floor), "{family} at {scale}");
            }
        }
    }
}
