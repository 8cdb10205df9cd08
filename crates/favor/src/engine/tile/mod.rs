//! Tiles: a block of rows is packed, projected, turned into features and consumed while it is in
//! cache. The matrices of features are never written to memory as a whole.

mod gradient;
mod multiply;
mod packing;
mod sums;

pub(crate) use gradient::{
    GradientTile, OutputGradients, SumGradients, Triangle, add_outer, feature_panels,
};
pub(crate) use multiply::Product;
pub(crate) use packing::{pack_rows, packed_rows, squared_norm};
pub(crate) use sums::{Pending, Sums, all_finite};

use crate::engine::tensor::{Scalar, Strided};
use crate::map::{Dense, PackedSide};
use crate::simd::{Aligned, Constants, Kernels, Layout, Prefetch, Real};
use crate::{Error, Result};

/// Numbers of a tile of features: it should stay in the second-level cache beside the weights.
const TILE_NUMBERS: usize = 12 * 1024;

/// Rows of a tile for this many features.
pub(crate) fn tile_rows(width: usize) -> usize {
    (TILE_NUMBERS / width.max(1)).clamp(24, 192) / 12 * 12
}

/// Memory for the tiles of one thread.
pub(crate) struct Scratch<R: Real> {
    pub(crate) kernels: &'static Kernels<R>,
    /// Rows a tile can hold.
    pub(crate) capacity: usize,
    /// The packed vectors, `dim_padded` numbers per row.
    pub(crate) vectors: Aligned<R>,
    /// The features, `stride` numbers per row.
    pub(crate) features: Aligned<R>,
    /// From one row of features to the next: not a power of two, which would crowd the cache.
    pub(crate) stride: usize,
    /// The packed values or the outputs, `value_width` numbers per row.
    pub(crate) values: Aligned<R>,
    pub(crate) value_width: usize,
    /// One number per row.
    pub(crate) terms: Vec<R>,
    pub(crate) row_exponents: Vec<R>,
    /// One number per feature.
    pub(crate) shrink: Vec<R>,
    /// `Tv`, for dense row terms.
    transformed: Aligned<R>,
    /// What is used after the projection, and after the product with the features: fetched during
    /// them, because a long sequence comes from memory that is slower than they are.
    pub(crate) prefetch_during_projection: Prefetch,
    pub(crate) prefetch_during_product: Prefetch,
}

impl<R: Real> Scratch<R> {
    /// Memory for the tiles of this many rows. Short inputs need less than a whole tile, which would
    /// have to be cleared for each head.
    pub(crate) fn new(side: &PackedSide<R>, value_columns: usize, rows: usize) -> Self {
        let capacity = tile_rows(side.weights.width).min(rows.max(1));
        Self::with_capacity(side, value_columns, capacity)
    }

    /// Memory for tiles of exactly this many rows.
    pub(crate) fn with_capacity(
        side: &PackedSide<R>,
        value_columns: usize,
        capacity: usize,
    ) -> Self {
        let kernels = R::kernels();
        let stride = side.weights.width + kernels.lanes;
        let value_width = value_columns.next_multiple_of(kernels.lanes);
        let transformed = side.dense.as_ref().map_or(0, |d| capacity * d.triangle.width);
        Self {
            kernels,
            capacity,
            vectors: Aligned::zeros(capacity * side.dim_padded),
            features: Aligned::zeros(capacity * stride),
            stride,
            values: Aligned::zeros(capacity * value_width),
            value_width,
            terms: vec![R::ZERO; capacity],
            row_exponents: vec![R::ZERO; capacity],
            shrink: vec![R::ZERO; side.weights.width],
            transformed: Aligned::zeros(transformed),
            prefetch_during_projection: Prefetch::default(),
            prefetch_during_product: Prefetch::default(),
        }
    }

    /// Whether it is what `new` would make.
    pub(crate) fn fits(&self, side: &PackedSide<R>, value_columns: usize, rows: usize) -> bool {
        let lanes = self.kernels.lanes;
        let transformed = side.dense.as_ref().map_or(0, |d| self.capacity * d.triangle.width);
        self.capacity == tile_rows(side.weights.width).min(rows.max(1))
            && self.stride == side.weights.width + lanes
            && self.vectors.len() == self.capacity * side.dim_padded
            && self.value_width == value_columns.next_multiple_of(lanes)
            && self.transformed.len() == transformed
    }

    pub(crate) fn tile(&self, side: &PackedSide<R>, rows: usize) -> Layout {
        Layout { rows, columns: side.weights.width, stride: self.stride }
    }

    /// Packs the given rows, scaled and moved, and projects them into `features`.
    pub(crate) fn project<T: Scalar<Real = R>>(
        &mut self,
        side: &PackedSide<R>,
        what: &'static str,
        source: Strided<'_, T>,
        rows: &[usize],
    ) -> Result<()> {
        let finite = self.pack_vectors(side, source, rows);
        if !finite {
            return Err(source.non_finite(what, rows).unwrap_or_else(overflow::<T>));
        }
        let (count, stride) = (rows.len(), self.stride);
        Product::new(self.kernels, (&self.vectors, side.dim_padded), count)
            .prefetching(self.prefetch_during_projection)
            .panels(&side.weights, (0, side.weights.width), (&mut self.features, stride));
        Ok(())
    }

    /// Scales and moves rows of `dim_padded` numbers into `vectors`.
    pub(crate) fn move_rows(&mut self, side: &PackedSide<R>, rows: &[R], count: usize) {
        let width = side.dim_padded;
        let tile = Layout { rows: count, columns: width, stride: width };
        self.kernels.affine(tile, rows, side.scale, &side.shift, &mut self.vectors);
    }

