//! The balanced family: the optimum of the whole dense-exponential class.
//!
//! Both sides are centred, the balancing transform of the two covariances makes
//! `GΣ_xGᵀ = G⁻ᵀΣ_yG⁻¹ = diag(σ)` with `σ` the singular values of `Σ_x^½Σ_y^½`, and
//! `a_l = a*(2σ_l)`. The proof that nothing in the class is better is in `docs/method.md`.

use super::{centring_shift, floor_of, with_transform};
use crate::linalg::{eigen, left_singular, product, scale_rows, trace};
use crate::{Matrix, Moments, Parameters, Result};

pub(super) fn fit(queries: &Moments, keys: &Moments) -> Result<Parameters> {
    let (g, g_inverse) = balancing_transform(&queries.covariance(), &keys.covariance())?;
    with_transform(g, g_inverse, centring_shift(queries), centring_shift(keys))?
        .with_best_diagonal(queries, keys)
}

/// `G` and `G⁻ᵀ` with `G M₁ Gᵀ = G⁻ᵀ M₂ G⁻¹` diagonal: with `M_k = Q_kΛ_kQ_kᵀ` and the singular
/// value decomposition `UΣVᵀ = Λ₁^½Q₁ᵀQ₂Λ₂^½`, it is `G = Σ^½UᵀΛ₁^{−½}Q₁ᵀ`.
pub(super) fn balancing_transform(
    query_moment: &Matrix<f64>,
    key_moment: &Matrix<f64>,
) -> Result<(Matrix<f64>, Matrix<f64>)> {
    let (query_trace, key_trace) = (trace(query_moment), trace(key_moment));
    let roots = |m: &Matrix<f64>, own: f64, other: f64| -> Result<_> {
        let found = eigen(m)?;
        let floor = floor_of(own, other, m.rows());
        let roots: Vec<f64> = found.values.iter().map(|v| v.max(floor).sqrt()).collect();
        Ok((found.vectors, roots))
    };
    let (q1, root1) = roots(query_moment, query_trace, key_trace)?;
    let (q2, root2) = roots(key_moment, key_trace, query_trace)?;
    let half1 = scale_rows(q1.clone(), &root1);
    let half2 = scale_rows(q2, &root2);
    let (u, sigma) = left_singular(&crate::linalg::product_transposed(&half1, &half2))?;
    // The floors bound every σ from below; rounding in the decomposition must not undo that.
    let least = least_of(&root1) * least_of(&root2);
    let root: Vec<f64> = sigma.iter().map(|s| s.max(least).sqrt()).collect();
    let inverse = |v: &[f64]| v.iter().map(|v| 1.0 / v).collect::<Vec<_>>();
    let g = scale_rows(product(&u, &scale_rows(q1, &inverse(&root1))), &root);
    let g_inverse_transpose = scale_rows(product(&u, &half1), &inverse(&root));
    Ok((g, g_inverse_transpose))
}

fn least_of(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}
