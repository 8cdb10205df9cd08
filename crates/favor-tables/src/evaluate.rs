//! How good a model is on a table, and the exact kernel beside it on a sample.

use crate::aggregate::{Aggregate, Job};
use crate::encode::{to_numbers, to_texts};
use crate::engine;
use crate::model::Model;
use crate::predict::{Wishes, predictions};
use crate::progress::Progress;
use crate::sigma::{Reference, Scene, scores};
use crate::source::Table;
use crate::states::{Sample, Setup, TargetUse, from_bytes};
use crate::task::Task;
use crate::{Error, Result};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::logical_expr::{AggregateUDF, Expr, ident};
use futures::StreamExt;
use serde::Serialize;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

/// Rows of the table that are compared with the exact kernel.
const COMPARED: usize = 1000;

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The name of the scores, as in accuracy.
    pub score_name: &'static str,
    /// Rows with a prediction and a target.
    pub rows: u64,
    /// Rows without, because of missing values.
    pub left_out: u64,
    /// The model's score on all rows.
    pub score: f64,
    /// For numbers: the root of the mean squared error.
    pub rmse: Option<f64>,
    /// For classes: how often each label was predicted as each.
    pub confusion: Vec<(String, String, u64)>,
    /// The mean of the predicted relative errors.
    pub relative_error: Option<f64>,
    /// The comparison with the exact kernel.
    pub comparison: Comparison,
}

/// Scores on a sample of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Rows of the sample.
    pub rows: usize,
    /// Rows of the model that the exact kernel sums over.
    pub keys: usize,
    /// The model, which has seen all its rows.
    pub model: f64,
    /// The exact kernel over the rows that the model has kept.
    pub exact: f64,
    /// Features over these same rows.
    pub features: f64,
}

/// Evaluates a model on a table that has the target.
pub async fn evaluate(
    table: &Table,
    model: &Model,
    wishes: &Wishes,
    progress: &Arc<Progress>,
) -> Result<Evaluation> {
    let target = model.about.target.clone();
    let keep: Vec<String> = target.iter().map(|t| t.name.clone()).collect();
    let wishes = Wishes { keep, probabilities: false, ..wishes.clone() };
    let mut total = Total::default();
    {
        let (_, mut batches) = predictions(table, model, &wishes, progress).await?;
        while let Some(batch) = batches.next().await {
            total.add(model, &batch?)?;
        }
    }
    if total.rows == 0 {
        return Err(Error::request("data", "no row has both a prediction and a target"));
    }
    let comparison = compare(table, model, &wishes).await?;
    Ok(total.finish(model, comparison))
}

#[derive(Default)]
struct Total {
    rows: u64,
    left_out: u64,
    confusion: BTreeMap<(String, String), u64>,
    squares: f64,
    truth: Option<favor::Moments>,
    log_density: f64,
    error: f64,
    errors: u64,
}

impl Total {
    fn add(&mut self, model: &Model, batch: &RecordBatch) -> Result<()> {
        let keeps = usize::from(model.about.target.is_some());
        let (prediction, error) = (batch.column(keeps), batch.column(keeps + 1));
        let truth = (keeps == 1).then(|| batch.column(0));
        let missing = |array: &ArrayRef, i: usize| array.is_null(i);
        let before = self.rows;
        match (model.about.task, truth, &model.about.target) {
            (Task::Classify, Some(truth), Some(target)) => {
                // The labels in the model's type, so that 1 and 1.0 are one label.
                let wanted = DataType::from_str(&target.data_type);
                let truth = cast(truth, wanted.as_ref().unwrap_or(truth.data_type()))?;
                let (found, true_texts) = (to_texts(prediction)?, to_texts(&truth)?);
                for i in 0..batch.num_rows() {
                    if !(missing(prediction, i) || missing(&truth, i)) {
                        let pair = (true_texts.value(i).to_owned(), found.value(i).to_owned());
                        *self.confusion.entry(pair).or_default() += 1;
                        self.rows += 1;
                    }
                }
            }
            (Task::Regress { .. }, Some(truth), Some(target)) => {
                let truth = to_numbers(&target.name, truth)?;
                let values = truth.as_primitive::<Float64Type>();
                let found = prediction.as_primitive::<Float64Type>();
                let usable = |i: &usize| {
                    !missing(prediction, *i) && !missing(&truth, *i) && !values.value(*i).is_nan()
                };
                let pairs: Vec<usize> = (0..batch.num_rows()).filter(usable).collect();
                let true_values: Vec<f64> = pairs.iter().map(|&i| values.value(i)).collect();
                let moments = self.truth.get_or_insert_with(|| favor::Moments::new(1));
                moments.add(favor::Rows::new(&true_values, pairs.len(), 1)?)?;
                for &i in &pairs {
                    self.squares += (values.value(i) - found.value(i)).powi(2);
                }
                self.rows += pairs.len() as u64;
            }
            _ => {
                let found = prediction.as_primitive::<Float64Type>();
                for value in found.iter().flatten() {
                    self.log_density += value;
                    self.rows += 1;
                }
            }
        }
        self.left_out += batch.num_rows() as u64 - (self.rows - before);
        for value in error.as_primitive::<Float64Type>().iter().flatten() {
            self.error += value;
            self.errors += 1;
        }
        Ok(())
    }

