//! Gradients of one head. Features have theirs over all keys, with the denominators of the whole; what
//! exact keys change is added tile by tile.

use super::causal::{Done, Listener, State, Tools};
use super::forward::TileWalker;
use super::gradient::{
    BlockGradient, Buffers, KeyGradients, ListGradients, QuerySums, TileGradient,
};
use super::lists::Lists;
use super::rows::QueryRows;
use super::tile::{visit_global, visit_window};
use super::{Hybrid, Shape};
use crate::engine::mode::backward::{GivenKeys, HeadGradients, HeadInputs, key_gradients};
use crate::engine::mode::causal_backward::{self, PairGradients, Stop};
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{
    GradientTile, OutputGradients, Scratch, SumGradients, add_outer, feature_panels,
};
use crate::map::{Cached, Panels};
use crate::{Float, Result};

/// How far exponents may rise before the gradients of members are added to those of their keys.
const MOST_RISE: f64 = 40.0;

/// What is the same for all tiles of a head.
struct Way<'h, R: Cached> {
    hybrid: &'h Hybrid<'h, R>,
    shape: Shape,
    keys: KeyGradients<'h, R>,
    window: Option<BlockGradient<R>>,
    buffers: Buffers<R>,
    queries: QuerySums<R>,
    /// In the units of the features, and of the rows.
    of_features: OutputGradients<R>,
    of_rows: OutputGradients<R>,
    tile: GradientTile<R>,
}

impl<'h, R: Cached> Way<'h, R> {
    fn new(
        hybrid: &'h Hybrid<'h, R>,
        (keys, columns): (usize, usize),
        scratch: &Scratch<R>,
    ) -> Self {
        let shape = Shape::new(hybrid.map, columns);
        let capacity = scratch.capacity;
        Self {
            hybrid,
            shape,
            keys: KeyGradients::new(hybrid, columns, keys),
            window: None,
            buffers: Buffers::new(),
            queries: QuerySums {
                keys: vec![R::ZERO; capacity * shape.dim_padded],
                sums: vec![R::ZERO; capacity],
            },
            of_features: OutputGradients::new(capacity, columns),
            of_rows: OutputGradients::new(capacity, columns),
            tile: GradientTile::new(&hybrid.map.query, scratch),
        }
    }

    /// Reads the gradients of the outputs of a tile; returns the denominators in the features' units.
    fn load<T: Scalar<Real = R>>(
        &mut self,
        head: &HeadInputs<'_, T>,
        indices: &[usize],
        rows: &QueryRows<R>,
    ) -> Result<Vec<R>> {
        let in_features = |(d, f): (&R, &R)| {
            let (d, f) = (d.to_f64(), f.to_f64());
            // Without features nothing goes through them.
            R::from_f64(if f == 0.0 { f64::INFINITY } else { d / f })
        };
        let pairs = rows.denominators[..rows.rows].iter().zip(&rows.factors);
        let denominators: Vec<R> = pairs.map(in_features).collect();
        self.of_features.load(head.out, head.grad, indices, &denominators)?;
        self.of_rows.load(head.out, head.grad, indices, &rows.denominators)?;
        self.queries.keys.fill(R::ZERO);
        self.queries.sums.fill(R::ZERO);
        Ok(denominators)
    }

