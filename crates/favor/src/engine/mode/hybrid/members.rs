//! The members of all slots of a head, in a few long arrays.
//!
//! A slot has room for so many keys, one column each: products with queries read them as they lie. A new
//! member takes the place of the least one, so nothing else moves.

use super::Shape;
use super::block::{Block, TransposedView, View, same};
use super::lists::Ids;
use crate::engine::tile::Scratch;
use crate::map::{Cached, PackedSide};
use crate::simd::{Kernels, Prefetch, Transpose};

/// Keys that are members of slots; `room` places per slot, of which the first `counts` are taken.
#[derive(Debug, Clone)]
pub(crate) struct Members<R> {
    shape: Shape,
    /// Members that a slot may have.
    most: usize,
    /// Whether the arrays that only gradients need are kept too.
    for_gradients: bool,
    pub(super) room: usize,
    counts: Vec<usize>,
    /// What a score must exceed to come into a slot.
    least: Vec<R>,
    /// One number per place.
    positions: Vec<usize>,
    ids: Vec<u32>,
    scores: Vec<R>,
    constants: Vec<R>,
    /// `dim` and `features` rows of `room` numbers per slot.
    keys: Vec<R>,
    features: Vec<R>,
    /// `value_width` numbers per place.
    pub(super) values: Vec<R>,
    /// What the features are relative to. Empty if they are not known.
    exponents: Vec<R>,
    /// For gradients: `dim_padded` and `width` numbers per place, and `columns` rows of `room` numbers per
    /// slot.
    key_rows: Vec<R>,
    feature_rows: Vec<R>,
    transposed_values: Vec<R>,
    pub(super) evicted: Evicted<R>,
}

/// Members that others took the places of: what gradients need of them.
#[derive(Debug, Clone)]
pub(super) struct Evicted<R> {
    /// The slots and columns where they were.
    pub(super) places: Vec<(usize, usize)>,
    pub(super) positions: Vec<usize>,
    /// `dim_padded` and `width` numbers each.
    pub(super) keys: Vec<R>,
    pub(super) features: Vec<R>,
}

impl<R> Evicted<R> {
    const NONE: Self = Self { places: vec![], positions: vec![], keys: vec![], features: vec![] };

    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.positions.clear();
        self.keys.clear();
        self.features.clear();
    }
}

/// A key and all that is known of it, as rows.
pub(super) struct Member<'a, R> {
    pub(super) position: usize,
    pub(super) score: R,
    pub(super) constant: R,
    /// `dim` numbers or more.
    pub(super) key: &'a [R],
    /// `features` numbers or more.
    pub(super) features: &'a [R],
    /// `columns` numbers or more.
    pub(super) value: &'a [R],
}

impl<R: Cached> Members<R> {
    pub(super) fn new(shape: Shape, slots: usize, most: usize, for_gradients: bool) -> Self {
        Self {
            shape,
            most,
            for_gradients,
            room: 0,
            counts: vec![0; slots],
            least: vec![R::from_f64(f64::NEG_INFINITY); slots],
            positions: vec![],
            ids: vec![],
            scores: vec![],
            constants: vec![],
            keys: vec![],
            features: vec![],
            values: vec![],
            exponents: vec![],
            key_rows: vec![],
            feature_rows: vec![],
            transposed_values: vec![],
            evicted: Evicted::NONE,
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.counts.len()
    }

    pub(super) fn len(&self, slot: usize) -> usize {
        self.counts[slot]
    }

    fn places(&self, slot: usize) -> std::ops::Range<usize> {
        slot * self.room..slot * self.room + self.counts[slot]
    }

    pub(super) fn positions(&self, slot: usize) -> &[usize] {
        &self.positions[self.places(slot)]
    }

    pub(super) fn ids(&self, slot: usize) -> &[u32] {
        &self.ids[self.places(slot)]
    }

    pub(super) fn scores(&self, slot: usize) -> &[R] {
        &self.scores[self.places(slot)]
    }

    pub(super) fn constants(&self, slot: usize) -> &[R] {
        &self.constants[self.places(slot)]
    }

    pub(super) fn least(&self) -> &[R] {
        &self.least
    }

    /// Keys and features of a slot, one column of `room` per member.
    pub(super) fn columns(&self, slot: usize) -> (&[R], &[R]) {
        let Shape { dim, features, .. } = self.shape;
        let (keys, room) = (dim * self.room, features * self.room);
        (&self.keys[slot * keys..][..keys], &self.features[slot * room..][..room])
    }

    /// Asks for what products with a slot read.
    pub(super) fn fetch(&self, slot: usize) {
        let (keys, features) = self.columns(slot);
        for numbers in [keys, features, self.values_of(slot)] {
            Prefetch::of(numbers).now();
        }
    }

    /// A slot as gradients need it.
    pub(super) fn view(&self, slot: usize) -> View<'_, R> {
        let Shape { dim_padded, width, columns, value_width, .. } = self.shape;
        let (room, places) = (self.room, self.places(slot));
        let rows = |numbers: &'_ [R], size: usize| places.start * size..numbers.len();
        let (keys, features) = self.columns(slot);
        View {
            shape: self.shape,
            positions: self.positions(slot),
            keys: &self.key_rows[rows(&self.key_rows, dim_padded)],
            values: &self.values[rows(&self.values, value_width)],
            constants: self.constants(slot),
            features: &self.feature_rows[rows(&self.feature_rows, width)],
            transposed: Some(TransposedView {
                keys,
                features,
                values: &self.transposed_values[slot * columns * room..][..columns * room],
                width: room,
            }),
        }
    }

