//! How good a model is on a table, and the exact kernel beside it on a sample.

use crate::aggregate::{Aggregate, Job};
use crate::encode::{Missing, to_numbers, to_texts};
use crate::judge::{ClassJudge, Judgement, NumberJudge};
use crate::model::{Estimator, Model};
use crate::predict::PredictOptions;
use crate::predictions::{Predictions, predict, predict_on_workers};
use crate::progress::Progress;
use crate::query;
use crate::source::Table;
use crate::states::{Arguments, Sample, SampleJob, State};
use crate::{Error, Result, Setting};
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::Float64Type;
use datafusion::logical_expr::{AggregateUDF, Expr, ident};
use favor::learn::Task;
use futures::StreamExt;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of the table that are compared with the exact kernel.
const COMPARED: usize = 1000;

/// What was found.
///
/// ```
/// # fn example(found: &favor_tables::Evaluation) {
/// println!("{} {:.3} on {} rows", found.score_name, found.score, found.rows);
/// # }
/// ```
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
    /// What else can be said of the predictions; none for a density.
    pub judgement: Option<Judgement>,
    /// The comparison with the exact kernel.
    pub comparison: Comparison,
}

/// Scores on a sample of the table.
///
/// ```
/// # fn example(found: &favor_tables::Evaluation) {
/// let comparison = &found.comparison;
/// println!("model {:.3}, exact kernel {:.3}", comparison.model, comparison.exact);
/// # }
/// ```
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

/// Evaluates a model on a table that has the target; `missing` says what to do with missing values,
/// what the model does when `None`.
///
/// ```
/// # async fn example(table: &favor_tables::Table, model: &favor_tables::Model, progress: &std::sync::Arc<favor_tables::Progress>) -> favor_tables::Result<()> {
/// let found = favor_tables::evaluate(table, model, None, progress).await?;
/// println!("{} {:.3}", found.score_name, found.score);
/// # Ok(())
/// # }
/// ```
pub async fn evaluate(
    table: &Table,
    model: &Model,
    missing: Option<Missing>,
    progress: &Arc<Progress>,
) -> Result<Evaluation> {
    let predictions = predict(table, model, &options(model, missing), progress).await?;
    finish(table, model, missing, predictions).await
}

/// What [`evaluate`](evaluate()) gives, with predictions made by the workers of the table's session.
///
/// ```
/// # async fn example(table: &favor_tables::Table, model: &favor_tables::Model, progress: &std::sync::Arc<favor_tables::Progress>) -> favor_tables::Result<()> {
/// let found = favor_tables::evaluate_on_workers(table, model, None, progress).await?;
/// println!("{} {:.3}", found.score_name, found.score);
/// # Ok(())
/// # }
/// ```
pub async fn evaluate_on_workers(
    table: &Table,
    model: &Model,
    missing: Option<Missing>,
    progress: &Arc<Progress>,
) -> Result<Evaluation> {
    let predictions = predict_on_workers(table, model, &options(model, missing), progress).await?;
    finish(table, model, missing, predictions).await
}

/// Predictions with the target beside them.
fn options(model: &Model, missing: Option<Missing>) -> PredictOptions {
    let target = model.info.target.iter().map(|t| t.name.as_str());
    let probabilities = model.info.task == Task::Classify;
    PredictOptions::default().keep(target).probabilities(probabilities).missing(missing)
}

async fn finish(
    table: &Table,
    model: &Model,
    missing: Option<Missing>,
    (_, mut batches): Predictions,
) -> Result<Evaluation> {
    let mut total = Total::default();
    while let Some(batch) = batches.next().await {
        total.add(model, &batch?)?;
    }
    drop(batches);
    if total.rows == 0 {
        let reason = "no row has both a prediction and a target";
        return Err(Error::request(Setting::Data, reason));
    }
    Ok(total.finish(model, compare(table, model, missing).await?))
}

#[derive(Default)]
struct Total {
    rows: u64,
    left_out: u64,
    confusion: BTreeMap<(String, String), u64>,
    classes: ClassJudge,
    numbers: NumberJudge,
    log_density: f64,
    error: f64,
    errors: u64,
}

