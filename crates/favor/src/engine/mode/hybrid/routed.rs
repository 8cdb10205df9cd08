//! The queries of a tile and the members of the slots that they prefer.
//!
//! Products go slot by slot, for all queries that prefer the slot; then each query has the pairs of all its
//! slots side by side, and everything else is done once per query.

use super::Hybrid;
use super::block::{View, same};
use super::lists::Lists;
use super::rows::{MANY, QueryRows, hidden, hide};
use super::tile::Hide;
use crate::engine::tile::Scratch;
use crate::map::{Cached, PackedSide};
use crate::simd::{Gather, Kernels, Layout};
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
    /// Logits, then weights, and estimates: `room` numbers per preferred slot, one row of whole vectors per
    /// query.
    weights: Vec<R>,
    estimates: Vec<R>,
    /// Whether a pair is counted elsewhere.
    elsewhere: Vec<bool>,
    room: usize,
    width: usize,
    /// Where the pairs of a slot begin, of each row that prefers it.
    targets: Vec<usize>,
    /// Where the members of the slots of a query begin.
    starts_of_members: Vec<usize>,
    shrink: Vec<R>,
    /// The columns that each row sees: all.
    seen: Vec<(usize, usize)>,
    /// Whether a slot has members in the windows of the tile, one for each.
    close: Vec<bool>,
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
            room: 0,
            width: 0,
            targets: vec![],
            starts_of_members: vec![],
            shrink: vec![],
            seen: vec![],
            close: vec![false; features],
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
        if self.slots == 0 || lists.totals.is_empty() || lists.members.room == 0 {
            return;
        }
        let features = self.places.len();
        let rise = |m: usize| (lists.exponents[m].to_f64() - exponents[m].to_f64()).max(-2000.0);
        self.totals.clear();
        if same(&lists.exponents, exponents) {
            self.totals.extend_from_slice(&lists.totals[..features]);
        } else {
            let total = |m: usize| R::from_f64(lists.totals[m].to_f64() * rise(m).exp2());
            self.totals.extend((0..features).map(total));
        }
        // Whole vectors of columns: those that are no slots are never preferred.
        let columns = features.next_multiple_of(queries.kernels.lanes);
        self.totals.resize(columns, R::ZERO - R::ONE);
        self.scores.resize(columns, R::ZERO);
        self.preferred.resize(rows * self.slots, 0);
        let tile = Layout { rows, columns, stride };
        let out = (&mut self.preferred[..], self.slots);
        queries.kernels.largest_columns(tile, p, &self.totals, &mut self.scores, out);
        for (i, out) in self.preferred.chunks_mut(self.slots).enumerate() {
            let last = out[self.slots - 1];
            if p[i * stride + last] * self.totals[last] == R::ZERO {
                // Products that are too small to be told apart: their logarithms are not.
                let vector = &queries.vectors[i * side.dim_padded..][..side.dim_padded];
                let log = |m: usize| {
                    let weights = &side.weight_rows[m * side.dim_padded..][..side.dim_padded];
                    let inner = vector.iter().zip(weights).map(|(v, w)| v.to_f64() * w.to_f64());
                    let query = inner.sum::<f64>() * LOG2_E + side.constants[m].to_f64();
                    query + lists.totals[m].to_f64().log2() + lists.exponents[m].to_f64()
                };
                let mut logs: Vec<(f64, usize)> = (0..features).map(|m| (log(m), m)).collect();
                logs.sort_by(|a, b| b.0.total_cmp(&a.0));
                out.iter_mut().zip(logs).for_each(|(out, (_, m))| *out = m);
            }
        }
        self.group();
    }

    /// Asks for the members that a single query will meet: they lie far apart, in a state that is rarely in cache.
    pub(super) fn fetch(&self, lists: &Lists<R>) {
        if self.used.len() <= self.slots {
            for &m in &self.used {
                lists.members.fetch(m);
            }
        }
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

    /// Brings the lists that the tile will meet up to date.
    pub(super) fn refresh(
        &self,
        hybrid: &Hybrid<'_, R>,
        lists: &mut Lists<R>,
        rows: usize,
        exponents: &[R],
        with_values: bool,
    ) {
        for block in [&mut lists.first, &mut lists.worst].into_iter().filter(|b| b.len() > 0) {
            block.restore(&hybrid.map.key, exponents);
            // Few rows go by columns too, if there are few keys.
            if rows >= MANY || block.len() <= R::kernels().lanes {
                block.transpose(with_values);
            }
        }
        if !self.used.is_empty() {
            lists.members.restore(&hybrid.map.key, exponents);
        }
    }

    /// Puts the exact weights of members into the sums of a tile.
    pub(super) fn correct(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        lists: &Lists<R>,
        rows: &mut QueryRows<R>,
        kernels: &Kernels<R>,
        p: (&[R], usize),
    ) {
        if self.used.is_empty() {
            return;
        }
        self.multiply(kernels, lists, rows, p);
        self.hide_elsewhere(hybrid, lists, &rows.positions);
        let Self { weights, estimates, shrink, preferred, starts_of_members: starts, seen, .. } =
            self;
        let (slots, room, width) = (self.slots, self.room, self.width);
        let tile = Layout { rows: rows.rows, columns: width, stride: width };
        shrink.resize(rows.rows, R::ZERO);
        seen.clear();
        seen.resize(rows.rows, (0, width));
        rows.take_weights(kernels, tile, (weights, estimates), seen, shrink);
        let value_width = rows.value_width();
        let sums = rows.numerators.chunks_mut(value_width).zip(weights.chunks(width));
        for (preferred, (sums, weights)) in preferred.chunks(slots).zip(sums) {
            starts.clear();
            starts.extend(preferred.iter().map(|m| m * room));
            kernels.add_places(room, starts, weights, &lists.members.values, sums);
        }
    }

    /// Logits and estimates of all pairs.
    fn multiply(
        &mut self,
        kernels: &Kernels<R>,
        lists: &Lists<R>,
        rows: &QueryRows<R>,
        p: (&[R], usize),
    ) {
        let room = lists.members.room;
        let width = (self.slots * room).next_multiple_of(kernels.lanes);
        (self.room, self.width) = (room, width);
        self.weights.resize(rows.rows * width, R::ZERO);
        self.estimates.resize(rows.rows * width, R::ZERO);
        if width > self.slots * room {
            let both = self.weights.chunks_mut(width).zip(self.estimates.chunks_mut(width));
            both.for_each(|(w, h)| hide(w, h, self.slots * room..width));
        }
        let (dim, stride) = rows.query_shape();
        let features = self.places.len();
        let Self { weights, estimates, targets, used, starts, rows: of_slots, ranks, .. } = self;
        targets.clear();
        let pairs = of_slots.iter().zip(ranks.iter());
        targets.extend(pairs.map(|(i, rank)| i * width + rank * room));
        for (&m, range) in used.iter().zip(starts.windows(2)) {
            let (own, targets) = (&of_slots[range[0]..range[1]], &targets[range[0]..range[1]]);
            let (keys, feature_columns) = lists.members.columns(m);
            let shape = |depth: usize, a_row: usize| Gather { columns: room, depth, a_row };
            let to = (own, targets);
            kernels.gather(&shape(dim, stride), to, &rows.scaled, keys, weights);
            kernels.gather(&shape(features, p.1), to, p.0, feature_columns, estimates);
        }
    }

    /// Hides members that are in the window, global, or members of a slot that the query prefers more.
    fn hide_elsewhere(&mut self, hybrid: &Hybrid<'_, R>, lists: &Lists<R>, positions: &[usize]) {
        let (width, room) = (self.width, self.room);
        let members = &lists.members;
        let with_constants = hybrid.norm_scale() != 0.0;
        let near = hybrid.exact.near;
        let first = positions[0].saturating_sub(near);
        let last = positions[positions.len() - 1].saturating_add(near);
        for &m in &self.used {
            let mut keys = members.positions(m).iter();
            self.close[m] = near > 0 && keys.any(|j| (first..=last).contains(j));
        }
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
                let at = i * width + rank * room;
                let (weights, estimates) =
                    (&mut self.weights[at..at + room], &mut self.estimates[at..at + room]);
                if with_constants {
                    let constants = weights.iter_mut().zip(members.constants(m));
                    constants.for_each(|(w, c)| *w = *w + *c);
                }
                let elsewhere = &mut self.elsewhere[at..at + room];
                let mut any = false;
                for (elsewhere, &id) in elsewhere.iter_mut().zip(members.ids(m)) {
                    let stamp = &mut self.stamps[id as usize];
                    *elsewhere = std::mem::replace(stamp, now) == now;
                    any |= *elsewhere;
                }
                if self.close[m] {
                    for (elsewhere, &j) in elsewhere.iter_mut().zip(members.positions(m)) {
                        *elsewhere |= hybrid.is_near(positions[i], j);
                        any |= *elsewhere;
                    }
                }
                if any {
                    let pairs = weights.iter_mut().zip(estimates.iter_mut()).zip(elsewhere);
                    for ((w, h), _) in pairs.take(members.len(m)).filter(|(_, there)| **there) {
                        (*w, *h) = (hidden(), R::ZERO);
                    }
                }
                hide(weights, estimates, members.len(m)..room);
            }
        }
    }

    /// Shows the members of each slot with the rows that prefer it, after they were put into the sums.
    pub(super) fn visit(
        &self,
        lists: &Lists<R>,
        mut visit: impl FnMut(usize, &[usize], View<'_, R>, Hide<'_, R>),
    ) {
        for (&m, range) in self.used.iter().zip(self.starts.windows(2)) {
            let range = range[0]..range[1];
            let (rows, targets) = (&self.rows[range.clone()], &self.targets[range]);
            let members = lists.members.view(m);
            let count = members.len();
            visit(m, rows, members, &mut |n, w, h| {
                let elsewhere = &self.elsewhere[targets[n]..][..count];
                for (c, _) in elsewhere.iter().enumerate().filter(|(_, elsewhere)| **elsewhere) {
                    hide(w, h, c..c + 1);
                }
                (0, count)
            });
        }
    }
}
