//! Global keys and members of slots.

use super::block::Block;
use super::rows::{Meeting, Pairs};
use super::{Hybrid, Shape};
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{Scratch, Sums};
use crate::map::Cached;
use crate::reference::MOST_LOG;
use crate::simd::Real;
use crate::{ExactKeys, Result};
use std::collections::HashMap;
use std::f64::consts::LOG2_E;

/// The largest scores of each slot with the places they belong to, in falling order; of two equals the
/// earlier stays ahead.
#[derive(Debug, Clone)]
pub(super) struct Candidates<R> {
    most: usize,
    slots: Vec<Vec<(R, usize)>>,
    /// What a score must exceed to come into a slot's list.
    least: Vec<R>,
}

impl<R: Cached> Candidates<R> {
    pub(super) fn new(slots: usize, most: usize) -> Self {
        let least = vec![R::from_f64(f64::NEG_INFINITY); slots];
        Self { most, slots: vec![vec![]; slots], least }
    }

    /// Offers a tile of projected keys.
    pub(super) fn offer_tile(&mut self, rows: &[usize], scratch: &Scratch<R>) {
        let slots = self.slots.len();
        for (n, &j) in rows.iter().enumerate() {
            let (row, term) = (&scratch.features[n * scratch.stride..][..slots], scratch.terms[n]);
            // Nearly always no slot takes the key: without a branch this goes by vectors.
            if any_over(row, term, &self.least) {
                for (m, x) in row.iter().enumerate() {
                    if *x + term > self.least[m] {
                        self.offer(m, *x + term, j);
                    }
                }
            }
        }
    }

    fn offer(&mut self, slot: usize, score: R, place: usize) {
        let list = &mut self.slots[slot];
        if list.len() == self.most && score <= self.least[slot] {
            return;
        }
        let at = list.partition_point(|(s, _)| *s >= score);
        list.insert(at, (score, place));
        list.truncate(self.most);
        if list.len() == self.most {
            self.least[slot] = list[self.most - 1].0;
        }
    }

    /// Adds the candidates among later keys.
    pub(super) fn merge(&mut self, later: &Self) {
        for (slot, list) in later.slots.iter().enumerate() {
            list.iter().for_each(|(score, place)| self.offer(slot, *score, *place));
        }
    }
}

/// The keys beside the window that may be exact for a query.
#[derive(Debug, Clone)]
pub(crate) struct Lists<R> {
    /// First tokens.
    pub(super) first: Block<R>,
    /// Keys that the map estimates worst, with how far it is off.
    pub(super) worst: Block<R>,
    errors: Vec<f64>,
    pub(super) slots: Vec<Slot<R>>,
    /// What a score must exceed to come into a slot's list.
    least: Vec<R>,
    /// Numbers of the keys that are members, and of those among them that are global.
    pub(super) ids: Ids,
    pub(super) global_ids: Vec<u32>,
    /// How many keys the lists were made of, the sums of their features, and the exponents of these.
    pub(super) known: usize,
    pub(super) totals: Vec<R>,
    pub(super) exponents: Vec<R>,
}

/// The members of a slot.
#[derive(Debug, Clone)]
pub(crate) struct Slot<R> {
    pub(super) members: Block<R>,
    pub(super) scores: Vec<R>,
    /// The number of each member.
    pub(super) ids: Vec<u32>,
}

/// Small numbers for keys, so that what two slots share is found without a search.
#[derive(Debug, Clone, Default)]
pub(super) struct Ids {
    /// Of the key at a position: its number, and how many slots hold it.
    held: HashMap<usize, (u32, u32)>,
    free: Vec<u32>,
    count: u32,
}

