//! A tile of queries with its sums, and what a block of exact keys changes in them.

use super::block::Block;
use super::{Hybrid, Shape, cancelled};
use crate::Result;
use crate::engine::mode::forward::normalise;
use crate::engine::tensor::{Scalar, Strided};
use crate::engine::tile::{Product, squared_norm};
use crate::map::Cached;
use crate::simd::{Aligned, Constants, Gemm, GemmTransposed, Kernels, Layout, Prefetch, Real};

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

/// What the features of a tile of queries say, before anything is exact.
pub(super) struct Estimated<'a, R> {
    pub(super) denominators: &'a [R],
    pub(super) row_exponents: &'a [R],
    pub(super) row_terms: &'a [R],
    pub(super) numerators: &'a [R],
}

impl<R: Cached> QueryRows<R> {
    pub(super) fn new(shape: Shape, capacity: usize) -> Self {
        let zeros = vec![R::ZERO; capacity];
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
        let scale = R::from_f64(hybrid.logit_scale());
        let (norm, mean) = (hybrid.norm_scale(), (features as f64).log2());
        for (i, &row) in rows.iter().enumerate() {
            let scaled = &mut self.scaled[i * dim_padded..][..dim];
            q.widen_row(row, scaled);
            scaled.iter_mut().for_each(|x| *x = *x * scale);
            let denominator = estimated.denominators[i];
            // Exact logits leave out the query's own factor; row terms have it.
            let own = if norm == 0.0 { 0.0 } else { norm * squared_norm(q, row) };
            let log = estimated.row_exponents[i].to_f64() + estimated.row_terms[i].to_f64();
            let base = log - mean - own;
            let (exponent, factor) = if denominator == R::ZERO {
                (NOTHING, 0.0)
            } else {
                (base.ceil(), (base - base.ceil()).exp2())
            };
            if !(NOTHING..MOST).contains(&exponent) || !denominator.is_finite() {
                return Err(cancelled::<T>());
            }
            let factor = R::from_f64(factor);
            self.exponents[i] = R::from_f64(exponent);
            self.factors[i] = factor;
            self.estimated[i] = denominator;
            self.denominators[i] = factor * denominator;
            let sums = &mut self.numerators[i * value_width..][..value_width];
            let from = &estimated.numerators[i * value_width..];
            sums.iter_mut().zip(from).for_each(|(s, x)| *s = *x * factor);
        }
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
        hide: impl FnMut(usize, &mut [R], &mut [R]),
    ) {
        let Shape { dim_padded, value_width, .. } = self.shape;
        let meeting = Meeting {
            rows: last - first,
            q: (&self.scaled[first * dim_padded..], dim_padded),
            p: (&p[first * stride..], stride),
            block,
            range,
        };
        let sums = RowSums {
            exponents: &mut self.exponents[first..last],
            factors: &mut self.factors[first..last],
            denominators: &mut self.denominators[first..last],
            numerators: &mut self.numerators[first * value_width..],
        };
        pairs.correct(&meeting, sums, hide);
    }