    /// Projects what is in `vectors` into `features`.
    pub(crate) fn project_moved(&mut self, side: &PackedSide<R>, count: usize) {
        let out = (&mut self.features[..], self.stride);
        Product::new(self.kernels, (&self.vectors, side.dim_padded), count).panels(
            &side.weights,
            (0, side.weights.width),
            out,
        );
    }

    fn pack_vectors<T: Scalar<Real = R>>(
        &mut self,
        side: &PackedSide<R>,
        source: Strided<'_, T>,
        rows: &[usize],
    ) -> bool {
        let width = side.dim_padded;
        if let (Some(x), true) = (source.in_place(rows), width == side.dim) {
            let tile = Layout { rows: rows.len(), columns: width, stride: source.row_stride };
            return self.kernels.affine(tile, x, side.scale, &side.shift, &mut self.vectors);
        }
        for (out, &i) in self.vectors.chunks_mut(width).zip(rows) {
            source.widen_row(i, &mut out[..side.dim]);
            out[side.dim..].fill(R::ZERO);
        }
        let tile = Layout { rows: rows.len(), columns: width, stride: width };
        let plain = self.vectors.clone();
        self.kernels.affine(tile, &plain, side.scale, &side.shift, &mut self.vectors)
    }

    /// The row terms of the packed vectors.
    pub(crate) fn compute_terms(&mut self, side: &PackedSide<R>, rows: usize) {
        let width = side.dim_padded;
        let tile = Layout { rows, columns: width, stride: width };
        self.terms[..rows].fill(side.row_constant);
        self.kernels.row_terms(tile, &self.vectors, &side.row_a, &side.row_b, &mut self.terms);
        if let Some(dense) = &side.dense {
            let transformed_width = dense.triangle.width;
            Product::new(self.kernels, (&self.vectors, width), rows)
                .upper(&dense.triangle, (&mut self.transformed, transformed_width));
            // Columns beyond the dimension are copies: they are left out of the norm.
            let columns = side.dim_padded;
            let tile = Layout { rows, columns, stride: transformed_width };
            let Dense { halves, zeros, .. } = dense;
            self.kernels.row_terms(tile, &self.transformed, halves, zeros, &mut self.terms);
        }
    }

    /// The same of rows whose terms may be known: one number per row of the input, or nothing.
    pub(crate) fn known_terms(&mut self, side: &PackedSide<R>, rows: &[usize], known: &[R]) {
        if known.is_empty() {
            return self.compute_terms(side, rows.len());
        }
        self.terms.iter_mut().zip(rows).for_each(|(term, &i)| *term = known[i]);
    }

    /// Turns projections of keys into features, with the row terms that were computed.
    pub(crate) fn key_features(&mut self, side: &PackedSide<R>, exponents: &[R], rows: usize) {
        let tile = self.tile(side, rows);
        let Self { kernels, features, terms, shrink: unused, .. } = self;
        kernels.key_features(tile, features, terms, &side.constants, exponents, unused);
    }

    /// Packs the values of the given rows.
    pub(crate) fn pack_values<T: Scalar<Real = R>>(
        &mut self,
        what: &'static str,
        source: Strided<'_, T>,
        rows: &[usize],
    ) -> Result<()> {
        let mut finite = true;
        for (out, &i) in self.values.chunks_mut(self.value_width).zip(rows) {
            source.widen_row(i, &mut out[..source.columns]);
            out[source.columns..].fill(R::ZERO);
            finite &= out.iter().fold(true, |all, v| all & v.is_finite());
        }
        if finite {
            Ok(())
        } else {
            Err(source.non_finite(what, rows).unwrap_or_else(overflow::<T>))
        }
    }
}

/// Writes rows of a tile, times their factors, one after the other to `out`.
pub(crate) fn store_rows<T: Scalar>(
    kernels: &Kernels<T::Real>,
    values: &[T::Real],
    width: usize,
    factors: &[T::Real],
    columns: usize,
    out: &mut [T],
) {
    if columns.is_multiple_of(kernels.lanes)
        && let Some(out) = T::as_real_mut(out)
    {
        let tile = Layout { rows: out.len() / columns, columns, stride: width };
        return kernels.scale_rows(tile, values, factors, out);
    }
    let rows = out.chunks_mut(columns).zip(values.chunks(width)).zip(factors);
    rows.for_each(|((out, row), factor)| T::scaled_into(row, *factor, out));
}

/// Writes row `i` of a tile to row `rows[i] − start` of `out`.
pub(crate) fn write_rows<T: Scalar>(
    values: &[T::Real],
    width: usize,
    rows: &[usize],
    start: usize,
    columns: usize,
    out: &mut [T],
) {
    store_scaled(T::Real::ONE, values, width, rows, start, columns, out);
}

/// [`write_rows`] with a factor.
pub(crate) fn store_scaled<T: Scalar>(
    factor: T::Real,
    values: &[T::Real],
    width: usize,
    rows: &[usize],
    start: usize,
    columns: usize,
    out: &mut [T],
) {
    let kernels = T::Real::kernels();
    let mut from = 0;
    // Runs of rows that follow one another are written at once.
    for run in rows.chunk_by(|a, b| a + 1 == *b) {
        let at = (run[0] - start) * columns;
        let out = &mut out[at..at + run.len() * columns];
        let factors = vec![factor; run.len()];
        store_rows(kernels, &values[from * width..], width, &factors, columns, out);
        from += run.len();
    }
}

pub(crate) fn overflow<T: Scalar>() -> Error {
    Error::Overflow {
        operation: "the logarithm of the features",
        format: T::NAME,
        hint: "divide the data by a constant or use f64",
    }
}