impl Ids {
    /// All numbers are below this.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    fn of(&self, position: usize) -> Option<u32> {
        self.held.get(&position).map(|(id, _)| *id)
    }

    /// One more slot holds the key.
    fn hold(&mut self, position: usize) -> u32 {
        let Self { held, free, count } = self;
        let (id, slots) = held.entry(position).or_insert_with(|| {
            let next = free.pop().unwrap_or_else(|| {
                *count += 1;
                *count - 1
            });
            (next, 0)
        });
        *slots += 1;
        *id
    }

    /// One slot less.
    fn release(&mut self, position: usize) {
        if let Some((id, slots)) = self.held.get_mut(&position) {
            *slots -= 1;
            if *slots == 0 {
                self.free.push(*id);
                self.held.remove(&position);
            }
        }
    }
}

/// Whether any score exceeds the least of its list. Without a branch this goes by vectors.
fn any_over<R: Real>(row: &[R], term: R, least: &[R]) -> bool {
    row.iter().zip(least).fold(false, |any, (x, least)| any | (*x + term > *least))
}

impl<R: Cached> Lists<R> {
    pub(super) fn new(hybrid: &Hybrid<'_, R>, shape: Shape) -> Self {
        let slots = if hybrid.exact.is_routed() { shape.features } else { 0 };
        let slot = || Slot { members: Block::new(shape), scores: vec![], ids: vec![] };
        Self {
            first: Block::new(shape),
            worst: Block::new(shape),
            errors: vec![],
            slots: (0..slots).map(|_| slot()).collect(),
            least: vec![R::from_f64(f64::NEG_INFINITY); slots],
            ids: Ids::default(),
            global_ids: vec![],
            known: 0,
            totals: vec![],
            exponents: vec![],
        }
    }

    pub(super) fn size_in_bytes(&self) -> usize {
        let slots = self.slots.iter().map(|slot| {
            let own = slot.scores.len() * size_of::<R>() + slot.ids.len() * size_of::<u32>();
            slot.members.size_in_bytes() + own
        });
        let totals = (self.totals.len() + self.exponents.len()) * size_of::<R>();
        let ids = self.ids.held.len() * size_of::<(usize, (u32, u32))>();
        let global = self.first.size_in_bytes() + self.worst.size_in_bytes();
        slots.sum::<usize>() + totals + ids + global + self.errors.len() * size_of::<f64>()
    }

    /// The lists of a sequence whose keys all are known, ready for any tile.
    pub(super) fn of_all<T: Scalar<Real = R>>(
        hybrid: &Hybrid<'_, R>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        visible: &[usize],
        sums: &Sums<R>,
        candidates: &Candidates<R>,
    ) -> Result<Self> {
        let shape = Shape::new(hybrid.map, v.columns);
        let side = &hybrid.map.key;
        let mut lists = Self::new(hybrid, shape);
        let mut scratch = Scratch::new(side, v.columns, visible.len());
        let (first, worst) = hybrid.global();
        let first = first.min(visible.len());
        let exponents = &sums.exponents;
        lists.first.load(hybrid, (k, v), &visible[..first], &mut scratch, exponents)?;
        if worst > 0 {
            let mut block = Block::new(shape);
            for rows in visible[first..].chunks(scratch.capacity) {
                block.load(hybrid, (k, v), rows, &mut scratch, exponents)?;
                lists.offer_worst(hybrid, &block, (0, block.len()), exponents);
            }
        }
        for (slot, list) in lists.slots.iter_mut().zip(&candidates.slots) {
            let rows: Vec<usize> = list.iter().map(|(_, place)| *place).collect();
            slot.members.load(hybrid, (k, v), &rows, &mut scratch, exponents)?;
            slot.members.turn(false);
            slot.ids = rows.iter().map(|&j| lists.ids.hold(j)).collect();
        }
        lists.note_global();
        lists.totals.clone_from(&sums.totals);
        lists.exponents.clone_from(&sums.exponents);
        lists.first.turn(false);
        lists.worst.turn(false);
        Ok(lists)
    }

