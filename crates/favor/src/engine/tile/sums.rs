//! `SᵀV` and `Sᵀ1` of a set of keys, with one integer exponent per feature.

use super::{Scratch, add_outer, overflow};
use crate::Result;
use crate::engine::tensor::Scalar;
use crate::engine::tensor::Strided;
use crate::map::PackedSide;
use crate::simd::{Aligned, Gemm, Layout, Prefetch, Real};

/// Sums over keys; feature `m` stands for `row m · 2^{exponent m}`.
#[derive(Debug, Clone)]
pub(crate) struct Sums<R> {
    /// −∞ before the first key.
    pub(crate) exponents: Vec<R>,
    /// `Σ_j S_m(y_j)`; zero in the columns beyond the last feature.
    pub(crate) totals: Vec<R>,
    /// `Σ_j S_m(y_j) v_j`, `width` numbers per feature.
    pub(crate) values: Aligned<R>,
    pub(crate) width: usize,
    pub(crate) keys: usize,
}

/// What may still be taken back from sums.
#[derive(Debug)]
pub(crate) struct Pending<R> {
    /// The sums before, if they have changed.
    pub(crate) before: Option<Sums<R>>,
    /// Features and value of a key that is not in them yet, if there is one.
    pub(crate) key: Vec<R>,
}

impl<R: Real> Default for Pending<R> {
    fn default() -> Self {
        Self { before: None, key: vec![] }
    }
}

impl<R: Real> Default for Sums<R> {
    /// Of no map.
    fn default() -> Self {
        let (exponents, totals) = (vec![], vec![]);
        Self { exponents, totals, values: Aligned::default(), width: 0, keys: 0 }
    }
}

impl<R: Real> Sums<R> {
    pub(crate) fn new(side: &PackedSide<R>, value_columns: usize) -> Self {
        let features = side.weights.width;
        let width = value_columns.next_multiple_of(R::kernels().lanes);
        Self {
            exponents: vec![R::from_f64(f64::NEG_INFINITY); features],
            totals: vec![R::ZERO; features],
            values: Aligned::zeros(features * width),
            width,
            keys: 0,
        }
    }

    pub(crate) fn size_in_bytes(&self) -> usize {
        let numbers = self.values.len() + self.totals.len() + self.exponents.len();
        numbers * size_of::<R>()
    }

    /// Adds the keys `rows` with their values.
    pub(crate) fn add<T: Scalar<Real = R>>(
        &mut self,
        side: &PackedSide<R>,
        keys: Strided<'_, T>,
        values: Strided<'_, T>,
        rows: &[usize],
        scratch: &mut Scratch<R>,
    ) -> Result<()> {
        self.add_seen(side, keys, values, rows, scratch, |_, _| ())
    }

    /// [`add`](Self::add), while `see` is shown the rows of each tile and their projections.
    pub(crate) fn add_seen<T: Scalar<Real = R>>(
        &mut self,
        side: &PackedSide<R>,
        keys: Strided<'_, T>,
        values: Strided<'_, T>,
        rows: &[usize],
        scratch: &mut Scratch<R>,
        mut see: impl FnMut(&[usize], &Scratch<R>),
    ) -> Result<()> {
        let mut tiles = rows.chunks(scratch.capacity).peekable();
        while let Some(rows) = tiles.next() {
            scratch.prefetch_during_projection = values.prefetch(rows);
            scratch.prefetch_during_product =
                tiles.peek().map_or(Prefetch::default(), |next| keys.prefetch(next));
            self.load_keys(side, keys, rows, scratch)?;
            see(rows, scratch);
            match values.in_place(rows) {
                Some(data) if self.width == values.columns => {
                    self.consume(side, rows.len(), scratch, (data, values.row_stride));
                }
                _ => {
                    scratch.pack_values("values", values, rows)?;
                    let packed = std::mem::take(&mut scratch.values);
                    self.consume(side, rows.len(), scratch, (&packed, scratch.value_width));
                    scratch.values = packed;
                }
            }
        }
        self.finish::<T>(side)?;
        // A value that is NaN still shows in the sums.
        if all_finite(&self.values) {
            Ok(())
        } else {
            Err(values.non_finite("values", rows).unwrap_or_else(overflow::<T>))
        }
    }

    /// Adds the keys `rows` to the totals alone.
    pub(crate) fn count<T: Scalar<Real = R>>(
        &mut self,
        side: &PackedSide<R>,
        keys: Strided<'_, T>,
        rows: &[usize],
        scratch: &mut Scratch<R>,
    ) -> Result<()> {
        for rows in rows.chunks(scratch.capacity) {
            self.load_keys(side, keys, rows, scratch)?;
            self.make_features(side, rows.len(), scratch);
        }
        self.finish::<T>(side)
    }

