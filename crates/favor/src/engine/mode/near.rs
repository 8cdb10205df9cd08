//! A near field: neighbours exactly, the rest by features, in one normalisation.
//!
//! The keys of a tile of queries fall into parts: those near it, those far before it and, unless
//! causal, those far behind it. Each part alone is an attention with an output `o` and a denominator
//! `Z`, and the whole is `Σ Z o / Σ Z`. Denominators are compared as logarithms, so here the row
//! terms of the queries count.
//!
//! Going back, a part's gradient is that of the part alone, with the output and the denominator of
//! the whole.

use super::backward::{HeadGradients, HeadInputs};
use super::exact::{BLOCK, PackedKeys, ROWS, SoftmaxTile};
use super::exact_backward::Buffers;
use super::forward::query_tile_features;
use crate::engine::tensor::Scalar;
use crate::engine::tensor::Strided;
use crate::engine::tile::Sums;
use crate::engine::tile::{GradientTile, OutputGradients, SumGradients, add_outer, feature_panels};
use crate::engine::tile::{Product, Scratch};
use crate::engine::tile::{pack_rows, packed_rows, squared_norm};
use crate::map::{Cached, PackedMap};
use crate::simd::{Gemm, Prefetch};
use crate::{Float, Kernel, Result};
use std::f64::consts::{LN_2, LOG2_E};

type Inputs<'a, T> = (Strided<'a, T>, Strided<'a, T>, Strided<'a, T>);

/// Attention of one head with a near field.
pub(crate) struct Field<'m, R> {
    pub(crate) map: &'m PackedMap<R>,
    pub(crate) kernel: Kernel,
    pub(crate) near: usize,
    pub(crate) causal: bool,
}

/// A tile of queries with the keys, by their place among the visible ones, that come into its far
/// field before it.
struct Step {
    rows: Vec<usize>,
    keys: (usize, usize),
}

/// Normalised outputs and the logarithms of the denominators, for all queries.
struct Part<R> {
    out: Vec<R>,
    log: Vec<f64>,
}

