//! The keys of the window and the global keys, and which queries of a tile meet them.

use super::Hybrid;
use super::block::Block;
use super::lists::Lists;
use super::rows::{Pairs, QueryRows, hide};
use crate::map::Cached;

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

/// Hides single pairs that are not exact, or are counted elsewhere: `(row, logits, estimates)`. Returns the first
/// column that the row sees, and the one after the last.
pub(super) type Hide<'a, R> = &'a mut dyn FnMut(usize, &mut [R], &mut [R]) -> (usize, usize);

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
    let (from, to) = (keys[0], keys[keys.len() - 1]);
    let no_gaps = to - from + 1 == keys.len();
    // How many keys are before a position.
    let before = |position: usize| {
        if no_gaps {
            position.saturating_sub(from).min(keys.len())
        } else {
            keys.partition_point(|&j| j < position)
        }
    };
    let range = |first: usize, last: usize| {
        let start = before(first.saturating_sub(near));
        (start, before(last.saturating_add(behind).saturating_add(1)).max(start))
    };
    for first in (0..positions.len()).step_by(STRIP) {
        let last = (first + STRIP).min(positions.len());
        let (start, end) = range(positions[first], positions[last - 1]);
        if start == end {
            continue;
        }
        visitor.strip(Source::Window, (first, last), block, (start, end), &mut |i, _, _| {
            let own = range(positions[first + i], positions[first + i]);
            (own.0 - start, own.1 - start)
        });
    }
}

/// Shows the global keys to all rows of a tile.
pub(super) fn visit_global<R: Cached>(
    hybrid: &Hybrid<'_, R>,
    causal: bool,
    positions: &[usize],
    lists: &Lists<R>,
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
                (0, block.len())
            });
        }
    }
}

/// Puts exact weights into the sums of a tile.
pub(super) struct Correct<'a, R: Cached> {
    pub(super) rows: &'a mut QueryRows<R>,
    pub(super) pairs: &'a mut Pairs<R>,
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
}
