//! Keys that are attended exactly, with all that a query needs of them.

use super::{Hybrid, Shape};
use crate::Result;
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{Scratch, squared_norm};
use crate::map::{Cached, PackedSide};
use crate::simd::{Constants, Kernels, Real, Transpose};

/// Keys, one row each. Features are relative to exponents; they follow when these change.
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
    /// `width` numbers per key, zero beyond the features. Empty if they are not known.
    pub(super) features: Vec<R>,
    /// What the features are relative to.
    exponents: Vec<R>,
    transposed: Transposed<R>,
}

/// Keys, features and values with one column per key; `width` columns, zero where there is no key.
#[derive(Debug)]
pub(super) struct Transposed<R> {
    pub(super) keys: Vec<R>,
    pub(super) features: Vec<R>,
    pub(super) values: Vec<R>,
    /// Zero if what is here is out of date.
    pub(super) width: usize,
    has_values: bool,
}

/// Some keys as they are met, wherever they lie.
#[derive(Clone, Copy)]
pub(super) struct View<'a, R> {
    pub(super) shape: Shape,
    pub(super) positions: &'a [usize],
    /// `dim_padded`, `value_width`, one and `width` numbers per key, or more of them.
    pub(super) keys: &'a [R],
    pub(super) values: &'a [R],
    pub(super) constants: &'a [R],
    pub(super) features: &'a [R],
    pub(super) transposed: Option<TransposedView<'a, R>>,
}

/// The same with one column per key; values are there for gradients alone.
#[derive(Clone, Copy)]
pub(super) struct TransposedView<'a, R> {
    pub(super) keys: &'a [R],
    pub(super) features: &'a [R],
    pub(super) values: &'a [R],
    pub(super) width: usize,
}

impl<'a, R: Real> View<'a, R> {
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// The transposed form, if it has room for the columns from `start` on.
    pub(super) fn transposed(&self, start: usize) -> Option<TransposedView<'a, R>> {
        let lanes = R::kernels().lanes;
        let with_room = self.len().next_multiple_of(lanes) + lanes;
        self.transposed.filter(|transposed| start == 0 || transposed.width >= with_room)
    }
}

impl<R> Transposed<R> {
    const NOTHING: Self =
        Self { keys: vec![], features: vec![], values: vec![], width: 0, has_values: false };
}

