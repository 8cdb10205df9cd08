//! Sets of vectors: a borrowed view of rows and an owned matrix.

use crate::{Error, Float, Result};
use serde::{Deserialize, Serialize};

/// A borrowed set of vectors, one per row. Rows may be `stride` numbers apart.
///
/// ```
/// use favor::Rows;
/// let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let set = Rows::new(&data, 3, 2)?;
/// assert_eq!(set.row(1), &[3.0, 4.0]);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    stride: usize,
}

impl<'a, T: Float> Rows<'a, T> {
    /// Interprets `data` as `rows` contiguous rows of `columns` numbers.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Result<Self> {
        if rows.checked_mul(columns) != Some(data.len()) {
            return Err(Error::invalid(
                "rows",
                format!("{rows} rows of {columns} columns do not make {} numbers", data.len()),
            ));
        }
        Ok(Self { data, rows, columns, stride: columns })
    }

    /// Interprets `data` as rows that start `stride` numbers apart.
    pub fn with_stride(data: &'a [T], rows: usize, columns: usize, stride: usize) -> Result<Self> {
        let needed = match rows {
            0 => Some(0),
            _ => (rows - 1).checked_mul(stride).and_then(|n| n.checked_add(columns)),
        };
        if stride < columns || needed.is_none_or(|n| n > data.len()) {
            return Err(Error::invalid(
                "rows",
                format!(
                    "{rows} rows of {columns} columns, {stride} apart, do not fit in {} numbers",
                    data.len()
                ),
            ));
        }
        Ok(Self { data, rows, columns, stride })
    }

    /// The numbers, and the stride between rows.
    pub(crate) fn data(&self) -> &'a [T] {
        self.data
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Number of vectors.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Dimension of each vector.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// One vector. Panics if `row` is out of range, like indexing a slice.
    pub fn row(&self, row: usize) -> &'a [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let start = row * self.stride;
        &self.data[start..start + self.columns]
    }

    /// Rows `start..end`, clipped to the set.
    pub fn slice(&self, start: usize, end: usize) -> Rows<'a, T> {
        let end = end.min(self.rows);
        let start = start.min(end);
        let data = if start == end { &[] } else { &self.data[start * self.stride..] };
        Rows { data, rows: end - start, columns: self.columns, stride: self.stride }
    }

    /// The vectors in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [T]> + use<'a, T> {
        let this = *self;
        (0..this.rows).map(move |i| this.row(i))
    }

    /// Successive blocks of at most `size` rows.
    pub fn blocks(&self, size: usize) -> impl Iterator<Item = Rows<'a, T>> + use<'a, T> {
        let this = *self;
        (0..this.rows.div_ceil(size.max(1))).map(move |b| this.slice(b * size, (b + 1) * size))
    }

    /// The same numbers as an owned `f64` matrix, each multiplied by `scale`.
    pub fn to_f64(&self, scale: f64) -> Matrix<f64> {
        let mut data = Vec::with_capacity(self.rows * self.columns);
        for row in self.iter() {
            data.extend(row.iter().map(|v| v.to_f64() * scale));
        }
        Matrix { data, rows: self.rows, columns: self.columns }
    }

    /// An error that names the first entry that is not finite, if there is one.
    pub fn check_finite(&self, what: &'static str) -> Result<()> {
        for (row, values) in self.iter().enumerate() {
            if let Some(column) = values.iter().position(|v| !v.is_finite()) {
                return Err(Error::NonFinite {
                    what: what.into(),
                    row,
                    column,
                    value: values[column].to_f64(),
                });
            }
        }
        Ok(())
    }

    /// An error if there are no rows or no columns.
    pub fn check_nonempty(&self, what: &'static str) -> Result<()> {
        if self.rows == 0 || self.columns == 0 {
            return Err(Error::Empty { what: what.into(), rows: self.rows, columns: self.columns });
        }
        Ok(())
    }
}

/// An owned matrix in row-major order.
///
/// ```
/// use favor::Matrix;
/// let m = Matrix::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3)?;
/// assert_eq!((m.row(1), m[(0, 2)]), (&[4.0, 5.0, 6.0][..], 3.0));
/// assert_eq!(m.transposed().shape(), (3, 2));
/// assert_eq!(m.view().rows(), 2); // as the functions of this crate take it
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawMatrix<T>", bound(deserialize = "T: Float + Deserialize<'de>"))]
pub struct Matrix<T> {
    data: Vec<T>,
    rows: usize,
    columns: usize,
}

#[derive(Deserialize)]
struct RawMatrix<T> {
    data: Vec<T>,
    rows: usize,
    columns: usize,
}

impl<T: Float> TryFrom<RawMatrix<T>> for Matrix<T> {
    type Error = Error;
    fn try_from(raw: RawMatrix<T>) -> Result<Self> {
        Self::new(raw.data, raw.rows, raw.columns)
    }
}

impl<T: Float> Matrix<T> {
    /// A matrix of `rows` rows of `columns` numbers from `data`.
    pub fn new(data: Vec<T>, rows: usize, columns: usize) -> Result<Self> {
        Rows::new(&data, rows, columns)?;
        Ok(Self { data, rows, columns })
    }

    /// A matrix of zeros.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { data: vec![T::default(); rows * columns], rows, columns }
    }

    /// A matrix given entry by entry.
    pub fn from_fn(rows: usize, columns: usize, mut entry: impl FnMut(usize, usize) -> T) -> Self {
        let mut data = Vec::with_capacity(rows * columns);
        for i in 0..rows {
            for j in 0..columns {
                data.push(entry(i, j));
            }
        }
        Self { data, rows, columns }
    }

    /// The identity of size `n`.
    pub fn identity(n: usize) -> Self {
        Self::from_fn(n, n, |i, j| T::from_f64(f64::from(u8::from(i == j))))
    }

    /// A view of the rows.
    pub fn view(&self) -> Rows<'_, T> {
        Rows { data: &self.data, rows: self.rows, columns: self.columns, stride: self.columns }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[T] {
        &self.data[row * self.columns..(row + 1) * self.columns]
    }

    /// One row, mutable.
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        &mut self.data[row * self.columns..(row + 1) * self.columns]
    }

    /// All numbers, in row-major order.
    pub fn as_slice(&self) -> &[T] {
        &self.data
    }

    /// All numbers, in row-major order, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// Returns the numbers.
    pub fn into_vec(self) -> Vec<T> {
        self.data
    }

    /// The transpose.
    pub fn transposed(&self) -> Self {
        Self::from_fn(self.columns, self.rows, |i, j| self.data[j * self.columns + i])
    }
}

impl<T> std::ops::Index<(usize, usize)> for Matrix<T> {
    type Output = T;
    fn index(&self, (i, j): (usize, usize)) -> &T {
        &self.data[i * self.columns + j]
    }
}

impl<T> std::ops::IndexMut<(usize, usize)> for Matrix<T> {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut T {
        &mut self.data[i * self.columns + j]
    }
}
