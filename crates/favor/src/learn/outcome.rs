//! What is known of rows, and how it stands in sums.

use super::Scaling;
use crate::{Error, Result, Rows};
use serde::{Deserialize, Serialize};

/// What a head predicts.
///
/// ```
/// use favor::learn::Outcome;
/// assert_eq!(Outcome::Classes(3).width(), 3);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// One of so many classes, as one-hot columns.
    Classes(usize),
    /// Numbers, each with the scaling in which it is summed. None at all where only the rows matter.
    Numbers(Vec<Scaling>),
}

impl Outcome {
    /// Columns in the sums.
    pub fn width(&self) -> usize {
        match self {
            Self::Classes(count) => *count,
            Self::Numbers(scalings) => scalings.len(),
        }
    }
}

/// What is known of some rows.
#[derive(Debug, Clone, Copy)]
pub enum Known<'a> {
    /// The index of each row's class.
    Classes(&'a [usize]),
    /// One row of numbers per row, in their own units.
    Numbers(Rows<'a, f64>),
    /// Nothing: for an outcome of no numbers.
    Nothing,
}

impl Known<'_> {
    /// An error unless it has one entry per row that fits the outcome.
    pub(super) fn check(&self, outcome: &Outcome, rows: usize) -> Result<()> {
        let bad = |reason: String| Err(Error::invalid("targets", reason));
        let count = |found: usize| {
            if found == rows { Ok(()) } else { bad(format!("{found} for {rows} rows")) }
        };
        match (self, outcome) {
            (Self::Classes(of), Outcome::Classes(classes)) => {
                count(of.len())?;
                match of.iter().position(|c| c >= classes) {
                    Some(i) => bad(format!("class {} of row {i} where there are {classes}", of[i])),
                    None => Ok(()),
                }
            }
            (Self::Numbers(values), Outcome::Numbers(scalings)) => {
                count(values.rows())?;
                if values.columns() != scalings.len() {
                    let (found, wanted) = (values.columns(), scalings.len());
                    return bad(format!("{found} columns where there are {wanted} targets"));
                }
                Ok(())
            }
            (Self::Nothing, Outcome::Numbers(scalings)) if scalings.is_empty() => Ok(()),
            (_, Outcome::Classes(_)) => bad("classes are needed".into()),
            (_, Outcome::Numbers(_)) => bad("numbers are needed".into()),
        }
    }
}