    /// Projects keys into the scratch's features, exponents raised and row terms ready.
    pub(crate) fn load_keys<T: Scalar<Real = R>>(
        &mut self,
        side: &PackedSide<R>,
        keys: Strided<'_, T>,
        rows: &[usize],
        scratch: &mut Scratch<R>,
    ) -> Result<()> {
        scratch.project(side, "keys", keys, rows)?;
        scratch.compute_terms(side, rows.len());
        let tile = scratch.tile(side, rows.len());
        let Scratch { kernels, features, terms, shrink, .. } = scratch;
        let (constants, exponents) = (&side.constants, &mut self.exponents);
        let risen = kernels.raise_exponents(tile, features, terms, constants, exponents, shrink);
        if risen && self.keys > 0 {
            self.shrink(shrink);
        }
        Ok(())
    }

    /// Turns the loaded keys into features and adds them to the totals.
    fn make_features(&mut self, side: &PackedSide<R>, rows: usize, scratch: &mut Scratch<R>) {
        let tile = scratch.tile(side, rows);
        let Scratch { kernels, features, terms, .. } = scratch;
        let totals = &mut self.totals;
        kernels.key_features(tile, features, terms, &side.constants, &self.exponents, totals);
        self.keys += rows;
    }

    /// Turns the loaded keys into features and adds them with their values, which come with a row
    /// stride.
    fn consume(
        &mut self,
        side: &PackedSide<R>,
        rows: usize,
        scratch: &mut Scratch<R>,
        values: (&[R], usize),
    ) {
        self.make_features(side, rows, scratch);
        let Scratch { kernels, features, stride, .. } = scratch;
        let shape = Gemm {
            rows: side.features,
            columns: self.width,
            depth: rows,
            a: (1, *stride),
            b_row: values.1,
            b_panel: 2 * kernels.lanes,
            c_row: self.width,
            accumulate: true,
            in_parts: false,
            prefetch: scratch.prefetch_during_product,
        };
        kernels.gemm(&shape, features, values.0, &mut self.values);
    }

    /// Makes what is pending last.
    pub(crate) fn settle(&mut self, pending: &Pending<R>, features: usize) {
        if pending.key.is_empty() {
            return;
        }
        let (key, value) = pending.key.split_at(self.totals.len());
        let own = self.totals.iter_mut().zip(key).take(features);
        own.for_each(|(total, new)| *total = *total + *new);
        let (kernels, width) = (R::kernels(), self.width);
        let tile = Layout { rows: 1, columns: key.len(), stride: key.len() };
        add_outer(kernels, tile, key, features, value, width, &mut self.values);
        self.keys += 1;
    }

    /// Takes back what is pending.
    pub(crate) fn take_back(&mut self, pending: Pending<R>) {
        if let Some(before) = pending.before {
            *self = before;
        }
    }

    /// Clears the columns that are no features; refuses sums that left the number format.
    pub(crate) fn finish<T: Scalar<Real = R>>(&mut self, side: &PackedSide<R>) -> Result<()> {
        self.totals[side.features..].fill(R::ZERO);
        if self.totals.iter().all(|v| v.is_finite()) { Ok(()) } else { Err(overflow::<T>()) }
    }

    pub(crate) fn shrink(&mut self, factors: &[R]) {
        let rows = self.values.chunks_mut(self.width);
        for ((row, total), factor) in rows.zip(&mut self.totals).zip(factors) {
            if *factor != R::ONE {
                *total = *total * *factor;
                row.iter_mut().for_each(|v| *v = *v * *factor);
            }
        }
    }

    /// Adds the sums over other keys.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.keys == 0 {
            return;
        }
        let power = |n: f64| R::from_f64(n.max(-2000.0).exp2());
        for m in 0..self.exponents.len() {
            let (own, new) = (self.exponents[m].to_f64(), other.exponents[m].to_f64());
            let largest = own.max(new);
            let (keep, take) = (power(own - largest), power(new - largest));
            self.exponents[m] = R::from_f64(largest);
            self.totals[m] = self.totals[m] * keep + other.totals[m] * take;
            let range = m * self.width..(m + 1) * self.width;
            for (a, b) in self.values[range.clone()].iter_mut().zip(&other.values[range]) {
                *a = *a * keep + *b * take;
            }
        }
        self.keys += other.keys;
    }
}

/// Whether all numbers are finite; in lanes, which the compiler can keep in vectors.
pub(crate) fn all_finite<R: Real>(values: &[R]) -> bool {
    let mut lanes = [R::ZERO; 16];
    let chunks = values.chunks_exact(16);
    let rest = chunks.remainder().iter().fold(R::ZERO, |sum, v| sum + *v * R::ZERO);
    for chunk in chunks {
        // 0 · x is NaN for an infinity or a NaN, and 0 for everything else.
        lanes.iter_mut().zip(chunk).for_each(|(l, v)| *l = *l + *v * R::ZERO);
    }
    lanes.into_iter().fold(rest, |sum, l| sum + l) == R::ZERO
}
