//! Exact attention by blocked online softmax: the same kernels, no features. Time grows with the
//! square of the length, memory does not.

use super::forward::{normalise, piece, visible};
use crate::engine::tensor::Scalar;
use crate::engine::tensor::Strided;
use crate::engine::tile::{Product, overflow};
use crate::engine::tile::{pack_rows, packed_rows, squared_norm};
use crate::map::Panels;
use crate::simd::{Aligned, Kernels, Layout, Real};
use crate::{Kernel, Result};
use rayon::prelude::*;
use std::f64::consts::{LN_2, LOG2_E};

/// Rows of a tile, and columns of a block.
pub(super) const ROWS: usize = 48;
pub(super) const BLOCK: usize = 128;

/// One head, exactly.
pub(crate) fn exact_head<T: Scalar>(
    kernel: Kernel,
    (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
    mask: Option<&[bool]>,
    causal: bool,
    out: &mut [T],
) -> Result<()> {
    forward(&PackedKeys::new(kernel, k, v, mask)?, q, causal, out).map(|_| ())
}

/// The keys that can be seen: for inner products with queries, and the values as rows.
pub(super) struct PackedKeys<R> {
    pub(super) rows: Vec<usize>,
    /// `s²·kᵀ` in panels, to the base two.
    pub(super) panels: Panels<R>,
    pub(super) values: Vec<R>,
    pub(super) value_width: usize,
    columns: usize,
    /// `α‖sk‖²` to the base two, and so little beyond the last key that its weight is zero.
    pub(super) constants: Vec<R>,
    /// The first column whose constant is not zero.
    plain: usize,
}

impl<R: Real> PackedKeys<R> {
    pub(super) fn new<T: Scalar<Real = R>>(
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
        let scale = kernel.scale() * kernel.scale() * LOG2_E;
        let panels = pack_rows(k, &rows, scale);
        let value_width = v.columns.next_multiple_of(R::kernels().lanes);
        let values = packed_rows(v, &rows, value_width, 1.0);
        let mut constants = vec![masked::<R>(); panels.width];
        constants[..rows.len()].fill(R::ZERO);
        let flat = kernel.alpha() == 0.0;
        if !flat {
            for (c, &j) in constants.iter_mut().zip(&rows) {
                *c = R::from_f64(kernel.alpha() * scale * squared_norm(k, j));
            }
        }
        let plain = if flat { rows.len() } else { 0 };
        Ok(Self { rows, panels, values, value_width, columns: v.columns, constants, plain })
    }
}

/// The outputs of all queries; returns the logarithm of each query's denominator.
pub(super) fn forward<T: Scalar>(
    keys: &PackedKeys<T::Real>,
    q: Strided<'_, T>,
    causal: bool,
    out: &mut [T],
) -> Result<Vec<f64>> {
    let mut logs = vec![f64::NEG_INFINITY; q.rows];
    if keys.rows.is_empty() {
        out.fill(T::default());
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
                let sees = |i: usize| !causal || keys.rows[0] <= rows[i];
                for (i, log) in logs.iter_mut().enumerate() {
                    *log = tile.log_denominator(i);
                    if log.is_nan() || *log == f64::INFINITY || sees(i) && tile.is_lost(i) {
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
    weights: Aligned<R>,
    pub(super) outputs: Aligned<R>,
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
            weights: Aligned::zeros(ROWS * stride::<R>()),
            outputs: Aligned::zeros(ROWS * value_width),
            exponents: vec![R::ZERO; ROWS],
            denominators: vec![R::ZERO; ROWS],
            shrink: vec![R::ZERO; ROWS],
            dim,
        }
    }

    /// The outputs, before division, of the given rows over the keys `begin..limit`; both are
    /// whole panels, or the last key.
    pub(super) fn run<T: Scalar<Real = R>>(
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
        let seen = |i: usize| {
            if causal { keys.rows.partition_point(|&j| j <= rows[i]).min(limit) } else { limit }
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
            let (left, c) = ((queries, self.dim), (&mut self.weights[..], stride));
            let width =
                Product::new(self.kernels, left, count).panels(&keys.panels, (start, stop), c);
            let tile = Layout { rows: count, columns: width, stride };
            for i in 0..count {
                let visible = seen(first + i).saturating_sub(start);
                if visible < width && causal {
                    self.weights[i * stride + visible..i * stride + width].fill(masked::<R>());
                }
            }
            let (e, d) = (&mut self.exponents[first..], &mut self.denominators[first..]);
            let constants =
                (start + width > keys.plain).then(|| &keys.constants[start..start + width]);
            self.kernels.softmax_rows(tile, &mut self.weights, constants, e, d, &mut self.shrink);
            let value_width = keys.value_width;
            let outputs = &mut self.outputs[first * value_width..];
            for (row, factor) in outputs.chunks_mut(value_width).zip(&self.shrink).take(count) {
                if *factor != R::ONE {
                    row.iter_mut().for_each(|v| *v = *v * *factor);
                }
            }
            let right = (&keys.values[start * value_width..], value_width);
            let left = (&self.weights[..], stride);
            Product::new(self.kernels, left, count).add_rows(stop - start, right, outputs);
        }
    }
}

impl<R: Real> SoftmaxTile<R> {
    /// The logarithm of a row's denominator; −∞ where it saw no key.
    pub(super) fn log_denominator(&self, row: usize) -> f64 {
        if self.denominators[row] == R::ZERO {
            f64::NEG_INFINITY
        } else {
            self.exponents[row].to_f64() * LN_2 + self.denominators[row].to_f64().ln()
        }
    }

    /// Whether all logits of a row are so low that hidden ones would count beside them.
    fn is_lost(&self, row: usize) -> bool {
        self.exponents[row].to_f64() < masked::<R>().to_f64() / 2.0
    }
}

/// A logit so low that its weight is zero, with room to add a constant.
fn masked<R: Real>() -> R {
    R::from_f64(R::LOWEST.to_f64() / 4.0)
}

pub(super) fn stride<R: Real>() -> usize {
    BLOCK + R::kernels().lanes
}
