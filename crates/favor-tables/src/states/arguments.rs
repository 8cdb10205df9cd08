//! The arguments of an aggregate function: columns, then the target, then the weight.

use crate::encode::{Encoded, Encoder, Missing, each_text, folds, row_hashes, to_numbers};
use crate::{Error, Remedy, Result};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use favor::{Float, Matrix};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// How the arguments of an aggregate become vectors and weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Arguments {
    pub(crate) encoder: Encoder,
    /// Whether the rows are those that a model is fitted to, which are encoded by their fold.
    pub(crate) fitted: bool,
    /// The name of the column of weights.
    pub(crate) weight: Option<String>,
}

/// A batch of rows, its arguments told apart.
pub(crate) struct Batch<'a> {
    pub(crate) columns: &'a [ArrayRef],
    pub(crate) target: Option<&'a ArrayRef>,
    weight: Option<&'a ArrayRef>,
}

impl Arguments {
    /// Columns, then the target if it is an argument, then the weight if there is one.
    pub(crate) fn batch<'a>(
        &self,
        arguments: &'a [ArrayRef],
        takes_target: bool,
    ) -> Result<Batch<'a>> {
        let columns = self.encoder.columns.len();
        let targets = usize::from(takes_target);
        let wanted = columns + targets + usize::from(self.weight.is_some());
        if arguments.len() != wanted {
            let names = self.encoder.names().join(", ");
            let reason =
                format!("{} arguments where {wanted} are needed: {names}", arguments.len());
            return Err(Error::query(reason));
        }
        let (columns, rest) = arguments.split_at(columns);
        let (target, weight) = rest.split_at(targets);
        Ok(Batch { columns, target: target.first(), weight: weight.first() })
    }

    /// The vectors of a batch. Where rows with missing values are left out, so are those whose
    /// `target`, the name of a column of numbers, is null or NaN.
    pub(crate) fn encode<T: Float>(
        &self,
        batch: &Batch<'_>,
        target: Option<&str>,
    ) -> Result<Encoded<T>> {
        let by_fold = self.fitted && self.encoder.knows_folds();
        let folds = by_fold.then(|| self.folds(batch)).transpose()?;
        let encoded = self.encoder.encode(batch.columns, folds.as_deref())?;
        let (Some(name), Missing::Drop, Some(array)) = (target, self.encoder.missing, batch.target)
        else {
            return Ok(encoded);
        };
        let numbers = to_numbers(name, array)?;
        let values = numbers.as_primitive::<Float64Type>();
        let good = |i: &usize| !values.is_null(*i) && !values.value(*i).is_nan();
        let before = encoded.kept.unwrap_or_else(|| (0..values.len()).collect());
        let (places, kept): (Vec<usize>, Vec<usize>) =
            before.into_iter().enumerate().filter(|(_, i)| good(i)).unzip();
        let mut rows = Matrix::zeros(kept.len(), encoded.rows.columns());
        for (r, &place) in places.iter().enumerate() {
            rows.row_mut(r).copy_from_slice(encoded.rows.row(place));
        }
        Ok(Encoded { rows, kept: Some(kept) })
    }

    /// The fold of each row of a batch.
    pub(crate) fn folds(&self, batch: &Batch<'_>) -> Result<Vec<u8>> {
        Ok(folds(&row_hashes(&self.encoder.columns, batch.columns)?))
    }

    /// The weights of the rows of a batch that were kept; `None` when all are one.
    pub(crate) fn weights(
        &self,
        batch: &Batch<'_>,
        kept: Option<&[usize]>,
    ) -> Result<Option<Vec<f64>>> {
        let (Some(array), Some(name)) = (batch.weight, &self.weight) else { return Ok(None) };
        let numbers = to_numbers(name, array)?;
        let values = numbers.as_primitive::<Float64Type>();
        let valid = |i: usize| !values.is_null(i) && values.value(i) >= 0.0;
        if let Some(i) = (0..values.len()).find(|&i| !(valid(i) && values.value(i).is_finite())) {
            let found = shown(values, i);
            let reason = format!("holds the weight {found}; every weight must be a number ≥ 0");
            return Err(Error::column(name, reason));
        }
        Ok(Some(choose(values.values(), kept)))
    }
}

impl Batch<'_> {
    /// The targets of the rows that were kept, as numbers.
    pub(crate) fn numbers(&self, target: &str, kept: Option<&[usize]>) -> Result<Vec<f64>> {
        let Some(array) = self.target else { return Ok(vec![]) };
        let numbers = to_numbers(target, array)?;
        let values = numbers.as_primitive::<Float64Type>();
        let bad = |i: &usize| values.is_null(*i) || !values.value(*i).is_finite();
        let mut rows =
            (0..kept.map_or(values.len(), <[usize]>::len)).map(|r| kept.map_or(r, |k| k[r]));
        if let Some(i) = rows.find(bad) {
            return Err(missing_target(target, &shown(values, i)));
        }
        Ok(choose(values.values(), kept))
    }
}

impl Batch<'_> {
    /// The classes of the rows that were kept: the places of their labels among these, none where the
    /// label is null or not one of them.
    pub(crate) fn classes(
        &self,
        labels: &[String],
        kept: Option<&[usize]>,
    ) -> Result<Vec<Option<usize>>> {
        let Some(array) = self.target else { return Ok(vec![]) };
        let all = classes(array, labels)?;
        Ok(match kept {
            Some(kept) => kept.iter().map(|&i| all[i]).collect(),
            None => all,
        })
    }
}

fn classes(array: &ArrayRef, labels: &[String]) -> Result<Vec<Option<usize>>> {
    let small = matches!(
        array.data_type(),
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
    );
    if small {
        let numbers = labels.iter().enumerate().filter_map(|(c, l)| Some((l.parse().ok()?, c)));
        let places: HashMap<i64, usize> = numbers.collect();
        let values = cast(array, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        return Ok(values.iter().map(|v| places.get(&v?).copied()).collect());
    }
    let places: HashMap<&str, usize> =
        labels.iter().enumerate().map(|(c, l)| (l.as_str(), c)).collect();
    let mut out = Vec::with_capacity(array.len());
    each_text(array, |_, text| {
        out.push(text.and_then(|t| places.get(t).copied()));
        Ok(())
    })?;
    Ok(out)
}

pub(crate) fn missing_target(name: &str, found: &str) -> Error {
    let reason = format!("is the target and holds {found}");
    Error::mendable(name, reason, Remedy::DropMissing)
}

fn shown(values: &Float64Array, i: usize) -> String {
    if values.is_null(i) { "null".into() } else { values.value(i).to_string() }
}

fn choose(values: &[f64], kept: Option<&[usize]>) -> Vec<f64> {
    match kept {
        Some(kept) => kept.iter().map(|&i| values[i]).collect(),
        None => values.to_vec(),
    }
}
