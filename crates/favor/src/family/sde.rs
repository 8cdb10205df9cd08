//! SDE (FAVOR#): orthogonal `G = Qᵀ` of the eigenvectors of `mean (x+y)(x+y)ᵀ`, `a_l = a*(Λ_l)`.

use super::{centring_shift, with_transform};
use crate::linalg::{eigen, sum};
use crate::{Matrix, Moments, Parameters, Result};

pub(super) fn fit(queries: &Moments, keys: &Moments) -> Result<Parameters> {
    let mut total = sum(&queries.second_moment(), &keys.second_moment());
    let (x, y) = (queries.mean(), keys.mean());
    for i in 0..x.len() {
        for j in 0..x.len() {
            total[(i, j)] += x[i] * y[j] + y[i] * x[j];
        }
    }
    let zeros = vec![0.0; x.len()];
    rotated(&total, zeros.clone(), zeros)?.with_best_diagonal(queries, keys)
}

/// The same after both sides are centred, which leaves the two covariances.
pub(super) fn fit_shifted(queries: &Moments, keys: &Moments) -> Result<Parameters> {
    let total = sum(&queries.covariance(), &keys.covariance());
    rotated(&total, centring_shift(queries), centring_shift(keys))?
        .with_best_diagonal(queries, keys)
}

fn rotated(total: &Matrix<f64>, query_shift: Vec<f64>, key_shift: Vec<f64>) -> Result<Parameters> {
    let basis = eigen(total)?.vectors;
    with_transform(basis.clone(), basis, query_shift, key_shift)
}
