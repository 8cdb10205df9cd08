//! Columns of a table as vectors: numbers standardised or ranked, booleans as 0 and 1, texts one-hot or
//! as means of the target, times as a trend and cycles, missing values filled and marked.

mod number;
mod row_hash;
mod slot;
mod text;
mod time;

pub(crate) use number::{rank_knots, to_numbers};
pub(crate) use row_hash::{FOLDS, folds, row_hashes};
pub(crate) use text::{each_text, to_texts};
pub(crate) use time::{parts as time_parts, to_days};

use crate::{Error, Remedy, Result};
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use favor::learn::Scaling;
use favor::{Float, Matrix, Moments};
use number::Numbers;
use serde::{Deserialize, Serialize};
use slot::{Absent, BLOCK, Slot};

/// What to do where a value is missing: null, NaN, or a text that the model has not seen.
///
/// ```
/// use favor_tables::Missing;
/// assert_eq!("drop".parse(), Ok(Missing::Drop));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Missing {
    /// Refuse, naming the column.
    #[default]
    Error,
    /// Leave the row out; in predictions, predict nothing for it.
    Drop,
    /// Take the mean of the column.
    Mean,
    /// Take the mean of the column, and say so by a further number, 1 where the value is missing. Only
    /// columns with missing values in the fitted table have that number.
    Mark,
}

impl Missing {
    /// Whether a mean stands for what is missing.
    pub(crate) fn fills(self) -> bool {
        matches!(self, Self::Mean | Self::Mark)
    }
}

impl std::str::FromStr for Missing {
    type Err = String;
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "error" => Ok(Self::Error),
            "drop" => Ok(Self::Drop),
            "mean" => Ok(Self::Mean),
            "mark" => Ok(Self::Mark),
            _ => Err("give error, drop, mean or mark".into()),
        }
    }
}

/// How columns of numbers are encoded.
///
/// ```
/// use favor_tables::NumberEncoding;
/// assert_eq!("rank".parse(), Ok(NumberEncoding::Rank));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum NumberEncoding {
    /// As they are.
    Raw,
    /// Brought to mean 0 and variance 1.
    Standard,
    /// By their rank in a sample, as a normal number.
    Rank,
    /// Ranked where the tails are heavy, standardised elsewhere.
    #[default]
    Auto,
}

impl std::str::FromStr for NumberEncoding {
    type Err = String;
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "raw" => Ok(Self::Raw),
            "standard" => Ok(Self::Standard),
            "rank" => Ok(Self::Rank),
            "auto" => Ok(Self::Auto),
            _ => Err("give auto, standard, rank or raw".into()),
        }
    }
}

/// What a column holds and how it becomes numbers.
///
/// ```
/// use favor_tables::ColumnKind;
/// # fn example(column: &favor_tables::Column) {
/// if let ColumnKind::Text { categories } = &column.kind {
///     println!("{}: {}", column.name, categories.join(", "));
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ColumnKind {
    /// A number, as it is.
    Number,
    /// A number by its rank: the normal quantile of its place among the knots, linear in between.
    Rank {
        /// Values, in order, and the normal number of each.
        knots: Vec<(f64, f64)>,
    },
    /// True and false as 1 and 0.
    Boolean,
    /// Text, one number per category: 1 for its own, 0 for the others.
    Text {
        /// The categories, in order.
        categories: Vec<String>,
    },
    /// Text with many values: the mean of the target over the rows of the same value; for classes the
    /// share of each. A row that a model is fitted to has the mean over the other folds.
    TargetMeans {
        /// The values, in order.
        values: Vec<String>,
        /// How many numbers a mean has.
        targets: usize,
        /// For each value, for each fold the mean without it, then the mean over all folds.
        means: Vec<f64>,
    },
    /// A date or a time: days, then sine and cosine of the year and of the week.
    Time {
        /// Whether sine and cosine of the day follow.
        clock: bool,
    },
}

/// A column that predictions are made from.
///
/// ```
/// # fn example(model: &favor_tables::Model) {
/// for column in &model.info().encoder.columns {
///     println!("{} becomes {} numbers", column.name, column.width());
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name in the table.
    pub name: String,
    /// How it is encoded.
    pub kind: ColumnKind,
    /// Whether a further number is 1 where the value is missing.
    pub marked: bool,
}

