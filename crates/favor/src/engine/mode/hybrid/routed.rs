//! The queries of a tile and the members of the slots that they prefer.
//!
//! Products go slot by slot, for all queries that prefer the slot; then each query has the pairs of all its
//! slots side by side, and everything else is done once per query.

use super::Hybrid;
use super::block::Block;
use super::lists::{Lists, take_largest};
use super::rows::{Gathered, MANY, Pairs, QueryRows, hidden, hide};
use super::tile::Hide;
use crate::engine::tile::Scratch;
use crate::map::{Cached, PackedSide};
use crate::simd::{Gemm, Layout, Prefetch};
use std::f64::consts::LOG2_E;

/// The slots that the queries of a tile prefer, and the pairs of queries and members.
pub(super) struct Routes<R> {
    /// In falling order, `slots` of them per row.
    preferred: Vec<usize>,
    slots: usize,
    /// The slots that any row prefers. Rows and ranks of slot `used[n]` are those from `starts[n]` on.
    used: Vec<usize>,
    starts: Vec<usize>,
    rows: Vec<usize>,
    ranks: Vec<usize>,
    /// One number per slot.
    places: Vec<usize>,
    totals: Vec<R>,
    scores: Vec<R>,
    /// Logits, then weights, and estimates: `members` numbers per slot, one row of whole vectors per query.
    weights: Vec<R>,
    estimates: Vec<R>,
    /// Whether a pair is counted elsewhere.
    elsewhere: Vec<bool>,
    width: usize,
    shrink: Vec<R>,
    /// The last query that each key was counted for.
    stamps: Vec<u32>,
    now: u32,
}

impl<R: Cached> Routes<R> {
    pub(super) fn new(hybrid: &Hybrid<'_, R>) -> Self {
        let routed = hybrid.exact.is_routed();
        let slots = if routed { hybrid.exact.slots } else { 0 };
        let features = if routed { hybrid.map.key.features } else { 0 };
        Self {
            preferred: vec![],
            slots,
            used: vec![],
            starts: vec![],
            rows: vec![],
            ranks: vec![],
            places: vec![0; features],
            totals: vec![],
            scores: vec![],
            weights: vec![],
            estimates: vec![],
            elsewhere: vec![],
            width: 0,
            shrink: vec![],
            stamps: vec![],
            now: 0,
        }
    }

    /// Finds the preferred slots of a tile of queries whose features are relative to these exponents.
    pub(super) fn find(
        &mut self,
        side: &PackedSide<R>,
        queries: &Scratch<R>,
        rows: usize,
        lists: &Lists<R>,
        exponents: &[R],
    ) {
        let (p, stride) = (&queries.features[..], queries.stride);
        self.used.clear();
        if self.slots == 0 || lists.totals.is_empty() {
            return;
        }
        let features = self.places.len();
        let rise = |m: usize| (lists.exponents[m].to_f64() - exponents[m].to_f64()).max(-2000.0);
        let total = |m: usize| {
            let now = lists.exponents[m] == exponents[m];
            if now {
                lists.totals[m]
            } else {
                R::from_f64(lists.totals[m].to_f64() * rise(m).exp2())
            }
        };
        self.totals.clear();
        self.totals.extend((0..features).map(total));
        self.preferred.resize(rows * self.slots, 0);
        for (i, out) in self.preferred.chunks_mut(self.slots).enumerate() {
            let p = &p[i * stride..][..features];
            self.scores.clear();
            self.scores.extend(p.iter().zip(&self.totals).map(|(p, z)| *p * *z));
            take_largest(&mut self.scores, out);
            let last = out[self.slots - 1];
            if p[last] * self.totals[last] == R::ZERO {
                // Products that are too small to be told apart: their logarithms are not.
                let vector = &queries.vectors[i * side.dim_padded..][..side.dim_padded];
                let log = |m: usize| {
                    let weights = &side.weight_rows[m * side.dim_padded..][..side.dim_padded];
                    let inner = vector.iter().zip(weights).map(|(v, w)| v.to_f64() * w.to_f64());
                    let query = inner.sum::<f64>() * LOG2_E + side.constants[m].to_f64();
                    query + lists.totals[m].to_f64().log2() + lists.exponents[m].to_f64()
                };
                self.scores.clear();
                // Above what is taken.
                let least = R::LOWEST.to_f64() / 2.0;
                self.scores.extend((0..features).map(|m| R::from_f64(log(m).max(least))));
                take_largest(&mut self.scores, out);
            }
        }
        self.group();
    }

