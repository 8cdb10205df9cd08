//! Exact attention by blocked online softmax: the same kernels, no features. Time grows with the
//! square of the length, memory does not.

use super::attention::{Gradients, Options, Plan};
use super::backward::{HeadGradients, HeadInputs};
use super::forward::{normalise, piece, visible};
use super::number::Number;
use super::strided::Strided;
use super::tensor::Tensor;
use super::tile::overflow;
use crate::map::Panels;
use crate::simd::{Constants, Kernels, Real, Shape, Tile};
use crate::{Element, Kernel, Result};
use rayon::prelude::*;

/// Rows of a tile, and columns of a block.
pub(super) const ROWS: usize = 48;
pub(super) const BLOCK: usize = 128;

/// Exact attention over tensors `[batch, heads, length, dim]`, in blocks: never a whole matrix of
/// weights. A query that sees no key gives zeros.
///
/// ```
/// use favor::{Kernel, Options, Tensor, exact_attention_tensors};
/// let x = vec![0.5_f32; 3 * 4];
/// let t = Tensor::new(&x, [1, 1, 3, 4])?;
/// let out = exact_attention_tensors(Kernel::attention(4), t, t, t, &Options::default())?;
/// assert!((out[0] - 0.5).abs() < 1e-6);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn exact_attention_tensors<T: Number>(
    kernel: Kernel,
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    v: Tensor<'_, T>,
    options: &Options<'_>,
) -> Result<Vec<T>> {
    let plan = Plan::without_maps(q.shape(), k.shape(), v.shape(), options)?;
    plan.run(v.shape()[3], options, |_, task, out| {
        exact_head(kernel, task.views(q, k, v), task.mask(options, &plan), options.causal, out)
    })
}

