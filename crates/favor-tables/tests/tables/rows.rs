//! Predictions made inside the query engine.

use crate::common::*;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use favor_tables::datafusion;
use favor_tables::{
    Missing, Model, Wishes, engine_predictions, predict_function, rows_from_bytes, rows_function,
    rows_to_bytes,
};
use futures::TryStreamExt;

fn inside(model: &Model, batch: &RecordBatch, wishes: &Wishes) -> RecordBatch {
    block(async {
        let table = cut(batch, 37, 1);
        let (schema, batches) =
            engine_predictions(&table, model, wishes, &progress()).await.unwrap();
        let batches: Vec<RecordBatch> = batches.try_collect().await.unwrap();
        assert!(batches.len() > 1);
        concat_batches(&schema, &batches).unwrap()
    })
}

#[test]
fn the_engine_predicts_what_this_process_predicts() {
    let batch = points(5000, 300);
    for (request, probabilities) in [(classify(), true), (regress(), false), (density(), false)] {
        let model = fitted(points(0, 600), &request).unwrap();
        let keep = vec!["Colour".into(), "a".into()];
        let wishes = Wishes { probabilities, keep, missing: Some(Missing::Drop) };
        let (own, engine) =
            (predicted(&model, batch.clone(), &wishes).unwrap(), inside(&model, &batch, &wishes));
        assert_eq!(own.schema(), engine.schema());
        // Batches of another size are tiles of another size: equal to rounding.
        for (a, b) in own.columns().iter().zip(engine.columns()) {
            match a.data_type().is_floating() {
                true => {
                    let name = own.schema().field(0).name().clone();
                    let column_of = |c| {
                        let batch = RecordBatch::try_from_iter([(&name, c)]).unwrap();
                        column(&batch, &name)
                    };
                    let (x, y) = (column_of(a.clone()), column_of(b.clone()));
                    let near = |(p, q): (&f64, &f64)| (p - q).abs() <= ROUNDING * p.abs().max(1.0);
                    assert!(x.iter().zip(&y).all(near));
                }
                false => assert_eq!(a, b),
            }
        }
    }
}

#[test]
fn the_function_travels_as_bytes() {
    let model = fitted(points(0, 300), &classify()).unwrap();
    for probabilities in [false, true] {
        let wishes = Wishes { probabilities, ..Wishes::default() };
        let function = rows_function(&model, &wishes).unwrap();
        let bytes = rows_to_bytes(&function).unwrap();
        assert_eq!(rows_from_bytes(&bytes).unwrap(), function);
        for cut in [0, 1, 100, bytes.len() - 1] {
            assert!(rows_from_bytes(&bytes[..cut]).is_err());
        }
    }
    assert_eq!(rows_to_bytes(&predict_function("favor", &model).unwrap()), None);
    let wishes = Wishes { probabilities: true, ..Wishes::default() };
    let model = fitted(points(0, 300), &regress()).unwrap();
    assert!(rows_function(&model, &wishes).is_err());
}
