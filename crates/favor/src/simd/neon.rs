//! NEON on 64-bit Arm, where it is always present.

use super::lanes::Lanes;
use std::arch::aarch64::*;

macro_rules! neon {
    ($name:ident, $real:ty, $vector:ty, $count:expr, $splat:ident, $load:ident, $store:ident,
     $add:ident, $sub:ident, $mul:ident, $div:ident, $fma:ident, $max:ident, $min:ident, $round:ident,
     $sum:ident, $largest:ident, $zip_low:ident, $zip_high:ident, $less:ident,
     $select:ident, $limit:expr, $power:expr) => {
        #[derive(Clone, Copy)]
        pub(super) struct $name($vector);

        // SAFETY (all methods): NEON belongs to every 64-bit Arm processor; pointers are the
        // caller's promise of a whole vector.
        impl Lanes for $name {
            type Real = $real;
            const COUNT: usize = $count;
            const TILE_ROWS: usize = 8;

            #[inline(always)]
            unsafe fn splat(x: $real) -> Self {
                // SAFETY: see above.
                Self(unsafe { $splat(x) })
            }
            #[inline(always)]
            unsafe fn load(p: *const $real) -> Self {
                // SAFETY: see above.
                Self(unsafe { $load(p) })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $real) {
                // SAFETY: see above.
                unsafe { $store(p, self.0) }
            }
            #[inline(always)]
            unsafe fn add(self, o: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $add(self.0, o.0) })
            }
            #[inline(always)]
            unsafe fn sub(self, o: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $sub(self.0, o.0) })
            }
            #[inline(always)]
            unsafe fn mul(self, o: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $mul(self.0, o.0) })
            }
            #[inline(always)]
            unsafe fn div(self, o: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $div(self.0, o.0) })
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $fma(c.0, self.0, b.0) })
            }
            #[inline(always)]
            unsafe fn max(self, o: Self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $max(self.0, o.0) })
            }
            #[inline(always)]
            unsafe fn round(self) -> Self {
                // SAFETY: see above.
                Self(unsafe { $round(self.0) })
            }
            #[inline(always)]
            unsafe fn times_power_of_two(self, n: Self) -> Self {
                // SAFETY: see above. In two steps, each within the exponents of normal numbers.
                unsafe {
                    let n = $max($splat(-$limit), $min(n.0, $splat($limit)));
                    let half = $round($mul(n, $splat(0.5)));
                    let first = $mul(self.0, $power(half));
                    Self($mul(first, $power($sub(n, half))))
                }
            }
            #[inline(always)]
            unsafe fn equals(self, o: Self) -> u32 {
                let (mut own, mut other) = ([0.0; $count], [0.0; $count]);
                // SAFETY: see above; the arrays are whole vectors.
                unsafe {
                    self.store(own.as_mut_ptr());
                    o.store(other.as_mut_ptr());
                }
                (0..$count).fold(0, |bits, i| bits | u32::from(own[i] == other[i]) << i)
            }
            #[inline(always)]
            unsafe fn below(self, o: Self) -> Self {
                // SAFETY: see above.
                unsafe { Self($select($less(self.0, o.0), self.0, $splat(<$real>::MIN))) }
            }
            #[inline(always)]
            unsafe fn zip(self, o: Self) -> (Self, Self) {
                // SAFETY: see above.
                unsafe { (Self($zip_low(self.0, o.0)), Self($zip_high(self.0, o.0))) }
            }
            #[inline(always)]
            unsafe fn sum(self) -> $real {
                // SAFETY: see above.
                unsafe { $sum(self.0) }
            }
            #[inline(always)]
            unsafe fn largest(self) -> $real {
                // SAFETY: see above.
                unsafe { $largest(self.0) }
            }
        }
    };
}

/// `2^n` for integers within the exponents of normal numbers.
///
/// # Safety
/// None beyond NEON itself.
#[inline(always)]
unsafe fn power_f32(n: float32x4_t) -> float32x4_t {
    // SAFETY: NEON is always present.
    unsafe {
        let biased = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
        vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased))
    }
}

/// `2^n` for integers within the exponents of normal numbers.
///
/// # Safety
/// None beyond NEON itself.
#[inline(always)]
unsafe fn power_f64(n: float64x2_t) -> float64x2_t {
    // SAFETY: NEON is always present.
    unsafe {
        let biased = vaddq_s64(vcvtq_s64_f64(n), vdupq_n_s64(1023));
        vreinterpretq_f64_s64(vshlq_n_s64::<52>(biased))
    }
}

neon!(
    NeonF32,
    f32,
    float32x4_t,
    4,
    vdupq_n_f32,
    vld1q_f32,
    vst1q_f32,
    vaddq_f32,
    vsubq_f32,
    vmulq_f32,
    vdivq_f32,
    vfmaq_f32,
    vmaxq_f32,
    vminq_f32,
    vrndnq_f32,
    vaddvq_f32,
    vmaxvq_f32,
    vzip1q_f32,
    vzip2q_f32,
    vcltq_f32,
    vbslq_f32,
    250.0,
    power_f32
);
neon!(
    NeonF64,
    f64,
    float64x2_t,
    2,
    vdupq_n_f64,
    vld1q_f64,
    vst1q_f64,
    vaddq_f64,
    vsubq_f64,
    vmulq_f64,
    vdivq_f64,
    vfmaq_f64,
    vmaxq_f64,
    vminq_f64,
    vrndnq_f64,
    vaddvq_f64,
    vmaxvq_f64,
    vzip1q_f64,
    vzip2q_f64,
    vcltq_f64,
    vbslq_f64,
    2040.0,
    power_f64
);