    /// Takes in the last keys of a block, which are later than all before, with their scores for all slots,
    /// and the sums of all.
    pub(super) fn update(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        recent: &mut Block<R>,
        scores: &[R],
        sums: &Sums<R>,
    ) {
        let (side, exponents) = (&hybrid.map.key, &sums.exponents);
        let (slots, most) = (self.slots.len(), hybrid.exact.members);
        let start = recent.len().saturating_sub(ExactKeys::BLOCK);
        recent.restore(side, exponents);
        for (j, row) in (start..recent.len()).zip(scores.chunks(slots.max(1))) {
            if !any_over(row, R::ZERO, &self.least) {
                continue;
            }
            for (m, (slot, score)) in self.slots.iter_mut().zip(row).enumerate() {
                if *score > self.least[m] {
                    let Slot { members, scores, ids } = slot;
                    let at = scores.partition_point(|s| *s >= *score);
                    if scores.len() == most {
                        self.ids.release(members.positions[most - 1]);
                        scores.pop();
                        ids.pop();
                        members.keep(0, most - 1);
                    }
                    scores.insert(at, *score);
                    members.restore(side, exponents);
                    members.insert(at, recent, j);
                    ids.insert(at, self.ids.hold(recent.positions[j]));
                    if scores.len() == most {
                        self.least[m] = scores[most - 1];
                    }
                }
            }
        }
        if hybrid.global().1 > 0 {
            self.worst.restore(side, exponents);
            self.offer_worst(hybrid, recent, (start, recent.len()), exponents);
        }
        self.note_global();
        self.totals.clone_from(&sums.totals);
        self.exponents.clone_from(&sums.exponents);
        self.known = sums.keys;
    }

    fn offer_worst(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        block: &Block<R>,
        (start, end): (usize, usize),
        exponents: &[R],
    ) {
        let most = hybrid.global().1;
        let errors = probe_errors(hybrid, block, (start, end), exponents);
        for (j, error) in (start..end).zip(errors) {
            if self.first.positions.contains(&block.positions[j]) {
                continue;
            }
            let at = self.errors.partition_point(|e| *e >= error);
            if at < most {
                self.errors.insert(at, error);
                self.errors.truncate(most);
                self.worst.insert(at, block, j);
                self.worst.keep(0, self.errors.len());
            }
        }
    }

    /// Notes which members are exact for every query.
    fn note_global(&mut self) {
        let global = self.first.positions.iter().chain(&self.worst.positions);
        self.global_ids.clear();
        self.global_ids.extend(global.filter_map(|&j| self.ids.of(j)));
    }

    /// How far the map is off at the worst keys.
    pub(super) fn errors(&self) -> &[f64] {
        &self.errors
    }

    /// Puts members with their scores and the errors of worst keys back.
    pub(super) fn restore(
        &mut self,
        members: Vec<(Block<R>, Vec<R>)>,
        errors: Vec<f64>,
        most: usize,
    ) {
        self.errors = errors;
        for (m, (slot, (block, scores))) in self.slots.iter_mut().zip(members).enumerate() {
            if most > 0 && scores.len() >= most {
                self.least[m] = scores[most - 1];
            }
            slot.ids = block.positions.iter().map(|&j| self.ids.hold(j)).collect();
            (slot.members, slot.scores) = (block, scores);
        }
        self.note_global();
    }

    /// Forgets what the features of keys are, and first tokens beyond so many.
    pub(super) fn undo(&mut self, first: usize) {
        self.first.keep(0, first);
        let slots = self.slots.iter_mut().map(|slot| &mut slot.members);
        slots.chain([&mut self.first, &mut self.worst]).for_each(Block::forget_features);
    }
}

