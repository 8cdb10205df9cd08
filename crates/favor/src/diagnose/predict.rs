//! The error of a whole row of attention, predicted in closed form.
//!
//! The estimates of one query's kernel values share their ω, so their errors are correlated. For a
//! query and two keys, with `w = R₁u + R₂v` and `w′` likewise, and `γ = 1/(1−8a)`,
//!
//! ```text
//! log E[f₁(x)² f₂(y) f₂(y′)] / (K K′) = Σ_l log(1−4a_l) − ½log(1−8a_l) + ¼γ_l(w_l+w′_l)² − ¼(w_l−w′_l)²
//! ```
//!
//! A row sum `Σ_j K_j` with attention weights `A_j` then has the relative variance
//! `Σ_{jj′} A_j A_j′ (e^{…} − 1)`, and the output `o = Σ_j A_j v_j`, by the delta method, the
//! variance `Σ_{jj′} A_j A_j′ (e^{…} − 1) (v_j−o)ᵀ(v_j′−o)`. Both are for one feature.

use super::Estimator;
use crate::linalg::{dot, product_transposed};
use crate::parameters::overflow;
use crate::{Element, Family, Matrix, Result, Rows};

/// Keys with less than this share of a query's attention do not enter its prediction.
const LEAST_SHARE: f64 = 1e-7;

/// What one feature's variance does to the rows of a set of queries.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// For each query, the logarithm of the relative variance of its row sum `Σ_j K(x,y_j)`.
    pub row_sums: Vec<f64>,
    /// For each query, the logarithm of the variance of its attention output (the sum over the
    /// output's dimensions), when values were given.
    pub outputs: Option<Vec<f64>>,
    /// The mean over the queries of `‖output‖²`, when values were given.
    pub output_power: Option<f64>,
}

impl Prediction {
    /// The median over the queries of the logarithmic relative variance of the row sums.
    pub fn typical_row_sum(&self) -> f64 {
        median(self.row_sums.clone())
    }

    /// The logarithm of the mean squared error of the outputs relative to their power.
    pub fn relative_output(&self) -> Option<f64> {
        let outputs = self.outputs.as_ref()?;
        let max = outputs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = outputs.iter().map(|v| (v - max).exp()).sum::<f64>() / outputs.len() as f64;
        let power = self.output_power?;
        (power > 0.0).then(|| max + mean.ln() - power.ln())
    }
}

/// Predicts the variance of each query's row sum and, with values, of its attention output. Costs
/// `O(S²d)` a query: give it a sample of the queries. `None` for families without the closed form
/// (Trig, Hyperbolic).
pub fn predict<T: Element>(
    estimator: &Estimator,
    queries: Rows<'_, T>,
    keys: Rows<'_, T>,
    values: Option<Rows<'_, T>>,
) -> Result<Option<Prediction>> {
    let (Some(p), false) = (estimator.parameters(), estimator.family() == Family::Hyperbolic)
    else {
        return Ok(None);
    };
    if let Some(values) = values {
        crate::kernel::check_values("predict", keys, values)?;
        values.check_finite("values")?;
    }
    let logs = estimator.kernel().log_matrix(queries, keys)?;
    let (u, v) = estimator.transformed(queries, keys)?;
    let gamma: Vec<f64> = p.quadratic().iter().map(|a| 1.0 / (1.0 - 8.0 * a)).collect();
    let constant = estimator.constant();
    let mut row_sums = Vec::with_capacity(queries.rows());
    let mut outputs = Vec::with_capacity(queries.rows());
    let mut power = 0.0;
    for i in 0..queries.rows() {
        let (chosen, shares) = attention_shares(logs.row(i));
        let w = Matrix::from_fn(chosen.len(), u.columns(), |r, l| u[(i, l)] + v[(chosen[r], l)]);
        let exponents = pair_exponents(&w, &gamma, constant);
        let weight = |r: usize, s: usize| shares[r] * shares[s];
        row_sums.push(log_quadratic_form(&exponents, weight));
        if let Some(values) = values {
            let rows = Matrix::from_fn(chosen.len(), values.columns(), |r, c| {
                values.row(chosen[r])[c].to_f64()
            });
            let mean: Vec<f64> = (0..rows.columns())
                .map(|c| (0..rows.rows()).map(|r| shares[r] * rows[(r, c)]).sum())
                .collect();
            power += dot(&mean, &mean);
            let centred =
                Matrix::from_fn(rows.rows(), rows.columns(), |r, c| rows[(r, c)] - mean[c]);
            let inner = product_transposed(&centred, &centred);
            outputs.push(log_quadratic_form(&exponents, |r, s| weight(r, s) * inner[(r, s)]));
        }
    }
    if !row_sums.iter().chain(&outputs).all(|v| v.is_finite()) {
        return Err(overflow("the predicted variance"));
    }
    Ok(Some(Prediction {
        row_sums,
        outputs: values.map(|_| outputs),
        output_power: values.map(|_| power / queries.rows() as f64),
    }))
}

/// The keys that matter to a query and their attention weights.
fn attention_shares(logs: &[f64]) -> (Vec<usize>, Vec<f64>) {
    let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logs.iter().map(|l| (l - max).exp()).sum();
    logs.iter()
        .enumerate()
        .map(|(j, l)| (j, (l - max).exp() / total))
        .filter(|(_, share)| *share > LEAST_SHARE)
        .unzip()
}

/// The exponent of the formula above for every two of the given `w`.
fn pair_exponents(w: &Matrix<f64>, gamma: &[f64], constant: f64) -> Matrix<f64> {
    // ¼γ(w+w′)² − ¼(w−w′)² = ¼(γ−1)(w² + w′²) + ½(γ+1) w w′
    let weighted =
        Matrix::from_fn(w.rows(), w.columns(), |r, l| 0.5 * (gamma[l] + 1.0) * w[(r, l)]);
    let own: Vec<f64> = (0..w.rows())
        .map(|r| w.row(r).iter().zip(gamma).map(|(w, g)| 0.25 * (g - 1.0) * w * w).sum())
        .collect();
    let mut out = product_transposed(&weighted, w);
    for r in 0..out.rows() {
        out.row_mut(r).iter_mut().zip(&own).for_each(|(o, s)| *o += own[r] + s + constant);
    }
    out
}

/// `log Σ_{rs} weight(r,s) (e^{exponent(r,s)} − 1)`, whatever the size of the exponents.
fn log_quadratic_form(exponents: &Matrix<f64>, weight: impl Fn(usize, usize) -> f64) -> f64 {
    let max = exponents.as_slice().iter().copied().fold(0.0, f64::max);
    // Exponents below 30 are summed as e^x − 1 without loss; above, the largest is factored out.
    let unit = if max < 30.0 { 0.0 } else { max };
    let mut total = 0.0;
    for r in 0..exponents.rows() {
        for (s, &e) in exponents.row(r).iter().enumerate() {
            let value = if unit == 0.0 { e.exp_m1() } else { (e - unit).exp() - (-unit).exp() };
            total += weight(r, s) * value;
        }
    }
    unit + total.max(f64::MIN_POSITIVE).ln()
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}
