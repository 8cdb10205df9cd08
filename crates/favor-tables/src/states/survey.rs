//! What must be known before encoding: the values of texts, means that stand for missing values, where
//! there are missing values, and how numbers are spread.

use super::{Arguments, Batch, State};
use crate::encode::{ColumnKind, FOLDS, each_text, folds, row_hashes, to_numbers};
use crate::wire::Kind;
use crate::{Error, Remedy, Result};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Float64Type;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Rows whose numbers are kept to see how they are spread.
const SPREAD: usize = 4096;

/// How much may be found, and what is to be predicted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SurveyJob {
    /// The most values of a text column.
    pub(crate) values: usize,
    /// Whose means over the values of texts are wanted.
    pub(crate) target: Option<SurveyTarget>,
}

/// The column that is predicted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum SurveyTarget {
    /// One of these labels.
    Labels(Vec<String>),
    /// A number.
    Number(String),
}

impl SurveyTarget {
    /// How many numbers its mean has.
    pub(crate) fn width(&self) -> usize {
        match self {
            // The share of one of two classes is that of the other.
            Self::Labels(labels) if labels.len() == 2 => 1,
            Self::Labels(labels) => labels.len(),
            Self::Number(_) => 1,
        }
    }
}

/// Rows of one value: for each fold the weight, then the weighted sums of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tally(pub(crate) Vec<f64>);

impl Tally {
    fn new(targets: usize) -> Self {
        Self(vec![0.0; FOLDS * (1 + targets)])
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, new)| *own += new);
    }

    fn fold(&self, fold: usize) -> &[f64] {
        let width = self.0.len() / FOLDS;
        &self.0[fold * width..(fold + 1) * width]
    }

    /// The weight and the sums over all folds but one, or over all.
    pub(crate) fn without(&self, left_out: Option<usize>) -> Vec<f64> {
        let mut total = vec![0.0; self.0.len() / FOLDS];
        for fold in (0..FOLDS).filter(|fold| Some(*fold) != left_out) {
            total.iter_mut().zip(self.fold(fold)).for_each(|(t, s)| *t += s);
        }
        total
    }
}

/// One column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SurveyColumn {
    /// Rows without a value.
    pub(crate) missing: u64,
    pub(crate) found: Found,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Found {
    /// The weighted sums of what the values that are there become, and of their weights.
    Numbers { sums: Vec<f64>, weight: f64 },
    /// The rows of each value.
    Texts(BTreeMap<String, Tally>),
}

/// All columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Survey {
    pub(crate) columns: Vec<SurveyColumn>,
    /// Numbers of the rows with the lowest hashes, NaN where there is none, and their weights: one
    /// for each column of numbers.
    pub(crate) spread: BTreeMap<u64, (Vec<f64>, f64)>,
}

impl Survey {
    fn keep(&mut self, hash: u64, numbers: &[f64], weight: f64) {
        if let Some((_, own)) = self.spread.get_mut(&hash) {
            *own += weight;
            return;
        }
        let full = self.spread.len() >= SPREAD;
        if full && self.spread.last_key_value().is_some_and(|(last, _)| hash > *last) {
            return;
        }
        self.spread.insert(hash, (numbers.to_vec(), weight));
        if full {
            self.spread.pop_last();
        }
    }
}

impl State for Survey {
    const KIND: Kind = Kind::SurveyState;
    type Job = SurveyJob;

    fn new(arguments: &Arguments, _: &SurveyJob) -> Self {
        let column = |column: &crate::encode::Column| SurveyColumn {
            missing: 0,
            found: match column.kind {
                ColumnKind::Text { .. } => Found::Texts(BTreeMap::new()),
                _ => Found::Numbers { sums: vec![0.0; column.values()], weight: 0.0 },
            },
        };
        let columns = arguments.encoder.columns.iter().map(column).collect();
        Self { columns, spread: BTreeMap::new() }
    }