    pub(super) fn size_in_bytes(&self) -> usize {
        let per_place = self.scores.len() + self.constants.len() + self.values.len();
        let columns = self.keys.len() + self.features.len() + self.transposed_values.len();
        let rows = self.key_rows.len() + self.feature_rows.len() + self.exponents.len();
        let numbers = per_place + columns + rows + self.least.len();
        let places = self.positions.len() * size_of::<usize>() + self.ids.len() * size_of::<u32>();
        numbers * size_of::<R>() + places + self.counts.len() * size_of::<usize>()
    }

    /// Makes room for so many members per slot.
    pub(super) fn reserve(&mut self, members: usize) {
        let &Kernels { lanes, narrow, .. } = R::kernels();
        let room = match members.min(self.most) {
            members if members <= narrow => narrow,
            members if members <= lanes => lanes,
            members => members.next_multiple_of(lanes),
        };
        if room <= self.room {
            return;
        }
        let Shape { dim, dim_padded, features, width, columns, value_width } = self.shape;
        let (old, slots) = (self.room, self.slots());
        // Each slot is `rows` rows of as many numbers as there is room for, `size` times.
        fn spread<N: Copy + Default>(
            numbers: &mut Vec<N>,
            rows: usize,
            (old, new): (usize, usize),
        ) {
            let mut wider = vec![N::default(); rows * new];
            if old > 0 {
                for (to, from) in wider.chunks_mut(new).zip(numbers.chunks(old)) {
                    to[..old].copy_from_slice(from);
                }
            }
            *numbers = wider;
        }
        spread(&mut self.positions, slots, (old, room));
        spread(&mut self.ids, slots, (old, room));
        spread(&mut self.scores, slots, (old, room));
        spread(&mut self.constants, slots, (old, room));
        spread(&mut self.keys, slots * dim, (old, room));
        spread(&mut self.features, slots * features, (old, room));
        spread(&mut self.values, slots, (old * value_width, room * value_width));
        if self.for_gradients {
            spread(&mut self.key_rows, slots, (old * dim_padded, room * dim_padded));
            spread(&mut self.feature_rows, slots, (old * width, room * width));
            spread(&mut self.transposed_values, slots * columns, (old, room));
        }
        self.room = room;
    }

    /// Adds a member to a slot, in the place of the least one if the slot is full. Features are relative to
    /// the members' own exponents.
    pub(super) fn insert(&mut self, slot: usize, member: &Member<'_, R>, ids: &mut Ids) {
        let count = self.counts[slot];
        let column = if count < self.most {
            if count == self.room {
                self.reserve((2 * count).max(1));
            }
            self.counts[slot] += 1;
            count
        } else {
            let column = self.last(slot);
            ids.release(self.positions[slot * self.room + column]);
            if self.for_gradients {
                self.evict(slot, column);
            }
            column
        };
        self.put(slot, column, member, ids.hold(member.position));
        if self.counts[slot] == self.most {
            self.least[slot] = self.scores[slot * self.room + self.last(slot)];
        }
    }