    /// The visitor of a tile's meetings.
    fn visit(
        &mut self,
        rows: &QueryRows<R>,
        p: (&[R], usize),
        visit: impl FnOnce(&mut TileGradient<'_, R>),
    ) {
        let KeyGradients { first, worst, slots, .. } = &mut self.keys;
        let mut lists = ListGradients { first, worst, slots };
        let mut gradient = TileGradient {
            rows,
            p,
            outputs: &self.of_rows,
            logs: &mut self.tile.logs,
            queries: &mut self.queries,
            keys: (&mut self.window, &mut lists),
            buffers: &mut self.buffers,
        };
        visit(&mut gradient);
    }

    /// Writes the gradients of the tile's queries.
    fn write<T: Scalar<Real = R>>(
        &mut self,
        scratch: &Scratch<R>,
        totals: &[R],
        q: Strided<'_, T>,
        rows: &[usize],
        out: &mut [T],
    ) {
        let side = &self.hybrid.map.query;
        let Shape { dim, dim_padded, .. } = self.shape;
        self.tile.write_vectors(side, scratch, &self.of_features.delta, totals, rows.len());
        self.tile.add_row_terms(side, scratch, rows.len());
        let scale = R::from_f64(self.hybrid.kernel.scale().powi(2));
        let square = 2.0 * self.hybrid.kernel.alpha() * self.hybrid.kernel.scale().powi(2);
        let mut own = vec![R::ZERO; dim];
        for (n, &i) in rows.iter().enumerate() {
            q.widen_row(i, &mut own);
            let slope = R::from_f64(square * self.queries.sums[n].to_f64());
            for (l, out) in out[i * dim..(i + 1) * dim].iter_mut().enumerate() {
                let features = side.scale * self.tile.vectors[n * dim_padded + l];
                let exact = scale * self.queries.keys[n * dim_padded + l];
                *out = T::narrow(features + exact + slope * own[l]);
            }
        }
    }

    /// Adds the gradients of exact keys to those that came by features.
    fn finish<T: Scalar<Real = R>>(&self, out_k: &mut [T], out_v: &mut [T]) {
        let Shape { dim, dim_padded, columns, value_width, .. } = self.shape;
        add_rows(out_k, dim, &self.keys.keys, dim_padded);
        add_rows(out_v, columns, &self.keys.values, value_width);
    }
}

fn add_rows<T: Scalar>(out: &mut [T], columns: usize, rows: &[T::Real], stride: usize) {
    for (out, row) in out.chunks_mut(columns).zip(rows.chunks(stride)) {
        out.iter_mut().zip(row).for_each(|(o, x)| *o = T::narrow(o.widen() + *x));
    }
}

impl<R: Cached> Hybrid<'_, R> {
    /// The gradients with respect to queries, keys and values.
    pub(crate) fn backward<T: Scalar<Real = R>>(
        &self,
        head: HeadInputs<'_, T>,
        gradients: HeadGradients<'_, T>,
    ) -> Result<()> {
        let HeadInputs { q, k, v, mask, .. } = head;
        let known = self.know((k, v), mask, true)?;
        if known.sums.keys == 0 {
            return Ok(());
        }
        let (side, sums) = (&self.map.query, &known.sums);
        let panels = feature_panels(&sums.values, sums.width, side.features);
        let mut walker = TileWalker::new(self, v.columns, q.rows, true);
        let mut way = Way::new(self, (k.rows, v.columns), &walker.scratch);
        let mut through = SumGradients::like(sums);
        for start in (0..q.rows).step_by(walker.step) {
            let rows = &(start..(start + walker.step).min(q.rows)).collect::<Vec<_>>()[..];
            walker.run(&known, (q, k, v), mask, rows)?;
            walker.rows.check::<T>()?;
            way.load(&head, rows, &walker.rows)?;
            let TileWalker { scratch, rows: sums_of_rows, window, routes, .. } = &walker;
            let tile = scratch.tile(side, rows.len());
            way.tile.through_sums(&panels, tile, &way.of_features.g, way.of_features.width);
            let p = (&scratch.features[..], scratch.stride);
            let positions = &sums_of_rows.positions;
            for block in window {
                way.visit(sums_of_rows, p, |visitor| {
                    visit_window(self, false, positions, block, visitor);
                });
                if let Some(gradient) = way.window.take() {
                    way.keys.add(&[(block.view(), gradient)]);
                }
            }
            way.visit(sums_of_rows, p, |visitor| {
                visit_global(self, false, positions, &known.lists, visitor);
                routes.visit(&known.lists, |m, rows, block, hide| {
                    visitor.slot(m, rows, block, hide);
                });
            });
            way.write(scratch, &sums.totals, q, rows, gradients.q);
            let (features, kernels) = (&scratch.features, scratch.kernels);
            let (g, width) = (&way.of_features.g, way.of_features.width);
            add_outer(kernels, tile, features, side.features, g, width, &mut through.values);
            kernels.weighted_columns(tile, features, &way.of_features.delta, &mut through.totals);
        }
        through.totals[side.features..].fill(R::ZERO);
        way.keys.add_lists(&known.lists, true);
        let (terms, of_terms) = (&known.terms[..], &way.keys.of_terms[..]);
        let keys = GivenKeys { k, v, mask, terms, of_terms };
        key_gradients(self.map, sums, &through, keys, gradients.k, gradients.v)?;
        way.finish(gradients.k, gradients.v);
        Ok(())
    }

