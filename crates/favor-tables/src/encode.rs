//! Columns of a table as vectors: numbers standardised, booleans as 0 and 1, texts one-hot.

use crate::{Error, Remedy, Result};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float32Array, Float64Array, PrimitiveArray,
    StringArray,
};
use datafusion::arrow::compute::{cast, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use favor::{Float, Matrix, Moments};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What to do where a value is missing: null, NaN, or a text that the model has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Missing {
    /// Refuse, naming the column.
    #[default]
    Error,
    /// Leave the row out; in predictions, predict nothing for it.
    Drop,
    /// Take the mean of the column.
    Mean,
}

impl std::str::FromStr for Missing {
    type Err = String;
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "error" => Ok(Self::Error),
            "drop" => Ok(Self::Drop),
            "mean" => Ok(Self::Mean),
            _ => Err("give error, drop or mean".into()),
        }
    }
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ColumnKind {
    /// Numbers: `(value − centre) / scale`.
    Number {
        /// What is subtracted.
        centre: f64,
        /// What is divided by.
        scale: f64,
    },
    /// True and false as 1 and 0.
    Boolean,
    /// Text, one number per category: 1 for its own, 0 for the others.
    Text {
        /// The categories, in order.
        categories: Vec<String>,
    },
}

/// A column that predictions are made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name in the table.
    pub name: String,
    /// How it is encoded.
    pub kind: ColumnKind,
}

impl Column {
    /// A column of this type, before anything is known of its contents.
    pub(crate) fn new(name: &str, data_type: &DataType) -> Result<Self> {
        let kind = match data_type {
            // A CSV file without rows has columns of no type.
            t if t.is_numeric() || *t == DataType::Null => {
                ColumnKind::Number { centre: 0.0, scale: 1.0 }
            }
            DataType::Boolean => ColumnKind::Boolean,
            t if is_text(t) => ColumnKind::Text { categories: vec![] },
            other => {
                let reason = format!("is of type {other}, which is no number, boolean or text");
                return Err(Error::mendable(name, reason, Remedy::Ignore));
            }
        };
        Ok(Self { name: name.into(), kind })
    }

    /// How many numbers it becomes.
    pub fn width(&self) -> usize {
        match &self.kind {
            ColumnKind::Text { categories } => categories.len(),
            _ => 1,
        }
    }
}

/// Whether a type holds texts, in any of Arrow's layouts.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_text(value),
        t => matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

/// How the columns of a table become vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Encoder {
    /// The columns, in the order of the vectors.
    pub columns: Vec<Column>,
    /// What stands for a missing value of each number of the vectors.
    pub(crate) fill: Vec<f64>,
    /// What to do with missing values.
    pub missing: Missing,
}

/// Vectors of those rows of a batch that have no missing values.
pub(crate) struct Encoded<T> {
    pub(crate) rows: Matrix<T>,
    /// Which rows of the batch they are; `None` when they are all of them.
    pub(crate) kept: Option<Vec<usize>>,
}

impl Encoder {
    /// The dimension of the vectors.
    pub fn width(&self) -> usize {
        self.columns.iter().map(Column::width).sum()
    }

