//! What must be known before encoding: the categories of texts, and the means that stand for
//! missing values.

use super::{Arguments, Batch, State};
use crate::encode::{ColumnKind, to_numbers, to_texts};
use crate::wire::Kind;
use crate::{Error, Remedy, Result};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Float64Type;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How much may be found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SurveyJob {
    /// The most categories of a text column.
    pub(crate) categories: usize,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum SurveyColumn {
    /// The weighted sum of the values that are there, and of their weights.
    Number { sum: f64, weight: f64 },
    /// The weight of each category.
    Text(BTreeMap<String, f64>),
}

/// All columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Survey {
    pub(crate) columns: Vec<SurveyColumn>,
}

impl State for Survey {
    const KIND: Kind = Kind::SurveyState;
    type Job = SurveyJob;

    fn new(arguments: &Arguments, _: &SurveyJob) -> Self {
        let column = |kind: &ColumnKind| match kind {
            ColumnKind::Text { .. } => SurveyColumn::Text(BTreeMap::new()),
            _ => SurveyColumn::Number { sum: 0.0, weight: 0.0 },
        };
        Self { columns: arguments.encoder.columns.iter().map(|c| column(&c.kind)).collect() }
    }

    fn update(&mut self, arguments: &Arguments, job: &SurveyJob, batch: &Batch<'_>) -> Result<()> {
        let weights = arguments.weights(batch, None)?;
        let weight_of = |i: usize| weights.as_ref().map_or(1.0, |w| w[i]);
        let columns = self.columns.iter_mut().zip(&arguments.encoder.columns).zip(batch.columns);
        for ((state, column), array) in columns {
            match state {
                SurveyColumn::Number { sum, weight } => {
                    let numbers = to_numbers(&column.name, array)?;
                    let numbers = numbers.as_primitive::<Float64Type>();
                    for (i, value) in numbers.iter().enumerate() {
                        if let Some(value) = value.filter(|v| v.is_finite()) {
                            *sum += weight_of(i) * value;
                            *weight += weight_of(i);
                        }
                    }
                }
                SurveyColumn::Text(categories) => {
                    for (i, text) in to_texts(array)?.iter().enumerate() {
                        let Some(text) = text else { continue };
                        match categories.get_mut(text) {
                            Some(weight) => *weight += weight_of(i),
                            None => {
                                categories.insert(text.to_owned(), weight_of(i));
                                check_limit(job, &column.name, categories)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, arguments: &Arguments, job: &SurveyJob, other: Self) -> Result<()> {
        let columns = self.columns.iter_mut().zip(other.columns).zip(&arguments.encoder.columns);
        for ((own, new), column) in columns {
            match (own, new) {
                (
                    SurveyColumn::Number { sum, weight },
                    SurveyColumn::Number { sum: more, weight: with },
                ) => {
                    *sum += more;
                    *weight += with;
                }
                (SurveyColumn::Text(own), SurveyColumn::Text(new)) => {
                    for (text, weight) in new {
                        *own.entry(text).or_insert(0.0) += weight;
                    }
                    check_limit(job, &column.name, own)?;
                }
                _ => return Err(Error::query("states of different tables")),
            }
        }
        Ok(())
    }

    fn size(&self) -> usize {
        64 * self.columns.len()
    }
}

fn check_limit(job: &SurveyJob, name: &str, categories: &BTreeMap<String, f64>) -> Result<()> {
    if categories.len() <= job.categories {
        return Ok(());
    }
    let some: Vec<String> = categories.keys().take(3).map(|c| format!("'{c}'")).collect();
    let reason = format!(
        "is text with more than {} different values ({}, …)",
        job.categories,
        some.join(", ")
    );
    Err(Error::mendable(name, reason, Remedy::IgnoreOrMoreCategories))
}
