//! Gradients where queries and exact keys meet.
//!
//! With `g = dO/D`, `δ = −g·O` and `t_ij = g_i·v_j + δ_i`, an exact pair gives `e_ij t_ij` to its logit, and
//! takes the same of its estimate back from the log-features: `P_im F_jm t_ij`, in the features' units.

use super::block::{Block, View};
use super::members::Evicted;
use super::rows::{Meeting, Pairs, QueryRows, clear_columns, gather};
use super::tile::{Hide, Source, Visitor};
use super::{Hybrid, Shape};
use crate::engine::mode::hybrid::lists::Lists;
use crate::engine::tile::{GradientTile, OutputGradients, Scratch};
use crate::map::Cached;
use crate::simd::{Gemm, GemmTransposed, Kernels, Layout, PairGradientRows, Prefetch, Real};
use std::f64::consts::LN_2;

/// Gradients of the keys of a block, before they go through the map.
#[derive(Debug, Clone)]
pub(super) struct BlockGradient<R> {
    /// Of the log-features, before they are multiplied by the features; `width` numbers per key.
    logs: Vec<R>,
    /// `Σ_i e_ij t_ij · scaled query i`, `dim_padded` numbers per key.
    keys: Vec<R>,
    /// `Σ_i e_ij t_ij`.
    sums: Vec<R>,
    values: Vec<R>,
}

impl<R: Real> BlockGradient<R> {
    fn zeros(shape: Shape, keys: usize) -> Self {
        let mut own = Self { logs: vec![], keys: vec![], sums: vec![], values: vec![] };
        own.grow(shape, keys);
        own
    }

    /// Room for so many keys.
    fn grow(&mut self, shape: Shape, keys: usize) {
        for (numbers, size) in self.arrays(shape) {
            if numbers.len() < keys * size {
                numbers.resize(keys * size, R::ZERO);
            }
        }
    }

    /// The arrays, with the numbers of a key in each.
    fn arrays(&mut self, shape: Shape) -> [(&mut Vec<R>, usize); 4] {
        let Shape { dim_padded, width, value_width, .. } = shape;
        let Self { logs, keys, sums, values } = self;
        [(logs, width), (keys, dim_padded), (sums, 1), (values, value_width)]
    }

    /// Moves a row to a row of another, and leaves zeros.
    fn move_row(&mut self, shape: Shape, row: usize, to: &mut Self, to_row: usize) {
        for ((from, size), (to, _)) in self.arrays(shape).into_iter().zip(to.arrays(shape)) {
            if from.len() >= (row + 1) * size {
                let from = &mut from[row * size..][..size];
                to[to_row * size..][..size].copy_from_slice(from);
                from.fill(R::ZERO);
            }
        }
    }
}

/// Gradients of all keys and values of a head.
pub(super) struct KeyGradients<'h, R: Real> {
    hybrid: &'h Hybrid<'h, R>,
    shape: Shape,
    /// `dim_padded` and `value_width` numbers per key.
    pub(super) keys: Vec<R>,
    pub(super) values: Vec<R>,
    /// Gradients of the row terms.
    pub(super) of_terms: Vec<R>,
    scratch: Scratch<R>,
    tile: GradientTile<R>,
    pub(super) first: Option<BlockGradient<R>>,
    pub(super) worst: Option<BlockGradient<R>>,
    pub(super) slots: Vec<Option<BlockGradient<R>>>,
}

impl<'h, R: Cached> KeyGradients<'h, R> {
    pub(super) fn new(hybrid: &'h Hybrid<'h, R>, columns: usize, keys: usize) -> Self {
        let shape = Shape::new(hybrid.map, columns);
        let scratch = Scratch::new(&hybrid.map.key, columns, keys);
        Self {
            hybrid,
            shape,
            keys: vec![R::ZERO; keys * shape.dim_padded],
            values: vec![R::ZERO; keys * shape.value_width],
            of_terms: vec![R::ZERO; keys],
            tile: GradientTile::new(&hybrid.map.key, &scratch),
            scratch,
            first: None,
            worst: None,
            slots: vec![None; shape.features],
        }
    }

