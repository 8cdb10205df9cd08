//! Tables and requests that make no sense.

use crate::common::*;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use favor_tables::datafusion;
use favor_tables::{
    Error, FitRequest, PredictOptions, Prior, Remedy, Search, Setting, Task, fit_like,
};
use std::sync::Arc;

fn refused(batch: RecordBatch, request: &FitRequest, parts: &[&str]) {
    let message = match fitted(batch, request) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("fitted, where {parts:?} was expected"),
    };
    assert!(!message.contains('\n'), "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

/// `points` with one column replaced.
fn with(name: &str, array: ArrayRef) -> RecordBatch {
    let batch = points(0, 100);
    let schema = batch.schema();
    let columns =
        schema.fields().iter().zip(batch.columns()).map(|(f, c)| {
            (f.name().clone(), if f.name() == name { array.clone() } else { c.clone() })
        });
    RecordBatch::try_from_iter(columns.collect::<Vec<_>>()).unwrap()
}

#[test]
fn columns_that_are_not_there_are_named() {
    let base = classify();
    for request in [
        base.clone().target(Some("lable".into())),
        base.clone().columns(Some(vec!["a".into(), "lable".into()])),
        base.clone().ignore(["lable"]),
        base.clone().weight(Some("lable".into())),
    ] {
        refused(
            points(0, 50),
            &request,
            &["column 'lable' is not in the table", "Colour", "did you mean 'label'?"],
        );
    }
    let model = fitted(points(0, 100), &base).unwrap();
    let other = with("a", numbers((0..100).map(f64::from))).project(&[0, 1, 2, 4]).unwrap();
    let message =
        predicted(&model, other.clone(), &PredictOptions::default()).unwrap_err().to_string();
    assert!(message.contains("column 'Colour' is not in the table"), "{message}");
    assert!(block(fit_like(&table(other), &model, &progress())).is_err());
    let options = PredictOptions::default().keep(["z"]);
    assert!(predicted(&model, points(0, 5), &options).is_err());
}

#[test]
fn contents_that_cannot_be_used_are_named() {
    let flat = numbers((0..100).map(|_| 0.1 + 0.2));
    refused(with("a", flat), &classify(), &["column 'a' is constant", "; leave it out"]);
    refused(with("Colour", texts(["red"; 100])), &classify(), &["'Colour' is constant ('red')"]);
    let one: ArrayRef = Arc::new(Int64Array::from(vec![5; 100]));
    refused(with("label", one), &classify(), &["'label'", "one label, '5'"]);
    let same = numbers((0..100).map(|_| 7.0));
    refused(with("y", same), &regress(), &["'y' is the target and is constant (7.00)"]);
    let mut infinite: Vec<f64> = (0..100).map(f64::from).collect();
    infinite[30] = f64::INFINITY;
    refused(with("a", numbers(infinite.clone())), &classify(), &["'a' holds inf", "finite"]);
    infinite[30] = f64::NAN;
    refused(with("a", numbers(infinite.clone())), &classify(), &["'a' has missing values (NaN)"]);
    refused(with("y", numbers(infinite.clone())), &regress(), &["'y' is the target and holds NaN"]);
    let gap: ArrayRef = Arc::new(Int64Array::from_iter((0..100).map(|i| (i > 0).then_some(i % 2))));
    refused(with("label", gap), &classify(), &["'label' is the target and holds null"]);
    refused(points(0, 0), &classify(), &["the table has no rows"]);
    let negative = numbers((0..100).map(|i| 1.0 - f64::from(i == 9) * 3.0));
    let weighted = classify().weight(Some("w".into())).ignore(["y"]);
    refused(with("w", negative), &weighted, &["column 'w' holds the weight -2"]);
    for bad in [f64::INFINITY, f64::NAN] {
        let weights = numbers((0..100).map(|i| if i == 9 { bad } else { 1.0 }));
        let part = format!("column 'w' holds the weight {bad}");
        refused(with("w", weights), &weighted, &[&part]);
    }
    refused(with("w", numbers([0.0; 100])), &weighted, &[]);
    let empty: ArrayRef = Arc::new(Float64Array::new_null(100));
    let drop = classify().missing(Some(favor_tables::Missing::Drop));
    refused(with("a", empty), &drop, &["no rows without missing values"]);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..3000));
    let x = numbers((0..3000).map(f64::from));
    let ids = RecordBatch::try_from_iter([("x", x), ("label", ids)]).unwrap();
    refused(
        ids,
        &classify().ignore(Vec::<String>::new()),
        &["more than 1000 different labels; is a regression meant?"],
    );
}

#[test]
fn requests_that_cannot_be_met_are_named() {
    let base = classify();
    let mut untold = base.clone();
    untold.task = None;
    let cases = [
        (untold, "say whether to classify or to regress"),
        (FitRequest::default(), "name the column to predict, or ask for a density"),
        (base.clone().features(0), "features: 0 features; give 1 to 1048576"),
        (base.clone().bandwidth(-1.0), "bandwidth: -1 is not a positive number"),
        (base.clone().columns(Some(vec![])), "no column is left"),
        (base.clone().columns(Some(vec!["label".into()])), "be target, weight or ignored too"),
        (
            base.clone().task(Some(Task::Regress)).target(Some("Colour".into())),
            "a regression needs a number",
        ),
        (
            FitRequest::density().columns(Some(vec!["a".into(), "Colour".into()])),
            "a density needs numbers; leave it out",
        ),
        (
            base.clone().bandwidth(Search::CrossValidation { folds: 1 }),
            "folds: 1 parts; give 2 or more",
        ),
        (
            base.clone().prior(Prior::Given(vec![("0".into(), 1.0)])),
            "no number is given for the label '10'",
        ),
        (
            base.clone().prior(Prior::Given(
                ["0", "10", "20", "30"].map(|l| (l.to_string(), 0.25)).to_vec(),
            )),
            "'30' is not one of 0, 10, 20",
        ),
    ];
    for (request, part) in cases {
        refused(points(0, 100), &request, &[part]);
    }
    let auto = base.bandwidth(Search::Validation);
    refused(points(0, 6), &auto, &["bandwidth: 6 different rows are too few"]);
    let model = fitted(points(0, 100), &regress()).unwrap();
    let options = PredictOptions::default().probabilities(true);
    let error = predicted(&model, points(0, 5), &options).unwrap_err();
    assert!(matches!(error, Error::Request { setting: Setting::Probabilities, .. }), "{error}");
    // What helps is a value too, for programs that have their own words for it.
    let gaps = with("a", Arc::new(Float64Array::new_null(100)));
    let error = fitted(gaps, &classify()).unwrap_err();
    let remedy = Some(Remedy::DropOrFillMissing);
    assert!(matches!(&error, Error::Column { remedy: r, .. } if *r == remedy), "{error}");
    for text in ["", "a=x", "a=0", "a=-1", "=", "uniformly"] {
        assert!(text.parse::<Prior>().is_err(), "{text}");
    }
}
