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
//! The library has the same as a matrix. Experiments need the mean of millions of pairs, and the
//! mean of logarithms is the logarithm of a product: one logarithm does for eight pairs, and pairs of
//! large `z` need neither exponential nor logarithm.

use favor::diagnose::Estimator;
use favor::{Error, Family, Kernel, Matrix, Result, Rows};

/// Rows whose pairs are looked at together, so that they stay in the cache.
const BLOCK: usize = 128;
/// Beyond this, `e^{−z}` is lost next to 1.
const LARGE: f64 = 40.0;
/// The least logarithm of a variance that is told apart from zero, as in the library.
const LEAST: f64 = -72.0;

/// Means over all pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairMeans {
    /// Of `log(Var/K²)`, for one feature.
    pub log_relative_variance: f64,
    /// Of `log(1 + Var/K²)`: what the objective has above its floor.
    pub excess: f64,
}

/// The means over all pairs of the two sets.
pub fn means(estimator: &Estimator, x: Rows<'_, f64>, y: Rows<'_, f64>) -> Result<PairMeans> {
    let (u, v, constant) = transformed(estimator, x, y)?;
    let (kind, constant) = match estimator.family() {
        Family::Trig => (Kind::Cosine, 0.0),
        Family::TrigPair => (Kind::Pair, 0.0),
        Family::Hyperbolic => (Kind::Pair, 0.0),
        _ => (Kind::Positive, constant),
    };
    let norms = |m: &Matrix<f64>| -> Vec<f64> {
        m.view().iter().map(|row| row.iter().map(|v| v * v).sum()).collect()
    };
    let (nu, nv) = (norms(&u), norms(&v));
    let mut sums = Sums::default();
    let mut at = 0;
    for block in u.view().blocks(BLOCK) {
        let inner = Kernel::softmax().log_matrix(block, v.view())?;
        for row in inner.view().iter() {
            let own = nu[at];
            let z = row.iter().zip(&nv).map(|(g, n)| constant + (own + n + 2.0 * g).max(0.0));
            sums.add(kind, z);
            at += 1;
        }
    }
    let pairs = x.rows() as f64 * y.rows() as f64;
    let means = PairMeans { log_relative_variance: sums.log / pairs, excess: sums.excess / pairs };
    if means.log_relative_variance.is_finite() && means.excess.is_finite() {
        return Ok(means);
    }
    Err(Error::Overflow {
        operation: "the logarithm of the variance",
        format: "f64",
        hint: "divide the data by a constant",
    })
}

/// Which function `g` a family has.
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
        let least = LEAST.exp();
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

/// Both sides so that `z` is the constant and the squared length of their sum.
fn transformed(
    estimator: &Estimator,
    x: Rows<'_, f64>,
    y: Rows<'_, f64>,
) -> Result<(Matrix<f64>, Matrix<f64>, f64)> {
    let scale = estimator.kernel().scale();
    let Some(p) = estimator.parameters() else {
        return Ok((x.to_f64(scale), y.to_f64(-scale), 0.0));
    };
    let gamma: Vec<f64> = p.quadratic().iter().map(|a| 1.0 / (1.0 - 8.0 * a)).collect();
    // log(1−4a) − ½log(1−8a), written so that it is exact near a = 0.
    let excess = |a: &f64| 0.5 * (16.0 * a * a / (1.0 - 8.0 * a)).ln_1p();
    let constant: f64 = p.quadratic().iter().map(excess).sum();
    let side = |rows: Rows<'_, f64>, shift: &[f64], transform: &Matrix<f64>| {
        let mut moved = rows.to_f64(scale);
        for i in 0..moved.rows() {
            moved.row_mut(i).iter_mut().zip(shift).for_each(|(v, s)| *v += s);
        }
        // The logarithm of the softmax kernel is the inner product: here of rows and directions.
        let weighted = Matrix::from_fn(transform.rows(), transform.columns(), |l, c| {
            transform[(l, c)] * gamma[l].sqrt()
        });
        Kernel::softmax().log_matrix(moved.view(), weighted.view())
    };
    let queries = side(x, p.query_shift(), p.query_transform())?;
    Ok((queries, side(y, p.key_shift(), p.key_transform())?, constant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use favor::Moments;
    use favor::draw::Stream;

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
                let found = means(&e, x.view(), y.view()).unwrap();
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
