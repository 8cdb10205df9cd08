//! Gradients of one head, causal: a walk forward for the queries, which need the sums before them,
//! and a walk back for the keys, which need the gradients after them.
//!
//! The walk forward notes where each tile began and which exponents it had. Going back, exponents
//! only fall, so the gradients of the sums only shrink: nothing overflows.

use super::backward::{HeadGradients, HeadInputs};
use super::causal::{Loaded, PairProduct, Walk};
use super::forward::visible;
use crate::engine::tensor::Scalar;
use crate::engine::tile::Sums;
use crate::engine::tile::{GradientTile, OutputGradients, SumGradients, add_outer};
use crate::engine::tile::{Product, write_rows};
use crate::map::{PackedMap, Panels};
use crate::simd::{Constants, Real};
use crate::{Float, Result};

/// What the walk back needs to know of a tile.
pub(super) struct Stop<R> {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) exponents: Vec<R>,
    pub(super) denominators: Vec<R>,
    /// The row terms of its keys.
    pub(super) key_terms: Vec<R>,
}

impl<R: Real> Stop<R> {
    pub(super) fn new(loaded: &Loaded<'_, R>, denominators: Vec<R>) -> Self {
        Self {
            start: loaded.start,
            end: loaded.start + loaded.rows,
            exponents: loaded.sums.exponents.clone(),
            denominators,
            key_terms: loaded.keys.terms[..loaded.key_rows.len()].to_vec(),
        }
    }
}

/// The gradients with respect to queries, keys and values.
pub(crate) fn backward_causal<T: Scalar>(
    map: &PackedMap<T::Real>,
    head: HeadInputs<'_, T>,
    gradients: HeadGradients<'_, T>,
) -> Result<()> {
    let stops = query_gradients(map, head, gradients.q)?;
    key_gradients(map, &stops, head, &[], gradients.k, gradients.v)
}

/// `w_ij = g_i·v_j + δ_i` for keys that query `i` sees, zero for the others.
pub(super) struct PairGradients<R> {
    /// Laid out as the weights of the tile are.
    pub(super) weights: Vec<R>,
    transposed: Vec<R>,
}

impl<R: Real> PairGradients<R> {
    pub(super) fn new() -> Self {
        Self { weights: vec![], transposed: vec![] }
    }

    pub(super) fn load(&mut self, loaded: &Loaded<'_, R>, outputs: &OutputGradients<R>) {
        let (count, stride) = (loaded.key_rows.len(), loaded.weight_stride);
        self.weights.resize(loaded.rows * stride, R::ZERO);
        let pairs = PairProduct {
            kernels: loaded.keys.kernels,
            left: (&outputs.g, outputs.width),
            rows: loaded.rows,
            right: (&loaded.keys.values, loaded.keys.value_width),
            columns: count,
            depth: outputs.width,
        };
        let seen = |i: usize| loaded.key_rows.partition_point(|&j| j <= loaded.start + i);
        pairs.run(seen, &mut self.transposed, (&mut self.weights, stride));
        for (i, row) in self.weights.chunks_mut(stride.max(1)).enumerate() {
            let delta = outputs.delta[i];
            row[..seen(i)].iter_mut().for_each(|w| *w = *w + delta);
            row[seen(i)..].fill(R::ZERO);
        }
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
    let mut pairs = PairGradients::new();
    let mut panels = Panels::zeros(map.query.features, outputs.width);
    let mut stops = vec![];
    let inputs = (head.q, head.k, head.v);
    walk.visit(inputs, head.mask, (0, head.q.rows), &mut |loaded| {
        let side = &map.query;
        let (start, end) = (loaded.start, loaded.start + loaded.rows);
        let rows: Vec<usize> = (start..end).collect();
        outputs.load(head.out, head.grad, &rows, &loaded.queries.terms)?;
        let tile = loaded.queries.tile(side, rows.len());
        panels.transpose_rows(&loaded.sums.values, loaded.sums.width, side.features);
        gradient.through_sums(&panels, tile, &outputs.g, outputs.width);
        pairs.load(&loaded, &outputs);
        loaded.with_seen(&pairs.weights, |pairs| {
            gradient.within_tile(tile, pairs, &loaded.keys.features);
        });
        let totals = &loaded.sums.totals;
        gradient.finish(side, loaded.queries, &outputs.delta, totals, None, &rows, 0, out);
        stops.push(Stop::new(&loaded, loaded.queries.terms[..rows.len()].to_vec()));
        Ok(())
    })?;
    Ok(stops)
}

/// Writes the gradients of keys and values. `of_terms`: what the row terms of the keys have beside what comes by
/// features, or nothing.
pub(super) fn key_gradients<T: Scalar>(
    map: &PackedMap<T::Real>,
    stops: &[Stop<T::Real>],
    head: HeadInputs<'_, T>,
    of_terms: &[T::Real],
    out_k: &mut [T],
    out_v: &mut [T],
) -> Result<()> {
    let side = &map.key;
    let columns = head.v.columns;
    let mut walk = Walk::new(map, Sums::new(side, columns), columns, head.q.rows);
    let mut gradient = GradientTile::new(side, walk.key_scratch());
    let mut outputs = OutputGradients::new(walk.query_scratch().capacity, columns);
    let mut through = SumGradients::like(&walk.sums);
    let mut pairs = PairGradients::new();
    let mut panels = Panels::zeros(side.features, outputs.width);
    let mut values = walk.key_scratch().values.clone();
    let ones = vec![T::Real::ONE; walk.key_scratch().capacity];
    let mut exponents: Option<&[T::Real]> = None;
    for stop in stops.iter().rev() {
        if let Some(later) = exponents {
            // Where an earlier tile had no keys at all, nothing reaches it.
            through.scale(|m| match stop.exponents[m].to_f64() - later[m].to_f64() {
                0.0 => 1.0,
                fall => fall.max(-2000.0).exp2(),
            });
        }
        exponents = Some(&stop.exponents);
        let rows: Vec<usize> = (stop.start..stop.end).collect();
        let key_rows = visible(head.mask, stop.start, stop.end);
        let inputs = (head.q, head.k, head.v);
        let loaded = walk.reload(inputs, &key_rows, &rows, (&stop.exponents, &stop.key_terms))?;
        outputs.load(head.out, head.grad, &rows, &stop.denominators)?;
        let (kernels, count) = (loaded.keys.kernels, loaded.key_rows.len());
        let query_tile = loaded.queries.tile(&map.query, rows.len());
        if count > 0 {
            let tile = loaded.keys.tile(side, count);
            // Values: through the later queries, then through the tile's own.
            let features = (&loaded.keys.features[..], tile.stride);
            let right = (&through.values[..], through.width);
            Product::new(kernels, features, count).rows(side.features, right, &mut values);
            loaded.with_seeing(loaded.weights, |pairs| {
                let right = (&outputs.g[..], outputs.width, outputs.width);
                pairs.add_product(kernels, count, right, &mut values);
            });
            write_rows(&values, outputs.width, loaded.key_rows, 0, columns, out_v);
            // Keys, likewise.
            panels.transpose_rows(&through.values, through.width, side.features);
            gradient.through_sums(&panels, tile, &loaded.keys.values, loaded.keys.value_width);
            pairs.load(&loaded, &outputs);
            loaded.with_seeing(&pairs.weights, |pairs| {
                gradient.within_tile(tile, pairs, &loaded.queries.features);
            });
            let totals = &through.totals;
            let (rows, of_terms) = (loaded.key_rows, Some(of_terms));
            gradient.finish(side, loaded.keys, &ones, totals, of_terms, rows, 0, out_k);
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
