//! The error of a map on given data, measured against the exact kernel.

use super::median;
use crate::reference::{Mask, exact_attention, feature_attention, mean_of_values};
use crate::{FeatureMap, Float, Matrix, Result, Rows, Side};

/// `‖approximate − exact‖ / ‖exact‖` in the Frobenius norm; 0 when both are zero.
///
/// ```
/// use favor::{Matrix, diagnose::relative_error};
/// let exact = Matrix::new(vec![3.0, 4.0], 1, 2)?;
/// let near = Matrix::new(vec![3.0, 4.5], 1, 2)?;
/// assert!((relative_error(&near, &exact) - 0.1).abs() < 1e-12);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn relative_error<T: Float>(approximate: &Matrix<T>, exact: &Matrix<T>) -> f64 {
    let pairs = approximate.as_slice().iter().zip(exact.as_slice());
    let (mut error, mut power) = (0.0, 0.0);
    for (a, e) in pairs {
        error += (a.to_f64() - e.to_f64()).powi(2);
        power += e.to_f64().powi(2);
    }
    if error == 0.0 { 0.0 } else { (error / power).sqrt() }
}

/// The median over all pairs of `|K̂/K − 1|`.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Matrix, Moments, diagnose::kernel_error};
/// let x = Matrix::from_fn(50, 3, |i, l| 0.5 * ((7 * i + l) as f64).sin());
/// let m = Moments::of(x.view())?;
/// let map = FeatureSpec::new(Family::Balanced, 256).kernel(Kernel::gaussian()).fit(&m, &m)?;
/// assert!(kernel_error(&map, x.view(), x.view())? < 0.1);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn kernel_error<T: Float>(map: &FeatureMap, x: Rows<'_, T>, y: Rows<'_, T>) -> Result<f64> {
    let exact = map.kernel().log_matrix(x, y)?;
    let p = map.features_of(Side::Query, x.to_f64(1.0).view())?;
    let s = map.features_of(Side::Key, y.to_f64(1.0).view())?;
    let product = crate::linalg::product_transposed(&p.values, &s.values);
    let mut errors = Vec::with_capacity(x.rows() * y.rows());
    for i in 0..x.rows() {
        for j in 0..y.rows() {
            let value = product[(i, j)];
            let log_ratio = value.abs().ln() + p.log_scale[i] + s.log_scale[j] - exact[(i, j)];
            errors.push((value.signum() * log_ratio.exp() - 1.0).abs());
        }
    }
    Ok(median(errors).min(f64::MAX))
}

/// The relative error of attention by the map compared with exact attention.
///
/// ```
/// use favor::reference::{Mask, exact_attention};
/// use favor::{Family, FeatureSpec, Kernel, Matrix, Moments};
/// use favor::diagnose::{attention_error, uniform_error};
/// let x = Matrix::from_fn(50, 4, |i, l| 2.0 * ((7 * i + l) as f64).sin());
/// let m = Moments::of(x.view())?;
/// let map = FeatureSpec::new(Family::Balanced, 256).kernel(Kernel::attention(4)).fit(&m, &m)?;
/// let error = attention_error(&map, x.view(), x.view(), x.view())?;
///
/// // Good for something: the mean of the values is worse.
/// let exact = exact_attention(map.kernel(), x.view(), x.view(), x.view(), Mask::none())?;
/// assert!(error < uniform_error(&exact, x.view())?);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn attention_error<T: Float>(
    map: &FeatureMap,
    q: Rows<'_, T>,
    k: Rows<'_, T>,
    v: Rows<'_, T>,
) -> Result<f64> {
    let exact = exact_attention(map.kernel(), q, k, v, Mask::none())?;
    Ok(relative_error(&feature_attention(map, q, k, v, Mask::none())?, &exact))
}

/// The relative error of the plain mean of the values instead of exact attention: what an
/// approximation must beat to be of any use.
///
/// ```
/// use favor::{Matrix, diagnose::uniform_error};
/// let values = Matrix::new(vec![1.0, 3.0], 2, 1)?; // with the mean 2
/// let exact = Matrix::new(vec![2.5, 2.0], 2, 1)?;
/// let error = uniform_error(&exact, values.view())?;
/// assert!((error - 0.5 / 10.25_f64.sqrt()).abs() < 1e-12);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn uniform_error<T: Float>(exact: &Matrix<T>, v: Rows<'_, T>) -> Result<f64> {
    crate::kernel::check_values("uniform_error", v, v)?;
    Ok(relative_error(&mean_of_values(v, exact.rows(), false), exact))
}

/// How many of the M features effectively carry each query's row sum: `(Σ_m p_m)² / Σ_m p_m²` with
/// `p_m = P_m(x) Σ_j S_m(y_j)`. Near M the features share the work; near 1 a single feature decides
/// and the estimate is worthless.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Matrix, Moments, diagnose::effective_sample_sizes};
/// let x = Matrix::from_fn(50, 4, |i, l| ((7 * i + l) as f64).sin());
/// let m = Moments::of(x.view())?;
/// let map = FeatureSpec::new(Family::Balanced, 64).kernel(Kernel::attention(4)).fit(&m, &m)?;
/// let sizes = effective_sample_sizes(&map, x.view(), x.view())?;
/// assert!(sizes.iter().all(|size| *size > 1.0 && *size < 64.0));
/// # Ok::<(), favor::Error>(())
/// ```
pub fn effective_sample_sizes<T: Float>(
    map: &FeatureMap,
    queries: Rows<'_, T>,
    keys: Rows<'_, T>,
) -> Result<Vec<f64>> {
    let mut sums = crate::KeySums::new(map, 1);
    let ones = Matrix::from_fn(keys.rows(), 1, |_, _| T::from_f64(1.0));
    sums.add(map, keys, ones.view())?;
    let features = map.log_features(Side::Query, queries.to_f64(1.0).view())?;
    let key_logs: Vec<f64> =
        sums.log_scale().iter().zip(sums.sums().as_slice()).map(|(l, s)| l + s.ln()).collect();
    Ok((0..features.rows())
        .map(|i| {
            let logs: Vec<f64> =
                features.row(i).iter().zip(&key_logs).map(|(a, b)| a + b).collect();
            let max = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let (one, two) = logs.iter().fold((0.0, 0.0), |(one, two), l| {
                let p = (l - max).exp();
                (one + p, two + p * p)
            });
            one * one / two
        })
        .collect())
}
