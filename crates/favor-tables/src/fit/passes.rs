//! Passes over a table: queries with one aggregate or a few, and what they find.

use super::checks::no_rows;
use crate::aggregate::{Aggregate, Job};
use crate::encode::{ColumnKind, Encoder, Missing, to_texts};
use crate::model::{Class, ModelInfo, class_part, combine};
use crate::progress::Progress;
use crate::source::Table;
use crate::states::{
    Arguments, MomentsJob, MomentsState, Sample, SampleJob, State, SumsJob, SumsState, Survey,
    SurveyColumn, SurveyJob, missing_target,
};
use crate::target::Target;
use crate::{Error, Result, query};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::logical_expr::{AggregateUDF, Expr, ident};
use favor::learn::Task;
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
        let arguments =
            Arguments { encoder: encoder.clone(), weight: self.weight.map(str::to_owned) };
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

    /// The encoder with the categories and means of the table, where there are texts or means are
    /// wanted.
    pub(super) async fn survey(&self, mut encoder: Encoder, categories: usize) -> Result<Encoder> {
        let texts = encoder.columns.iter().any(|c| matches!(c.kind, ColumnKind::Text { .. }));
        if !texts && encoder.missing != Missing::Mean {
            encoder.fill = vec![0.0; encoder.columns.len()];
            return Ok(encoder);
        }
        self.progress.begin("survey", None);
        let call = self.call(&encoder, Job::Survey(SurveyJob { categories }), true)?;
        let survey = Survey::from_bytes(&self.aggregate(vec![call]).await?[0])?;
        for (column, found) in encoder.columns.iter_mut().zip(survey.columns) {
            match (&mut column.kind, found) {
                (ColumnKind::Text { categories }, SurveyColumn::Text(weights)) => {
                    let total: f64 = weights.values().sum();
                    encoder.fill.extend(weights.values().map(|w| w / total));
                    *categories = weights.into_keys().collect();
                }
                (_, SurveyColumn::Number { sum, weight }) => {
                    encoder.fill.push(if weight > 0.0 { sum / weight } else { 0.0 });
                }
                _ => return Err(Error::query("a survey of another table")),
            }
        }
        Ok(encoder)
    }

    /// The moments of the vectors and a sample of them.
    pub(super) async fn moments(
        &self,
        encoder: &Encoder,
        limit: usize,
        seed: u64,
    ) -> Result<(MomentsState, Sample)> {
        self.progress.begin("moments", None);
        let moments = MomentsJob { target: self.target_for(Task::Regress) };
        let target = self.target.as_ref().map(|(target, _)| target.name.clone());
        let sample = SampleJob { task: self.task, target, limit, seed };
        let calls = vec![
            self.call(encoder, Job::Moments(moments), true)?,
            self.call(encoder, Job::Sample(sample), false)?,
        ];
        let bytes = self.aggregate(calls).await?;
        Ok((MomentsState::from_bytes(&bytes[0])?, Sample::from_bytes(&bytes[1])?))
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
            info.rows = parts.iter().map(|p| p.0.rows).sum();
            info.total_weight = parts.iter().map(|p| p.0.weight).sum();
            let (classes, sums) = combine(parts, Some(target), map)?;
            info.classes = classes;
            return Ok(sums);
        }
        let total = SumsState::from_bytes(&self.aggregate(vec![call]).await?[0])?;
        (info.rows, info.total_weight) = (total.rows, total.weight);
        total.sums.ok_or_else(|| no_rows(info.encoder.missing))
    }

    /// The sums of each class: one group of rows per label.
    async fn class_sums(
        &self,
        target: &Target,
        label: Expr,
        call: Expr,
    ) -> Result<Vec<(Class, KeySums)>> {
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
                parts.extend(class_part(labels.value(i).to_owned(), state));
            }
        }
        Ok(parts)
    }
}
