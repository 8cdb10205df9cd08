//! Gradients of one head, by recomputation: nothing of the forward pass is kept but its output.
//!
//! With `g_i = dO_i / D_i` and `δ_i = −g_i·O_i`, the gradients of the log-features are
//! `P_im (g_i·S_m + δ_i z_m)` for queries and `F_jm (v_j·T_m + y_m)` for keys, where
//! `T_m = Σ_i P_im g_i` and `y_m = Σ_i P_im δ_i`. The exponents of features and rows cancel in all of
//! them. A query's row term has no gradient: it cancels in the normalisation.

use super::packing::packed_rows;
use super::sums::Sums;
use super::{Product, Scratch, overflow};
use crate::Result;
use crate::engine::tensor::Scalar;
use crate::engine::tensor::Strided;
use crate::map::{PackedSide, Panels};
use crate::simd::{Aligned, Gemm, Kernels, Layout, Prefetch, Real};

/// `T` and `y`, the gradients of the sums over the keys, relative to the features' exponents.
#[derive(Debug, Clone)]
pub(crate) struct SumGradients<R> {
    /// `width` numbers per feature.
    pub(crate) values: Aligned<R>,
    pub(crate) totals: Vec<R>,
    pub(crate) width: usize,
}

impl<R: Real> SumGradients<R> {
    pub(crate) fn like(sums: &Sums<R>) -> Self {
        Self {
            values: Aligned::zeros(sums.values.len()),
            totals: vec![R::ZERO; sums.totals.len()],
            width: sums.width,
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let add = |a: &mut [R], b: &[R]| {
            for (a, b) in a.iter_mut().zip(b) {
                *a = *a + *b;
            }
        };
        add(&mut self.values, &other.values);
        add(&mut self.totals, &other.totals);
    }

    /// Multiplies each feature by a power of two.
    pub(crate) fn scale(&mut self, factor: impl Fn(usize) -> f64) {
        for (m, row) in self.values.chunks_mut(self.width).enumerate() {
            let factor = factor(m);
            if factor != 1.0 {
                row.iter_mut().for_each(|v| *v = R::from_f64(v.to_f64() * factor));
                self.totals[m] = R::from_f64(self.totals[m].to_f64() * factor);
            }
        }
    }
}

/// A matrix with one row per feature, packed for products over its columns; zero beyond the features.
pub(crate) fn feature_panels<R: Real>(values: &[R], width: usize, features: usize) -> Panels<R> {
    let mut panels = Panels::zeros(features, width);
    panels.transpose_rows(values, width, features);
    panels
}

/// `g` and `δ` of a tile of queries.
pub(crate) struct OutputGradients<R> {
    /// `g`, `width` numbers per row.
    pub(crate) g: Aligned<R>,
    pub(crate) delta: Vec<R>,
    pub(crate) width: usize,
}

impl<R: Real> OutputGradients<R> {
    pub(crate) fn new(capacity: usize, columns: usize) -> Self {
        let width = columns.next_multiple_of(R::kernels().lanes);
        Self { g: Aligned::zeros(capacity * width), delta: vec![R::ZERO; capacity], width }
    }