impl<R> Clone for Transposed<R> {
    /// Out of date: it is made again where it is needed.
    fn clone(&self) -> Self {
        Self::NOTHING
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
            features: vec![],
            exponents: vec![],
            transposed: Transposed::NOTHING,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn size_in_bytes(&self) -> usize {
        let numbers = self.keys.len() + self.values.len() + self.constants.len();
        let numbers = numbers + self.features.len() + self.exponents.len();
        let transposed = self.transposed.keys.len()
            + self.transposed.features.len()
            + self.transposed.values.len();
        (numbers + transposed) * size_of::<R>() + self.positions.len() * size_of::<usize>()
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
        cut(&mut self.features, width, start, end);
        self.transposed.width = 0;
    }

    /// Adds a row of another block before row `at`. The features of both are relative to the same.
    pub(super) fn insert(&mut self, at: usize, from: &Self, row: usize) {
        let Shape { dim_padded, width, value_width, .. } = self.shape;
        fn put<N: Copy>(to: &mut Vec<N>, from: &[N], size: usize, at: usize, row: usize) {
            to.extend_from_slice(&from[row * size..(row + 1) * size]);
            to[at * size..].rotate_right(size);
        }
        if self.len() == 0 {
            self.exponents.clone_from(&from.exponents);
        }
        put(&mut self.positions, &from.positions, 1, at, row);
        put(&mut self.keys, &from.keys, dim_padded, at, row);
        put(&mut self.values, &from.values, value_width, at, row);
        put(&mut self.constants, &from.constants, 1, at, row);
        put(&mut self.features, &from.features, width, at, row);
        self.transposed.width = 0;
    }

    /// Makes the features relative to these exponents.
    pub(super) fn rebase(&mut self, exponents: &[R]) {
        if same(&self.exponents, exponents) {
            return;
        }
        let Shape { width, features: count, .. } = self.shape;
        let factor = |(old, new): (&R, &R)| match new.to_f64() - old.to_f64() {
            0.0 => R::ONE,
            // Powers of two: not a digit changes.
            rise => R::from_f64((-rise).max(-2000.0).exp2()),
        };
        let factors: Vec<R> = self.exponents.iter().zip(exponents).map(factor).collect();
        for row in self.features.chunks_mut(width) {
            row.iter_mut().zip(&factors).for_each(|(x, factor)| *x = *x * *factor);
        }
        if self.transposed.width > 0 {
            let rows = self
                .transposed
                .features
                .chunks_mut(self.transposed.width)
                .zip(&factors)
                .take(count);
            for (row, factor) in rows.filter(|(_, factor)| **factor != R::ONE) {
                row.iter_mut().for_each(|x| *x = *x * *factor);
            }
        }
        self.exponents.clear();
        self.exponents.extend_from_slice(exponents);
    }

    /// Frees what only products with many queries need.
    pub(super) fn release(&mut self) {
        self.transposed = Transposed::NOTHING;
    }

    /// Forgets the features.
    pub(super) fn forget_features(&mut self) {
        self.features.clear();
        self.exponents.clear();
        self.transposed.width = 0;
    }

    /// The block with one column per key, for products with many queries.
    pub(super) fn transpose(&mut self, with_values: bool) {
        if !self.is_transposed(with_values) {
            let features = std::mem::take(&mut self.features);
            // What is no longer than a vector is met in parts by gradients alone, which have rows too.
            let in_parts = self.len() > R::kernels().lanes;
            self.transpose_features((&features, self.shape.width), with_values, in_parts);
            self.features = features;
        }
    }

    /// The same with features that are elsewhere. `in_parts`: with room for the columns of a part that
    /// begins anywhere.
    fn transpose_features(
        &mut self,
        (features, stride): (&[R], usize),
        with_values: bool,
        in_parts: bool,
    ) {
        let &Kernels { lanes, narrow, .. } = R::kernels();
        let Shape { dim, dim_padded, features: depth, columns, value_width, .. } = self.shape;
        let count = self.len();
        let transposed_width = match count {
            _ if in_parts => count.next_multiple_of(lanes) + lanes,
            1.. if count <= narrow => narrow,
            _ => count.next_multiple_of(lanes).max(lanes),
        };
        let Transposed { keys, features: f, values, width: w, has_values } = &mut self.transposed;
        transpose(&self.keys, dim_padded, (count, dim), keys, transposed_width);
        transpose(features, stride, (count, depth), f, transposed_width);
        if with_values {
            transpose(&self.values, value_width, (count, columns), values, transposed_width);
        }
        (*w, *has_values) = (transposed_width, with_values);
    }

    pub(super) fn is_transposed(&self, with_values: bool) -> bool {
        self.transposed.width > 0 && (self.transposed.has_values || !with_values)
    }

    pub(super) fn view(&self) -> View<'_, R> {
        let Transposed { keys, features, values, width, has_values } = &self.transposed;
        let values = if *has_values { &values[..] } else { &[] };
        let transposed = TransposedView { keys, features, values, width: *width };
        View {
            shape: self.shape,
            positions: &self.positions,
            keys: &self.keys,
            values: &self.values,
            constants: &self.constants,
            features: &self.features,
            transposed: (*width > 0).then_some(transposed),
        }
    }
}

