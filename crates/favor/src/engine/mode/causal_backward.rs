//! Gradients of one head, causal: a walk forward for the queries, which need the sums before them,
//! and a walk back for the keys, which need the gradients after them.
//!
//! The walk forward notes where each tile began and which exponents it had. Going back, exponents
//! only fall, so the gradients of the sums only shrink: nothing overflows.

use super::backward::{HeadGradients, HeadInputs};
use super::causal::{Loaded, Walk};
use super::forward::visible;
use crate::engine::tensor::Scalar;
use crate::engine::tile::Sums;
use crate::engine::tile::{GradientTile, OutputGradients, SumGradients, add_outer, feature_panels};
use crate::engine::tile::{Product, write_rows};
use crate::map::PackedMap;
use crate::simd::{Constants, Gemm, GemmTransposed, Prefetch, Real};
use crate::{Float, Result};

/// What the walk back needs to know of a tile.
pub(super) struct Stop<R> {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) exponents: Vec<R>,
    pub(super) denominators: Vec<R>,
}

/// The gradients with respect to queries, keys and values.
pub(crate) fn backward_causal<T: Scalar>(
    map: &PackedMap<T::Real>,
    head: HeadInputs<'_, T>,
    gradients: HeadGradients<'_, T>,
) -> Result<()> {
    let stops = query_gradients(map, head, gradients.q)?;
    key_gradients(map, &stops, head, gradients.k, gradients.v)
}

/// `w_ij = g_i·v_j + δ_i` for keys that query `i` sees, zero for the others.
pub(super) fn pair_gradients<R: Real>(
    loaded: &Loaded<'_, R>,
    outputs: &OutputGradients<R>,
    weights: &mut Vec<R>,
) {
    let count = loaded.key_rows.len();
    weights.resize(loaded.rows * count, R::ZERO);
    let inner = GemmTransposed {
        rows: loaded.rows,
        columns: count,
        depth: outputs.width,
        a_row: outputs.width,
        b_row: loaded.keys.value_width,
        c_row: count,
    };
    loaded.keys.kernels.inner(&inner, &outputs.g, &loaded.keys.values, weights);
    for (i, row) in weights.chunks_mut(count.max(1)).enumerate() {
        let seen = loaded.key_rows.partition_point(|&j| j <= loaded.start + i);
        let delta = outputs.delta[i].to_f64();
        row[..seen].iter_mut().for_each(|w| *w = R::from_f64(w.to_f64() + delta));
        row[seen..].fill(R::ZERO);
    }
}

fn query_gradients<T: Scalar>(
    map: &PackedMap<T::Real>,
    head: HeadInputs<'_, T>,
    out: &mut [T],
) -> Result<Vec<Stop<T::Real>>> {
    let mut walk = Walk::new(map, Sums::new(&map.key, head.v.columns), head.v.columns, head.q.rows);
    let mut gradient = GradientTile::new(&map.query, walk.query_scratch());
    let mut outputs = OutputGradients::new(walk.query_scratch().capacity, head.v.columns);
    let mut weights = vec![];
    let mut stops = vec![];
    let inputs = (head.q, head.k, head.v);
    walk.visit(inputs, head.mask, (0, head.q.rows), &mut |loaded| {
        let side = &map.query;
        let (start, end) = (loaded.start, loaded.start + loaded.rows);
        let rows: Vec<usize> = (start..end).collect();
        outputs.load(head.out, head.grad, &rows, &loaded.queries.terms)?;
        let tile = loaded.queries.tile(side, rows.len());
        let panels = feature_panels(&loaded.sums.values, loaded.sums.width, side.features);
        gradient.through_sums(&panels, tile, &outputs.g, outputs.width);
        pair_gradients(&loaded, &outputs, &mut weights);
        let count = loaded.key_rows.len();
        gradient.within_tile(tile, count, (&weights, (count, 1)), &loaded.keys.features);
        let totals = &loaded.sums.totals;
        gradient.finish(side, loaded.queries, &outputs.delta, totals, false, &rows, 0, out);
        stops.push(Stop {
            start,
            end,
            exponents: loaded.sums.exponents.clone(),
            denominators: loaded.queries.terms[..rows.len()].to_vec(),
        });
        Ok(())
    })?;
    Ok(stops)
}

pub(super) fn key_gradients<T: Scalar>(
    map: &PackedMap<T::Real>,
    stops: &[Stop<T::Real>],
    head: HeadInputs<'_, T>,
    out_k: &mut [T],
    out_v: &mut [T],
) -> Result<()> {
    let side = &map.key;
    let columns = head.v.columns;
    let mut walk = Walk::new(map, Sums::new(side, columns), columns, head.q.rows);
    let mut gradient = GradientTile::new(side, walk.key_scratch());
    let mut outputs = OutputGradients::new(walk.query_scratch().capacity, columns);
    let mut through = SumGradients::like(&walk.sums);
    let mut weights = vec![];
    let mut values = walk.key_scratch().values.clone();
    let ones = vec![T::Real::ONE; walk.key_scratch().capacity];
    let mut exponents: Option<&[T::Real]> = None;
    for stop in stops.iter().rev() {
        if let Some(later) = exponents {
            // Where an earlier tile had no keys at all, nothing reaches it.
            through.scale(|m| (stop.exponents[m].to_f64() - later[m].to_f64()).max(-2000.0).exp2());
        }
        exponents = Some(&stop.exponents);
        let rows: Vec<usize> = (stop.start..stop.end).collect();
        let key_rows = visible(head.mask, stop.start, stop.end);
        let inputs = (head.q, head.k, head.v);
        let loaded = walk.reload(inputs, &key_rows, &rows, &stop.exponents)?;
        outputs.load(head.out, head.grad, &rows, &stop.denominators)?;
        let (kernels, count) = (loaded.keys.kernels, loaded.key_rows.len());
        let query_tile = loaded.queries.tile(&map.query, rows.len());
        if count > 0 {
            let tile = loaded.keys.tile(side, count);
            // Values: through the later queries, then through the tile's own.
            let features = (&loaded.keys.features[..], tile.stride);
            let right = (&through.values[..], through.width);
            Product::new(kernels, features, count).rows(side.features, right, &mut values);
            let shape = Gemm {
                rows: count,
                columns: outputs.width,
                depth: rows.len(),
                a: (1, count),
                b_row: outputs.width,
                b_panel: 2 * kernels.lanes,
                c_row: outputs.width,
                accumulate: true,
                in_parts: false,
                prefetch: Prefetch::default(),
            };
            kernels.gemm(&shape, loaded.weights, &outputs.g, &mut values);
            write_rows(&values, outputs.width, loaded.key_rows, 0, columns, out_v);
            // Keys, likewise.
            let panels = feature_panels(&through.values, through.width, side.features);
            gradient.through_sums(&panels, tile, &loaded.keys.values, loaded.keys.value_width);
            pair_gradients(&loaded, &outputs, &mut weights);
            let left = (&weights[..], (1, count));
            gradient.within_tile(tile, rows.len(), left, &loaded.queries.features);
            let totals = &through.totals;
            gradient.finish(side, loaded.keys, &ones, totals, true, loaded.key_rows, 0, out_k);
        }
        let (features, g) = (&loaded.queries.features, &outputs.g);
        add_outer(
            kernels,
            query_tile,
            features,
            side.features,
            g,
            outputs.width,
            &mut through.values,
        );
        kernels.weighted_columns(query_tile, features, &outputs.delta, &mut through.totals);
        through.totals[side.features..].fill(T::Real::ZERO);
    }
    Ok(())
}
