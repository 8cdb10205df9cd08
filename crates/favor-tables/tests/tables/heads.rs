//! Ridge, Gaussian-process and logistic heads against plain computations; merging and taking away.

use crate::common::*;
use favor::{Family, Matrix};
use favor_tables::datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array,
};
use favor_tables::datafusion::arrow::compute::{filter_record_batch, take_record_batch};
use favor_tables::{
    Bandwidth, Basis, Error, FitRequest, HeadKind, Model, PredictOptions, Prior, Setting, Source,
    Table, Task, evaluate, fit, fit_like, register, session, subtract, update,
};
use std::sync::Arc;

/// Features of `f32` rows, which predictions have, are known to 2⁻²⁴ of their slope.
const SINGLE: f64 = 5e-4;

/// Products of tables this small are summed in `f64`. In another order they differ by 10⁻¹³ or so of the rows'
/// number, which the least penalty, 10⁻⁸ of the features' square, makes 10⁻² of in directions that explain
/// nearly nothing; what is left is rounding of the rows that predictions are for.
const DOUBLE: f64 = 1e-6;

fn predictions(model: &Model, batch: RecordBatch) -> Vec<f64> {
    column(&predicted(model, batch, &PredictOptions::default()).unwrap(), "prediction")
}

fn close(a: &[f64], b: &[f64], tolerance: f64, what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() < tolerance, "{what}: {x} against {y}");
    }
}

/// Solves `A x = b` by elimination with pivots.
fn solved(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for k in 0..n {
        let pivot = (k..n).max_by(|i, j| a[*i][k].abs().total_cmp(&a[*j][k].abs())).unwrap();
        a.swap(k, pivot);
        b.swap(k, pivot);
        let (done, rest) = a.split_at_mut(k + 1);
        let pivot = &done[k];
        for (i, row) in rest.iter_mut().enumerate() {
            let factor = row[k] / pivot[k];
            row.iter_mut().zip(pivot).for_each(|(x, p)| *x -= factor * p);
            b[k + 1 + i] -= factor * b[k];
        }
    }
    for k in (0..n).rev() {
        let rest: f64 = (k + 1..n).map(|j| a[k][j] * b[j]).sum();
        b[k] = (b[k] - rest) / a[k][k];
    }
    b
}

/// Centred ridge regression by hand on the features of a model.
fn by_hand(
    model: &Model,
    x: &Matrix<f64>,
    y: &[f64],
    weights: &[f64],
    at: &Matrix<f64>,
) -> Vec<f64> {
    let design = model.design().unwrap();
    let (phi, query) = (design.transform(x.view()).unwrap(), design.transform(at.view()).unwrap());
    let (n, m) = phi.shape();
    let total: f64 = weights.iter().sum();
    let mean = |f: &dyn Fn(usize) -> f64| (0..n).map(|i| weights[i] * f(i)).sum::<f64>() / total;
    let centre: Vec<f64> = (0..m).map(|k| mean(&|i| phi[(i, k)])).collect();
    let y_mean = mean(&|i| y[i]);
    let penalty = model.info().report.as_ref().unwrap().penalty;
    let gram = |j: usize, k: usize| {
        total * mean(&|i| (phi[(i, j)] - centre[j]) * (phi[(i, k)] - centre[k]))
            + if j == k { penalty } else { 0.0 }
    };
    let a = (0..m).map(|j| (0..m).map(|k| gram(j, k)).collect()).collect();
    let b =
        (0..m).map(|j| total * mean(&|i| (phi[(i, j)] - centre[j]) * (y[i] - y_mean))).collect();
    let c = solved(a, b);
    let value = |i: usize| (0..m).map(|k| (query[(i, k)] - centre[k]) * c[k]).sum::<f64>() + y_mean;
    (0..query.rows()).map(value).collect()
}

#[test]
fn ridge_is_the_plain_solution_on_its_features() {
    let (train, test) = (points(0, 700), points(5000, 60));
    for (basis, weighted) in [
        (Basis::Nystrom, false),
        (Basis::Random(Family::Trig), true),
        (Basis::Random(Family::Balanced), false),
    ] {
        let mut request = ridge_number().basis(Some(basis)).features(32);
        if weighted {
            request = request.weight(Some("w".into())).ignore(["label"]);
        }
        let model = fitted(train.clone(), &request).unwrap();
        let weights = if weighted { column(&train, "w") } else { vec![1.0; 700] };
        let scaled = |batch: &RecordBatch| {
            let mut out = vectors(batch, batch);
            for (l, name) in ["a", "b"].into_iter().enumerate() {
                let scaling = model.info().encoder.scalings()[l];
                let values = column(batch, name);
                (0..out.rows()).for_each(|i| out[(i, l)] = scaling.apply(values[i]));
            }
            out
        };
        let y = column(&train, "y");
        let wanted = by_hand(&model, &scaled(&train), &y, &weights, &scaled(&test));
        close(&predictions(&model, test.clone()), &wanted, DOUBLE, &format!("{basis:?}"));
    }
}

