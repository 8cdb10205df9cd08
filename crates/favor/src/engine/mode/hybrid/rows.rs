//! A tile of queries with its sums, and what a block of exact keys changes in them.

use super::block::{Block, View};
use super::tile::Hide;
use super::{Hybrid, Shape, cancelled};
use crate::Result;
use crate::engine::mode::forward::normalise;
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{Product, squared_norm};
use crate::map::Cached;
use crate::simd::{
    Aligned, Constants, Gemm, GemmTransposed, Kernels, Layout, PairRows, Prefetch, Real,
};
use std::cmp::Ordering;

/// The exponent of a query that no key has been seen by: below that of any weight.
const NOTHING: f64 = -1_048_576.0;

/// The largest exponent of a query: beyond it `f32` has no integers left to count in.
const MOST: f64 = 4_194_304.0;

/// Rows from which on products go by columns of keys.
pub(super) const MANY: usize = 4;

/// Sums of a tile of queries; those of row `i` are in units of `2^{exponent i}`.
pub(super) struct QueryRows<R: Real> {
    shape: Shape,
    pub(super) rows: usize,
    /// Where the queries are in the sequence.
    pub(super) positions: Vec<usize>,
    /// `s² log₂ e · q`, `dim_padded` numbers per row.
    pub(super) scaled: Vec<R>,
    pub(super) exponents: Vec<R>,
    /// What one unit of the features is.
    pub(super) factors: Vec<R>,
    /// Denominators of the features alone, in their own units.
    estimated: Vec<R>,
    pub(super) denominators: Vec<R>,
    /// `value_width` numbers per row.
    pub(super) numerators: Aligned<R>,
}

/// The least integer that is not smaller: by conversions, where a processor may have no instruction of its
/// own. What is beyond their range stays beyond all exponents, and NaN stays NaN.
fn next_integer(x: f64) -> f64 {
    let whole = x as i64 as f64;
    match whole.partial_cmp(&x) {
        Some(Ordering::Less) => whole + 1.0,
        Some(_) => whole,
        None => x,
    }
}

/// What the features of a tile of queries say, before anything is exact.
pub(super) struct Estimated<'a, R> {
    pub(super) denominators: &'a [R],
    pub(super) row_exponents: &'a [R],
    pub(super) row_terms: &'a [R],
    pub(super) numerators: &'a [R],
}

impl<R: Cached> QueryRows<R> {
    pub(super) fn new(shape: Shape, capacity: usize) -> Self {
        // Whole vectors of them.
        let zeros = vec![R::ZERO; capacity.next_multiple_of(R::kernels().lanes)];
        Self {
            shape,
            rows: 0,
            positions: vec![],
            scaled: vec![R::ZERO; capacity * shape.dim_padded],
            exponents: zeros.clone(),
            factors: zeros.clone(),
            estimated: zeros.clone(),
            denominators: zeros,
            numerators: Aligned::zeros(capacity * shape.value_width),
        }
    }

    /// Takes over a tile as the features leave it.
    pub(super) fn start<T: Scalar<Real = R>>(
        &mut self,
        hybrid: &Hybrid<'_, R>,
        q: Strided<'_, T>,
        rows: &[usize],
        offset: usize,
        estimated: Estimated<'_, R>,
    ) -> Result<()> {
        let Shape { dim, dim_padded, features, value_width, .. } = self.shape;
        self.rows = rows.len();
        self.positions.clear();
        self.positions.extend(rows.iter().map(|i| i + offset));
        let (norm, mean) = (hybrid.norm_scale(), (features as f64).log2());
        for (i, &row) in rows.iter().enumerate() {
            let denominator = estimated.denominators[i];
            // Exact logits leave out the query's own factor; row terms have it.
            let own = if norm == 0.0 { 0.0 } else { norm * squared_norm(q, row) };
            let log = estimated.row_exponents[i].to_f64() + estimated.row_terms[i].to_f64();
            let base = log - mean - own;
            let exponent = if denominator == R::ZERO { NOTHING } else { next_integer(base) };
            if !(NOTHING..MOST).contains(&exponent) || !denominator.is_finite() {
                return Err(cancelled::<T>());
            }
            self.exponents[i] = R::from_f64(exponent);
            self.factors[i] = R::from_f64(base - exponent);
            self.estimated[i] = denominator;
        }
        let kernels = R::kernels();
        kernels.exp2(&mut self.factors, rows.len());
        for i in 0..rows.len() {
            if self.estimated[i] == R::ZERO {
                self.factors[i] = R::ZERO;
            }
            self.denominators[i] = self.factors[i] * self.estimated[i];
        }
        let tile = |columns: usize| Layout { rows: rows.len(), columns, stride: columns };
        let (sums, from) = (&mut self.numerators, estimated.numerators);
        kernels.scale_rows(tile(value_width), from, &self.factors, sums);
        for (out, &row) in self.scaled.chunks_mut(dim_padded).zip(rows) {
            q.widen_row(row, &mut out[..dim]);
        }
        let scale = R::from_f64(hybrid.logit_scale());
        kernels.scale_all(tile(dim_padded), &mut self.scaled, scale);
        Ok(())
    }

