//! Every query sees every key.

use super::block::Block;
use super::lists::{Candidates, Lists};
use super::routed::Routes;
use super::rows::{Estimated, Pairs, QueryRows};
use super::tile::{Correct, visit_global, visit_window};
use super::{Hybrid, Shape};
use crate::Result;
use crate::engine::mode::forward::{piece, query_tile_features, visible};
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{Product, Scratch, Sums, tile_rows};
use crate::map::Cached;
use rayon::prelude::*;

/// Rows of a tile of queries: the more there are, the fewer keys are in the windows of two tiles, but all should
/// stay in the second-level cache.
const LEAST: usize = 192;
const MOST: usize = 384;

/// What the queries of a head need to know of its keys.
pub(super) struct Known<R> {
    pub(super) sums: Sums<R>,
    pub(super) lists: Lists<R>,
    /// The row terms of all keys, if they will be needed again.
    pub(super) terms: Vec<R>,
}

impl<R: Cached> Hybrid<'_, R> {
    /// Sums and lists over all keys that are not masked.
    pub(super) fn know<T: Scalar<Real = R>>(
        &self,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        mask: Option<&[bool]>,
        for_gradients: bool,
    ) -> Result<Known<R>> {
        let side = &self.map.key;
        let size = piece(k.rows);
        let slots = if self.exact.is_routed() { side.features } else { 0 };
        let keep_terms = for_gradients || self.exact.near > 0;
        let parts: Result<Vec<_>> = (0..k.rows.div_ceil(size))
            .into_par_iter()
            .map(|p| {
                let (start, end) = (p * size, ((p + 1) * size).min(k.rows));
                let rows = visible(mask, start, end);
                let mut sums = Sums::new(side, v.columns);
                let mut candidates = Candidates::new(slots, self.exact.members, rows.len());
                let mut scratch = Scratch::new(side, v.columns, rows.len());
                let mut terms = vec![R::ZERO; if keep_terms { end - start } else { 0 }];
                sums.add_seen(side, k, v, &rows, &mut scratch, |rows, scratch| {
                    if keep_terms {
                        let own = rows.iter().zip(&scratch.terms);
                        own.for_each(|(j, term)| terms[j - start] = *term);
                    }
                    if slots > 0 {
                        candidates.offer_tile(rows, scratch);
                    }
                })?;
                Ok((sums, candidates, terms))
            })
            .collect();
        let mut sums = Sums::new(side, v.columns);
        let mut candidates = Candidates::new(slots, self.exact.members, k.rows);
        let mut terms = vec![];
        for (n, (part, found, own_terms)) in parts?.into_iter().enumerate() {
            candidates.merge(&found);
            terms.extend(own_terms);
            if n == 0 {
                sums = part;
            } else {
                sums.merge(&part);
            }
        }
        let lists = Lists::of_all(self, (k, v), mask, &sums, &candidates, for_gradients)?;
        Ok(Known { sums, lists, terms })
    }

    /// Attention of one head; `out` holds the rows of the outputs one after the other.
    pub(crate) fn forward<T: Scalar<Real = R>>(
        &self,
        (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
        mask: Option<&[bool]>,
        out: &mut [T],
    ) -> Result<()> {
        let known = self.know((k, v), mask, false)?;
        if known.sums.keys == 0 {
            out.fill(T::default());
            return Ok(());
        }
        let (size, columns) = (piece(q.rows), v.columns);
        let walker = || TileWalker::new(self, columns, size.min(q.rows), false);
        out.par_chunks_mut(size * columns).enumerate().try_for_each_init(
            walker,
            |walker, (p, out)| {
                let rows: Vec<usize> = (p * size..((p + 1) * size).min(q.rows)).collect();
                let step = walker.step;
                for (rows, out) in rows.chunks(step).zip(out.chunks_mut(step * columns)) {
                    walker.run(&known, (q, k, v), mask, rows)?;
                    walker.rows.write(out)?;
                }
                Ok(())
            },
        )
    }
}

/// Memory for the tiles of queries of one thread.
pub(super) struct TileWalker<'h, R: Cached> {
    hybrid: &'h Hybrid<'h, R>,
    pub(super) scratch: Scratch<R>,
    keys: Scratch<R>,
    pub(super) rows: QueryRows<R>,
    pub(super) window: Vec<Block<R>>,
    pub(super) routes: Routes<R>,
    pub(super) pairs: Pairs<R>,
    with_values: bool,
    /// Rows of a tile.
    pub(super) step: usize,
}

