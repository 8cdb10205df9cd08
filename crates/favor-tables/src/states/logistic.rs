//! A further pass of a logistic head: the gradient at its coefficients.

use super::{Arguments, Batch, State, missing_target};
use crate::Result;
use crate::wire::Kind;
use favor::learn::{Design, LogisticPass};
use serde::{Deserialize, Serialize};

/// The features, the coefficients, and the labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LogisticJob {
    pub(crate) design: Design,
    /// A pass that has seen nothing.
    pub(crate) pass: LogisticPass,
    /// The name of the target.
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
}

/// What a pass has seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LogisticState {
    pub(crate) pass: LogisticPass,
    /// Numbers of its gradient.
    width: usize,
}

impl State for LogisticState {
    const KIND: Kind = Kind::LogisticState;
    type Job = LogisticJob;

    fn new(_: &Arguments, job: &LogisticJob) -> Self {
        Self { pass: job.pass.clone(), width: job.design.width() * job.labels.len() }
    }

    fn update(
        &mut self,
        arguments: &Arguments,
        job: &LogisticJob,
        batch: &Batch<'_>,
    ) -> Result<()> {
        let encoded = arguments.encode::<f32>(batch, None)?;
        let kept = encoded.kept.as_deref();
        let weights = arguments.weights(batch, kept)?;
        let classes: Option<Vec<usize>> = batch.classes(&job.labels, kept)?.into_iter().collect();
        let classes = classes.ok_or_else(|| missing_target(&job.name, "null or a new label"))?;
        Ok(self.pass.add(&job.design, encoded.rows.view(), &classes, weights.as_deref())?)
    }

    fn merge(&mut self, _: &Arguments, _: &LogisticJob, other: Self) -> Result<()> {
        Ok(self.pass.merge(&other.pass)?)
    }

    fn size(&self) -> usize {
        // Coefficients and gradient.
        16 * self.width
    }
}