    /// Reads the rows of the output and of its gradient, and divides by the denominators.
    pub(crate) fn load<T: Scalar<Real = R>>(
        &mut self,
        out: Strided<'_, T>,
        grad: Strided<'_, T>,
        rows: &[usize],
        denominators: &[R],
    ) -> Result<()> {
        // A query that saw no key has no denominator and no gradient.
        let inverse = |d: &R| if *d == R::ZERO { R::ZERO } else { R::from_f64(1.0 / d.to_f64()) };
        let inverses: Vec<R> = denominators[..rows.len()].iter().map(inverse).collect();
        let width = self.width;
        let tile = |stride: usize| Layout { rows: rows.len(), columns: width, stride };
        let kernels = R::kernels();
        let (packed_out, packed_grad);
        let (o, g) = match (out.in_place(rows), grad.in_place(rows)) {
            (Some(o), Some(g)) if width == grad.columns => {
                ((o, out.row_stride), (g, grad.row_stride))
            }
            _ => {
                packed_out = packed_rows(out, rows, width, 1.0);
                packed_grad = packed_rows(grad, rows, width, 1.0);
                ((&packed_out[..], width), (&packed_grad[..], width))
            }
        };
        kernels.scale_rows(tile(g.1), g.0, &inverses, &mut self.g);
        kernels.row_products(tile(o.1), o.0, &self.g, &mut self.delta);
        for (delta, i) in self.delta.iter_mut().zip(rows) {
            *delta = R::ZERO - *delta;
            if !delta.is_finite() {
                let found = grad.non_finite("output gradient", &[*i]);
                return Err(found.unwrap_or_else(overflow::<T>));
            }
        }
        Ok(())
    }
}

/// The buffers of a tile's gradient.
pub(crate) struct GradientTile<R: Real> {
    kernels: &'static Kernels<R>,
    /// The gradient of the log-features, laid out as the features are.
    pub(crate) logs: Aligned<R>,
    /// What they add up to: the gradient of the row terms.
    pub(crate) row_sums: Vec<R>,
    /// The gradient of the vectors, `dim_padded` numbers per row.
    pub(crate) vectors: Aligned<R>,
    transformed: Aligned<R>,
}

impl<R: Real> GradientTile<R> {
    pub(crate) fn new(side: &PackedSide<R>, scratch: &Scratch<R>) -> Self {
        let transformed = side.dense.as_ref().map_or(0, |d| scratch.capacity * d.gram.width);
        Self {
            kernels: scratch.kernels,
            logs: Aligned::zeros(scratch.features.len()),
            row_sums: vec![R::ZERO; scratch.capacity],
            vectors: Aligned::zeros(scratch.capacity * side.dim_padded),
            transformed: Aligned::zeros(transformed),
        }
    }

    /// `logs = left · panels`: the part of the gradient that goes through the sums.
    pub(crate) fn through_sums(
        &mut self,
        panels: &Panels<R>,
        tile: Layout,
        left: &[R],
        left_width: usize,
    ) {
        Product::new(self.kernels, (left, left_width), tile.rows)
            .all_panels(panels, (&mut self.logs, tile.stride));
    }

    /// `logs += weights · features`: the part within the tile. `features` has rows `tile.stride` apart.
    pub(crate) fn within_tile(&mut self, tile: Layout, pairs: &Triangle<'_, R>, features: &[R]) {
        let (columns, stride) = (tile.columns, tile.stride);
        pairs.add_product(self.kernels, tile.rows, (features, columns, stride), &mut self.logs);
    }

    /// From the gradients of the log-features to those of the inputs: row `i` of the tile is written
    /// to row `rows[i] − start` of `out`. `row_terms`: whether those have gradients, and what else they have,
    /// one number per row of the input, or nothing.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn finish<T: Scalar<Real = R>>(
        &mut self,
        side: &PackedSide<R>,
        scratch: &Scratch<R>,
        delta: &[R],
        z: &[R],
        row_terms: Option<&[R]>,
        rows: &[usize],
        start: usize,
        out: &mut [T],
    ) {
        self.write_vectors(side, scratch, delta, z, rows.len());
        if let Some(more) = row_terms {
            if !more.is_empty() {
                let sums = self.row_sums.iter_mut().zip(rows);
                sums.for_each(|(sum, &i)| *sum = *sum + more[i]);
            }
            self.add_row_terms(side, scratch, rows.len());
        }
        let width = side.dim_padded;
        super::store_scaled(side.scale, &self.vectors, width, rows, start, side.dim, out);
    }

