//! A query sees its own and earlier keys. A whole sequence and a single token go the same way: a state is
//! led over the tokens, and keeps what later ones need of earlier ones.

use super::block::Block;
use super::lists::Lists;
use super::routed::Routes;
use super::rows::{Estimated, MANY, Pairs, QueryRows};
use super::tile::{Correct, visit_global, visit_window};
use super::{Hybrid, Shape};
use crate::engine::mode::causal::{Loaded, Walk, WalkMemory, write_numerators};
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{Pending, Scratch, Sums};
use crate::map::Cached;
use crate::{ExactKeys, Result};
use std::fmt;

type Inputs<'a, T> = (Strided<'a, T>, Strided<'a, T>, Strided<'a, T>);

/// What later tokens need of earlier ones.
#[derive(Debug, Clone)]
pub(crate) struct State<R> {
    /// Tokens so far, masked ones included.
    pub(crate) position: usize,
    pub(crate) sums: Sums<R>,
    /// Keys of the window, and those that the lists have not seen.
    pub(super) recent: Block<R>,
    /// The logarithms of the features of the latter, one number per slot and key.
    pub(super) scores: Vec<R>,
    pub(super) lists: Lists<R>,
}

/// What a state was before some tokens.
pub(crate) enum StateUndo<R> {
    Whole(Box<State<R>>),
    Few { position: usize, pending: Pending<R>, recent: usize, scores: usize, first: usize },
}

/// A tile of queries whose sums are complete.
pub(super) struct Done<'a, 'w, R: Cached> {
    pub(super) rows: &'a QueryRows<R>,
    pub(super) loaded: Loaded<'w, R>,
    pub(super) recent: &'a Block<R>,
    pub(super) lists: &'a Lists<R>,
    pub(super) routes: &'a Routes<R>,
}

/// Memory that one walk leaves to the next.
pub(crate) struct Tools<R: Cached> {
    pub(crate) walk: Option<Box<WalkMemory<R>>>,
    /// For sums that are kept in `f64` too.
    pub(crate) wide: Option<Scratch<f64>>,
    correction: Option<Correction<R>>,
}

impl<R: Cached> Clone for Tools<R> {
    /// It is memory, not what is in it, that one walk leaves to the next.
    fn clone(&self) -> Self {
        Self::none()
    }
}

impl<R: Cached> fmt::Debug for Tools<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").finish_non_exhaustive()
    }
}

impl<R: Cached> Tools<R> {
    pub(crate) fn none() -> Self {
        Self { walk: None, wide: None, correction: None }
    }
}

/// Memory for what exact keys change in a tile.
struct Correction<R: Cached> {
    rows: QueryRows<R>,
    pairs: Pairs<R>,
    routes: Routes<R>,
    /// Denominators of the features alone.
    denominators: Vec<R>,
    /// What it is large enough for.
    shape: Shape,
    capacity: usize,
    exact: ExactKeys,
}

impl<R: Cached> Correction<R> {
    /// This memory, or other if it is of the wrong size.
    fn fitting<'t>(
        memory: &'t mut Option<Self>,
        hybrid: &Hybrid<'_, R>,
        shape: Shape,
        capacity: usize,
    ) -> &'t mut Self {
        let exact = hybrid.exact;
        let fits = |t: &Self| (t.shape, t.exact) == (shape, exact) && t.capacity >= capacity;
        if !memory.as_ref().is_some_and(fits) {
            *memory = None;
        }
        memory.get_or_insert_with(|| Self {
            rows: QueryRows::new(shape, capacity),
            pairs: Pairs::new(),
            routes: Routes::new(hybrid),
            denominators: vec![],
            shape,
            capacity,
            exact,
        })
    }
}

/// What is told of a walk.
pub(super) trait Listener<R: Cached> {
    /// Global keys are about to change, or only the exponents that the features of the lists are relative to.
    fn before_change(&mut self, _: &Lists<R>, _global_keys: bool, _exponents: &[R]) {}
    /// Some members of slots were replaced.
    fn after_change(&mut self, _: &Lists<R>) {}
    fn tile(&mut self, done: Done<'_, '_, R>) -> Result<()>;
    /// Whether the values of blocks are needed by columns.
    fn with_values(&self) -> bool {
        false
    }
}

impl<R: Cached> State<R> {
    pub(crate) fn new(hybrid: &Hybrid<'_, R>, columns: usize) -> Self {
        Self::for_walk(hybrid, columns, false)
    }

