//! From projections to features, a tile at a time.
//!
//! A tile has one row per vector and one column per feature. Each feature has an integer exponent `n`, the
//! largest power of two of its keys so far; keys are kept as `f · 2^{−n}` and queries as `f · 2^{n−e}` with
//! an exponent `e` of their own. Both cancel in attention, and since they are powers of two they never touch
//! a digit. All logarithms are base two.

use super::exp::exp2_shifted;
use super::lanes::{Constants, Lanes};

/// A tile: `rows × columns` numbers, rows `stride` apart; columns a multiple of the vector length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) stride: usize,
}

/// `out_i = constant + Σ_l (a_l v_il + b_l) v_il`: the part of the logarithm that a row has in
/// common with every feature.
///
/// # Safety
/// The processor must support `V`; `v` holds the tile, `a` and `b` a row of it, `out` its rows.
#[inline(always)]
pub(super) unsafe fn row_terms<V: Lanes>(
    tile: Layout,
    v: *const V::Real,
    a: *const V::Real,
    b: *const V::Real,
    out: *mut V::Real,
) {
    for i in 0..tile.rows {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let mut sum = V::splat(V::Real::ZERO);
            for l in (0..tile.columns).step_by(V::COUNT) {
                let x = V::load(v.add(i * tile.stride + l));
                sum = x.mul_add(x.mul_add(V::load(a.add(l)), V::load(b.add(l))), sum);
            }
            *out.add(i) = *out.add(i) + sum.sum();
        }
    }
}

/// Where `t_ij + term_i > least_j`: one bit per column, one number per vector of them.
///
/// # Safety
/// The processor must support `V`; `t` holds the tile, `terms` its rows, `least` its columns, `out` its vectors.
#[inline(always)]
pub(super) unsafe fn columns_over<V: Lanes>(
    tile: Layout,
    t: *const V::Real,
    terms: *const V::Real,
    least: *const V::Real,
    out: *mut u32,
) {
    let vectors = tile.columns / V::COUNT;
    for i in 0..tile.rows {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let term = V::splat(*terms.add(i));
            for n in 0..vectors {
                let score = V::load(t.add(i * tile.stride + n * V::COUNT)).add(term);
                let least = V::load(least.add(n * V::COUNT));
                let over = score.max(least).equals(score) & !least.equals(score);
                *out.add(i * vectors + n) = over;
            }
        }
    }
}

/// The columns of the largest `t_ij z_j` of each row, in descending order; of equal ones, the first comes
/// first.
///
/// # Safety
/// The processor must support `V`; `t` holds the tile, `z` and `scores` its columns, `out` has `most` places
/// per row.
#[inline(always)]
pub(super) unsafe fn largest_columns<V: Lanes>(
    tile: Layout,
    t: *const V::Real,
    z: *const V::Real,
    scores: *mut V::Real,
    (out, most): (*mut usize, usize),
) {
    for i in 0..tile.rows {
        // SAFETY: inside the slices by the caller's promise.
        unsafe {
            let lowest = V::splat(V::Real::LOWEST);
            let (row, out) = (t.add(i * tile.stride), out.add(i * most));
            let mut top = lowest;
            for j in (0..tile.columns).step_by(V::COUNT) {
                let score = V::load(row.add(j)).mul(V::load(z.add(j)));
                score.store(scores.add(j));
                top = score.max(top);
            }
            let mut found = 0;
            while found < most {
                let (largest, before) = (V::splat(top.largest()), found);
                top = lowest;
                // Where it is, if it is at one place: no branch, since nothing foretells where.
                let (mut place, mut vectors, mut twice) = (0, 0, 0);
                for j in (0..tile.columns).step_by(V::COUNT) {
                    let score = V::load(scores.add(j));
                    let equal = score.equals(largest);
                    let here = usize::from(equal != 0);
                    place += here.wrapping_neg() & (j + equal.trailing_zeros() as usize);
                    vectors += here;
                    twice |= equal & equal.wrapping_sub(1);
                    top = score.below(largest).max(top);
                }
                if vectors == 1 && twice == 0 {
                    *out.add(found) = place;
                    found += 1;
                    continue;
                }
                for j in (0..tile.columns).step_by(V::COUNT) {
                    let mut equal = V::load(scores.add(j)).equals(largest);
                    while equal != 0 && found < most {
                        *out.add(found) = j + equal.trailing_zeros() as usize;
                        equal &= equal - 1;
                        found += 1;
                    }
                }
                if found == before {
                    // Nothing comparable is left.
                    (found..most).for_each(|n| *out.add(n) = 0);
                    break;
                }
            }
        }
    }
}

