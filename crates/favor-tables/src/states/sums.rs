//! The second pass: the features of the vectors, summed.

use super::{Batch, Setup, State, TargetUse};
use crate::{Error, Result};
use favor::{KeySums, Matrix};
use serde::{Deserialize, Serialize};

/// `Σ w S(y)` and, for a target that is a number, `Σ w t S(y)`, with the rows and their weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SumsState {
    pub(crate) sums: Option<KeySums>,
    pub(crate) rows: u64,
    pub(crate) weight: f64,
}

impl State for SumsState {
    fn new(_: &Setup) -> Self {
        Self { sums: None, rows: 0, weight: 0.0 }
    }

    fn update(&mut self, setup: &Setup, batch: &Batch<'_>) -> Result<()> {
        let map = setup.map.as_ref().ok_or_else(|| Error::Engine("sums without a map".into()))?;
        let encoded = setup.encode::<f32>(batch)?;
        let kept = encoded.kept.as_deref();
        let weights = setup.weights(batch, kept)?;
        let count = encoded.rows.rows();
        if count == 0 {
            return Ok(());
        }
        let weight_of = |i: usize| weights.as_ref().map_or(1.0, |w| w[i]);
        let values = match setup.target {
            TargetUse::Value { centre, scale } => {
                let targets = setup.values(batch, kept)?;
                Matrix::from_fn(count, 2, |i, c| match c {
                    0 => weight_of(i) as f32,
                    _ => (weight_of(i) * (targets[i] - centre) / scale) as f32,
                })
            }
            _ => Matrix::from_fn(count, 1, |i, _| weight_of(i) as f32),
        };
        let sums = self.sums.get_or_insert_with(|| KeySums::new(map, values.columns()));
        sums.add_tiled(map, encoded.rows.view(), values.view())?;
        self.rows += count as u64;
        self.weight += (0..count).map(weight_of).sum::<f64>();
        Ok(())
    }

    fn merge(&mut self, _: &Setup, other: Self) -> Result<()> {
        match (&mut self.sums, other.sums) {
            (Some(own), Some(new)) => own.merge(&new)?,
            (own @ None, new) => *own = new,
            (Some(_), None) => {}
        }
        self.rows += other.rows;
        self.weight += other.weight;
        Ok(())
    }

    fn size(&self) -> usize {
        self.sums.as_ref().map_or(0, |s| 8 * s.log_scale().len() * (1 + s.sums().columns()))
    }
}
