//! Pairs of queries and exact keys, a tile at a time: logits become weights, and estimates are taken back.
//!
//! A tile has one row per query and one column per key. A row sees some columns that follow one another; all
//! others have no weight.

use super::exp::exp2_shifted;
use super::features::Layout;
use super::lanes::{Constants, LONGEST, Lanes};

/// The rows of a tile whose sums take up the weights of its pairs.
pub(crate) struct PairRows<'a, R> {
    /// The first column that each row sees, and the one after the last.
    pub(crate) seen: &'a [(usize, usize)],
    /// Added to the logits, one number per column.
    pub(crate) constants: Option<&'a [R]>,
    /// What the sums are relative to, and what one unit of the estimates is.
    pub(crate) exponents: &'a mut [R],
    pub(crate) factors: &'a mut [R],
    pub(crate) denominators: &'a mut [R],
    /// What sums made with the old exponents are to be multiplied by.
    pub(crate) shrink: &'a mut [R],
}

/// The rows of a tile on the way back; their exponents are at least those of any weight.
pub(crate) struct PairGradientRows<'a, R> {
    pub(crate) seen: &'a [(usize, usize)],
    pub(crate) constants: &'a [R],
    pub(crate) exponents: &'a [R],
    pub(crate) factors: &'a [R],
    pub(crate) delta: &'a [R],
    /// The gradients of the logits, added up.
    pub(crate) sums: &'a mut [R],
}

/// One in the columns from `column` on that are seen, zero in the others.
///
/// # Safety
/// The processor must support `V`.
#[inline(always)]
unsafe fn seen_from<V: Lanes>(column: usize, (start, end): (usize, usize)) -> V {
    let steps = V::Real::STEPS.as_ptr();
    // SAFETY: a vector is at most `LONGEST` long, and both begin within the first two thirds.
    unsafe {
        let from = V::load(steps.add(LONGEST - start.saturating_sub(column).min(LONGEST)));
        from.mul(V::load(steps.add(2 * LONGEST - end.saturating_sub(column).min(LONGEST))))
    }
}

/// Turns logits into weights relative to the row's exponent, which rises to the largest, takes the estimates
/// back from them, and adds what is left to the denominators.
///
/// # Safety
/// The processor must support `V`; `w` and `h` hold the tile, the slices its rows and columns.
#[inline(always)]
pub(super) unsafe fn correct<V: Lanes>(
    tile: Layout,
    w: *mut V::Real,
    h: *const V::Real,
    rows: &mut PairRows<'_, V::Real>,
) {
    for i in 0..tile.rows {
        let seen = rows.seen[i];
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let (w, h) = (w.add(i * tile.stride), h.add(i * tile.stride));
            let one = V::splat(V::Real::ONE);
            // Far below any other logit, with room to add one.
            let far = V::splat(V::Real::LOWEST * V::Real::QUARTER);
            let logits = |j: usize, mask: V| {
                let x = V::load(w.add(j));
                let x = match rows.constants {
                    Some(constants) => x.add(V::load(constants.as_ptr().add(j))),
                    None => x,
                };
                one.sub(mask).mul_add(far, x)
            };
            let mut largest = V::splat(V::Real::LOWEST);
            for j in (0..tile.columns).step_by(V::COUNT) {
                largest = logits(j, seen_from::<V>(j, seen)).max(largest);
            }
            let old = V::splat(rows.exponents[i]);
            let new = V::splat(largest.largest()).round().max(old);
            let shrink = one.times_power_of_two(old.sub(new));
            let factor = V::splat(rows.factors[i]).mul(shrink);
            let mut sum = V::splat(V::Real::ZERO);
            for j in (0..tile.columns).step_by(V::COUNT) {
                let mask = seen_from::<V>(j, seen);
                let weight = exp2_shifted(logits(j, mask), new);
                let left = weight.sub(V::load(h.add(j)).mul(mask).mul(factor));
                left.store(w.add(j));
                sum = sum.add(left);
            }
            let shrink = shrink.largest();
            rows.denominators[i] = rows.denominators[i] * shrink + sum.sum();
            rows.exponents[i] = new.largest();
            rows.factors[i] = factor.largest();
            rows.shrink[i] = shrink;
        }
    }
}

/// Turns logits into their gradients `e t`, estimates `h` into `−factor t` where they are not zero, and `t − δ`
/// into the weights that values have, `e − factor h`.
///
/// # Safety
/// The processor must support `V`; `w`, `h` and `t` hold the tile, the slices its rows and columns.
#[inline(always)]
pub(super) unsafe fn pair_gradients<V: Lanes>(
    tile: Layout,
    (w, h, t): (*mut V::Real, *mut V::Real, *mut V::Real),
    rows: &mut PairGradientRows<'_, V::Real>,
) {
    for i in 0..tile.rows {
        let seen = rows.seen[i];
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let at = i * tile.stride;
            let (w, h, t) = (w.add(at), h.add(at), t.add(at));
            let (zero, one) = (V::splat(V::Real::ZERO), V::splat(V::Real::ONE));
            let far = V::splat(V::Real::LOWEST * V::Real::QUARTER);
            let (exponent, factor) = (V::splat(rows.exponents[i]), V::splat(rows.factors[i]));
            let delta = V::splat(rows.delta[i]);
            let mut sum = zero;
            for j in (0..tile.columns).step_by(V::COUNT) {
                let mask = seen_from::<V>(j, seen);
                let x = V::load(w.add(j)).add(V::load(rows.constants.as_ptr().add(j)));
                let weight = exp2_shifted(one.sub(mask).mul_add(far, x), exponent);
                let estimate = V::load(h.add(j)).mul(mask);
                let slope = V::load(t.add(j)).add(delta);
                let gradient = weight.mul(slope);
                sum = sum.add(gradient);
                gradient.store(w.add(j));
                // One where there is an estimate, zero where there is none.
                let there = zero.below(estimate).max(zero.sub(one)).add(one);
                zero.sub(there.mul(factor).mul(slope)).store(h.add(j));
                weight.sub(factor.mul(estimate)).store(t.add(j));
            }
            rows.sums[i] = rows.sums[i] + sum.sum();
        }
    }
}
