//! A sample of the rows that depends on nothing but the rows: not on their order, the batches or
//! the workers.
//!
//! Every different row has a place, a hash of its contents; the sample is the rows with the lowest
//! places. Equal rows have one place and are one item with their weights added, so that a table
//! with few different rows is not sampled by chance.

use super::{Arguments, Batch, State, missing_target};
use crate::Result;
use crate::encode::to_texts;
use crate::wire::Kind;
use datafusion::arrow::array::{Array, ArrayRef, UInt64Array};
use datafusion::arrow::compute::take;
use favor::learn::Task;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which rows of a table are wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SampleJob {
    /// What the target is for: a label, a number, or none.
    pub(crate) task: Task,
    /// The name of the target.
    pub(crate) target: Option<String>,
    /// The most different rows.
    pub(crate) limit: usize,
    /// Decides which.
    pub(crate) seed: u64,
}

impl SampleJob {
    /// The target where it is a number.
    fn number(&self) -> Option<&str> {
        self.target.as_deref().filter(|_| self.task == Task::Regress)
    }

    /// The target where it is a label.
    fn label(&self) -> Option<&str> {
        self.target.as_deref().filter(|_| self.task == Task::Classify)
    }
}

/// Equal rows of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    /// The vector.
    pub(crate) row: Vec<f64>,
    /// The target, where it is a number.
    pub(crate) value: f64,
    /// The sum of the weights.
    pub(crate) weight: f64,
    /// The fold that the row is in.
    pub(crate) fold: u8,
}

/// The items with the lowest places. The key is the place, and the label or the target's bits:
/// rows that differ in these alone are different.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub(crate) struct Sample {
    pub(crate) items: BTreeMap<(u64, String), Item>,
}

impl Sample {
    fn limit(&mut self, most: usize) {
        while self.items.len() > most {
            self.items.pop_last();
        }
    }

    /// The items with the lowest places, so many of them.
    pub(crate) fn first(&self, count: usize) -> Self {
        let items = self.items.iter().take(count).map(|(k, v)| (k.clone(), v.clone()));
        Self { items: items.collect() }
    }

    /// Takes away the items of another sample.
    pub(crate) fn remove(&mut self, other: &Self) {
        for (key, item) in &other.items {
            if let Some(own) = self.items.get_mut(key) {
                own.weight -= item.weight;
            }
        }
        // Rounding may leave a little of a weight.
        self.items.retain(|_, item| item.weight > 1e-9);
    }

    /// Takes over the items of another sample and keeps the lowest.
    pub(crate) fn absorb(&mut self, other: Self, most: usize) {
        for (key, item) in other.items {
            match self.items.get_mut(&key) {
                Some(own) => own.weight += item.weight,
                None => {
                    self.items.insert(key, item);
                }
            }
        }
        self.limit(most);
    }
}

impl State for Sample {
    const KIND: Kind = Kind::SampleState;
    type Job = SampleJob;

    fn new(_: &Arguments, _: &SampleJob) -> Self {
        Self::default()
    }

    fn update(&mut self, arguments: &Arguments, job: &SampleJob, batch: &Batch<'_>) -> Result<()> {
        let encoded = arguments.encode::<f64>(batch, job.number())?;
        let kept = encoded.kept.as_deref();
        let weights = arguments.weights(batch, kept)?;
        let values = match job.number() {
            Some(target) => batch.numbers(target, kept)?,
            None => vec![],
        };
        if let Some(name) = job.label()
            && batch.target.is_some_and(|t| t.null_count() > 0)
        {
            return Err(missing_target(name, "null"));
        }
        let full = self.items.len() >= job.limit;
        let mut highest = self.items.last_key_value().filter(|_| full).map(|((h, _), _)| *h);
        let mut chosen = vec![];
        for i in 0..encoded.rows.rows() {
            let place = place(job.seed, encoded.rows.row(i));
            if highest.is_none_or(|highest| place <= highest) {
                chosen.push((place, i));
            }
        }
        let folds = if chosen.is_empty() { vec![] } else { arguments.folds(batch)? };
        // Of a large batch only the lowest can stay; the labels of the others are not needed.
        chosen.sort_by_key(|c| c.0);
        let original = |i: usize| kept.map_or(i, |k| k[i]) as u64;
        let rows: UInt64Array = chosen.iter().map(|c| original(c.1)).collect();
        let labels = match (job.label(), batch.target) {
            (Some(_), Some(target)) => {
                let chosen: ArrayRef = take(target, &rows, None)?;
                Some(to_texts(&chosen)?)
            }
            _ => None,
        };
        for (k, (place, i)) in chosen.into_iter().enumerate() {
            if highest.is_some_and(|highest| place > highest) {
                break;
            }
            let weight = weights.as_ref().map_or(1.0, |w| w[i]);
            if weight == 0.0 {
                continue;
            }
            let value = values.get(i).copied().unwrap_or(0.0);
            let mark = match &labels {
                Some(labels) => labels.value(k).to_owned(),
                None => format!("{:x}", value.to_bits()),
            };
            let (row, fold) = (encoded.rows.row(i).to_vec(), folds[original(i) as usize]);
            let item = Item { row, value, weight: 0.0, fold };
            self.items.entry((place, mark)).or_insert(item).weight += weight;
            if self.items.len() >= job.limit {
                self.limit(job.limit);
                highest = self.items.last_key_value().map(|((h, _), _)| *h);
            }
        }
        Ok(())
    }

    fn merge(&mut self, _: &Arguments, job: &SampleJob, other: Self) -> Result<()> {
        self.absorb(other, job.limit);
        Ok(())
    }

    fn size(&self) -> usize {
        self.items.len() * (64 + self.items.values().next().map_or(0, |i| 8 * i.row.len()))
    }
}

/// Where a row stands among all possible rows: its numbers, mixed until nothing is left of them.
fn place(seed: u64, row: &[f64]) -> u64 {
    let mut state = seed ^ 0x9E37_79B9_7F4A_7C15;
    for value in row {
        // Both zeros are one value.
        let bits = (value + 0.0).to_bits();
        state = (state ^ bits).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        state ^= state >> 32;
    }
    state = (state ^ (state >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    state ^ (state >> 33)
}