    /// The names of the columns.
    pub fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|c| c.name.as_str()).collect()
    }

    /// The encoder that makes every number of mean 0 and variance 1, given the moments of what this
    /// one makes. Booleans and texts stay 0 and 1.
    pub(crate) fn standardised(&self, moments: &Moments) -> Self {
        let mut out = self.clone();
        let (mean, covariance) = (moments.mean(), moments.covariance());
        let mut l = 0;
        for column in &mut out.columns {
            let width = column.width();
            if let ColumnKind::Number { centre, scale } = &mut column.kind {
                (*centre, *scale) = (mean[l], covariance[(l, l)].sqrt());
                out.fill[l] = (out.fill[l] - mean[l]) / *scale;
            }
            l += width;
        }
        out
    }

    /// What is subtracted from each number of the vectors, and what is divided by.
    pub(crate) fn centres_and_scales(&self) -> (Vec<f64>, Vec<f64>) {
        let each = |column: &Column| match column.kind {
            ColumnKind::Number { centre, scale } => vec![(centre, scale)],
            _ => vec![(0.0, 1.0); column.width()],
        };
        self.columns.iter().flat_map(each).unzip()
    }

    /// The encoder that neither centres nor scales.
    pub(crate) fn raw(&self) -> Self {
        let (centres, scales) = self.centres_and_scales();
        let mut out = self.clone();
        for column in &mut out.columns {
            if let ColumnKind::Number { centre, scale } = &mut column.kind {
                (*centre, *scale) = (0.0, 1.0);
            }
        }
        let parts = out.fill.iter_mut().zip(centres.iter().zip(&scales));
        parts.for_each(|(fill, (centre, scale))| *fill = *fill * scale + centre);
        out
    }

    /// Turns columns, in the encoder's order, into vectors.
    pub(crate) fn encode<T: Float>(&self, arrays: &[ArrayRef]) -> Result<Encoded<T>> {
        let rows = arrays.first().map_or(0, |a| a.len());
        let width = self.width();
        let mut out = Matrix::zeros(rows, width);
        if rows == 0 {
            return Ok(Encoded { rows: out, kept: None });
        }
        let mut absent = Absent { missing: self.missing, rows: vec![] };
        let mut numbers = vec![];
        let mut offset = 0;
        for (column, array) in self.columns.iter().zip(arrays) {
            let mut slot = Slot { data: out.as_mut_slice(), width, offset, fill: &self.fill };
            match &column.kind {
                ColumnKind::Text { categories } => {
                    slot.texts(column, array, categories, &mut absent)?
                }
                ColumnKind::Number { centre, scale } => {
                    numbers.push((column, offset, Numbers::of(column, array)?, *centre, *scale));
                }
                ColumnKind::Boolean => {
                    numbers.push((column, offset, Numbers::of(column, array)?, 0.0, 1.0));
                }
            }
            offset += column.width();
        }
        // Some rows at a time: their vectors stay in the nearest cache while the columns come in.
        for start in (0..rows).step_by(BLOCK) {
            for (column, offset, array, centre, scale) in &numbers {
                let offset = *offset;
                let mut slot = Slot { data: out.as_mut_slice(), width, offset, fill: &self.fill };
                let (place, absent) = ((*centre, *scale), &mut absent);
                match array {
                    Numbers::Single(values) => {
                        slot.numbers(column, values, start, place, absent)?
                    }
                    Numbers::Double(values) => {
                        slot.numbers(column, values, start, place, absent)?
                    }
                }
            }
        }
        if absent.rows.is_empty() {
            return Ok(Encoded { rows: out, kept: None });
        }
        let mut dropped = vec![false; rows];
        absent.rows.iter().for_each(|&i| dropped[i] = true);
        let kept: Vec<usize> = (0..rows).filter(|&i| !dropped[i]).collect();
        let mut rows = Matrix::zeros(kept.len(), width);
        for (r, &i) in kept.iter().enumerate() {
            rows.row_mut(r).copy_from_slice(out.row(i));
        }
        Ok(Encoded { rows, kept: Some(kept) })
    }
}

/// The rows with a missing value, as far as the policy wants to know.
struct Absent {
    missing: Missing,
    rows: Vec<usize>,
}

impl Absent {
    /// Notes a missing value; true where the mean is to stand for it.
    fn fill(&mut self, row: usize, why: impl FnOnce() -> Error) -> Result<bool> {
        match self.missing {
            Missing::Error => Err(why()),
            Missing::Drop => {
                self.rows.push(row);
                Ok(false)
            }
            Missing::Mean => Ok(true),
        }
    }
}

/// A column of numbers, as it came or as 64-bit numbers.
enum Numbers {
    Single(Float32Array),
    Double(Float64Array),
}

impl Numbers {
    fn of(column: &Column, array: &ArrayRef) -> Result<Self> {
        if *array.data_type() == DataType::Float32 {
            return Ok(Self::Single(array.as_primitive().clone()));
        }
        Ok(Self::Double(to_numbers(&column.name, array)?.as_primitive().clone()))
    }
}