    /// Sorts rows by the slots that they prefer.
    fn group(&mut self) {
        let Self { preferred, slots, used, starts, rows, ranks, places, .. } = self;
        places.fill(0);
        preferred.iter().for_each(|&m| places[m] += 1);
        starts.clear();
        let mut start = 0;
        for (m, place) in places.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            used.push(m);
            starts.push(start);
            let count = std::mem::replace(place, start);
            start += count;
        }
        starts.push(start);
        rows.resize(start, 0);
        ranks.resize(start, 0);
        for (n, &m) in preferred.iter().enumerate() {
            (rows[places[m]], ranks[places[m]]) = (n / *slots, n % *slots);
            places[m] += 1;
        }
    }

    /// The slots that any row prefers, with these rows and the ranks that the slot has for them.
    fn groups(&self) -> impl Iterator<Item = (usize, &[usize], &[usize])> {
        self.used.iter().zip(self.starts.windows(2)).map(|(&m, range)| {
            let range = range[0]..range[1];
            (m, &self.rows[range.clone()], &self.ranks[range])
        })
    }

    /// Brings the blocks that the tile will meet up to date.
    pub(super) fn refresh(
        &self,
        hybrid: &Hybrid<'_, R>,
        lists: &mut Lists<R>,
        rows: usize,
        exponents: &[R],
        with_values: bool,
    ) {
        let make = |block: &mut Block<R>, rows: usize| {
            block.restore(&hybrid.map.key, exponents);
            // Few rows go by columns too, if there are few members.
            if rows >= MANY || block.len() <= R::kernels().lanes {
                block.turn(with_values);
            }
        };
        make(&mut lists.first, rows);
        make(&mut lists.worst, rows);
        for (m, rows, _) in self.groups() {
            make(&mut lists.slots[m].members, rows.len());
        }
    }

    /// Puts the exact weights of members into the sums of a tile.
    pub(super) fn correct(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        lists: &Lists<R>,
        rows: &mut QueryRows<R>,
        (pairs, gathered): (&mut Pairs<R>, &mut Gathered<R>),
        p: (&[R], usize),
    ) {
        if self.used.is_empty() {
            return;
        }
        self.multiply(hybrid, lists, rows, (pairs, gathered), p);
        self.hide_elsewhere(hybrid, lists, &rows.positions);
        let Self { weights, estimates, shrink, width, preferred, slots, .. } = self;
        let (kernels, width) = (pairs.kernels, *width);
        let tile = Layout { rows: rows.rows, columns: width, stride: width };
        shrink.resize(rows.rows, R::ZERO);
        rows.take_weights(kernels, tile, weights, estimates, None, shrink);
        let members = hybrid.exact.members;
        for (i, preferred) in preferred.chunks(*slots).enumerate() {
            for (rank, &m) in preferred.iter().enumerate() {
                let block = &lists.slots[m].members;
                let value_width = block.shape.value_width;
                let shape = Gemm {
                    rows: 1,
                    columns: value_width,
                    depth: block.len(),
                    a: (0, 1),
                    b_row: value_width,
                    b_panel: 2 * kernels.lanes,
                    c_row: value_width,
                    accumulate: true,
                    in_parts: true,
                    prefetch: Prefetch::default(),
                };
                let weights = &weights[i * width + rank * members..];
                let out = &mut rows.numerators[i * value_width..][..value_width];
                kernels.gemm(&shape, weights, &block.values, out);
            }
        }
    }

    /// Logits and estimates of all pairs.
    fn multiply(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        lists: &Lists<R>,
        rows: &QueryRows<R>,
        (pairs, gathered): (&mut Pairs<R>, &mut Gathered<R>),
        p: (&[R], usize),
    ) {
        let members = hybrid.exact.members;
        let width = (self.slots * members).next_multiple_of(pairs.kernels.lanes);
        self.width = width;
        self.weights.resize(rows.rows * width, R::ZERO);
        self.estimates.resize(rows.rows * width, R::ZERO);
        let whole = width == self.slots * members
            && self.used.iter().all(|&m| lists.slots[m].members.len() == members);
        if !whole {
            self.weights.fill(hidden());
            self.estimates.fill(R::ZERO);
        }
        let (mut weights, mut estimates) =
            (std::mem::take(&mut self.weights), std::mem::take(&mut self.estimates));
        for (m, own, ranks) in self.groups() {
            let block = &lists.slots[m].members;
            let count = block.len();
            let from = pairs.multiply_some(rows, p, own, block, gathered);
            for (n, (&i, &rank)) in own.iter().zip(ranks).enumerate() {
                let at = i * width + rank * members;
                let logits = &pairs.weights[n * from..][..count];
                let to = weights[at..at + count].iter_mut().zip(logits);
                to.zip(&pairs.constants).for_each(|((to, x), c)| *to = *x + *c);
                estimates[at..at + count].copy_from_slice(&pairs.estimates[n * from..][..count]);
            }
        }
        (self.weights, self.estimates) = (weights, estimates);
    }

    /// Hides members that are in the window, global, or members of a slot that the query prefers more.
    fn hide_elsewhere(&mut self, hybrid: &Hybrid<'_, R>, lists: &Lists<R>, positions: &[usize]) {
        let (width, members) = (self.width, hybrid.exact.members);
        self.elsewhere.resize(positions.len() * width, false);
        self.stamps.resize(lists.ids.count(), 0);
        for (i, preferred) in self.preferred.chunks(self.slots).enumerate() {
            self.now = self.now.wrapping_add(1);
            if self.now == 0 {
                self.stamps.fill(0);
                self.now = 1;
            }
            let now = self.now;
            lists.global_ids.iter().for_each(|&id| self.stamps[id as usize] = now);
            for (rank, &m) in preferred.iter().enumerate() {
                let slot = &lists.slots[m];
                let at = i * width + rank * members;
                let keys = slot.members.positions.iter().zip(&slot.ids);
                let pairs = self.elsewhere[at..at + members].iter_mut().enumerate();
                for ((c, elsewhere), (&j, &id)) in pairs.zip(keys) {
                    let stamp = &mut self.stamps[id as usize];
                    *elsewhere = *stamp == now || hybrid.is_near(positions[i], j);
                    *stamp = now;
                    if *elsewhere {
                        self.weights[at + c] = hidden();
                        self.estimates[at + c] = R::ZERO;
                    }
                }
            }
        }
    }

    /// Shows the members of each slot with the rows that prefer it, after they were put into the sums.
    pub(super) fn visit(
        &self,
        hybrid: &Hybrid<'_, R>,
        lists: &Lists<R>,
        mut visit: impl FnMut(usize, &[usize], &Block<R>, Hide<'_, R>),
    ) {
        let (width, members) = (self.width, hybrid.exact.members);
        for (m, rows, ranks) in self.groups() {
            let block = &lists.slots[m].members;
            visit(m, rows, block, &mut |n, w, h| {
                let at = rows[n] * width + ranks[n] * members;
                for (c, elsewhere) in self.elsewhere[at..at + block.len()].iter().enumerate() {
                    if *elsewhere {
                        hide(w, h, c..c + 1);
                    }
                }
            });
        }
    }
}
