//! Tiles: a block of rows is packed, projected, turned into features and consumed while it is in
//! cache. The matrices of features are never written to memory as a whole.

mod gradient;
mod packing;
mod sums;

pub(crate) use gradient::{GradientTile, OutputGradients, SumGradients, add_outer, feature_panels};
pub(crate) use packing::{pack_rows, packed_rows, squared_norm};
pub(crate) use sums::Sums;

use crate::engine::tensor::{Scalar, Strided};
use crate::map::{PackedSide, Panels};
use crate::simd::{Aligned, Constants, Gemm, Kernels, Layout, Prefetch, Real};
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
    /// The packed vectors, `dim_padded` numbers a row.
    pub(crate) vectors: Aligned<R>,
    /// The features, `stride` numbers a row.
    pub(crate) features: Aligned<R>,
    /// From one row of features to the next: not a power of two, which would crowd the cache.
    pub(crate) stride: usize,
    /// The packed values or the outputs, `value_width` numbers a row.
    pub(crate) values: Aligned<R>,
    pub(crate) value_width: usize,
    /// One number a row.
    pub(crate) terms: Vec<R>,
    pub(crate) row_exponents: Vec<R>,
    /// One number a feature.
    pub(crate) shrink: Vec<R>,
    /// `Tv`, for dense row terms.
    turned: Aligned<R>,
    /// What is used after the projection, and after the product with the features: fetched during
    /// them, because a long sequence comes from memory that is slower than they are.
    pub(crate) prefetch_during_projection: Prefetch,
    pub(crate) prefetch_during_product: Prefetch,
}

impl<R: Real> Scratch<R> {
    /// Memory for the tiles of this many rows. Short inputs need less than a whole tile, which would
    /// have to be cleared for each head.
    pub(crate) fn new(side: &PackedSide<R>, value_columns: usize, rows: usize) -> Self {
        let kernels = R::kernels();
        let capacity = tile_rows(side.weights.width).min(rows.max(1));
        let stride = side.weights.width + kernels.lanes;
        let value_width = value_columns.next_multiple_of(kernels.lanes);
        let turned = side.dense.as_ref().map_or(0, |d| capacity * d.triangle.width);
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
            turned: Aligned::zeros(turned),
            prefetch_during_projection: Prefetch::default(),
            prefetch_during_product: Prefetch::default(),
        }
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
        multiply_panels(
            self.kernels,
            &side.weights,
            (0, side.weights.width),
            count,
            (&self.vectors, side.dim_padded),
            (&mut self.features, stride),
            self.prefetch_during_projection,
        );
        Ok(())
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
            let turned_width = dense.triangle.width;
            multiply_upper(
                self.kernels,
                &dense.triangle,
                rows,
                (&self.vectors, width),
                (&mut self.turned, turned_width),
            );
            // Columns beyond the dimension are copies: they are left out of the norm.
            let columns = side.dim_padded;
            let minus_half = R::from_f64(-0.5);
            let mut a = vec![R::ZERO; columns];
            a[..side.dim].fill(minus_half);
            let zero = vec![R::ZERO; columns];
            let tile = Layout { rows, columns, stride: turned_width };
            self.kernels.row_terms(tile, &self.turned, &a, &zero, &mut self.terms);
        }
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

/// `C = A · panels` for `rows` rows; `A` and `C` come with their row strides.
pub(crate) fn multiply<R: Real>(
    kernels: &Kernels<R>,
    panels: &Panels<R>,
    rows: usize,
    a: (&[R], usize),
    c: (&mut [R], usize),
) {
    multiply_columns(kernels, panels, (0, panels.width), rows, a, c);
}

/// [`multiply`] for the columns `start..end` only, filled up to whole panels; `start` is a multiple
/// of a panel. Returns their number.
pub(crate) fn multiply_columns<R: Real>(
    kernels: &Kernels<R>,
    panels: &Panels<R>,
    columns: (usize, usize),
    rows: usize,
    a: (&[R], usize),
    c: (&mut [R], usize),
) -> usize {
    multiply_panels(kernels, panels, columns, rows, a, c, Prefetch::default())
}

/// [`multiply`] for panels of an upper triangle, which begin where they are not zero.
fn multiply_upper<R: Real>(
    kernels: &Kernels<R>,
    panels: &Panels<R>,
    rows: usize,
    a: (&[R], usize),
    c: (&mut [R], usize),
) {
    for start in (0..panels.width).step_by(panels.panel) {
        let shape = Gemm {
            rows,
            columns: panels.panel,
            depth: panels.depth - start,
            a: (a.1, 1),
            b_row: panels.panel,
            b_panel: 0,
            c_row: c.1,
            accumulate: false,
            prefetch: Prefetch::default(),
        };
        let data = &panels.data[start * panels.depth + start * panels.panel..];
        kernels.gemm(&shape, &a.0[start..], data, &mut c.0[start..]);
    }
}

fn multiply_panels<R: Real>(
    kernels: &Kernels<R>,
    panels: &Panels<R>,
    (start, end): (usize, usize),
    rows: usize,
    a: (&[R], usize),
    c: (&mut [R], usize),
    prefetch: Prefetch,
) -> usize {
    let width = end.next_multiple_of(panels.panel).min(panels.width) - start;
    let data = &panels.data[start * panels.depth..(start + width) * panels.depth];
    let shape = Gemm {
        rows,
        columns: width,
        depth: panels.depth,
        a: (a.1, 1),
        b_row: panels.panel,
        b_panel: panels.depth * panels.panel,
        c_row: c.1,
        accumulate: false,
        prefetch,
    };
    kernels.gemm(&shape, a.0, data, c.0);
    width
}

/// `out = left · right`, where `left` has a row stride and `right` `depth` rows of its width.
pub(crate) fn times_rows<R: Real>(
    kernels: &Kernels<R>,
    left: (&[R], usize),
    depth: usize,
    rows: usize,
    right: (&[R], usize),
    out: &mut [R],
) {
    rows_product(kernels, left, depth, rows, right, (out, false), Prefetch::default());
}

/// `out += left · right`, as for [`times_rows`].
pub(crate) fn add_times_rows<R: Real>(
    kernels: &Kernels<R>,
    left: (&[R], usize),
    depth: usize,
    rows: usize,
    right: (&[R], usize),
    out: &mut [R],
) {
    rows_product(kernels, left, depth, rows, right, (out, true), Prefetch::default());
}

/// [`times_rows`], or [`add_times_rows`] where `accumulate`, while what is read next is fetched.
pub(crate) fn rows_product<R: Real>(
    kernels: &Kernels<R>,
    left: (&[R], usize),
    depth: usize,
    rows: usize,
    right: (&[R], usize),
    (out, accumulate): (&mut [R], bool),
    prefetch: Prefetch,
) {
    let shape = Gemm {
        rows,
        columns: right.1,
        depth,
        a: (left.1, 1),
        b_row: right.1,
        b_panel: 2 * kernels.lanes,
        c_row: right.1,
        accumulate,
        prefetch,
    };
    kernels.gemm(&shape, left.0, right.0, out);
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