#[test]
fn ridge_beats_nadaraya_watson_and_says_what_features_bring() {
    let (train, test) = (points(0, 2000), points(50_000, 1000));
    let score = |request: &FitRequest| {
        let model = fitted(train.clone(), request).unwrap();
        (block(evaluate(&table(test.clone()), &model, None, &progress())).unwrap(), model)
    };
    let (nw, _) = score(&regress());
    let (found, model) = score(&ridge_number());
    assert!(found.score > nw.score + 0.05, "{} against {}", found.score, nw.score);
    let report = model.info().report.as_ref().unwrap();
    let sizes: Vec<usize> = report.curve.iter().map(|p| p.features).collect();
    assert_eq!(sizes, [32, 64]);
    // What the folds say is what rows say that were never seen, within the error of a thousand rows.
    assert!((report.score.unwrap() - found.score).abs() < 0.05, "{report:?} {}", found.score);
    let judged = model.info().judgement.as_ref().unwrap();
    assert!((judged.r2.unwrap() - found.score).abs() < 0.05, "{judged:?}");
    let text = model.to_text();
    for part in ["ridge head", "nystrom features of the gaussian kernel", "by 4-fold", "importance"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert!(model.to_svg().unwrap().starts_with("<svg"));
    // With every row as a landmark the exact kernel is the features.
    assert!((found.comparison.exact - found.comparison.features).abs() < 0.1, "{found:?}");
}

#[test]
fn classes_have_probabilities_and_priors() {
    let (train, test) = (points(0, 1500), points(50_000, 500));
    let model = fitted(train.clone(), &ridge()).unwrap();
    let found = probabilities(&model, test.clone());
    for i in 0..found.rows() {
        assert!((found.row(i).iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(found.row(i).iter().all(|p| (0.0..=1.0).contains(p)));
    }
    assert_eq!(model.info().labels(), ["0", "10", "20"]);
    assert_eq!(model.info().classes.iter().map(|c| c.rows).sum::<u64>(), 1500);
    let judged = model.info().judgement.clone().unwrap();
    let found = block(evaluate(&table(test.clone()), &model, None, &progress())).unwrap();
    assert!((judged.accuracy.unwrap() - found.score).abs() < 0.07, "{judged:?} {}", found.score);
    let judged = found.judgement.clone().unwrap();
    assert!(judged.log_loss.is_some() && judged.auc.is_none() && judged.rmse.is_none());
    assert!(found.to_svg().unwrap().starts_with("<svg"));
    // A class held to be impossible is not predicted.
    let parts = [("0", 1e-9), ("10", 0.5), ("20", 0.5)].map(|(l, p)| (l.to_string(), p));
    let prior = ridge().prior(Prior::Given(parts.to_vec()));
    let model = fitted(train, &prior).unwrap();
    let found = predicted(&model, test, &PredictOptions::default()).unwrap();
    let labels =
        found.column(0).as_primitive::<favor_tables::datafusion::arrow::datatypes::Int64Type>();
    assert!(labels.values().iter().filter(|l| **l == 0).count() < 10);
}

/// Of a target that is twice the sine of one number plus a constant of a text, the shares are those of the
/// variances; a number and a text that do nothing have none. A logistic head has its own.
#[test]
fn columns_matter_by_the_variance_they_bring() {
    let count = 4000;
    let mut state = 1_u64;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let numbers: Vec<[f64; 4]> = (0..count).map(|_| [(); 4].map(|()| uniform())).collect();
    let text = |l: usize| -> ArrayRef {
        let word = |row: &[f64; 4]| if row[l] < 0.5 { "low" } else { "high" };
        Arc::new(StringArray::from_iter_values(numbers.iter().map(word)))
    };
    let number = |l: usize| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(numbers.iter().map(|row| row[l])))
    };
    let value = |row: &[f64; 4]| 2.0 * (6.0 * row[0]).sin() + if row[2] < 0.5 { -1.0 } else { 1.0 };
    let y: Vec<f64> = numbers.iter().map(value).collect();
    let side = BooleanArray::from_iter(y.iter().map(|v| Some(*v > 0.0)));
    let batch = RecordBatch::try_from_iter([
        ("wave", number(0)),
        ("idle", number(1)),
        ("step", text(2)),
        ("word", text(3)),
        ("y", Arc::new(Float64Array::from_iter_values(y.iter().copied())) as ArrayRef),
        ("side", Arc::new(side) as ArrayRef),
    ])
    .unwrap();
    let model = fitted(batch.clone(), &FitRequest::of("y").ignore(["side"]).features(128)).unwrap();
    let shares = &model.info().importances;
    // Var 2 sin(6u) = 2 (1 − sin 12/12) − 4 ((1 − cos 6)/6)², and 1 of the step.
    let wave = 2.0 * (1.0 - 12_f64.sin() / 12.0) - 4.0 * ((1.0 - 6_f64.cos()) / 6.0).powi(2);
    let wanted = [wave / (wave + 1.0), 0.0, 1.0 / (wave + 1.0), 0.0];
    for (share, wanted) in shares.iter().zip(wanted) {
        // Half the squared difference of two draws has a deviation of about its mean, over 512 rows that
        // overlap in pairs; the fit itself explains 99 %.
        assert!(
            (share - wanted).abs() < 4.0 * (2.0 / 512.0_f64).sqrt() * wanted + 0.01,
            "{shares:?}"
        );
    }
    assert!(model.to_text().contains("%  step"), "{}", model.to_text());
    let of_side = FitRequest::of("side").ignore(["y"]).features(64);
    let ridge = fitted(batch.clone(), &of_side).unwrap();
    let logistic = fitted(batch, &of_side.head(Some(HeadKind::Logistic.into()))).unwrap();
    assert_ne!(ridge.info().importances, logistic.info().importances);
    assert!(
        logistic.to_text().contains("each predicted by a ridge head"),
        "{}",
        logistic.to_text()
    );
}

/// Batches, workers and the order of rows make no difference but rounding.
#[test]
fn batches_workers_and_order_make_no_difference() {
    let batch = points(0, 3000);
    let order = UInt64Array::from_iter_values((0..3000).map(|i| (i * 1201) % 3000));
    let turned = take_record_batch(&batch, &order).unwrap();
    for request in [ridge(), ridge_number()] {
        // The choice is a function of the sample, and the sample one of the rows.
        let request = request.sample(300).basis(None).kernel(None).bandwidth(Bandwidth::default());
        let whole = block(fit(&cut(&batch, 3000, 1), &request, &progress())).unwrap();
        for (table, what) in [
            (cut(&batch, 7, 3), "small batches"),
            (cut(&batch, 1024, 8), "many workers"),
            (cut(&turned, 500, 2), "another order"),
        ] {
            let other = block(fit(&table, &request, &progress())).unwrap();
            let (a, b) = (whole.info(), other.info());
            assert_eq!((a.rows, &a.classes, a.bandwidth), (b.rows, &b.classes, b.bandwidth));
            assert_eq!(whole.design(), other.design(), "{what}");
            let score = |m: &Model| m.info().report.as_ref().unwrap().score.unwrap();
            assert!((score(&whole) - score(&other)).abs() < DOUBLE, "{what}");
            assert_eq!(whole.gram().unwrap().fold_rows(), other.gram().unwrap().fold_rows());
            if a.task == Task::Regress {
                let test = points(90_000, 50);
                let found = predictions(&other, test.clone());
                close(&found, &predictions(&whole, test), DOUBLE, what);
            }
        }
    }
}

/// The sample has rows of every fold, also where all columns are numbers as they are.
#[test]
fn the_sample_has_rows_of_all_folds() {
    let numbers_alone = points(0, 4000).project(&[0, 1, 6]).unwrap();
    let request = FitRequest::of("y").features(16).sample(400);
    let model = fitted(numbers_alone, &request).unwrap();
    let judged = model.info().judgement.as_ref().unwrap();
    assert_eq!(judged.rows, 400);
    let choice = model.info().choice.as_ref().unwrap();
    assert!(choice.candidates.iter().all(|c| c.score.is_finite()), "{choice:?}");
    let folds = model.gram().unwrap().fold_rows();
    assert!(folds.iter().all(|rows| (900..1100).contains(rows)), "{folds:?}");
}

/// Sums in 64 bits: what several workers find is what one finds to rounding of these.
#[test]
fn positive_features_are_summed_in_double_precision() {
    let batch = points(0, 3000);
    let request = ridge_number().basis(Some(Family::Balanced.into()));
    let one = block(fit(&cut(&batch, 3000, 1), &request, &progress())).unwrap();
    let many = block(fit(&cut(&batch, 100, 8), &request, &progress())).unwrap();
    let (a, b) = (one.gram().unwrap().feature_mean(), many.gram().unwrap().feature_mean());
    for (x, y) in a.iter().zip(&b) {
        assert!((x - y).abs() <= 1e-10 * x.abs().max(1e-3), "{x} against {y}");
    }
}

#[test]
fn rows_come_and_go() {
    for request in [ridge(), ridge_number(), ridge_number().head(Some(HeadKind::Gp.into()))] {
        let first = fitted(points(0, 1000), &request).unwrap();
        let second = block(fit_like(&table(points(1000, 500)), &first, &progress())).unwrap();
        let both = block(fit_like(&table(points(0, 1500)), &first, &progress())).unwrap();
        let merged = first.merge(&second).unwrap();
        let (updated, _) = block(update(&table(points(1000, 500)), &first, &progress())).unwrap();
        let back = block(subtract(&table(points(1000, 500)), &merged, &progress())).unwrap();
        let values = |m: &Model| match m.info().task {
            Task::Classify => probabilities(m, points(90_000, 60)).into_vec(),
            _ => predictions(m, points(90_000, 60)),
        };
        close(&values(&merged), &values(&both), DOUBLE, "merged");
        close(&values(&updated), &values(&both), DOUBLE, "updated");
        close(&values(&back), &values(&first), DOUBLE, "subtracted");
        assert_eq!(back.info().rows, 1000);
        assert_eq!(back.info().classes, first.info().classes);
        assert_eq!(back.gram().unwrap().fold_rows(), first.gram().unwrap().fold_rows());
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-9);
        assert!(near(back.moments().mean(), first.moments().mean()));
        let (a, b) = (back.moments().covariance(), first.moments().covariance());
        assert!(near(a.as_slice(), b.as_slice()));
        // All of them, and more than there are.
        for gone in [&first, &merged] {
            assert_eq!(first.subtract(gone).unwrap_err(), Error::TooMany);
        }
    }
    // For Nadaraya–Watson it is the same.
    for request in [classify(), regress(), density()] {
        let first = fitted(points(0, 1000), &request).unwrap();
        let (more, _) = block(update(&table(points(1000, 500)), &first, &progress())).unwrap();
        let back = block(subtract(&table(points(1000, 500)), &more, &progress())).unwrap();
        let name = if back.info().task == Task::Density { "log_density" } else { "relative_error" };
        let values = |m: &Model| {
            let options = PredictOptions::default();
            column(&predicted(m, points(90_000, 60), &options).unwrap(), name)
        };
        close(&values(&back), &values(&first), 20.0 * ROUNDING, "subtracted");
        assert_eq!(back.info().classes, first.info().classes);
    }
}

