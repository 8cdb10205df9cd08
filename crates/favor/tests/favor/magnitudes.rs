//! Numbers of any magnitude: everything that can be done with them gives finite numbers or an error.
//! Never a panic, never a NaN.

use crate::common::{cast, moments, normal};
use favor::diagnose::{Estimator, effective_sample_sizes, predict};
use favor::reference::{Baseline, Mask, baseline_attention, exact_attention, feature_attention};
use favor::{
    Family, FeatureMap, FeatureSpec, Float, Kernel, Matrix, Moments, Scalar, Side, kernel_product,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn map(family: Family, d: usize) -> FeatureMap {
    let x = normal(1, 10, d, 0.0, 0.5);
    FeatureSpec::new(family, 6).fit(&moments(&x), &moments(&x)).unwrap()
}

#[track_caller]
fn finite(numbers: &[f64]) {
    assert!(numbers.iter().all(|v| v.is_finite()), "{numbers:?}");
}

#[track_caller]
fn finite_t<T: Float + Scalar>(m: &Matrix<T>) {
    assert!(m.as_slice().iter().all(|v| v.is_finite()), "{m:?}");
}

/// Everything that can be done with a pair of sets. Refusals are fine; what is returned is finite.
fn exercise<T: Float + Scalar>(x: &Matrix<T>, y: &Matrix<T>) -> usize {
    let kernels = [Kernel::softmax(), Kernel::gaussian(), Kernel::new(0.3, 0.7).unwrap()];
    kernels.map(|kernel| with_kernel(kernel, x, y)).into_iter().sum()
}

fn with_kernel<T: Float + Scalar>(kernel: Kernel, x: &Matrix<T>, y: &Matrix<T>) -> usize {
    let mut answers = 0;
    let v = cast::<T>(&normal(9, y.rows(), 2, 0.0, 1.0));
    let (x, y, v) = (x.view(), y.view(), v.view());
    let logs = kernel.log_matrix(x, y);
    answers += usize::from(logs.is_ok());
    if let Ok(logs) = logs {
        finite(logs.as_slice());
    }
    if let Ok(product) = kernel.product(x, y, v) {
        finite(&product.log_scale);
        finite_t(&product.values);
    }
    if let Ok(out) = exact_attention(kernel, x, y, v, Mask::none()) {
        finite_t(&out);
    }
    let (Ok(mx), Ok(my)) = (Moments::of(x), Moments::of(y)) else { return answers };
    finite(mx.mean());
    finite(mx.covariance().as_slice());
    for family in Family::ALL {
        if let Ok(Some(p)) = family.fit(&mx, &my) {
            finite(p.quadratic());
            finite(p.query_transform().as_slice());
            finite(p.key_transform().as_slice());
            assert!(p.quadratic().iter().all(|a| 8.0 * a < 1.0));
            if let Ok(spread) = p.spread(&mx, &my) {
                finite(&spread);
            }
            if let Ok(objective) = p.objective(&mx, &my) {
                finite(&[objective]);
            }
        }
        let Ok(map) = FeatureSpec::new(family, 8).kernel(kernel).fit(&mx, &my) else {
            continue;
        };
        answers += 1;
        for side in [Side::Query, Side::Key] {
            if let Ok(features) = map.features_of(side, x) {
                finite(&features.log_scale);
                finite_t(&features.values);
            }
            if let Ok(logs) = map.log_features(side, y) {
                finite_t(&logs);
            }
        }
        if let Ok(product) = kernel_product(&map, x, y, v) {
            finite(&product.log_scale);
            finite_t(&product.values);
            if let Ok(plain) = product.to_matrix() {
                finite_t(&plain);
            }
        }
        if let Ok(out) = feature_attention(&map, x, y, v, Mask::none()) {
            finite_t(&out);
        }
        let estimator = Estimator::of(&map).unwrap();
        if let Ok(logs) = estimator.log_relative_variances(x, y) {
            finite(logs.as_slice());
        }
        if let Ok(logs) = estimator.log_second_moments(x, y) {
            finite(logs.as_slice());
        }
        if let Ok(Some(objective)) = estimator.objective(&mx, &my) {
            finite(&[objective]);
        }
        if let Ok(Some(found)) = predict(&estimator, x, y, Some(v)) {
            finite(&found.row_sums);
            finite(&found.outputs.unwrap());
        }
        if let Ok(sizes) = effective_sample_sizes(&map, x, y) {
            assert!(sizes.iter().all(|s| *s >= 1.0 - 1e-12), "{family} {sizes:?}");
        }
    }
    if let Ok(out) = baseline_attention(&Baseline::Elu, x, y, v, Mask::none()) {
        finite_t(&out);
    }
    answers
}

/// Sets of normal numbers of any two magnitudes, with rows that cancel one another, a single row,
/// one dimension, and one huge entry among small ones.
fn hostile_sets(power_x: i32, power_y: i32) -> Vec<(Matrix<f64>, Matrix<f64>)> {
    let (sx, sy) = (10_f64.powi(power_x), 10_f64.powi(power_y));
    let x = normal(1, 5, 3, 0.0, sx);
    let y = normal(2, 4, 3, 0.0, sy);
    let cancel = Matrix::from_fn(4, 2, |i, l| if (i + l) % 2 == 0 { sx } else { -sx });
    let equal = Matrix::from_fn(3, 2, |_, _| sy);
    let mut spike = normal(3, 6, 3, 0.0, 1.0);
    spike[(4, 2)] = sx;
    let mut other = normal(4, 6, 3, 0.0, 1.0);
    other[(0, 2)] = -sy;
    vec![
        (x.clone(), y.clone()),
        (crate::common::pick(x.view(), &[0]), crate::common::pick(y.view(), &[0])),
        (Matrix::from_fn(5, 1, |i, _| x[(i, 0)]), Matrix::from_fn(4, 1, |i, _| y[(i, 0)])),
        (cancel, equal),
        (spike, other),
    ]
}

/// Runs everything on sets of all pairs of magnitudes; gives the number of answers.
fn survives<T: Float + Scalar>(powers: &[i32]) -> usize {
    let mut answers = 0;
    let mut failures = vec![];
    for &px in powers {
        for &py in powers {
            for (k, (x, y)) in hostile_sets(px, py).into_iter().enumerate() {
                let (x, y) = (cast::<T>(&x), cast::<T>(&y));
                match catch_unwind(AssertUnwindSafe(|| exercise(&x, &y))) {
                    Ok(count) => answers += count,
                    Err(_) => failures
                        .push(format!("{} 1e{px}, 1e{py}, set {k}", std::any::type_name::<T>())),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    answers
}

#[test]
fn scales_of_thirty_powers_of_ten_are_answered() {
    let answers = survives::<f64>(&[-30, 0, 30]);
    // Every kernel and every family on every set: nothing here is beyond f64.
    assert_eq!(answers, 9 * 5 * 3 * (1 + Family::ALL.len()));
    assert_eq!(survives::<f32>(&[-30, 0, 30]), answers);
}

#[test]
fn scales_beyond_reason_are_refused_or_finite() {
    survives::<f64>(&[-300, -200, -100, 0, 75, 100, 150, 160, 200, 300]);
    survives::<f32>(&[-44, -38, 0, 38]);
}

/// Kernels at the ends of what can be asked for.
#[test]
fn kernels_beyond_reason_are_refused_or_finite() {
    let (x, y) = (normal(1, 5, 3, 0.2, 1.0), normal(2, 4, 3, 0.0, 1.0));
    for (alpha, scale) in [
        (0.0, 1e200),
        (-0.5, 1e160),
        (0.0, 1e300),
        (0.0, 1e-200),
        (-0.5, 1e-300),
        (1e300, 1.0),
        (-1e308, 1e10),
    ] {
        let run = catch_unwind(AssertUnwindSafe(|| {
            with_kernel(Kernel::new(alpha, scale).unwrap(), &x, &y)
        }));
        assert!(run.is_ok(), "α = {alpha:e}, scale = {scale:e}");
    }
}

/// Values that do not fit once they are added up.
#[test]
fn values_beyond_reason_are_refused_or_finite() {
    fn check<T: Float + Scalar>(size: f64) {
        let x = cast::<T>(&normal(1, 9, 3, 0.2, 0.5));
        let v = Matrix::from_fn(9, 2, |_, c| T::from_f64(if c == 0 { size } else { -size }));
        let (x, v) = (x.view(), v.view());
        for kernel in [Kernel::softmax(), Kernel::gaussian()] {
            if let Ok(product) = kernel.product(x, x, v) {
                finite_t(&product.values);
            }
            if let Ok(out) = exact_attention(kernel, x, x, v, Mask::none()) {
                finite_t(&out);
            }
        }
        for family in Family::ALL {
            let map = map(family, 3);
            if let Ok(product) = kernel_product(&map, x, x, v) {
                finite_t(&product.values);
            }
            for mask in [Mask::none(), Mask::causal()] {
                if let Ok(out) = feature_attention(&map, x, x, v, mask) {
                    finite_t(&out);
                }
            }
        }
    }
    check::<f64>(1e308);
    check::<f64>(5e-324);
    check::<f32>(3e38);
    check::<f32>(1e-45);
}
