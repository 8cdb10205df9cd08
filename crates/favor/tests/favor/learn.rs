//! Learning from arrays against the same sums by hand.

use favor::draw::Stream;
use favor::learn::{
    Bandwidth, FitOptions, KernelClassifier, KernelDensity, KernelRegressor, RandomFeatures,
    Search, bandwidths, gaussian,
};
use favor::{Error, Family, KeySums, Matrix, Moments};
use std::f64::consts::PI;

/// Three clusters in the plane, of coordinates of different size.
fn points(seed: u64, count: usize) -> Matrix<f64> {
    let mut stream = Stream::new(seed, 0);
    let centre = |class: usize, l: usize| [[0.0, 0.0], [30.0, 0.0], [0.0, 3.0]][class][l];
    let scale = [10.0, 1.0];
    Matrix::from_fn(count, 2, |i, l| centre(i % 3, l) + scale[l] * stream.normal())
}

fn classes(count: usize) -> Vec<&'static str> {
    (0..count).map(|i| ["north", "east", "west"][i % 3]).collect()
}

fn numbers(rows: &Matrix<f64>) -> Matrix<f64> {
    Matrix::from_fn(rows.rows(), 2, |i, c| match c {
        0 => (0.1 * rows[(i, 0)]).sin() + rows[(i, 1)],
        _ => 1e6 + 5.0 * rows[(i, 0)],
    })
}

/// Rows of mean 0 and variance 1 by the moments of `by`.
fn standard(rows: &Matrix<f64>, by: &Matrix<f64>) -> Matrix<f64> {
    let moments = Moments::of(by.view()).unwrap();
    let (mean, covariance) = (moments.mean().to_vec(), moments.covariance());
    Matrix::from_fn(rows.rows(), 2, |i, l| (rows[(i, l)] - mean[l]) / covariance[(l, l)].sqrt())
}

fn options() -> FitOptions {
    FitOptions::default().features(64).seed(5).bandwidth(0.5)
}

/// `Σ_i K̂(u,u_i) c_i` by the plain sums of a map, rows without their scales.
fn plain(
    map: &favor::FeatureMap,
    x: &Matrix<f64>,
    y: &Matrix<f64>,
    c: &Matrix<f64>,
) -> Matrix<f64> {
    let mut sums = KeySums::new(map, c.columns());
    sums.add(map, y.view(), c.view()).unwrap();
    sums.apply(map, x.view()).unwrap().to_matrix().unwrap()
}

/// Positive sums in 64 bits: the tiles round as the plain way does, in another order.
const ROUNDING: f64 = 1e-10;

fn assert_close(found: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(found.len(), wanted.len());
    for (f, w) in found.iter().zip(wanted) {
        assert!((f - w).abs() <= tolerance * w.abs().max(1.0), "{f} against {w}");
    }
}