/// Over the rows of a model components have mean 0 and no covariance, and vary less and less: as `f32`
/// features know it.
#[test]
fn components_are_uncorrelated() {
    let batch = points(0, 1500);
    let model = fitted(batch.clone(), &ridge()).unwrap();
    let options = PredictOptions::default().components(Some(4)).keep(["label"]);
    let found = predicted(&model, batch.clone(), &options).unwrap();
    assert_eq!(found.num_columns(), 5);
    let values: Vec<Vec<f64>> = (1..5).map(|c| column(&found, &format!("component_{c}"))).collect();
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / 1500.0;
    let (ones, scale) = (vec![1.0; 1500], product(&values[0], &values[0]));
    let mut last = f64::INFINITY;
    for (c, own) in values.iter().enumerate() {
        assert!(product(own, &ones).abs() < SINGLE * scale.sqrt());
        let variance = product(own, own);
        assert!(variance > 0.0 && variance < last * (1.0 + SINGLE));
        last = variance;
        for other in &values[..c] {
            assert!(product(own, other).abs() < SINGLE * scale);
        }
    }
    let too_many = PredictOptions::default().components(Some(10_000));
    let error = predicted(&model, batch.clone(), &too_many).unwrap_err();
    assert!(matches!(error, Error::Request { setting: Setting::Components, .. }), "{error}");
    let means = fitted(batch.clone(), &classify()).unwrap();
    let error = predicted(&means, batch, &options).unwrap_err();
    assert!(error.to_string().contains("another head"), "{error}");
}