impl<R: Cached> Field<'_, R> {
    /// The near keys of the tile that starts at `start`: whole panels, or up to the last key.
    fn near_keys(&self, keys: &PackedKeys<R>, start: usize, length: usize) -> (usize, usize) {
        let panel = keys.panels.panel;
        let before = |position: usize| keys.rows.partition_point(|&j| j < position);
        let end = (start + ROWS).min(length);
        let first = before(start.saturating_sub(self.near)) / panel * panel;
        let last = if self.causal { before(end) } else { before(end + self.near) };
        (first, last.next_multiple_of(panel).min(keys.rows.len()))
    }

    /// The tiles in the order in which their far field before them grows, or behind them.
    fn steps(&self, keys: &PackedKeys<R>, length: usize, behind: bool) -> Vec<Step> {
        let mut steps = vec![];
        let mut reached = if behind { keys.rows.len() } else { 0 };
        let starts: Vec<usize> = (0..length).step_by(ROWS).collect();
        let mut add = |start: usize| {
            let (first, last) = self.near_keys(keys, start, length);
            let keys = if behind { (last, reached) } else { (reached, first) };
            reached = if behind { last } else { first };
            steps.push(Step { rows: (start..(start + ROWS).min(length)).collect(), keys });
        };
        if behind {
            starts.iter().rev().for_each(|s| add(*s))
        } else {
            starts.iter().for_each(|s| add(*s))
        }
        steps
    }

    /// Walks through the steps, growing the sums, and shows each tile's features to `take`.
    fn walk<T: Scalar<Real = R>>(
        &self,
        steps: &[Step],
        keys: &PackedKeys<R>,
        (q, k, v): Inputs<'_, T>,
        mut take: impl FnMut(&Step, &mut Scratch<R>, &Sums<R>, &[f64]) -> Result<()>,
    ) -> Result<()> {
        let (query_side, key_side) = (&self.map.query, &self.map.key);
        let mut sums = Sums::new(key_side, v.columns);
        let mut key_scratch = Scratch::new(key_side, v.columns, k.rows);
        let mut scratch = Scratch::new(query_side, v.columns, ROWS);
        for step in steps {
            let rows = &keys.rows[step.keys.0..step.keys.1];
            sums.add(key_side, k, v, rows, &mut key_scratch)?;
            if sums.keys == 0 {
                continue;
            }
            // A tile may hold fewer rows than a step when there are very many features.
            for (c, rows) in step.rows.chunks(scratch.capacity).enumerate() {
                query_tile_features(query_side, &sums, q, rows, &mut scratch)?;
                let denominators = scratch.terms.clone();
                scratch.compute_terms(query_side, rows.len());
                let mean = (query_side.features as f64).ln();
                let log = |i: usize| {
                    let exponent = scratch.row_exponents[i].to_f64() + scratch.terms[i].to_f64();
                    exponent * LN_2 - mean + denominators[i].to_f64().ln()
                };
                let logs: Vec<f64> = (0..rows.len()).map(log).collect();
                scratch.terms = denominators;
                let new = if c == 0 { step.keys } else { (step.keys.1, step.keys.1) };
                let part = Step { rows: rows.to_vec(), keys: new };
                take(&part, &mut scratch, &sums, &logs)?;
            }
        }
        Ok(())
    }

    /// The far field before every query, or behind it.
    fn far<T: Scalar<Real = R>>(
        &self,
        keys: &PackedKeys<R>,
        inputs: Inputs<'_, T>,
        behind: bool,
    ) -> Result<Part<R>> {
        let (length, columns) = (inputs.0.rows, inputs.2.columns);
        let steps = self.steps(keys, length, behind);
        let mut part = Part::empty(length, columns);
        self.walk(&steps, keys, inputs, |step, scratch, sums, logs| {
            let Scratch { kernels, features, stride, values, terms, .. } = scratch;
            let (features, right) = ((&features[..], *stride), (&sums.values[..], sums.width));
            let count = step.rows.len();
            Product::new(kernels, features, count).rows(self.map.query.features, right, values);
            for (i, &row) in step.rows.iter().enumerate() {
                part.set(row, columns, logs[i], &values[i * sums.width..], terms[i].to_f64());
            }
            Ok(())
        })?;
        Ok(part)
    }

    fn near_part<T: Scalar<Real = R>>(
        &self,
        keys: &PackedKeys<R>,
        (q, _, v): Inputs<'_, T>,
    ) -> Result<Part<R>> {
        let mut part = Part::empty(q.rows, v.columns);
        let mut tile = SoftmaxTile::<R>::new(keys.value_width, q.columns);
        for start in (0..q.rows).step_by(ROWS) {
            let rows: Vec<usize> = (start..(start + ROWS).min(q.rows)).collect();
            if let Some(error) = q.non_finite("queries", &rows) {
                return Err(error);
            }
            tile.run(keys, q, &rows, self.causal, self.near_keys(keys, start, q.rows));
            for (i, &row) in rows.iter().enumerate() {
                let values = &tile.outputs[i * keys.value_width..];
                let denominator = tile.denominators[i].to_f64();
                let log = tile.log_denominator(i) + self.query_factor(q, row);
                part.set(row, v.columns, log, values, denominator);
            }
        }
        Ok(part)
    }

    /// `α‖sq‖²`, which the exact weights leave out and the features have in their row terms.
    fn query_factor<T: Scalar<Real = R>>(&self, q: Strided<'_, T>, row: usize) -> f64 {
        self.kernel.alpha() * self.kernel.scale().powi(2) * squared_norm(q, row)
    }

    fn parts<T: Scalar<Real = R>>(
        &self,
        keys: &PackedKeys<R>,
        inputs: Inputs<'_, T>,
    ) -> Result<Vec<Part<R>>> {
        let mut parts = vec![self.near_part(keys, inputs)?, self.far(keys, inputs, false)?];
        if !self.causal {
            parts.push(self.far(keys, inputs, true)?);
        }
        Ok(parts)
    }

    pub(crate) fn forward<T: Scalar<Real = R>>(
        &self,
        (q, k, v): Inputs<'_, T>,
        mask: Option<&[bool]>,
        out: &mut [T],
    ) -> Result<()> {
        let keys = PackedKeys::new(self.kernel, k, v, mask)?;
        let parts = self.parts(&keys, (q, k, v))?;
        for (i, out) in out.chunks_mut(v.columns).enumerate() {
            let total = total_log(&parts, i);
            for (c, out) in out.iter_mut().enumerate() {
                let share = |part: &Part<R>| {
                    if part.log[i] == f64::NEG_INFINITY {
                        0.0
                    } else {
                        (part.log[i] - total).exp() * part.out[i * v.columns + c].to_f64()
                    }
                };
                *out = T::narrow_f64(parts.iter().map(share).sum());
            }
        }
        Ok(())
    }

    pub(crate) fn backward<T: Scalar<Real = R>>(
        &self,
        head: HeadInputs<'_, T>,
        gradients: HeadGradients<'_, T>,
    ) -> Result<()> {
        let HeadInputs { q, k, v, mask, out, grad } = head;
        let keys = PackedKeys::new(self.kernel, k, v, mask)?;
        let parts = self.parts(&keys, (q, k, v))?;
        let totals: Vec<f64> = (0..q.rows).map(|i| total_log(&parts, i)).collect();
        let mut sums = Accumulated::new(q.rows, k.rows, q.columns, v.columns);
        let whole = Whole { out, grad, totals: &totals };
        self.near_gradients(&keys, (q, k, v), &whole, &mut sums)?;
        self.far_gradients(&keys, (q, k, v), &whole, false, &mut sums)?;
        if !self.causal {
            self.far_gradients(&keys, (q, k, v), &whole, true, &mut sums)?;
        }
        for (out, sums) in [(gradients.q, sums.q), (gradients.k, sums.k), (gradients.v, sums.v)] {
            out.iter_mut().zip(sums).for_each(|(o, x)| *o = T::narrow_f64(x));
        }
        Ok(())
    }

    fn near_gradients<T: Scalar<Real = R>>(
        &self,
        keys: &PackedKeys<R>,
        (q, k, v): Inputs<'_, T>,
        whole: &Whole<'_, T>,
        sums: &mut Accumulated,
    ) -> Result<()> {
        let kernels = R::kernels();
        let scale = self.kernel.scale().powi(2);
        let (dim, columns) = (q.columns, v.columns);
        let (width, value_width) =
            (dim.next_multiple_of(kernels.lanes), columns.next_multiple_of(kernels.lanes));
        let key_rows = packed_rows(k, &keys.rows, width, scale);
        let value_panels = pack_rows(v, &keys.rows, 1.0);
        let mut buffers = Buffers::<R>::new();
        let stride = super::exact::stride::<R>();
        for start in (0..q.rows).step_by(ROWS) {
            let rows: Vec<usize> = (start..(start + ROWS).min(q.rows)).collect();
            let count = rows.len();
            let queries = packed_rows(q, &rows, dim, 1.0);
            let query_rows = packed_rows(q, &rows, width, scale);
            let g = packed_rows(whole.grad, &rows, columns, 1.0);
            let g_rows = packed_rows(whole.grad, &rows, value_width, 1.0);
            let per_row = |f: &dyn Fn(usize) -> f64| -> Vec<R> {
                rows.iter().map(|&i| R::from_f64(f(i))).collect()
            };
            let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
            let terms = per_row(&|i| (self.query_factor(q, i) - finite(whole.totals[i])) * LOG2_E);
            let delta = per_row(&|i| -whole.inner(i));
            let mut own = vec![R::ZERO; count * width];
            let mut row_sums = vec![0.0; count];
            let (first, last) = self.near_keys(keys, start, q.rows);
            for from in (first..last).step_by(BLOCK) {
                let range = (from, (from + BLOCK).min(last));
                let depth = range.1 - range.0;
                let constants = &keys.constants[from..];
                let left = (&queries[..], dim);
                buffers.weights(kernels, &keys.panels, range, left, count, &terms, constants);
                if self.causal {
                    for (i, &row) in rows.iter().enumerate() {
                        let seen = keys.rows.partition_point(|&j| j <= row);
                        buffers.hide(i, seen.saturating_sub(from).min(depth), depth);
                    }
                }
                let left = (&g[..], columns);
                buffers.gradients(kernels, &value_panels, range, left, count, &delta, None);
                let right = (&key_rows[from * width..], width);
                let left = (&buffers.gradient[..], stride);
                Product::new(kernels, left, count).add_rows(depth, right, &mut own);
                for (total, row) in row_sums.iter_mut().zip(buffers.gradient.chunks(stride)) {
                    *total += row[..depth].iter().map(|v| v.to_f64()).sum::<f64>();
                }
                // The other way round: keys as rows, queries summed over.
                let turned = |left: &[R], right: &[R], width: usize| {
                    let mut out = vec![R::ZERO; depth * width];
                    let shape = Gemm {
                        rows: depth,
                        columns: width,
                        depth: count,
                        a: (1, stride),
                        b_row: width,
                        b_panel: 2 * kernels.lanes,
                        c_row: width,
                        accumulate: false,
                        prefetch: Prefetch::default(),
                    };
                    kernels.gemm(&shape, left, right, &mut out);
                    out
                };
                let for_values = turned(&buffers.weights, &g_rows, value_width);
                let for_keys = turned(&buffers.gradient, &query_rows, width);
                for (r, &j) in keys.rows[range.0..range.1].iter().enumerate() {
                    add(
                        &mut sums.v[j * columns..(j + 1) * columns],
                        &for_values[r * value_width..],
                    );
                    add(&mut sums.k[j * dim..(j + 1) * dim], &for_keys[r * width..]);
                    if self.kernel.alpha() != 0.0 {
                        let column = |i: usize| buffers.gradient[i * stride + r].to_f64();
                        let total: f64 = (0..count).map(column).sum();
                        for l in 0..dim {
                            let slope = 2.0 * self.kernel.alpha() * scale * total;
                            sums.k[j * dim + l] += slope * k.at(j, l).widen().to_f64();
                        }
                    }
                }
            }
            for (i, &row) in rows.iter().enumerate() {
                add(&mut sums.q[row * dim..(row + 1) * dim], &own[i * width..]);
                let slope = 2.0 * self.kernel.alpha() * scale * row_sums[i];
                for l in 0..dim {
                    sums.q[row * dim + l] += slope * q.at(row, l).widen().to_f64();
                }
            }
        }
        Ok(())
    }

    fn far_gradients<T: Scalar<Real = R>>(
        &self,
        keys: &PackedKeys<R>,
        (q, k, v): Inputs<'_, T>,
        whole: &Whole<'_, T>,
        behind: bool,
        sums: &mut Accumulated,
    ) -> Result<()> {
        let (query_side, key_side) = (&self.map.query, &self.map.key);
        let (dim, columns) = (q.columns, v.columns);
        let steps = self.steps(keys, q.rows, behind);
        let mut outputs = OutputGradients::<R>::new(ROWS, columns);
        let mut tile_gradient = None;
        let mut row_gradient = vec![T::default(); ROWS * dim];
        // What the way back needs: features and gradients of each tile, relative to its exponents.
        let mut stops: Vec<(Vec<R>, SumGradients<R>)> = vec![];
        let mut keys_of: Vec<(usize, usize)> = vec![];
        self.walk(&steps, keys, (q, k, v), |step, scratch, far, logs| {
            let denominators: Vec<R> = step
                .rows
                .iter()
                .enumerate()
                .map(|(i, &row)| {
                    let whole = (whole.totals[row] - logs[i]).exp();
                    R::from_f64(scratch.terms[i].to_f64() * whole)
                })
                .collect();
            outputs.load(whole.out, whole.grad, &step.rows, &denominators)?;
            let gradient =
                tile_gradient.get_or_insert_with(|| GradientTile::new(query_side, scratch));
            let tile = scratch.tile(query_side, step.rows.len());
            let panels = feature_panels(&far.values, far.width, query_side.features);
            gradient.through_sums(&panels, tile, &outputs.g, outputs.width);
            let (delta, totals, start) = (&outputs.delta, &far.totals, step.rows[0]);
            let out = &mut row_gradient[..];
            gradient.finish(query_side, scratch, delta, totals, true, &step.rows, start, out);
            for (i, &row) in step.rows.iter().enumerate() {
                let own = &row_gradient[i * dim..(i + 1) * dim];
                let target = &mut sums.q[row * dim..(row + 1) * dim];
                target.iter_mut().zip(own).for_each(|(t, o)| *t += o.widen().to_f64());
            }
            let mut through = SumGradients::like(far);
            let (kernels, features) = (scratch.kernels, &scratch.features);
            let (g, width) = (&outputs.g, outputs.width);
            add_outer(kernels, tile, features, key_side.features, g, width, &mut through.values);
            kernels.weighted_columns(tile, features, &outputs.delta, &mut through.totals);
            through.totals[key_side.features..].fill(R::ZERO);
            // Tiles without new keys share the exponents of the one before.
            match stops.last_mut() {
                Some((exponents, total))
                    if *exponents == far.exponents && step.keys.0 == step.keys.1 =>
                {
                    total.merge(&through);
                }
                _ => {
                    stops.push((far.exponents.clone(), through));
                    keys_of.push(step.keys);
                }
            }
            Ok(())
        })?;
        // Keys of steps before the first tile that saw any belong to the first stop.
        let mut carried: Option<(Vec<R>, SumGradients<R>)> = None;
        for ((exponents, mut through), range) in stops.into_iter().zip(keys_of).rev() {
            if let Some((later, mut rest)) = carried.take() {
                rest.scale(|m| (exponents[m].to_f64() - later[m].to_f64()).max(-2000.0).exp2());
                through.merge(&rest);
            }
            let rows = &keys.rows[range.0..range.1];
            let mut all = Sums::<R>::new(key_side, columns);
            all.exponents.clone_from(&exponents);
            let mut grad_k = vec![T::default(); rows.len() * dim];
            let mut grad_v = vec![T::default(); rows.len() * columns];
            let (own_k, own_v) = (k.gather(rows), v.gather(rows));
            if !rows.is_empty() {
                let inputs = (own_k.view(), own_v.view(), None);
                let (out_k, out_v) = (&mut grad_k[..], &mut grad_v[..]);
                super::backward::key_gradients(self.map, &all, &through, inputs, out_k, out_v)?;
            }
            for (r, &j) in rows.iter().enumerate() {
                let widen = |own: &[T], target: &mut [f64]| {
                    target.iter_mut().zip(own).for_each(|(t, o)| *t += o.widen().to_f64());
                };
                widen(&grad_k[r * dim..], &mut sums.k[j * dim..(j + 1) * dim]);
                widen(&grad_v[r * columns..], &mut sums.v[j * columns..(j + 1) * columns]);
            }
            carried = Some((exponents, through));
        }
        Ok(())
    }
}

