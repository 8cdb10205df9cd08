//! What the gradient of learned maps needs besides products and exponentials.

use super::features::Layout;
use super::lanes::{Constants, Lanes};

/// `out_i = Σ_j x_ij`.
///
/// # Safety
/// The processor must support `V`; `x` holds the tile, `out` one number per row.
#[inline(always)]
pub(super) unsafe fn row_sums<V: Lanes>(tile: Layout, x: *const V::Real, out: *mut V::Real) {
    for i in 0..tile.rows {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let mut sum = V::splat(V::Real::ZERO);
            for j in (0..tile.columns).step_by(V::COUNT) {
                sum = sum.add(V::load(x.add(i * tile.stride + j)));
            }
            *out.add(i) = sum.sum();
        }
    }
}

/// `K_ij ← rate_i − factor_i a_ij / max(K_ij, floor)`.
///
/// # Safety
/// The processor must support `V`; `k` and `a` hold the tile, `rates` and `factors` its rows.
#[inline(always)]
pub(super) unsafe fn residuals<V: Lanes>(
    tile: Layout,
    k: *mut V::Real,
    a: *const V::Real,
    rates: *const V::Real,
    factors: *const V::Real,
    floor: V::Real,
) {
    for i in 0..tile.rows {
        // SAFETY: inside the tile by the caller's promise.
        unsafe {
            let floor = V::splat(floor);
            let (rate, factor) = (V::splat(*rates.add(i)), V::splat(*factors.add(i)));
            for j in (0..tile.columns).step_by(V::COUNT) {
                let at = i * tile.stride + j;
                let share = V::load(a.add(at)).mul(factor).div(V::load(k.add(at)).max(floor));
                rate.sub(share).store(k.add(at));
            }
        }
    }
}