#[test]
fn predictions_are_the_plain_sums_of_the_map() {
    let (train, test) = (points(1, 600), points(2, 50));
    let (y, x) = (standard(&train, &train), standard(&test, &train));
    let m = Moments::of(y.view()).unwrap();

    let labels = classes(600);
    let model = KernelClassifier::fit(&options(), train.view(), &labels, None).unwrap();
    assert_eq!(model.classes(), ["east", "north", "west"]);
    assert_eq!(model.map().kernel(), gaussian(0.5).unwrap());
    let wanted = model.map().spec().fit(&m, &m).unwrap();
    assert_eq!(model.map().omega().unwrap(), wanted.omega().unwrap());
    let one_hot =
        Matrix::from_fn(600, 3, |i, c| f64::from(u8::from(labels[i] == model.classes()[c])));
    let sums = plain(model.map(), &x, &y, &one_hot);
    let found = model.probabilities(test.view()).unwrap();
    for i in 0..50 {
        let total: f64 = sums.row(i).iter().sum();
        let wanted: Vec<f64> = sums.row(i).iter().map(|s| s / total).collect();
        assert_close(found.row(i), &wanted, ROUNDING);
    }
    let right = model.predict(test.view()).unwrap();
    let right = right.iter().zip(classes(50)).filter(|(f, t)| **f == *t).count();
    assert!(right > 40, "{right} of 50");

    let targets = numbers(&train);
    let model = KernelRegressor::fit(&options(), train.view(), targets.view(), None).unwrap();
    let values = Matrix::from_fn(600, 3, |i, c| if c == 0 { 1.0 } else { targets[(i, c - 1)] });
    let sums = plain(model.map(), &x, &y, &values);
    let found = model.predict(test.view()).unwrap();
    for i in 0..50 {
        let wanted = [sums[(i, 1)] / sums[(i, 0)], sums[(i, 2)] / sums[(i, 0)]];
        assert_close(found.row(i), &wanted, ROUNDING);
    }

    let model = KernelDensity::fit(&options(), train.view(), None).unwrap();
    let sums = plain(model.map(), &x, &y, &Matrix::from_fn(600, 1, |_, _| 1.0));
    let covariance = Moments::of(train.view()).unwrap().covariance();
    // The norm of two Gaussians of width h·s_l.
    let norm: f64 =
        (0..2).map(|l| (0.5 * covariance[(l, l)].sqrt() * (2.0 * PI).sqrt()).ln()).sum();
    let wanted: Vec<f64> = sums.as_slice().iter().map(|s| (s / 600.0).ln() - norm).collect();
    assert_close(&model.log_density(test.view()).unwrap(), &wanted, ROUNDING);
}

/// More rows later, and rows of several workers: as if all had been there.
#[test]
fn parts_make_the_whole() {
    let (first, second) = (points(1, 300), points(2, 200));
    let all = Matrix::new([first.as_slice(), second.as_slice()].concat(), 500, 2).unwrap();
    let test = points(3, 20);
    let of = |count: usize, offset: usize| -> Vec<usize> {
        (0..count).map(|i| (i + offset) % 4).collect()
    };
    // The first part knows the classes 0 and 1 only.
    let labels: Vec<usize> = of(300, 0).iter().map(|c| c % 2).collect();
    let model = KernelClassifier::fit(&options(), first.view(), &labels, None).unwrap();
    assert_eq!(model.classes(), [0, 1]);
    let mut later = model.clone();
    later.partial_fit(second.view(), &of(200, 1), None).unwrap();
    let mut elsewhere = model.emptied();
    elsewhere.partial_fit(second.view(), &of(200, 1), None).unwrap();
    let mut merged = model.clone();
    merged.merge(&elsewhere).unwrap();
    let mut whole = model.emptied();
    whole.partial_fit(all.view(), &[labels, of(200, 1)].concat(), None).unwrap();
    let wanted = whole.probabilities(test.view()).unwrap();
    for model in [later, merged] {
        assert_eq!(model.classes(), [0, 1, 2, 3]);
        let found = model.probabilities(test.view()).unwrap();
        assert_close(found.as_slice(), wanted.as_slice(), ROUNDING);
    }

    let (a, b) = (numbers(&first), numbers(&second));
    let model = KernelRegressor::fit(&options(), first.view(), a.view(), None).unwrap();
    let mut merged = model.emptied();
    merged.partial_fit(second.view(), b.view(), None).unwrap();
    merged.merge(&model).unwrap();
    let mut later = model;
    later.partial_fit(second.view(), b.view(), None).unwrap();
    let (found, wanted) =
        (merged.predict(test.view()).unwrap(), later.predict(test.view()).unwrap());
    assert_close(found.as_slice(), wanted.as_slice(), ROUNDING);

    let mut density = KernelDensity::fit(&options(), first.view(), None).unwrap();
    let mut other = density.emptied();
    other.partial_fit(second.view(), None).unwrap();
    density.merge(&other).unwrap();
    let mut whole = density.emptied();
    whole.partial_fit(all.view(), None).unwrap();
    let logs = |m: &KernelDensity| m.log_density(test.view()).unwrap();
    assert_close(&logs(&density), &logs(&whole), ROUNDING);
}