/// Raises the exponents to those of the tile's keys, and writes the factor by which sums made with
/// the old exponents shrink. Returns whether any exponent changed.
///
/// # Safety
/// The processor must support `V`; `t` holds the tile, `terms` its rows, the others its columns.
#[inline(always)]
pub(super) unsafe fn raise_exponents<V: Lanes>(
    tile: Layout,
    t: *const V::Real,
    terms: *const V::Real,
    constants: *const V::Real,
    exponents: *mut V::Real,
    shrink: *mut V::Real,
) -> bool {
    let mut changed = false;
    // Two vectors of columns at a time: the width of a tile is whole panels.
    for j in (0..tile.columns).step_by(2 * V::COUNT) {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let mut largest = [V::splat(V::Real::LOWEST); 2];
            for i in 0..tile.rows {
                let term = V::splat(*terms.add(i));
                for (n, largest) in largest.iter_mut().enumerate() {
                    let x = V::load(t.add(i * tile.stride + j + n * V::COUNT));
                    *largest = x.add(term).max(*largest);
                }
            }
            for (n, largest) in largest.into_iter().enumerate() {
                let j = j + n * V::COUNT;
                let log = largest.add(V::load(constants.add(j)));
                let old = V::load(exponents.add(j));
                let new = log.round().max(old);
                let rise = new.sub(old);
                if rise.largest() != V::Real::ZERO {
                    changed = true;
                    new.store(exponents.add(j));
                }
                V::splat(V::Real::ONE)
                    .times_power_of_two(V::splat(V::Real::ZERO).sub(rise))
                    .store(shrink.add(j));
            }
        }
    }
    changed
}

/// Turns projections of keys into features `· 2^{−n}` and adds them up over the rows.
///
/// # Safety
/// The processor must support `V`; `t` holds the tile, `terms` its rows, the others its columns.
#[inline(always)]
pub(super) unsafe fn key_features<V: Lanes>(
    tile: Layout,
    t: *mut V::Real,
    terms: *const V::Real,
    constants: *const V::Real,
    exponents: *const V::Real,
    sums: *mut V::Real,
) {
    for j in (0..tile.columns).step_by(V::COUNT) {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let (constant, shift) = (V::load(constants.add(j)), V::load(exponents.add(j)));
            let mut sum = V::splat(V::Real::ZERO);
            for i in 0..tile.rows {
                let p = t.add(i * tile.stride + j);
                let x = V::load(p).add(V::splat(*terms.add(i))).add(constant);
                let f = exp2_shifted(x, shift);
                f.store(p);
                sum = sum.add(f);
            }
            V::load(sums.add(j)).add(sum).store(sums.add(j));
        }
    }
}

/// Turns projections of queries into features `· 2^{n−e}` with the exponent `e` of each row, and
/// writes the denominators `Σ_m P_m z_m`.
///
/// # Safety
/// The processor must support `V`; `t` holds the tile, `constants`, `exponents` and `sums` its
/// columns, `denominators` and `row_exponents` its rows.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn query_features<V: Lanes>(
    tile: Layout,
    t: *mut V::Real,
    constants: *const V::Real,
    exponents: *const V::Real,
    sums: *const V::Real,
    denominators: *mut V::Real,
    row_exponents: *mut V::Real,
) {
    for i in 0..tile.rows {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let row = t.add(i * tile.stride);
            let mut largest = V::splat(V::Real::LOWEST);
            for j in (0..tile.columns).step_by(V::COUNT) {
                let x = V::load(row.add(j)).add(V::load(constants.add(j)));
                largest = x.add(V::load(exponents.add(j))).max(largest);
            }
            let exponent = V::splat(largest.largest()).round();
            let mut sum = V::splat(V::Real::ZERO);
            for j in (0..tile.columns).step_by(V::COUNT) {
                let x = V::load(row.add(j)).add(V::load(constants.add(j)));
                let f = exp2_shifted(x, exponent.sub(V::load(exponents.add(j))));
                f.store(row.add(j));
                sum = f.mul_add(V::load(sums.add(j)), sum);
            }
            *denominators.add(i) = sum.sum();
            *row_exponents.add(i) = exponent.largest();
        }
    }
}

