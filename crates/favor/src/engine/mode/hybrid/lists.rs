//! Global keys and members of slots.

use super::block::Block;
use super::members::Members;
use super::rows::{Meeting, Pairs};
use super::{Hybrid, Shape};
use crate::engine::mode::forward::visible;
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{Scratch, Sums};
use crate::map::Cached;
use crate::reference::MOST_LOG;
use crate::simd::{Layout, Real};
use crate::{ExactKeys, Result};
use std::collections::HashMap;
use std::f64::consts::LOG2_E;

/// The largest scores of each slot with the places they belong to, in falling order; of two equals the
/// earlier stays ahead.
#[derive(Debug, Clone)]
pub(super) struct Candidates<R> {
    /// Places in a list, and how many of them are taken.
    most: usize,
    counts: Vec<usize>,
    /// `most` per slot.
    lists: Vec<(R, usize)>,
    /// What a score must exceed to come into a slot's list.
    least: Vec<R>,
    /// Which scores of a few rows exceed that: one bit per slot, one number per vector of them.
    over: Vec<u32>,
}

impl<R: Cached> Candidates<R> {
    /// The candidates among so many keys.
    pub(super) fn new(slots: usize, most: usize, keys: usize) -> Self {
        let most = most.min(keys);
        let mut least = vec![R::from_f64(f64::NEG_INFINITY); slots];
        // Whole vectors of columns: nothing exceeds those that are no slots.
        least.resize(slots.next_multiple_of(R::kernels().lanes), R::from_f64(f64::INFINITY));
        let lists = vec![(R::ZERO, 0); slots * most];
        Self { most, counts: vec![0; slots], lists, least, over: vec![] }
    }

    /// Offers a tile of projected keys.
    pub(super) fn offer_tile(&mut self, rows: &[usize], scratch: &Scratch<R>) {
        // Nearly always no slot takes a key. Few rows at a time: what must be exceeded rises.
        const FEW: usize = 16;
        let (lanes, stride) = (scratch.kernels.lanes, scratch.stride);
        let vectors = self.least.len() / lanes;
        self.over.resize(FEW * vectors, 0);
        for (part, rows) in rows.chunks(FEW).enumerate() {
            let tile = Layout { rows: rows.len(), columns: self.least.len(), stride };
            let features = &scratch.features[part * FEW * stride..];
            let terms = &scratch.terms[part * FEW..];
            scratch.kernels.columns_over(tile, features, terms, &self.least, &mut self.over);
            for (n, &j) in rows.iter().enumerate() {
                for vector in 0..vectors {
                    let mut over = self.over[n * vectors + vector];
                    while over != 0 {
                        let slot = vector * lanes + over.trailing_zeros() as usize;
                        over &= over - 1;
                        self.offer(slot, features[n * stride + slot] + terms[n], j);
                    }
                }
            }
        }
    }

    /// Offers a key later than all before.
    fn offer(&mut self, slot: usize, score: R, place: usize) {
        let count = self.counts[slot];
        let full = count == self.most;
        if full && score <= self.least[slot] {
            return;
        }
        let list = &mut self.lists[slot * self.most..][..self.most];
        let at = list[..count].partition_point(|(s, _)| *s >= score);
        let end = if full { count - 1 } else { count };
        list.copy_within(at..end, at + 1);
        list[at] = (score, place);
        if !full {
            self.counts[slot] += 1;
        }
        if self.counts[slot] == self.most {
            self.least[slot] = list[self.most - 1].0;
        }
    }

    /// Adds the candidates among later keys.
    pub(super) fn merge(&mut self, later: &Self) {
        for slot in 0..later.counts.len() {
            for &(score, place) in later.list(slot) {
                self.offer(slot, score, place);
            }
        }
    }

