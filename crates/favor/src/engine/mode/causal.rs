//! Attention of one head by features, forward and causal: a query sees its own and earlier keys.
//!
//! The sequence is worked through in tiles. Earlier tiles come in through their sums, the tile's own
//! keys through the products of features themselves, cut off above the diagonal.
//!
//! A tile's exponents are those of all its keys, later ones included. Being powers of two they do
//! not change a digit of an earlier output, as long as nothing underflows; a tile in which they would
//! rise so far is cut in halves, down to single tokens.

use super::forward::{normalise, piece, visible};
use crate::Result;
use crate::engine::tensor::Scalar;
use crate::engine::tensor::Strided;
use crate::engine::tile::Sums;
use crate::engine::tile::{Pending, Product, Scratch, Triangle, add_outer, overflow};
use crate::map::PackedMap;
use crate::simd::{Gemm, GemmTransposed, Kernels, Layout, Prefetch, Real, Transpose};
use rayon::prelude::*;

/// Tokens of a tile.
const TILE: usize = 48;

/// Rows of a tile whose part above the diagonal is skipped together.
const STRIP: usize = 12;

/// How far an exponent may rise within a tile: features down to 2^{−46} of the largest then still
/// count in `f32`.
const MOST_RISE: f64 = 80.0;

/// Heads beyond which the work is shared by heads alone.
const MANY_HEADS: usize = 4;

/// Causal attention of one head. `heads` is the number of heads worked on beside it.
pub(crate) fn forward_causal<T: Scalar>(
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
            sums.add(&map.key, k, v, &rows, &mut Scratch::new(&map.key, columns, rows.len()))?;
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
        .map(|(p, (out, sums))| walk((q, k, v), map, sums, mask, p * size, out))
        .collect();
    let last = ends?.pop();
    Ok(last.unwrap_or_else(|| Sums::new(&map.key, columns)))
}