    /// The same, causal.
    pub(crate) fn backward_causal<T: Scalar<Real = R>>(
        &self,
        head: HeadInputs<'_, T>,
        gradients: HeadGradients<'_, T>,
    ) -> Result<()> {
        let mut state = State::for_walk(self, head.v.columns, true);
        let scratch = Scratch::new(&self.map.query, head.v.columns, head.q.rows);
        let way = Way::new(self, (head.k.rows, head.v.columns), &scratch);
        let columns = way.of_features.width;
        let mut walk = BackwardWalk {
            way,
            head,
            out: gradients.q,
            stops: vec![],
            pairs: PairGradients::new(),
            panels: Panels::zeros(self.map.query.features, columns),
            exponents: vec![],
            kept_since: vec![],
        };
        let (inputs, mut tools) = ((head.q, head.k, head.v), Tools::none());
        state.lead(self, inputs, head.mask, &mut walk, (&mut tools, false)).0?;
        let BackwardWalk { mut way, stops, .. } = walk;
        way.keys.add_lists(&state.lists, true);
        let of_terms = &way.keys.of_terms;
        causal_backward::key_gradients(self.map, &stops, head, of_terms, gradients.k, gradients.v)?;
        way.finish(gradients.k, gradients.v);
        Ok(())
    }
}

/// The walk forward, which gives the gradients of queries and of exact keys.
struct BackwardWalk<'a, 'h, T: Scalar> {
    way: Way<'h, T::Real>,
    head: HeadInputs<'a, T>,
    out: &'a mut [T],
    stops: Vec<Stop<T::Real>>,
    pairs: PairGradients<T::Real>,
    panels: Panels<T::Real>,
    /// What the features of the lists are relative to, and were when all gradients of slots were last added
    /// to those of their keys.
    exponents: Vec<T::Real>,
    kept_since: Vec<T::Real>,
}

impl<T: Scalar> Listener<T::Real> for BackwardWalk<'_, '_, T> {
    fn before_change(&mut self, lists: &Lists<T::Real>, global_keys: bool, new: &[T::Real]) {
        let risen = self.exponents != new;
        if !risen && !global_keys {
            return;
        }
        // What gradients are multiplied by falls as far as they rise: not beyond what they can hold.
        let far = |(old, new): (&T::Real, &T::Real)| new.to_f64() - old.to_f64() > MOST_RISE;
        let all = self.kept_since.len() != new.len() || self.kept_since.iter().zip(new).any(far);
        self.way.keys.add_lists(lists, all);
        if all {
            self.kept_since = new.to_vec();
        } else if risen {
            self.way.keys.rebase(&self.exponents, new);
        }
        self.exponents.clear();
        self.exponents.extend_from_slice(new);
    }

    fn after_change(&mut self, lists: &Lists<T::Real>) {
        self.way.keys.add_evicted(&lists.members.evicted);
    }

    fn with_values(&self) -> bool {
        true
    }

    fn tile(&mut self, done: Done<'_, '_, T::Real>) -> Result<()> {
        let Done { rows, loaded, recent, lists, routes } = done;
        let way = &mut self.way;
        let hybrid = way.hybrid;
        let side = &hybrid.map.query;
        let (start, end) = (loaded.start, loaded.start + loaded.rows);
        let indices: Vec<usize> = (start..end).collect();
        let denominators = way.load(&self.head, &indices, rows)?;
        let tile = loaded.queries.tile(side, rows.rows);
        self.panels.transpose_rows(&loaded.sums.values, loaded.sums.width, side.features);
        way.tile.through_sums(&self.panels, tile, &way.of_features.g, way.of_features.width);
        self.pairs.load(&loaded, &way.of_features);
        loaded.with_seen(&self.pairs.weights, |pairs| {
            way.tile.within_tile(tile, pairs, &loaded.keys.features);
        });
        let p = (&loaded.queries.features[..], loaded.queries.stride);
        way.visit(rows, p, |visitor| {
            visit_window(hybrid, true, &rows.positions, recent, visitor);
            visit_global(hybrid, true, &rows.positions, lists, visitor);
            routes.visit(lists, |m, rows, block, hide| visitor.slot(m, rows, block, hide));
        });
        if let Some(gradient) = way.window.take() {
            way.keys.add(&[(recent.view(), gradient)]);
        }
        way.write(loaded.queries, &loaded.sums.totals, self.head.q, &indices, self.out);
        self.stops.push(Stop::new(&loaded, denominators));
        Ok(())
    }
}
