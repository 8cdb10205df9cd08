//! Predictions: labels as they were, missing values, predicted errors.

use crate::common::*;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int8Array,
    RecordBatch, StringArray, UInt64Array,
};
use datafusion::arrow::datatypes::Float64Type;
use favor::{Coupling, Family};
use favor_tables::datafusion;
use favor_tables::{FitRequest, Missing, PredictOptions, evaluate, fit, fit_like};
use std::sync::Arc;

/// A table of one column `x` that tells two labels apart.
fn two_labels(labels: ArrayRef) -> RecordBatch {
    let x = numbers((0..labels.len()).map(|i| (i % 2) as f64 + 0.1 * noise(i)));
    RecordBatch::try_from_iter([("x", x), ("label", labels)]).unwrap()
}

#[test]
fn labels_keep_their_type_and_value() {
    let cases: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values((0..40).map(|i| ["ja, sure", "no"][i % 2]))),
        Arc::new(BooleanArray::from_iter((0..40).map(|i| Some(i % 2 == 1)))),
        Arc::new(Int8Array::from_iter_values((0..40).map(|i| [-3, 100][i % 2]))),
        Arc::new(UInt64Array::from_iter_values((0..40).map(|i| [u64::MAX, 7][i % 2]))),
        Arc::new(Float32Array::from_iter_values((0..40).map(|i| [0.5, 1e-7][i % 2]))),
        Arc::new(Date32Array::from_iter_values((0..40).map(|i| [19_000, 20_000][i % 2]))),
    ];
    for labels in cases {
        let table = two_labels(labels.clone());
        let request = classify().ignore(Vec::<String>::new()).bandwidth(0.5);
        let model = fitted(table.clone(), &request).unwrap();
        let found = predicted(&model, table, &PredictOptions::default()).unwrap();
        assert_eq!(found.column(0).as_ref(), labels.as_ref(), "{}", labels.data_type());
    }
}

#[test]
fn classes_are_in_the_order_of_their_type() {
    let labels =
        datafusion::arrow::array::Int64Array::from_iter_values((0..60).map(|i| [10, 9, -2][i % 3]));
    let x = numbers((0..60).map(|i| (i % 3) as f64));
    let table = RecordBatch::try_from_iter([("x", x), ("label", Arc::new(labels) as ArrayRef)]);
    let request = classify().ignore(Vec::<String>::new());
    let model = fitted(table.unwrap(), &request).unwrap();
    assert_eq!(model.info().labels(), ["-2", "9", "10"]);
    // Texts that look like numbers are still texts.
    let x = numbers((0..60).map(|i| (i % 3) as f64));
    let labels = texts((0..60).map(|i| ["10", "9", "-2"][i % 3]));
    let table = RecordBatch::try_from_iter([("x", x), ("label", labels)]).unwrap();
    assert_eq!(fitted(table, &request).unwrap().info().labels(), ["-2", "10", "9"]);
}

