//! The first pass: count, mean and scatter of the vectors.

use super::{Batch, Setup, State, TargetUse};
use crate::Result;
use favor::{Moments, Rows};
use serde::{Deserialize, Serialize};

/// Moments of the vectors, and of the target where it is a number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MomentsState {
    pub(crate) rows: Moments,
    pub(crate) target: Moments,
}

impl State for MomentsState {
    fn new(setup: &Setup) -> Self {
        Self { rows: Moments::new(setup.encoder.width()), target: Moments::new(1) }
    }

    fn update(&mut self, setup: &Setup, batch: &Batch<'_>) -> Result<()> {
        let encoded = setup.encode::<f64>(batch)?;
        let kept = encoded.kept.as_deref();
        let weights = setup.weights(batch, kept)?;
        let add = |moments: &mut Moments, rows: Rows<'_, f64>| match &weights {
            Some(weights) => moments.add_weighted(rows, weights),
            None => moments.add(rows),
        };
        add(&mut self.rows, encoded.rows.view())?;
        if matches!(setup.target, TargetUse::Value { .. }) {
            let values = setup.values(batch, kept)?;
            add(&mut self.target, Rows::new(&values, values.len(), 1)?)?;
        }
        Ok(())
    }

    fn merge(&mut self, _: &Setup, other: Self) -> Result<()> {
        self.rows.merge(&other.rows)?;
        Ok(self.target.merge(&other.target)?)
    }

    fn size(&self) -> usize {
        8 * self.rows.dim() * (self.rows.dim() + 1)
    }
}
