//! Fits against the same computation by hand, and the choice of the bandwidth.

use crate::common::*;
use favor::learn::bandwidths;
use favor::{Family, Kernel, Matrix, Moments};
use favor_tables::datafusion::arrow::array::RecordBatch;
use favor_tables::{Bandwidth, PredictOptions, Prior, Search, Task, evaluate};

#[test]
fn classification_is_the_plain_sums_of_its_map() {
    let (train, test) = (points(0, 700), points(5000, 60));
    for family in [&POSITIVE[..], &[Family::Trig]].concat() {
        let model = fitted(train.clone(), &classify().basis(Some(family.into()))).unwrap();
        let (x, y) = (vectors(&test, &train), vectors(&train, &train));
        let of = classes(&train);
        let one_hot = Matrix::from_fn(700, 3, |i, c| f64::from(u8::from(of[i] == c)));
        let mut wanted = plain(model.map().unwrap(), &x, &y, &one_hot);
        wanted.as_mut_slice().iter_mut().for_each(|v| *v = v.max(0.0));
        let found = probabilities(&model, test.clone());
        let off = difference(&found, &normalised(wanted));
        // Features of either sign cancel, and rounding with them.
        let tolerance = if family == Family::Trig { 1e-3 } else { ROUNDING };
        assert!(off < tolerance, "{family}: {off}");
        for i in 0..found.rows() {
            assert!((found.row(i).iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }
}

/// The map is fitted to the moments of the standardised vectors.
#[test]
fn the_map_is_that_of_the_vectors() {
    let train = points(0, 700);
    let request = classify().bandwidth(1.0 / 0.7).seed(5);
    let model = fitted(train.clone(), &request).unwrap();
    let m = Moments::of(vectors(&train, &train).view()).unwrap();
    let kernel = Kernel::gaussian().scaled(0.7).unwrap();
    let wanted = model.map().unwrap().spec().kernel(kernel).fit(&m, &m).unwrap();
    assert_eq!(model.map().unwrap().omega().unwrap(), wanted.omega().unwrap());
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-9);
    assert!(close(model.moments().mean(), m.mean()));
    assert!(close(model.moments().covariance().as_slice(), m.covariance().as_slice()));
    let (found, wanted) =
        (model.map().unwrap().parameters().unwrap(), wanted.parameters().unwrap());
    assert!(close(found.quadratic(), wanted.quadratic()));
    assert!(close(found.key_shift(), wanted.key_shift()));
}

#[test]
fn regression_is_the_plain_weighted_mean_of_its_map() {
    let (train, test) = (points(0, 700), points(5000, 60));
    for weight in [None, Some("w")] {
        let request = match weight {
            None => regress(),
            Some(weight) => regress().ignore(["label"]).weight(Some(weight.into())),
        };
        let model = fitted(train.clone(), &request).unwrap();
        assert_eq!(model.info().task, Task::Regress);
        let weights = weight.map_or(vec![1.0; 700], |w| column(&train, w));
        let targets = column(&train, "y");
        let values = Matrix::from_fn(700, 2, |i, c| weights[i] * [1.0, targets[i]][c]);
        // Standardised by the moments that the model has, which know the weights.
        let (x, y) = (model_vectors(&model, &test), model_vectors(&model, &train));
        let sums = plain(model.map().unwrap(), &x, &y, &values);
        let found = column(
            &predicted(&model, test.clone(), &PredictOptions::default()).unwrap(),
            "prediction",
        );
        for (i, f) in found.iter().enumerate() {
            let wanted = sums[(i, 1)] / sums[(i, 0)];
            assert!((f - wanted).abs() < 10.0 * ROUNDING, "{f} against {wanted}");
        }
    }
}

/// `vectors` with the centres and scales of a model.
fn model_vectors(model: &favor_tables::Model, batch: &RecordBatch) -> Matrix<f64> {
    let mut out = vectors(batch, batch);
    for (l, name) in ["a", "b"].into_iter().enumerate() {
        let scaling = model.info().encoder.scalings()[l];
        for (i, v) in column(batch, name).into_iter().enumerate() {
            out[(i, l)] = scaling.apply(v);
        }
    }
    out
}

/// In one dimension the density can be integrated, and it estimates that of the exact kernel.
#[test]
fn densities_are_normalised_in_the_units_of_the_table() {
    let train = points(0, 2000);
    let request = density().columns(Some(vec!["a".into()])).bandwidth(1.0 / 3.0).features(512);
    let model = fitted(train.clone(), &request).unwrap();
    let grid: Vec<f64> = (0..2000).map(|i| 40.0 + 0.08 * f64::from(i)).collect();
    let queries = RecordBatch::try_from_iter([("a", numbers(grid.iter().copied()))]);
    let found = predicted(&model, queries.unwrap(), &PredictOptions::default()).unwrap();
    let (logs, errors) = (column(&found, "log_density"), column(&found, "relative_error"));
    let (mut total, mut variance) = (0.0, 0.0);
    for (log, error) in logs.iter().zip(&errors) {
        total += 0.08 * log.exp();
        variance += 0.08 * log.exp() * error;
    }
    // The errors of neighbours are the same at worst.
    assert!((total - 1.0).abs() < 4.0 * variance + 0.01, "{total} ± {variance}");

    // And against the plain definition: K is the density of N(0, s²h²) but for its norm.
    let (mean, deviation) = {
        let a = column(&train, "a");
        let mean = a.iter().sum::<f64>() / 2000.0;
        (mean, (a.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 2000.0).sqrt())
    };
    let width = deviation / 3.0;
    let at = mean + 0.3 * deviation;
    let exact: f64 =
        column(&train, "a").iter().map(|v| (-0.5 * ((v - at) / width).powi(2)).exp()).sum::<f64>()
            / (2000.0 * width * (2.0 * std::f64::consts::PI).sqrt());
    let near = grid.iter().position(|v| *v >= at).unwrap();
    let ratio = logs[near].exp() / exact;
    assert!((ratio - 1.0).abs() < 4.0 * errors[near] + 0.01, "{ratio} ± {}", errors[near]);
}

/// Rows of a weight count as often as they would without it.
#[test]
fn weights_are_repetitions() {
    let train = points(0, 300);
    let mut repeated = vec![];
    for i in 0..300 {
        let times = column(&train, "w")[i] as usize;
        repeated.extend(std::iter::repeat_n(train.slice(i, 1), times));
    }
    let schema = train.schema();
    let repeated =
        favor_tables::datafusion::arrow::compute::concat_batches(&schema, &repeated).unwrap();
    let weighted = classify().weight(Some("w".into())).ignore(["y"]);
    for bandwidth in [Bandwidth::Fixed(1.0), Bandwidth::Auto(Search::Validation)] {
        let a = fitted(train.clone(), &weighted.clone().bandwidth(bandwidth)).unwrap();
        let b = fitted(repeated.clone(), &classify().bandwidth(bandwidth)).unwrap();
        assert_eq!(a.info().bandwidth, b.info().bandwidth);
        let test = points(5000, 50);
        let off = difference(&probabilities(&a, test.clone()), &probabilities(&b, test));
        assert!(off < ROUNDING, "{off}");
        let weights = |m: &favor_tables::Model| -> Vec<f64> {
            m.info().classes.iter().map(|c| c.weight).collect()
        };
        assert_eq!(weights(&a), weights(&b));
    }
}

/// Rows of weight zero are as if they were not there, also where rows are counted.
#[test]
fn rows_of_weight_zero_count_for_nothing() {
    let train = points(0, 300);
    let weights: Vec<f64> = (0..300).map(|i| f64::from(u8::from(i < 200))).collect();
    let mut columns = train.columns().to_vec();
    columns[5] = numbers(weights);
    let zeros = RecordBatch::try_new(train.schema(), columns).unwrap();
    for request in [classify(), regress()] {
        let mut weighted = request.clone().weight(Some("w".into()));
        weighted.ignore.retain(|name| name != "w");
        let a = fitted(zeros.clone(), &weighted).unwrap();
        let b = fitted(train.slice(0, 200), &request).unwrap();
        assert_eq!((a.info().rows, a.info().total_weight), (200, 200.0));
        assert_eq!((a.moments().count(), &a.info().classes), (200, &b.info().classes));
        let test = points(5000, 20);
        let found = predicted(&a, test.clone(), &PredictOptions::default()).unwrap();
        let wanted = predicted(&b, test, &PredictOptions::default()).unwrap();
        let errors = |batch: &RecordBatch| column(batch, "relative_error");
        let close = |(f, w): (&f64, &f64)| (f - w).abs() < 10.0 * ROUNDING * w;
        assert!(errors(&found).iter().zip(&errors(&wanted)).all(close));
    }
}

#[test]
fn priors_multiply_the_classes() {
    let (train, test) = (points(0, 500), points(5000, 40));
    let by_data = probabilities(&fitted(train.clone(), &classify()).unwrap(), test.clone());
    let of = classes(&train);
    let counts: Vec<f64> = (0..3).map(|c| of.iter().filter(|k| **k == c).count() as f64).collect();
    let given = Prior::Given(vec![("0".into(), 0.5), ("10".into(), 0.2), ("20".into(), 0.3)]);
    for (prior, wanted) in [(Prior::Uniform, [1.0; 3]), (given, [0.5, 0.2, 0.3])] {
        let model = fitted(train.clone(), &classify().prior(prior)).unwrap();
        let found = probabilities(&model, test.clone());
        let expected = Matrix::from_fn(40, 3, |i, c| by_data[(i, c)] * wanted[c] / counts[c]);
        assert!(difference(&found, &normalised(expected)) < 1e-9);
    }
}

/// The curve is that of the grid on the rows held out, and the best is taken.
#[test]
fn the_bandwidth_is_the_best_of_the_grid() {
    let grid = bandwidths();
    assert_eq!(grid.len(), 10);
    assert!((grid[0] - 0.01).abs() < 1e-12 && (grid[9] - 100.0).abs() < 1e-9);
    let train = points(0, 900);
    for search in [Search::Validation, Search::CrossValidation { folds: 3 }] {
        for request in [classify(), regress(), density()] {
            let request = request.bandwidth(search);
            let model = fitted(train.clone(), &request).unwrap();
            let curve = model.info().curve.as_ref().unwrap();
            assert_eq!((curve.trials.len(), curve.search, curve.rows), (10, search, 900));
            let best = curve.trials.iter().map(|t| t.score).fold(f64::NEG_INFINITY, f64::max);
            let chosen = curve.best().unwrap();
            assert_eq!(chosen.bandwidth, model.info().bandwidth);
            assert_eq!(chosen.score, best);
            // Far too wide a kernel sees no structure; the choice must beat it clearly.
            let gain = chosen.score - curve.trials[9].score;
            assert!(gain > 0.1, "{gain}: {curve:?}");
            assert!(chosen.exact > chosen.score - 0.2, "{chosen:?}");
        }
    }
}

/// The comparison with the exact kernel is what it says: over the rows kept, which here are all.
#[test]
fn evaluation_puts_the_exact_kernel_beside() {
    let (train, test) = (points(0, 800), points(5000, 300));
    let model = fitted(train.clone(), &classify()).unwrap();
    let found = block(evaluate(&table(test.clone()), &model, None, &progress())).unwrap();
    let (x, y) = (vectors(&test, &train), vectors(&train, &train));
    let of = classes(&train);
    let one_hot = Matrix::from_fn(800, 3, |i, c| f64::from(u8::from(of[i] == c)));
    let truth = classes(&test);
    let accuracy = |scores: &Matrix<f64>| {
        let right = |i: &usize| (0..3).all(|c| scores[(*i, c)] <= scores[(*i, truth[*i])]);
        (0..300).filter(right).count() as f64 / 300.0
    };
    assert_eq!(found.comparison.exact, accuracy(&exact(1.0, &x, &y, &one_hot)));
    assert_eq!(found.score, accuracy(&plain(model.map().unwrap(), &x, &y, &one_hot)));
    assert_eq!(found.comparison.features, found.score);
    assert_eq!(found.comparison.model, found.score);
    assert_eq!((found.rows, found.comparison.rows, found.comparison.keys), (300, 300, 800));
    let mistakes: u64 = found.confusion.iter().filter(|(t, f, _)| t != f).map(|c| c.2).sum();
    assert!((found.score - (1.0 - mistakes as f64 / 300.0)).abs() < 1e-12);
}
