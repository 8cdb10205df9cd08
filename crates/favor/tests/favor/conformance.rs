//! Every family, coupling, number format and kernel against the exact kernel and the closed forms.
//!
//! All seeds are fixed: a test either always passes or always fails. Every tolerance is four
//! standard errors, and every standard error comes from the closed-form moments, except for coupled
//! draws, which have none: theirs is measured over the seeds. Kernels and number formats share
//! their ω, so the comparisons that are independent of one another number about a thousand, of
//! which a right library fails one in fifteen choices of the data.

use crate::common::theory::{exact, features_per_draw, relative_moments, variance_of_mean};
use crate::common::{
    assert_close, assert_within, cast, log_kernel, moments, normal, plain_features,
};
use favor::diagnose::Estimator;
use favor::{Coupling, Family, FeatureMap, FeatureSpec, Float, Kernel, Matrix, Side};
use rayon::prelude::*;

/// Queries and keys to fit on; the first two of each are tested. Means apart and columns of unlike
/// spread, so that no two families have the same parameters; norms below one, so that fourth
/// moments stay small.
fn data<T: Float>(d: usize) -> (Matrix<T>, Matrix<T>) {
    let unit = (d as f64).powf(-0.5);
    let side = |seed, mean: f64, grow: f64| {
        let m = normal(seed, 24, d, 0.0, 0.45 * unit);
        let spread = |l: usize| (grow * (l as f64 + 0.5) / d as f64).exp();
        Matrix::from_fn(24, d, |i, l| T::from_f64(mean * unit + m[(i, l)] * spread(l)))
    };
    (side(d as u64, 0.35, 0.6), side(100 + d as u64, 0.2, -0.6))
}

fn kernels(d: usize) -> [(&'static str, Kernel); 3] {
    [
        ("softmax", Kernel::softmax()),
        ("gaussian", Kernel::gaussian()),
        ("attention", Kernel::attention(d)),
    ]
}

/// Maps of one family and kernel for any seed, with parameters fitted once.
fn maker<T: Float>(
    spec: FeatureSpec,
    x: &Matrix<T>,
    y: &Matrix<T>,
) -> impl Fn(u64) -> FeatureMap + Sync {
    let (mx, my) = (moments(x), moments(y));
    let fitted = spec.fit(&mx, &my).unwrap().parameters().cloned();
    move |seed| match &fitted {
        Some(p) => spec.seed(seed).with_parameters(p.clone()).unwrap(),
        None => spec.seed(seed).fit(&mx, &my).unwrap(),
    }
}

/// Unbiasedness (spec: any parameters that meet the constraints) and the second-moment formula, one
/// feature at a time, on many independent draws.
fn check_moments<T: Float>(family: Family, d: usize, kernel_name: &str, kernel: Kernel) {
    const FEATURES: usize = 1 << 16;
    let (x, y) = data::<T>(d);
    let spec = FeatureSpec::new(family, FEATURES).kernel(kernel).coupling(Coupling::Iid);
    let map = maker(spec, &x, &y)(17 + d as u64);
    let (x, y) = (cast::<T>(&head(&x)), cast::<T>(&head(&y)));
    let estimator = Estimator::of(&map).unwrap();
    let variances = estimator.log_relative_variances(x.view(), y.view()).unwrap();
    let seconds = estimator.log_second_moments(x.view(), y.view()).unwrap();
    let (p, s) = (plain_features(&map, Side::Query, &x), plain_features(&map, Side::Key, &y));
    let (x, y) = (x.view().to_f64(1.0), y.view().to_f64(1.0));
    let step = features_per_draw(family);
    for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let what = format!("{family} {} {kernel_name} d = {d}, pair ({i}, {j})", T::NAME);
        let k = exact(kernel, x.row(i), y.row(j));
        let theory = relative_moments(family, map.parameters(), kernel, x.row(i), y.row(j));

        // Per feature: a draw that makes two features spends twice the budget.
        let per_feature = step as f64 * theory.variance();
        assert_close(&what, variances[(i, j)].exp(), per_feature, 1e-9);
        let log_second = (1.0 + per_feature).ln() + 2.0 * log_kernel(kernel, x.row(i), y.row(j));
        assert!((seconds[(i, j)] - log_second).abs() < 1e-9, "{what}: {}", seconds[(i, j)]);

        let products: Vec<f64> = p.row(i).iter().zip(s.row(j)).map(|(p, s)| p * s / k).collect();
        let draws: Vec<f64> =
            products.chunks(step).map(|c| c.iter().sum::<f64>() / step as f64).collect();
        let n = draws.len() as f64;
        let mean = draws.iter().sum::<f64>() / n;
        let second = draws.iter().map(|z| z * z).sum::<f64>() / n;
        assert_within(&format!("{what}, mean"), mean, 1.0, (theory.variance() / n).sqrt());
        let error = (theory.variance_of_square() / n).sqrt();
        assert_within(&format!("{what}, second moment"), second, theory.second, error);
    }
}

fn head<T: Float>(m: &Matrix<T>) -> Matrix<f64> {
    m.view().slice(0, 2).to_f64(1.0)
}

