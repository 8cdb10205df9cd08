//! Gradients of exact attention, by recomputation block by block.

use super::backward::{HeadGradients, HeadInputs};
use super::exact::{BLOCK, PackedKeys, ROWS, forward, stride};
use crate::engine::tensor::Scalar;
use crate::engine::tensor::Strided;
use crate::engine::tile::{Product, write_rows};
use crate::engine::tile::{pack_rows, packed_rows, squared_norm};
use crate::map::Panels;
use crate::simd::{Aligned, Constants, Kernels, Layout, Real};
use crate::{Float, Kernel, Result};
use rayon::prelude::*;
use std::f64::consts::LOG2_E;

/// Gradients of one head: queries tile by tile over the keys, then keys tile by tile over the
/// queries, so that each is written once, whatever the threads.
pub(crate) fn exact_backward<T: Scalar>(
    kernel: Kernel,
    head: HeadInputs<'_, T>,
    causal: bool,
    gradients: HeadGradients<'_, T>,
) -> Result<()> {
    let HeadInputs { q, k, v, mask, out, grad } = head;
    let keys = PackedKeys::new(kernel, k, v, mask)?;
    if keys.rows.is_empty() {
        return Ok(());
    }
    let mut unused = vec![T::default(); q.rows * v.columns];
    let logs = forward(&keys, q, causal, &mut unused)?;
    drop(unused);
    let all: Vec<usize> = (0..q.rows).collect();
    if let Some(error) = grad.non_finite("output gradient", &all) {
        return Err(error);
    }
    let inner = |i: usize| -> f64 {
        let pair = |c: usize| grad.at(i, c).widen().to_f64() * out.at(i, c).widen().to_f64();
        (0..v.columns).map(pair).sum()
    };
    let pairs = Pairs::<T> {
        scale: kernel.scale() * kernel.scale(),
        alpha: kernel.alpha(),
        causal,
        inner: (0..q.rows).map(inner).collect(),
        logs,
        q,
        k,
        v,
        grad,
    };
    pairs.query_gradients(&keys, gradients.q);
    pairs.key_gradients(&keys, gradients.k, gradients.v);
    Ok(())
}

/// What both directions of the gradient share.
struct Pairs<'a, T: Scalar> {
    scale: f64,
    alpha: f64,
    causal: bool,
    /// `gradient · output` of each query.
    inner: Vec<f64>,
    logs: Vec<f64>,
    q: Strided<'a, T>,
    k: Strided<'a, T>,
    v: Strided<'a, T>,
    grad: Strided<'a, T>,
}