/// A column with a null and a NaN.
fn with_gaps() -> RecordBatch {
    let batch = points(0, 300);
    let mut columns: Vec<(String, ArrayRef)> = vec![];
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let array: ArrayRef = match field.name().as_str() {
            "a" => Arc::new(Float64Array::from_iter((0..300).map(|i| match i {
                7 => None,
                11 => Some(f64::NAN),
                _ => Some(array.as_primitive::<Float64Type>().value(i)),
            }))),
            "Colour" => Arc::new(StringArray::from_iter(
                (0..300).map(|i| (i != 13).then(|| array.as_string::<i32>().value(i))),
            )),
            _ => array.clone(),
        };
        columns.push((field.name().clone(), array));
    }
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn missing_values_are_refused_dropped_or_filled() {
    let gaps = with_gaps();
    let message = fitted(gaps.clone(), &classify()).unwrap_err().to_string();
    assert!(
        message.contains("has missing values") && message.contains("fill in means"),
        "{message}"
    );

    // Dropped: as if the rows had not been there.
    let keep: Vec<usize> = (0..300).filter(|i| ![7, 11, 13].contains(i)).collect();
    let rows: Vec<RecordBatch> = keep.iter().map(|&i| points(0, 300).slice(i, 1)).collect();
    let whole = datafusion::arrow::compute::concat_batches(&points(0, 1).schema(), &rows).unwrap();
    let drop = classify().missing(Some(Missing::Drop));
    let a = fitted(gaps.clone(), &drop).unwrap();
    let b = fitted(whole, &drop).unwrap();
    assert_eq!(a.info().rows, 297);
    let test = points(5000, 30);
    let off = difference(&probabilities(&a, test.clone()), &probabilities(&b, test.clone()));
    assert!(off < ROUNDING, "{off}");
    // In predictions such rows stay, without one.
    let found = predicted(&a, gaps.clone(), &PredictOptions::default()).unwrap();
    assert_eq!(found.num_rows(), 300);
    let nulls: Vec<usize> = (0..300).filter(|&i| found.column(0).is_null(i)).collect();
    assert_eq!(nulls, [7, 11, 13]);
    assert!(found.column(1).is_null(7) && !found.column(1).is_null(8));

    // Filled: as if the means had been there.
    let mean = classify().missing(Some(Missing::Mean));
    let model = fitted(gaps.clone(), &mean).unwrap();
    assert_eq!(model.info().rows, 300);
    let found = predicted(&model, gaps.clone(), &PredictOptions::default()).unwrap();
    assert_eq!(found.column(0).null_count(), 0);
    let a = gaps.column(0).as_primitive::<Float64Type>();
    let there: Vec<f64> = a.iter().flatten().filter(|v| !v.is_nan()).collect();
    let centre = there.iter().sum::<f64>() / 298.0;
    let filled = numbers(
        (0..300).map(|i| if a.is_null(i) || a.value(i).is_nan() { centre } else { a.value(i) }),
    );
    let mut by_hand: Vec<ArrayRef> = gaps.columns().to_vec();
    by_hand[0] = filled;
    let by_hand = RecordBatch::try_new(gaps.schema(), by_hand).unwrap();
    let same = fitted(by_hand, &mean).unwrap();
    let off = difference(&probabilities(&model, test.clone()), &probabilities(&same, test));
    assert!(off < ROUNDING, "{off}");
}

/// The means are those of all rows whoever has seen them, and the same for later rows.
#[test]
fn means_stand_for_missing_values_everywhere() {
    let (gaps, mean) = (with_gaps(), classify().missing(Some(Missing::Mean)));
    let whole = fitted(gaps.clone(), &mean).unwrap();
    let wanted = probabilities(&whole, gaps.clone());
    let workers = block(fit(&cut(&gaps, 20, 3), &mean, &progress())).unwrap();
    let again = block(fit_like(&table(gaps.clone()), &whole, &progress())).unwrap();
    for other in [workers, again] {
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-9);
        assert!(close(other.moments().mean(), whole.moments().mean()));
        let off = difference(&probabilities(&other, gaps.clone()), &wanted);
        assert!(off < ROUNDING, "{off}");
    }
}

/// Rows without a target are left out where rows with gaps are, of fits and of evaluations.
#[test]
fn rows_without_a_target_are_dropped() {
    let batch = points(0, 300);
    let without = |i: usize| [7, 11].contains(&i);
    let labels = batch.column(4).as_primitive::<datafusion::arrow::datatypes::Int64Type>();
    let labels = datafusion::arrow::array::Int64Array::from_iter(
        (0..300).map(|i| (!without(i)).then(|| labels.value(i))),
    );
    let y = batch.column(6).as_primitive::<Float64Type>();
    let y = Float64Array::from_iter((0..300).map(|i| match i {
        7 => None,
        11 => Some(f64::NAN),
        _ => Some(y.value(i)),
    }));
    let mut columns = batch.columns().to_vec();
    (columns[4], columns[6]) = (Arc::new(labels), Arc::new(y));
    let schema = batch.schema();
    let names = schema.fields().iter().map(|f| f.name().clone());
    let gaps = RecordBatch::try_from_iter(names.zip(columns)).unwrap();
    let rows: Vec<RecordBatch> =
        (0..300).filter(|i| !without(*i)).map(|i| batch.slice(i, 1)).collect();
    let whole = datafusion::arrow::compute::concat_batches(&schema, &rows).unwrap();
    for request in [classify(), regress()] {
        let drop = request.missing(Some(Missing::Drop));
        let (a, b) = (fitted(gaps.clone(), &drop).unwrap(), fitted(whole.clone(), &drop).unwrap());
        assert_eq!((a.info().rows, &a.info().classes), (298, &b.info().classes));
        let judge = |batch: &RecordBatch| {
            block(evaluate(&table(batch.clone()), &b, None, &progress())).unwrap()
        };
        let (found, wanted) = (judge(&gaps), judge(&whole));
        assert_eq!((found.rows, found.left_out, wanted.left_out), (298, 2, 0));
        assert!((found.score - wanted.score).abs() < 10.0 * ROUNDING);
        assert_eq!(found.confusion, wanted.confusion);
    }
}