/// Walks on from the given sums, writing the outputs of the tokens from `start` on; returns the sums
/// after them.
fn walk<T: Scalar>(
    inputs: (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
    map: &PackedMap<T::Real>,
    sums: Sums<T::Real>,
    mask: Option<&[bool]>,
    start: usize,
    out: &mut [T],
) -> Result<Sums<T::Real>> {
    let columns = inputs.2.columns;
    let tokens = out.len() / columns;
    let mut walk = Walk::new(map, sums, columns, tokens);
    walk.visit(inputs, mask, (start, start + tokens), &mut |tile| {
        let at = (tile.start - start) * columns;
        let out = &mut out[at..at + tile.rows * columns];
        write_outputs(tile, map.query.features, columns, out)
    })?;
    Ok(walk.sums)
}

/// Walks on by some tokens, which may be taken back; on an error they are. Takes and leaves memory, if it
/// fits.
pub(crate) fn walk_on<T: Scalar>(
    inputs: (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
    map: &PackedMap<T::Real>,
    sums: &mut Sums<T::Real>,
    out: &mut [T],
    memory: &mut Option<Box<WalkMemory<T::Real>>>,
) -> Result<Pending<T::Real>> {
    let columns = inputs.2.columns;
    let tokens = inputs.0.rows;
    let before = std::mem::take(sums);
    let mut walk = Walk::with_memory(map, before, columns, tokens, memory.take()).revocable(tokens);
    let walked = walk.visit(inputs, None, (0, tokens), &mut |tile| {
        let at = tile.start * columns;
        let out = &mut out[at..at + tile.rows * columns];
        write_outputs(tile, map.query.features, columns, out)
    });
    let Walk { sums: after, memory: used, pending, .. } = walk;
    (*sums, *memory) = (after, Some(used));
    let pending = pending.unwrap_or_default();
    match walked {
        Ok(()) => Ok(pending),
        Err(error) => {
            sums.take_back(pending);
            Err(error)
        }
    }
}

/// A walk through a sequence, tile by tile.
pub(crate) struct Walk<'m, R: Real> {
    map: &'m PackedMap<R>,
    /// The sums over the keys before the tile.
    pub(crate) sums: Sums<R>,
    pub(crate) memory: Box<WalkMemory<R>>,
    /// What the walk did to its sums, if it may be taken back.
    pub(crate) pending: Option<Pending<R>>,
    /// Whether its only key is pending too.
    holds_key: bool,
    keeps_projections: bool,
}

/// Memory for the tiles of a walk, which can serve the next one.
pub(crate) struct WalkMemory<R: Real> {
    keys: Scratch<R>,
    queries: Scratch<R>,
    /// Products of the features of the tile's queries and keys, zero above the diagonal.
    weights: Vec<R>,
    /// The features of the tile's keys, one column per key.
    transposed: Vec<R>,
    /// One number per row.
    sums_of_rows: Vec<R>,
    /// Exponents as the tile's first query sees them, and as its last.
    first: Vec<R>,
    last: Vec<R>,
    totals: Vec<R>,
    /// Projections of the tile's keys before they become features, if they are to be kept.
    projections: Vec<R>,
}

impl<R: Real> WalkMemory<R> {
    fn new(map: &PackedMap<R>, columns: usize, rows: usize) -> Self {
        let width = map.key.weights.width;
        Self {
            keys: Scratch::new(&map.key, columns, rows),
            queries: Scratch::new(&map.query, columns, rows),
            weights: vec![],
            transposed: vec![],
            sums_of_rows: vec![],
            first: vec![R::ZERO; width],
            last: vec![R::ZERO; width],
            totals: vec![R::ZERO; width],
            projections: vec![],
        }
    }

    /// Whether it is what such a walk would make.
    fn fits(&self, map: &PackedMap<R>, columns: usize, rows: usize) -> bool {
        self.keys.fits(&map.key, columns, rows) && self.queries.fits(&map.query, columns, rows)
    }
}

/// A tile with the features of its queries and keys.
pub(crate) struct Loaded<'w, R: Real> {
    /// The sums over the keys before the tile, with the tile's exponents.
    pub(crate) sums: &'w Sums<R>,
    /// Features and values of the tile's keys.
    pub(crate) keys: &'w Scratch<R>,
    /// Features and denominators of the tile's queries.
    pub(crate) queries: &'w mut Scratch<R>,
    pub(crate) key_rows: &'w [usize],
    /// `P_i·F_j` for keys that query `i` sees, zero for the others; `weight_stride` numbers per row.
    pub(crate) weights: &'w [R],
    pub(crate) weight_stride: usize,
    pub(crate) start: usize,
    pub(crate) rows: usize,
    /// Projections of the tile's keys, laid out as their features; empty unless they are kept.
    pub(crate) projections: &'w [R],
}

impl<'m, R: Real> Walk<'m, R> {
    /// A walk of at most `tokens` tokens on from the given sums.
    pub(crate) fn new(map: &'m PackedMap<R>, sums: Sums<R>, columns: usize, tokens: usize) -> Self {
        Self::with_memory(map, sums, columns, tokens, None)
    }

    /// The same in the memory of an earlier walk, if that fits.
    pub(crate) fn with_memory(
        map: &'m PackedMap<R>,
        sums: Sums<R>,
        columns: usize,
        tokens: usize,
        memory: Option<Box<WalkMemory<R>>>,
    ) -> Self {
        let rows = tokens.min(TILE);
        let memory = memory.filter(|memory| memory.fits(map, columns, rows));
        let memory = memory.unwrap_or_else(|| Box::new(WalkMemory::new(map, columns, rows)));
        Self { map, sums, memory, pending: None, holds_key: false, keeps_projections: false }
    }

    /// The same walk of so many tokens, which may be taken back. A single token is not added to the sums:
    /// that is less than copying them.
    pub(crate) fn revocable(self, tokens: usize) -> Self {
        let before = (tokens > 1).then(|| self.sums.clone());
        let pending = Some(Pending { before, key: vec![] });
        Self { pending, holds_key: tokens == 1, ..self }
    }

    /// The same walk, showing the projections of keys too.
    pub(crate) fn keeping_projections(self) -> Self {
        Self { keeps_projections: true, ..self }
    }

    pub(crate) fn key_scratch(&self) -> &Scratch<R> {
        &self.memory.keys
    }