impl<T: Scalar> Pairs<'_, T> {
    /// To the base two. A query that sees no key has weights zero, whatever its logarithm.
    fn minus_log(&self, i: usize) -> f64 {
        if self.logs[i].is_finite() { -self.logs[i] * LOG2_E } else { 0.0 }
    }

    fn padded(&self, columns: usize) -> usize {
        columns.next_multiple_of(T::Real::kernels().lanes)
    }

    fn query_gradients(&self, keys: &PackedKeys<T::Real>, out: &mut [T]) {
        let kernels = T::Real::kernels();
        let dim = self.q.columns;
        let width = self.padded(dim);
        let key_rows = packed_rows(self.k, &keys.rows, width, self.scale);
        let value_panels = pack_rows(self.v, &keys.rows, 1.0);
        out.par_chunks_mut(ROWS * dim).enumerate().for_each(|(t, out)| {
            let start = t * ROWS;
            let rows: Vec<usize> = (start..start + out.len() / dim).collect();
            let count = rows.len();
            let queries = packed_rows(self.q, &rows, dim, 1.0);
            let g = packed_rows(self.grad, &rows, self.grad.columns, 1.0);
            let per_row = |f: &dyn Fn(usize) -> f64| -> Vec<T::Real> {
                rows.iter().map(|&i| T::Real::from_f64(f(i))).collect()
            };
            let terms = per_row(&|i| self.minus_log(i));
            let delta = per_row(&|i| -self.inner[i]);
            let mut sums = vec![T::Real::ZERO; count * width];
            let mut buffers = Buffers::<T::Real>::new();
            let seen = |i: usize| {
                if self.causal { keys.rows.partition_point(|&j| j <= i) } else { keys.rows.len() }
            };
            for from in (0..seen(rows[count - 1])).step_by(BLOCK) {
                let range = (from, (from + BLOCK).min(keys.rows.len()));
                let constants = &keys.constants[from..];
                buffers.weights(
                    kernels,
                    &keys.panels,
                    range,
                    (&queries, dim),
                    count,
                    &terms,
                    constants,
                );
                for (i, &query) in rows.iter().enumerate() {
                    buffers.hide(i, seen(query).saturating_sub(from), range.1 - range.0);
                }
                buffers.gradients(
                    kernels,
                    &value_panels,
                    range,
                    (&g, self.grad.columns),
                    count,
                    &delta,
                    None,
                );
                let right = (&key_rows[from * width..], width);
                let left = (&buffers.gradient[..], stride::<T::Real>());
                Product::new(kernels, left, count).add_rows(range.1 - range.0, right, &mut sums);
            }
            for (out, row) in out.chunks_mut(dim).zip(sums.chunks(width)) {
                T::scaled_into(row, T::Real::ONE, out);
            }
        });
    }

    fn key_gradients(&self, keys: &PackedKeys<T::Real>, out_k: &mut [T], out_v: &mut [T]) {
        let kernels = T::Real::kernels();
        let (dim, columns) = (self.k.columns, self.v.columns);
        let (width, value_width) = (self.padded(dim), self.padded(columns));
        let all: Vec<usize> = (0..self.q.rows).collect();
        let query_panels = pack_rows(self.q, &all, self.scale * LOG2_E);
        let query_rows = packed_rows(self.q, &all, width, self.scale);
        let gradient_panels = pack_rows(self.grad, &all, 1.0);
        let gradient_rows = packed_rows(self.grad, &all, value_width, 1.0);
        let pad = |f: &dyn Fn(usize) -> f64| -> Vec<T::Real> {
            let mut v: Vec<T::Real> = all.iter().map(|&i| T::Real::from_f64(f(i))).collect();
            v.resize(query_panels.width, T::Real::ZERO);
            v
        };
        let constants = pad(&|i| self.minus_log(i));
        let minus_inner = pad(&|i| -self.inner[i]);
        let parts: Vec<_> = keys
            .rows
            .par_chunks(ROWS)
            .map(|rows| {
                let count = rows.len();
                let own = packed_rows(self.k, rows, dim, 1.0);
                let values = packed_rows(self.v, rows, columns, 1.0);
                let slope = self.alpha * self.scale * LOG2_E;
                let terms: Vec<T::Real> = rows
                    .iter()
                    .map(|&j| T::Real::from_f64(slope * squared_norm(self.k, j)))
                    .collect();
                let ones = vec![T::Real::ONE; count];
                let mut sums = vec![T::Real::ZERO; count * width];
                let mut value_sums = vec![T::Real::ZERO; count * value_width];
                let mut row_sums = vec![0.0; count];
                let mut buffers = Buffers::<T::Real>::new();
                // Queries before the tile's first key see none of it.
                let first = if self.causal { rows[0] / BLOCK * BLOCK } else { 0 };
                for from in (first..self.q.rows).step_by(BLOCK) {
                    let range = (from, (from + BLOCK).min(self.q.rows));
                    let depth = range.1 - range.0;
                    let panels = &query_panels;
                    let left = (&own[..], dim);
                    buffers.weights(
                        kernels,
                        panels,
                        range,
                        left,
                        count,
                        &terms,
                        &constants[from..],
                    );
                    if self.causal {
                        for (j, &key) in rows.iter().enumerate() {
                            buffers.hide_before(j, key.saturating_sub(from).min(depth));
                        }
                    }
                    let (weights, stride) = (&buffers.weights[..], stride::<T::Real>());
                    let right = (&gradient_rows[from * value_width..], value_width);
                    Product::new(kernels, (weights, stride), count).add_rows(
                        depth,
                        right,
                        &mut value_sums,
                    );
                    let left = (&values[..], columns);
                    let inner = Some(&minus_inner[from..]);
                    buffers.gradients(kernels, &gradient_panels, range, left, count, &ones, inner);
                    let right = (&query_rows[from * width..], width);
                    let gradient = (&buffers.gradient[..], stride);
                    Product::new(kernels, gradient, count).add_rows(depth, right, &mut sums);
                    for (total, row) in row_sums.iter_mut().zip(buffers.gradient.chunks(stride)) {
                        *total += row[..depth].iter().map(|v| v.to_f64()).sum::<f64>();
                    }
                }
                // The kernel's own factor of the key, e^{α‖sk‖²}.
                for ((row, own), total) in
                    sums.chunks_mut(width).zip(own.chunks(dim)).zip(&row_sums)
                {
                    let slope = 2.0 * self.alpha * self.scale * total;
                    for (o, k) in row.iter_mut().zip(own) {
                        *o = T::Real::from_f64(o.to_f64() + slope * k.to_f64());
                    }
                }
                (sums, value_sums)
            })
            .collect();
        for (rows, (sums, value_sums)) in keys.rows.chunks(ROWS).zip(&parts) {
            write_rows(sums, width, rows, 0, dim, out_k);
            write_rows(value_sums, value_width, rows, 0, columns, out_v);
        }
    }
}

