//! ADE: the balancing transform of the two second moments, `a = a*(φ)·1`.

use super::balanced::balancing_transform;
use super::{centring_shift, with_transform};
use crate::{Moments, Parameters, Result};

pub(super) fn fit(queries: &Moments, keys: &Moments) -> Result<Parameters> {
    let (g, g_inverse) = balancing_transform(&queries.second_moment(), &keys.second_moment())?;
    let zeros = vec![0.0; queries.dim()];
    with_transform(g, g_inverse, zeros.clone(), zeros)?.with_best_scalar(queries, keys)
}

/// The same after both sides are centred, which leaves the two covariances.
pub(super) fn fit_shifted(queries: &Moments, keys: &Moments) -> Result<Parameters> {
    let (g, g_inverse) = balancing_transform(&queries.covariance(), &keys.covariance())?;
    with_transform(g, g_inverse, centring_shift(queries), centring_shift(keys))?
        .with_best_scalar(queries, keys)
}
