//! Ridge regression with the exact kernel, for few rows: what a design of ever more features comes to.

use super::{Design, Known, Outcome};
use crate::linalg::{Cholesky, product};
use crate::{Error, Matrix, Result, Rows};

/// The predictions at `queries` of ridge regression with the kernel that a design estimates, from at most some
/// thousands of rows: time grows with the third power of their number. One column per target, in its own
/// units; of classes the one-hot values.
///
/// ```
/// use favor::learn::{DesignSpec, Known, Outcome, Scaling, exact_ridge};
/// use favor::{Matrix, Moments};
/// let rows = Matrix::from_fn(50, 1, |i, _| i as f64 / 10.0);
/// let y = Matrix::from_fn(50, 1, |i, _| rows[(i, 0)].sin());
/// let design = DesignSpec::new(8).bandwidth(0.5).fit(&Moments::of(rows.view())?, rows.view())?;
/// let outcome = Outcome::Numbers(vec![Scaling::IDENTITY]);
/// let known = Known::Numbers(y.view());
/// let found = exact_ridge(&design, rows.view(), known, &outcome, None, 1e-6, rows.view())?;
/// assert!((found[(20, 0)] - 2_f64.sin()).abs() < 1e-3);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn exact_ridge(
    design: &Design,
    rows: Rows<'_, f64>,
    known: Known<'_>,
    outcome: &Outcome,
    weights: Option<&[f64]>,
    penalty: f64,
    queries: Rows<'_, f64>,
) -> Result<Matrix<f64>> {
    known.check(outcome, rows.rows())?;
    if weights.is_some_and(|w| w.len() != rows.rows()) {
        return Err(Error::invalid("weights", format!("{} are needed", rows.rows())));
    }
    let used: Vec<usize> =
        (0..rows.rows()).filter(|&i| weights.is_none_or(|w| w[i] > 0.0)).collect();
    if used.is_empty() {
        return Err(Error::invalid("rows", "there are none of positive weight to learn from"));
    }
    let part = Matrix::from_fn(used.len(), rows.columns(), |r, l| rows.row(used[r])[l]);
    let target = |i: usize, t: usize| match (known, outcome) {
        (Known::Classes(of), _) => f64::from(u8::from(of[i] == t)),
        (Known::Numbers(values), Outcome::Numbers(scalings)) => scalings[t].apply(values.row(i)[t]),
        _ => 0.0,
    };
    let targets = outcome.width();
    // α = (K + λ/w)⁻¹(y − a), with the intercept a that makes the sum of α vanish.
    let mut kernel = design.kernel_matrix(part.view(), part.view())?;
    for (r, &i) in used.iter().enumerate() {
        kernel[(r, r)] += penalty / weights.map_or(1.0, |w| w[i]);
    }
    let factor = Cholesky::new(&kernel, 0.0).ok_or_else(|| {
        let reason = format!("{penalty} is too small for rows that are alike");
        Error::invalid("penalty", reason)
    })?;
    let right = Matrix::from_fn(used.len(), targets + 1, |r, t| match t {
        0 => 1.0,
        _ => target(used[r], t - 1),
    });
    let solved = factor.solve(&right);
    let sum = |t: usize| (0..used.len()).map(|r| solved[(r, t)]).sum::<f64>();
    let intercepts: Vec<f64> = (0..targets).map(|t| sum(t + 1) / sum(0)).collect();
    let alpha = Matrix::from_fn(used.len(), targets, |r, t| {
        solved[(r, t + 1)] - intercepts[t] * solved[(r, 0)]
    });
    let found = product(&design.kernel_matrix(queries, part.view())?, &alpha);
    Ok(Matrix::from_fn(queries.rows(), targets, |i, t| {
        let value = intercepts[t] + found[(i, t)];
        match outcome {
            Outcome::Numbers(scalings) => scalings[t].undo(value),
            Outcome::Classes(_) => value,
        }
    }))
}
