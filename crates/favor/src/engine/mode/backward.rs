//! Gradients of one head, every query seeing every key.

use super::forward::{piece, query_tile_features, sum_keys, visible};
use crate::Result;
use crate::engine::tensor::Scalar;
use crate::engine::tensor::Strided;
use crate::engine::tile::Sums;
use crate::engine::tile::{GradientTile, OutputGradients, SumGradients, add_outer, feature_panels};
use crate::engine::tile::{Product, Scratch, write_rows};
use crate::map::PackedMap;
use crate::simd::Constants;
use rayon::prelude::*;

/// Gradients of one head, each with its rows one after the other.
pub(crate) struct HeadGradients<'o, T> {
    pub(crate) q: &'o mut [T],
    pub(crate) k: &'o mut [T],
    pub(crate) v: &'o mut [T],
}

/// The inputs of one head, its output and the gradient of its output.
#[derive(Clone, Copy)]
pub(crate) struct HeadInputs<'a, T> {
    pub(crate) q: Strided<'a, T>,
    pub(crate) k: Strided<'a, T>,
    pub(crate) v: Strided<'a, T>,
    pub(crate) mask: Option<&'a [bool]>,
    pub(crate) out: Strided<'a, T>,
    pub(crate) grad: Strided<'a, T>,
}

/// Keys, and what is known of them before their gradients are written: one number per key, or nothing.
#[derive(Clone, Copy)]
pub(crate) struct GivenKeys<'a, T: Scalar> {
    pub(crate) k: Strided<'a, T>,
    pub(crate) v: Strided<'a, T>,
    pub(crate) mask: Option<&'a [bool]>,
    /// Row terms.
    pub(crate) terms: &'a [T::Real],
    /// What these have of gradients beside what comes by features.
    pub(crate) of_terms: &'a [T::Real],
}

/// The gradients with respect to queries, keys and values.
pub(crate) fn backward<T: Scalar>(
    map: &PackedMap<T::Real>,
    head: HeadInputs<'_, T>,
    gradients: HeadGradients<'_, T>,
) -> Result<()> {
    let sums = sum_keys(&map.key, head.k, head.v, head.mask)?;
    if sums.keys == 0 {
        return Ok(());
    }
    let through = query_gradients(map, &sums, head, gradients.q)?;
    let HeadInputs { k, v, mask, .. } = head;
    let keys = GivenKeys { k, v, mask, terms: &[], of_terms: &[] };
    key_gradients(map, &sums, &through, keys, gradients.k, gradients.v)
}

/// Writes the gradients of the queries; returns those of the sums.
fn query_gradients<T: Scalar>(
    map: &PackedMap<T::Real>,
    sums: &Sums<T::Real>,
    head: HeadInputs<'_, T>,
    out: &mut [T],
) -> Result<SumGradients<T::Real>> {
    let side = &map.query;
    let panels = feature_panels(&sums.values, sums.width, side.features);
    let size = piece(head.q.rows);
    let parts: Result<Vec<_>> = out
        .par_chunks_mut(size * side.dim)
        .enumerate()
        .map(|(p, out)| {
            let start = p * size;
            let rows: Vec<usize> = (start..(start + size).min(head.q.rows)).collect();
            let mut scratch = Scratch::new(side, head.v.columns, rows.len());
            let mut tile_gradient = GradientTile::new(side, &scratch);
            let mut outputs = OutputGradients::new(scratch.capacity, head.v.columns);
            let mut through = SumGradients::like(sums);
            for rows in rows.chunks(scratch.capacity) {
                query_tile_features(side, sums, head.q, rows, &mut scratch)?;
                outputs.load(head.out, head.grad, rows, &scratch.terms)?;
                let tile = scratch.tile(side, rows.len());
                tile_gradient.through_sums(&panels, tile, &outputs.g, outputs.width);
                tile_gradient.finish(
                    side,
                    &scratch,
                    &outputs.delta,
                    &sums.totals,
                    None,
                    rows,
                    start,
                    out,
                );
                let (features, kernels) = (&scratch.features, scratch.kernels);
                let (g, width) = (&outputs.g, outputs.width);
                add_outer(kernels, tile, features, side.features, g, width, &mut through.values);
                kernels.weighted_columns(tile, features, &outputs.delta, &mut through.totals);
            }
            through.totals[side.features..].fill(T::Real::ZERO);
            Ok(through)
        })
        .collect();
    let mut parts = parts?.into_iter();
    let mut total = parts.next().unwrap_or_else(|| SumGradients::like(sums));
    parts.for_each(|part| total.merge(&part));
    Ok(total)
}

/// Writes the gradients of the keys and values.
pub(crate) fn key_gradients<T: Scalar>(
    map: &PackedMap<T::Real>,
    sums: &Sums<T::Real>,
    through: &SumGradients<T::Real>,
    GivenKeys { k, v, mask, terms: known, of_terms }: GivenKeys<'_, T>,
    out_k: &mut [T],
    out_v: &mut [T],
) -> Result<()> {
    let side = &map.key;
    let columns = v.columns;
    let panels = feature_panels(&through.values, through.width, side.features);
    let size = piece(k.rows);
    let ones = vec![T::Real::ONE; size];
    out_k
        .par_chunks_mut(size * side.dim)
        .zip(out_v.par_chunks_mut(size * columns))
        .enumerate()
        .try_for_each(|(p, (out_k, out_v))| {
            let start = p * size;
            let rows = visible(mask, start, (start + size).min(k.rows));
            let mut scratch = Scratch::new(side, columns, rows.len());
            let mut tile_gradient = GradientTile::new(side, &scratch);
            let mut unused = vec![T::Real::ZERO; side.weights.width];
            let mut values = scratch.values.clone();
            for rows in rows.chunks(scratch.capacity) {
                scratch.project(side, "keys", k, rows)?;
                scratch.known_terms(side, rows, known);
                let tile = scratch.tile(side, rows.len());
                let Scratch { kernels, features, terms, .. } = &mut scratch;
                let exponents = &sums.exponents;
                kernels.key_features(
                    tile,
                    features,
                    terms,
                    &side.constants,
                    exponents,
                    &mut unused,
                );
                let features = (&features[..], tile.stride);
                let right = (&through.values[..], through.width);
                Product::new(kernels, features, rows.len()).rows(side.features, right, &mut values);
                write_rows(&values, through.width, rows, start, columns, out_v);
                match v.in_place(rows) {
                    Some(data) if columns == through.width => {
                        tile_gradient.through_sums(&panels, tile, data, v.row_stride);
                    }
                    _ => {
                        scratch.pack_values("values", v, rows)?;
                        tile_gradient.through_sums(&panels, tile, &scratch.values, through.width);
                    }
                }
                tile_gradient.finish(
                    side,
                    &scratch,
                    &ones,
                    &through.totals,
                    Some(of_terms),
                    rows,
                    start,
                    out_k,
                );
            }
            Ok(())
        })
}
