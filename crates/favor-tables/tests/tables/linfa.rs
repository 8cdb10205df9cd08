//! linfa's traits.

use crate::common::*;
use favor_tables::estimator::{KernelClassifier, KernelRegressor};
use favor_tables::{Goal, Request, Sigma, Wishes};
use linfa::prelude::*;
use ndarray::{Array1, Array2};

fn records(batch: &favor_tables::datafusion::arrow::array::RecordBatch) -> Array2<f64> {
    let (a, b) = (column(batch, "a"), column(batch, "b"));
    Array2::from_shape_fn((a.len(), 2), |(i, c)| [a[i], b[i]][c])
}

#[test]
fn traits_give_what_tables_give() {
    let (train, test) = (points(0, 500), points(5000, 80));
    let base = Request {
        columns: Some(vec!["a".into(), "b".into()]),
        ignore: vec![],
        features: 32,
        seed: 4,
        ..classify()
    };
    let labels: Array1<usize> = classes(&train).into_iter().collect();
    let data = Dataset::new(records(&train), labels);
    let params = KernelClassifier::new().features(32).seed(4).sigma(1.0);
    let model = params.fit(&data).unwrap();
    let found = model.predict(&records(&test));
    let wanted = fitted(train.clone(), &base).unwrap();
    let table = predicted(&wanted, test.clone(), &Wishes::default()).unwrap();
    let labels: Vec<i64> = {
        use favor_tables::datafusion::arrow::array::AsArray;
        use favor_tables::datafusion::arrow::datatypes::Int64Type;
        table.column(0).as_primitive::<Int64Type>().values().to_vec()
    };
    assert_eq!(found.to_vec(), labels.iter().map(|l| *l as usize / 10).collect::<Vec<_>>());
    let right = found.iter().zip(classes(&test)).filter(|(f, t)| **f == *t).count();
    assert!(right > 55, "{right} of 80");

    let data = Dataset::new(records(&train), column(&train, "y").into());
    let params = KernelRegressor::new().features(32).seed(4).sigma(1.0);
    let found = params.fit(&data).unwrap().predict(&records(&test));
    let request = Request {
        goal: Some(Goal::Regress),
        target: Some("y".into()),
        sigma: Sigma::Fixed(1.0),
        ..base
    };
    let wanted = fitted(train, &request).unwrap();
    let wanted = column(&predicted(&wanted, test, &Wishes::default()).unwrap(), "prediction");
    for (f, w) in found.iter().zip(wanted) {
        assert!((f - w).abs() < 10.0 * ROUNDING);
    }
}

#[test]
fn parameters_and_records_are_checked() {
    let data = Dataset::new(records(&points(0, 50)), Array1::from_iter(classes(&points(0, 50))));
    assert!(KernelClassifier::new().features(0).fit(&data).is_err());
    assert!(KernelClassifier::new().sigma(-1.0).fit(&data).is_err());
    let model = KernelClassifier::new().features(8).sigma(1.0).fit(&data).unwrap();
    assert!(model.try_predict(&Array2::<f64>::zeros((3, 5))).is_err());
    let mut bad = Array2::<f64>::zeros((3, 2));
    bad[(1, 1)] = f64::NAN;
    assert!(model.try_predict(&bad).is_err());
    // Inside a runtime as well.
    let runtime = favor_tables::runtime(Some(1)).unwrap();
    let inside = runtime.block_on(async { KernelClassifier::new().sigma(1.0).fit(&data) });
    assert!(inside.is_ok());
}