impl Column {
    /// A column of this type, before anything is known of its contents.
    pub(crate) fn new(name: &str, data_type: &DataType) -> Result<Self> {
        let kind = match data_type {
            // A CSV file without rows has columns of no type.
            t if t.is_numeric() || *t == DataType::Null => ColumnKind::Number,
            DataType::Boolean => ColumnKind::Boolean,
            DataType::Date32 | DataType::Date64 => ColumnKind::Time { clock: false },
            DataType::Timestamp(..) => ColumnKind::Time { clock: true },
            t if is_text(t) => ColumnKind::Text { categories: vec![] },
            other => {
                let reason = format!("is of type {other}, not a number, boolean, text or date");
                return Err(Error::mendable(name, reason, Remedy::Ignore));
            }
        };
        Ok(Self { name: name.into(), kind, marked: false })
    }

    /// How many numbers it becomes.
    pub fn width(&self) -> usize {
        self.values() + usize::from(self.marked)
    }

    /// The same without the number that marks missing values.
    pub(crate) fn values(&self) -> usize {
        match &self.kind {
            ColumnKind::Number | ColumnKind::Rank { .. } | ColumnKind::Boolean => 1,
            ColumnKind::Text { categories } => categories.len(),
            ColumnKind::TargetMeans { targets, .. } => *targets,
            ColumnKind::Time { clock } => time::width(*clock),
        }
    }

    /// Whether the numbers that it has from a file fit together.
    pub(crate) fn is_sound(&self) -> bool {
        match &self.kind {
            ColumnKind::Rank { knots } => {
                knots.iter().all(|k| k.0.is_finite() && k.1.is_finite())
                    && knots.is_sorted_by(|a, b| a.0 < b.0)
            }
            ColumnKind::TargetMeans { values, targets, means } => {
                *targets > 0
                    && means.len() == values.len() * (FOLDS + 1) * targets
                    && means.iter().all(|m| m.is_finite())
            }
            _ => true,
        }
    }

