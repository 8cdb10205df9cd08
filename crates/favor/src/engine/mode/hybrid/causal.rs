//! A query sees its own and earlier keys. A whole sequence and a single token go the same way: a state is
//! led over the tokens, and keeps what later ones need of earlier ones.

use super::block::Block;
use super::lists::Lists;
use super::routed::Routes;
use super::rows::{Estimated, Gathered, MANY, Pairs, QueryRows};
use super::tile::{Correct, visit_global, visit_window};
use super::{Hybrid, Shape};
use crate::engine::mode::causal::{Loaded, Walk, write_numerators};
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::Sums;
use crate::map::Cached;
use crate::{ExactKeys, Result};
use std::sync::Arc;

type Inputs<'a, T> = (Strided<'a, T>, Strided<'a, T>, Strided<'a, T>);

/// What later tokens need of earlier ones.
#[derive(Debug, Clone)]
pub(crate) struct State<R> {
    /// Tokens so far, masked ones included.
    pub(crate) position: usize,
    pub(crate) sums: Sums<R>,
    /// Keys of the window, and those that the lists have not seen.
    pub(super) recent: Block<R>,
    pub(super) lists: Arc<Lists<R>>,
}

/// What a state was before some tokens.
pub(crate) enum StateUndo<R> {
    Whole(Box<State<R>>),
    Few { position: usize, recent: usize, sums: Sums<R>, lists: Arc<Lists<R>> },
}

/// A tile of queries whose sums are complete.
pub(super) struct Done<'a, 'w, R: Cached> {
    pub(super) rows: &'a QueryRows<R>,
    pub(super) loaded: Loaded<'w, R>,
    pub(super) recent: &'a Block<R>,
    pub(super) lists: &'a Lists<R>,
    pub(super) routes: &'a Routes<R>,
}

/// What is told of a walk.
pub(super) trait Listener<R: Cached> {
    /// The lists are about to change.
    fn before_change(&mut self, _: &Lists<R>) {}
    /// The features of the lists will be relative to these exponents.
    fn before_refresh(&mut self, _: &Lists<R>, _: &[R]) {}
    fn tile(&mut self, done: Done<'_, '_, R>) -> Result<()>;
    /// Whether the values of blocks are needed by columns.
    fn with_values(&self) -> bool {
        false
    }
}

impl<R: Cached> State<R> {
    pub(crate) fn new(hybrid: &Hybrid<'_, R>, columns: usize) -> Self {
        let shape = Shape::new(hybrid.map, columns);
        Self {
            position: 0,
            sums: Sums::new(&hybrid.map.key, columns),
            recent: Block::new(shape),
            lists: Arc::new(Lists::new(hybrid, shape)),
        }
    }

