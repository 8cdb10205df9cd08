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
use super::median;
use rayon::prelude::*;

use crate::linalg::{dot, product, product_transposed};
use crate::parameters::overflow;
use crate::{Family, Float, Matrix, Result, Rows};

/// As many queries and keys as are worth predicting from: time grows with the square of the keys.
pub const PREDICTED: (usize, usize) = (48, 512);

/// Keys with less than this fraction of a query's attention do not enter its prediction.
const LEAST_SHARE: f64 = 1e-7;

/// The effect of one feature's variance on the rows of a set of queries.
///
/// [`predict`] returns it; its page has an example.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// For each query, the logarithm of the relative variance of its row sum `Σ_j K(x,y_j)`.
    pub row_sums: Vec<f64>,
    /// For each query, the logarithm of the variance of its attention output (the sum over the output's
    /// dimensions), if values were given.
    pub outputs: Option<Vec<f64>>,
    /// For each query, the mean squared distance of the values from its output: roughly the largest
    /// possible error, since positive features keep the output among the values.
    pub limits: Option<Vec<f64>>,
    /// The mean over the queries of `‖output‖²`, if values were given.
    pub output_power: Option<f64>,
}

impl Prediction {
    /// The median over the queries of the logarithmic relative variance of the row sums.
    pub fn typical_row_sum(&self) -> f64 {
        median(self.row_sums.iter().copied())
    }

    /// The relative error of the outputs with this many features: each query's variance divided by their
    /// number, or its limit if that is smaller. If even the row sum has an error as large as itself,
    /// rare draws decide which keys are seen at all, and the limit applies.
    pub fn output_error(&self, features: f64) -> Option<f64> {
        let (outputs, limits) = (self.outputs.as_ref()?, self.limits.as_ref()?);
        let queries = outputs.iter().zip(limits).zip(&self.row_sums);
        let square = |((output, limit), row_sum): ((&f64, &f64), &f64)| {
            if row_sum > &features.ln() {
                *limit
            } else {
                (output - features.ln()).exp().min(*limit)
            }
        };
        let total: f64 = queries.map(square).sum();
        let power = self.output_power?;
        (power > 0.0).then(|| (total / outputs.len() as f64 / power).sqrt())
    }

    /// The number of features needed for a relative error of the outputs, at least 1; astronomical if
    /// some queries are hopeless.
    pub fn features_for_output(&self, error: f64) -> Option<f64> {
        let (mut low, mut high) = (0.0_f64, 700.0_f64);
        if self.output_error(1.0)? <= error {
            return Some(1.0);
        }
        // The error falls as features are added: bisect over their logarithm.
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.output_error(middle.exp())? <= error { high = middle } else { low = middle }
        }
        Some(high.exp())
    }

    /// The logarithm of the output variance of one feature relative to the power of the outputs, without
    /// the limits.
    pub fn relative_output(&self) -> Option<f64> {
        let outputs = self.outputs.as_ref()?;
        let max = outputs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = outputs.iter().map(|v| (v - max).exp()).sum::<f64>() / outputs.len() as f64;
        let power = self.output_power?;
        (power > 0.0).then(|| max + mean.ln() - power.ln())
    }
}