    /// Whether its n-th number is brought to mean 0 and variance 1: not zeros and ones, and not the
    /// cycles of a time.
    fn is_scaled(&self, n: usize) -> bool {
        match &self.kind {
            ColumnKind::Number | ColumnKind::Rank { .. } => n == 0,
            ColumnKind::Boolean | ColumnKind::Text { .. } => false,
            ColumnKind::TargetMeans { targets, .. } => n < *targets,
            ColumnKind::Time { .. } => n == 0,
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
///
/// ```
/// # fn example(model: &favor_tables::Model) {
/// let encoder = &model.info().encoder;
/// println!("{:?} become {} numbers", encoder.names(), encoder.width());
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Encoder {
    /// The columns, in the order of the vectors.
    pub columns: Vec<Column>,
    /// What to do with missing values.
    pub missing: Missing,
    /// What stands for a missing value of each number of the vectors, before it is scaled.
    pub(crate) fill: Vec<f64>,
    /// How each number of the vectors is scaled.
    pub(crate) scalings: Vec<Scaling>,
}

/// Vectors of those rows of a batch that have no missing values.
pub(crate) struct Encoded<T> {
    pub(crate) rows: Matrix<T>,
    /// Which rows of the batch they are; `None` when they are all of them.
    pub(crate) kept: Option<Vec<usize>>,
}

/// A scaling to 30 bits of its scale: what the order of rows and workers did to the last bits of the
/// moments is not seen, so that vectors and landmarks are the same to the last bit.
pub(crate) fn settled(scaling: Scaling) -> Scaling {
    let unit = (scaling.scale.log2().floor() - 30.0).exp2();
    let round = |value: f64| (value / unit).round() * unit;
    let settled = Scaling { centre: round(scaling.centre), scale: round(scaling.scale) };
    let valid = settled.centre.is_finite() && settled.scale.is_normal();
    if valid { settled } else { scaling }
}

impl Encoder {
    /// An encoder of columns of which nothing is known yet.
    pub(crate) fn new(columns: Vec<Column>, missing: Missing) -> Self {
        Self { columns, missing, fill: vec![], scalings: vec![] }.unscaled()
    }

    /// The dimension of the vectors.
    pub fn width(&self) -> usize {
        self.columns.iter().map(Column::width).sum()
    }

    /// The names of the columns.
    pub fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|c| c.name.as_str()).collect()
    }

    /// How each number of the vectors is scaled.
    pub fn scalings(&self) -> &[Scaling] {
        &self.scalings
    }

    /// The names of the numbers of the vectors: that of the column, with what it is where a column
    /// becomes several.
    pub fn number_names(&self) -> Vec<String> {
        let of = |column: &Column| -> Vec<String> {
            let name = &column.name;
            let mut names: Vec<String> = match &column.kind {
                ColumnKind::Text { categories } => {
                    categories.iter().map(|c| format!("{name}={c}")).collect()
                }
                ColumnKind::TargetMeans { targets, .. } if *targets > 1 => {
                    (0..*targets).map(|t| format!("{name} mean {t}")).collect()
                }
                ColumnKind::Time { clock } => time::names(name, *clock),
                _ => vec![name.clone()],
            };
            names.extend(column.marked.then(|| format!("{name} missing")));
            names
        };
        self.columns.iter().flat_map(of).collect()
    }

    /// Whether rows that a model is fitted to are encoded by their fold.
    pub(crate) fn knows_folds(&self) -> bool {
        self.columns.iter().any(|c| matches!(c.kind, ColumnKind::TargetMeans { .. }))
    }

    /// The encoder that brings every number to mean 0 and variance 1, given the moments of what this
    /// one makes without scaling. What is 0 or 1 stays so, and so do cycles; and so do plain numbers
    /// unless `numbers` are to be scaled.
    pub(crate) fn standardised(&self, moments: &Moments, numbers: bool) -> Self {
        let mut out = self.unscaled();
        let standard = Scaling::standard(moments);
        let mut l = 0;
        for column in &self.columns {
            for n in 0..column.width() {
                if column.is_scaled(n) && (numbers || column.kind != ColumnKind::Number) {
                    out.scalings[l] = settled(standard[l]);
                }
                l += 1;
            }
        }
        out
    }

    /// What is subtracted from each number of the vectors, and what is divided by.
    pub(crate) fn centres_and_scales(&self) -> (Vec<f64>, Vec<f64>) {
        self.scalings.iter().map(|s| (s.centre, s.scale)).unzip()
    }

    /// The encoder that neither centres nor scales.
    pub(crate) fn unscaled(&self) -> Self {
        let width = self.width();
        let mut out = self.clone();
        out.fill.resize(width, 0.0);
        out.scalings = vec![Scaling::IDENTITY; width];
        out
    }

    /// Turns columns, in the encoder's order, into vectors. Rows that a model is fitted to come with
    /// their folds.
    pub(crate) fn encode<T: Float>(
        &self,
        arrays: &[ArrayRef],
        folds: Option<&[u8]>,
    ) -> Result<Encoded<T>> {
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
            let mut slot = Slot::new(self, column, out.as_mut_slice(), width, offset);
            match &column.kind {
                ColumnKind::Text { categories } => slot.texts(array, categories, &mut absent)?,
                ColumnKind::TargetMeans { values, means, .. } => {
                    slot.target_means(array, values, means, folds, &mut absent)?;
                }
                ColumnKind::Time { clock } => slot.times(array, *clock, &mut absent)?,
                ColumnKind::Number | ColumnKind::Boolean => {
                    numbers.push((column, offset, Numbers::of(column, array)?, None));
                }
                ColumnKind::Rank { knots } => {
                    numbers.push((column, offset, Numbers::of(column, array)?, Some(&knots[..])));
                }
            }
            offset += column.width();
        }
        // Some rows at a time: their vectors stay in the nearest cache while the columns come in.
        for start in (0..rows).step_by(BLOCK) {
            for (column, offset, array, knots) in &numbers {
                let mut slot = Slot::new(self, column, out.as_mut_slice(), width, *offset);
                match array {
                    Numbers::Single(values) => slot.numbers(values, *knots, start, &mut absent)?,
                    Numbers::Double(values) => slot.numbers(values, *knots, start, &mut absent)?,
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