    /// A state that is led over a sequence, with what gradients need if they are wanted.
    pub(super) fn for_walk(hybrid: &Hybrid<'_, R>, columns: usize, for_gradients: bool) -> Self {
        let shape = Shape::new(hybrid.map, columns);
        Self {
            position: 0,
            sums: Sums::new(&hybrid.map.key, columns),
            recent: Block::new(shape),
            scores: vec![],
            lists: Lists::new(hybrid, shape, for_gradients),
        }
    }

    /// Attends from new tokens to themselves and all before. On an error the state is as it was; else it
    /// can be made so again.
    pub(crate) fn advance<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        inputs: Inputs<'_, T>,
        out: &mut [T],
        tools: &mut Tools<R>,
    ) -> Result<StateUndo<R>> {
        let columns = inputs.2.columns;
        let mut outputs = Outputs { out, columns, position: self.position };
        // The lists change when a block of keys is full: of what was there before, that need not be undone.
        self.update_lists(hybrid);
        let within = self.sums.keys % ExactKeys::BLOCK + inputs.0.rows;
        let few = within <= ExactKeys::BLOCK;
        let mut undo = if few {
            self.forget(hybrid);
            StateUndo::Few {
                position: self.position,
                pending: Pending::default(),
                recent: self.recent.len(),
                scores: self.scores.len(),
                first: self.lists.first.len(),
            }
        } else {
            StateUndo::Whole(Box::new(self.clone()))
        };
        let (led, taken) = self.lead(hybrid, inputs, None, &mut outputs, (tools, few));
        if let StateUndo::Few { pending, .. } = &mut undo {
            *pending = taken;
        }
        match led {
            Ok(()) => {
                // A state that waits for the next token is as small as can be.
                self.recent.release();
                Ok(undo)
            }
            Err(error) => {
                self.undo(undo);
                Err(error)
            }
        }
    }

    /// Makes the last tokens stay.
    pub(crate) fn settle(&mut self, undo: &StateUndo<R>) {
        if let StateUndo::Few { pending, .. } = undo {
            self.sums.settle(pending, self.recent.shape.features);
        }
    }

    /// Takes the last tokens back.
    pub(crate) fn undo(&mut self, undo: StateUndo<R>) {
        match undo {
            StateUndo::Whole(state) => *self = *state,
            StateUndo::Few { position, pending, recent, scores, first } => {
                self.recent.keep(0, recent);
                self.recent.forget_features();
                self.scores.truncate(scores);
                self.lists.undo(first);
                self.sums.take_back(pending);
                self.position = position;
            }
        }
    }

    /// Lets the lists know of the last block of keys, if that is full.
    fn update_lists(&mut self, hybrid: &Hybrid<'_, R>) {
        let Self { recent, scores, lists, sums, .. } = self;
        if is_due(hybrid, lists, sums) {
            lists.update(hybrid, recent, scores, sums);
            scores.clear();
        }
    }

    /// Drops keys that are out of reach of any later window and known to the lists.
    fn forget(&mut self, hybrid: &Hybrid<'_, R>) {
        let unknown = self.sums.keys % ExactKeys::BLOCK;
        let first = self.position.saturating_sub(hybrid.exact.near);
        let start = self.recent.positions.partition_point(|&j| j < first);
        let start = start.min(self.recent.len().saturating_sub(unknown));
        // Moving what is left costs more than keeping a few too many.
        if start >= ExactKeys::BLOCK.min(self.recent.len()) {
            self.recent.keep(start, self.recent.len());
        }
    }

    /// Leads the state over tokens, telling the listener of each tile. After an error the state is of no
    /// use, unless what is `revocable` is taken back: only then the second result says how.
    pub(super) fn lead<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        inputs: Inputs<'_, T>,
        mask: Option<&[bool]>,
        listener: &mut dyn Listener<R>,
        (tools, revocable): (&mut Tools<R>, bool),
    ) -> (Result<()>, Pending<R>) {
        let (columns, tokens) = (inputs.2.columns, inputs.0.rows);
        let sums = std::mem::take(&mut self.sums);
        let walk = Walk::with_memory(hybrid.map, sums, columns, tokens, tools.walk.take());
        let mut walk = walk.keeping_projections();
        if revocable {
            walk = walk.revocable(tokens);
        }
        let led = self.lead_walk(hybrid, inputs, mask, listener, (&mut walk, tools));
        let Walk { sums, memory, pending, .. } = walk;
        (self.sums, tools.walk) = (sums, Some(memory));
        (led, pending.unwrap_or_default())
    }

    fn lead_walk<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        inputs: Inputs<'_, T>,
        mask: Option<&[bool]>,
        listener: &mut dyn Listener<R>,
        (walk, tools): (&mut Walk<'_, R>, &mut Tools<R>),
    ) -> Result<()> {
        let (q, k, v) = inputs;
        let (offset, tokens) = (self.position, q.rows);
        let side = &hybrid.map.key;
        let shape = Shape::new(hybrid.map, v.columns);
        let capacity = walk.query_scratch().capacity;
        let correction = Correction::fitting(&mut tools.correction, hybrid, shape, capacity);
        let Correction { rows, pairs, routes, denominators, .. } = correction;
        let first_tokens = hybrid.global().0;
        let slots = if hybrid.exact.is_routed() { side.features } else { 0 };
        let Self { recent, scores, lists, position, .. } = self;
        let mut start = 0;
        while start < tokens {
            let keys = walk.sums.keys;
            if is_due(hybrid, lists, &walk.sums) {
                listener.before_change(lists, true, &walk.sums.exponents);
                lists.update(hybrid, recent, scores, &walk.sums);
                listener.after_change(lists);
                scores.clear();
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
                let (own, stride) = (loaded.key_rows, loaded.keys.stride);
                let exponents = &loaded.sums.exponents;
                let features = (&loaded.keys.features[..], stride);
                recent.append(hybrid, (k, v), own, offset, features, exponents);
                let projected = loaded.projections.chunks(stride).zip(&loaded.keys.terms);
                for (row, term) in projected.take(if slots > 0 { own.len() } else { 0 }) {
                    scores.extend(row[..slots].iter().map(|x| *x + *term));
                }
                if lists.first.len() < first_tokens && !own.is_empty() {
                    listener.before_change(lists, true, exponents);
                    let take = own.len().min(first_tokens - lists.first.len());
                    lists.first.restore(side, exponents);
                    for n in 0..take {
                        let row = recent.len() - own.len() + n;
                        lists.first.insert(lists.first.len(), recent, row);
                    }
                }
                if hybrid.exact.near > 0 && recent.len() > 0 && count >= MANY {
                    recent.transpose(listener.with_values());
                }
                routes.find(&hybrid.map.query, loaded.queries, count, lists, exponents);
                routes.fetch(lists);
                write_numerators(&mut loaded, hybrid.map.query.features);
                denominators.clone_from(&loaded.queries.terms);
                loaded.queries.compute_terms(&hybrid.map.query, count);
                let all: Vec<usize> = (loaded.start..loaded.start + count).collect();
                let estimated = Estimated {
                    denominators,
                    row_exponents: &loaded.queries.row_exponents,
                    row_terms: &loaded.queries.terms,
                    numerators: &loaded.queries.values,
                };
                rows.start(hybrid, q, &all, offset, estimated)?;
                std::mem::swap(&mut loaded.queries.terms, denominators);
                let p = (&loaded.queries.features[..], loaded.queries.stride);
                listener.before_change(lists, false, exponents);
                routes.refresh(hybrid, lists, count, exponents, listener.with_values());
                let positions = std::mem::take(&mut rows.positions);
                let mut correct = Correct { rows, pairs, p };
                visit_window(hybrid, true, &positions, recent, &mut correct);
                visit_global(hybrid, true, &positions, lists, &mut correct);
                rows.positions = positions;
                routes.correct(hybrid, lists, rows, pairs.kernels, p);
                rows.check::<T>()?;
                listener.tile(Done { rows, loaded, recent, lists, routes })
            })?;
            start = end;
        }
        *position = offset + tokens;
        Ok(())
    }

    pub(crate) fn size_in_bytes(&self) -> usize {
        let scores = self.scores.len() * size_of::<R>();
        let keys = self.recent.size_in_bytes() + self.lists.size_in_bytes();
        self.sums.size_in_bytes() + scores + keys
    }
}

/// Whether there is a full block of keys that the lists have not seen.
fn is_due<R: Cached>(hybrid: &Hybrid<'_, R>, lists: &Lists<R>, sums: &Sums<R>) -> bool {
    let lists_matter = hybrid.exact.is_routed() || hybrid.exact.global > 0;
    lists_matter && sums.keys == lists.known + ExactKeys::BLOCK
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
        State::new(self, columns)
            .lead(self, inputs, mask, &mut outputs, (&mut Tools::none(), false))
            .0
    }
}
