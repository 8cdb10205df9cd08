//! `cos(2πx)` of a vector: angles are in turns, so that range reduction is a rounding.

use super::lanes::{Constants, Lanes};

/// `factor · cos(2πx)`, accurate to 2 units in the last place of `factor` wherever `x` itself is exact.
///
/// # Safety
/// The processor must support `V`.
#[inline(always)]
unsafe fn cosine<V: Lanes>(x: V, factor: V) -> V {
    // SAFETY: the caller vouches for the processor level.
    unsafe {
        let r = x.sub(x.round());
        let magnitude = r.max(V::splat(V::Real::ZERO).sub(r));
        // cos(2πr) = sin(2πu) with |u| ≤ ¼, where an odd polynomial cancels nothing.
        let u = V::splat(V::Real::QUARTER).sub(magnitude);
        let square = u.mul(u);
        let coefficients = V::Real::SINE;
        let mut q = V::splat(coefficients[coefficients.len() - 1]);
        for c in coefficients.iter().rev().skip(1) {
            q = q.mul_add(square, V::splat(*c));
        }
        q.mul(u).mul(factor)
    }
}

/// `factor · cos(2πx)` of every number; the count is a multiple of the vector length.
///
/// # Safety
/// The processor must support `V`; `x` holds `count` numbers.
#[inline(always)]
pub(super) unsafe fn cosines<V: Lanes>(count: usize, factor: V::Real, x: *mut V::Real) {
    for l in (0..count).step_by(V::COUNT) {
        // SAFETY: inside the slice by the caller's promise.
        unsafe { cosine(V::load(x.add(l)), V::splat(factor)).store(x.add(l)) };
    }
}
