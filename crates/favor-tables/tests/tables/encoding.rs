//! Encodings: ranks, marks of missing values, means of the target, times.

use crate::common::*;
use datafusion::arrow::array::{
    ArrayRef, Date32Array, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use favor_tables::datafusion;
use favor_tables::{
    ColumnKind, FitRequest, Missing, Model, NumberEncoding, PredictOptions, evaluate,
};
use std::sync::Arc;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn kinds(model: &Model) -> Vec<ColumnKind> {
    model.info().encoder.columns.iter().map(|c| c.kind.clone()).collect()
}

fn r2(model: &Model, test: RecordBatch) -> f64 {
    block(evaluate(&table(test), model, None, &progress())).unwrap().score
}

/// Numbers with heavy tails: their logarithm decides the target.
#[test]
fn heavy_tails_are_ranked() {
    let part = |start: usize, count: usize| {
        let index = || start..start + count;
        let plain = index().map(|i| normal(i + 70_000));
        batch(vec![
            ("heavy", numbers(index().map(|i| (2.0 * normal(i)).exp()))),
            ("plain", numbers(plain)),
            ("y", numbers(index().map(|i| normal(i).sin() + 0.3 * normal(i + 70_000)))),
        ])
    };
    let (train, test) = (part(0, 3000), part(100_000, 800));
    let request = FitRequest::of("y").features(64);
    let model = fitted(train.clone(), &request).unwrap();
    let found = kinds(&model);
    assert!(matches!(found[0], ColumnKind::Rank { .. }), "{found:?}");
    assert_eq!(found[1], ColumnKind::Number);
    assert!(model.to_text().contains("number by rank, heavy tails"));
    let plain = fitted(train, &request.numbers(NumberEncoding::Standard)).unwrap();
    assert_eq!(kinds(&plain), [ColumnKind::Number, ColumnKind::Number]);
    let (ranked, standard) = (r2(&model, test.clone()), r2(&plain, test));
    assert!(ranked > standard + 0.03 && ranked > 0.95, "{ranked} against {standard}");
}

/// That a value is missing can say more than any mean.
#[test]
fn missing_values_are_marked() {
    let part = |start: usize, count: usize| {
        let index = || start..start + count;
        let gone = |i: usize| noise(5 * i + 1) < 0.3;
        let x: Float64Array = index().map(|i| (!gone(i)).then(|| normal(i))).collect();
        let word: StringArray =
            index().map(|i| (!gone(i + 31)).then(|| ["u", "v"][i % 2])).collect();
        let y = index().map(|i| {
            let x = if gone(i) { 3.0 } else { normal(i) };
            x + if gone(i + 31) { 2.0 } else { 0.0 }
        });
        batch(vec![
            ("x", Arc::new(x) as ArrayRef),
            ("word", Arc::new(word) as ArrayRef),
            ("y", numbers(y)),
        ])
    };
    let (train, test) = (part(0, 2000), part(50_000, 500));
    let request = FitRequest::of("y").features(64);
    let marked = fitted(train.clone(), &request).unwrap();
    assert_eq!(marked.info().encoder.missing, Missing::Mark);
    assert!(marked.info().encoder.columns.iter().all(|c| c.marked));
    assert_eq!(marked.info().encoder.width(), 2 + 3);
    let filled = fitted(train, &request.clone().missing(Some(Missing::Mean))).unwrap();
    assert_eq!(filled.info().encoder.width(), 1 + 2);
    let (a, b) = (r2(&marked, test.clone()), r2(&filled, test));
    assert!(a > 0.99 && a > b + 0.2, "{a} against {b}");
    // Without gaps in the fitted table there is no mark, and gaps that come later are the mean.
    let whole = fitted(points(0, 200), &ridge_number()).unwrap();
    assert!(whole.info().encoder.columns.iter().all(|c| !c.marked));
}

fn airports(start: usize, count: usize, said: bool) -> RecordBatch {
    let index = || start..start + count;
    let port = |i: usize| (300.0 * noise(11 * i).powi(2)) as usize;
    let effect = |i: usize| if said { normal(port(i) + 900_000) } else { 0.0 };
    let names: Vec<String> = index().map(|i| format!("P{:03}", port(i))).collect();
    batch(vec![
        ("port", texts(names.iter().map(String::as_str))),
        ("x", numbers(index().map(normal))),
        ("y", numbers(index().map(|i| effect(i) + 0.5 * normal(i + 600_000)))),
    ])
}

#[test]
fn texts_with_many_values_are_means_of_the_target() {
    let request = FitRequest::of("y").features(64);
    let model = fitted(airports(0, 6000, true), &request).unwrap();
    assert!(matches!(kinds(&model)[0], ColumnKind::TargetMeans { targets: 1, .. }));
    assert!(model.to_text().contains("values as means of the target: P000"), "{}", model.to_text());
    let test = airports(100_000, 2000, true);
    let found = r2(&model, test.clone());
    // The effects have variance 1 and the noise 0.25.
    assert!(found > 0.7, "{found}");
    let folds = model.info().report.as_ref().unwrap().score.unwrap();
    assert!((folds - found).abs() < 0.05, "{folds} by folds, {found} on new rows");
    // A port that was never seen is missing; the model fills.
    let new =
        batch(vec![("port", texts(["nowhere"])), ("x", numbers([0.0])), ("y", numbers([0.0]))]);
    let value = predicted(&model, new, &PredictOptions::default()).unwrap();
    assert!(column(&value, "prediction")[0].abs() < 0.5);

    // Where the values say nothing, the folds do not find that they do: a row's own target is not in
    // what stands for its text.
    let model = fitted(airports(0, 3000, false), &request).unwrap();
    let folds = model.info().report.as_ref().unwrap().score.unwrap();
    assert!(folds < 0.02, "{folds}");

    // For classes there is a share of each, of two of one.
    let labelled = |batch: &RecordBatch, cuts: &[f64]| {
        let y = column(batch, "y");
        let label = |y: &f64| ["low", "middle", "high"][cuts.iter().filter(|c| y > c).count()];
        let mut columns: Vec<(&str, ArrayRef)> =
            vec![("port", batch.column(0).clone()), ("x", batch.column(1).clone())];
        columns.push(("label", texts(y.iter().map(label))));
        RecordBatch::try_from_iter(columns).unwrap()
    };
    for (cuts, width) in [(&[0.0][..], 1), (&[-0.5, 0.5][..], 3)] {
        let train = labelled(&airports(0, 6000, true), cuts);
        let model = fitted(train, &FitRequest::of("label").features(64)).unwrap();
        assert_eq!(model.info().encoder.width(), width + 1);
        let shares = model.info().classes.iter().map(|c| c.weight / 6000.0);
        let most = shares.fold(0.0, f64::max);
        let found = r2(&model, labelled(&test, cuts));
        assert!(found > most + 0.1, "{found} where the largest class has {most}");
        assert_eq!(Model::from_bytes(&model.to_bytes().unwrap()).unwrap(), model);
    }
}

#[test]
fn times_are_trends_and_cycles() {
    const DAY: i64 = 86_400_000_000;
    let part = |start: usize, count: usize| {
        let index = || start..start + count;
        let at = |i: usize| (10_000.0 + 700.0 * noise(3 * i)) * DAY as f64;
        let hour = |i: usize| at(i) / DAY as f64 * std::f64::consts::TAU;
        let times = TimestampMicrosecondArray::from_iter_values(index().map(|i| at(i) as i64));
        let dates = Date32Array::from_iter_values(index().map(|i| (at(i) / DAY as f64) as i32));
        let week = |i: usize| ((at(i) / DAY as f64).floor() + 3.0) / 7.0 * std::f64::consts::TAU;
        batch(vec![
            ("time", Arc::new(times) as ArrayRef),
            ("date", Arc::new(dates) as ArrayRef),
            ("y", numbers(index().map(|i| hour(i).sin() + week(i).cos()))),
        ])
    };
    let (train, test) = (part(0, 2000), part(50_000, 500));
    let model = fitted(train, &FitRequest::of("y").features(128)).unwrap();
    assert_eq!(
        kinds(&model),
        [ColumnKind::Time { clock: true }, ColumnKind::Time { clock: false }]
    );
    assert_eq!(model.info().encoder.number_names()[5], "time sin of day");
    let found = r2(&model, test);
    assert!(found > 0.99, "{found}");
}