/// One block of online softmax: raises each row's exponent to the block's largest logit, turns the
/// logits into weights `· 2^{−exponent}`, adds them to the denominators, and writes the factors by
/// which sums made with the old exponents shrink. Logits of [`Constants::LOWEST`] get weight zero.
///
/// # Safety
/// The processor must support `V`; `t` holds the tile, `constants` its columns or is null, the
/// others hold its rows.
#[inline(always)]
pub(super) unsafe fn softmax_rows<V: Lanes>(
    tile: Layout,
    t: *mut V::Real,
    constants: *const V::Real,
    exponents: *mut V::Real,
    denominators: *mut V::Real,
    shrink: *mut V::Real,
) {
    for i in 0..tile.rows {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let row = t.add(i * tile.stride);
            let mut largest = V::splat(V::Real::LOWEST);
            if constants.is_null() {
                for j in (0..tile.columns).step_by(V::COUNT) {
                    largest = V::load(row.add(j)).max(largest);
                }
            } else {
                for j in (0..tile.columns).step_by(V::COUNT) {
                    let x = V::load(row.add(j)).add(V::load(constants.add(j)));
                    x.store(row.add(j));
                    largest = x.max(largest);
                }
            }
            let largest = V::splat(largest.largest());
            let old = V::splat(*exponents.add(i));
            let new = largest.round().max(old);
            let mut sum = V::splat(V::Real::ZERO);
            for j in (0..tile.columns).step_by(V::COUNT) {
                let f = exp2_shifted(V::load(row.add(j)), new);
                f.store(row.add(j));
                sum = sum.add(f);
            }
            let one = V::splat(V::Real::ONE);
            let factor = one.times_power_of_two(old.sub(new));
            let total = V::splat(*denominators.add(i)).mul(factor).largest();
            *denominators.add(i) = total + sum.sum();
            *exponents.add(i) = new.largest();
            *shrink.add(i) = factor.largest();
        }
    }
}

/// `E ← F ∘ (E + δzᵀ)`, the gradient of log-features, and the sum of each of its rows.
///
/// # Safety
/// The processor must support `V`; `e` and `f` hold the tile, `z` its columns, `delta` and `sums`
/// its rows.
#[inline(always)]
pub(super) unsafe fn log_gradient<V: Lanes>(
    tile: Layout,
    e: *mut V::Real,
    f: *const V::Real,
    delta: *const V::Real,
    z: *const V::Real,
    sums: *mut V::Real,
) {
    for i in 0..tile.rows {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let delta = V::splat(*delta.add(i));
            let mut sum = V::splat(V::Real::ZERO);
            for j in (0..tile.columns).step_by(V::COUNT) {
                let at = i * tile.stride + j;
                let inner = delta.mul_add(V::load(z.add(j)), V::load(e.add(at)));
                let product = inner.mul(V::load(f.add(at)));
                product.store(e.add(at));
                sum = sum.add(product);
            }
            *sums.add(i) = sum.sum();
        }
    }
}

/// The slope of a row term, `2av + b − t`, where `t` is another row per `v`, or null.
pub(super) struct Slopes<R> {
    pub(super) a: *const R,
    pub(super) b: *const R,
    pub(super) transformed: *const R,
    /// The stride from one `t` to the next.
    pub(super) stride: usize,
}

/// `out_i += factor_i · slope at v_i`.
///
/// # Safety
/// The processor must support `V`; `out` and `v` hold the tile, `factors` its rows, `a` and `b` its
/// columns, and `t` a row of it for each row, unless it is null.
#[inline(always)]
pub(super) unsafe fn add_slopes<V: Lanes>(
    tile: Layout,
    out: *mut V::Real,
    v: *const V::Real,
    factors: *const V::Real,
    slopes: &Slopes<V::Real>,
) {
    for i in 0..tile.rows {
        // SAFETY: inside the slices by the caller's promise.
        unsafe {
            let factor = V::splat(*factors.add(i));
            for l in (0..tile.columns).step_by(V::COUNT) {
                let at = i * tile.stride + l;
                let (a, v) = (V::load(slopes.a.add(l)), V::load(v.add(at)));
                let mut slope = a.add(a).mul_add(v, V::load(slopes.b.add(l)));
                if !slopes.transformed.is_null() {
                    slope = slope.sub(V::load(slopes.transformed.add(i * slopes.stride + l)));
                }
                factor.mul_add(slope, V::load(out.add(at))).store(out.add(at));
            }
        }
    }
}

