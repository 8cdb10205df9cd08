//! The first pass: count, mean and scatter of the vectors.

use super::{Arguments, Batch, State};
use crate::Result;
use crate::wire::Kind;
use favor::{Moments, Rows};
use serde::{Deserialize, Serialize};

/// Which moments are wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MomentsJob {
    /// The target whose moments are wanted too, a column of numbers.
    pub(crate) target: Option<String>,
}

/// Moments of the vectors, and of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MomentsState {
    pub(crate) vectors: Moments,
    pub(crate) target: Moments,
}

impl State for MomentsState {
    const KIND: Kind = Kind::MomentsState;
    type Job = MomentsJob;

    fn new(arguments: &Arguments, _: &MomentsJob) -> Self {
        Self { vectors: Moments::new(arguments.encoder.width()), target: Moments::new(1) }
    }

    fn update(&mut self, arguments: &Arguments, job: &MomentsJob, batch: &Batch<'_>) -> Result<()> {
        let encoded = arguments.encode::<f64>(batch, job.target.as_deref())?;
        let kept = encoded.kept.as_deref();
        let weights = arguments.weights(batch, kept)?;
        let add = |moments: &mut Moments, rows: Rows<'_, f64>| match &weights {
            Some(weights) => moments.add_weighted(rows, weights),
            None => moments.add(rows),
        };
        add(&mut self.vectors, encoded.rows.view())?;
        if let Some(target) = &job.target {
            let values = batch.numbers(target, kept)?;
            add(&mut self.target, Rows::new(&values, values.len(), 1)?)?;
        }
        Ok(())
    }

    fn merge(&mut self, _: &Arguments, _: &MomentsJob, other: Self) -> Result<()> {
        self.vectors.merge(&other.vectors)?;
        Ok(self.target.merge(&other.target)?)
    }

    fn size(&self) -> usize {
        8 * self.vectors.dim() * (self.vectors.dim() + 1)
    }
}