    /// Notes a member that is about to be replaced.
    fn evict(&mut self, slot: usize, column: usize) {
        let Shape { dim_padded, width, .. } = self.shape;
        let (place, evicted) = (slot * self.room + column, &mut self.evicted);
        evicted.places.push((slot, column));
        evicted.positions.push(self.positions[place]);
        evicted.keys.extend_from_slice(&self.key_rows[place * dim_padded..][..dim_padded]);
        evicted.features.extend_from_slice(&self.feature_rows[place * width..][..width]);
    }

    /// The column of the least score; of equals, that of the latest key.
    fn last(&self, slot: usize) -> usize {
        let places = self.places(slot);
        let (scores, positions) = (&self.scores[places.clone()], &self.positions[places]);
        let mut last = 0;
        for c in 1..scores.len() {
            let later = scores[c] == scores[last] && positions[c] > positions[last];
            if scores[c] < scores[last] || later {
                last = c;
            }
        }
        last
    }

    fn put(&mut self, slot: usize, column: usize, member: &Member<'_, R>, id: u32) {
        let Shape { dim, dim_padded, features, width, columns, value_width } = self.shape;
        let (room, place) = (self.room, slot * self.room + column);
        self.positions[place] = member.position;
        self.ids[place] = id;
        self.scores[place] = member.score;
        self.constants[place] = member.constant;
        let down = |to: &mut [R], rows: usize, from: &[R]| {
            let to = &mut to[slot * rows * room + column..];
            to.iter_mut().step_by(room).zip(&from[..rows]).for_each(|(t, x)| *t = *x);
        };
        let along = |to: &mut [R], size: usize, from: &[R], count: usize| {
            to[place * size..][..count].copy_from_slice(&from[..count]);
        };
        down(&mut self.keys, dim, member.key);
        down(&mut self.features, features, member.features);
        along(&mut self.values, value_width, member.value, columns);
        if self.for_gradients {
            along(&mut self.key_rows, dim_padded, member.key, dim);
            along(&mut self.feature_rows, width, member.features, features);
            down(&mut self.transposed_values, columns, member.value);
        }
    }

    /// Fills an empty slot with rows of a block, whose features are relative to the members' exponents.
    pub(super) fn fill(
        &mut self,
        slot: usize,
        block: &Block<R>,
        rows: &[u32],
        buffer: &mut Vec<R>,
    ) {
        let Shape { dim, dim_padded, features, width, columns, value_width } = self.shape;
        let (room, first, count) = (self.room, slot * self.room, rows.len());
        let kernels = R::kernels();
        self.counts[slot] = count;
        for (place, &row) in (first..).zip(rows) {
            self.positions[place] = block.positions[row as usize];
            self.ids[place] = row;
            self.constants[place] = block.constants[row as usize];
        }
        let mut take =
            |from: &[R], size: usize, depth: usize, transposed: &mut [R], own: &mut [R]| {
                buffer.clear();
                for &row in rows {
                    buffer.extend_from_slice(&from[row as usize * size..][..size]);
                }
                if !own.is_empty() {
                    own[first * size..][..count * size].copy_from_slice(buffer);
                }
                if !transposed.is_empty() {
                    let transposed = &mut transposed[slot * depth * room..][..depth * room];
                    let transpose = Transpose {
                        rows: count,
                        columns: depth,
                        row_stride: size,
                        width: room,
                        out_stride: room,
                    };
                    kernels.transpose(&transpose, buffer, transposed);
                }
            };
        take(&block.keys, dim_padded, dim, &mut self.keys, &mut self.key_rows);
        take(&block.features, width, features, &mut self.features, &mut self.feature_rows);
        take(&block.values, value_width, columns, &mut self.transposed_values, &mut self.values);
    }

    /// Takes a row of a block, whose features are relative to the same exponents.
    pub(super) fn insert_row(
        &mut self,
        slot: usize,
        (block, row): (&Block<R>, usize),
        score: R,
        ids: &mut Ids,
    ) {
        let Shape { dim_padded, width, value_width, .. } = self.shape;
        let member = Member {
            position: block.positions[row],
            score,
            constant: block.constants[row],
            key: &block.keys[row * dim_padded..],
            features: &block.features[row * width..],
            value: &block.values[row * value_width..],
        };
        self.insert(slot, &member, ids);
    }