    pub(crate) fn query_scratch(&self) -> &Scratch<R> {
        &self.memory.queries
    }

    /// Visits the tokens `start..end` tile by tile, adding each tile's keys to the sums after it.
    pub(crate) fn visit<T: Scalar<Real = R>>(
        &mut self,
        (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
        mask: Option<&[bool]>,
        (start, end): (usize, usize),
        take: &mut dyn FnMut(Loaded<'_, R>) -> Result<()>,
    ) -> Result<()> {
        let step = TILE.min(self.memory.keys.capacity);
        for start in (start..end).step_by(step) {
            self.tile((q, k, v), mask, (start, (start + step).min(end)), take)?;
        }
        self.sums.finish::<T>(&self.map.key)
    }

    fn tile<T: Scalar<Real = R>>(
        &mut self,
        (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
        mask: Option<&[bool]>,
        (start, end): (usize, usize),
        take: &mut dyn FnMut(Loaded<'_, R>) -> Result<()>,
    ) -> Result<()> {
        let key_rows = visible(mask, start, end);
        if !self.raise_exponents(k, &key_rows, start)? {
            let middle = start + (end - start) / 2;
            self.tile((q, k, v), mask, (start, middle), take)?;
            return self.tile((q, k, v), mask, (middle, end), take);
        }
        let rows: Vec<usize> = (start..end).collect();
        take(self.features((q, v), &key_rows, &rows)?)?;
        self.add_tile::<T>(key_rows.len())
    }

    /// A tile with exponents and row terms of keys that were noted before, going back.
    pub(crate) fn reload<'w, T: Scalar<Real = R>>(
        &'w mut self,
        (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
        key_rows: &'w [usize],
        rows: &[usize],
        (exponents, key_terms): (&[R], &[R]),
    ) -> Result<Loaded<'w, R>> {
        self.sums.exponents.copy_from_slice(exponents);
        // Exponents of keys, from this tile or before it, are finite.
        self.sums.keys = usize::from(exponents[0].is_finite());
        if !key_rows.is_empty() {
            let keys = &mut self.memory.keys;
            keys.project(&self.map.key, "keys", k, key_rows)?;
            keys.terms[..key_rows.len()].copy_from_slice(key_terms);
        }
        self.features((q, v), key_rows, rows)
    }

    /// Projects the tile's keys and raises the exponents to theirs; false, and nothing changed, if
    /// they would rise too far within the tile.
    fn raise_exponents<T: Scalar<Real = R>>(
        &mut self,
        k: Strided<'_, T>,
        rows: &[usize],
        start: usize,
    ) -> Result<bool> {
        let Self { map, sums, memory, pending, .. } = self;
        let WalkMemory { keys, first, last, .. } = &mut **memory;
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
            let one = Layout { rows: 1, ..tile };
            kernels.raise_exponents(one, features, terms, constants, first, shrink);
        }
        last.copy_from_slice(&sums.exponents);
        kernels.raise_exponents(tile, features, terms, constants, last, shrink);
        let rise = first.iter().zip(last.iter()).map(|(a, b)| b.to_f64() - a.to_f64());
        // A single token's first key is its last: it never comes to this.
        if rise.fold(0.0, f64::max) > MOST_RISE {
            return Ok(false);
        }
        if *last != sums.exponents {
            if let Some(pending) = pending {
                pending.before.get_or_insert_with(|| sums.clone());
            }
            std::mem::swap(&mut sums.exponents, last);
            sums.shrink(shrink);
        }
        Ok(true)
    }

    /// The features of the tile, whose keys are already projected.
    fn features<'w, T: Scalar<Real = R>>(
        &'w mut self,
        (q, v): (Strided<'_, T>, Strided<'_, T>),
        key_rows: &'w [usize],
        rows: &[usize],
    ) -> Result<Loaded<'w, R>> {
        let Self { map, sums, memory, keeps_projections, .. } = self;
        let WalkMemory {
            keys,
            queries,
            weights,
            transposed,
            sums_of_rows,
            totals,
            projections,
            ..
        } = &mut **memory;
        let (start, count) = (rows[0], key_rows.len());
        let kernels = keys.kernels;
        let weight_stride = count.next_multiple_of(kernels.lanes);
        if count > 0 {
            keys.pack_values("values", v, key_rows)?;
            let tile = keys.tile(&map.key, count);
            totals.fill(R::ZERO);
            projections.clear();
            if *keeps_projections {
                projections.extend_from_slice(&keys.features[..count * tile.stride]);
            }
            let Scratch { features, terms, .. } = keys;
            let (constants, exponents) = (&map.key.constants, &sums.exponents);
            kernels.key_features(tile, features, terms, constants, exponents, totals);
            clear_padding(features, tile, map.key.features);
        }
        queries.project(&map.query, "queries", q, rows)?;
        let tile = queries.tile(&map.query, rows.len());
        weights.resize(rows.len() * weight_stride, R::ZERO);
        if sums.keys == 0 && count == 0 {
            // No key yet: there is nothing for features to be relative to.
            queries.features[..rows.len() * tile.stride].fill(R::ZERO);
            queries.terms[..rows.len()].fill(R::ZERO);
        } else {
            sums.totals[map.key.features..].fill(R::ZERO);
            let Scratch { features, terms, row_exponents, .. } = queries;
            let (constants, exponents, totals) =
                (&map.query.constants, &sums.exponents, &sums.totals);
            kernels.query_features(
                tile,
                features,
                constants,
                exponents,
                totals,
                terms,
                row_exponents,
            );
            let pairs = PairProduct {
                kernels,
                left: (features, tile.stride),
                rows: rows.len(),
                right: (&keys.features, keys.stride),
                columns: count,
                depth: map.key.features,
            };
            let seen = |i: usize| key_rows.partition_point(|&j| j <= start + i);
            pairs.run(seen, transposed, (weights, weight_stride));
            for (i, row) in weights.chunks_mut(weight_stride.max(1)).enumerate() {
                row[seen(i)..].fill(R::ZERO);
            }
            let tile = Layout { rows: rows.len(), columns: weight_stride, stride: weight_stride };
            sums_of_rows.resize(rows.len(), R::ZERO);
            kernels.row_sums(tile, weights, sums_of_rows);
            terms.iter_mut().zip(sums_of_rows).for_each(|(term, own)| *term = *term + *own);
        }
        let rows = rows.len();
        Ok(Loaded {
            sums,
            keys,
            queries,
            key_rows,
            weights,
            weight_stride,
            start,
            rows,
            projections,
        })
    }

