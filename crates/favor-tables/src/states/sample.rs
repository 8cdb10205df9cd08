//! A sample of the rows that depends on nothing but the rows: not on their order, the batches or
//! the workers.
//!
//! Every different row has a place, a hash of its contents; the sample is the rows with the lowest
//! places. Equal rows have one place and are one item with their weights added, so that a table
//! with few different rows is not sampled by chance.

use super::{Batch, Setup, State, TargetUse, missing_target};
use crate::Result;
use crate::encode::to_texts;
use datafusion::arrow::array::{Array, ArrayRef, UInt64Array};
use datafusion::arrow::compute::take;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Equal rows of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Item {
    /// The vector.
    pub(crate) row: Vec<f64>,
    /// The target, where it is a number.
    pub(crate) value: f64,
    /// The sum of the weights.
    pub(crate) weight: f64,
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
    fn new(_: &Setup) -> Self {
        Self::default()
    }

    fn update(&mut self, setup: &Setup, batch: &Batch<'_>) -> Result<()> {
        let encoded = setup.encode::<f64>(batch)?;
        let kept = encoded.kept.as_deref();
        let weights = setup.weights(batch, kept)?;
        let values = match setup.target {
            TargetUse::Value { .. } => setup.values(batch, kept)?,
            TargetUse::Label => {
                let target = batch.target.filter(|t| t.null_count() > 0);
                if target.is_some() {
                    return Err(missing_target(&setup.target_name, "null"));
                }
                vec![]
            }
            TargetUse::None => vec![],
        };
        let full = self.items.len() >= setup.sample;
        let mut highest = self.items.last_key_value().filter(|_| full).map(|((h, _), _)| *h);
        let mut chosen = vec![];
        for i in 0..encoded.rows.rows() {
            let place = place(setup.seed, encoded.rows.row(i));
            if highest.is_none_or(|highest| place <= highest) {
                chosen.push((place, i));
            }
        }
        // Of a large batch only the lowest can stay; the labels of the others are not needed.
        chosen.sort_by_key(|c| c.0);
        let original = |i: usize| kept.map_or(i, |k| k[i]) as u64;
        let rows: UInt64Array = chosen.iter().map(|c| original(c.1)).collect();
        let labels = match (setup.target, batch.target) {
            (TargetUse::Label, Some(target)) => {
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
            let item = Item { row: encoded.rows.row(i).to_vec(), value, weight: 0.0 };
            self.items.entry((place, mark)).or_insert(item).weight += weight;
            if self.items.len() >= setup.sample {
                self.limit(setup.sample);
                highest = self.items.last_key_value().map(|((h, _), _)| *h);
            }
        }
        Ok(())
    }

    fn merge(&mut self, setup: &Setup, other: Self) -> Result<()> {
        self.absorb(other, setup.sample);
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