#[test]
fn texts_that_the_model_has_not_seen_are_missing() {
    let model = fitted(points(0, 300), &classify()).unwrap();
    let new = points(5000, 5);
    let mut columns = new.columns().to_vec();
    columns[3] = texts(["red", "red", "violet", "red", "red"]);
    let new = RecordBatch::try_new(new.schema(), columns).unwrap();
    let message =
        predicted(&model, new.clone(), &PredictOptions::default()).unwrap_err().to_string();
    assert!(message.contains("'violet'") && message.contains("'Colour'"), "{message}");
    for (missing, nulls) in [(Missing::Drop, 1), (Missing::Mean, 0)] {
        let options = PredictOptions::default().missing(Some(missing));
        let found = predicted(&model, new.clone(), &options).unwrap();
        assert_eq!((found.num_rows(), found.column(0).null_count()), (5, nulls));
    }
}

#[test]
fn kept_columns_and_order_are_those_of_the_table() {
    let model = fitted(points(0, 300), &classify()).unwrap();
    let test = points(5000, 20_000);
    let options = PredictOptions::default().keep(["y", "a"]);
    let found = predicted(&model, test.clone(), &options).unwrap();
    let schema = found.schema();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["y", "a", "prediction", "relative_error"]);
    assert_eq!(column(&found, "y"), column(&test, "y"));
    assert_eq!(column(&found, "a"), column(&test, "a"));
    let alone = predicted(&model, test.slice(12_345, 10), &PredictOptions::default()).unwrap();
    assert_eq!(&found.column(2).slice(12_345, 10), alone.column(0));
}

/// On Gaussian rows and independent draws, the relative error of the sums over many seeds is the
/// one that was predicted. The square error of one draw of M features has the variance of a mean;
/// 300 of them (60 seeds, 5 rows) give the root of their mean to about 10 %, twice that for the
/// heavy tails.
#[test]
fn predicted_errors_are_the_measured_ones() {
    let rows = |start: usize, n: usize| {
        let column = |l: usize| numbers((0..n).map(move |i| normal(3 * (start + i) + l)));
        RecordBatch::try_from_iter([("p", column(0)), ("q", column(1)), ("r", column(2))]).unwrap()
    };
    let (train, test) = (rows(0, 3000), rows(90_000, 5));
    let exact = {
        let request = |features| {
            FitRequest::density().bandwidth(1.25).coupling(Coupling::Iid).features(features)
        };
        let model = fitted(train.clone(), &request(1)).unwrap();
        let info = model.info().clone();
        let standard = |batch: &RecordBatch| {
            favor::Matrix::from_fn(batch.num_rows(), 3, |i, l| {
                info.encoder.scalings()[l].apply(column(batch, ["p", "q", "r"][l])[i])
            })
        };
        let ones = favor::Matrix::from_fn(3000, 1, |_, _| 1.0);
        let sums = exact(1.25, &standard(&test), &standard(&train), &ones);
        // The same norm as the model's densities.
        let norm: f64 = (0..3)
            .map(|l| {
                let scale = info.encoder.scalings()[l].scale;
                (0.8 / scale / (2.0 * std::f64::consts::PI).sqrt()).ln()
            })
            .sum();
        (0..5).map(|i| (sums[(i, 0)] / 3000.0).ln() + norm).collect::<Vec<f64>>()
    };
    for family in [Family::Balanced, Family::Sde] {
        let (mut measured, mut expected) = (0.0, 0.0);
        for seed in 0..60 {
            let request = FitRequest::density()
                .basis(Some(family.into()))
                .bandwidth(1.25)
                .coupling(Coupling::Iid)
                .features(512)
                .seed(seed)
                .sample(16);
            let model = fitted(train.clone(), &request).unwrap();
            let found = predicted(&model, test.clone(), &PredictOptions::default()).unwrap();
            let (logs, errors) = (column(&found, "log_density"), column(&found, "relative_error"));
            for i in 0..5 {
                measured += ((logs[i] - exact[i]).exp() - 1.0).powi(2);
                expected += errors[i].powi(2);
            }
        }
        let ratio = (measured / expected).sqrt();
        assert!((ratio - 1.0).abs() < 0.2, "{family}: {ratio}");
    }
}