    /// The same for rows that do not follow one another.
    pub(super) fn meet_some(
        &mut self,
        pairs: &mut Pairs<R>,
        gathered: &mut Gathered<R>,
        (p, stride): (&[R], usize),
        rows: &[usize],
        block: &Block<R>,
        hide: impl FnMut(usize, &mut [R], &mut [R]),
    ) {
        let Shape { value_width, .. } = self.shape;
        gathered.take(self, (p, stride), rows);
        let Gathered { q, p, sums, .. } = gathered;
        let (exponents, factors, denominators, numerators) = sums;
        let meeting = Meeting {
            rows: rows.len(),
            q: (q, self.shape.dim_padded),
            p: (p, self.shape.width),
            block,
            range: (0, block.len()),
        };
        pairs.correct(&meeting, RowSums { exponents, factors, denominators, numerators }, hide);
        for (n, &i) in rows.iter().enumerate() {
            self.exponents[i] = exponents[n];
            self.factors[i] = factors[n];
            self.denominators[i] = denominators[n];
            let own = &numerators[n * value_width..][..value_width];
            self.numerators[i * value_width..][..value_width].copy_from_slice(own);
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

/// Rows of queries and their features, gathered from a tile.
pub(super) struct Gathered<R> {
    pub(super) q: Vec<R>,
    pub(super) p: Vec<R>,
    sums: (Vec<R>, Vec<R>, Vec<R>, Vec<R>),
}

impl<R: Cached> Gathered<R> {
    pub(super) fn new() -> Self {
        Self { q: vec![], p: vec![], sums: (vec![], vec![], vec![], vec![]) }
    }

    fn take(&mut self, from: &QueryRows<R>, (p, stride): (&[R], usize), rows: &[usize]) {
        let Shape { value_width, .. } = from.shape;
        self.take_rows(from, (p, stride), rows);
        let (e, f, d, n) = &mut self.sums;
        for (to, from) in [(e, &from.exponents), (f, &from.factors), (d, &from.denominators)] {
            to.clear();
            to.extend(rows.iter().map(|&i| from[i]));
        }
        gather(n, &from.numerators, value_width, value_width, rows);
    }

    pub(super) fn take_rows(
        &mut self,
        from: &QueryRows<R>,
        (p, stride): (&[R], usize),
        rows: &[usize],
    ) {
        let Shape { dim_padded, width, .. } = from.shape;
        gather(&mut self.q, &from.scaled, dim_padded, dim_padded, rows);
        gather(&mut self.p, p, stride, width, rows);
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
    pub(super) block: &'a Block<R>,
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
    shrink: Vec<R>,
}

impl<R: Cached> Pairs<R> {
    pub(super) fn new() -> Self {
        let kernels = R::kernels();
        Self { kernels, weights: vec![], estimates: vec![], constants: vec![], shrink: vec![] }
    }

    /// Logits and estimates; returns the width of a row.
    pub(super) fn multiply(&mut self, meeting: &Meeting<'_, R>) -> usize {
        let Meeting { rows, q, p, block, range: (start, end) } = *meeting;
        let (kernels, count) = (self.kernels, end - start);
        let width = count.next_multiple_of(kernels.lanes);
        self.weights.resize(rows * width, R::ZERO);
        self.estimates.resize(rows * width, R::ZERO);
        let Shape { dim, dim_padded, features, width: f_width, .. } = block.shape;
        if let Some(turned) = block.turned(start) {
            let shape = |depth: usize, a_row: usize| Gemm {
                rows,
                columns: width,
                depth,
                a: (a_row, 1),
                b_row: turned.width,
                b_panel: 2 * kernels.lanes,
                c_row: width,
                accumulate: false,
                prefetch: Prefetch::default(),
            };
            kernels.gemm(&shape(dim, q.1), q.0, &turned.keys[start..], &mut self.weights);
            let right = &turned.features[start..];
            kernels.gemm(&shape(features, p.1), p.0, right, &mut self.estimates);
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
        }
        self.constants.clear();
        self.constants.extend_from_slice(&block.constants[start..end]);
        self.constants.resize(width, R::ZERO);
        width
    }

    /// `hide(row, logits, estimates)` hides the pairs that are not exact, by [`hide`].
    fn correct(
        &mut self,
        meeting: &Meeting<'_, R>,
        sums: RowSums<'_, R>,
        mut hide_pairs: impl FnMut(usize, &mut [R], &mut [R]),
    ) {
        let (rows, count) = (meeting.rows, meeting.range.1 - meeting.range.0);
        if rows == 0 || count == 0 {
            return;
        }
        let width = self.multiply(meeting);
        let Self { kernels, weights, estimates, constants, shrink } = self;
        let both = weights.chunks_mut(width).zip(estimates.chunks_mut(width));
        for (i, (w, h)) in both.enumerate() {
            hide(w, h, count..width);
            hide_pairs(i, w, h);
        }
        let RowSums { exponents, factors, denominators, numerators } = sums;
        shrink.resize(rows, R::ZERO);
        let tile = Layout { rows, columns: width, stride: width };
        kernels.softmax_rows(tile, weights, Some(constants), exponents, denominators, shrink);
        let value_width = meeting.block.shape.value_width;
        for i in 0..rows {
            if shrink[i] != R::ONE {
                factors[i] = factors[i] * shrink[i];
                let own = &mut numerators[i * value_width..][..value_width];
                own.iter_mut().for_each(|v| *v = *v * shrink[i]);
            }
        }
        kernels.take_back(tile, weights, estimates, factors, denominators);
        let values = &meeting.block.values[meeting.range.0 * value_width..];
        Product::new(kernels, (weights, width), rows).add_rows(
            count,
            (values, value_width),
            numerators,
        );
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
