//! What must be known before encoding: the categories of texts, and the means that stand for
//! missing values.

use super::{Batch, Setup, State};
use crate::encode::{Kind, to_numbers, to_texts};
use crate::{Error, Result};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Float64Type;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    fn new(setup: &Setup) -> Self {
        let column = |kind: &Kind| match kind {
            Kind::Text { .. } => SurveyColumn::Text(BTreeMap::new()),
            _ => SurveyColumn::Number { sum: 0.0, weight: 0.0 },
        };
        Self { columns: setup.encoder.columns.iter().map(|c| column(&c.kind)).collect() }
    }

    fn update(&mut self, setup: &Setup, batch: &Batch<'_>) -> Result<()> {
        let weights = setup.weights(batch, None)?;
        let weight_of = |i: usize| weights.as_ref().map_or(1.0, |w| w[i]);
        let columns = self.columns.iter_mut().zip(&setup.encoder.columns).zip(batch.columns);
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
                                check_limit(setup, &column.name, categories)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, setup: &Setup, other: Self) -> Result<()> {
        let columns = self.columns.iter_mut().zip(other.columns).zip(&setup.encoder.columns);
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
                    check_limit(setup, &column.name, own)?;
                }
                _ => return Err(Error::Engine("states of different tables".into())),
            }
        }
        Ok(())
    }

    fn size(&self) -> usize {
        64 * self.columns.len()
    }
}

fn check_limit(setup: &Setup, name: &str, categories: &BTreeMap<String, f64>) -> Result<()> {
    if categories.len() <= setup.categories {
        return Ok(());
    }
    let some: Vec<String> = categories.keys().take(3).map(|c| format!("'{c}'")).collect();
    let reason = format!(
        "is text with more than {} different values ({}, …); leave it out with --ignore, or raise \
         --categories",
        setup.categories,
        some.join(", ")
    );
    Err(Error::column(name, reason))
}