/// `out_m += Σ_i weights_i f_im`.
///
/// # Safety
/// The processor must support `V`; `f` holds the tile, `weights` its rows, `out` its columns.
#[inline(always)]
pub(super) unsafe fn weighted_columns<V: Lanes>(
    tile: Layout,
    f: *const V::Real,
    weights: *const V::Real,
    out: *mut V::Real,
) {
    for j in (0..tile.columns).step_by(V::COUNT) {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let mut sum = V::splat(V::Real::ZERO);
            for i in 0..tile.rows {
                sum = V::splat(*weights.add(i)).mul_add(V::load(f.add(i * tile.stride + j)), sum);
            }
            V::load(out.add(j)).add(sum).store(out.add(j));
        }
    }
}

/// `out = x · scale + shift` for rows of whole vectors; returns whether every `out` is finite.
///
/// # Safety
/// The processor must support `V`; `x` and `out` hold the rows (`stride` apart in `x`, contiguous in
/// `out`), `shift` one row.
#[inline(always)]
pub(super) unsafe fn affine<V: Lanes>(
    tile: Layout,
    x: *const V::Real,
    scale: V::Real,
    shift: *const V::Real,
    out: *mut V::Real,
) -> bool {
    // SAFETY: inside the slices by the caller's promise.
    unsafe {
        let zero = V::splat(V::Real::ZERO);
        // Four rows at a time, each with its own probe: a single probe would be one long dependency chain.
        let (scale, mut probe) = (V::splat(scale), [zero; 4]);
        for first in (0..tile.rows).step_by(4) {
            for l in (0..tile.columns).step_by(V::COUNT) {
                let shift = V::load(shift.add(l));
                for (k, probe) in probe.iter_mut().enumerate() {
                    let i = (first + k).min(tile.rows - 1);
                    let v = V::load(x.add(i * tile.stride + l)).mul_add(scale, shift);
                    v.store(out.add(i * tile.columns + l));
                    // 0 · x is NaN for an infinity or a NaN, and 0 for everything else.
                    *probe = v.mul_add(zero, *probe);
                }
            }
        }
        probe.into_iter().all(|p| p.sum() == V::Real::ZERO)
    }
}

/// `out_i = factor_i · x_i`, row by row.
///
/// # Safety
/// The processor must support `V`; `x` holds the tile, `factors` its rows, `out` its rows one after
/// the other.
#[inline(always)]
pub(super) unsafe fn scale_rows<V: Lanes>(
    tile: Layout,
    x: *const V::Real,
    factors: *const V::Real,
    out: *mut V::Real,
) {
    for i in 0..tile.rows {
        // SAFETY: inside the slices by the caller's promise.
        unsafe {
            let factor = V::splat(*factors.add(i));
            for l in (0..tile.columns).step_by(V::COUNT) {
                let v = V::load(x.add(i * tile.stride + l));
                v.mul(factor).store(out.add(i * tile.columns + l));
            }
        }
    }
}

/// `x ← scale · x`.
///
/// # Safety
/// The processor must support `V`; `x` holds the tile.
#[inline(always)]
pub(super) unsafe fn scale_all<V: Lanes>(tile: Layout, x: *mut V::Real, scale: V::Real) {
    for i in 0..tile.rows {
        for l in (0..tile.columns).step_by(V::COUNT) {
            // SAFETY: inside the slice by the caller's promise.
            unsafe {
                let at = x.add(i * tile.stride + l);
                V::load(at).mul(V::splat(scale)).store(at);
            }
        }
    }
}

/// `out_i = Σ_l x_il y_il`; the rows of `y` lie one after the other.
///
/// # Safety
/// The processor must support `V`; `x` and `y` hold the rows of the tile, `out` one number per row.
#[inline(always)]
pub(super) unsafe fn row_products<V: Lanes>(
    tile: Layout,
    x: *const V::Real,
    y: *const V::Real,
    out: *mut V::Real,
) {
    for i in 0..tile.rows {
        // SAFETY: inside the slices by the caller's promise.
        unsafe {
            let mut sum = V::splat(V::Real::ZERO);
            for l in (0..tile.columns).step_by(V::COUNT) {
                let x = V::load(x.add(i * tile.stride + l));
                sum = x.mul_add(V::load(y.add(i * tile.columns + l)), sum);
            }
            *out.add(i) = sum.sum();
        }
    }
}

/// `2^x` of every number; the length is a multiple of the vector length.
///
/// # Safety
/// The processor must support `V`; `x` holds `count` numbers.
#[inline(always)]
pub(super) unsafe fn exp2_all<V: Lanes>(count: usize, x: *mut V::Real) {
    for l in (0..count).step_by(V::COUNT) {
        // SAFETY: inside the slice by the caller's promise.
        unsafe { exp2_shifted(V::load(x.add(l)), V::splat(V::Real::ZERO)).store(x.add(l)) };
    }
}
