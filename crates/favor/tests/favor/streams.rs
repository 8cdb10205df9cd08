//! The parts for streams: tiled key sums against the plain ones, and errors predicted from moments
//! against those predicted from the keys.

use crate::common::{dot, moments, normal};
use favor::diagnose::{Estimator, RowErrorModel};
use favor::{
    Family, FeatureMap, FeatureSpec, Float, Kernel, KeySums, LogScaled, Matrix, Moments, Side,
    reference,
};

fn narrow(m: &Matrix<f64>) -> Matrix<f32> {
    Matrix::from_fn(m.rows(), m.columns(), |i, l| m[(i, l)] as f32)
}

/// The largest relative difference of two products with positive values.
fn difference<T: Float>(a: &LogScaled<T>, b: &LogScaled<f64>) -> f64 {
    let mut worst = 0.0_f64;
    for i in 0..b.values.rows() {
        let factor = (a.log_scale[i] - b.log_scale[i]).exp();
        for (x, y) in a.values.row(i).iter().zip(b.values.row(i)) {
            worst = worst.max((x.to_f64() * factor / y - 1.0).abs());
        }
    }
    worst
}

fn map(family: Family, scale: f64, x: &Matrix<f64>) -> FeatureMap {
    let kernel = Kernel::gaussian().scaled(scale).unwrap();
    let m = moments(x);
    FeatureSpec::new(family, 50).kernel(kernel).seed(3).fit(&m, &m).unwrap()
}

/// Every term of the sums is positive, so rounding is relative: some hundred operations a term, and
/// a logarithm of size up to some ten.
#[test]
fn tiled_sums_are_the_plain_ones() {
    let (x, y) = (normal(1, 31, 5, 0.1, 1.0), normal(2, 700, 5, 0.0, 1.0));
    let several = Matrix::from_fn(700, 3, |i, c| 0.5 + ((i + 7 * c) % 5) as f64);
    let ones = Matrix::from_fn(700, 1, |_, _| 1.0);
    let nearly_ones = Matrix::from_fn(700, 1, |i, _| if i == 400 { 3.0 } else { 1.0 });
    for values in [several, ones, nearly_ones] {
        for family in [Family::Balanced, Family::Pos, Family::Sade, Family::Hyperbolic] {
            for scale in [0.1, 1.0, 4.0] {
                check_tiled(&map(family, scale, &y), &x, &y, &values);
            }
        }
    }
}

fn check_tiled(map: &FeatureMap, x: &Matrix<f64>, y: &Matrix<f64>, values: &Matrix<f64>) {
    let columns = values.columns();
    let mut plain = KeySums::new(map, columns);
    reference::add_keys(&mut plain, map, y.view(), values.view()).unwrap();
    let exact = reference::apply_sums(&plain, map, x.view()).unwrap();

    let mut whole = KeySums::new(map, columns);
    whole.add(map, y.view(), values.view()).unwrap();
    let fast = whole.apply(map, x.view()).unwrap();
    assert!(difference(&fast, &exact) < 1e-10, "{map:?}");

    let (y32, v32) = (narrow(y), narrow(values));
    let mut pieces = KeySums::new(map, columns);
    for (start, end) in [(0, 10), (10, 11), (11, 500), (500, 700)] {
        let (y, v) = (y32.view().slice(start, end), v32.view().slice(start, end));
        let mut piece = KeySums::new(map, columns);
        piece.add(map, y, v).unwrap();
        pieces.merge(&piece).unwrap();
    }
    let fast = pieces.apply(map, narrow(x).view()).unwrap();
    // Logarithms of size s are known to s·2⁻²⁴; here they stay below about 500.
    let tolerance = 500.0 * f64::from(f32::EPSILON);
    let found = difference(&fast, &exact);
    assert!(found < tolerance, "{map:?}: {found}");
}

/// Pieces are summed a few per thread at a time: none is lost, and the threads do not show.
#[test]
fn sums_of_many_pieces_are_the_plain_ones() {
    let (x, y) = (normal(1, 31, 2, 0.1, 1.0), normal(2, 50_000, 2, 0.0, 1.0));
    let map = map(Family::Balanced, 1.0, &y);
    for columns in [1, 2] {
        let values = Matrix::from_fn(y.rows(), columns, |i, c| 1.0 + (c * i % 5) as f64);
        let mut plain = KeySums::new(&map, columns);
        reference::add_keys(&mut plain, &map, y.view(), values.view()).unwrap();
        let exact = reference::apply_sums(&plain, &map, x.view()).unwrap();
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut sums = KeySums::new(&map, columns);
            pool.install(|| sums.add(&map, y.view(), values.view())).unwrap();
            sums
        };
        let sums = with(1);
        assert_eq!(sums, with(3));
        assert!(difference(&sums.apply(&map, x.view()).unwrap(), &exact) < 1e-10);
    }
}

#[test]
fn tiled_sums_fall_back_and_refuse_as_the_plain_ones() {
    let y = normal(2, 40, 3, 0.0, 1.0);
    let ones = Matrix::from_fn(40, 1, |_, _| 1.0);
    let trig = map(Family::Trig, 1.0, &y);
    let (mut plain, mut tiled) = (KeySums::new(&trig, 1), KeySums::new(&trig, 1));
    reference::add_keys(&mut plain, &trig, y.view(), ones.view()).unwrap();
    tiled.add(&trig, y.view(), ones.view()).unwrap();
    assert_eq!(plain, tiled);
    assert_eq!(reference::apply_sums(&plain, &trig, y.view()), tiled.apply(&trig, y.view()));

    let map = map(Family::Balanced, 1.0, &y);
    let none = KeySums::new(&map, 1);
    let zeros = none.apply(&map, y.view()).unwrap();
    assert!(zeros.values.as_slice().iter().all(|v| *v == 0.0));
    let mut sums = KeySums::new(&map, 1);
    assert!(sums.add(&map, y.view(), ones.view().slice(0, 3)).is_err());
    let wide = normal(2, 40, 4, 0.0, 1.0);
    assert!(sums.add(&map, wide.view(), ones.view()).is_err());
    assert!(sums.apply(&map, wide.view()).is_err());
    let mut bad = y.clone();
    bad[(5, 1)] = f64::NAN;
    assert!(sums.add(&map, bad.view(), ones.view()).is_err());
    assert_eq!(sums, none);
}

