//! SADE (FAVOR# without decompositions): `G = Ψ = diag((mean y_l² / mean x_l²)^¼)`, then GE on
//! `Ψx, Ψ⁻¹y`.

use super::with_transform;
use crate::linalg::trace;
use crate::{Matrix, Moments, Parameters, Result};

pub(super) fn fit(queries: &Moments, keys: &Moments) -> Result<Parameters> {
    let (x, y) = (queries.second_moment(), keys.second_moment());
    let (x, y) = (floored_diagonal(&x, trace(&y)), floored_diagonal(&y, trace(&x)));
    // Square roots before the ratio: moments near the ends of f64 would overflow it.
    let psi: Vec<f64> = x.iter().zip(&y).map(|(x, y)| (y.sqrt() / x.sqrt()).sqrt()).collect();
    let d = psi.len();
    let diagonal =
        |f: &dyn Fn(f64) -> f64| Matrix::from_fn(d, d, |i, j| if i == j { f(psi[i]) } else { 0.0 });
    with_transform(diagonal(&|p| p), diagonal(&|p| 1.0 / p), vec![0.0; d], vec![0.0; d])?
        .with_best_scalar(queries, keys)
}

/// The diagonal, with a floor relative to its mean; a side that is all zeros takes its floor from
/// the other side.
fn floored_diagonal(m: &Matrix<f64>, other_trace: f64) -> Vec<f64> {
    let floor = super::floor_of(trace(m), other_trace, m.rows());
    (0..m.rows()).map(|l| m[(l, l)].max(floor)).collect()
}
