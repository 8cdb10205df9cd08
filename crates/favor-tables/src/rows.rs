//! Predictions made by the query engine instead of by this process: one scalar function that gives
//! all columns of a prediction as a struct, so that workers elsewhere can predict.

use crate::engine;
use crate::model::Model;
use crate::predict::{Predictor, Wishes};
use crate::progress::Progress;
use crate::source::Table;
use crate::{Error, Result};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use datafusion::common::Result as EngineResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, ident,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

const NAME: &str = "favor_rows";

/// The scalar function that gives all columns of the predictions, as a struct.
pub fn rows_function(model: &Model, wishes: &Wishes) -> Result<ScalarUDF> {
    Ok(ScalarUDF::from(Rows::new(Predictor::new(model, wishes)?)?))
}

/// The bytes of a function that [`rows_function`] made, for a codec; `None` for any other function.
pub fn rows_to_bytes(function: &ScalarUDF) -> Option<Vec<u8>> {
    let inner: &dyn std::any::Any = function.inner().as_ref();
    inner.downcast_ref::<Rows>().map(|rows| rows.bytes.clone())
}

/// The function that [`rows_to_bytes`] was given.
pub fn rows_from_bytes(bytes: &[u8]) -> Result<ScalarUDF> {
    let (wants, model) =
        bytes.split_first().ok_or_else(|| Error::Engine("a function without bytes".into()))?;
    let wishes = Wishes { probabilities: *wants != 0, ..Wishes::default() };
    rows_function(&Model::from_bytes(model)?, &wishes)
}

/// Predictions in the order in which the table's session gives the rows (a cluster in any order), as
/// [`predictions`](crate::predictions) gives them, but made by the workers of that session: what
/// comes back is the predictions and the columns to keep, not the table.
pub async fn engine_predictions(
    table: &Table,
    model: &Model,
    wishes: &Wishes,
    progress: &Arc<Progress>,
) -> Result<(SchemaRef, BoxStream<'static, Result<RecordBatch>>)> {
    let names = model.about().encoder.names();
    for name in &names {
        table.data_type(name)?;
    }
    let mut fields = vec![];
    for name in &wishes.keep {
        fields.push(Field::new(name, table.data_type(name)?, true));
    }
    let predictor = Predictor::new(model, wishes)?;
    fields.extend(predictor.fields());
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let call =
        ScalarUDF::from(Rows::new(predictor)?).call(names.iter().map(|n| ident(*n)).collect());
    let mut wanted: Vec<Expr> = wishes.keep.iter().map(ident).collect();
    wanted.push(call.alias(NAME));
    let frame = table.frame.clone().select(wanted).map_err(|e| table.explain(e))?;
    progress.begin("predict", None);
    let stream = engine::stream(frame).await.map_err(|e| table.explain(e))?;
    let (made, told, explaining) = (schema.clone(), progress.clone(), table.clone());
    let stream = stream.map(move |batch| {
        let batch = batch.map_err(|e| explaining.explain(e))?;
        told.add(batch.num_rows());
        flat(&batch, &made)
    });
    Ok((schema, stream.boxed()))
}

/// The columns to keep and those of the struct that follows them.
fn flat(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let (last, kept) =
        batch.columns().split_last().ok_or_else(|| Error::Engine("no predictions".into()))?;
    let mut columns = kept.to_vec();
    columns.extend(last.as_struct().columns().iter().cloned());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

#[derive(Debug)]
struct Rows {
    predictor: Predictor,
    fields: Fields,
    bytes: Vec<u8>,
    signature: Signature,
}

impl Rows {
    fn new(predictor: Predictor) -> Result<Self> {
        let mut bytes = vec![u8::from(predictor.gives_probabilities())];
        bytes.extend(predictor.model().to_bytes()?);
        let (fields, signature) =
            (predictor.fields().into(), Signature::variadic_any(Volatility::Immutable));
        Ok(Self { predictor, fields, bytes, signature })
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Rows {}

impl Hash for Rows {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.bytes.hash(hasher);
    }
}

impl ScalarUDFImpl for Rows {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> EngineResult<DataType> {
        Ok(DataType::Struct(self.fields.clone()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        let count = args.number_rows;
        let columns: EngineResult<Vec<ArrayRef>> =
            args.args.into_iter().map(|a| a.into_array(count)).collect();
        let made = self.predictor.columns(&columns?, count)?;
        let rows = StructArray::try_new_with_length(self.fields.clone(), made, None, count)?;
        Ok(ColumnarValue::Array(Arc::new(rows)))
    }
}