/// How far the map is off at keys, summed over its probes: as [`reference`](mod@crate::reference) has it.
fn probe_errors<R: Cached>(
    hybrid: &Hybrid<'_, R>,
    block: &Block<R>,
    (start, end): (usize, usize),
    exponents: &[R],
) -> Vec<f64> {
    let mut errors = vec![0.0; end - start];
    let Some(probes) = hybrid.probes else { return errors };
    let side = &hybrid.map.query;
    let Shape { dim_padded, features, .. } = block.shape;
    let all: Vec<usize> = (0..probes.queries.rows()).collect();
    let mut scratch = Scratch::<R>::new(side, 1, all.len());
    let mut pairs = Pairs::<R>::new();
    for some in all.chunks(scratch.capacity) {
        let mut rows = vec![R::ZERO; some.len() * dim_padded];
        for (row, &i) in rows.chunks_mut(dim_padded).zip(some) {
            row.iter_mut().zip(probes.queries.row(i)).for_each(|(o, x)| *o = R::from_f64(*x));
        }
        scratch.move_rows(side, &rows, some.len());
        scratch.project_moved(side, some.len());
        scratch.compute_terms(side, some.len());
        let terms = scratch.terms.clone();
        let tile = scratch.tile(side, some.len());
        let zeros = vec![R::ZERO; side.weights.width];
        let Scratch { kernels, features: p, terms: sums, row_exponents, .. } = &mut scratch;
        kernels.query_features(tile, p, &side.constants, exponents, &zeros, sums, row_exponents);
        let scale = R::from_f64(hybrid.logit_scale());
        rows.iter_mut().for_each(|x| *x = *x * scale);
        let meeting = Meeting {
            rows: some.len(),
            q: (&rows, dim_padded),
            p: (p, tile.stride),
            block,
            range: (start, end),
        };
        let width = pairs.multiply(&meeting);
        let most = MOST_LOG * LOG2_E;
        for (n, &i) in some.iter().enumerate() {
            let mean = probes.log_means[i] * LOG2_E;
            let query = probes.queries.row(i);
            let own = hybrid.norm_scale() * crate::linalg::dot(query, query) - mean;
            let shift = row_exponents[n].to_f64() + terms[n].to_f64() - (features as f64).log2();
            for (j, error) in errors.iter_mut().enumerate() {
                let logit = pairs.weights[n * width + j].to_f64() + pairs.constants[j].to_f64();
                let estimate = pairs.estimates[n * width + j].to_f64().log2() + shift - mean;
                *error += ((logit + own).min(most).exp2() - estimate.min(most).exp2()).abs();
            }
        }
    }
    errors
}

/// The places of the largest scores, in falling order; of two equals the earlier first. Scores that are
/// taken become the lowest there is.
///
/// Scores are looked at in columns of a few: the largest of each is known, and only the column that one is
/// taken from is looked at again.
pub(super) fn take_largest<R: Real>(scores: &mut [R], out: &mut [usize]) {
    const COLUMNS: usize = 8;
    let mut tops = [R::LOWEST; COLUMNS];
    let mut rows = scores.chunks_exact(COLUMNS);
    for row in &mut rows {
        for (top, x) in tops.iter_mut().zip(row) {
            *top = if *x > *top { *x } else { *top };
        }
    }
    for (top, x) in tops.iter_mut().zip(rows.remainder()) {
        *top = if *x > *top { *x } else { *top };
    }
    for out in out {
        let largest = tops.iter().fold(R::LOWEST, |a, x| if *x > a { *x } else { a });
        // Equal scores may be in several columns.
        let column_of = |c: usize| (c..scores.len()).step_by(COLUMNS);
        let first = |c: usize| column_of(c).find(|&m| scores[m] == largest);
        let columns = (0..COLUMNS).filter(|&c| tops[c] == largest);
        let place = columns.filter_map(first).min().unwrap_or(0);
        *out = place;
        scores[place] = R::LOWEST;
        let column = place % COLUMNS;
        tops[column] = (column..scores.len())
            .step_by(COLUMNS)
            .fold(R::LOWEST, |a, m| if scores[m] > a { scores[m] } else { a });
    }
}