/// One head, exactly.
pub(super) fn exact_head<T: Number>(
    kernel: Kernel,
    (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
    mask: Option<&[bool]>,
    causal: bool,
    out: &mut [T],
) -> Result<()> {
    forward(&PackedKeys::new(kernel, k, v, mask)?, q, causal, out).map(|_| ())
}

/// The gradients of [`exact_attention_tensors`], by recomputation.
pub fn exact_attention_backward<T: Number>(
    kernel: Kernel,
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    v: Tensor<'_, T>,
    out: Tensor<'_, T>,
    out_gradient: Tensor<'_, T>,
    options: &Options<'_>,
) -> Result<Gradients<T>> {
    let plan = Plan::without_maps(q.shape(), k.shape(), v.shape(), options)?;
    plan.gradients((q, k, v), (out, out_gradient), options, |_, head, gradients| {
        backward(kernel, head, options.causal, gradients)
    })
}

/// The keys that can be seen: for inner products with queries, and the values as rows.
pub(super) struct PackedKeys<R> {
    pub(super) rows: Vec<usize>,
    /// `s²·kᵀ` in panels, and the panels of the values for gradients.
    pub(super) panels: Panels<R>,
    pub(super) values: Vec<R>,
    pub(super) value_width: usize,
    columns: usize,
    /// `α‖sk‖²`, and so little beyond the last key that its weight is zero.
    pub(super) constants: Vec<R>,
}

impl<R: Real> PackedKeys<R> {
    pub(super) fn new<T: Number<Real = R>>(
        kernel: Kernel,
        k: Strided<'_, T>,
        v: Strided<'_, T>,
        mask: Option<&[bool]>,
    ) -> Result<Self> {
        let rows = visible(mask, 0, k.rows);
        for (what, m) in [("keys", k), ("values", v)] {
            if let Some(error) = m.non_finite(what, &rows) {
                return Err(error);
            }
        }
        let scale = kernel.scale() * kernel.scale();
        let panels = pack_rows(k, &rows, scale);
        let lanes = R::kernels().lanes;
        let value_width = v.columns.next_multiple_of(lanes);
        let values = packed_rows(v, &rows, value_width, 1.0);
        let mut constants = vec![R::from_f64(R::LOWEST.to_f64() / 4.0); panels.width];
        for (c, &j) in constants.iter_mut().zip(&rows) {
            *c = R::from_f64(kernel.alpha() * scale * squared_norm(k, j));
        }
        Ok(Self { rows, panels, values, value_width, columns: v.columns, constants })
    }
}

/// Rows as the columns of panels; zero beyond the last.
pub(super) fn pack_rows<T: Number>(
    m: Strided<'_, T>,
    rows: &[usize],
    scale: f64,
) -> Panels<T::Real> {
    Panels::from_fn(rows.len(), m.columns, |j, l| match rows.get(j) {
        Some(&row) => T::Real::from_f64(m.at(row, l).widen().to_f64() * scale),
        None => T::Real::ZERO,
    })
}

/// Rows one after the other, padded with zeros to `width`.
pub(super) fn packed_rows<T: Number>(
    m: Strided<'_, T>,
    rows: &[usize],
    width: usize,
    scale: f64,
) -> Vec<T::Real> {
    let mut out = vec![T::Real::ZERO; rows.len() * width];
    for (out, &i) in out.chunks_mut(width).zip(rows) {
        m.widen_row(i, &mut out[..m.columns]);
        if scale != 1.0 {
            out.iter_mut().for_each(|v| *v = T::Real::from_f64(v.to_f64() * scale));
        }
    }
    out
}

pub(super) fn squared_norm<T: Number>(m: Strided<'_, T>, row: usize) -> f64 {
    (0..m.columns).map(|l| m.at(row, l).widen().to_f64().powi(2)).sum()
}

/// The panels of columns `start..end`; `start` is a multiple of the block.
fn block_of<R: Real>(panels: &Panels<R>, start: usize, end: usize) -> (&[R], usize) {
    let width = end.next_multiple_of(panels.panel).min(panels.width) - start;
    (&panels.data[start * panels.depth..(start + width) * panels.depth], width)
}

/// `C = A · block` for a block of panels.
fn times_block<R: Real>(
    kernels: &Kernels<R>,
    panels: &Panels<R>,
    (start, end): (usize, usize),
    rows: usize,
    a: (&[R], usize),
    c: (&mut [R], usize),
) -> usize {
    let (data, width) = block_of(panels, start, end);
    let shape = Shape {
        rows,
        columns: width,
        depth: panels.depth,
        a: (a.1, 1),
        b_row: panels.panel,
        b_panel: panels.depth * panels.panel,
        c_row: c.1,
        accumulate: false,
    };
    kernels.gemm(&shape, a.0, data, c.0);
    width
}

/// `C += A · rows`, with `A` of `depth` columns and any strides.
pub(super) fn add_rows<R: Real>(
    kernels: &Kernels<R>,
    rows: usize,
    depth: usize,
    a: (&[R], usize),
    right: (&[R], usize),
    c: &mut [R],
) {
    let shape = Shape {
        rows,
        columns: right.1,
        depth,
        a: (a.1, 1),
        b_row: right.1,
        b_panel: 2 * kernels.lanes,
        c_row: right.1,
        accumulate: true,
    };
    kernels.gemm(&shape, a.0, right.0, c);
}

/// The outputs of all queries; returns the logarithm of each query's denominator.
fn forward<T: Number>(
    keys: &PackedKeys<T::Real>,
    q: Strided<'_, T>,
    causal: bool,
    out: &mut [T],
) -> Result<Vec<f64>> {
    let mut logs = vec![f64::NEG_INFINITY; q.rows];
    if keys.rows.is_empty() {
        return Ok(logs);
    }
    let size = piece(q.rows).min(1024);
    out.par_chunks_mut(size * keys.columns)
        .zip(logs.par_chunks_mut(size))
        .enumerate()
        .try_for_each(|(p, (out, logs))| {
            let mut tile = SoftmaxTile::<T::Real>::new(keys.value_width, q.columns);
            let tiles = out.chunks_mut(ROWS * keys.columns).zip(logs.chunks_mut(ROWS));
            for (t, (out, logs)) in tiles.enumerate() {
                let start = p * size + t * ROWS;
                let rows: Vec<usize> = (start..start + logs.len()).collect();
                if let Some(error) = q.non_finite("queries", &rows) {
                    return Err(error);
                }
                tile.run(keys, q, &rows, causal, (0, keys.rows.len()));
                normalise(&tile.outputs, keys.value_width, &tile.denominators, keys.columns, out)?;
                for (i, log) in logs.iter_mut().enumerate() {
                    *log = tile.log_denominator(i);
                    if log.is_nan() || *log == f64::INFINITY {
                        return Err(overflow::<T>());
                    }
                }
            }
            Ok(())
        })?;
    Ok(logs)
}

/// The buffers of a tile of queries.
pub(super) struct SoftmaxTile<R: Real> {
    kernels: &'static Kernels<R>,
    weights: Vec<R>,
    pub(super) outputs: Vec<R>,
    exponents: Vec<R>,
    pub(super) denominators: Vec<R>,
    shrink: Vec<R>,
    dim: usize,
}

impl<R: Real> SoftmaxTile<R> {
    pub(super) fn new(value_width: usize, dim: usize) -> Self {
        let kernels = R::kernels();
        Self {
            kernels,
            weights: vec![R::ZERO; ROWS * stride::<R>()],
            outputs: vec![R::ZERO; ROWS * value_width],
            exponents: vec![R::ZERO; ROWS],
            denominators: vec![R::ZERO; ROWS],
            shrink: vec![R::ZERO; ROWS],
            dim,
        }
    }

    /// The outputs, before division, of the given rows over the keys `begin..limit`; both are
    /// whole panels, or the last key.
    pub(super) fn run<T: Number<Real = R>>(
        &mut self,
        keys: &PackedKeys<R>,
        q: Strided<'_, T>,
        rows: &[usize],
        causal: bool,
        (begin, limit): (usize, usize),
    ) {
        let queries = packed_rows(q, rows, self.dim, 1.0);
        self.outputs.fill(R::ZERO);
        self.denominators.fill(R::ZERO);
        self.exponents.fill(R::from_f64(f64::NEG_INFINITY));
        let seen = |i: usize| match causal {
            true => keys.rows.partition_point(|&j| j <= rows[i]).min(limit),
            false => limit,
        };
        let end = seen(rows.len() - 1);
        // Causal rows that see no key at all come first; they are left out.
        let first = (0..rows.len()).find(|&i| seen(i) > begin).unwrap_or(rows.len());
        let count = rows.len() - first;
        if count == 0 {
            return;
        }
        let queries = &queries[first * self.dim..];
        for start in (begin..end).step_by(BLOCK) {
            let stop = (start + BLOCK).min(limit);
            let stride = stride::<R>();
            let c = (&mut self.weights[..], stride);
            let range = (start, stop);
            let width =
                times_block(self.kernels, &keys.panels, range, count, (queries, self.dim), c);
            let tile = Tile { rows: count, columns: width, stride };
            for i in 0..count {
                let visible = seen(first + i).saturating_sub(start);
                if visible < width && causal {
                    self.weights[i * stride + visible..i * stride + width].fill(masked::<R>());
                }
            }
            let (e, d) = (&mut self.exponents[first..], &mut self.denominators[first..]);
            let constants = &keys.constants[start..start + width];
            self.kernels.softmax_rows(tile, &mut self.weights, constants, e, d, &mut self.shrink);
            let value_width = keys.value_width;
            let outputs = &mut self.outputs[first * value_width..];
            for (row, factor) in outputs.chunks_mut(value_width).zip(&self.shrink).take(count) {
                if *factor != R::ONE {
                    row.iter_mut().for_each(|v| *v = R::from_f64(v.to_f64() * factor.to_f64()));
                }
            }
            let right = (&keys.values[start * value_width..], value_width);
            add_rows(self.kernels, count, stop - start, (&self.weights, stride), right, outputs);
        }
    }
}

impl<R: Real> SoftmaxTile<R> {
    /// The logarithm of a row's denominator; −∞ where it saw no key.
    pub(super) fn log_denominator(&self, row: usize) -> f64 {
        match self.denominators[row] == R::ZERO {
            true => f64::NEG_INFINITY,
            false => {
                let exponent = self.exponents[row].to_f64() * std::f64::consts::LN_2;
                exponent + self.denominators[row].to_f64().ln()
            }
        }
    }
}

/// A logit so low that its weight is zero, with room to add a constant.
fn masked<R: Real>() -> R {
    R::from_f64(R::LOWEST.to_f64() / 4.0)
}

pub(super) fn stride<R: Real>() -> usize {
    BLOCK + R::kernels().lanes
}

/// Gradients of one head: queries tile by tile over the keys, then keys tile by tile over the
/// queries, so that each is written once, whatever the threads.
fn backward<T: Number>(
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
struct Pairs<'a, T: Number> {
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

impl<T: Number> Pairs<'_, T> {
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
            // A query that sees no key has weights zero, whatever its logarithm.
            let terms = per_row(&|i| if self.logs[i].is_finite() { -self.logs[i] } else { 0.0 });
            let delta = per_row(&|i| -self.inner[i]);
            let mut sums = vec![T::Real::ZERO; count * width];
            let mut buffers = Buffers::<T::Real>::new();
            let seen = |i: usize| match self.causal {
                true => keys.rows.partition_point(|&j| j <= i),
                false => keys.rows.len(),
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
                add_rows(kernels, count, range.1 - range.0, left, right, &mut sums);
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
        let query_panels = pack_rows(self.q, &all, self.scale);
        let query_rows = packed_rows(self.q, &all, width, self.scale);
        let gradient_panels = pack_rows(self.grad, &all, 1.0);
        let gradient_rows = packed_rows(self.grad, &all, value_width, 1.0);
        let pad = |f: &dyn Fn(usize) -> f64| -> Vec<T::Real> {
            let mut v: Vec<T::Real> = all.iter().map(|&i| T::Real::from_f64(f(i))).collect();
            v.resize(query_panels.width, T::Real::ZERO);
            v
        };
        let constants = pad(&|i| if self.logs[i].is_finite() { -self.logs[i] } else { 0.0 });
        let minus_inner = pad(&|i| -self.inner[i]);
        let parts: Vec<_> = keys
            .rows
            .par_chunks(ROWS)
            .map(|rows| {
                let count = rows.len();
                let own = packed_rows(self.k, rows, dim, 1.0);
                let values = packed_rows(self.v, rows, columns, 1.0);
                let terms: Vec<T::Real> = rows
                    .iter()
                    .map(|&j| T::Real::from_f64(self.alpha * self.scale * squared_norm(self.k, j)))
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
                    add_rows(kernels, count, depth, (weights, stride), right, &mut value_sums);
                    let left = (&values[..], columns);
                    let inner = Some(&minus_inner[from..]);
                    buffers.gradients(kernels, &gradient_panels, range, left, count, &ones, inner);
                    let right = (&query_rows[from * width..], width);
                    let gradient = (&buffers.gradient[..], stride);
                    add_rows(kernels, count, depth, gradient, right, &mut sums);
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
            super::backward::write_rows(sums, width, rows, 0, dim, out_k);
            super::backward::write_rows(value_sums, value_width, rows, 0, columns, out_v);
        }
    }
}

/// Weights and their gradients for one tile and block.
pub(super) struct Buffers<R> {
    pub(super) weights: Vec<R>,
    pub(super) gradient: Vec<R>,
    sums: Vec<R>,
    columns: Vec<R>,
}

impl<R: Real> Buffers<R> {
    pub(super) fn new() -> Self {
        let size = ROWS * stride::<R>();
        Self {
            weights: vec![R::ZERO; size],
            gradient: vec![R::ZERO; size],
            sums: vec![R::ZERO; ROWS],
            columns: vec![R::ONE; stride::<R>()],
        }
    }

    /// `weights = e^{left · panels + terms + constants}`.
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
        let width = times_block(kernels, panels, range, rows, left, (&mut self.weights, stride));
        // Columns beyond the last key have constants far too low for `exp` itself.
        let mut used: Vec<R> = constants[..width].to_vec();
        used[range.1 - range.0..].fill(R::ZERO);
        let tile = Tile { rows, columns: width, stride };
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
        let width = times_block(kernels, panels, range, rows, left, (&mut self.gradient, stride));
        let tile = Tile { rows, columns: width, stride };
        let columns = columns.unwrap_or(&self.columns);
        let (gradient, sums) = (&mut self.gradient, &mut self.sums);
        kernels.log_gradient(tile, gradient, &self.weights, delta, columns, sums);
    }
}
