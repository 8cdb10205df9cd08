//! Attention of one head by features, forward and causal: a query sees its own and earlier keys.
//!
//! The sequence is worked through in tiles. Earlier tiles come in through their sums, the tile's own
//! keys through the products of features themselves, cut off above the diagonal.
//!
//! A tile's exponents are those of all its keys, later ones included. Being powers of two they do
//! not change a digit of an earlier output, as long as nothing underflows; a tile in which they would
//! rise so far is cut in halves, down to single tokens.

use super::forward::{normalise, piece, times_sums, visible};
use super::number::Number;
use super::strided::Strided;
use super::sums::Sums;
use super::tile::Scratch;
use crate::map::PackedMap;
use crate::simd::{Constants, Inner, Real, Shape};
use crate::{Element, Result};
use rayon::prelude::*;

/// Tokens of a tile.
const TILE: usize = 48;

/// How far an exponent may rise within a tile: features down to 2^{−46} of the largest then still
/// count in `f32`.
const MOST_RISE: f64 = 80.0;

/// Heads beyond which the work is shared by heads alone.
const MANY_HEADS: usize = 4;

/// Causal attention of one head. `heads` is the number of heads worked on beside it.
pub(crate) fn forward_causal<T: Number>(
    map: &PackedMap<T::Real>,
    q: Strided<'_, T>,
    k: Strided<'_, T>,
    v: Strided<'_, T>,
    mask: Option<&[bool]>,
    heads: usize,
    out: &mut [T],
) -> Result<Sums<T::Real>> {
    let columns = v.columns;
    let size = if heads >= MANY_HEADS { q.rows } else { piece(q.rows) };
    let pieces = q.rows.div_ceil(size);
    // The sums before each piece; the last piece's own are not needed.
    let parts: Result<Vec<_>> = (0..pieces - 1)
        .into_par_iter()
        .map(|p| {
            let rows = visible(mask, p * size, (p + 1) * size);
            let mut sums = Sums::new(&map.key, columns);
            sums.add(&map.key, k, v, &rows, &mut Scratch::new(&map.key, columns))?;
            Ok(sums)
        })
        .collect();
    let mut before = vec![Sums::new(&map.key, columns)];
    for part in parts? {
        let mut next = before[before.len() - 1].clone();
        next.merge(&part);
        before.push(next);
    }
    let ends: Result<Vec<_>> = out
        .par_chunks_mut(size * columns)
        .zip(before)
        .enumerate()
        .map(|(p, (out, sums))| {
            let mut walk = Walk::new(map, sums, columns);
            walk.run(q, k, v, mask, p * size, out)?;
            Ok(walk.sums)
        })
        .collect();
    let last = ends?.pop();
    Ok(last.unwrap_or_else(|| Sums::new(&map.key, columns)))
}

/// A walk through a piece of a sequence.
pub(crate) struct Walk<'m, R: Real> {
    map: &'m PackedMap<R>,
    pub(crate) sums: Sums<R>,
    keys: Scratch<R>,
    queries: Scratch<R>,
    /// Products of the features of the tile's queries and keys.
    weights: Vec<R>,
    /// Exponents as the tile's first query sees them, and as its last.
    first: Vec<R>,
    last: Vec<R>,
    totals: Vec<R>,
}

impl<'m, R: Real> Walk<'m, R> {
    pub(crate) fn new(map: &'m PackedMap<R>, sums: Sums<R>, columns: usize) -> Self {
        let width = map.key.weights.width;
        Self {
            keys: Scratch::new(&map.key, columns),
            queries: Scratch::new(&map.query, columns),
            weights: vec![],
            first: vec![R::ZERO; width],
            last: vec![R::ZERO; width],
            totals: vec![R::ZERO; width],
            map,
            sums,
        }
    }

    /// The outputs of the tokens from `start` on, as many as `out` has rows.
    pub(crate) fn run<T: Number<Real = R>>(
        &mut self,
        q: Strided<'_, T>,
        k: Strided<'_, T>,
        v: Strided<'_, T>,
        mask: Option<&[bool]>,
        start: usize,
        out: &mut [T],
    ) -> Result<()> {
        let step = TILE.min(self.keys.capacity);
        for (t, out) in out.chunks_mut(step * v.columns).enumerate() {
            let start = start + t * step;
            self.tile(q, k, v, mask, start, start + out.len() / v.columns, out)?;
        }
        self.sums.finish::<T>(&self.map.key)
    }