    /// Adds the tile's keys to the sums, or notes the only one.
    fn add_tile<T: Scalar<Real = R>>(&mut self, count: usize) -> Result<()> {
        let Self { map, sums, memory, pending, holds_key, .. } = self;
        let WalkMemory { keys, totals, .. } = &mut **memory;
        if count == 0 {
            return Ok(());
        }
        if let Some(pending) = pending.as_mut().filter(|_| *holds_key) {
            pending.key.reserve(totals.len() + keys.value_width);
            pending.key.extend_from_slice(&keys.features[..totals.len()]);
            pending.key.extend_from_slice(&keys.values[..keys.value_width]);
            let mut sums = sums.totals.iter().zip(&pending.key).take(map.key.features);
            let finite = sums.all(|(total, new)| (*total + *new).is_finite());
            return if finite { Ok(()) } else { Err(overflow::<T>()) };
        }
        for (t, new) in sums.totals.iter_mut().zip(totals.iter()) {
            *t = *t + *new;
        }
        let tile = keys.tile(&map.key, count);
        let Scratch { kernels, features, values, .. } = keys;
        add_outer(kernels, tile, features, map.key.features, values, sums.width, &mut sums.values);
        sums.keys += count;
        Ok(())
    }
}

/// Inner products of the rows of a tile with rows of its keys, as far as they are seen.
pub(crate) struct PairProduct<'a, R: Real> {
    pub(crate) kernels: &'a Kernels<R>,
    /// With the strides of the rows.
    pub(crate) left: (&'a [R], usize),
    pub(crate) rows: usize,
    pub(crate) right: (&'a [R], usize),
    pub(crate) columns: usize,
    pub(crate) depth: usize,
}

impl<R: Real> Loaded<'_, R> {
    /// Weights of pairs laid out as those of the tile, as each query sees its keys.
    pub(crate) fn with_seen(&self, weights: &[R], use_them: impl FnOnce(&Triangle<'_, R>)) {
        let seen =
            |_: usize, last: usize| (0, self.key_rows.partition_point(|&j| j < self.start + last));
        use_them(&Triangle { weights, strides: (self.weight_stride, 1), columns: &seen });
    }

    /// The same as each key is seen by queries: one row per key.
    pub(crate) fn with_seeing(&self, weights: &[R], use_them: impl FnOnce(&Triangle<'_, R>)) {
        let seeing =
            |first: usize, _: usize| (self.key_rows[first].saturating_sub(self.start), self.rows);
        use_them(&Triangle { weights, strides: (1, self.weight_stride), columns: &seeing });
    }
}

impl<R: Real> PairProduct<'_, R> {
    /// Writes rows of whole vectors to `out`, right in the first `seen(i)` columns of row `i`. `transposed` is
    /// memory for the right side with one column per row.
    pub(crate) fn run(
        self,
        seen: impl Fn(usize) -> usize,
        transposed: &mut Vec<R>,
        (out, out_stride): (&mut [R], usize),
    ) {
        let Self { kernels, left, rows, right, columns, depth } = self;
        // One or two rows are no product: transposing the other side would take longer than they do.
        if rows <= 2 {
            let inner = GemmTransposed {
                rows,
                columns,
                depth: depth.next_multiple_of(kernels.lanes),
                a_row: left.1,
                b_row: right.1,
                c_row: out_stride,
            };
            return kernels.inner(&inner, left.0, right.0, out);
        }
        transposed.resize(depth * out_stride, R::ZERO);
        let transpose = Transpose {
            rows: columns,
            columns: depth,
            row_stride: right.1,
            width: out_stride,
            out_stride,
        };
        kernels.transpose(&transpose, right.0, transposed);
        for first in (0..rows).step_by(STRIP) {
            let strip = STRIP.min(rows - first);
            let shape = Gemm {
                rows: strip,
                columns: seen(first + strip - 1).next_multiple_of(kernels.lanes),
                depth,
                a: (left.1, 1),
                b_row: out_stride,
                b_panel: 2 * kernels.lanes,
                c_row: out_stride,
                accumulate: false,
                in_parts: false,
                prefetch: Prefetch::default(),
            };
            kernels.gemm(
                &shape,
                &left.0[first * left.1..],
                transposed,
                &mut out[first * out_stride..],
            );
        }
    }
}

/// The outputs of a tile.
fn write_outputs<T: Scalar>(
    mut tile: Loaded<'_, T::Real>,
    depth: usize,
    columns: usize,
    out: &mut [T],
) -> Result<()> {
    write_numerators(&mut tile, depth);
    let Scratch { terms, values, value_width, .. } = tile.queries;
    normalise(&values[..tile.rows * *value_width], *value_width, terms, columns, out)
}

/// The numerators of a tile, in the values of its queries.
pub(crate) fn write_numerators<R: Real>(tile: &mut Loaded<'_, R>, depth: usize) {
    let Loaded { sums, keys, queries, key_rows, weights, weight_stride, start, rows, .. } = tile;
    let (start, rows) = (*start, *rows);
    let Scratch { kernels, features, values, value_width, stride, .. } = &mut **queries;
    let right = (&sums.values[..], sums.width);
    Product::new(kernels, (features, *stride), rows).rows(depth, right, values);
    let seen = |_: usize, last: usize| (0, key_rows.partition_point(|&j| j < start + last));
    let pairs = Triangle { weights, strides: (*weight_stride, 1), columns: &seen };
    pairs.add_product(kernels, rows, (&keys.values, *value_width, *value_width), values);
}

/// Zeros the columns beyond the last feature.
fn clear_padding<R: Real>(features: &mut [R], tile: Layout, count: usize) {
    for row in features.chunks_mut(tile.stride).take(tile.rows) {
        row[count..tile.columns].fill(R::ZERO);
    }
}