    fn list(&self, slot: usize) -> &[(R, usize)] {
        &self.lists[slot * self.most..][..self.counts[slot]]
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
    pub(super) members: Members<R>,
    /// Numbers of the keys that are members, and of those among them that are global.
    pub(super) ids: Ids,
    pub(super) global_ids: Vec<u32>,
    /// How many keys the lists were made of, the sums of their features, and the exponents of these.
    pub(super) known: usize,
    pub(super) totals: Vec<R>,
    pub(super) exponents: Vec<R>,
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
    pub(super) fn hold(&mut self, position: usize) -> u32 {
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
    pub(super) fn release(&mut self, position: usize) {
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
fn any_over<R: Real>(row: &[R], least: &[R]) -> bool {
    row.iter().zip(least).fold(false, |any, (x, least)| any | (*x > *least))
}

impl<R: Cached> Lists<R> {
    pub(super) fn new(hybrid: &Hybrid<'_, R>, shape: Shape, for_gradients: bool) -> Self {
        let slots = if hybrid.exact.is_routed() { shape.features } else { 0 };
        Self {
            first: Block::new(shape),
            worst: Block::new(shape),
            errors: vec![],
            members: Members::new(shape, slots, hybrid.exact.members, for_gradients),
            ids: Ids::default(),
            global_ids: vec![],
            known: 0,
            totals: vec![],
            exponents: vec![],
        }
    }

    pub(super) fn size_in_bytes(&self) -> usize {
        let totals = (self.totals.len() + self.exponents.len()) * size_of::<R>();
        let ids = self.ids.held.len() * size_of::<(usize, (u32, u32))>();
        let global = self.first.size_in_bytes() + self.worst.size_in_bytes();
        let errors = self.errors.len() * size_of::<f64>();
        self.members.size_in_bytes() + totals + ids + global + errors
    }

    /// The lists of a sequence whose keys all are known, ready for any tile.
    pub(super) fn of_all<T: Scalar<Real = R>>(
        hybrid: &Hybrid<'_, R>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        mask: Option<&[bool]>,
        sums: &Sums<R>,
        candidates: &Candidates<R>,
        for_gradients: bool,
    ) -> Result<Self> {
        let shape = Shape::new(hybrid.map, v.columns);
        let side = &hybrid.map.key;
        let mut lists = Self::new(hybrid, shape, for_gradients);
        let mut scratch = Scratch::new(side, v.columns, k.rows);
        let (first, worst) = hybrid.global();
        let exponents = &sums.exponents;
        let seen = |j: &usize| mask.is_none_or(|mask| mask[*j]);
        let first: Vec<usize> = (0..k.rows).filter(seen).take(first).collect();
        lists.first.load(hybrid, (k, v), &first, &mut scratch, exponents)?;
        let rest = if worst > 0 { first.last().map_or(0, |j| j + 1) } else { k.rows };
        let mut block = Block::new(shape);
        for start in (rest..k.rows).step_by(scratch.capacity) {
            let rows = visible(mask, start, (start + scratch.capacity).min(k.rows));
            if rows.is_empty() {
                continue;
            }
            block.load(hybrid, (k, v), &rows, &mut scratch, exponents)?;
            lists.offer_worst(hybrid, &block, (0, block.len()), exponents);
        }
        if lists.members.slots() > 0 {
            lists.fill_members(hybrid, (k, v), candidates, &mut scratch, exponents)?;
        }
        lists.note_global();
        lists.totals.clone_from(&sums.totals);
        lists.exponents.clone_from(&sums.exponents);
        lists.first.transpose(for_gradients);
        lists.worst.transpose(for_gradients);
        Ok(lists)
    }

    /// Takes over the candidates of all slots. A key that is in several is projected once.
    fn fill_members<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        inputs: (Strided<'_, T>, Strided<'_, T>),
        candidates: &Candidates<R>,
        scratch: &mut Scratch<R>,
        exponents: &[R],
    ) -> Result<()> {
        let slots = self.members.slots();
        let (mut places, mut ids) = (vec![], vec![]);
        for slot in 0..slots {
            for &(_, place) in candidates.list(slot) {
                let id = self.ids.hold(place);
                if id as usize == places.len() {
                    places.push(place);
                }
                ids.push(id);
            }
        }
        let mut keys = Block::new(self.first.shape);
        keys.load(hybrid, inputs, &places, scratch, exponents)?;
        self.members.reserve(candidates.most);
        self.members.start(exponents);
        let (mut rest, mut buffer) = (&ids[..], vec![]);
        for slot in 0..slots {
            let (own, later) = rest.split_at(candidates.counts[slot]);
            self.members.fill(slot, &keys, own, &mut buffer);
            rest = later;
        }
        Ok(())
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
        let slots = self.members.slots();
        let start = recent.len().saturating_sub(ExactKeys::BLOCK);
        recent.restore(side, exponents);
        if slots > 0 {
            self.members.restore(side, exponents);
            self.members.evicted.clear();
        }
        for (j, row) in (start..recent.len()).zip(scores.chunks(slots.max(1))) {
            if !any_over(row, self.members.least()) {
                continue;
            }
            for (m, score) in row.iter().enumerate() {
                if *score > self.members.least()[m] {
                    self.members.insert_row(m, (recent, j), *score, &mut self.ids);
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
    pub(super) fn restore(&mut self, members: Vec<(Block<R>, Vec<R>)>, errors: Vec<f64>) {
        self.errors = errors;
        for (m, (mut block, scores)) in members.into_iter().enumerate() {
            // They are made of the keys when they are needed.
            block.features = vec![R::ZERO; block.len() * block.shape.width];
            for (row, score) in scores.iter().enumerate() {
                self.members.insert_row(m, (&block, row), *score, &mut self.ids);
            }
        }
        self.members.forget_features();
        self.note_global();
    }

    /// Forgets what the features of keys are, and first tokens beyond so many.
    pub(super) fn undo(&mut self, first: usize) {
        self.first.keep(0, first);
        self.first.forget_features();
        self.worst.forget_features();
        self.members.forget_features();
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
            block: block.view(),
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