/// Rows that are encoded at a time.
const BLOCK: usize = 128;

/// The place of one column in the vectors.
struct Slot<'a, T> {
    data: &'a mut [T],
    width: usize,
    offset: usize,
    fill: &'a [f64],
}

impl<T: Float> Slot<'_, T> {
    /// The block of rows that begins at `start`.
    fn numbers<A: ArrowPrimitiveType<Native: Into<f64>>>(
        &mut self,
        column: &Column,
        values: &PrimitiveArray<A>,
        start: usize,
        (centre, scale): (f64, f64),
        absent: &mut Absent,
    ) -> Result<()> {
        let block = start..(start + BLOCK).min(values.len());
        let inverse = 1.0 / scale;
        let mut encoded = [T::default(); BLOCK];
        let mut finite = true;
        for (e, v) in encoded.iter_mut().zip(&values.values()[block.clone()]) {
            *e = T::from_f64(((*v).into() - centre) * inverse);
            finite &= e.is_finite();
        }
        let places = self.data[start * self.width + self.offset..].iter_mut().step_by(self.width);
        places.zip(&encoded[..block.len()]).for_each(|(place, e)| *place = *e);
        if finite && values.null_count() == 0 {
            return Ok(());
        }
        for i in block.filter(|&i| values.is_null(i) || !encoded[i - start].is_finite()) {
            let (null, value): (bool, f64) = (values.is_null(i), values.value(i).into());
            if !(null || value.is_nan()) {
                let reason = if value.is_finite() {
                    format!("holds {value}, too far from the rest for 32-bit numbers")
                } else {
                    format!("holds {value}; every value must be finite")
                };
                return Err(Error::column(&column.name, reason));
            }
            let filled = absent.fill(i, || missing(column, if null { "null" } else { "NaN" }))?;
            let value = if filled { self.fill[self.offset] } else { 0.0 };
            self.data[i * self.width + self.offset] = T::from_f64(value);
        }
        Ok(())
    }

    fn texts(
        &mut self,
        column: &Column,
        array: &ArrayRef,
        categories: &[String],
        absent: &mut Absent,
    ) -> Result<()> {
        let texts = to_texts(array)?;
        let codes: HashMap<&str, usize> =
            categories.iter().enumerate().map(|(k, c)| (c.as_str(), k)).collect();
        for (i, text) in texts.iter().enumerate() {
            let code = text.and_then(|t| codes.get(t));
            let place = &mut self.data[i * self.width + self.offset..][..categories.len()];
            match code {
                Some(&k) => place[k] = T::from_f64(1.0),
                None => {
                    let why = || match text {
                        Some(text) => {
                            let reason = format!("holds '{text}', which the model has not seen");
                            Error::mendable(&column.name, reason, Remedy::DropOrFillMissing)
                        }
                        None => missing(column, "null"),
                    };
                    if absent.fill(i, why)? {
                        let fill = &self.fill[self.offset..][..categories.len()];
                        place.iter_mut().zip(fill).for_each(|(p, f)| *p = T::from_f64(*f));
                    }
                }
            }
        }
        Ok(())
    }
}

fn missing(column: &Column, what: &str) -> Error {
    let reason = format!("has missing values ({what})");
    Error::mendable(&column.name, reason, Remedy::DropOrFillMissing)
}

/// Any numeric or boolean column as 64-bit floats.
pub(crate) fn to_numbers(name: &str, array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Float64 => Ok(array.clone()),
        t if t.is_numeric() || *t == DataType::Boolean || *t == DataType::Null => {
            Ok(cast(array, &DataType::Float64)?)
        }
        other => Err(Error::column(name, format!("is of type {other} where numbers are needed"))),
    }
}

/// Any column as texts.
pub(crate) fn to_texts(array: &ArrayRef) -> Result<StringArray> {
    let texts = cast_with_options(array, &DataType::Utf8, &Default::default())?;
    Ok(texts.as_string::<i32>().clone())
}
