//! Keys that are attended exactly, with all that a query needs of them.

use super::{Hybrid, Shape};
use crate::Result;
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{Scratch, squared_norm};
use crate::map::{Cached, PackedSide};
use crate::simd::{Kernels, Layout, Real};

/// Keys, one row each. Projections are what is kept; features are relative to exponents that rise, and
/// made again when they do.
#[derive(Debug, Clone)]
pub(crate) struct Block<R> {
    pub(super) shape: Shape,
    /// Where the keys are in the sequence.
    pub(super) positions: Vec<usize>,
    /// `dim_padded` numbers per key.
    pub(super) keys: Vec<R>,
    /// `value_width` numbers per key.
    pub(super) values: Vec<R>,
    /// `α‖sk‖²` to the base two.
    pub(super) constants: Vec<R>,
    /// `width` numbers per key, and the row terms beside them.
    pub(super) projections: Vec<R>,
    pub(super) terms: Vec<R>,
    /// `width` numbers per key, zero beyond the features.
    pub(super) features: Vec<R>,
    /// What the features are relative to.
    exponents: Vec<R>,
    turned: Turned<R>,
}

/// Keys, features and values with one column per key; `width` columns, zero where there is no key.
#[derive(Debug)]
pub(super) struct Turned<R> {
    pub(super) keys: Vec<R>,
    pub(super) features: Vec<R>,
    pub(super) values: Vec<R>,
    /// Zero if what is here is out of date.
    pub(super) width: usize,
    has_values: bool,
}

impl<R> Clone for Turned<R> {
    /// Out of date: it is made again where it is needed, and a single token does without.
    fn clone(&self) -> Self {
        Self { keys: vec![], features: vec![], values: vec![], width: 0, has_values: false }
    }
}

impl<R: Real> Block<R> {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            positions: vec![],
            keys: vec![],
            values: vec![],
            constants: vec![],
            projections: vec![],
            terms: vec![],
            features: vec![],
            exponents: vec![],
            turned: Turned {
                keys: vec![],
                features: vec![],
                values: vec![],
                width: 0,
                has_values: false,
            },
        }
    }

    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn size_in_bytes(&self) -> usize {
        let numbers = self.keys.len() + self.values.len() + 2 * self.constants.len();
        let numbers = numbers + self.projections.len() + self.features.len() + self.exponents.len();
        let turned = self.turned.keys.len() + self.turned.features.len() + self.turned.values.len();
        (numbers + turned) * size_of::<R>() + self.positions.len() * size_of::<usize>()
    }

    /// Removes all but the rows `start..end`.
    pub(super) fn keep(&mut self, start: usize, end: usize) {
        if (start, end) == (0, self.len()) {
            return;
        }
        let Shape { dim_padded, width, value_width, .. } = self.shape;
        fn cut<N>(rows: &mut Vec<N>, size: usize, start: usize, end: usize) {
            rows.truncate(end * size);
            rows.drain(..(start * size).min(rows.len()));
        }
        cut(&mut self.positions, 1, start, end);
        cut(&mut self.keys, dim_padded, start, end);
        cut(&mut self.values, value_width, start, end);
        cut(&mut self.constants, 1, start, end);
        cut(&mut self.projections, width, start, end);
        cut(&mut self.terms, 1, start, end);
        cut(&mut self.features, width, start, end);
        self.turned.width = 0;
    }

    /// Adds a row of another block before row `at`.
    pub(super) fn insert(&mut self, at: usize, from: &Self, row: usize) {
        let Shape { dim_padded, width, value_width, .. } = self.shape;
        fn put<N: Copy>(to: &mut Vec<N>, from: &[N], size: usize, at: usize, row: usize) {
            to.splice(at * size..at * size, from[row * size..(row + 1) * size].iter().copied());
        }
        put(&mut self.positions, &from.positions, 1, at, row);
        put(&mut self.keys, &from.keys, dim_padded, at, row);
        put(&mut self.values, &from.values, value_width, at, row);
        put(&mut self.constants, &from.constants, 1, at, row);
        put(&mut self.projections, &from.projections, width, at, row);
        put(&mut self.terms, &from.terms, 1, at, row);
        self.features.clear();
        self.turned.width = 0;
    }

    /// Makes the features relative to these exponents, if they are not so already.
    pub(super) fn refresh(&mut self, side: &PackedSide<R>, exponents: &[R]) {
        if self.is_fresh(exponents) {
            return;
        }
        let Shape { width, features: count, .. } = self.shape;
        if self.exponents != exponents {
            self.features.clear();
            self.exponents.clear();
            self.exponents.extend_from_slice(exponents);
        }
        let done = self.features.len() / width;
        self.features.extend_from_slice(&self.projections[done * width..]);
        let new = &mut self.features[done * width..];
        let tile = Layout { rows: self.terms.len() - done, columns: width, stride: width };
        let mut unused = vec![R::ZERO; width];
        let terms = &self.terms[done..];
        R::kernels().key_features(tile, new, terms, &side.constants, exponents, &mut unused);
        if count < width {
            new.chunks_mut(width).for_each(|row| row[count..].fill(R::ZERO));
        }
        self.turned.width = 0;
    }

    pub(super) fn is_fresh(&self, exponents: &[R]) -> bool {
        self.features.len() == self.projections.len() && self.exponents == exponents
    }

    /// The block with one column per key, for products with many queries.
    pub(super) fn turn(&mut self, with_values: bool) {
        if !self.is_turned(with_values) {
            let features = std::mem::take(&mut self.features);
            self.turn_features((&features, self.shape.width), with_values);
            self.features = features;
        }
    }

    /// The same with features that are elsewhere.
    fn turn_features(&mut self, (features, stride): (&[R], usize), with_values: bool) {
        let &Kernels { lanes, narrow, .. } = R::kernels();
        let Shape { dim, dim_padded, features: depth, columns, value_width, .. } = self.shape;
        let count = self.len();
        // Room for the columns of a part that begins anywhere, filled up to whole vectors. What is no
        // longer than a vector is not met in parts.
        let turned_width = match count {
            1.. if count <= narrow => narrow,
            1.. if count <= lanes => lanes,
            _ => count.next_multiple_of(lanes) + lanes,
        };
        let Turned { keys, features: f, values, width: w, has_values } = &mut self.turned;
        turn(&self.keys, dim_padded, (count, dim), keys, turned_width);
        turn(features, stride, (count, depth), f, turned_width);
        if with_values {
            turn(&self.values, value_width, (count, columns), values, turned_width);
        }
        (*w, *has_values) = (turned_width, with_values);
    }

    pub(super) fn is_turned(&self, with_values: bool) -> bool {
        self.turned.width > 0 && (self.turned.has_values || !with_values)
    }

    /// The turned form, if it is up to date and has room for the columns from `start` on.
    pub(super) fn turned(&self, start: usize) -> Option<&Turned<R>> {
        let room = start == 0 || self.len() > R::kernels().lanes;
        (self.turned.width > 0 && room).then_some(&self.turned)
    }
}

