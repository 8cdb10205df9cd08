//! Passes over a table: queries with one aggregate or a few, and what they find.

use super::checks::{MOST_CLASSES, no_rows};
use super::{FitRequest, survey};
use crate::aggregate::{Aggregate, Job};
use crate::encode::{Encoder, Missing, to_texts};
use crate::model::{Class, ModelInfo, Part, combine};
use crate::progress::Progress;
use crate::source::Table;
use crate::states::{
    Arguments, GramJob, GramState, GramTarget, LogisticJob, LogisticState, MomentsJob,
    MomentsState, Sample, SampleJob, State, SumsJob, SumsState, Survey, SurveyJob, SurveyTarget,
    missing_target,
};
use crate::target::{Target, sort_labels};
use crate::{Error, Remedy, Result, query};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::logical_expr::{AggregateUDF, Expr, ident};
use favor::learn::{Design, GramSums, LogisticPass, Task};
use favor::{FeatureMap, KeySums};
use std::sync::Arc;

/// A table with what passes over it need to know of its columns.
pub(super) struct Passes<'a> {
    table: Table,
    task: Task,
    target: Option<(&'a Target, Expr)>,
    weight: Option<&'a str>,
    progress: &'a Arc<Progress>,
}

impl<'a> Passes<'a> {
    pub(super) fn new(
        table: &Table,
        task: Task,
        target: Option<&'a Target>,
        weight: Option<&'a str>,
        missing: Missing,
        progress: &'a Arc<Progress>,
    ) -> Result<Self> {
        if let Some(weight) = weight {
            table.data_type(weight)?;
        }
        let mut table = table.clone();
        let target = match target {
            Some(target) => {
                let expression = target.expression(&table.data_type(&target.name)?);
                if missing == Missing::Drop {
                    let known = ident(&target.name).is_not_null();
                    table = table.with(table.frame.clone().filter(known)?);
                }
                Some((target, expression))
            }
            None => None,
        };
        Ok(Self { table, task, target, weight, progress })
    }

    /// The name of the target where the task is this one.
    fn target_for(&self, task: Task) -> Option<String> {
        let target = self.target.as_ref().filter(|_| self.task == task);
        target.map(|(target, _)| target.name.clone())
    }

    fn call(&self, encoder: &Encoder, job: Job, told: bool) -> Result<Expr> {
        let mut inputs: Vec<Expr> = encoder.columns.iter().map(|c| ident(&c.name)).collect();
        inputs.extend(self.target.iter().filter(|_| job.takes_target()).map(|t| t.1.clone()));
        inputs.extend(self.weight.map(ident));
        let arguments = Arguments {
            encoder: encoder.clone(),
            fitted: true,
            weight: self.weight.map(str::to_owned),
        };
        let mut aggregate = Aggregate::new(arguments, job)?;
        if told {
            aggregate = aggregate.telling(self.progress);
        }
        Ok(AggregateUDF::from(aggregate).call(inputs))
    }

    /// The bytes of aggregates over the whole table.
    async fn aggregate(&self, calls: Vec<Expr>) -> Result<Vec<Vec<u8>>> {
        let count = calls.len();
        let frame = self.table.frame.clone().aggregate(vec![], calls);
        let batches = query::collect(frame.map_err(|e| self.table.explain(e))?).await;
        let batches = batches.map_err(|e| self.table.explain(e))?;
        let found = batches.iter().find(|b| b.num_rows() > 0);
        let found = found.ok_or_else(|| Error::query("an aggregate gave no row"))?;
        Ok((0..count).map(|c| found.column(c).as_binary::<i32>().value(0).to_vec()).collect())
    }

    /// The labels of the target, in order.
    pub(super) async fn labels(&self) -> Result<Vec<String>> {
        let Some((target, expression)) = &self.target else { return Ok(vec![]) };
        self.progress.begin("labels", None);
        let frame = self.table.frame.clone().select(vec![expression.clone()]);
        let frame = frame.and_then(|f| f.distinct()?.limit(0, Some(MOST_CLASSES + 1)));
        let batches = query::collect(frame.map_err(|e| self.table.explain(e))?).await;
        let mut labels = vec![];
        for batch in batches.map_err(|e| self.table.explain(e))? {
            for label in to_texts(batch.column(0))?.iter() {
                let label = label.ok_or_else(|| missing_target(&target.name, "null"))?;
                labels.push(label.to_owned());
            }
        }
        if labels.len() > MOST_CLASSES {
            let reason = format!("is the target and has more than {MOST_CLASSES} different labels");
            return Err(Error::mendable(&target.name, reason, Remedy::Regress));
        }
        sort_labels(&mut labels, Some(target));
        Ok(labels)
    }

    /// The encoder with all that must be known of the table (values of texts, means for what is missing, ranks
    /// of numbers), the moments of the vectors and a sample of them.
    ///
    /// One reading tells all of it where the encoder turns out to need nothing of the survey, as most tables
    /// of numbers do; the vectors of texts and ranks are known after the survey only.
    pub(super) async fn overview(
        &self,
        encoder: Encoder,
        request: &FitRequest,
        labels: &[String],
        limit: usize,
    ) -> Result<(Encoder, MomentsState, Sample)> {
        let seed = request.seed;
        if !survey::is_needed(&encoder, request) {
            let (moments, sample) = self.moments(&encoder, limit, seed).await?;
            return Ok((encoder, moments, sample));
        }
        let target = match (self.task, &self.target) {
            (Task::Classify, _) => Some(SurveyTarget::Labels(labels.to_vec())),
            (Task::Regress, Some((target, _))) => Some(SurveyTarget::Number(target.name.clone())),
            _ => None,
        };
        let targets = target.as_ref().map(SurveyTarget::width);
        let job = SurveyJob { values: survey::MOST_VALUES, target };
        let alone = survey::changes(&encoder, request);
        self.progress.begin(if alone { "survey" } else { "moments" }, None);
        let mut calls = vec![self.call(&encoder, Job::Survey(job), true)?];
        if !alone {
            calls.extend(self.moment_calls(&encoder, limit, seed, false)?);
        }
        let bytes = self.aggregate(calls).await?;
        let surveyed =
            survey::finish(encoder.clone(), Survey::from_bytes(&bytes[0])?, request, targets)?;
        if surveyed.encoder.columns == encoder.columns && !surveyed.fills && !alone {
            let (moments, sample) =
                (MomentsState::from_bytes(&bytes[1])?, Sample::from_bytes(&bytes[2])?);
            return Ok((surveyed.encoder, moments, sample));
        }
        let (moments, sample) = self.moments(&surveyed.encoder, limit, seed).await?;
        Ok((surveyed.encoder, moments, sample))
    }