#[test]
fn weights_are_repetitions_and_zero_is_none() {
    let mut rows = points(1, 200);
    let weights: Vec<f64> = (0..200).map(|i| f64::from(i % 4)).collect();
    let repeated: Vec<usize> = (0..200).flat_map(|i| vec![i; i % 4]).collect();
    let twice = Matrix::from_fn(repeated.len(), 2, |r, l| rows[(repeated[r], l)]);
    let labels = classes(200);
    let of: Vec<&str> = repeated.iter().map(|&i| labels[i]).collect();
    // A row of weight 0 is not even looked at.
    rows[(0, 1)] = f64::NAN;
    let fit = KernelClassifier::fit;
    let a = fit(&options(), rows.view(), &labels, Some(&weights)).unwrap();
    let b = fit(&options(), twice.view(), &of, None).unwrap();
    let test = points(3, 20);
    let (found, wanted) =
        (a.probabilities(test.view()).unwrap(), b.probabilities(test.view()).unwrap());
    // The maps are fitted to moments that differ by rounding.
    assert_close(found.as_slice(), wanted.as_slice(), 1e-7);
}

#[test]
fn the_bandwidth_is_the_best_of_the_grid() {
    assert_eq!(bandwidths().len(), 10);
    let rows = points(1, 900);
    let (labels, targets) = (classes(900), numbers(&rows));
    for search in [Search::Validation, Search::CrossValidation { folds: 3 }] {
        let options = options().bandwidth(search);
        let classifier = KernelClassifier::fit(&options, rows.view(), &labels, None).unwrap();
        let regressor = KernelRegressor::fit(&options, rows.view(), targets.view(), None).unwrap();
        let density = KernelDensity::fit(&options, rows.view(), None).unwrap();
        let features = RandomFeatures::fit(&options, rows.view(), None).unwrap();
        assert_eq!(features.bandwidth().0, density.bandwidth().0);
        for (bandwidth, curve) in
            [classifier.bandwidth(), regressor.bandwidth(), density.bandwidth()]
        {
            let curve = curve.unwrap();
            assert_eq!((curve.trials.len(), curve.search, curve.rows), (10, search, 900));
            let best = curve.best().unwrap();
            assert_eq!(best.bandwidth, bandwidth);
            assert!(curve.trials.iter().all(|t| t.score <= best.score));
            // Far too wide a kernel sees no structure.
            assert!(best.score > curve.trials[9].score + 0.1, "{curve:?}");
            assert!(best.exact > best.score - 0.2, "{best:?}");
        }
    }
    // Of equal scores the widest; the order of the rows decides nothing.
    let sorted: Vec<usize> = (0..900).map(|i| (i % 300) * 3 + i / 300).collect();
    let turned = Matrix::from_fn(900, 2, |i, l| rows[(sorted[i], l)]);
    let turned_labels: Vec<&str> = sorted.iter().map(|&i| labels[i]).collect();
    let auto = options().bandwidth(Bandwidth::default());
    let model = KernelClassifier::fit(&auto, turned.view(), &turned_labels, None).unwrap();
    let best = model.bandwidth().1.unwrap().best().unwrap().score;
    assert!(best > 0.8, "{best}");
}

#[test]
fn features_estimate_the_kernel() {
    let rows = points(1, 400);
    let y = standard(&rows, &rows);
    for family in [Family::Balanced, Family::Sde, Family::TrigPair] {
        let options = options().family(family).features(4096).bandwidth(1.5);
        let z = RandomFeatures::fit(&options, rows.view(), None).unwrap();
        let z = z.transform(rows.view().slice(0, 20)).unwrap();
        for i in 0..20 {
            let estimate: f64 = z.row(i).iter().zip(z.row(0)).map(|(a, b)| a * b).sum();
            let exact = gaussian(1.5).unwrap().value(y.row(i), y.row(0)).unwrap();
            // One feature has at most about the variance of a few kernel values squared.
            assert!((estimate - exact).abs() < 0.15, "{family}: {estimate} against {exact}");
        }
    }
}