#[test]
fn new_labels_become_classes_of_ridge_too() {
    let batch = points(0, 900);
    let of = classes(&batch);
    let part = |wanted: &dyn Fn(usize) -> bool| {
        let mask: BooleanArray = of.iter().map(|c| Some(wanted(*c))).collect();
        filter_record_batch(&batch, &mask).unwrap()
    };
    let first = fitted(part(&|c| c != 1), &ridge()).unwrap();
    assert_eq!(first.info().labels(), ["0", "20"]);
    let (more, _) = block(update(&table(part(&|c| c == 1)), &first, &progress())).unwrap();
    let both = block(fit_like(&table(batch.clone()), &first, &progress())).unwrap();
    assert_eq!(more.info().labels(), ["0", "10", "20"]);
    let test = points(90_000, 60);
    let (a, b) = (probabilities(&more, test.clone()), probabilities(&both, test));
    close(a.as_slice(), b.as_slice(), DOUBLE, "labels");
}

/// Rows of a weight count as often as they would without it; those of weight zero not at all.
#[test]
fn weights_are_repetitions_for_ridge_too() {
    let train = points(0, 600);
    let weights = column(&train, "w");
    let many = (0..600).flat_map(|i| std::iter::repeat_n(i as u64, weights[i] as usize));
    let repeated = take_record_batch(&train, &UInt64Array::from_iter_values(many)).unwrap();
    let a =
        fitted(train.clone(), &ridge_number().weight(Some("w".into())).ignore(["label"])).unwrap();
    let b = fitted(repeated, &ridge_number()).unwrap();
    assert_eq!(a.design(), b.design());
    let test = points(5000, 50);
    close(&predictions(&a, test.clone()), &predictions(&b, test.clone()), DOUBLE, "weights");

    let mut columns = train.columns().to_vec();
    columns[5] = numbers((0..600).map(|i| f64::from(u8::from(i < 400))));
    let zeros = RecordBatch::try_new(train.schema(), columns).unwrap();
    let a = fitted(zeros, &ridge_number().weight(Some("w".into())).ignore(["label"])).unwrap();
    let b = fitted(train.slice(0, 400), &ridge_number()).unwrap();
    assert_eq!((a.info().rows, a.info().total_weight), (400, 400.0));
    close(&predictions(&a, test.clone()), &predictions(&b, test), DOUBLE, "zeros");
}

