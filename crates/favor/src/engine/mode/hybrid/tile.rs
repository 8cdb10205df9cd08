//! Which keys meet which queries of a tile.

use super::Hybrid;
use super::block::Block;
use super::lists::{Lists, largest_products};
use super::rows::{Gathered, MANY, Pairs, QueryRows, hide};
use crate::engine::tile::Scratch;
use crate::map::{Cached, PackedSide};
use std::f64::consts::LOG2_E;
use std::sync::Arc;

/// Rows that meet the window together: more share a product, fewer share more of their windows.
const STRIP: usize = 12;

/// Where a block of keys comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Window,
    First,
    Worst,
    Slot(usize),
}

/// Hides pairs that are not exact, or are counted elsewhere: `(row, logits, estimates)`.
pub(super) type Hide<'a, R> = &'a mut dyn FnMut(usize, &mut [R], &mut [R]);

/// What is done where queries and exact keys meet.
pub(super) trait Visitor<R> {
    /// Rows that follow one another, and part of a block.
    fn strip(
        &mut self,
        source: Source,
        rows: (usize, usize),
        block: &Block<R>,
        range: (usize, usize),
        hide: Hide<'_, R>,
    );
    /// Any rows, and a block.
    fn some(&mut self, source: Source, rows: &[usize], block: &Block<R>, hide: Hide<'_, R>);
}

/// The slots that the queries of a tile prefer.
pub(super) struct Routes<R> {
    /// In falling order, `slots` of them per row.
    preferred: Vec<usize>,
    slots: usize,
    /// Rows and ranks of each slot, for the slots that are preferred by any.
    rows: Vec<Vec<usize>>,
    ranks: Vec<Vec<usize>>,
    used: Vec<usize>,
    totals: Vec<R>,
    scores: Vec<R>,
}

impl<R: Cached> Routes<R> {
    pub(super) fn new(hybrid: &Hybrid<'_, R>) -> Self {
        let routed = hybrid.exact.is_routed();
        let slots = if routed { hybrid.exact.slots } else { 0 };
        let features = if routed { hybrid.map.key.features } else { 0 };
        Self {
            preferred: vec![],
            slots,
            rows: vec![vec![]; features],
            ranks: vec![vec![]; features],
            used: vec![],
            totals: vec![],
            scores: vec![R::ZERO; slots],
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
        for m in self.used.drain(..) {
            self.rows[m].clear();
            self.ranks[m].clear();
        }
        if self.slots == 0 || lists.totals.is_empty() {
            return;
        }
        let features = self.rows.len();
        let rise = |m: usize| (lists.exponents[m].to_f64() - exponents[m].to_f64()).max(-2000.0);
        let total = |m: usize| {
            let now = lists.exponents[m] == exponents[m];
            let factor = if now { 1.0 } else { rise(m).exp2() };
            R::from_f64(lists.totals[m].to_f64() * factor)
        };
        self.totals.clear();
        self.totals.extend((0..features).map(total));
        self.preferred.resize(rows * self.slots, 0);
        for (i, out) in self.preferred.chunks_mut(self.slots).enumerate() {
            let p = &p[i * stride..][..features];
            let products = p.iter().zip(&self.totals).map(|(p, z)| *p * *z);
            largest_products(products, &mut self.scores, out);
            if self.scores.last() == Some(&R::ZERO) {
                // Products that are too small to be told apart: their logarithms are not.
                let vector = &queries.vectors[i * side.dim_padded..][..side.dim_padded];
                let log = |m: usize| {
                    let weights = &side.weight_rows[m * side.dim_padded..][..side.dim_padded];
                    let inner = vector.iter().zip(weights).map(|(v, w)| v.to_f64() * w.to_f64());
                    let query = inner.sum::<f64>() * LOG2_E + side.constants[m].to_f64();
                    query + lists.totals[m].to_f64().log2() + lists.exponents[m].to_f64()
                };
                largest_products((0..features).map(|m| R::from_f64(log(m))), &mut self.scores, out);
            }
            for (rank, &m) in out.iter().enumerate() {
                if self.rows[m].is_empty() {
                    self.used.push(m);
                }
                self.rows[m].push(i);
                self.ranks[m].push(rank);
            }
        }
    }

    /// Brings the blocks that the tile will meet up to date.
    pub(super) fn refresh(
        &self,
        hybrid: &Hybrid<'_, R>,
        lists: &mut Arc<Lists<R>>,
        rows: usize,
        exponents: &[R],
        with_values: bool,
    ) {
        let side = &hybrid.map.key;
        let ready = |block: &Block<R>, rows: usize| {
            block.is_fresh(exponents) && (rows < MANY || block.is_turned(with_values))
        };
        let make = |block: &mut Block<R>, rows: usize| {
            block.refresh(side, exponents);
            if rows >= MANY {
                block.turn(with_values);
            }
        };
        if !ready(&lists.first, rows) || !ready(&lists.worst, rows) {
            let lists = Arc::make_mut(lists);
            make(&mut lists.first, rows);
            make(&mut lists.worst, rows);
        }
        for &m in &self.used {
            if !ready(&lists.slots[m].members, self.rows[m].len()) {
                let slot = &mut Arc::make_mut(lists).slots[m];
                make(Arc::make_mut(&mut slot.members), self.rows[m].len());
            }
        }
    }
}

/// Shows the keys of the window to all rows of a tile.
pub(super) fn visit_window<R: Cached>(
    hybrid: &Hybrid<'_, R>,
    causal: bool,
    positions: &[usize],
    block: &Block<R>,
    visitor: &mut dyn Visitor<R>,
) {
    let near = hybrid.exact.near;
    if near == 0 || block.len() == 0 {
        return;
    }
    let keys = &block.positions;
    let behind = if causal { 0 } else { near };
    let range = |first: usize, last: usize| {
        let start = keys.partition_point(|&j| j < first.saturating_sub(near));
        let end = keys.partition_point(|&j| j <= last.saturating_add(behind));
        (start, end.max(start))
    };
    for first in (0..positions.len()).step_by(STRIP) {
        let last = (first + STRIP).min(positions.len());
        let (start, end) = range(positions[first], positions[last - 1]);
        if start == end {
            continue;
        }
        visitor.strip(Source::Window, (first, last), block, (start, end), &mut |i, w, h| {
            let own = range(positions[first + i], positions[first + i]);
            hide(w, h, 0..own.0 - start);
            hide(w, h, own.1 - start..w.len());
        });
    }
}

/// Shows the global keys to all rows of a tile, and the members of slots to those that prefer them.
pub(super) fn visit_lists<R: Cached>(
    hybrid: &Hybrid<'_, R>,
    causal: bool,
    positions: &[usize],
    lists: &Lists<R>,
    routes: &Routes<R>,
    visitor: &mut dyn Visitor<R>,
) {
    for (source, block) in [(Source::First, &lists.first), (Source::Worst, &lists.worst)] {
        if block.len() > 0 {
            let rows = (0, positions.len());
            visitor.strip(source, rows, block, (0, block.len()), &mut |i, w, h| {
                for (c, &j) in block.positions.iter().enumerate() {
                    if hybrid.is_near(positions[i], j) || (causal && j > positions[i]) {
                        hide(w, h, c..c + 1);
                    }
                }
            });
        }
    }
    for &m in &routes.used {
        let slot = &lists.slots[m];
        let (rows, ranks) = (&routes.rows[m], &routes.ranks[m]);
        visitor.some(Source::Slot(m), rows, &slot.members, &mut |n, w, h| {
            let i = rows[n];
            let before = &routes.preferred[i * routes.slots..][..ranks[n]];
            for (c, &j) in slot.members.positions.iter().enumerate() {
                if hybrid.is_near(positions[i], j)
                    || lists.is_global(j)
                    || before.iter().any(|o| lists.slots[*o].holds(j))
                {
                    hide(w, h, c..c + 1);
                }
            }
        });
    }
}

/// Puts exact weights into the sums of a tile.
pub(super) struct Correct<'a, R: Cached> {
    pub(super) rows: &'a mut QueryRows<R>,
    pub(super) pairs: &'a mut Pairs<R>,
    pub(super) gathered: &'a mut Gathered<R>,
    pub(super) p: (&'a [R], usize),
}

impl<R: Cached> Visitor<R> for Correct<'_, R> {
    fn strip(
        &mut self,
        _: Source,
        rows: (usize, usize),
        block: &Block<R>,
        range: (usize, usize),
        hide: Hide<'_, R>,
    ) {
        self.rows.meet(self.pairs, self.p, rows, block, range, hide);
    }

    fn some(&mut self, _: Source, rows: &[usize], block: &Block<R>, hide: Hide<'_, R>) {
        self.rows.meet_some(self.pairs, self.gathered, self.p, rows, block, hide);
    }
}
