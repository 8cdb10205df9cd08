//! Attention of one head by features, forward: every query sees every key.

use crate::engine::tensor::Scalar;
use crate::engine::tensor::Strided;
use crate::engine::tile::Sums;
use crate::engine::tile::{Product, Scratch, overflow, store_rows};
use crate::map::{PackedMap, PackedSide};
use crate::simd::{Constants, Prefetch, Real};
use crate::{Float, Result};
use rayon::prelude::*;

/// The pieces that a sequence is cut into for parallel work: a function of the length alone, so
/// that no result depends on the number of threads. At most 16, so that partial sums stay small.
pub(crate) fn piece(length: usize) -> usize {
    length.div_ceil(16).max(1024).next_multiple_of(64)
}

/// The rows of a piece that are not masked.
pub(crate) fn visible(mask: Option<&[bool]>, start: usize, end: usize) -> Vec<usize> {
    match mask {
        Some(mask) => (start..end).filter(|&i| mask[i]).collect(),
        None => (start..end).collect(),
    }
}

/// The sums over all keys that are not masked.
pub(crate) fn sum_keys<T: Scalar>(
    side: &PackedSide<T::Real>,
    keys: Strided<'_, T>,
    values: Strided<'_, T>,
    mask: Option<&[bool]>,
) -> Result<Sums<T::Real>> {
    let size = piece(keys.rows);
    let parts: Result<Vec<_>> = (0..keys.rows.div_ceil(size))
        .into_par_iter()
        .map(|p| {
            let rows = visible(mask, p * size, ((p + 1) * size).min(keys.rows));
            let mut sums = Sums::new(side, values.columns);
            let mut scratch = Scratch::new(side, values.columns, rows.len());
            sums.add(side, keys, values, &rows, &mut scratch)?;
            Ok(sums)
        })
        .collect();
    let mut parts = parts?.into_iter();
    let mut total = parts.next().unwrap_or_else(|| Sums::new(side, values.columns));
    parts.for_each(|part| total.merge(&part));
    Ok(total)
}

/// Attention of one head; `out` holds the rows of the outputs one after the other.
pub(crate) fn forward<T: Scalar>(
    map: &PackedMap<T::Real>,
    q: Strided<'_, T>,
    k: Strided<'_, T>,
    v: Strided<'_, T>,
    mask: Option<&[bool]>,
    out: &mut [T],
) -> Result<Sums<T::Real>> {
    let sums = sum_keys(&map.key, k, v, mask)?;
    apply(map, &sums, q, v.columns, out)?;
    Ok(sums)
}

/// The outputs of all queries, given the sums over the keys.
pub(crate) fn apply<T: Scalar>(
    map: &PackedMap<T::Real>,
    sums: &Sums<T::Real>,
    q: Strided<'_, T>,
    columns: usize,
    out: &mut [T],
) -> Result<()> {
    if sums.keys == 0 {
        out.fill(T::default());
        return Ok(());
    }
    let size = piece(q.rows);
    out.par_chunks_mut(size * columns).enumerate().try_for_each(|(p, out)| {
        let mut scratch = Scratch::new(&map.query, columns, size.min(q.rows));
        let rows: Vec<usize> = (p * size..((p + 1) * size).min(q.rows)).collect();
        let step = scratch.capacity;
        let mut tiles = rows.chunks(step).peekable();
        for out in out.chunks_mut(step * columns) {
            let Some(rows) = tiles.next() else { break };
            scratch.prefetch_during_projection = Prefetch::of(out);
            scratch.prefetch_during_product =
                tiles.peek().map_or(Prefetch::default(), |next| q.prefetch(next));
            query_tile_features(&map.query, sums, q, rows, &mut scratch)?;
            let Scratch { kernels, features, stride, values, prefetch_during_product, .. } =
                &mut scratch;
            let (features, right) = ((&features[..], *stride), (&sums.values[..], sums.width));
            let (depth, count) = (map.query.features, rows.len());
            Product::new(kernels, features, count)
                .prefetching(*prefetch_during_product)
                .rows(depth, right, values);
            normalise(&scratch.values, scratch.value_width, &scratch.terms, columns, out)?;
        }
        Ok(())
    })
}

/// Features of a tile of queries in `features`, denominators in `terms`.
pub(crate) fn query_tile_features<T: Scalar>(
    side: &PackedSide<T::Real>,
    sums: &Sums<T::Real>,
    q: Strided<'_, T>,
    rows: &[usize],
    scratch: &mut Scratch<T::Real>,
) -> Result<()> {
    scratch.project(side, "queries", q, rows)?;
    let tile = scratch.tile(side, rows.len());
    let Scratch { kernels, features, terms, row_exponents, .. } = scratch;
    let (constants, exponents, totals) = (&side.constants, &sums.exponents, &sums.totals);
    kernels.query_features(tile, features, constants, exponents, totals, terms, row_exponents);
    Ok(())
}

/// Writes numerators divided by denominators. A row without a denominator saw no key: zeros.
pub(crate) fn normalise<T: Scalar>(
    numerators: &[T::Real],
    width: usize,
    denominators: &[T::Real],
    columns: usize,
    out: &mut [T],
) -> Result<()> {
    // A few at a time: a list of all would be one more allocation, which a single row is too short for.
    const FEW: usize = 24;
    let kernels = T::Real::kernels();
    let rows = out.chunks_mut(FEW * columns).zip(numerators.chunks(FEW * width));
    for ((out, numerators), denominators) in rows.zip(denominators.chunks(FEW)) {
        let mut inverses = [T::Real::ZERO; FEW];
        let count = out.len() / columns;
        for (inverse, denominator) in inverses.iter_mut().zip(denominators).take(count) {
            let zero = *denominator == T::Real::ZERO;
            *inverse = T::Real::from_f64(if zero { 0.0 } else { 1.0 / denominator.to_f64() });
            if !inverse.is_finite() {
                return Err(overflow::<T>());
            }
        }
        store_rows(kernels, numerators, width, &inverses[..count], columns, out);
    }
    Ok(())
}