    #[allow(clippy::too_many_arguments)]
    fn tile<T: Number<Real = R>>(
        &mut self,
        q: Strided<'_, T>,
        k: Strided<'_, T>,
        v: Strided<'_, T>,
        mask: Option<&[bool]>,
        start: usize,
        end: usize,
        out: &mut [T],
    ) -> Result<()> {
        let key_rows = visible(mask, start, end);
        if !self.load_keys(k, &key_rows, start)? && end - start > 1 {
            let middle = start + (end - start) / 2;
            let (left, right) = out.split_at_mut((middle - start) * v.columns);
            self.tile(q, k, v, mask, start, middle, left)?;
            return self.tile(q, k, v, mask, middle, end, right);
        }
        let Self { map, sums, keys, queries, weights, totals, .. } = self;
        let count = key_rows.len();
        if count > 0 {
            keys.pack_values("values", v, &key_rows)?;
            let tile = keys.tile(&map.key, count);
            totals.fill(R::ZERO);
            let (constants, exponents) = (&map.key.constants, &sums.exponents);
            let kernels = keys.kernels;
            kernels.key_features(
                tile,
                &mut keys.features,
                &keys.terms,
                constants,
                exponents,
                totals,
            );
            clear_padding(&mut keys.features, tile.stride, count, map.key.features);
        }
        // Before the first key there is nothing to be relative to.
        if sums.keys == 0 && count == 0 {
            out.fill(T::default());
            return Ok(());
        }
        let rows: Vec<usize> = (start..end).collect();
        queries.project(&map.query, "queries", q, &rows)?;
        let tile = queries.tile(&map.query, rows.len());
        let Scratch { kernels, features, terms, values, row_exponents, value_width, .. } = queries;
        let (constants, exponents) = (&map.query.constants, &sums.exponents);
        sums.totals[map.key.features..].fill(R::ZERO);
        kernels.query_features(
            tile,
            features,
            constants,
            exponents,
            &sums.totals,
            terms,
            row_exponents,
        );
        times_sums(kernels, (features, tile.stride), map.query.features, rows.len(), sums, values);
        if count > 0 {
            let depth = map.key.features.next_multiple_of(kernels.lanes);
            weights.resize(rows.len() * count, R::ZERO);
            let inner = Inner {
                rows: rows.len(),
                columns: count,
                depth,
                a_row: tile.stride,
                b_row: keys.stride,
                c_row: count,
            };
            kernels.inner(&inner, features, &keys.features, weights);
            for (i, row) in weights.chunks_mut(count).enumerate() {
                let seen = key_rows.partition_point(|&j| j <= start + i);
                row[seen..].fill(R::ZERO);
                let own: f64 = row[..seen].iter().map(|w| w.to_f64()).sum();
                terms[i] = R::from_f64(terms[i].to_f64() + own);
            }
            let shape = Shape {
                rows: rows.len(),
                columns: *value_width,
                depth: count,
                a: (count, 1),
                b_row: *value_width,
                b_panel: 2 * kernels.lanes,
                c_row: *value_width,
                accumulate: true,
            };
            kernels.gemm(&shape, weights, &keys.values, values);
        }
        normalise(values, *value_width, terms, v.columns, out)?;
        self.add_tile(count);
        Ok(())
    }

    /// Projects the tile's keys and raises the exponents to theirs; false, and nothing changed, if
    /// they would rise too far within the tile.
    fn load_keys<T: Number<Real = R>>(
        &mut self,
        k: Strided<'_, T>,
        rows: &[usize],
        start: usize,
    ) -> Result<bool> {
        let Self { map, sums, keys, first, last, .. } = self;
        if rows.is_empty() {
            return Ok(true);
        }
        keys.project(&map.key, "keys", k, rows)?;
        keys.compute_terms(&map.key, rows.len());
        let tile = keys.tile(&map.key, rows.len());
        let constants = &map.key.constants;
        let Scratch { kernels, features, terms, shrink, .. } = keys;
        first.copy_from_slice(&sums.exponents);
        // The tile's first query sees the tile's first key only if that is not later.
        if rows[0] == start || sums.keys == 0 {
            let one = crate::simd::Tile { rows: 1, ..tile };
            kernels.raise_exponents(one, features, terms, constants, first, shrink);
        }
        last.copy_from_slice(&sums.exponents);
        kernels.raise_exponents(tile, features, terms, constants, last, shrink);
        let rise = first.iter().zip(last.iter()).map(|(a, b)| b.to_f64() - a.to_f64());
        if rows.len() > 1 && rise.fold(0.0, f64::max) > MOST_RISE {
            return Ok(false);
        }
        if *last != sums.exponents {
            std::mem::swap(&mut sums.exponents, last);
            sums.shrink(shrink);
        }
        Ok(true)
    }

    /// Adds the tile's keys to the sums.
    fn add_tile(&mut self, count: usize) {
        let Self { map, sums, keys, totals, .. } = self;
        for (t, new) in
            sums.totals.iter_mut().zip(totals.iter()).take(if count > 0 { usize::MAX } else { 0 })
        {
            *t = R::from_f64(t.to_f64() + new.to_f64());
        }
        let shape = Shape {
            rows: map.key.features,
            columns: sums.width,
            depth: count,
            a: (1, keys.stride),
            b_row: sums.width,
            b_panel: 2 * keys.kernels.lanes,
            c_row: sums.width,
            accumulate: true,
        };
        keys.kernels.gemm(&shape, &keys.features, &keys.values, &mut sums.values);
        sums.keys += count;
    }
}

/// Zeros the columns between the last feature and the next whole vector.
fn clear_padding<R: Real>(features: &mut [R], stride: usize, rows: usize, count: usize) {
    let end = count.next_multiple_of(R::kernels().lanes);
    for row in features.chunks_mut(stride).take(rows) {
        row[count..end].fill(R::ZERO);
    }
}
