//! The functions of a model in SQL.

use crate::common::*;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::prelude::SessionContext;
use favor_tables::datafusion;
use favor_tables::{
    Model, PredictOptions, Source, Table, aggregate_from_bytes, aggregate_to_bytes, aggregates,
    moments, predict_function, register, scalar_from_bytes, scalar_to_bytes, sums,
};
use std::sync::Arc;

fn collect(session: &SessionContext, query: &str) -> favor_tables::Result<Vec<RecordBatch>> {
    let query = Source::Sql(query.into());
    block(async { Table::open(session, &query).await?.collect().await })
}

fn sql(session: &SessionContext, query: &str) -> Vec<RecordBatch> {
    collect(session, query).unwrap()
}

/// A plain session of DataFusion with the points as a table.
fn plain_session(batch: RecordBatch) -> SessionContext {
    let session = SessionContext::new();
    session.register_batch("points", batch).unwrap();
    session
}

fn model() -> Model {
    fitted(points(0, 400), &classify()).unwrap()
}

#[test]
fn predictions_in_sql_are_the_predictions() {
    let (model, test) = (model(), points(5000, 500));
    let session = plain_session(test.clone());
    register(&session, "favor", &model).unwrap();
    let query = "select favor_predict(a, b, flag, \"Colour\") from points";
    let found = sql(&session, query);
    let wanted = predicted(&model, test, &PredictOptions::default()).unwrap();
    let found = datafusion::arrow::compute::concat_batches(&found[0].schema(), &found).unwrap();
    assert_eq!(found.column(0), wanted.column(0));
    // Constants, filters and groups work as with any function.
    let one = sql(&session, "select favor_predict(100.0, 0.0, true, 'red') as p");
    assert_eq!(one[0].num_rows(), 1);
    let groups = sql(
        &session,
        "select favor_predict(a, b, flag, \"Colour\") p, count(*) n from points group by p order by p",
    );
    let total: i64 = groups
        .iter()
        .flat_map(|b| {
            b.column(1).as_primitive::<datafusion::arrow::datatypes::Int64Type>().values()
        })
        .sum();
    assert_eq!(total, 500);
}

#[test]
fn sums_in_sql_are_those_of_the_model() {
    let (model, train) = (model(), points(0, 400));
    let session = plain_session(train.clone());
    register(&session, "my", &model).unwrap();
    let query = "select label, my_sums(a, b, flag, \"Colour\"), my_moments(a, b, flag, \"Colour\") \
                 from points group by label order by label";
    let found = sql(&session, query);
    let found = datafusion::arrow::compute::concat_batches(&found[0].schema(), &found).unwrap();
    let of = classes(&train);
    let y = vectors(&train, &train);
    for c in 0..3 {
        let (found_sums, rows, weight) = sums(found.column(1).as_binary::<i32>().value(c)).unwrap();
        let count = of.iter().filter(|k| **k == c).count();
        assert_eq!((rows, weight), (count as u64, count as f64));
        let one_hot = favor::Matrix::from_fn(400, 1, |i, _| f64::from(u8::from(of[i] == c)));
        let x = vectors(&points(5000, 5), &train);
        let wanted = plain(model.map().unwrap(), &x, &y, &one_hot);
        let product =
            found_sums.unwrap().apply(model.map().unwrap(), x.view()).unwrap().to_matrix().unwrap();
        for i in 0..5 {
            assert!((product[(i, 0)] / wanted[(i, 0)] - 1.0).abs() < ROUNDING);
        }
        let m = moments(found.column(2).as_binary::<i32>().value(c)).unwrap();
        assert_eq!(m.count(), count as u64);
    }
}

/// What a worker elsewhere would make of the bytes is the same function.
#[test]
fn functions_travel_as_bytes() {
    let (model, test) = (model(), points(5000, 50));
    let session = plain_session(test.clone());
    let predict = predict_function("favor", &model).unwrap();
    let bytes = scalar_to_bytes(&predict).unwrap();
    let copy = scalar_from_bytes(predict.name(), &bytes).unwrap();
    assert_eq!(predict, copy);
    session.register_udf(copy);
    let found = sql(&session, "select favor_predict(a, b, flag, \"Colour\") from points");
    let wanted = predicted(&model, test, &PredictOptions::default()).unwrap();
    assert_eq!(found[0].column(0), wanted.column(0));
    for aggregate in aggregates("favor", &model).unwrap() {
        let bytes = aggregate_to_bytes(&aggregate).unwrap();
        assert_eq!(aggregate_from_bytes(aggregate.name(), &bytes).unwrap(), aggregate);
        assert!(aggregate_from_bytes(aggregate.name(), &bytes[..bytes.len() / 2]).is_err());
        // The bytes say what they are, whatever the name.
        let other = aggregate_from_bytes("mine", &bytes).unwrap();
        assert_eq!((other.name(), aggregate_to_bytes(&other)), ("mine", Some(bytes.clone())));
        let refused = scalar_from_bytes(aggregate.name(), &bytes).unwrap_err().to_string();
        assert!(refused.contains("they hold an aggregate function"), "{refused}");
    }
    let foreign = datafusion::functions_aggregate::count::count_udaf();
    assert_eq!(aggregate_to_bytes(&Arc::unwrap_or_clone(foreign)), None);
}

#[test]
fn wrong_arguments_are_refused() {
    let session = plain_session(points(5000, 5));
    register(&session, "favor", &model()).unwrap();
    for (query, part) in [
        ("select favor_predict(a, b) from points", "it takes a, b, flag, Colour"),
        ("select favor_predict(\"Colour\", b, flag, a) from points", "where numbers are needed"),
        ("select favor_sums(a, b) from points", "arguments"),
    ] {
        let message = collect(&session, query).unwrap_err().to_string();
        assert!(message.contains(part), "{query}: {message}");
    }
}
