//! `e^x` of a vector, with a power of two taken out exactly.

use super::lanes::{Constants, Lanes};

/// `e^x · 2^{−shift}` for integers `shift`: accurate to 2 units in the last place wherever the
/// result is representable, gradual underflow included. Because the shift enters as an integer
/// exponent, it does not touch the digits of the result.
///
/// # Safety
/// The processor must support `V`.
#[inline(always)]
pub(super) unsafe fn exp_shifted<V: Lanes>(x: V, shift: V) -> V {
    type C<V> = <V as Lanes>::Real;
    // SAFETY: the caller vouches for the processor level.
    unsafe {
        let n = x.mul(V::splat(C::<V>::LOG2_E)).round();
        let zero = V::splat(C::<V>::ZERO);
        let minus = zero.sub(n);
        let r = minus.mul_add(V::splat(C::<V>::LN2_HIGH), x);
        let r = minus.mul_add(V::splat(C::<V>::LN2_LOW), r);
        let coefficients = C::<V>::EXP;
        let mut q = V::splat(coefficients[coefficients.len() - 1]);
        for c in coefficients.iter().rev().skip(1) {
            q = q.mul_add(r, V::splat(*c));
        }
        let p = r.mul(r).mul_add(q, r).add(V::splat(C::<V>::ONE));
        p.times_power_of_two(n.sub(shift))
    }
}