#[test]
fn intervals_cover_what_they_say() {
    // A wave with noise of deviation 0.3.
    let wave = |start: usize, count: usize| {
        let index = || start..start + count;
        let x = |i: usize| 6.0 * noise(3 * i);
        let y = index().map(|i| x(i).sin() + 0.3 * normal(i + 40_000));
        RecordBatch::try_from_iter([("x", numbers(index().map(x))), ("y", numbers(y))]).unwrap()
    };
    let request = FitRequest::of("y").head(Some(HeadKind::Gp.into())).features(64);
    let model = fitted(wave(0, 2000), &request).unwrap();
    let options = PredictOptions::default().interval(Some(90.0)).keep(["y"]);
    let found = predicted(&model, wave(10_000, 1000), &options).unwrap();
    let [y, mean, deviation, lower, upper] =
        ["y", "prediction", "deviation", "lower", "upper"].map(|name| column(&found, name));
    let mut inside = 0;
    for i in 0..1000 {
        assert!((deviation[i] - 0.3).abs() < 0.03, "{}", deviation[i]);
        assert!((upper[i] - mean[i] - 1.644854 * deviation[i]).abs() < 1e-5);
        assert!((mean[i] - lower[i] - (upper[i] - mean[i])).abs() < 1e-9);
        inside += usize::from((lower[i]..upper[i]).contains(&y[i]));
    }
    // Four deviations of a share of a thousand.
    assert!((inside as f64 - 900.0).abs() < 4.0 * (1000.0 * 0.09_f64).sqrt(), "{inside}");
    let judged = model.info().judgement.as_ref().unwrap();
    for (percent, share) in &judged.coverage {
        let p = percent / 100.0;
        let error = (p * (1.0 - p) / judged.rows as f64).sqrt();
        assert!((share - p).abs() < 4.0 * error, "{judged:?}");
    }
    assert!(model.to_text().contains("intervals cover"), "{}", model.to_text());
    let plain = fitted(wave(0, 300), &FitRequest::of("y").features(16)).unwrap();
    for (model, options) in [
        (&plain, PredictOptions::default().interval(Some(95.0))),
        (&model, PredictOptions::default().interval(Some(100.0))),
        (&model, PredictOptions::default().interval(Some(f64::NAN))),
    ] {
        let error = predicted(model, wave(0, 5), &options).unwrap_err();
        assert!(matches!(error, Error::Request { setting: Setting::Interval, .. }), "{error}");
    }
}

