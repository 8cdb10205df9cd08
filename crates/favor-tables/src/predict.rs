//! Predictions for the rows of a table, batch by batch, in order.

use crate::encode::Missing;
use crate::engine;
use crate::model::{Model, Outputs};
use crate::progress::Progress;
use crate::source::Table;
use crate::task::{Task, largest};
use crate::{Error, Result};
use datafusion::arrow::array::{
    ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, StringArray, UInt32Array,
};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::ident;
use favor::Matrix;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use std::str::FromStr;
use std::sync::Arc;

/// What predictions are wanted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Wishes {
    /// A column for the probability of each class.
    pub probabilities: bool,
    /// Columns of the table to carry over.
    pub keep: Vec<String>,
    /// What to do with missing values, if not what the model does.
    pub missing: Option<Missing>,
}

/// A model made ready to predict.
#[derive(Debug)]
pub struct Predictor {
    model: Model,
    /// The labels, in the type of the target.
    labels: Option<ArrayRef>,
    probabilities: bool,
}

impl Predictor {
    /// Makes a model ready.
    pub fn new(model: &Model, wishes: &Wishes) -> Result<Self> {
        let mut model = model.clone();
        if let Some(missing) = wishes.missing {
            model.about.encoder.missing = missing;
        }
        let labels = match (model.about.task, &model.about.target) {
            (Task::Classify, Some(target)) => {
                let texts: ArrayRef = Arc::new(StringArray::from(model.about.labels()));
                let data_type = match DataType::from_str(&target.data_type) {
                    Ok(DataType::Dictionary(_, value)) => *value,
                    Ok(data_type) => data_type,
                    Err(_) => DataType::Utf8,
                };
                Some(cast(&texts, &data_type)?)
            }
            _ => None,
        };
        let probabilities = wishes.probabilities;
        if probabilities && labels.is_none() {
            let reason = format!("a {} has no class probabilities", model.about.task.name());
            return Err(Error::request("--proba", reason));
        }
        Ok(Self { model, labels, probabilities })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    pub(crate) fn gives_probabilities(&self) -> bool {
        self.probabilities
    }

    /// The column of the predictions.
    pub fn field(&self) -> Field {
        let data_type = self.labels.as_ref().map_or(&DataType::Float64, |l| l.data_type());
        let name = match self.model.about.task {
            Task::Density => "log_density",
            _ => "prediction",
        };
        Field::new(name, data_type.clone(), true)
    }

    /// All columns that are made.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let mut fields = vec![self.field(), Field::new("relative_error", DataType::Float64, true)];
        if self.probabilities {
            let name = |label: &String| Field::new(format!("p_{label}"), DataType::Float64, true);
            fields.extend(self.model.about.labels().iter().map(name));
        }
        fields
    }

    /// The predictions alone, for columns in the model's order.
    pub fn predict(&self, columns: &[ArrayRef]) -> Result<ArrayRef> {
        let count = columns.first().map_or(0, |c| c.len());
        let outputs = self.outputs(columns)?;
        self.prediction(&outputs, &places(&outputs, count))
    }

    fn outputs(&self, columns: &[ArrayRef]) -> Result<Outputs> {
        let encoded = self.model.about.encoder.encode::<f32>(columns)?;
        if encoded.rows.rows() == 0 {
            let width = self.model.rule.factors.len().max(1);
            let values = Matrix::zeros(0, width);
            return Ok(Outputs { values, relative_error: None, kept: encoded.kept });
        }
        self.model.predict(encoded)
    }

    fn prediction(&self, outputs: &Outputs, places: &[Option<usize>]) -> Result<ArrayRef> {
        match &self.labels {
            Some(labels) => {
                let index = |p: &Option<usize>| p.map(|i| largest(outputs.values.row(i)) as u32);
                let indices: UInt32Array = places.iter().map(index).collect();
                Ok(take(labels, &indices, None)?)
            }
            None => Ok(column(&outputs.values, 0, places)),
        }
    }

    /// All columns that are made of a batch.
    pub(crate) fn columns(&self, columns: &[ArrayRef], count: usize) -> Result<Vec<ArrayRef>> {
        let outputs = self.outputs(columns)?;
        let places = places(&outputs, count);
        let mut out = vec![self.prediction(&outputs, &places)?];
        let error = |p: &Option<usize>| Some(outputs.relative_error.as_ref()?[(*p)?]);
        out.push(Arc::new(places.iter().map(error).collect::<Float64Array>()));
        if self.probabilities {
            out.extend((0..outputs.values.columns()).map(|c| column(&outputs.values, c, &places)));
        }
        Ok(out)
    }
}

/// For each row of a batch its row among the outputs, if it has one.
fn places(outputs: &Outputs, count: usize) -> Vec<Option<usize>> {
    match &outputs.kept {
        None => (0..count).map(Some).collect(),
        Some(kept) => {
            let mut out = vec![None; count];
            kept.iter().enumerate().for_each(|(r, &i)| out[i] = Some(r));
            out
        }
    }
}

fn column(values: &Matrix<f64>, c: usize, places: &[Option<usize>]) -> ArrayRef {
    Arc::new(places.iter().map(|p| p.map(|i| values[(i, c)])).collect::<Float64Array>())
}

/// Predictions in the order of the table: a session of one worker reads it, all cores predict.
///
/// Rows come in the order in which the table's session gives them: open the table in
/// [`session(Some(1))`](crate::session) to keep that of the files.
pub async fn predictions(
    table: &Table,
    model: &Model,
    wishes: &Wishes,
    progress: &Arc<Progress>,
) -> Result<(SchemaRef, BoxStream<'static, Result<RecordBatch>>)> {
    let predictor = Arc::new(Predictor::new(model, wishes)?);
    let names = model.about.encoder.names();
    for name in &names {
        table.data_type(name)?;
    }
    let mut fields = vec![];
    for name in &wishes.keep {
        fields.push(Field::new(name, table.data_type(name)?, true));
    }
    fields.extend(predictor.fields());
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    // Each column once: a kept one may be one of the model's.
    let mut wanted: Vec<&str> = names.clone();
    wanted.extend(wishes.keep.iter().map(String::as_str).filter(|k| !names.contains(k)));
    let frame = table.frame.clone().select(wanted.iter().map(|n| ident(*n)).collect::<Vec<_>>());
    let stream = engine::stream(frame.map_err(|e| table.explain(e))?).await;
    let stream = stream.map_err(|e| table.explain(e))?;
    progress.begin("predict", None);

    let inputs = names.len();
    let place = |k: &String| wanted.iter().position(|w| w == k).unwrap_or(0);
    let kept: Arc<[usize]> = wishes.keep.iter().map(place).collect();
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
                let options = RecordBatchOptions::new().with_row_count(Some(count));
                Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
            })
        })
        .buffered(2 * workers)
        .map(move |joined| {
            let batch: Result<RecordBatch> = match joined {
                Ok(batch) => batch,
                Err(error) => Err(Error::Engine(error.to_string())),
            };
            batch.inspect(|b| told.add(b.num_rows()))
        });
    Ok((schema, stream.boxed()))
}
