//! One calibration sequence of one head, laid out for the products of a step.

use super::numbers::{Coordinates, LOG2_E, Shape};
use crate::simd::Real;
use crate::{Kernel, Matrix};

/// A logit so low that its weight is zero, with room to add a constant.
pub(super) fn hidden<R: Real>() -> R {
    R::from_f64(R::LOWEST.to_f64() / 4.0)
}

/// The queries and keys of a sequence that are not padding.
pub(super) struct Sequence<R> {
    /// Their positions in the sequence.
    pub(super) query_places: Vec<usize>,
    pub(super) key_places: Vec<usize>,
    /// The number of keys, padded to whole vectors, and the stride between rows of that many numbers: not
    /// a power of two, which would cause cache conflicts.
    pub(super) width: usize,
    pub(super) stride: usize,
    /// Queries unscaled, `dim` numbers per row, and keys transposed, times the kernel's scale squared.
    pub(super) queries: Vec<R>,
    pub(super) keys: Vec<R>,
    /// `α‖sk‖²`, and a masked logit beyond the last key.
    pub(super) key_constants: Vec<R>,
    /// `α‖sq‖²`.
    pub(super) query_constants: Vec<f64>,
    /// Both in the coordinates of the map: queries by rows, keys transposed and by padded rows.
    pub(super) query_coordinates: Vec<R>,
    pub(super) key_coordinates: Vec<R>,
    pub(super) key_rows: Vec<R>,
    /// Row terms without their quadratic part.
    pub(super) query_terms: Vec<R>,
    pub(super) key_terms: Vec<R>,
    /// The values of the keys, if there are any.
    pub(super) values: Option<Values<R>>,
}

/// Values of the keys, by rows and transposed.
pub(super) struct Values<R> {
    pub(super) numbers: Vec<R>,
    pub(super) width: usize,
    pub(super) columns: Vec<R>,
}

/// What a sequence is made of: rows of one head with their positions.
pub(super) struct Raw {
    pub(super) queries: Matrix<f64>,
    pub(super) keys: Matrix<f64>,
    pub(super) values: Option<Matrix<f64>>,
    pub(super) query_places: Vec<usize>,
    pub(super) key_places: Vec<usize>,
}

impl<R: Real> Sequence<R> {
    pub(super) fn new(raw: Raw, kernel: Kernel, query: &Coordinates, key: &Coordinates) -> Self {
        let Raw { queries, keys, values, query_places, key_places } = raw;
        let lanes = R::kernels().lanes;
        let (count, dim) = keys.shape();
        let width = count.next_multiple_of(lanes);
        let stride = width + lanes;
        let scale = kernel.scale();
        let factor = scale * scale * LOG2_E;
        let alpha = |row: &[f64]| kernel.alpha() * factor * crate::linalg::dot(row, row);
        let mut key_constants = vec![hidden::<R>(); width];
        for (constant, row) in key_constants.iter_mut().zip(keys.view().iter()) {
            *constant = R::from_f64(alpha(row));
        }
        let shape = Shape::new::<R>(1, dim);
        let (z_queries, query_terms) = query.of(&queries, scale);
        let (z_keys, key_terms) = key.of(&keys, scale);
        let mut key_rows = vec![R::ZERO; count * shape.dim_padded];
        for (row, z) in key_rows.chunks_mut(shape.dim_padded).zip(z_keys.view().iter()) {
            row.iter_mut().zip(z).for_each(|(r, z)| *r = R::from_f64(*z));
        }
        let all = |numbers: &[f64], factor: f64| -> Vec<R> {
            numbers.iter().map(|v| R::from_f64(v * factor)).collect()
        };
        let mut key_terms = all(&key_terms, LOG2_E);
        key_terms.resize(width, R::ZERO);
        Self {
            query_constants: queries.view().iter().map(alpha).collect(),
            queries: all(queries.as_slice(), 1.0),
            keys: transposed(&keys, stride, factor),
            key_constants,
            query_coordinates: all(z_queries.as_slice(), 1.0),
            key_coordinates: transposed(&z_keys, stride, 1.0),
            key_rows,
            query_terms: all(&query_terms, LOG2_E),
            key_terms,
            query_places,
            key_places,
            width,
            stride,
            values: values.map(|v| Values::new(&v, stride)),
        }
    }

    /// The number of keys that a query sees.
    pub(super) fn seen(&self, query: usize, causal: bool) -> usize {
        let place = self.query_places[query];
        if causal {
            self.key_places.partition_point(|&p| p <= place)
        } else {
            self.key_places.len()
        }
    }
}

impl<R: Real> Values<R> {
    fn new(rows: &Matrix<f64>, stride: usize) -> Self {
        let width = rows.columns().next_multiple_of(R::kernels().lanes);
        let mut numbers = vec![R::ZERO; rows.rows() * width];
        for (out, row) in numbers.chunks_mut(width).zip(rows.view().iter()) {
            out.iter_mut().zip(row).for_each(|(o, v)| *o = R::from_f64(*v));
        }
        Self { numbers, width, columns: transposed(rows, stride, 1.0) }
    }
}

/// The rows as columns, `stride` numbers per row.
fn transposed<R: Real>(rows: &Matrix<f64>, stride: usize, factor: f64) -> Vec<R> {
    let mut out = vec![R::ZERO; rows.columns() * stride];
    for (j, row) in rows.view().iter().enumerate() {
        for (l, x) in row.iter().enumerate() {
            out[l * stride + j] = R::from_f64(x * factor);
        }
    }
    out
}
