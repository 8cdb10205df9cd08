//! The second pass: the features of the vectors, summed.

use super::{Arguments, Batch, State};
use crate::Result;
use crate::wire::Kind;
use favor::learn::Scaling;
use favor::{FeatureMap, KeySums, Matrix};
use serde::{Deserialize, Serialize};

/// The features to sum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SumsJob {
    #[serde(with = "file")]
    pub(crate) map: FeatureMap,
    /// A target to sum too, a column of numbers, and how it is scaled.
    pub(crate) target: Option<(String, Scaling)>,
}

/// A map as the bytes of its own file.
mod file {
    use super::{Deserialize, FeatureMap, Serialize};
    use serde::{Deserializer, Serializer, de, ser};

    pub(super) fn serialize<S: Serializer>(map: &FeatureMap, to: S) -> Result<S::Ok, S::Error> {
        map.to_bytes().map_err(ser::Error::custom)?.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FeatureMap, D::Error> {
        FeatureMap::from_bytes(&Vec::deserialize(from)?).map_err(de::Error::custom)
    }
}

/// `Σ w S(y)` and, for a target `t`, `Σ w t S(y)`, with the rows of positive weight and their weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SumsState {
    pub(crate) sums: Option<KeySums>,
    pub(crate) rows: u64,
    pub(crate) weight: f64,
}

impl State for SumsState {
    const KIND: Kind = Kind::SumsState;
    type Job = SumsJob;

    fn new(_: &Arguments, _: &SumsJob) -> Self {
        Self { sums: None, rows: 0, weight: 0.0 }
    }

    fn update(&mut self, arguments: &Arguments, job: &SumsJob, batch: &Batch<'_>) -> Result<()> {
        let target = job.target.as_ref().map(|(name, _)| name.as_str());
        let encoded = arguments.encode::<f32>(batch, target)?;
        let kept = encoded.kept.as_deref();
        let weights = arguments.weights(batch, kept)?;
        let count = encoded.rows.rows();
        if count == 0 {
            return Ok(());
        }
        let weight_of = |i: usize| weights.as_ref().map_or(1.0, |w| w[i]);
        let values = match &job.target {
            Some((name, scaling)) => {
                let targets = batch.numbers(name, kept)?;
                Matrix::from_fn(count, 2, |i, c| match c {
                    0 => weight_of(i) as f32,
                    _ => (weight_of(i) * scaling.apply(targets[i])) as f32,
                })
            }
            None => Matrix::from_fn(count, 1, |i, _| weight_of(i) as f32),
        };
        let sums = self.sums.get_or_insert_with(|| KeySums::new(&job.map, values.columns()));
        sums.add(&job.map, encoded.rows.view(), values.view())?;
        let (rows, weight) = match &weights {
            Some(weights) => (weights.iter().filter(|w| **w > 0.0).count(), weights.iter().sum()),
            None => (count, count as f64),
        };
        self.rows += rows as u64;
        self.weight += weight;
        Ok(())
    }

    fn merge(&mut self, _: &Arguments, _: &SumsJob, other: Self) -> Result<()> {
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