    /// Replaces estimates by exact weights for the rows `first..last` and part of a block.
    pub(super) fn meet(
        &mut self,
        pairs: &mut Pairs<R>,
        (p, stride): (&[R], usize),
        (first, last): (usize, usize),
        block: &Block<R>,
        range: (usize, usize),
        hide: Hide<'_, R>,
    ) {
        let dim_padded = self.shape.dim_padded;
        let meeting = Meeting {
            rows: last - first,
            q: (&self.scaled[first * dim_padded..], dim_padded),
            p: (&p[first * stride..], stride),
            block: block.view(),
            range,
        };
        if meeting.rows == 0 || range.0 == range.1 {
            return;
        }
        let width = pairs.multiply(&meeting);
        pairs.correct(width, self.sums(first, last), block, range, hide);
    }

    /// Turns logits into weights, takes the estimates back, and leaves in the tile what is to be multiplied
    /// with the values.
    pub(super) fn take_weights(
        &mut self,
        kernels: &Kernels<R>,
        tile: Layout,
        (weights, estimates): (&mut [R], &[R]),
        seen: &[(usize, usize)],
        shrink: &mut [R],
    ) {
        let mut sums = self.sums(0, self.rows);
        sums.take_weights(kernels, tile, (weights, estimates), seen, None, shrink);
    }

    pub(super) fn value_width(&self) -> usize {
        self.shape.value_width
    }

    /// Numbers of a query, and from one scaled query to the next.
    pub(super) fn query_shape(&self) -> (usize, usize) {
        (self.shape.dim, self.shape.dim_padded)
    }

    /// The sums of some rows.
    fn sums(&mut self, first: usize, last: usize) -> RowSums<'_, R> {
        let value_width = self.shape.value_width;
        RowSums {
            exponents: &mut self.exponents[first..last],
            factors: &mut self.factors[first..last],
            denominators: &mut self.denominators[first..last],
            numerators: &mut self.numerators[first * value_width..last * value_width],
        }
    }

    /// Refuses rows of which too little is left: less than 2⁻¹⁰ of what the features gave in `f32`.
    pub(super) fn check<T: Scalar<Real = R>>(&self) -> Result<()> {
        let least = if size_of::<R>() == 4 { 10.0_f64 } else { 35.0 };
        let least = R::from_f64((-least).exp2());
        for i in 0..self.rows {
            let given = least * self.factors[i] * self.estimated[i];
            let enough = self.denominators[i].to_f64() >= given.to_f64();
            if !(enough && self.denominators[i].is_finite()) {
                return Err(cancelled::<T>());
            }
        }
        Ok(())
    }

    /// Writes the outputs.
    pub(super) fn write<T: Scalar<Real = R>>(&self, out: &mut [T]) -> Result<()> {
        self.check::<T>()?;
        let Shape { columns, value_width, .. } = self.shape;
        normalise(&self.numerators, value_width, &self.denominators[..self.rows], columns, out)
    }
}

pub(super) fn gather<R: Real>(
    to: &mut Vec<R>,
    from: &[R],
    stride: usize,
    width: usize,
    rows: &[usize],
) {
    to.clear();
    for &i in rows {
        to.extend_from_slice(&from[i * stride..][..width]);
    }
}

/// Some queries and part of a block of keys.
pub(super) struct Meeting<'a, R> {
    pub(super) rows: usize,
    pub(super) q: (&'a [R], usize),
    pub(super) p: (&'a [R], usize),
    pub(super) block: View<'a, R>,
    pub(super) range: (usize, usize),
}

/// The sums of some rows.
struct RowSums<'a, R> {
    exponents: &'a mut [R],
    factors: &'a mut [R],
    denominators: &'a mut [R],
    numerators: &'a mut [R],
}

/// Exact weights and estimates of pairs, one row of whole vectors per query.
pub(super) struct Pairs<R: Real> {
    pub(super) kernels: &'static Kernels<R>,
    pub(super) weights: Vec<R>,
    pub(super) estimates: Vec<R>,
    pub(super) constants: Vec<R>,
    /// The columns that each row sees.
    pub(super) seen: Vec<(usize, usize)>,
    shrink: Vec<R>,
}

impl<R: Cached> Pairs<R> {
    pub(super) fn new() -> Self {
        Self {
            kernels: R::kernels(),
            weights: vec![],
            estimates: vec![],
            constants: vec![],
            seen: vec![],
            shrink: vec![],
        }
    }

