//! Batches, workers, parts and later rows make no difference.

use crate::common::*;
use favor_tables::datafusion::arrow::array::{ArrayRef, Float64Array, RecordBatch};
use favor_tables::datafusion::arrow::compute::cast;
use favor_tables::{FitRequest, Model, Search, fit, fit_like, update};
use std::sync::Arc;

fn auto(request: FitRequest) -> FitRequest {
    request.bandwidth(Search::Validation).sample(200)
}

/// That two models are of the same rows: counts and samples exactly, sums to rounding.
fn assert_same(a: &Model, b: &Model, what: &str) {
    let (x, y) = (a.info(), b.info());
    assert_eq!((x.rows, x.bandwidth, x.labels()), (y.rows, y.bandwidth, y.labels()), "{what}");
    let rows = |m: &Model| m.info().classes.iter().map(|c| c.rows).collect::<Vec<_>>();
    assert_eq!(rows(a), rows(b), "{what}");
    assert!((x.total_weight / y.total_weight - 1.0).abs() < 1e-12, "{what}");
    assert_eq!(a.sample_size(), b.sample_size(), "{what}");
    let close = |p: &[f64], q: &[f64]| p.iter().zip(q).all(|(p, q)| (p - q).abs() < 1e-9);
    assert!(close(a.moments().mean(), b.moments().mean()), "{what}");
    assert!(
        close(a.moments().covariance().as_slice(), b.moments().covariance().as_slice()),
        "{what}"
    );
    let test = points(90_000, 40);
    let options = favor_tables::PredictOptions::default();
    let (found, wanted) = (
        predicted(a, test.clone(), &options).unwrap(),
        predicted(b, test.clone(), &options).unwrap(),
    );
    if x.classes.is_empty() {
        let name = found.schema().field(0).name().clone();
        for (f, w) in column(&found, &name).iter().zip(column(&wanted, &name)) {
            assert!((f - w).abs() < 10.0 * ROUNDING, "{what}: {f} against {w}");
        }
    } else {
        let off = difference(&probabilities(a, test.clone()), &probabilities(b, test));
        assert!(off < ROUNDING, "{what}: {off}");
    }
}

#[test]
fn batches_and_workers_make_no_difference() {
    let batch = points(0, 3000);
    for request in [classify(), regress(), density()] {
        let request = auto(request);
        let whole = block(fit(&cut(&batch, 3000, 1), &request, &progress())).unwrap();
        for (size, workers) in [(1, 1), (7, 3), (100, 2), (1024, 8)] {
            let other = block(fit(&cut(&batch, size, workers), &request, &progress())).unwrap();
            assert_same(&whole, &other, &format!("{size} rows, {workers} workers"));
        }
    }
}

/// The sample is of the rows, whatever their order.
#[test]
fn the_order_of_rows_makes_no_difference() {
    let batch = points(0, 2000);
    let order: Vec<u64> = (0..2000).map(|i| (i * 1201) % 2000).collect();
    let order = favor_tables::datafusion::arrow::array::UInt64Array::from(order);
    let turned =
        favor_tables::datafusion::arrow::compute::take_record_batch(&batch, &order).unwrap();
    let a = fitted(batch, &auto(classify())).unwrap();
    let b = fitted(turned, &auto(classify())).unwrap();
    assert_same(&a, &b, "order");
    let samples = |m: &Model| m.info().curve.clone().unwrap().trials;
    for (s, t) in samples(&a).iter().zip(samples(&b)) {
        assert!((s.score - t.score).abs() < 1e-6 && (s.exact - t.exact).abs() < 1e-6);
    }
}

#[test]
fn merging_halves_is_fitting_both() {
    for request in [classify(), regress(), density()] {
        let mut weighted = auto(request);
        weighted.weight = weighted.columns.is_none().then(|| "w".into());
        weighted.ignore.retain(|name| name != "w");
        let first = fitted(points(0, 1000), &weighted).unwrap();
        let second = block(fit_like(&table(points(1000, 500)), &first, &progress())).unwrap();
        let both = block(fit_like(&table(points(0, 1500)), &first, &progress())).unwrap();
        assert_same(&first.merge(&second).unwrap(), &both, "merge");
        assert_same(&second.merge(&first).unwrap(), &both, "merge the other way");
        let (updated, drift) =
            block(update(&table(points(1000, 500)), &first, &progress())).unwrap();
        assert!(drift.shifts.is_empty(), "{drift:?}");
        assert_same(&updated, &both, "update");
        let again = block(fit_like(&table(points(0, 1000)), &first, &progress())).unwrap();
        assert_same(&first, &again, "the same rows");
    }
}