impl<R: Cached> Block<R> {
    /// Adds keys whose features are made already, one row of `stride` numbers each, relative to these
    /// exponents.
    pub(super) fn append<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        rows: &[usize],
        offset: usize,
        (features, stride): (&[R], usize),
        exponents: &[R],
    ) {
        if self.len() == 0 {
            self.exponents.clear();
            self.exponents.extend_from_slice(exponents);
        }
        self.restore(&hybrid.map.key, exponents);
        self.append_rows(hybrid, (k, v), rows, offset);
        let Shape { features: count, width, .. } = self.shape;
        for row in features.chunks(stride).take(rows.len()) {
            self.features.extend_from_slice(&row[..count]);
            self.features.resize(self.features.len() + width - count, R::ZERO);
        }
        self.transposed.width = 0;
    }

    /// Makes the features relative to these exponents, from the keys if they are not known.
    pub(super) fn restore(&mut self, side: &PackedSide<R>, exponents: &[R]) {
        let Shape { dim_padded, width, features: count, .. } = self.shape;
        if self.features.len() == self.len() * width {
            return self.rebase(exponents);
        }
        self.forget_features();
        let mut scratch = Scratch::new(side, 1, self.len());
        for keys in self.keys.chunks(scratch.capacity * dim_padded) {
            let rows = keys.len() / dim_padded;
            scratch.move_rows(side, keys, rows);
            scratch.project_moved(side, rows);
            scratch.compute_terms(side, rows);
            scratch.key_features(side, exponents, rows);
            for row in scratch.features.chunks(scratch.stride).take(rows) {
                self.features.extend_from_slice(&row[..count]);
                self.features.resize(self.features.len() + width - count, R::ZERO);
            }
        }
        self.exponents.extend_from_slice(exponents);
    }

    /// Holds these keys instead of all others, with features relative to these exponents.
    pub(super) fn load<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        rows: &[usize],
        scratch: &mut Scratch<R>,
        exponents: &[R],
    ) -> Result<()> {
        self.keep(0, 0);
        for rows in rows.chunks(scratch.capacity) {
            make_features(hybrid, k, (rows, &[]), scratch, exponents)?;
            let features = (&scratch.features[..], scratch.stride);
            self.append(hybrid, (k, v), rows, 0, features, exponents);
        }
        Ok(())
    }

    /// The same for one tile, ready for products with many queries; row terms of all keys are known. Rows of
    /// features are there for gradients alone.
    pub(super) fn load_transposed<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        (k, v): (Strided<'_, T>, Strided<'_, T>),
        (rows, terms): (&[usize], &[R]),
        scratch: &mut Scratch<R>,
        exponents: &[R],
        for_gradients: bool,
    ) -> Result<()> {
        self.keep(0, 0);
        make_features(hybrid, k, (rows, terms), scratch, exponents)?;
        if for_gradients {
            let features = (&scratch.features[..], scratch.stride);
            self.append(hybrid, (k, v), rows, 0, features, exponents);
            self.transpose(true);
        } else {
            self.append_rows(hybrid, (k, v), rows, 0);
            self.transpose_features((&scratch.features, scratch.stride), false, true);
        }
        Ok(())
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
        append_rows(&mut self.keys, (dim, dim_padded), k, rows);
        append_rows(&mut self.values, (columns, value_width), v, rows);
        self.positions.extend(rows.iter().map(|i| i + offset));
        let scale = hybrid.norm_scale();
        let constant = |i: &usize| if scale == 0.0 { 0.0 } else { scale * squared_norm(k, *i) };
        self.constants.extend(rows.iter().map(|i| R::from_f64(constant(i))));
    }
}

/// Whether two lists are the same. Without a branch this goes by vectors, and it is asked for every token.
pub(super) fn same<R: Real>(a: &[R], b: &[R]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(true, |same, (a, b)| same & (*a == *b))
}

/// Adds rows of a tensor, filled up with zeros.
fn append_rows<T: Scalar>(
    to: &mut Vec<T::Real>,
    (columns, width): (usize, usize),
    from: Strided<'_, T>,
    rows: &[usize],
) {
    match from.in_place(rows) {
        Some(numbers) if columns == width && from.row_stride == columns => {
            to.extend_from_slice(&numbers[..rows.len() * columns]);
        }
        _ => {
            let start = to.len();
            to.resize(start + rows.len() * width, T::Real::ZERO);
            for (&i, out) in rows.iter().zip(to[start..].chunks_mut(width)) {
                from.widen_row(i, &mut out[..columns]);
            }
        }
    }
}

/// The features of a tile of keys, in the scratch. The row terms of all keys are known, or nothing is.
fn make_features<R: Cached, T: Scalar<Real = R>>(
    hybrid: &Hybrid<'_, R>,
    k: Strided<'_, T>,
    (rows, terms): (&[usize], &[R]),
    scratch: &mut Scratch<R>,
    exponents: &[R],
) -> Result<()> {
    let side = &hybrid.map.key;
    scratch.project(side, "keys", k, rows)?;
    scratch.known_terms(side, rows, terms);
    scratch.key_features(side, exponents, rows.len());
    Ok(())
}

/// `out = rowsᵀ`, for the first `depth` numbers of each of the `count` rows.
fn transpose<R: Real>(
    rows: &[R],
    row_stride: usize,
    (count, depth): (usize, usize),
    out: &mut Vec<R>,
    width: usize,
) {
    out.resize(depth * width, R::ZERO);
    let transpose = Transpose { rows: count, columns: depth, row_stride, width, out_stride: width };
    R::kernels().transpose(&transpose, rows, out);
}
