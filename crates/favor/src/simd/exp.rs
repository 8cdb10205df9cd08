//! `2^x` of a vector, with a power of two factored out exactly.
//!
//! The engine uses base-two logarithms: the factor `log₂ e` is in the weights of the projections,
//! so an exponential is a rounding, a polynomial and a change of exponent.

use super::lanes::{Constants, Lanes};

/// `2^{x − shift}` for integers `shift`: accurate to 2 units in the last place wherever the result
/// is representable, gradual underflow included. Because the shift enters as an integer exponent,
/// it does not touch the digits of the result.
///
/// # Safety
/// The processor must support `V`.
#[inline(always)]
pub(super) unsafe fn exp2_shifted<V: Lanes>(x: V, shift: V) -> V {
    type C<V> = <V as Lanes>::Real;
    // SAFETY: the caller vouches for the processor level.
    unsafe {
        let n = x.round();
        let r = x.sub(n);
        let coefficients = C::<V>::EXP2;
        let mut q = V::splat(coefficients[coefficients.len() - 1]);
        for c in coefficients.iter().rev().skip(1) {
            q = q.mul_add(r, V::splat(*c));
        }
        q.mul_add(r, V::splat(C::<V>::ONE)).times_power_of_two(n.sub(shift))
    }
}
