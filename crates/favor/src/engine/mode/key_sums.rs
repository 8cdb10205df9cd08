//! Key sums in fused tiles.

use super::forward::query_tile_features;
use super::product::row_scales;
use crate::engine::tensor::Strided;
use crate::engine::tile::Sums;
use crate::engine::tile::{Product, Scratch, all_finite, overflow};
use crate::map::{Cached, PackedMap, PackedSide};
use crate::simd::{Constants, Prefetch};
use crate::{Error, FeatureMap, Float, KeySums, LogScaled, Matrix, Result, Rows, reference};
use rayon::prelude::*;
use std::f64::consts::LN_2;

/// Rows that are summed in the data's own format before they are added in `f64`; also what one thread
/// takes at a time. No more rows than this stay on the calling thread, which suits the workers of a
/// stream: it has its threads already.
const PIECE: usize = 8192;

impl KeySums {
    /// Adds a piece of the keys with their values.
    ///
    /// ```
    /// use favor::{Family, FeatureSpec, Kernel, KeySums, Moments, Rows};
    /// let y = Rows::new(&[0.1_f32, 0.2, -0.3, 0.1], 2, 2)?;
    /// let ones = Rows::new(&[1.0_f32, 1.0], 2, 1)?;
    /// let m = Moments::of(y)?;
    /// let map = FeatureSpec::new(Family::Balanced, 64).kernel(Kernel::gaussian()).fit(&m, &m)?;
    /// let mut sums = KeySums::new(&map, 1);
    /// sums.add(&map, y, ones)?;
    /// let near = sums.apply(&map, y)?.to_matrix()?;
    /// assert!((near[(0, 0)] - 1.92).abs() < 0.2); // 1 + e^{−0.085}
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn add<T: Float>(
        &mut self,
        map: &FeatureMap,
        keys: Rows<'_, T>,
        values: Rows<'_, T>,
    ) -> Result<()> {
        T::add_keys(self, map, keys, values)
    }

    /// `P (SᵀC)` for a set of queries. Before the first key every row is zero.
    pub fn apply<T: Float>(&self, map: &FeatureMap, queries: Rows<'_, T>) -> Result<LogScaled<T>> {
        T::apply_sums(self, map, queries)
    }
}