/// The output of the whole, its gradient, and the logarithms of its denominators.
struct Whole<'a, T> {
    out: Strided<'a, T>,
    grad: Strided<'a, T>,
    totals: &'a [f64],
}

impl<T: Scalar> Whole<'_, T> {
    /// `gradient · output` of a query.
    fn inner(&self, i: usize) -> f64 {
        let pair =
            |c: usize| self.grad.at(i, c).widen().to_f64() * self.out.at(i, c).widen().to_f64();
        (0..self.out.columns).map(pair).sum()
    }
}

/// Gradients that several parts add to.
struct Accumulated {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

impl Accumulated {
    fn new(queries: usize, keys: usize, dim: usize, columns: usize) -> Self {
        Self { q: vec![0.0; queries * dim], k: vec![0.0; keys * dim], v: vec![0.0; keys * columns] }
    }
}

impl<R: Cached> Part<R> {
    fn empty(rows: usize, columns: usize) -> Self {
        Self { out: vec![R::ZERO; rows * columns], log: vec![f64::NEG_INFINITY; rows] }
    }

    fn set(&mut self, row: usize, columns: usize, log: f64, values: &[R], denominator: f64) {
        if denominator > 0.0 {
            self.log[row] = log;
            let out = &mut self.out[row * columns..(row + 1) * columns];
            out.iter_mut()
                .zip(values)
                .for_each(|(o, v)| *o = R::from_f64(v.to_f64() / denominator));
        }
    }
}

/// The logarithm of the sum of the parts' denominators.
fn total_log<R>(parts: &[Part<R>], row: usize) -> f64 {
    let max = parts.iter().map(|p| p.log[row]).fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return max;
    }
    max + parts.iter().map(|p| (p.log[row] - max).exp()).sum::<f64>().ln()
}

fn add<R: Float>(target: &mut [f64], values: &[R]) {
    target.iter_mut().zip(values).for_each(|(t, v)| *t += v.to_f64());
}
