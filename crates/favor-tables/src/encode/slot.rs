//! The place of one column in the vectors of a batch.

use super::{Column, Encoder, Missing};
use crate::{Error, Remedy, Result};
use favor::Float;
use favor::learn::Scaling;

/// Rows that are encoded at a time.
pub(super) const BLOCK: usize = 128;

/// The rows with a missing value, as far as the policy wants to know.
pub(super) struct Absent {
    pub(super) missing: Missing,
    pub(super) rows: Vec<usize>,
}

/// The place of one column in the vectors.
pub(super) struct Slot<'a, T> {
    pub(super) column: &'a Column,
    pub(super) data: &'a mut [T],
    pub(super) width: usize,
    pub(super) offset: usize,
    /// Of the numbers of this column.
    pub(super) scalings: &'a [Scaling],
    fill: &'a [f64],
}

impl<'a, T: Float> Slot<'a, T> {
    pub(super) fn new(
        encoder: &'a Encoder,
        column: &'a Column,
        data: &'a mut [T],
        width: usize,
        offset: usize,
    ) -> Self {
        let own = offset..offset + column.width();
        let (scalings, fill) = (&encoder.scalings[own.clone()], &encoder.fill[own]);
        Self { column, data, width, offset, scalings, fill }
    }

    /// Puts the n-th number of a row.
    pub(super) fn put(&mut self, row: usize, n: usize, value: f64) {
        self.data[row * self.width + self.offset + n] = T::from_f64(self.scalings[n].apply(value));
    }

    /// Does with a missing value what is to be done: `what` says what is there instead, as in "null".
    pub(super) fn miss(&mut self, row: usize, what: &str, absent: &mut Absent) -> Result<()> {
        self.miss_for(row, absent, |column| {
            let reason = format!("has missing values ({what})");
            Error::mendable(&column.name, reason, Remedy::DropOrFillMissing)
        })
    }

    /// The same where the value is a text that the model has not seen.
    pub(super) fn unknown(&mut self, row: usize, text: &str, absent: &mut Absent) -> Result<()> {
        self.miss_for(row, absent, |column| {
            let reason = format!("holds '{text}', which the model has not seen");
            Error::mendable(&column.name, reason, Remedy::DropOrFillMissing)
        })
    }

    fn miss_for(
        &mut self,
        row: usize,
        absent: &mut Absent,
        why: impl FnOnce(&Column) -> Error,
    ) -> Result<()> {
        match absent.missing {
            Missing::Error => return Err(why(self.column)),
            Missing::Drop => absent.rows.push(row),
            Missing::Mean | Missing::Mark => {
                let values = self.column.values();
                for n in 0..values {
                    self.put(row, n, self.fill[n]);
                }
                if self.column.marked {
                    self.put(row, values, 1.0);
                }
            }
        }
        Ok(())
    }
}