    /// From the gradients of the log-features to those of the moved vectors, in `vectors`, and those of the row
    /// terms, in `row_sums`.
    pub(crate) fn write_vectors(
        &mut self,
        side: &PackedSide<R>,
        scratch: &Scratch<R>,
        delta: &[R],
        z: &[R],
        rows: usize,
    ) {
        let tile = scratch.tile(side, rows);
        let width = side.dim_padded;
        self.kernels.log_gradient(
            tile,
            &mut self.logs,
            &scratch.features,
            delta,
            z,
            &mut self.row_sums,
        );
        let shape = Gemm {
            rows,
            columns: width,
            depth: side.features,
            a: (tile.stride, 1),
            b_row: width,
            b_panel: 2 * self.kernels.lanes,
            c_row: width,
            accumulate: false,
            in_parts: false,
            prefetch: Prefetch::default(),
        };
        self.kernels.gemm(&shape, &self.logs, &side.weight_rows, &mut self.vectors);
    }

    /// Adds `row sum · ∇r(v)` with `∇r = 2av + b − RᵀRv`.
    pub(crate) fn add_row_terms(
        &mut self,
        side: &PackedSide<R>,
        scratch: &Scratch<R>,
        rows: usize,
    ) {
        let width = side.dim_padded;
        let transformed_width = side.dense.as_ref().map_or(0, |d| d.gram.width);
        if let Some(dense) = &side.dense {
            let out = (&mut self.transformed[..], transformed_width);
            Product::new(self.kernels, (&scratch.vectors, width), rows)
                .all_panels(&dense.gram, out);
        }
        // The row term's slope is to the base two. Columns beyond the dimension are not looked at.
        let ln_2 = R::from_f64(std::f64::consts::LN_2);
        self.row_sums[..rows].iter_mut().for_each(|sum| *sum = *sum * ln_2);
        let transformed =
            (transformed_width > 0).then_some((&self.transformed[..], transformed_width));
        let tile = Layout { rows, columns: width, stride: width };
        let (vectors, v) = (&mut self.vectors, &scratch.vectors);
        let slope = (&side.row_a[..], &side.row_b[..]);
        self.kernels.add_slopes(tile, vectors, v, &self.row_sums, slope, transformed);
    }
}

/// Weights of the pairs of a tile, of which each row has only some that are not zero.
pub(crate) struct Triangle<'a, R> {
    pub(crate) weights: &'a [R],
    /// From one row to the next, and from one column to the next.
    pub(crate) strides: (usize, usize),
    /// The columns that rows `first..last` have.
    pub(crate) columns: &'a dyn Fn(usize, usize) -> (usize, usize),
}

impl<R: Real> Triangle<'_, R> {
    /// Rows that are multiplied together.
    const STRIP: usize = 12;

    /// `out += weights · right`; rows of `right` and `out` have the same width and stride.
    pub(crate) fn add_product(
        &self,
        kernels: &Kernels<R>,
        rows: usize,
        (right, width, stride): (&[R], usize, usize),
        out: &mut [R],
    ) {
        for first in (0..rows).step_by(Self::STRIP) {
            let last = (first + Self::STRIP).min(rows);
            let (start, end) = (self.columns)(first, last);
            let shape = Gemm {
                rows: last - first,
                columns: width,
                depth: end.saturating_sub(start),
                a: self.strides,
                b_row: stride,
                b_panel: 2 * kernels.lanes,
                c_row: stride,
                accumulate: true,
                in_parts: false,
                prefetch: Prefetch::default(),
            };
            if shape.depth > 0 {
                let weights = &self.weights[first * self.strides.0 + start * self.strides.1..];
                kernels.gemm(&shape, weights, &right[start * stride..], &mut out[first * stride..]);
            }
        }
    }
}

/// `sums += featuresᵀ · right` for a tile: `right` has `width` numbers per row.
pub(crate) fn add_outer<R: Real>(
    kernels: &Kernels<R>,
    tile: Layout,
    features: &[R],
    count: usize,
    right: &[R],
    width: usize,
    sums: &mut [R],
) {
    let shape = Gemm {
        rows: count,
        columns: width,
        depth: tile.rows,
        a: (1, tile.stride),
        b_row: width,
        b_panel: 2 * kernels.lanes,
        c_row: width,
        accumulate: true,
        in_parts: false,
        prefetch: Prefetch::default(),
    };
    kernels.gemm(&shape, features, right, sums);
}