impl<'h, R: Cached> TileWalker<'h, R> {
    pub(super) fn new(
        hybrid: &'h Hybrid<'h, R>,
        columns: usize,
        rows: usize,
        with_values: bool,
    ) -> Self {
        let near = hybrid.exact.near;
        let width = hybrid.map.query.weights.width;
        // The more slots there are, the more queries it takes until some of them share one.
        let wanted = if hybrid.exact.is_routed() { 6 * width } else { LEAST };
        // The wider the windows, the more rows it takes until few keys are in those of two tiles.
        let step = wanted.max(near.saturating_mul(6)).clamp(LEAST, MOST);
        let step = step.max(tile_rows(width)).min(rows.max(1));
        let scratch = Scratch::with_capacity(&hybrid.map.query, columns, step);
        let shape = Shape::new(hybrid.map, columns);
        // The tile's window fits one block, unless it is far wider than the tile.
        let window = step.saturating_add(near.saturating_mul(2)).min(2 * MOST);
        let keys = Scratch::with_capacity(&hybrid.map.key, columns, window);
        Self {
            hybrid,
            rows: QueryRows::new(shape, scratch.capacity),
            step,
            scratch,
            keys,
            window: vec![],
            routes: Routes::new(hybrid),
            pairs: Pairs::new(),
            with_values,
        }
    }

    /// Sums of a tile of queries. Its features are in the scratch, its window in blocks.
    pub(super) fn run<T: Scalar<Real = R>>(
        &mut self,
        known: &Known<R>,
        (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
        mask: Option<&[bool]>,
        rows: &[usize],
    ) -> Result<()> {
        let Self { hybrid, scratch, keys, window, routes, pairs, .. } = self;
        let (side, sums) = (&hybrid.map.query, &known.sums);
        query_tile_features(side, sums, q, rows, scratch)?;
        let denominators = scratch.terms.clone();
        scratch.compute_terms(side, rows.len());
        routes.find(side, scratch, rows.len(), &known.lists, &sums.exponents);
        let Scratch { kernels, features, stride, values, terms, row_exponents, .. } = scratch;
        let p = (&features[..], *stride);
        let right = (&sums.values[..], sums.width);
        Product::new(kernels, p, rows.len()).rows(side.features, right, values);
        let (row_terms, numerators) = (&terms[..], &values[..]);
        let denominators = &denominators[..];
        let estimated = Estimated { denominators, row_exponents, row_terms, numerators };
        self.rows.start(hybrid, q, rows, 0, estimated)?;
        let (first, last) = (rows[0], rows[rows.len() - 1]);
        let near = hybrid.exact.near;
        let end = last.saturating_add(near).saturating_add(1).min(k.rows);
        let seen = if near == 0 { vec![] } else { visible(mask, first.saturating_sub(near), end) };
        window_blocks(hybrid, (k, v), &seen, known, keys, window, self.with_values)?;
        let positions = self.rows.positions.clone();
        let mut correct = Correct { rows: &mut self.rows, pairs, p };
        for block in window.iter() {
            visit_window(hybrid, false, &positions, block, &mut correct);
        }
        visit_global(hybrid, false, &positions, &known.lists, &mut correct);
        routes.correct(hybrid, &known.lists, &mut self.rows, pairs.kernels, p);
        Ok(())
    }
}

/// The keys that the windows of a tile of queries see, in as many blocks as the scratch makes of them.
fn window_blocks<R: Cached, T: Scalar<Real = R>>(
    hybrid: &Hybrid<'_, R>,
    (k, v): (Strided<'_, T>, Strided<'_, T>),
    seen: &[usize],
    known: &Known<R>,
    scratch: &mut Scratch<R>,
    blocks: &mut Vec<Block<R>>,
    with_values: bool,
) -> Result<()> {
    let parts = seen.chunks(scratch.capacity);
    let (terms, exponents) = (&known.terms[..], &known.sums.exponents);
    blocks.resize_with(parts.len(), || Block::new(Shape::new(hybrid.map, v.columns)));
    for (block, rows) in blocks.iter_mut().zip(parts) {
        block.load_transposed(hybrid, (k, v), (rows, terms), scratch, exponents, with_values)?;
    }
    Ok(())
}