#[test]
fn one_feature_has_the_mean_and_the_second_moment_of_theory() {
    let mut cases = vec![];
    for d in [1, 3, 8] {
        for (name, kernel) in kernels(d) {
            cases.extend(Family::ALL.map(|family| (family, d, name, kernel)));
        }
    }
    cases.par_iter().for_each(|&(family, d, name, kernel)| {
        check_moments::<f64>(family, d, name, kernel);
        check_moments::<f32>(family, d, name, kernel);
    });
}

/// The estimate of a whole map is unbiased whatever couples its rows, since each row alone is
/// N(0, I); for independent rows its variance is the closed form over M.
fn check_coupling<T: Float>(spec: FeatureSpec, d: usize) {
    const SEEDS: u64 = 400;
    let (x, y) = data::<T>(d);
    let make = maker(spec, &x, &y);
    let (x, y) = (cast::<T>(&head(&x)), cast::<T>(&head(&y)));
    let (wide_x, wide_y) = (x.view().to_f64(1.0), y.view().to_f64(1.0));
    let mut sums = [[0.0; 3]; 4];
    let parameters = make(0).parameters().cloned();
    for seed in 0..SEEDS {
        let map = make(1000 * d as u64 + seed);
        let p = map.features_of(Side::Query, x.view()).unwrap();
        let s = map.features_of(Side::Key, y.view()).unwrap();
        for (pair, sums) in sums.iter_mut().enumerate() {
            let (i, j) = (pair / 2, pair % 2);
            let product: f64 = p.values.row(i).iter().zip(s.values.row(j)).map(product).sum();
            let log = p.log_scale[i] + s.log_scale[j];
            let ratio = product * log.exp() / exact(spec.kernel, wide_x.row(i), wide_y.row(j));
            let off = ratio - 1.0;
            sums[0] += off;
            sums[1] += off * off;
            sums[2] += off.powi(4);
        }
    }
    let n = SEEDS as f64;
    for (pair, [one, two, four]) in sums.into_iter().enumerate() {
        let FeatureSpec { family, coupling, features, .. } = spec;
        let what = format!("{family} {coupling} {} M = {features} d = {d}, {pair}", T::NAME);
        let (mean, square, fourth) = (one / n, two / n, four / n);
        let measured = square - mean * mean;
        if coupling != Coupling::Iid {
            assert_within(&what, mean, 0.0, (measured / n).sqrt().max(1e-12));
            continue;
        }
        let rows = (wide_x.row(pair / 2), wide_y.row(pair % 2));
        let variance = variance_of_mean(family, parameters.as_ref(), spec.kernel, rows, features);
        assert_within(&what, mean, 0.0, (variance / n).sqrt());
        // The fourth moment of a mean of few features has no short form: it is measured.
        let error = ((fourth - square * square) / n).sqrt();
        assert_within(&format!("{what}, variance"), square, variance, error);
    }
}

fn product<T: Float>((a, b): (&T, &T)) -> f64 {
    a.to_f64() * b.to_f64()
}

#[test]
fn every_family_and_coupling_is_unbiased() {
    // One dimension; fewer features than dimensions; odd and not a multiple; more than two blocks.
    let shapes = [(1, 5), (3, 2), (3, 7), (8, 5), (8, 19)];
    let mut cases = vec![];
    for (d, features) in shapes {
        for family in Family::ALL {
            for coupling in Coupling::ALL {
                for (_, kernel) in kernels(d) {
                    let spec = FeatureSpec::new(family, features).coupling(coupling);
                    cases.push((spec.kernel(kernel), d));
                }
            }
        }
    }
    cases.par_iter().for_each(|&(spec, d)| {
        check_coupling::<f64>(spec, d);
        check_coupling::<f32>(spec, d);
    });
}

/// The kernel product and the row sums are sums of the same estimates: their mean over seeds is
/// `K(X,Y)·C`. Here through the accumulators, which normalise and rescale on their own.
#[test]
fn kernel_products_are_unbiased() {
    const SEEDS: u64 = 400;
    let d = 3;
    let (x, y) = data::<f64>(d);
    let c = normal(5, y.rows(), 2, 0.5, 1.0);
    for family in Family::ALL {
        for (name, kernel) in kernels(d) {
            let truth = kernel.product(x.view(), y.view(), c.view()).unwrap().to_matrix().unwrap();
            let make = maker(FeatureSpec::new(family, 7).kernel(kernel), &x, &y);
            let mut sums = vec![[0.0; 2]; truth.as_slice().len()];
            for seed in 0..SEEDS {
                let map = make(seed);
                let estimate = favor::kernel_product(&map, x.view(), y.view(), c.view()).unwrap();
                let estimate = estimate.to_matrix().unwrap();
                for (k, sums) in sums.iter_mut().enumerate().take(6) {
                    let off = estimate.as_slice()[k] - truth.as_slice()[k];
                    sums[0] += off;
                    sums[1] += off * off;
                }
            }
            let n = SEEDS as f64;
            for (k, [one, two]) in sums.into_iter().enumerate().take(6) {
                let (mean, square) = (one / n, two / n);
                let error = ((square - mean * mean) / n).sqrt();
                assert_within(&format!("{family} {name} entry {k}"), mean, 0.0, error);
            }
        }
    }
}