impl<R: Cached> Block<R> {
    /// Adds keys that are projected already, one row of `stride` numbers each.
    pub(super) fn append<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        rows: &[usize],
        offset: usize,
        (projections, stride): (&[R], usize),
        terms: &[R],
    ) {
        self.append_rows(hybrid, (k, v), rows, offset);
        let width = self.shape.width;
        for row in projections.chunks(stride).take(rows.len()) {
            self.projections.extend_from_slice(&row[..width]);
        }
        self.terms.extend_from_slice(&terms[..rows.len()]);
        self.turned.width = 0;
    }

    /// Adds keys and values, without their features.
    fn append_rows<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        rows: &[usize],
        offset: usize,
    ) {
        let Shape { dim, dim_padded, columns, value_width, .. } = self.shape;
        let first = self.len();
        self.positions.extend(rows.iter().map(|i| i + offset));
        self.keys.resize((first + rows.len()) * dim_padded, R::ZERO);
        self.values.resize((first + rows.len()) * value_width, R::ZERO);
        for (&i, out) in rows.iter().zip(self.keys[first * dim_padded..].chunks_mut(dim_padded)) {
            k.widen_row(i, &mut out[..dim]);
        }
        for (&i, out) in rows.iter().zip(self.values[first * value_width..].chunks_mut(value_width))
        {
            v.widen_row(i, &mut out[..columns]);
        }
        let scale = hybrid.norm_scale();
        let constant = |i: &usize| if scale == 0.0 { 0.0 } else { scale * squared_norm(k, *i) };
        self.constants.extend(rows.iter().map(|i| R::from_f64(constant(i))));
    }

    /// Holds these keys instead of all others, ready for products with many queries. Features are relative
    /// to exponents that do not rise any more, so projections are not kept.
    pub(super) fn load_ready<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        rows: &[usize],
        scratch: &mut Scratch<R>,
        exponents: &[R],
        for_gradients: bool,
    ) -> Result<()> {
        self.keep(0, 0);
        let side = &hybrid.map.key;
        scratch.project(side, "keys", k, rows)?;
        scratch.compute_terms(side, rows.len());
        self.append_rows(hybrid, (k, v), rows, 0);
        let tile = scratch.tile(side, rows.len());
        let Scratch { kernels, features, terms, stride, shrink: unused, .. } = scratch;
        kernels.key_features(tile, features, terms, &side.constants, exponents, unused);
        let Shape { features: count, width, .. } = self.shape;
        if for_gradients {
            for row in features.chunks_mut(*stride).take(rows.len()) {
                row[count..width].fill(R::ZERO);
                self.features.extend_from_slice(&row[..width]);
            }
        }
        self.turn_features((features, *stride), for_gradients);
        Ok(())
    }

    /// Adds keys.
    pub(super) fn load<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        rows: &[usize],
        scratch: &mut Scratch<R>,
    ) -> Result<()> {
        let side = &hybrid.map.key;
        for rows in rows.chunks(scratch.capacity) {
            scratch.project(side, "keys", k, rows)?;
            scratch.compute_terms(side, rows.len());
            let projected = (&scratch.features[..], scratch.stride);
            self.append(hybrid, (k, v), rows, 0, projected, &scratch.terms);
        }
        Ok(())
    }
}

/// `out = rowsᵀ`, for the first `depth` numbers of each of the `count` rows.
fn turn<R: Real>(
    rows: &[R],
    stride: usize,
    (count, depth): (usize, usize),
    out: &mut Vec<R>,
    width: usize,
) {
    out.resize(depth * width, R::ZERO);
    // Eight rows at a time: what is written lies side by side, and what is read stays near.
    for start in (0..count).step_by(8) {
        let many = (count - start).min(8);
        let from = &rows[start * stride..];
        for l in 0..depth {
            let to = &mut out[l * width + start..][..many];
            for (r, to) in to.iter_mut().enumerate() {
                *to = from[r * stride + l];
            }
        }
    }
    out.chunks_mut(width).for_each(|row| row[count..].fill(R::ZERO));
}