/// Predicts the variance of each query's row sum and, with values, of its attention output. Costs
/// `O(S²d)` per query: pass a sample of the queries. `None` for families without the closed form (Trig,
/// Hyperbolic).
///
/// ```
/// use favor::{Family, Kernel, Matrix, Moments};
/// use favor::diagnose::{Estimator, predict, sample_rows};
/// let x = Matrix::from_fn(100, 4, |i, l| ((7 * i + l) as f64).sin());
/// let m = Moments::of(x.view())?;
/// let estimator = Estimator::fit(Family::Balanced, Kernel::attention(4), &m, &m)?;
///
/// let some = sample_rows(x.view(), 10, 0);
/// let prediction = predict(&estimator, some.view(), x.view(), Some(x.view()))?.unwrap();
/// let error = |features| prediction.output_error(features).unwrap();
/// assert!(error(1024.0) < error(64.0));
///
/// let needed = prediction.features_for_output(0.1).unwrap();
/// assert!(error(needed) <= 0.1);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn predict<T: Float>(
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
    let rows: Vec<Row> = (0..queries.rows())
        .into_par_iter()
        .map(|i| {
            let (chosen, shares) = attention_shares(logs.row(i));
            let w =
                Matrix::from_fn(chosen.len(), u.columns(), |r, l| u[(i, l)] + v[(chosen[r], l)]);
            predict_row(pair_exponents(&w, &gamma, constant), &chosen, &shares, values)
        })
        .collect();
    let variances = rows.iter().flat_map(|r| [r.row_sum, r.output]);
    if !variances.into_iter().all(f64::is_finite) {
        return Err(overflow("the predicted variance"));
    }
    let power = rows.iter().map(|r| r.power).sum::<f64>() / queries.rows() as f64;
    Ok(Some(Prediction {
        row_sums: rows.iter().map(|r| r.row_sum).collect(),
        outputs: values.map(|_| rows.iter().map(|r| r.output).collect()),
        limits: values.map(|_| rows.iter().map(|r| r.limit).collect()),
        output_power: values.map(|_| power),
    }))
}

/// The logarithms of one query's two variances, the limit of the second, and `‖output‖²`.
struct Row {
    row_sum: f64,
    output: f64,
    limit: f64,
    power: f64,
}

/// Both variances are forms `Σ_c b_cᵀ E b_c` in the matrix `E = e^{exponents} − 1`: with the shares
/// for the row sum, and with the shares times each column of the centred values for the output.
fn predict_row<T: Float>(
    mut exponents: Matrix<f64>,
    chosen: &[usize],
    shares: &[f64],
    values: Option<Rows<'_, T>>,
) -> Row {
    let columns = values.map_or(0, |v| v.columns());
    let value = |r: usize, c: usize| values.map_or(0.0, |v| v.row(chosen[r])[c].to_f64());
    let mean: Vec<f64> =
        (0..columns).map(|c| (0..chosen.len()).map(|r| shares[r] * value(r, c)).sum()).collect();
    let sides = Matrix::from_fn(chosen.len(), columns + 1, |r, c| match c {
        0 => shares[r],
        _ => shares[r] * (value(r, c - 1) - mean[c - 1]),
    });
    let max = exponents.as_slice().iter().copied().fold(0.0, f64::max);
    // Exponents below 30 are summed as e^x − 1 without loss; above, the largest is factored out.
    let unit = if max < 30.0 { 0.0 } else { max };
    for r in 0..exponents.rows() {
        for s in r..exponents.columns() {
            let e = exponents[(r, s)];
            let excess = if unit == 0.0 { e.exp_m1() } else { (e - unit).exp() - (-unit).exp() };
            exponents[(r, s)] = excess;
            exponents[(s, r)] = excess;
        }
    }
    let applied = product(&exponents, &sides);
    let form = |c: usize| (0..chosen.len()).map(|r| sides[(r, c)] * applied[(r, c)]).sum::<f64>();
    let log = |total: f64| unit + total.max(f64::MIN_POSITIVE).ln();
    Row {
        row_sum: log(form(0)),
        output: log((1..=columns).map(form).sum()),
        limit: values.map_or(0.0, |v| mean_square_distance(v, &mean)),
        power: dot(&mean, &mean),
    }
}

fn mean_square_distance<T: Float>(rows: Rows<'_, T>, centre: &[f64]) -> f64 {
    let distance =
        |row: &[T]| -> f64 { row.iter().zip(centre).map(|(v, c)| (v.to_f64() - c).powi(2)).sum() };
    rows.iter().map(distance).sum::<f64>() / rows.rows() as f64
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