#[test]
fn logistic_probabilities_are_better_than_those_of_ridge() {
    let (train, test) = (points(0, 3000), points(50_000, 1500));
    let judged = |head: HeadKind| {
        let model = fitted(train.clone(), &ridge().head(Some(head.into()))).unwrap();
        let found = block(evaluate(&table(test.clone()), &model, None, &progress())).unwrap();
        (found.judgement.unwrap(), model)
    };
    let ((ridge, _), (logistic, model)) = (judged(HeadKind::Ridge), judged(HeadKind::Logistic));
    assert!(logistic.log_loss < ridge.log_loss, "{logistic:?} against {ridge:?}");
    assert!(logistic.accuracy.unwrap() > ridge.accuracy.unwrap() - 0.02);
    let back = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
    assert_eq!(back, model);
    assert_eq!(model.merge(&model).unwrap_err(), Error::NotMergeable);
    for (request, part) in [
        (ridge_number().head(Some(HeadKind::Logistic.into())), "logistic does no regression"),
        (ridge_request_for_classes(HeadKind::Gp), "gp does no classification"),
        (density().head(Some(HeadKind::Ridge.into())), "ridge does no density; give nw"),
    ] {
        let message = fitted(points(0, 100), &request).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

fn ridge_request_for_classes(head: HeadKind) -> FitRequest {
    ridge().head(Some(head.into()))
}

/// A model for each group is the model of the rows of the group.
#[test]
fn groups_of_a_query_are_models() {
    let batch = points(0, 1200);
    let model = fitted(batch.clone(), &ridge_number()).unwrap();
    let session = session(Some(2));
    session.register_batch("points", batch.clone()).unwrap();
    register(&session, "favor", &model).unwrap();
    let query = "select label, favor_gram(a, b, flag, \"Colour\", y), \
                 favor_moments(a, b, flag, \"Colour\") from points group by label order by label";
    let found = block(async {
        Table::open(&session, &Source::Sql(query.into())).await.unwrap().collect().await.unwrap()
    });
    let found =
        favor_tables::datafusion::arrow::compute::concat_batches(&found[0].schema(), &found)
            .unwrap();
    assert_eq!(found.num_rows(), 3);
    let of = classes(&batch);
    for c in 0..3 {
        let bytes = |k: usize| found.column(k).as_binary::<i32>().value(c);
        let group = model.of_group(bytes(1), bytes(2)).unwrap();
        let mask: BooleanArray = of.iter().map(|k| Some(*k == c)).collect();
        let part = filter_record_batch(&batch, &mask).unwrap();
        let wanted = block(fit_like(&table(part.clone()), &model, &progress())).unwrap();
        assert_eq!(group.info().rows, part.num_rows() as u64);
        let test = points(90_000, 40);
        close(&predictions(&group, test.clone()), &predictions(&wanted, test), DOUBLE, "group");
    }
}

#[test]
fn probabilities_and_intervals_are_functions_in_sql() {
    let (train, test) = (points(0, 600), points(5000, 40));
    let session = session(Some(2));
    session.register_batch("points", test.clone()).unwrap();
    let classes = fitted(train.clone(), &ridge()).unwrap();
    let process = fitted(train, &ridge_number().head(Some(HeadKind::Gp.into()))).unwrap();
    register(&session, "c", &classes).unwrap();
    register(&session, "g", &process).unwrap();
    let query = "select c_proba(a, b, flag, \"Colour\")['10'] as p, \
                 g_interval(a, b, flag, \"Colour\")['upper'] as u from points";
    let found = block(async {
        Table::open(&session, &Source::Sql(query.into())).await.unwrap().collect().await.unwrap()
    });
    let wanted = probabilities(&classes, test.clone());
    close(&column(&found[0], "p"), &(0..40).map(|i| wanted[(i, 1)]).collect::<Vec<_>>(), 1e-9, "p");
    let wanted =
        predicted(&process, test, &PredictOptions::default().interval(Some(95.0))).unwrap();
    close(&column(&found[0], "u"), &column(&wanted, "upper"), 1e-9, "u");
}