/// Weights and their gradients for one tile and block.
pub(super) struct Buffers<R> {
    pub(super) weights: Aligned<R>,
    pub(super) gradient: Aligned<R>,
    sums: Vec<R>,
    columns: Vec<R>,
}

impl<R: Real> Buffers<R> {
    pub(super) fn new() -> Self {
        let size = ROWS * stride::<R>();
        Self {
            weights: Aligned::zeros(size),
            gradient: Aligned::zeros(size),
            sums: vec![R::ZERO; ROWS],
            columns: vec![R::ONE; stride::<R>()],
        }
    }

    /// `weights = 2^{left · panels + terms + constants}`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn weights(
        &mut self,
        kernels: &Kernels<R>,
        panels: &Panels<R>,
        range: (usize, usize),
        left: (&[R], usize),
        rows: usize,
        terms: &[R],
        constants: &[R],
    ) {
        let stride = stride::<R>();
        let c = (&mut self.weights[..], stride);
        let width = Product::new(kernels, left, rows).panels(panels, range, c);
        // Columns beyond the last key have constants far too low for `exp` itself.
        let mut used: Vec<R> = constants[..width].to_vec();
        used[range.1 - range.0..].fill(R::ZERO);
        let tile = Layout { rows, columns: width, stride };
        let zeros = vec![R::ZERO; width];
        let mut unused = vec![R::ZERO; width];
        kernels.key_features(tile, &mut self.weights, terms, &used, &zeros, &mut unused);
        for i in 0..rows {
            self.hide(i, range.1 - range.0, width);
        }
    }

    /// Zeros the weights of row `i` from `visible` on.
    pub(super) fn hide(&mut self, i: usize, visible: usize, width: usize) {
        let stride = stride::<R>();
        if visible < width {
            self.weights[i * stride + visible..i * stride + width].fill(R::ZERO);
        }
    }

    /// Zeros the weights of row `i` before `start`.
    fn hide_before(&mut self, i: usize, start: usize) {
        let stride = stride::<R>();
        self.weights[i * stride..i * stride + start].fill(R::ZERO);
    }

    /// `gradient = weights ∘ (left · panels + delta · columnsᵀ)`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn gradients(
        &mut self,
        kernels: &Kernels<R>,
        panels: &Panels<R>,
        range: (usize, usize),
        left: (&[R], usize),
        rows: usize,
        delta: &[R],
        columns: Option<&[R]>,
    ) {
        let stride = stride::<R>();
        let c = (&mut self.gradient[..], stride);
        let width = Product::new(kernels, left, rows).panels(panels, range, c);
        let tile = Layout { rows, columns: width, stride };
        let columns = columns.unwrap_or(&self.columns);
        let (gradient, sums) = (&mut self.gradient, &mut self.sums);
        kernels.log_gradient(tile, gradient, &self.weights, delta, columns, sums);
    }
}