/// Rows of which one column has moved are said to have drifted in that column, by how much, and in no other.
#[test]
fn drift_names_the_column_that_moved() {
    let (first, more) = (points(0, 1000), points(1000, 500));
    let a = column(&first, "a");
    let mean = a.iter().sum::<f64>() / 1000.0;
    let deviation = (a.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 1000.0).sqrt();
    let place = more.schema().index_of("a").unwrap();
    let mut columns = more.columns().to_vec();
    let values = column(&more, "a").into_iter().map(|v| v + 2.0 * deviation);
    let array: ArrayRef = Arc::new(Float64Array::from_iter_values(values));
    columns[place] = cast(&array, columns[place].data_type()).unwrap();
    let moved = RecordBatch::try_new(more.schema(), columns).unwrap();
    for request in [regress(), ridge_number()] {
        let model = fitted(first.clone(), &request).unwrap();
        let (_, drift) = block(update(&table(moved.clone()), &model, &progress())).unwrap();
        let [shift] = &drift.shifts[..] else { panic!("{drift:?}") };
        assert_eq!((shift.name.as_str(), drift.rows), ("a", 500));
        // The means of both halves are known to four of their errors.
        let error = 4.0 * (1.0 / 1000.0_f64 + 1.0 / 500.0).sqrt();
        assert!((shift.shift - 2.0).abs() < error, "{drift:?}");
        assert!(drift.to_text().contains('a'), "{}", drift.to_text());
    }
}

/// A label that only the second half has becomes a class.
#[test]
fn new_labels_become_classes() {
    let batch = points(0, 600);
    let of = classes(&batch);
    let part = |wanted: &dyn Fn(usize) -> bool| {
        let mask: favor_tables::datafusion::arrow::array::BooleanArray =
            of.iter().map(|c| Some(wanted(*c))).collect();
        favor_tables::datafusion::arrow::compute::filter_record_batch(&batch, &mask).unwrap()
    };
    let first = fitted(part(&|c| c != 1), &classify()).unwrap();
    assert_eq!(first.info().labels(), ["0", "20"]);
    let second = block(fit_like(&table(part(&|c| c == 1)), &first, &progress())).unwrap();
    assert_eq!(second.info().labels(), ["10"]);
    let merged = first.merge(&second).unwrap();
    let both = block(fit_like(&table(batch.clone()), &first, &progress())).unwrap();
    assert_same(&merged, &both, "labels");
    assert_eq!(merged.info().labels(), ["0", "10", "20"]);
}

/// A table of few different rows is sampled with their frequencies, wherever its rows are.
#[test]
fn equal_rows_are_one_item_of_the_sample() {
    let batch = points(0, 50);
    // Row i comes every 1 + i % 5 rounds of 40.
    let places = (0..40 * 50).filter(|n| (n / 50) % (1 + n % 5) == 0).map(|n| n % 50);
    let places = favor_tables::datafusion::arrow::array::UInt64Array::from_iter_values(places);
    let many = favor_tables::datafusion::arrow::compute::take_record_batch(&batch, &places);
    let (many, rows) = (many.unwrap(), places.values().len() as u64);
    for (limit, kept) in [(200, 50), (30, 30)] {
        let request = auto(regress()).sample(limit);
        let whole = block(fit(&cut(&many, many.num_rows(), 1), &request, &progress())).unwrap();
        assert_eq!((whole.sample_size(), whole.info().rows), (kept, rows));
        let trials = |m: &Model| m.info().curve.clone().unwrap().trials;
        for (size, workers) in [(30, 1), (70, 4)] {
            let other = block(fit(&cut(&many, size, workers), &request, &progress())).unwrap();
            assert_same(&whole, &other, &format!("{limit} of {size} rows, {workers} workers"));
            for (s, t) in trials(&whole).iter().zip(trials(&other)) {
                assert!((s.score - t.score).abs() < 1e-6 && (s.exact - t.exact).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn models_of_other_maps_do_not_merge() {
    let first = fitted(points(0, 300), &classify()).unwrap();
    for (request, word) in [
        (classify().seed(9), "maps"),
        (classify().bandwidth(0.5), "maps"),
        (classify().ignore(["w", "y", "a"]), "columns"),
        (regress(), "tasks"),
        (classify().prior(favor_tables::Prior::Uniform), "priors"),
    ] {
        let other = fitted(points(0, 300), &request).unwrap();
        let message = first.merge(&other).unwrap_err().to_string();
        assert!(
            message.contains(word) && message.contains("with the map of the first"),
            "{message}"
        );
    }
    // Another table has other means, and so another encoding.
    let other = fitted(points(300, 300), &classify()).unwrap();
    assert!(first.merge(&other).is_err());
}
