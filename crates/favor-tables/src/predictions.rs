//! Predictions for the rows of a table, batch by batch: by this process, or by the workers of the
//! table's session.

use crate::model::Model;
use crate::predict::{PredictOptions, Predictor};
use crate::progress::Progress;
use crate::query;
use crate::source::Table;
use crate::udf_predict::PredictColumns;
use crate::{Error, Result};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::{Expr, ScalarUDF, ident};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;

/// The columns of predictions, and the batches as they come.
///
/// ```
/// use futures::TryStreamExt;
/// # async fn example((_, mut batches): favor_tables::Predictions) -> favor_tables::Result<()> {
/// while let Some(batch) = batches.try_next().await? {
///     println!("{} rows", batch.num_rows());
/// }
/// # Ok(())
/// # }
/// ```
pub type Predictions = (SchemaRef, BoxStream<'static, Result<RecordBatch>>);

/// Predictions in the order of the table: a session of one worker reads it, all cores predict.
///
/// Rows come in the order in which the table's session gives them: open the table in
/// [`session(Some(1))`](crate::session) to keep that of the files.
///
/// ```
/// use favor_tables::{PredictOptions, predict, write_table};
/// # async fn example(table: &favor_tables::Table, model: &favor_tables::Model, progress: &std::sync::Arc<favor_tables::Progress>) -> favor_tables::Result<()> {
/// let options = PredictOptions::default().keep(["id"]);
/// let (schema, batches) = predict(table, model, &options, progress).await?;
/// write_table(std::path::Path::new("predictions.parquet"), &schema, batches).await?;
/// # Ok(())
/// # }
/// ```
pub async fn predict(
    table: &Table,
    model: &Model,
    options: &PredictOptions,
    progress: &Arc<Progress>,
) -> Result<Predictions> {
    let predictor = Arc::new(Predictor::new(model, options)?);
    let schema = schema(table, &predictor, options)?;
    let names = model.info.encoder.names();
    // Each column once: a kept one may be one of the model's.
    let mut wanted: Vec<&str> = names.clone();
    wanted.extend(options.keep.iter().map(String::as_str).filter(|k| !names.contains(k)));
    let frame = table.frame.clone().select(wanted.iter().map(|n| ident(*n)).collect::<Vec<_>>());
    let stream = query::stream(frame.map_err(|e| table.explain(e))?).await;
    let stream = stream.map_err(|e| table.explain(e))?;
    progress.begin("predict", None);

    let inputs = names.len();
    let place = |k: &String| wanted.iter().position(|w| w == k).unwrap_or(0);
    let kept: Arc<[usize]> = options.keep.iter().map(place).collect();
    let (made, told) = (schema.clone(), progress.clone());
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let explaining = table.clone();
    let stream = stream
        .map_err(move |e| explaining.explain(e))
        .map(move |batch| {
            let (predictor, schema, kept) = (predictor.clone(), made.clone(), kept.clone());
            tokio::spawn(async move {
                let batch = batch?;
                let count = batch.num_rows();
                let mut columns: Vec<ArrayRef> =
                    kept.iter().map(|&k| batch.column(k).clone()).collect();
                columns.extend(predictor.columns(&batch.columns()[..inputs], count)?);
                batch_of(columns, schema, count)
            })
        })
        .buffered(2 * workers)
        .map(move |joined| {
            let batch = joined.unwrap_or_else(|error| Err(Error::query(error.to_string())));
            batch.inspect(|b| told.add(b.num_rows()))
        });
    Ok((schema, stream.boxed()))
}

/// What [`predict`] gives, but made by the workers of the table's session: what comes back is the
/// predictions and the columns to keep, not the table. A cluster gives the rows in any order.
///
/// ```
/// use favor_tables::{PredictOptions, predict_on_workers};
/// # async fn example(table: &favor_tables::Table, model: &favor_tables::Model, progress: &std::sync::Arc<favor_tables::Progress>) -> favor_tables::Result<()> {
/// let options = PredictOptions::default().keep(["id"]);
/// let (schema, batches) = predict_on_workers(table, model, &options, progress).await?;
/// # Ok(())
/// # }
/// ```
pub async fn predict_on_workers(
    table: &Table,
    model: &Model,
    options: &PredictOptions,
    progress: &Arc<Progress>,
) -> Result<Predictions> {
    let predictor = Predictor::new(model, options)?;
    let schema = schema(table, &predictor, options)?;
    let inputs = model.info.encoder.names().into_iter().map(ident).collect();
    let function = PredictColumns::new(predictor)?;
    let mut wanted: Vec<Expr> = options.keep.iter().map(ident).collect();
    wanted.push(ScalarUDF::from(function).call(inputs).alias(PredictColumns::NAME));
    let frame = table.frame.clone().select(wanted).map_err(|e| table.explain(e))?;
    progress.begin("predict", None);
    let stream = query::stream(frame).await.map_err(|e| table.explain(e))?;
    let (made, told, explaining) = (schema.clone(), progress.clone(), table.clone());
    let stream = stream.map(move |batch| {
        let batch = batch.map_err(|e| explaining.explain(e))?;
        told.add(batch.num_rows());
        flat(&batch, &made)
    });
    Ok((schema, stream.boxed()))
}

/// The columns that predictions have: those to keep, then their own. All that is needed must be in the
/// table.
///
/// ```
/// use favor_tables::{PredictOptions, predicted_columns};
/// # fn example(table: &favor_tables::Table, model: &favor_tables::Model) -> favor_tables::Result<()> {
/// let schema = predicted_columns(table, model, &PredictOptions::default())?;
/// println!("{} columns", schema.fields().len());
/// # Ok(())
/// # }
/// ```
pub fn predicted_columns(
    table: &Table,
    model: &Model,
    options: &PredictOptions,
) -> Result<SchemaRef> {
    schema(table, &Predictor::new(model, options)?, options)
}

fn schema(table: &Table, predictor: &Predictor, options: &PredictOptions) -> Result<SchemaRef> {
    for name in predictor.model().info.encoder.names() {
        table.data_type(name)?;
    }
    let mut fields = vec![];
    for name in &options.keep {
        fields.push(Field::new(name, table.data_type(name)?, true));
    }
    fields.extend(predictor.fields());
    Ok(Arc::new(Schema::new(fields)))
}

/// The columns to keep and those of the struct that follows them.
fn flat(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let (last, kept) =
        batch.columns().split_last().ok_or_else(|| Error::query("no predictions"))?;
    let mut columns = kept.to_vec();
    columns.extend(last.as_struct().columns().iter().cloned());
    batch_of(columns, schema.clone(), batch.num_rows())
}

fn batch_of(columns: Vec<ArrayRef>, schema: SchemaRef, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}