    fn update(&mut self, arguments: &Arguments, job: &SurveyJob, batch: &Batch<'_>) -> Result<()> {
        let weights = arguments.weights(batch, None)?;
        let weight_of = |i: usize| weights.as_ref().map_or(1.0, |w| w[i]);
        let columns = &arguments.encoder.columns;
        let hashes = row_hashes(columns, batch.columns)?;
        let has_texts = columns.iter().any(|c| matches!(c.kind, ColumnKind::Text { .. }));
        let targets = match &job.target {
            Some(target) if has_texts => Some(Targets::read(target, batch)?),
            _ => None,
        };
        let folds = folds(&hashes);
        let mut numbers = vec![];
        for ((state, column), array) in self.columns.iter_mut().zip(columns).zip(batch.columns) {
            match &mut state.found {
                Found::Numbers { sums, weight } => {
                    if let ColumnKind::Time { clock } = column.kind {
                        for (i, days) in crate::encode::to_days(array)?.into_iter().enumerate() {
                            let Some(days) = days else {
                                state.missing += 1;
                                continue;
                            };
                            let parts = crate::encode::time_parts(days, clock);
                            sums.iter_mut().zip(parts).for_each(|(s, p)| *s += weight_of(i) * p);
                            *weight += weight_of(i);
                        }
                        continue;
                    }
                    let array = to_numbers(&column.name, array)?;
                    let values = array.as_primitive::<Float64Type>().clone();
                    for i in 0..values.len() {
                        if values.is_null(i) || values.value(i).is_nan() {
                            state.missing += 1;
                        } else if values.value(i).is_finite() {
                            sums[0] += weight_of(i) * values.value(i);
                            *weight += weight_of(i);
                        }
                    }
                    numbers.push(values);
                }
                Found::Texts(texts) => {
                    let width = job.target.as_ref().map_or(0, SurveyTarget::width);
                    each_text(array, |i, text| {
                        let Some(text) = text else {
                            state.missing += 1;
                            return Ok(());
                        };
                        if !texts.contains_key(text) {
                            texts.insert(text.to_owned(), Tally::new(width));
                            check_limit(job, &column.name, texts)?;
                        }
                        if let Some(tally) = texts.get_mut(text) {
                            let start = usize::from(folds[i]) * (1 + width);
                            let sums = &mut tally.0[start..start + 1 + width];
                            // A row without a target has no say in the means.
                            if targets
                                .as_ref()
                                .is_none_or(|t| t.add(i, weight_of(i), &mut sums[1..]))
                            {
                                sums[0] += weight_of(i);
                            }
                        }
                        Ok(())
                    })?;
                }
            }
        }
        if numbers.is_empty() {
            return Ok(());
        }
        let full = self.spread.len() >= SPREAD;
        let mut last = self.spread.last_key_value().filter(|_| full).map(|(last, _)| *last);
        for (i, hash) in hashes.into_iter().enumerate() {
            if last.is_some_and(|last| hash > last) || weight_of(i) == 0.0 {
                continue;
            }
            let value = |array: &datafusion::arrow::array::Float64Array| {
                if array.is_null(i) { f64::NAN } else { array.value(i) }
            };
            let row: Vec<f64> = numbers.iter().map(value).collect();
            self.keep(hash, &row, weight_of(i));
            let full = self.spread.len() >= SPREAD;
            last = self.spread.last_key_value().filter(|_| full).map(|(last, _)| *last);
        }
        Ok(())
    }

    fn merge(&mut self, arguments: &Arguments, job: &SurveyJob, other: Self) -> Result<()> {
        let columns = self.columns.iter_mut().zip(other.columns).zip(&arguments.encoder.columns);
        for ((own, new), column) in columns {
            own.missing += new.missing;
            match (&mut own.found, new.found) {
                (Found::Numbers { sums, weight }, Found::Numbers { sums: more, weight: with }) => {
                    sums.iter_mut().zip(more).for_each(|(s, m)| *s += m);
                    *weight += with;
                }
                (Found::Texts(own), Found::Texts(new)) => {
                    for (text, tally) in new {
                        match own.get_mut(&text) {
                            Some(total) => total.add(&tally),
                            None => {
                                own.insert(text, tally);
                            }
                        }
                    }
                    check_limit(job, &column.name, own)?;
                }
                _ => return Err(Error::query("states of different tables")),
            }
        }
        for (hash, (numbers, weight)) in other.spread {
            self.keep(hash, &numbers, weight);
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let of = |column: &SurveyColumn| match &column.found {
            Found::Numbers { .. } => 64,
            Found::Texts(texts) => {
                texts.iter().map(|(t, tally)| 64 + t.len() + 8 * tally.0.len()).sum()
            }
        };
        let row = self.spread.values().next().map_or(0, |(numbers, _)| 48 + 8 * numbers.len());
        self.columns.iter().map(of).sum::<usize>() + row * self.spread.len()
    }
}

/// The targets of a batch.
enum Targets {
    /// The place of the class among the means; `None` for the one that has none.
    Classes(Vec<Option<usize>>),
    Numbers(Vec<f64>),
}

impl Targets {
    fn read(target: &SurveyTarget, batch: &Batch<'_>) -> Result<Self> {
        Ok(match target {
            SurveyTarget::Number(name) => {
                let array = match batch.target {
                    Some(array) => to_numbers(name, array)?,
                    None => return Ok(Self::Numbers(vec![])),
                };
                let values = array.as_primitive::<Float64Type>();
                Self::Numbers(values.iter().map(|v| v.unwrap_or(f64::NAN)).collect())
            }
            SurveyTarget::Labels(labels) => {
                let classes = batch.classes(labels, None)?;
                let binary = labels.len() == 2;
                let place = |c: Option<usize>| match c {
                    Some(c) if binary => (c == 1).then_some(0),
                    c => c,
                };
                Self::Classes(classes.into_iter().map(place).collect())
            }
        })
    }

    /// Adds the target of a row to sums; false where it has none.
    fn add(&self, row: usize, weight: f64, sums: &mut [f64]) -> bool {
        match self {
            Self::Classes(places) => {
                if let Some(place) = places[row] {
                    sums[place] += weight;
                }
                true
            }
            Self::Numbers(values) => {
                let known = values[row].is_finite();
                if known {
                    sums[0] += weight * values[row];
                }
                known
            }
        }
    }
}

fn check_limit(job: &SurveyJob, name: &str, texts: &BTreeMap<String, Tally>) -> Result<()> {
    if texts.len() <= job.values {
        return Ok(());
    }
    let some: Vec<String> = texts.keys().take(3).map(|c| format!("'{c}'")).collect();
    let reason =
        format!("is text with more than {} different values ({}, …)", job.values, some.join(", "));
    Err(Error::mendable(name, reason, Remedy::Ignore))
}