    /// Attends from new tokens to themselves and all before. On an error the state is as it was; else it
    /// can be made so again.
    pub(crate) fn advance<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        inputs: Inputs<'_, T>,
        out: &mut [T],
    ) -> Result<StateUndo<R>> {
        let columns = inputs.2.columns;
        let mut outputs = Outputs { out, columns, position: self.position };
        let undo = if inputs.0.rows >= ExactKeys::BLOCK {
            StateUndo::Whole(Box::new(self.clone()))
        } else {
            // Of few tokens little changes: keys are added at the end, and lists are copied when they do.
            self.forget(hybrid);
            StateUndo::Few {
                position: self.position,
                recent: self.recent.len(),
                sums: self.sums.clone(),
                lists: Arc::clone(&self.lists),
            }
        };
        match self.lead(hybrid, inputs, None, &mut outputs) {
            Ok(()) => Ok(undo),
            Err(error) => {
                self.undo(undo);
                Err(error)
            }
        }
    }

    /// Takes the last tokens back.
    pub(crate) fn undo(&mut self, undo: StateUndo<R>) {
        match undo {
            StateUndo::Whole(state) => *self = *state,
            StateUndo::Few { position, recent, sums, lists } => {
                self.recent.keep(0, recent);
                (self.position, self.sums, self.lists) = (position, sums, lists);
            }
        }
    }

    /// Drops keys that are out of reach of any later window and known to the lists.
    fn forget(&mut self, hybrid: &Hybrid<'_, R>) {
        let unknown =
            self.sums.keys - self.sums.keys.saturating_sub(1) / ExactKeys::BLOCK * ExactKeys::BLOCK;
        let first = self.position.saturating_sub(hybrid.exact.near);
        let start = self.recent.positions.partition_point(|&j| j < first);
        let start = start.min(self.recent.len().saturating_sub(unknown));
        // Moving what is left costs more than keeping a few too many.
        if start >= ExactKeys::BLOCK.min(self.recent.len()) {
            self.recent.keep(start, self.recent.len());
        }
    }

    /// Leads the state over tokens, telling the listener of each tile. After an error the state is of no
    /// use.
    pub(super) fn lead<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        inputs: Inputs<'_, T>,
        mask: Option<&[bool]>,
        listener: &mut dyn Listener<R>,
    ) -> Result<()> {
        let (q, k, v) = inputs;
        let (offset, tokens) = (self.position, q.rows);
        let side = &hybrid.map.key;
        let sums = std::mem::replace(&mut self.sums, Sums::new(side, 0));
        let mut walk = Walk::new(hybrid.map, sums, v.columns, tokens).keeping_projections();
        let shape = Shape::new(hybrid.map, v.columns);
        let mut rows = QueryRows::new(shape, walk.query_scratch().capacity);
        let (mut pairs, mut gathered) = (Pairs::new(), Gathered::new());
        let mut routes = Routes::new(hybrid);
        let first_tokens = hybrid.global().0;
        let lists_matter = hybrid.exact.is_routed() || hybrid.exact.global > 0;
        let Self { recent, lists, position, .. } = self;
        let mut start = 0;
        while start < tokens {
            let keys = walk.sums.keys;
            if keys.is_multiple_of(ExactKeys::BLOCK) && keys > 0 && lists_matter {
                listener.before_change(lists);
                let new = recent.len() - ExactKeys::BLOCK;
                Arc::make_mut(lists).update(hybrid, recent, new, &walk.sums);
            }
            if keys.is_multiple_of(ExactKeys::BLOCK) && tokens >= ExactKeys::BLOCK {
                let near = (offset + start).saturating_sub(hybrid.exact.near);
                let old = recent.positions.partition_point(|&j| j < near);
                recent.keep(old, recent.len());
            }
            let end = end_of_block(mask, start, ExactKeys::BLOCK - keys % ExactKeys::BLOCK);
            let end = end.min(tokens);
            walk.visit(inputs, mask, (start, end), &mut |mut loaded| {
                let count = loaded.rows;
                let projected = (loaded.projections, loaded.keys.stride);
                let own = loaded.key_rows;
                let many = count >= MANY;
                recent.append(hybrid, (k, v), own, offset, projected, &loaded.keys.terms);
                if lists.first.len() < first_tokens && !own.is_empty() {
                    listener.before_change(lists);
                    let take = own.len().min(first_tokens - lists.first.len());
                    let first = &mut Arc::make_mut(lists).first;
                    for n in 0..take {
                        first.insert(first.len(), recent, recent.len() - own.len() + n);
                    }
                }
                let exponents = &loaded.sums.exponents;
                if hybrid.exact.near > 0 && recent.len() > 0 {
                    recent.refresh(side, exponents);
                    if many {
                        recent.turn(listener.with_values());
                    }
                }
                write_numerators(&mut loaded, hybrid.map.query.features);
                let denominators = loaded.queries.terms.clone();
                loaded.queries.compute_terms(&hybrid.map.query, count);
                let all: Vec<usize> = (loaded.start..loaded.start + count).collect();
                let estimated = Estimated {
                    denominators: &denominators,
                    row_exponents: &loaded.queries.row_exponents,
                    row_terms: &loaded.queries.terms,
                    numerators: &loaded.queries.values,
                };
                rows.start(hybrid, q, &all, offset, estimated)?;
                loaded.queries.terms = denominators;
                let p = (&loaded.queries.features[..], loaded.queries.stride);
                routes.find(&hybrid.map.query, loaded.queries, count, lists, exponents);
                if lists_matter {
                    listener.before_refresh(lists, exponents);
                    routes.refresh(hybrid, lists, count, exponents, listener.with_values());
                }
                let positions = std::mem::take(&mut rows.positions);
                let mut correct = Correct { rows: &mut rows, pairs: &mut pairs, p };
                visit_window(hybrid, true, &positions, recent, &mut correct);
                visit_global(hybrid, true, &positions, lists, &mut correct);
                rows.positions = positions;
                routes.correct(hybrid, lists, &mut rows, (&mut pairs, &mut gathered), p);
                rows.check::<T>()?;
                listener.tile(Done { rows: &rows, loaded, recent, lists, routes: &routes })
            })?;
            start = end;
        }
        self.sums = walk.sums;
        *position = offset + tokens;
        Ok(())
    }

    pub(crate) fn size_in_bytes(&self) -> usize {
        let sums = self.sums.values.len() + self.sums.totals.len() + self.sums.exponents.len();
        sums * size_of::<R>() + self.recent.size_in_bytes() + self.lists.size_in_bytes()
    }
}

/// The place after so many keys from `start` on that are not masked.
fn end_of_block(mask: Option<&[bool]>, start: usize, keys: usize) -> usize {
    let Some(mask) = mask else { return start + keys };
    let mut visible = (start..mask.len()).filter(|&j| mask[j]);
    visible.nth(keys - 1).map_or(mask.len(), |last| last + 1)
}

/// Writes the outputs of a walk.
struct Outputs<'o, T> {
    out: &'o mut [T],
    columns: usize,
    /// Where the first output is in the sequence.
    position: usize,
}

impl<T: Scalar> Listener<T::Real> for Outputs<'_, T> {
    fn tile(&mut self, done: Done<'_, '_, T::Real>) -> Result<()> {
        let start = done.rows.positions[0] - self.position;
        let range = start * self.columns..(start + done.rows.rows) * self.columns;
        done.rows.write(&mut self.out[range])
    }
}

impl<R: Cached> Hybrid<'_, R> {
    /// Causal attention of one head.
    pub(crate) fn forward_causal<T: Scalar<Real = R>>(
        &self,
        inputs: Inputs<'_, T>,
        mask: Option<&[bool]>,
        out: &mut [T],
    ) -> Result<()> {
        let columns = inputs.2.columns;
        let mut outputs = Outputs { out, columns, position: 0 };
        State::new(self, columns).lead(self, inputs, mask, &mut outputs)
    }
}