pub(crate) fn add_keys<T: Float>(
    sums: &mut KeySums,
    map: &FeatureMap,
    keys: Rows<'_, T>,
    values: Rows<'_, T>,
) -> Result<()> {
    sums.check_piece(map, keys, values)?;
    if keys.columns() == map.dim()
        && let Some(packed) = map.packed::<T::Real>()
    {
        match fast_sums(&packed.key, keys, values) {
            Ok(new) => return sums.merge(&new),
            Err(Error::Overflow { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    // A trigonometric map, or numbers beyond the format.
    reference::add_keys(sums, map, keys, values)
}

pub(crate) fn apply_sums<T: Float>(
    sums: &KeySums,
    map: &FeatureMap,
    queries: Rows<'_, T>,
) -> Result<LogScaled<T>> {
    sums.check_map(map)?;
    let seen = sums.log_scale.iter().all(|s| s.is_finite());
    if seen
        && queries.columns() == map.dim()
        && let Some(packed) = map.packed::<T::Real>()
        && let Some(tiles) = to_tiles(sums, &packed.key)
    {
        match apply_tiles(packed, &tiles, (sums.sums.columns(), PIECE), queries) {
            Err(Error::Overflow { .. }) => {}
            other => return other,
        }
    }
    reference::apply_sums(sums, map, queries)
}

fn fast_sums<T: Float>(
    side: &PackedSide<T::Real>,
    keys: Rows<'_, T>,
    values: Rows<'_, T>,
) -> Result<KeySums> {
    // A column of ones would add up to what the totals are.
    let ones = values.columns() == 1 && values.iter().all(|v| v[0].to_f64() == 1.0);
    let piece = |start: usize| -> Result<KeySums> {
        let rows: Vec<usize> = (start..(start + PIECE).min(keys.rows())).collect();
        let mut scratch = Scratch::new(side, values.columns(), rows.len());
        let mut sums = Sums::new(side, values.columns());
        let settled = |sums: &Sums<T::Real>| {
            // The largest key of a feature counts about one. Where it counts nothing, the logarithms were
            // too large for the format to tell them apart.
            if sums.totals[..side.features].contains(&T::Real::ZERO) {
                return Err(overflow::<T>());
            }
            Ok(())
        };
        if ones {
            sums.count(side, Strided::of(keys), &rows, &mut scratch)?;
            settled(&sums)?;
            return from_tiles(&sums, side.features, 1, |m, _| sums.totals[m]);
        }
        sums.add(side, Strided::of(keys), Strided::of(values), &rows, &mut scratch)?;
        settled(&sums)?;
        let entry = |m: usize, c: usize| sums.values[m * sums.width + c];
        from_tiles(&sums, side.features, values.columns(), entry)
    };
    let mut total = piece(0)?;
    // A few pieces per thread at a time, merged in order: memory stays bounded, and no result depends
    // on the number of threads.
    let starts: Vec<usize> = (PIECE..keys.rows()).step_by(PIECE).collect();
    for group in starts.chunks(4 * rayon::current_num_threads()) {
        let parts: Result<Vec<KeySums>> = group.par_iter().map(|&start| piece(start)).collect();
        parts?.iter().try_for_each(|part| total.merge(part))?;
    }
    Ok(total)
}

/// The same sums with natural logarithms.
fn from_tiles<R: Cached>(
    sums: &Sums<R>,
    features: usize,
    columns: usize,
    entry: impl Fn(usize, usize) -> R,
) -> Result<KeySums> {
    let log_scale = sums.exponents[..features].iter().map(|e| e.to_f64() * LN_2).collect();
    KeySums::from_parts(log_scale, Matrix::from_fn(features, columns, |m, c| entry(m, c).to_f64()))
}

/// The same sums with integer exponents; `None` where they do not fit the format.
fn to_tiles<R: Cached>(sums: &KeySums, side: &PackedSide<R>) -> Option<Sums<R>> {
    let columns = sums.sums().columns();
    let mut out = Sums::new(side, columns);
    for m in 0..out.exponents.len() {
        // Columns beyond the last feature are copies of it, without values.
        let source = m.min(side.features - 1);
        let log = sums.log_scale()[source];
        let exponent = (log / LN_2).ceil();
        out.exponents[m] = R::from_f64(exponent);
        if m < side.features {
            let factor = (log - exponent * LN_2).exp();
            let row = &mut out.values[m * out.width..][..columns];
            for (v, s) in row.iter_mut().zip(sums.sums().row(m)) {
                *v = R::from_f64(s * factor);
            }
        }
    }
    let finite = out.values.iter().chain(&out.exponents).all(|v| v.is_finite());
    finite.then_some(out)
}

/// `P (SᵀC)` from sums in tiles, `size` queries per task: what [`KeySums::apply`] and products share.
pub(super) fn apply_tiles<T: Float>(
    map: &PackedMap<T::Real>,
    sums: &Sums<T::Real>,
    (columns, size): (usize, usize),
    queries: Rows<'_, T>,
) -> Result<LogScaled<T>> {
    let mut values = Matrix::zeros(queries.rows(), columns);
    let mut log_scale = vec![0.0; queries.rows()];
    let pieces = values.as_mut_slice().chunks_mut(size * columns).zip(log_scale.chunks_mut(size));
    let pieces: Vec<_> = pieces.enumerate().collect();
    let queries = Strided::of(queries);
    let one = |(p, (out, scales)): (usize, (&mut [T], &mut [f64]))| -> Result<()> {
        let mut scratch = Scratch::new(&map.query, columns, scales.len());
        let rows: Vec<usize> = (p * size..p * size + scales.len()).collect();
        let step = scratch.capacity;
        let mut tiles = rows.chunks(step).peekable();
        for (out, scales) in out.chunks_mut(step * columns).zip(scales.chunks_mut(step)) {
            let Some(rows) = tiles.next() else { break };
            scratch.prefetch_during_projection =
                tiles.peek().map_or(Prefetch::default(), |next| queries.prefetch(next));
            query_tile_features(&map.query, sums, queries, rows, &mut scratch)?;
            row_scales(map, rows.len(), &mut scratch, scales);
            let Scratch { kernels, features, stride, values, .. } = &mut scratch;
            let (features, right) = ((&features[..], *stride), (&sums.values[..], sums.width));
            Product::new(kernels, features, rows.len()).rows(map.query.features, right, values);
            // Here, while they are in cache.
            let finite = scales.iter().fold(true, |all, s| all & s.is_finite());
            if !(finite && all_finite(&values[..rows.len() * sums.width])) {
                return Err(overflow::<T>());
            }
            for (out, row) in out.chunks_mut(columns).zip(values.chunks(sums.width)) {
                T::scaled_into(row, T::Real::ONE, out);
            }
        }
        Ok(())
    };
    if pieces.len() == 1 {
        pieces.into_iter().try_for_each(one)?;
    } else {
        pieces.into_par_iter().try_for_each(one)?;
    }
    Ok(LogScaled { log_scale, values })
}
