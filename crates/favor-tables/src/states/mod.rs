//! What one worker knows of its share of a table: states that take batches and merge, and whose
//! bytes can travel. One file a state.

mod moments;
mod sample;
mod sums;
mod survey;

pub(crate) use moments::MomentsState;
pub(crate) use sample::{Item, Sample};
pub(crate) use sums::SumsState;
pub(crate) use survey::{Survey, SurveyColumn};

use crate::encode::{Encoded, Encoder, Missing, to_numbers};
use crate::{Error, Result};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::Float64Type;
use favor::{Element, FeatureMap, Matrix};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What follows the columns among the arguments of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum TargetUse {
    /// Nothing.
    None,
    /// A label of any type.
    Label,
    /// A number; what is summed is `(value − centre) / scale`.
    Value { centre: f64, scale: f64 },
}

/// All that a worker must know. It travels as bytes, so that workers may be elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) encoder: Encoder,
    pub(crate) target: TargetUse,
    /// The name of the target, for messages.
    pub(crate) target_name: String,
    /// The name of the column of weights, which comes last.
    pub(crate) weight: Option<String>,
    /// The most categories of a text column.
    pub(crate) categories: usize,
    /// The most rows of a sample, and what decides them.
    pub(crate) sample: usize,
    pub(crate) seed: u64,
    /// The map, for sums.
    pub(crate) map: Option<FeatureMap>,
}

/// A batch of rows, its arguments told apart.
pub(crate) struct Batch<'a> {
    pub(crate) columns: &'a [ArrayRef],
    pub(crate) target: Option<&'a ArrayRef>,
    weight: Option<&'a ArrayRef>,
}

impl Setup {
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        to_bytes(self)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        from_bytes(bytes)
    }

    /// Columns, then the target, then the weight, as far as there are such.
    pub(crate) fn batch<'a>(&self, arguments: &'a [ArrayRef]) -> Result<Batch<'a>> {
        let columns = self.encoder.columns.len();
        let targets = usize::from(self.target != TargetUse::None);
        let wanted = columns + targets + usize::from(self.weight.is_some());
        if arguments.len() != wanted {
            let names = self.encoder.names().join(", ");
            let reason =
                format!("{} arguments where {wanted} are needed: {names}", arguments.len());
            return Err(Error::Engine(reason));
        }
        let (columns, rest) = arguments.split_at(columns);
        let (target, weight) = rest.split_at(targets);
        Ok(Batch { columns, target: target.first(), weight: weight.first() })
    }

    /// The vectors of a batch. Where rows with missing values are left out, so are those whose
    /// target is no number.
    pub(crate) fn encode<T: Element>(&self, batch: &Batch<'_>) -> Result<Encoded<T>> {
        let encoded = self.encoder.encode(batch.columns)?;
        let (TargetUse::Value { .. }, Missing::Drop, Some(array)) =
            (self.target, self.encoder.missing, batch.target)
        else {
            return Ok(encoded);
        };
        let numbers = to_numbers(&self.target_name, array)?;
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
            let found = if values.is_null(i) { "null".into() } else { values.value(i).to_string() };
            let reason = format!("holds the weight {found}; every weight must be a number ≥ 0");
            return Err(Error::column(name, reason));
        }
        Ok(Some(choose(values.values(), kept)))
    }

    /// The targets of the rows of a batch that were kept, as numbers.
    pub(crate) fn values(&self, batch: &Batch<'_>, kept: Option<&[usize]>) -> Result<Vec<f64>> {
        let Some(array) = batch.target else { return Ok(vec![]) };
        let numbers = to_numbers(&self.target_name, array)?;
        let values = numbers.as_primitive::<Float64Type>();
        let bad = |i: &usize| values.is_null(*i) || !values.value(*i).is_finite();
        let mut rows =
            (0..kept.map_or(values.len(), <[usize]>::len)).map(|r| kept.map_or(r, |k| k[r]));
        if let Some(i) = rows.find(bad) {
            let found = if values.is_null(i) { "null".into() } else { values.value(i).to_string() };
            return Err(missing_target(&self.target_name, &found));
        }
        Ok(choose(values.values(), kept))
    }
}

pub(crate) fn missing_target(name: &str, found: &str) -> Error {
    let reason = format!("is the target and holds {found}; --missing drop leaves such rows out");
    Error::column(name, reason)
}

fn choose(values: &[f64], kept: Option<&[usize]>) -> Vec<f64> {
    match kept {
        Some(kept) => kept.iter().map(|&i| values[i]).collect(),
        None => values.to_vec(),
    }
}

/// What a worker keeps: fed by batches, merged with that of other workers.
pub(crate) trait State:
    Serialize + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static
{
    fn new(setup: &Setup) -> Self;
    fn update(&mut self, setup: &Setup, batch: &Batch<'_>) -> Result<()>;
    fn merge(&mut self, setup: &Setup, other: Self) -> Result<()>;
    /// About how many bytes it takes.
    fn size(&self) -> usize;
}

pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| Error::Engine(format!("state: {e}")))
}

pub(crate) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|e| Error::Engine(format!("damaged state ({e})")))
}
