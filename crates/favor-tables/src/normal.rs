//! Quantiles of the normal distribution.

use favor::learn::metrics::interval_factor;

/// The `z` with `P(Z ≤ z) = p` for standard-normal `Z`; NaN unless `p` lies between 0 and 1.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    match 2.0 * p - 1.0 {
        0.0 => 0.0,
        inside => interval_factor(inside.abs()).map_or(f64::NAN, |z| z.copysign(inside)),
    }
}
