//! A matrix inside a tensor: rows and columns at any distance from one another.

use super::Scalar;
use crate::simd::Prefetch;
use crate::{Error, Float, Matrix, Rows};

/// A borrowed matrix with any strides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strided<'a, T> {
    pub(crate) data: &'a [T],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

impl<'a, T: Float> Strided<'a, T> {
    /// A set of vectors.
    pub(crate) fn of(rows: Rows<'a, T>) -> Self {
        Self {
            data: rows.data(),
            rows: rows.rows(),
            columns: rows.columns(),
            row_stride: rows.stride(),
            column_stride: 1,
        }
    }
}

impl<'a, T: Scalar> Strided<'a, T> {
    /// The numbers `i, l` without a check beyond the slice's own.
    pub(crate) fn at(&self, i: usize, l: usize) -> T {
        self.data[i * self.row_stride + l * self.column_stride]
    }

    /// The row, where its numbers lie side by side.
    pub(crate) fn row(&self, i: usize) -> Option<&'a [T]> {
        let start = i * self.row_stride;
        (self.column_stride == 1).then(|| &self.data[start..start + self.columns])
    }

    /// The given rows where they lie, from the first on, if they follow one another and need no
    /// conversion.
    pub(crate) fn in_place(&self, rows: &[usize]) -> Option<&'a [T::Real]> {
        let first = *rows.first()?;
        let follow = self.row_stride >= self.columns
            && rows.iter().enumerate().fold(true, |all, (n, row)| all & (*row == first + n));
        if self.column_stride == 1 && follow {
            T::as_real(&self.data[first * self.row_stride..])
        } else {
            None
        }
    }

    /// The given rows, to be fetched before they are read.
    pub(crate) fn prefetch(&self, rows: &[usize]) -> Prefetch {
        match self.in_place(rows) {
            Some(data) if self.row_stride == self.columns => {
                Prefetch::of(&data[..rows.len() * self.columns])
            }
            _ => Prefetch::default(),
        }
    }

    /// Copies a row, converted, to `out`.
    pub(crate) fn widen_row(&self, i: usize, out: &mut [T::Real]) {
        match self.row(i) {
            Some(row) => row.iter().zip(out).for_each(|(x, o)| *o = x.widen()),
            None => (0..self.columns).zip(out).for_each(|(l, o)| *o = self.at(i, l).widen()),
        }
    }

    /// The error that names the first entry of a row that is not finite.
    pub(crate) fn non_finite(&self, what: &'static str, rows: &[usize]) -> Option<Error> {
        for &row in rows {
            // In one sweep where the numbers lie side by side: nearly always all is well.
            if self.row(row).is_some_and(|r| r.iter().fold(true, |a, x| a & x.widen().is_finite()))
            {
                continue;
            }
            for column in 0..self.columns {
                let value = self.at(row, column).widen();
                if !value.is_finite() {
                    let value = value.to_f64();
                    return Some(Error::NonFinite { what: what.into(), row, column, value });
                }
            }
        }
        None
    }

    /// The matrix in `f64`.
    pub(crate) fn to_matrix(self) -> Matrix<f64> {
        Matrix::from_fn(self.rows, self.columns, |i, l| self.at(i, l).widen().to_f64())
    }
}