    /// Logits and estimates; returns the width of a row.
    pub(super) fn multiply(&mut self, meeting: &Meeting<'_, R>) -> usize {
        let Meeting { rows, q, p, block, range: (start, end) } = *meeting;
        let (kernels, count) = (self.kernels, end - start);
        let width = count.next_multiple_of(kernels.lanes);
        self.weights.resize(rows * width, R::ZERO);
        self.estimates.resize(rows * width, R::ZERO);
        let Shape { dim, dim_padded, features, width: f_width, .. } = block.shape;
        if let Some(transposed) = block.transposed(start) {
            let columns = if count <= kernels.narrow { kernels.narrow } else { width };
            let shape = |depth: usize, a_row: usize| Gemm {
                rows,
                columns,
                depth,
                a: (a_row, 1),
                b_row: transposed.width,
                b_panel: 2 * kernels.lanes,
                c_row: width,
                accumulate: false,
                in_parts: true,
                prefetch: Prefetch::default(),
            };
            kernels.gemm(&shape(dim, q.1), q.0, &transposed.keys[start..], &mut self.weights);
            let right = &transposed.features[start..];
            kernels.gemm(&shape(features, p.1), p.0, right, &mut self.estimates);
            clear_columns(&mut self.weights, columns, width);
            clear_columns(&mut self.estimates, columns, width);
        } else {
            let shape = |depth: usize, a_row: usize, b_row: usize| GemmTransposed {
                rows,
                columns: count,
                depth,
                a_row,
                b_row,
                c_row: width,
            };
            let keys = &block.keys[start * dim_padded..];
            kernels.inner(&shape(dim_padded, q.1, dim_padded), q.0, keys, &mut self.weights);
            let depth = features.next_multiple_of(kernels.lanes);
            let right = &block.features[start * f_width..];
            kernels.inner(&shape(depth, p.1, f_width), p.0, right, &mut self.estimates);
            clear_columns(&mut self.weights, count, width);
            clear_columns(&mut self.estimates, count, width);
        }
        self.constants.clear();
        self.constants.extend_from_slice(&block.constants[start..end]);
        self.constants.resize(width, R::ZERO);
        width
    }

    /// Notes which pairs of a meeting are seen.
    pub(super) fn see(&mut self, width: usize, hide: Hide<'_, R>) {
        let Self { weights, estimates, seen, .. } = self;
        let both = weights.chunks_mut(width).zip(estimates.chunks_mut(width));
        seen.clear();
        seen.extend(both.enumerate().map(|(i, (w, h))| hide(i, w, h)));
    }

    /// Puts the weights of a meeting into sums.
    fn correct(
        &mut self,
        width: usize,
        mut sums: RowSums<'_, R>,
        block: &Block<R>,
        (start, end): (usize, usize),
        hide: Hide<'_, R>,
    ) {
        let (rows, count) = (sums.exponents.len(), end - start);
        self.see(width, hide);
        let Self { kernels, weights, estimates, constants, seen, shrink } = self;
        shrink.resize(rows, R::ZERO);
        let tile = Layout { rows, columns: width, stride: width };
        let constants = Some(&constants[..]);
        sums.take_weights(kernels, tile, (weights, estimates), seen, constants, shrink);
        let value_width = block.shape.value_width;
        let values = &block.values[start * value_width..];
        Product::new(kernels, (weights, width), rows).add_rows(
            count,
            (values, value_width),
            sums.numerators,
        );
    }
}

impl<R: Cached> RowSums<'_, R> {
    fn take_weights(
        &mut self,
        kernels: &Kernels<R>,
        tile: Layout,
        (weights, estimates): (&mut [R], &[R]),
        seen: &[(usize, usize)],
        constants: Option<&[R]>,
        shrink: &mut [R],
    ) {
        let Self { exponents, factors, denominators, numerators } = self;
        let mut rows = PairRows { seen, constants, exponents, factors, denominators, shrink };
        kernels.correct(tile, weights, estimates, &mut rows);
        let value_width = numerators.len() / tile.rows;
        for (own, shrink) in numerators.chunks_mut(value_width).zip(rows.shrink) {
            if *shrink != R::ONE {
                own.iter_mut().for_each(|v| *v = *v * *shrink);
            }
        }
    }
}

/// Zeros the columns from `first` on.
pub(super) fn clear_columns<R: Real>(rows: &mut [R], first: usize, width: usize) {
    if first < width {
        rows.chunks_mut(width).for_each(|row| row[first..].fill(R::ZERO));
    }
}

/// Hides pairs: their exact weights and their estimates become zero.
pub(super) fn hide<R: Real>(logits: &mut [R], estimates: &mut [R], pairs: std::ops::Range<usize>) {
    logits[pairs.clone()].fill(hidden());
    estimates[pairs].fill(R::ZERO);
}

/// A logit so low that its weight is zero, with room to add a constant.
pub(super) fn hidden<R: Constants>() -> R {
    R::from_f64(R::LOWEST.to_f64() / 4.0)
}