impl Total {
    fn add(&mut self, model: &Model, batch: &RecordBatch) -> Result<()> {
        let keeps = usize::from(model.info.target.is_some());
        let prediction = batch.column(keeps);
        let truth = (keeps == 1).then(|| batch.column(0));
        let numbers = |name: &str| {
            let column = batch.column_by_name(name);
            column.map(|c| c.as_primitive::<Float64Type>().clone())
        };
        let before = self.rows;
        match (model.info.task, truth, &model.info.target) {
            (Task::Classify, Some(truth), Some(target)) => {
                // The labels in the model's type, so that 1 and 1.0 are one label.
                let truth = cast(truth, &target.data_type)?;
                let (found, true_texts) = (to_texts(prediction)?, to_texts(&truth)?);
                let labels = model.info.labels();
                let columns: Vec<_> =
                    labels.iter().filter_map(|l| numbers(&format!("p_{l}"))).collect();
                for i in 0..batch.num_rows() {
                    if !(prediction.is_null(i) || truth.is_null(i)) {
                        let label = true_texts.value(i);
                        let pair = (label.to_owned(), found.value(i).to_owned());
                        *self.confusion.entry(pair).or_default() += 1;
                        self.rows += 1;
                        // A label that the model does not know has no probability.
                        if let Some(class) = labels.iter().position(|l| l == label) {
                            let p: Vec<f64> = columns.iter().map(|c| c.value(i)).collect();
                            self.classes.add(&p, class, 1.0);
                        }
                    }
                }
            }
            (Task::Regress, Some(truth), Some(target)) => {
                let truth = to_numbers(&target.name, truth)?;
                let values = truth.as_primitive::<Float64Type>();
                let found = prediction.as_primitive::<Float64Type>();
                let deviation = numbers("deviation");
                for i in 0..batch.num_rows() {
                    if !(found.is_null(i) || values.is_null(i) || values.value(i).is_nan()) {
                        let deviation = deviation.as_ref().map(|d| d.value(i));
                        self.numbers.add(found.value(i), deviation, values.value(i), 1.0);
                        self.rows += 1;
                    }
                }
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
        for value in numbers("relative_error").iter().flat_map(|e| e.iter().flatten()) {
            self.error += value;
            self.errors += 1;
        }
        Ok(())
    }

    fn finish(self, model: &Model, comparison: Comparison) -> Evaluation {
        let rows = self.rows as f64;
        let right: u64 = self.confusion.iter().filter(|((t, f), _)| t == f).map(|(_, n)| n).sum();
        let judgement = match model.info.task {
            Task::Classify => Some(self.classes.finish()),
            Task::Regress => Some(self.numbers.finish()),
            Task::Density => None,
        };
        let judged = judgement.as_ref();
        let score = match model.info.task {
            Task::Classify => right as f64 / rows,
            Task::Regress => judged.and_then(|j| j.r2).unwrap_or(f64::NAN),
            Task::Density => self.log_density / rows,
        };
        let confusion = self.confusion.into_iter().map(|((t, f), n)| (t, f, n)).collect();
        Evaluation {
            score_name: model.info.task.score_name(),
            rows: self.rows,
            left_out: self.left_out,
            score,
            rmse: judged.and_then(|j| j.rmse),
            confusion,
            relative_error: (self.errors > 0).then(|| self.error / self.errors as f64),
            judgement,
            comparison,
        }
    }
}

/// Scores on a sample of the table: the model, and the exact kernel and features over the rows that
/// the model has kept.
async fn compare(table: &Table, model: &Model, missing: Option<Missing>) -> Result<Comparison> {
    let info = &model.info;
    let mut encoder = info.encoder.unscaled();
    encoder.missing = missing.unwrap_or(encoder.missing);
    let mut inputs: Vec<Expr> = encoder.names().into_iter().map(ident).collect();
    let mut frame = table.frame.clone();
    if let Some(target) = &info.target {
        frame = frame.filter(ident(&target.name).is_not_null())?;
        inputs.push(target.expression(&table.data_type(&target.name)?));
    }
    let job = SampleJob {
        task: info.task,
        target: info.target.as_ref().map(|t| t.name.clone()),
        limit: COMPARED,
        seed: info.sample_seed ^ 1,
    };
    let aggregate =
        Aggregate::new(Arguments { encoder, fitted: false, weight: None }, Job::Sample(job))?;
    let call = AggregateUDF::from(aggregate).call(inputs);
    let batches = query::collect(frame.aggregate(vec![], vec![call])?).await;
    let batches = batches.map_err(|e| table.explain(e))?;
    let bytes = batches.first().map(|b| b.column(0).as_binary::<i32>().value(0).to_vec());
    let sample = Sample::from_bytes(&bytes.unwrap_or_default())?;

    match &model.estimator {
        Estimator::Nw(nw) => {
            let (keys, queries) = model.samples(&sample)?;
            let (keys, queries) = (keys.examples, queries.examples);
            let scores = keys.scores(&nw.map, info.bandwidth, &queries)?;
            let sums = nw.sums.apply(&nw.map, queries.rows().view())?;
            Ok(Comparison {
                rows: queries.rows().rows(),
                keys: keys.rows().rows(),
                model: queries.score(&nw.readout.outputs(&sums)),
                exact: scores.exact,
                features: scores.features,
            })
        }
        Estimator::Linear(linear) => linear.compare(model, &sample),
    }
}
