//! What `diagnose::predict` says of whole rows of attention, against rows of independent draws.

use crate::common::theory::{of_the_class, relative_moments};
use crate::common::{assert_within, moments, normal, plain_features};
use favor::diagnose::{Estimator, effective_sample_sizes, features_needed, predict};
use favor::reference::{Mask, exact_attention, feature_attention};
use favor::{Coupling, Family, FeatureSpec, Kernel, Matrix, Side};

struct Case {
    q: Matrix<f64>,
    k: Matrix<f64>,
    v: Matrix<f64>,
}

fn case() -> Case {
    Case {
        q: normal(1, 3, 4, 0.1, 0.4),
        k: normal(2, 6, 4, -0.2, 0.3),
        v: normal(3, 6, 2, 0.3, 1.0),
    }
}

fn kernels() -> [Kernel; 3] {
    [Kernel::softmax(), Kernel::gaussian(), Kernel::attention(4)]
}

/// Attention weights of every query.
fn weights(kernel: Kernel, case: &Case) -> Matrix<f64> {
    let mut out = kernel.log_matrix(case.q.view(), case.k.view()).unwrap();
    for i in 0..out.rows() {
        let row = out.row_mut(i);
        row.iter_mut().for_each(|v| *v = v.exp());
        let total: f64 = row.iter().sum();
        row.iter_mut().for_each(|v| *v /= total);
    }
    out
}

/// The errors of one query's kernel values share their ω. The closed form of their joint second
/// moments gives the variance of the row sum, and of the first-order error of the output, exactly:
/// both are measured here per draw. The fourth moment of a weighted mean is at most the weighted
/// mean of the fourth moments (Jensen), which bounds the error of the measurement.
#[test]
fn row_sums_and_outputs_have_the_predicted_variance() {
    const FEATURES: usize = 1 << 17;
    let case = case();
    for family in of_the_class() {
        for kernel in kernels() {
            let what = format!("{family} {kernel:?}");
            let spec = FeatureSpec::new(family, FEATURES).kernel(kernel).coupling(Coupling::Iid);
            let map = spec.seed(3).fit(&moments(&case.q), &moments(&case.k)).unwrap();
            let estimator = Estimator::of(&map).unwrap();
            let values = Some(case.v.view());
            let found = predict(&estimator, case.q.view(), case.k.view(), values).unwrap().unwrap();
            let outputs = found.outputs.as_ref().unwrap();
            let p = plain_features(&map, Side::Query, &case.q);
            let s = plain_features(&map, Side::Key, &case.k);
            let shares = weights(kernel, &case);
            let mut power = 0.0;
            for i in 0..case.q.rows() {
                let theory: Vec<_> = (0..case.k.rows())
                    .map(|j| {
                        let (x, y) = (case.q.row(i), case.k.row(j));
                        relative_moments(family, map.parameters(), kernel, x, y)
                    })
                    .collect();
                let fourth: f64 = theory.iter().zip(shares.row(i)).map(|(t, a)| a * t.fourth).sum();
                let mean = |c: usize| -> f64 {
                    (0..case.k.rows()).map(|j| shares[(i, j)] * case.v[(j, c)]).sum()
                };
                let output = [mean(0), mean(1)];
                power += output[0] * output[0] + output[1] * output[1];
                let (mut row_sum, mut out_sum, mut out_fourth) = (0.0, 0.0, 0.0);
                let k: Vec<f64> = (0..case.k.rows())
                    .map(|j| crate::common::theory::exact(kernel, case.q.row(i), case.k.row(j)))
                    .collect();
                for m in 0..FEATURES {
                    let (mut total, mut off) = (0.0, [0.0; 2]);
                    for j in 0..case.k.rows() {
                        let z = shares[(i, j)] * p[(i, m)] * s[(j, m)] / k[j];
                        total += z;
                        (0..2).for_each(|c| off[c] += z * (case.v[(j, c)] - output[c]));
                    }
                    row_sum += total * total;
                    let square = off[0] * off[0] + off[1] * off[1];
                    out_sum += square;
                    out_fourth += square * square;
                }
                let n = FEATURES as f64;
                let predicted = 1.0 + found.row_sums[i].exp();
                let error = ((fourth - predicted * predicted) / n).sqrt();
                assert_within(&format!("{what} row sum {i}"), row_sum / n, predicted, error);
                let predicted = outputs[i].exp();
                // No useful bound here: the fourth moment is measured too.
                let error = ((out_fourth / n - predicted * predicted) / n).sqrt();
                assert_within(&format!("{what} output {i}"), out_sum / n, predicted, error);
            }
            let measured = found.output_power.unwrap();
            crate::common::assert_close(&what, measured, power / case.q.rows() as f64, 1e-9);
        }
    }
}