    /// The moments of the vectors and a sample of them.
    pub(super) async fn moments(
        &self,
        encoder: &Encoder,
        limit: usize,
        seed: u64,
    ) -> Result<(MomentsState, Sample)> {
        self.progress.begin("moments", None);
        let bytes = self.aggregate(self.moment_calls(encoder, limit, seed, true)?).await?;
        Ok((MomentsState::from_bytes(&bytes[0])?, Sample::from_bytes(&bytes[1])?))
    }

    fn moment_calls(
        &self,
        encoder: &Encoder,
        limit: usize,
        seed: u64,
        told: bool,
    ) -> Result<Vec<Expr>> {
        let moments = MomentsJob { target: self.target_for(Task::Regress) };
        let target = self.target.as_ref().map(|(target, _)| target.name.clone());
        let sample = SampleJob { task: self.task, target, limit, seed };
        Ok(vec![
            self.call(encoder, Job::Moments(moments), told)?,
            self.call(encoder, Job::Sample(sample), false)?,
        ])
    }

    /// The sums of the features. Classes, rows and their weight go into what is known of the model.
    pub(super) async fn sums(
        &self,
        info: &mut ModelInfo,
        map: &FeatureMap,
        rows: u64,
    ) -> Result<KeySums> {
        self.progress.begin("sums", Some(rows));
        let target = self.target_for(Task::Regress).zip(info.target_scaling);
        let job = Job::Sums(SumsJob { map: map.clone(), target });
        let call = self.call(&info.encoder, job, true)?;
        if let (Task::Classify, Some((target, expression))) = (self.task, &self.target) {
            let parts = self.class_sums(target, expression.clone(), call).await?;
            let (classes, sums) = combine(parts, Some(target), map)?;
            info.rows = classes.iter().map(|c| c.rows).sum();
            info.total_weight = classes.iter().map(|c| c.weight).sum();
            info.classes = classes;
            return Ok(sums);
        }
        let total = SumsState::from_bytes(&self.aggregate(vec![call]).await?[0])?;
        (info.rows, info.total_weight) = (total.rows, total.weight);
        total.sums.ok_or_else(|| no_rows(info.encoder.missing))
    }

    /// The sums of each class: one group of rows per label.
    async fn class_sums(&self, target: &Target, label: Expr, call: Expr) -> Result<Vec<Part>> {
        let frame = self.table.frame.clone().aggregate(vec![label], vec![call]);
        let batches = query::collect(frame.map_err(|e| self.table.explain(e))?).await;
        let mut parts = vec![];
        for batch in batches.map_err(|e| self.table.explain(e))? {
            let labels = to_texts(batch.column(0))?;
            let states = batch.column(1).as_binary::<i32>();
            for i in 0..batch.num_rows() {
                if labels.is_null(i) {
                    return Err(missing_target(&target.name, "null"));
                }
                let state = SumsState::from_bytes(states.value(i))?;
                parts.extend(Part::new(labels.value(i).to_owned(), state));
            }
        }
        Ok(parts)
    }

    /// The Gram sums of the features, and the classes. Rows and their weight go into what is known of
    /// the model.
    pub(super) async fn gram(
        &self,
        info: &mut ModelInfo,
        design: &Design,
        target: GramTarget,
        rows: u64,
    ) -> Result<(GramSums, Vec<Class>)> {
        self.progress.begin("sums", Some(rows));
        let labels = match &target {
            GramTarget::Labels(labels) => labels.clone(),
            GramTarget::Number(_) => vec![],
        };
        let name = self.target.as_ref().map_or(String::new(), |(t, _)| t.name.clone());
        let job = Job::Gram(GramJob::new(design, name, target, rows));
        let call = self.call(&info.encoder, job, true)?;
        let found = GramState::from_bytes(&self.aggregate(vec![call]).await?[0])?;
        let sums = found.sums.ok_or_else(|| no_rows(info.encoder.missing))?;
        (info.rows, info.total_weight) = (sums.rows(), sums.weight());
        let class = |(label, (rows, weight))| Class { label, rows, weight };
        Ok((sums, labels.into_iter().zip(found.classes).map(class).collect()))
    }

    /// One pass of a logistic head.
    pub(super) async fn logistic(
        &self,
        info: &ModelInfo,
        design: &Design,
        pass: LogisticPass,
        labels: &[String],
    ) -> Result<LogisticPass> {
        self.progress.begin("logistic", Some(info.rows));
        let name = self.target.as_ref().map_or(String::new(), |(t, _)| t.name.clone());
        let job = LogisticJob { design: design.clone(), pass, name, labels: labels.to_vec() };
        let call = self.call(&info.encoder, Job::Logistic(job), true)?;
        Ok(LogisticState::from_bytes(&self.aggregate(vec![call]).await?[0])?.pass)
    }
}