    /// Adds the gradients of blocks to those of their keys.
    pub(super) fn add(&mut self, blocks: &[(View<'_, R>, BlockGradient<R>)]) {
        let Shape { dim, dim_padded, width, columns, value_width, .. } = self.shape;
        let side = &self.hybrid.map.key;
        let kernel = self.hybrid.kernel;
        let square = 2.0 * kernel.alpha() * kernel.scale().powi(2);
        let (capacity, stride) = (self.scratch.capacity, self.scratch.stride);
        let zeros = vec![R::ZERO; width.max(capacity)];
        let ln_2 = R::from_f64(LN_2);
        let rows =
            blocks.iter().flat_map(|(block, own)| (0..block.len()).map(move |r| (block, own, r)));
        let rows: Vec<_> = rows.collect();
        for rows in rows.chunks(capacity) {
            for (n, (block, own, r)) in rows.iter().enumerate() {
                let range = n * stride..n * stride + width;
                self.scratch.features[range.clone()]
                    .copy_from_slice(&block.features[r * width..][..width]);
                self.tile.logs[range].copy_from_slice(&own.logs[r * width..][..width]);
            }
            self.tile.write_vectors(side, &self.scratch, &zeros, &zeros, rows.len());
            for (n, &(block, own, r)) in rows.iter().enumerate() {
                let j = block.positions[r];
                self.of_terms[j] = self.of_terms[j] + self.tile.row_sums[n];
                let out = &mut self.keys[j * dim_padded..][..dim];
                let slope = R::from_f64(square * own.sums[r].to_f64());
                let vectors = &self.tile.vectors[n * dim_padded..][..dim];
                let exact = own.keys[r * dim_padded..].iter().zip(&block.keys[r * dim_padded..]);
                for ((out, features), (exact, key)) in out.iter_mut().zip(vectors).zip(exact) {
                    *out = *out + (side.scale * *features + ln_2 * *exact + slope * *key);
                }
                let out = &mut self.values[j * value_width..][..columns];
                let own = &own.values[r * value_width..];
                out.iter_mut().zip(own).for_each(|(o, x)| *o = *o + *x);
            }
        }
    }

    /// Adds what the global keys have gathered, and the members of all slots if that is wanted.
    pub(super) fn add_lists(&mut self, lists: &Lists<R>, slots: bool) {
        let global = [(&mut self.first, &lists.first), (&mut self.worst, &lists.worst)];
        let global =
            global.into_iter().filter_map(|(own, block)| Some((block.view(), own.take()?)));
        let mut blocks: Vec<_> = global.collect();
        if slots {
            let shape = self.shape;
            for (m, own) in self.slots.iter_mut().enumerate() {
                if let Some(mut own) = own.take() {
                    let members = lists.members.view(m);
                    // Some may have come since.
                    own.grow(shape, members.len());
                    blocks.push((members, own));
                }
            }
        }
        self.add(&blocks);
    }

    /// Adds what members have gathered that others took the places of.
    pub(super) fn add_evicted(&mut self, evicted: &Evicted<R>) {
        let mut gathered = BlockGradient::zeros(self.shape, evicted.places.len());
        for (n, &(slot, column)) in evicted.places.iter().enumerate() {
            // A member that came and went at once has gathered nothing.
            if let Some(own) = &mut self.slots[slot] {
                own.move_row(self.shape, column, &mut gathered, n);
            }
        }
        let view = View {
            shape: self.shape,
            positions: &evicted.positions,
            keys: &evicted.keys,
            values: &[],
            constants: &[],
            features: &evicted.features,
            transposed: None,
        };
        self.add(&[(view, gathered)]);
    }

    /// Follows a rise of the exponents that the features of members are relative to.
    pub(super) fn rebase(&mut self, old: &[R], new: &[R]) {
        let Shape { features, width, .. } = self.shape;
        for m in (0..features).filter(|&m| old[m] != new[m]) {
            let factor = R::from_f64((new[m].to_f64() - old[m].to_f64()).exp2());
            for own in self.slots.iter_mut().flatten() {
                own.logs.iter_mut().skip(m).step_by(width).for_each(|x| *x = *x * factor);
            }
        }
    }
}

/// The gradient of a tile of queries, and of the keys that it meets.
pub(super) struct TileGradient<'a, R: Cached> {
    pub(super) rows: &'a QueryRows<R>,
    pub(super) p: (&'a [R], usize),
    /// Of the outputs, divided by the denominators in the rows' units.
    pub(super) outputs: &'a OutputGradients<R>,
    /// Of the log-features of the queries, rows as far apart as those of `p`.
    pub(super) logs: &'a mut [R],
    pub(super) queries: &'a mut QuerySums<R>,
    pub(super) keys: (&'a mut Option<BlockGradient<R>>, &'a mut ListGradients<'a, R>),
    pub(super) buffers: &'a mut Buffers<R>,
}

/// The blocks of lists whose gradients are gathered over many tiles.
pub(super) struct ListGradients<'a, R> {
    pub(super) first: &'a mut Option<BlockGradient<R>>,
    pub(super) worst: &'a mut Option<BlockGradient<R>>,
    pub(super) slots: &'a mut [Option<BlockGradient<R>>],
}

/// `Σ_j e_ij t_ij k_j` and `Σ_j e_ij t_ij` of a tile of queries.
pub(super) struct QuerySums<R> {
    pub(super) keys: Vec<R>,
    pub(super) sums: Vec<R>,
}

/// Memory for pairs on the way back.
pub(super) struct Buffers<R: Real> {
    pub(super) pairs: Pairs<R>,
    t: Vec<R>,
    exponents: Vec<R>,
    factors: Vec<R>,
    delta: Vec<R>,
    columns: Vec<R>,
    q: Vec<R>,
    p: Vec<R>,
    g: Vec<R>,
    logs: Vec<R>,
    keys: Vec<R>,
    sums: Vec<R>,
}

impl<R: Cached> Buffers<R> {
    pub(super) fn new() -> Self {
        Self {
            pairs: Pairs::new(),
            t: vec![],
            exponents: vec![],
            factors: vec![],
            delta: vec![],
            columns: vec![],
            q: vec![],
            p: vec![],
            g: vec![],
            logs: vec![],
            keys: vec![],
            sums: vec![],
        }
    }
}

/// What the pairs of a meeting are multiplied with, and added to.
struct Ends<'a, R> {
    g: (&'a [R], usize),
    logs: (&'a mut [R], usize),
    keys: &'a mut [R],
    sums: &'a mut [R],
}

/// The gradients of one meeting, given exponents, factors and `δ` of its rows in the buffers.
fn meet<R: Cached>(
    buffers: &mut Buffers<R>,
    meeting: &Meeting<'_, R>,
    ends: Ends<'_, R>,
    gradient: &mut BlockGradient<R>,
    hide: Hide<'_, R>,
) {
    let Meeting { rows, q, p, block, range: (start, end) } = *meeting;
    let (count, shape) = (end - start, block.shape);
    if rows == 0 || count == 0 {
        return;
    }
    let width = buffers.pairs.multiply(meeting);
    buffers.pairs.see(width, hide);
    let Buffers { pairs, t, exponents, factors, delta, columns, .. } = buffers;
    let Pairs { kernels, weights, estimates, constants, seen, .. } = pairs;
    let tile = Layout { rows, columns: width, stride: width };
    t.resize(rows * width, R::ZERO);
    values_product(kernels, meeting, ends.g, width, t);
    let sums = ends.sums;
    let mut of_rows = PairGradientRows { seen, constants, exponents, factors, delta, sums };
    kernels.pair_gradients(tile, (weights, estimates, t), &mut of_rows);
    let (back, corrected) = (estimates, t);
    let Shape { dim_padded, width: f_width, value_width, .. } = shape;
    let plain = |columns: usize, b_row: usize, c_row: usize| Gemm {
        rows,
        columns,
        depth: count,
        a: (width, 1),
        b_row,
        b_panel: 2 * kernels.lanes,
        c_row,
        accumulate: true,
        in_parts: false,
        prefetch: Prefetch::default(),
    };
    let keys = &block.keys[start * dim_padded..];
    kernels.gemm(&plain(dim_padded, dim_padded, dim_padded), weights, keys, ends.keys);
    let features = &block.features[start * f_width..];
    kernels.gemm(&plain(f_width, f_width, ends.logs.1), back, features, ends.logs.0);
    // The other way round: keys as rows, queries summed over.
    let transposed = |columns: usize, b_row: usize| Gemm {
        rows: count,
        columns,
        depth: rows,
        a: (1, width),
        b_row,
        b_panel: 2 * kernels.lanes,
        c_row: columns,
        accumulate: true,
        in_parts: false,
        prefetch: Prefetch::default(),
    };
    let out = &mut gradient.keys[start * dim_padded..];
    kernels.gemm(&transposed(dim_padded, q.1), weights, q.0, out);
    kernels.gemm(&transposed(f_width, p.1), back, p.0, &mut gradient.logs[start * f_width..]);
    let out = &mut gradient.values[start * value_width..];
    kernels.gemm(&transposed(value_width, ends.g.1), corrected, ends.g.0, out);
    // Ones, as many as there are rows, and then the sums of columns.
    columns.clear();
    columns.resize(rows, R::ONE);
    columns.resize(rows + width, R::ZERO);
    let (ones, columns) = columns.split_at_mut(rows);
    kernels.weighted_columns(tile, weights, ones, columns);
    let sums = gradient.sums[start..end].iter_mut().zip(columns);
    sums.for_each(|(sum, column)| *sum = *sum + *column);
}

/// `out_ij = g_i · v_j`.
fn values_product<R: Real>(
    kernels: &Kernels<R>,
    meeting: &Meeting<'_, R>,
    (g, stride): (&[R], usize),
    width: usize,
    out: &mut [R],
) {
    let Meeting { rows, block, range: (start, end), .. } = *meeting;
    let Shape { columns, value_width, .. } = block.shape;
    match block.transposed(start).filter(|transposed| !transposed.values.is_empty()) {
        Some(transposed) => {
            let narrow = kernels.narrow;
            let shape = Gemm {
                rows,
                columns: if end - start <= narrow { narrow } else { width },
                depth: columns,
                a: (stride, 1),
                b_row: transposed.width,
                b_panel: 2 * kernels.lanes,
                c_row: width,
                accumulate: false,
                in_parts: true,
                prefetch: Prefetch::default(),
            };
            kernels.gemm(&shape, g, &transposed.values[start..], out);
            clear_columns(out, shape.columns, width);
        }
        None => {
            let shape = GemmTransposed {
                rows,
                columns: end - start,
                depth: value_width,
                a_row: stride,
                b_row: value_width,
                c_row: width,
            };
            kernels.inner(&shape, g, &block.values[start * value_width..], out);
            clear_columns(out, shape.columns, width);
        }
    }
}

impl<R: Cached> TileGradient<'_, R> {
    fn block_gradient(&mut self, source: Source) -> &mut Option<BlockGradient<R>> {
        match source {
            Source::Window => self.keys.0,
            Source::First => self.keys.1.first,
            Source::Worst => self.keys.1.worst,
            Source::Slot(m) => &mut self.keys.1.slots[m],
        }
    }
}

impl<R: Cached> Visitor<R> for TileGradient<'_, R> {
    fn strip(
        &mut self,
        source: Source,
        (first, last): (usize, usize),
        block: &Block<R>,
        range: (usize, usize),
        hide: Hide<'_, R>,
    ) {
        let mut gradient = self
            .block_gradient(source)
            .take()
            .unwrap_or_else(|| BlockGradient::zeros(block.shape, block.len()));
        let Shape { dim_padded, .. } = block.shape;
        let (stride, g_width) = (self.p.1, self.outputs.width);
        let Self { rows, outputs, buffers, .. } = self;
        for (to, from) in [
            (&mut buffers.exponents, &rows.exponents),
            (&mut buffers.factors, &rows.factors),
            (&mut buffers.delta, &outputs.delta),
        ] {
            to.clear();
            to.extend_from_slice(&from[first..last]);
        }
        let meeting = Meeting {
            rows: last - first,
            q: (&rows.scaled[first * dim_padded..], dim_padded),
            p: (&self.p.0[first * stride..], stride),
            block: block.view(),
            range,
        };
        let ends = Ends {
            g: (&outputs.g[first * g_width..], g_width),
            logs: (&mut self.logs[first * stride..], stride),
            keys: &mut self.queries.keys[first * dim_padded..],
            sums: &mut self.queries.sums[first..last],
        };
        meet(buffers, &meeting, ends, &mut gradient, hide);
        *self.block_gradient(source) = Some(gradient);
    }
}

impl<R: Cached> TileGradient<'_, R> {
    /// The members of a slot, and rows that prefer it.
    pub(super) fn slot(
        &mut self,
        slot: usize,
        some: &[usize],
        block: View<'_, R>,
        hide: Hide<'_, R>,
    ) {
        let source = Source::Slot(slot);
        let mut gradient = self
            .block_gradient(source)
            .take()
            .unwrap_or_else(|| BlockGradient::zeros(block.shape, block.len()));
        gradient.grow(block.shape, block.len());
        let Shape { dim_padded, width, .. } = block.shape;
        let g_width = self.outputs.width;
        let Self { rows, outputs, buffers, .. } = self;
        for (to, from) in [
            (&mut buffers.exponents, &rows.exponents),
            (&mut buffers.factors, &rows.factors),
            (&mut buffers.delta, &outputs.delta),
        ] {
            to.clear();
            to.extend(some.iter().map(|&i| from[i]));
        }
        let Buffers { q, p, g, logs, keys, sums, .. } = &mut **buffers;
        let [mut q, mut p, mut g, mut logs, mut keys, mut sums] =
            [q, p, g, logs, keys, sums].map(std::mem::take);
        gather(&mut q, &rows.scaled, dim_padded, dim_padded, some);
        gather(&mut p, self.p.0, self.p.1, width, some);
        gather(&mut g, &outputs.g, g_width, g_width, some);
        for (v, size) in [(&mut logs, width), (&mut keys, dim_padded), (&mut sums, 1)] {
            v.clear();
            v.resize(some.len() * size, R::ZERO);
        }
        let meeting = Meeting {
            rows: some.len(),
            q: (&q, dim_padded),
            p: (&p, width),
            block,
            range: (0, block.len()),
        };
        let ends =
            Ends { g: (&g, g_width), logs: (&mut logs, width), keys: &mut keys, sums: &mut sums };
        meet(buffers, &meeting, ends, &mut gradient, hide);
        for (n, &i) in some.iter().enumerate() {
            let add = |to: &mut [R], from: &[R]| {
                to.iter_mut().zip(from).for_each(|(t, f)| *t = *t + *f);
            };
            add(&mut self.logs[i * self.p.1..][..width], &logs[n * width..]);
            add(&mut self.queries.keys[i * dim_padded..][..dim_padded], &keys[n * dim_padded..]);
            self.queries.sums[i] = self.queries.sums[i] + sums[n];
        }
        (buffers.q, buffers.p, buffers.g) = (q, p, g);
        (buffers.logs, buffers.keys, buffers.sums) = (logs, keys, sums);
        *self.block_gradient(source) = Some(gradient);
    }
}
