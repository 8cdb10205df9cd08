//! Predictions made by the workers of a session.

use crate::common::*;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use favor_tables::datafusion;
use favor_tables::{
    Missing, Model, PredictOptions, evaluate, evaluate_on_workers, predict_columns_function,
    predict_on_workers, scalar_from_bytes, scalar_to_bytes,
};
use futures::TryStreamExt;

fn inside(model: &Model, batch: &RecordBatch, options: &PredictOptions) -> RecordBatch {
    block(async {
        let table = cut(batch, 37, 1);
        let (schema, batches) =
            predict_on_workers(&table, model, options, &progress()).await.unwrap();
        let batches: Vec<RecordBatch> = batches.try_collect().await.unwrap();
        assert!(batches.len() > 1);
        concat_batches(&schema, &batches).unwrap()
    })
}

#[test]
fn workers_predict_what_this_process_predicts() {
    let batch = points(5000, 300);
    for (request, probabilities) in [(classify(), true), (regress(), false), (density(), false)] {
        let model = fitted(points(0, 600), &request).unwrap();
        let options = PredictOptions::default()
            .probabilities(probabilities)
            .keep(["Colour", "a"])
            .missing(Some(Missing::Drop));
        let (own, engine) =
            (predicted(&model, batch.clone(), &options).unwrap(), inside(&model, &batch, &options));
        assert_eq!(own.schema(), engine.schema());
        // Batches of another size are tiles of another size: equal to rounding.
        for (a, b) in own.columns().iter().zip(engine.columns()) {
            if !a.data_type().is_floating() {
                assert_eq!(a, b);
                continue;
            }
            let name = own.schema().field(0).name().clone();
            let column_of = |c| {
                let batch = RecordBatch::try_from_iter([(&name, c)]).unwrap();
                column(&batch, &name)
            };
            let (x, y) = (column_of(a.clone()), column_of(b.clone()));
            let near = |(p, q): (&f64, &f64)| (p - q).abs() <= ROUNDING * p.abs().max(1.0);
            assert!(x.iter().zip(&y).all(near));
        }
    }
}

#[test]
fn workers_evaluate_as_this_process_does() {
    let batch = points(5000, 300);
    for request in [classify(), regress(), density()] {
        let model = fitted(points(0, 600), &request).unwrap();
        let (own, workers) = block(async {
            let table = cut(&batch, 37, 1);
            let own = evaluate(&table, &model, None, &progress()).await.unwrap();
            (own, evaluate_on_workers(&table, &model, None, &progress()).await.unwrap())
        });
        assert_eq!((own.rows, own.left_out, &own.confusion), (300, 0, &workers.confusion));
        assert!((own.score - workers.score).abs() < 10.0 * ROUNDING);
        assert_eq!(own.comparison, workers.comparison);
    }
}

#[test]
fn the_function_travels_as_bytes() {
    let model = fitted(points(0, 300), &classify()).unwrap();
    for probabilities in [false, true] {
        let options = PredictOptions::default().probabilities(probabilities);
        let function = predict_columns_function(&model, &options).unwrap();
        let bytes = scalar_to_bytes(&function).unwrap();
        assert_eq!(scalar_from_bytes(function.name(), &bytes).unwrap(), function);
        for cut in [0, 1, 100, bytes.len() - 1] {
            assert!(scalar_from_bytes(function.name(), &bytes[..cut]).is_err());
        }
    }
    let options = PredictOptions::default().probabilities(true);
    let model = fitted(points(0, 300), &regress()).unwrap();
    assert!(predict_columns_function(&model, &options).is_err());
}