    fn finish(self, model: &Model, comparison: Comparison) -> Evaluation {
        let rows = self.rows as f64;
        let right: u64 = self.confusion.iter().filter(|((t, f), _)| t == f).map(|(_, n)| n).sum();
        let spread = self.truth.as_ref().map_or(0.0, |t| t.covariance()[(0, 0)]);
        let (score, rmse) = match model.about.task {
            Task::Classify => (right as f64 / rows, None),
            Task::Regress { .. } => {
                let square = self.squares / rows;
                (1.0 - square / spread.max(f64::MIN_POSITIVE), Some(square.sqrt()))
            }
            Task::Density => (self.log_density / rows, None),
        };
        let confusion = self.confusion.into_iter().map(|((t, f), n)| (t, f, n)).collect();
        Evaluation {
            score_name: model.about.task.score_name(),
            rows: self.rows,
            left_out: self.left_out,
            score,
            rmse,
            confusion,
            relative_error: (self.errors > 0).then(|| self.error / self.errors as f64),
            comparison,
        }
    }
}

/// Scores on a sample of the table: the model, and the exact kernel and features over the rows that
/// the model has kept.
async fn compare(table: &Table, model: &Model, wishes: &Wishes) -> Result<Comparison> {
    let about = &model.about;
    let mut encoder = about.encoder.raw();
    encoder.missing = wishes.missing.unwrap_or(encoder.missing);
    let mut arguments: Vec<Expr> = encoder.names().into_iter().map(ident).collect();
    let mut frame = table.frame.clone();
    if let Some(target) = &about.target {
        frame = frame.filter(ident(&target.name).is_not_null())?;
        let wanted = DataType::from_str(&target.data_type);
        let plain = ident(&target.name);
        arguments.push(match wanted {
            Ok(wanted) => datafusion::logical_expr::cast(plain, wanted),
            Err(_) => plain,
        });
    }
    let setup = Setup {
        encoder,
        target: match about.task {
            Task::Classify => TargetUse::Label,
            Task::Regress { .. } => TargetUse::Value { centre: 0.0, scale: 1.0 },
            Task::Density => TargetUse::None,
        },
        target_name: about.target.as_ref().map_or(String::new(), |t| t.name.clone()),
        weight: None,
        categories: usize::MAX,
        sample: COMPARED,
        seed: about.sample_seed ^ 1,
        map: None,
    };
    let call = AggregateUDF::from(Aggregate::new(Job::Sample, Arc::new(setup))?).call(arguments);
    let batches = engine::collect(frame.aggregate(vec![], vec![call])?).await;
    let batches = batches.map_err(|e| table.explain(e))?;
    let bytes = batches.first().map(|b| b.column(0).as_binary::<i32>().value(0).to_vec());
    let sample: Sample = from_bytes(&bytes.unwrap_or_default())?;

    let keys = Reference::new(about.task, &about.encoder, &model.sample, about.labels());
    let queries = Reference::new(about.task, &about.encoder, &sample, keys.labels.clone());
    let scene = Scene {
        task: about.task,
        prior: &about.prior,
        spec: *model.map.spec(),
        encoder: &about.encoder,
        moments: &model.moments,
    };
    let (features, exact) = scores(&scene, &model.map, about.sigma, &keys, &queries)?;
    let sums = model.sums.apply_tiled(&model.map, queries.rows.view())?;
    let outputs = model.rule.outputs(&sums);
    Ok(Comparison {
        rows: queries.rows.rows(),
        keys: keys.rows.rows(),
        model: model.rule.score(&outputs, &queries.truth, &queries.weights),
        exact,
        features,
    })
}