/// Points and weights of the trapezoid rule for the plane's standard normal density: on functions as
/// smooth as Gaussians its error falls as that of no power of the step.
fn plane(reach: f64) -> (Matrix<f64>, Vec<f64>) {
    let (n, step) = (81, reach / 40.0);
    let at = |i: usize| step * i as f64 - reach;
    let points = Matrix::from_fn(n * n, 2, |i, l| at(if l == 0 { i / n } else { i % n }));
    let density = |z: &[f64]| step * step * (-0.5 * dot(z, z)).exp() / std::f64::consts::TAU;
    let weights = (0..n * n).map(|i| density(points.row(i))).collect();
    (points, weights)
}

/// The logarithm of the relative variance of `∫ f₁(ω,x) f₂(ω,y) dN(y)` over ω, both integrals by
/// the trapezoid rule on the features themselves.
fn integrated(
    estimator: &Estimator,
    mean: [f64; 2],
    root: [[f64; 2]; 2],
    x: &Matrix<f64>,
) -> Vec<f64> {
    // What is not fitted to the data has the widest integrands, what is has the narrowest.
    let reach = if estimator.family() == Family::Pos { 28.0 } else { 12.0 };
    let (omega, omega_weights) = plane(reach);
    let (z, key_weights) = plane(10.0);
    let keys = Matrix::from_fn(z.rows(), 2, |i, l| mean[l] + dot(&root[l], z.row(i)));
    let spec = FeatureSpec::new(estimator.family(), 1).kernel(estimator.kernel());
    let map = spec.with_omega(estimator.parameters().unwrap().clone(), omega).unwrap();
    let mut sums = vec![0.0; omega_weights.len()];
    for (i, weight) in key_weights.iter().enumerate() {
        let logs = map.log_features(Side::Key, keys.view().slice(i, i + 1)).unwrap();
        sums.iter_mut().zip(logs.row(0)).for_each(|(s, l)| *s += weight * l.exp());
    }
    let logs = map.log_features(Side::Query, x.view()).unwrap();
    let power = |i: usize, p: i32| -> f64 {
        let terms = omega_weights.iter().zip(logs.row(i)).zip(&sums);
        terms.map(|((w, l), s)| w * (l.exp() * s).powi(p)).sum()
    };
    (0..x.rows()).map(|i| (power(i, 2) / power(i, 1).powi(2) - 1.0).ln()).collect()
}

/// On Gaussian keys the closed form is the integral.
#[test]
fn moments_predict_what_gaussian_keys_predict() {
    let (mean, root) = ([0.3, -0.2], [[0.8, 0.0], [0.5, 0.6]]);
    let covariance = Matrix::from_fn(2, 2, |i, j| dot(&root[i], &root[j]));
    let m = Moments::from_covariance(1000, 1000.0, mean.to_vec(), covariance).unwrap();
    let other = moments(&normal(6, 50, 2, 0.5, 0.7));
    let queries = normal(5, 8, 2, 0.0, 1.0);
    // With a narrow kernel Pos varies by e⁸⁸: no grid reaches that far.
    let (wide, all) = (&[0.3, 1.0][..], &[0.3, 1.0, 2.0][..]);
    for (family, sides, scales) in [
        (Family::Balanced, (&m, &m), all),
        (Family::Ge, (&m, &m), all),
        (Family::Pos, (&m, &m), wide),
        (Family::Sde, (&other, &m), all),
        (Family::Balanced, (&other, &m), all),
    ] {
        for &scale in scales {
            let kernel = Kernel::gaussian().scaled(scale).unwrap();
            let estimator = Estimator::fit(family, kernel, sides.0, sides.1).unwrap();
            let model = RowErrorModel::new(&estimator, &m).unwrap().unwrap();
            let found = model.log_relative_variances(queries.view()).unwrap();
            let wanted = integrated(&estimator, mean, root, &queries);
            for (f, w) in found.iter().zip(&wanted) {
                assert!((f - w).abs() < 1e-6, "{family} {scale}: {f} against {w}");
            }
        }
    }
}

#[test]
fn moments_predict_nothing_where_there_is_no_closed_form() {
    let m = moments(&normal(1, 30, 2, 0.0, 3.0));
    for family in [Family::Trig, Family::Hyperbolic] {
        let estimator = Estimator::fit(family, Kernel::gaussian(), &m, &m).unwrap();
        assert_eq!(RowErrorModel::new(&estimator, &m).unwrap(), None);
    }
    // The softmax kernel grows without bound: on Gaussian keys this wide the features have no
    // second moment.
    let estimator = Estimator::fit(Family::Pos, Kernel::softmax(), &m, &m).unwrap();
    assert_eq!(RowErrorModel::new(&estimator, &m).unwrap(), None);
    // Constant columns are no obstacle.
    let flat = moments(&Matrix::from_fn(9, 2, |i, l| (i * l) as f64));
    let estimator = Estimator::fit(Family::Balanced, Kernel::gaussian(), &flat, &flat).unwrap();
    assert!(RowErrorModel::new(&estimator, &flat).unwrap().is_some());
}
