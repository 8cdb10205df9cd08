//! The parts for streams: tiled key sums against the plain ones, and errors predicted from moments
//! against those predicted from the keys.

mod common;

use common::{moments, normal};
use favor::diagnose::{Estimator, Outlook, predict};
use favor::{
    Element, Family, FeatureMap, FeatureSpec, Kernel, KeySums, LogScaled, Matrix, Moments,
};

fn narrow(m: &Matrix<f64>) -> Matrix<f32> {
    Matrix::from_fn(m.rows(), m.columns(), |i, l| m[(i, l)] as f32)
}

/// The largest relative difference of two products with positive values.
fn difference<T: Element>(a: &LogScaled<T>, b: &LogScaled<f64>) -> f64 {
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
    let values = Matrix::from_fn(700, 3, |i, c| 0.5 + ((i + 7 * c) % 5) as f64);
    for family in [Family::Balanced, Family::Pos, Family::Sade, Family::Hyperbolic] {
        for scale in [0.1, 1.0, 4.0] {
            let map = map(family, scale, &y);
            let mut plain = KeySums::new(&map, 3);
            plain.add(&map, y.view(), values.view()).unwrap();
            let exact = plain.apply(&map, x.view()).unwrap();

            let mut whole = KeySums::new(&map, 3);
            whole.add_tiled(&map, y.view(), values.view()).unwrap();
            let fast = whole.apply_tiled(&map, x.view()).unwrap();
            assert!(difference(&fast, &exact) < 1e-10, "{family} {scale}");

            let (y32, v32) = (narrow(&y), narrow(&values));
            let mut pieces = KeySums::new(&map, 3);
            for (start, end) in [(0, 10), (10, 11), (11, 500), (500, 700)] {
                let (y, v) = (y32.view().slice(start, end), v32.view().slice(start, end));
                let mut piece = KeySums::new(&map, 3);
                piece.add_tiled(&map, y, v).unwrap();
                pieces.merge(&piece).unwrap();
            }
            let fast = pieces.apply_tiled(&map, narrow(&x).view()).unwrap();
            // Logarithms of size s are known to s·2⁻²⁴; here they stay below about 500.
            let tolerance = 500.0 * f64::from(f32::EPSILON);
            let found = difference(&fast, &exact);
            assert!(found < tolerance, "{family} {scale}: {found}");
        }
    }
}

#[test]
fn tiled_sums_fall_back_and_refuse_as_the_plain_ones() {
    let y = normal(2, 40, 3, 0.0, 1.0);
    let ones = Matrix::from_fn(40, 1, |_, _| 1.0);
    let trig = map(Family::Trig, 1.0, &y);
    let (mut plain, mut tiled) = (KeySums::new(&trig, 1), KeySums::new(&trig, 1));
    plain.add(&trig, y.view(), ones.view()).unwrap();
    tiled.add_tiled(&trig, y.view(), ones.view()).unwrap();
    assert_eq!(plain, tiled);
    assert_eq!(plain.apply(&trig, y.view()), tiled.apply_tiled(&trig, y.view()));

    let map = map(Family::Balanced, 1.0, &y);
    let none = KeySums::new(&map, 1);
    let zeros = none.apply_tiled(&map, y.view()).unwrap();
    assert!(zeros.values.as_slice().iter().all(|v| *v == 0.0));
    let mut sums = KeySums::new(&map, 1);
    assert!(sums.add_tiled(&map, y.view(), ones.view().slice(0, 3)).is_err());
    let wide = normal(2, 40, 4, 0.0, 1.0);
    assert!(sums.add_tiled(&map, wide.view(), ones.view()).is_err());
    assert!(sums.apply_tiled(&map, wide.view()).is_err());
    let mut bad = y.clone();
    bad[(5, 1)] = f64::NAN;
    assert!(sums.add_tiled(&map, bad.view(), ones.view()).is_err());
    assert_eq!(sums, none);
}

/// The quantiles of a normal variable at the middles of `n` equal shares, by halving.
fn quantiles(n: usize) -> Vec<f64> {
    let share = |z: f64| {
        // ½(1 + erf(z/√2)) by Simpson's rule on the density.
        let steps = 400;
        let h = z / f64::from(steps);
        let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let inner: f64 = (1..steps)
            .map(|k| f64::from(if k % 2 == 1 { 4 } else { 2 }) * density(f64::from(k) * h))
            .sum();
        0.5 + h / 3.0 * (density(0.0) + inner + density(z))
    };
    (0..n)
        .map(|i| {
            let wanted = (i as f64 + 0.5) / n as f64;
            let (mut low, mut high) = (-6.0, 6.0);
            for _ in 0..50 {
                let middle = 0.5 * (low + high);
                if share(middle) < wanted { low = middle } else { high = middle }
            }
            0.5 * (low + high)
        })
        .collect()
}

/// On keys that are Gaussian but for the steps of a grid, the moments alone say what the sum over
/// all pairs of keys says. The grid has no tails beyond its last share, which matter more the
/// narrower the kernel and the farther the query: hence short queries, wide kernels and the 5 %.
#[test]
fn moments_predict_what_gaussian_keys_predict() {
    let z = quantiles(40);
    let keys = Matrix::from_fn(1600, 2, |i, l| match l {
        0 => 0.3 + 0.8 * z[i / 40],
        _ => -0.2 + 0.5 * z[i / 40] + 0.6 * z[i % 40],
    });
    let queries = normal(5, 8, 2, 0.0, 0.5);
    let m = moments(&keys);
    let other = Moments::of(normal(6, 50, 2, 0.5, 0.7).view()).unwrap();
    for (family, sides) in [
        (Family::Balanced, (&m, &m)),
        (Family::Sde, (&m, &m)),
        (Family::Ge, (&m, &m)),
        (Family::Pos, (&m, &m)),
        (Family::Balanced, (&other, &m)),
        (Family::Ade, (&other, &m)),
    ] {
        for scale in [0.1, 0.3, 0.7] {
            let kernel = Kernel::gaussian().scaled(scale).unwrap();
            let estimator = Estimator::fit(family, kernel, sides.0, sides.1).unwrap();
            let outlook = Outlook::new(&estimator, &m).unwrap().unwrap();
            let found = outlook.log_relative_variances(queries.view()).unwrap();
            let exact = predict(&estimator, queries.view(), keys.view(), None).unwrap().unwrap();
            for (f, e) in found.iter().zip(&exact.row_sums) {
                let tolerance = 0.05 * (1.0 + e.abs());
                assert!((f - e).abs() < tolerance, "{family} {scale}: {f} against {e}");
            }
        }
    }
}

#[test]
fn moments_predict_nothing_where_there_is_no_closed_form() {
    let m = moments(&normal(1, 30, 2, 0.0, 3.0));
    for family in [Family::Trig, Family::Hyperbolic] {
        let estimator = Estimator::fit(family, Kernel::gaussian(), &m, &m).unwrap();
        assert_eq!(Outlook::new(&estimator, &m).unwrap(), None);
    }
    // The softmax kernel grows without bound: on Gaussian keys this wide the features have no
    // second moment.
    let estimator = Estimator::fit(Family::Pos, Kernel::softmax(), &m, &m).unwrap();
    assert_eq!(Outlook::new(&estimator, &m).unwrap(), None);
    // Constant columns are no obstacle.
    let flat = moments(&Matrix::from_fn(9, 2, |i, l| (i * l) as f64));
    let estimator = Estimator::fit(Family::Balanced, Kernel::gaussian(), &flat, &flat).unwrap();
    assert!(Outlook::new(&estimator, &flat).unwrap().is_some());
}