/// The delta method: M times the squared error of attention itself tends to the prediction.
#[test]
fn attention_errs_as_predicted() {
    const SEEDS: u64 = 500;
    const FEATURES: usize = 512;
    let case = case();
    let kernel = Kernel::attention(4);
    let (q, k, v) = (case.q.view(), case.k.view(), case.v.view());
    let exact = exact_attention(kernel, q, k, v, Mask::none()).unwrap();
    for family in [Family::Pos, Family::Ade, Family::Balanced] {
        let spec = FeatureSpec::new(family, FEATURES).kernel(kernel).coupling(Coupling::Iid);
        let (mq, mk) = (moments(&case.q), moments(&case.k));
        let estimator = Estimator::fit(family, kernel, &mq, &mk).unwrap();
        let found = predict(&estimator, q, k, Some(v)).unwrap().unwrap();
        let (mut one, mut two) = (0.0, 0.0);
        for seed in 0..SEEDS {
            let map = spec.seed(seed).fit(&mq, &mk).unwrap();
            let out = feature_attention(&map, q, k, v, Mask::none()).unwrap();
            let pairs = out.as_slice().iter().zip(exact.as_slice());
            let error: f64 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
            one += error;
            two += error * error;
        }
        let n = SEEDS as f64;
        let (mean, square) = (one / n, two / n);
        let predicted = found.outputs.as_ref().unwrap().iter().map(|v| v.exp()).sum::<f64>();
        let predicted = predicted / FEATURES as f64;
        // The next order of the delta method is smaller by the relative variance of the row sum.
        let next = 4.0 * found.typical_row_sum().exp() / FEATURES as f64 * predicted;
        let error = ((square - mean * mean) / n).sqrt();
        assert!((mean - predicted).abs() < 4.0 * error + next, "{family}: {mean} for {predicted}");
        let power = found.relative_output().unwrap().exp() / FEATURES as f64;
        let norm: f64 = exact.as_slice().iter().map(|v| v * v).sum();
        crate::common::assert_close("relative output", power, predicted / norm, 1e-9);
    }
}

#[test]
fn families_without_a_closed_form_say_so() {
    let case = case();
    let (mq, mk) = (moments(&case.q), moments(&case.k));
    for family in [Family::Trig, Family::TrigPair, Family::Hyperbolic] {
        let estimator = Estimator::fit(family, Kernel::softmax(), &mq, &mk).unwrap();
        assert_eq!(predict(&estimator, case.q.view(), case.k.view(), None), Ok(None));
        assert_eq!(estimator.objective(&mq, &mk), Ok(None));
    }
}

/// The effective sample size lies between 1 and M, is M when all features agree, and follows the
/// predicted variance: `M / (1 + relative variance)` in the limit of many features.
#[test]
fn effective_sample_sizes_follow_the_variance() {
    const FEATURES: usize = 1 << 15;
    let case = case();
    let (mq, mk) = (moments(&case.q), moments(&case.k));
    for family in of_the_class() {
        let spec = FeatureSpec::new(family, FEATURES).coupling(Coupling::Iid).seed(8);
        let map = spec.fit(&mq, &mk).unwrap();
        let sizes = effective_sample_sizes(&map, case.q.view(), case.k.view()).unwrap();
        let estimator = Estimator::of(&map).unwrap();
        let found = predict(&estimator, case.q.view(), case.k.view(), None).unwrap().unwrap();
        for (i, size) in sizes.into_iter().enumerate() {
            assert!((1.0..=FEATURES as f64).contains(&size));
            let fourth = (0..case.k.rows())
                .map(|j| {
                    let (x, y) = (case.q.row(i), case.k.row(j));
                    relative_moments(family, map.parameters(), Kernel::softmax(), x, y).fourth
                })
                .fold(0.0, f64::max);
            let predicted = 1.0 / (1.0 + found.row_sums[i].exp());
            // The ratio of a squared mean to a mean square: the latter's error dominates, and the
            // former's is correlated with it; twice the larger bounds both.
            let error = 2.0 * predicted * (fourth / FEATURES as f64).sqrt();
            assert_within(&format!("{family} {i}"), size / FEATURES as f64, predicted, error);
        }
    }
    let zero = Matrix::<f64>::zeros(2, 3);
    let map = FeatureSpec::new(Family::Balanced, 32).fit(&moments(&zero), &moments(&zero)).unwrap();
    let sizes = effective_sample_sizes(&map, zero.view(), zero.view()).unwrap();
    sizes.iter().for_each(|&size| crate::common::assert_close("equal features", size, 32.0, 1e-12));
}

#[test]
fn features_needed_is_the_variance_over_the_squared_error() {
    crate::common::assert_close("needed", features_needed(3.0, 0.05), 3_f64.exp() / 0.0025, 1e-12);
    assert_eq!(features_needed(-50.0, 0.5), 1.0);
    assert!(features_needed(1e6, 1e-3).is_finite());
}