/// A constant coordinate says nothing and harms nothing; without standardising, rows are as they come.
#[test]
fn coordinates_are_scaled_or_not() {
    let rows = points(1, 300);
    let constant = Matrix::from_fn(300, 3, |i, l| if l == 2 { 0.1 } else { rows[(i, l)] });
    let labels = classes(300);
    let model = KernelClassifier::fit(&options(), constant.view(), &labels, None).unwrap();
    let found = model.predict(constant.view()).unwrap();
    let right = found.iter().zip(&labels).filter(|(f, t)| f == t).count();
    assert!(right > 240, "{right} of 300");

    let scaled = standard(&rows, &rows);
    let plain = options().standardise(false);
    let a = KernelDensity::fit(&plain, scaled.view(), None).unwrap();
    let b = KernelDensity::fit(&options(), rows.view(), None).unwrap();
    let covariance = Moments::of(rows.view()).unwrap().covariance();
    let volume: f64 = (0..2).map(|l| 0.5 * covariance[(l, l)].ln()).sum();
    let wanted: Vec<f64> =
        a.log_density(scaled.view()).unwrap().iter().map(|log| log - volume).collect();
    assert_close(&b.log_density(rows.view()).unwrap(), &wanted, 1e-7);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let rows = points(1, 60);
    let labels = classes(60);
    let fit = |options: FitOptions, labels: &[&'static str], weights: Option<&[f64]>| {
        KernelClassifier::fit(&options, rows.view(), labels, weights).unwrap_err().to_string()
    };
    assert!(fit(options(), &labels[..9], None).contains("labels has shape (9, 1)"));
    assert!(fit(options().bandwidth(-1.0), &labels, None).contains("-1 is not a positive number"));
    let folds = options().bandwidth(Search::CrossValidation { folds: 1 });
    assert!(fit(folds, &labels, None).contains("folds: 1 parts; give 2 or more"));
    assert!(fit(options(), &labels, Some(&[0.0; 60])).contains("weights: all are zero"));
    assert!(fit(options(), &labels, Some(&[-1.0; 60])).contains("not a number ≥ 0"));
    let auto = options().bandwidth(Search::Validation);
    let few = KernelClassifier::fit(&auto, points(1, 6).view(), &labels[..6], None).unwrap_err();
    assert!(few.to_string().contains("6 different rows are too few"), "{few}");
    let none = KernelDensity::fit(&options(), Matrix::<f64>::zeros(0, 2).view(), None);
    assert!(matches!(none, Err(Error::Empty { .. })));

    let mut model = KernelClassifier::fit(&options(), rows.view(), &labels, None).unwrap();
    let before = model.clone();
    let mut bad = points(2, 3);
    bad[(1, 1)] = f64::INFINITY;
    assert!(model.partial_fit(bad.view(), &labels[..3], None).is_err());
    assert!(model.predict(bad.view()).is_err());
    assert!(model.predict(Matrix::<f64>::zeros(2, 5).view()).is_err());
    assert!(model.partial_fit(rows.view(), &labels, Some(&[f64::NAN; 60])).is_err());
    let other = KernelClassifier::fit(&options().seed(6), rows.view(), &labels, None).unwrap();
    assert!(model.merge(&other).unwrap_err().to_string().contains("the maps differ"));
    assert_eq!(model, before, "an error changes nothing");
    let empty = model.emptied().predict(rows.view()).unwrap_err().to_string();
    assert!(empty.contains("no rows yet"), "{empty}");
}
