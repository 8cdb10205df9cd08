//! The fallback in plain Rust: arrays of numbers that the compiler may or may not vectorise.

use super::lanes::Lanes;

#[derive(Clone, Copy)]
pub(super) struct Portable<T>([T; 4]);

macro_rules! portable {
    ($real:ty, $bits:ty, $int:ty, $bias:expr, $mantissa:expr, $limit:expr) => {
        impl Lanes for Portable<$real> {
            type Real = $real;
            const COUNT: usize = 4;
            const TILE_ROWS: usize = 4;

            #[inline(always)]
            unsafe fn splat(x: $real) -> Self {
                Self([x; 4])
            }
            #[inline(always)]
            unsafe fn load(p: *const $real) -> Self {
                // SAFETY: the caller has four numbers there; unaligned reads are allowed.
                Self(unsafe { p.cast::<[$real; 4]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $real) {
                // SAFETY: the caller owns four numbers there; unaligned writes are allowed.
                unsafe { p.cast::<[$real; 4]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn add(self, o: Self) -> Self {
                Self(std::array::from_fn(|i| self.0[i] + o.0[i]))
            }
            #[inline(always)]
            unsafe fn sub(self, o: Self) -> Self {
                Self(std::array::from_fn(|i| self.0[i] - o.0[i]))
            }
            #[inline(always)]
            unsafe fn mul(self, o: Self) -> Self {
                Self(std::array::from_fn(|i| self.0[i] * o.0[i]))
            }
            #[inline(always)]
            unsafe fn div(self, o: Self) -> Self {
                Self(std::array::from_fn(|i| self.0[i] / o.0[i]))
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // Two roundings: without hardware support a fused product is a slow library call.
                Self(std::array::from_fn(|i| self.0[i] * b.0[i] + c.0[i]))
            }
            #[inline(always)]
            unsafe fn max(self, o: Self) -> Self {
                Self(std::array::from_fn(|i| if self.0[i] > o.0[i] { self.0[i] } else { o.0[i] }))
            }
            #[inline(always)]
            unsafe fn round(self) -> Self {
                Self(std::array::from_fn(|i| self.0[i].round_ties_even()))
            }
            #[inline(always)]
            unsafe fn times_power_of_two(self, n: Self) -> Self {
                // In two steps, each within the exponents of normal numbers.
                Self(std::array::from_fn(|i| {
                    let n = n.0[i].clamp(-$limit, $limit) as $int;
                    let half = n >> 1;
                    let power = |n: $int| <$real>::from_bits(((n + $bias) as $bits) << $mantissa);
                    self.0[i] * power(half) * power(n - half)
                }))
            }
            #[inline(always)]
            unsafe fn equals(self, o: Self) -> u32 {
                (0..4).fold(0, |bits, i| bits | u32::from(self.0[i] == o.0[i]) << i)
            }
            #[inline(always)]
            unsafe fn below(self, o: Self) -> Self {
                let lower = |i: usize| if self.0[i] < o.0[i] { self.0[i] } else { <$real>::MIN };
                Self(std::array::from_fn(lower))
            }
            #[inline(always)]
            unsafe fn zip(self, o: Self) -> (Self, Self) {
                let ([a, b, c, d], [e, f, g, h]) = (self.0, o.0);
                (Self([a, e, b, f]), Self([c, g, d, h]))
            }
            #[inline(always)]
            unsafe fn sum(self) -> $real {
                (self.0[0] + self.0[1]) + (self.0[2] + self.0[3])
            }
            #[inline(always)]
            unsafe fn largest(self) -> $real {
                self.0[0].max(self.0[1]).max(self.0[2].max(self.0[3]))
            }
        }
    };
}

portable!(f32, u32, i32, 127, 23, 250.0);
portable!(f64, u64, i64, 1023, 52, 2040.0);