    /// Starts with features relative to these exponents.
    pub(super) fn start(&mut self, exponents: &[R]) {
        self.exponents.clear();
        self.exponents.extend_from_slice(exponents);
    }

    /// Forgets what the features are.
    pub(super) fn forget_features(&mut self) {
        self.exponents.clear();
    }

    /// Makes the features relative to these exponents, from the keys if they are not known.
    pub(super) fn restore(&mut self, side: &PackedSide<R>, exponents: &[R]) {
        if same(&self.exponents, exponents) {
            return;
        }
        if self.exponents.is_empty() {
            self.make_features(side, exponents);
        } else {
            self.rebase(exponents);
        }
        self.start(exponents);
    }

    fn rebase(&mut self, exponents: &[R]) {
        let Shape { features, width, .. } = self.shape;
        for (m, (new, old)) in exponents.iter().zip(&self.exponents).enumerate().take(features) {
            if old == new {
                continue;
            }
            let rise = new.to_f64() - old.to_f64();
            // A power of two: not a digit changes.
            let factor = R::from_f64((-rise).max(-2000.0).exp2());
            for slot in 0..self.counts.len() {
                let row = &mut self.features[(slot * features + m) * self.room..][..self.room];
                row.iter_mut().for_each(|x| *x = *x * factor);
            }
            let column = self.feature_rows.iter_mut().skip(m).step_by(width);
            column.for_each(|x| *x = *x * factor);
        }
    }

    fn make_features(&mut self, side: &PackedSide<R>, exponents: &[R]) {
        let Shape { dim, dim_padded, features, width, .. } = self.shape;
        let room = self.room;
        let mut scratch = Scratch::with_capacity(side, 1, room.max(1));
        let mut rows = vec![R::ZERO; room * dim_padded];
        let (lanes, kernels) = (scratch.kernels.lanes, scratch.kernels);
        let transposed_width = room.next_multiple_of(lanes);
        let mut transposed = vec![R::ZERO; features * transposed_width];
        for slot in 0..self.slots() {
            let count = self.counts[slot];
            if count == 0 {
                continue;
            }
            let keys = &self.keys[slot * dim * room..];
            for (c, row) in rows.chunks_mut(dim_padded).enumerate().take(count) {
                row.iter_mut()
                    .zip(keys[c..].iter().step_by(room))
                    .take(dim)
                    .for_each(|(o, x)| *o = *x);
            }
            scratch.move_rows(side, &rows, count);
            scratch.project_moved(side, count);
            scratch.compute_terms(side, count);
            scratch.key_features(side, exponents, count);
            let transpose = Transpose {
                rows: count,
                columns: features,
                row_stride: scratch.stride,
                width: transposed_width,
                out_stride: transposed_width,
            };
            kernels.transpose(&transpose, &scratch.features, &mut transposed);
            let own = self.features[slot * features * room..].chunks_mut(room);
            own.zip(transposed.chunks(transposed_width)).take(features).for_each(|(to, from)| {
                to.copy_from_slice(&from[..room]);
            });
            if self.for_gradients {
                let own = self.feature_rows[slot * room * width..].chunks_mut(width);
                let rows = scratch.features.chunks(scratch.stride).take(count);
                own.zip(rows)
                    .for_each(|(to, from)| to[..features].copy_from_slice(&from[..features]));
            }
        }
    }

    /// The key of each member of a slot as a row of `dim_padded` numbers.
    pub(super) fn keys_as_rows(&self, slot: usize) -> impl Iterator<Item = Vec<R>> {
        let Shape { dim, dim_padded, .. } = self.shape;
        let keys = &self.keys[slot * dim * self.room..][..dim * self.room];
        (0..self.counts[slot]).map(move |c| {
            let mut row: Vec<R> = keys[c..].iter().step_by(self.room).copied().collect();
            row.resize(dim_padded, R::ZERO);
            row
        })
    }

    /// The values of the members of a slot, `value_width` numbers each.
    pub(super) fn values_of(&self, slot: usize) -> &[R] {
        let Shape { value_width, .. } = self.shape;
        let places = self.places(slot);
        &self.values[places.start * value_width..places.end * value_width]
    }
}
