//! AVX-512 and AVX2 with FMA.
//!
//! Every function is inlined into an entry point that was compiled for its level and is called only
//! after the processor was asked (`mod.rs`): that is what makes the intrinsics sound.

use super::lanes::Lanes;
use std::arch::x86_64::*;

/// The methods that are one intrinsic each.
macro_rules! intrinsics {
    ($real:ty, lanes: $count:expr, tile_rows: $rows:expr, splat: $splat:ident, load: $load:ident,
     store: $store:ident, add: $add:ident, sub: $sub:ident, mul: $mul:ident, div: $div:ident,
     fma: $fma:ident, max: $max:ident) => {
        type Real = $real;
        const COUNT: usize = $count;
        const TILE_ROWS: usize = $rows;

        #[inline(always)]
        fn fetch(line: *const u8) {
            // SAFETY: nothing is read, whatever the address; every processor of this architecture
            // has the instruction.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) }
        }
        #[inline(always)]
        unsafe fn splat(x: $real) -> Self {
            // SAFETY: the level is supported, as for every method of this trait.
            Self(unsafe { $splat(x) })
        }
        #[inline(always)]
        unsafe fn load(p: *const $real) -> Self {
            // SAFETY: the level is supported and the caller has a whole vector at `p`.
            Self(unsafe { $load(p) })
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut $real) {
            // SAFETY: the level is supported and the caller owns a whole vector at `p`.
            unsafe { $store(p, self.0) }
        }
        #[inline(always)]
        unsafe fn add(self, o: Self) -> Self {
            // SAFETY: the level is supported.
            Self(unsafe { $add(self.0, o.0) })
        }
        #[inline(always)]
        unsafe fn sub(self, o: Self) -> Self {
            // SAFETY: the level is supported.
            Self(unsafe { $sub(self.0, o.0) })
        }
        #[inline(always)]
        unsafe fn mul(self, o: Self) -> Self {
            // SAFETY: the level is supported.
            Self(unsafe { $mul(self.0, o.0) })
        }
        #[inline(always)]
        unsafe fn div(self, o: Self) -> Self {
            // SAFETY: the level is supported.
            Self(unsafe { $div(self.0, o.0) })
        }
        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: the level is supported.
            Self(unsafe { $fma(self.0, b.0, c.0) })
        }
        #[inline(always)]
        unsafe fn max(self, o: Self) -> Self {
            // SAFETY: the level is supported.
            Self(unsafe { $max(self.0, o.0) })
        }
    };
}

#[derive(Clone, Copy)]
pub(super) struct Avx512F32(__m512);

impl Lanes for Avx512F32 {
    intrinsics!(
        f32,
        lanes: 16,
        tile_rows: 12,
        splat: _mm512_set1_ps,
        load: _mm512_loadu_ps,
        store: _mm512_storeu_ps,
        add: _mm512_add_ps,
        sub: _mm512_sub_ps,
        mul: _mm512_mul_ps,
        div: _mm512_div_ps,
        fma: _mm512_fmadd_ps,
        max: _mm512_max_ps
    );
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the level is supported.
        Self(unsafe { _mm512_roundscale_ps::<0>(self.0) })
    }
    #[inline(always)]
    unsafe fn times_power_of_two(self, n: Self) -> Self {
        // SAFETY: the level is supported.
        Self(unsafe { _mm512_scalef_ps(self.0, n.0) })
    }
    #[inline(always)]
    unsafe fn equals(self, o: Self) -> u32 {
        // SAFETY: the level is supported.
        unsafe { u32::from(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, o.0)) }
    }
    #[inline(always)]
    unsafe fn below(self, o: Self) -> Self {
        // SAFETY: the level is supported.
        unsafe {
            let lower = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, o.0);
            Self(_mm512_mask_blend_ps(lower, _mm512_set1_ps(f32::MIN), self.0))
        }
    }
    #[inline(always)]
    unsafe fn zip(self, o: Self) -> (Self, Self) {
        // SAFETY: the level is supported.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
            let pick = |which| Self(_mm512_permutex2var_ps(self.0, which, o.0));
            (pick(low), pick(high))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the level is supported.
        unsafe { _mm512_reduce_add_ps(self.0) }
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the level is supported.
        unsafe { _mm512_reduce_max_ps(self.0) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Avx512F64(__m512d);

impl Lanes for Avx512F64 {
    intrinsics!(
        f64,
        lanes: 8,
        tile_rows: 12,
        splat: _mm512_set1_pd,
        load: _mm512_loadu_pd,
        store: _mm512_storeu_pd,
        add: _mm512_add_pd,
        sub: _mm512_sub_pd,
        mul: _mm512_mul_pd,
        div: _mm512_div_pd,
        fma: _mm512_fmadd_pd,
        max: _mm512_max_pd
    );
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the level is supported.
        Self(unsafe { _mm512_roundscale_pd::<0>(self.0) })
    }
    #[inline(always)]
    unsafe fn times_power_of_two(self, n: Self) -> Self {
        // SAFETY: the level is supported.
        Self(unsafe { _mm512_scalef_pd(self.0, n.0) })
    }
    #[inline(always)]
    unsafe fn equals(self, o: Self) -> u32 {
        // SAFETY: the level is supported.
        unsafe { u32::from(_mm512_cmp_pd_mask::<_CMP_EQ_OQ>(self.0, o.0)) }
    }
    #[inline(always)]
    unsafe fn below(self, o: Self) -> Self {
        // SAFETY: the level is supported.
        unsafe {
            let lower = _mm512_cmp_pd_mask::<_CMP_LT_OQ>(self.0, o.0);
            Self(_mm512_mask_blend_pd(lower, _mm512_set1_pd(f64::MIN), self.0))
        }
    }
    #[inline(always)]
    unsafe fn zip(self, o: Self) -> (Self, Self) {
        // SAFETY: the level is supported.
        unsafe {
            let low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
            let high = _mm512_add_epi64(low, _mm512_set1_epi64(4));
            let pick = |which| Self(_mm512_permutex2var_pd(self.0, which, o.0));
            (pick(low), pick(high))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f64 {
        // SAFETY: the level is supported.
        unsafe { _mm512_reduce_add_pd(self.0) }
    }
    #[inline(always)]
    unsafe fn largest(self) -> f64 {
        // SAFETY: the level is supported.
        unsafe { _mm512_reduce_max_pd(self.0) }
    }
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

#[derive(Clone, Copy)]
pub(super) struct Avx2F32(__m256);

impl Lanes for Avx2F32 {
    intrinsics!(
        f32,
        lanes: 8,
        tile_rows: 6,
        splat: _mm256_set1_ps,
        load: _mm256_loadu_ps,
        store: _mm256_storeu_ps,
        add: _mm256_add_ps,
        sub: _mm256_sub_ps,
        mul: _mm256_mul_ps,
        div: _mm256_div_ps,
        fma: _mm256_fmadd_ps,
        max: _mm256_max_ps
    );
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the level is supported.
        Self(unsafe { _mm256_round_ps::<NEAREST>(self.0) })
    }
    #[inline(always)]
    unsafe fn times_power_of_two(self, n: Self) -> Self {
        // SAFETY: the level is supported. In two steps, each within the exponents of normal numbers.
        unsafe {
            let limit = _mm256_set1_ps(250.0);
            let n =
                _mm256_max_ps(_mm256_sub_ps(_mm256_setzero_ps(), limit), _mm256_min_ps(n.0, limit));
            let n = _mm256_cvtps_epi32(n);
            let half = _mm256_srai_epi32::<1>(n);
            let bias = _mm256_set1_epi32(127);
            let power = |n| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, bias)));
            let first = _mm256_mul_ps(self.0, power(half));
            Self(_mm256_mul_ps(first, power(_mm256_sub_epi32(n, half))))
        }
    }
    #[inline(always)]
    unsafe fn equals(self, o: Self) -> u32 {
        // SAFETY: the level is supported.
        unsafe {
            let equal = _mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, o.0);
            _mm256_movemask_ps(equal).cast_unsigned()
        }
    }
    #[inline(always)]
    unsafe fn below(self, o: Self) -> Self {
        // SAFETY: the level is supported.
        unsafe {
            let lower = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, o.0);
            Self(_mm256_blendv_ps(_mm256_set1_ps(f32::MIN), self.0, lower))
        }
    }
    #[inline(always)]
    unsafe fn zip(self, o: Self) -> (Self, Self) {
        // SAFETY: the level is supported.
        unsafe {
            // Within halves of the vectors first.
            let (even, odd) = (_mm256_unpacklo_ps(self.0, o.0), _mm256_unpackhi_ps(self.0, o.0));
            let low = _mm256_permute2f128_ps::<0x20>(even, odd);
            (Self(low), Self(_mm256_permute2f128_ps::<0x31>(even, odd)))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let mut lanes = [0.0; 8];
        // SAFETY: the level is supported and `lanes` is a whole vector.
        unsafe { self.store(lanes.as_mut_ptr()) };
        let [a, b, c, d, e, f, g, h] = lanes;
        ((a + b) + (c + d)) + ((e + f) + (g + h))
    }
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        let mut lanes = [0.0; 8];
        // SAFETY: the level is supported and `lanes` is a whole vector.
        unsafe { self.store(lanes.as_mut_ptr()) };
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Avx2F64(__m256d);

impl Lanes for Avx2F64 {
    intrinsics!(
        f64,
        lanes: 4,
        tile_rows: 6,
        splat: _mm256_set1_pd,
        load: _mm256_loadu_pd,
        store: _mm256_storeu_pd,
        add: _mm256_add_pd,
        sub: _mm256_sub_pd,
        mul: _mm256_mul_pd,
        div: _mm256_div_pd,
        fma: _mm256_fmadd_pd,
        max: _mm256_max_pd
    );
    #[inline(always)]
    unsafe fn round(self) -> Self {
        // SAFETY: the level is supported.
        Self(unsafe { _mm256_round_pd::<NEAREST>(self.0) })
    }
    #[inline(always)]
    unsafe fn times_power_of_two(self, n: Self) -> Self {
        // SAFETY: the level is supported. In two steps, each within the exponents of normal numbers.
        unsafe {
            let limit = _mm256_set1_pd(2040.0);
            let n =
                _mm256_max_pd(_mm256_sub_pd(_mm256_setzero_pd(), limit), _mm256_min_pd(n.0, limit));
            let n = _mm256_cvtpd_epi32(n);
            let half = _mm_srai_epi32::<1>(n);
            let bias = _mm256_set1_epi64x(1023);
            let power = |n| {
                let wide = _mm256_add_epi64(_mm256_cvtepi32_epi64(n), bias);
                _mm256_castsi256_pd(_mm256_slli_epi64::<52>(wide))
            };
            let first = _mm256_mul_pd(self.0, power(half));
            Self(_mm256_mul_pd(first, power(_mm_sub_epi32(n, half))))
        }
    }
    #[inline(always)]
    unsafe fn equals(self, o: Self) -> u32 {
        // SAFETY: the level is supported.
        unsafe {
            let equal = _mm256_cmp_pd::<_CMP_EQ_OQ>(self.0, o.0);
            _mm256_movemask_pd(equal).cast_unsigned()
        }
    }
    #[inline(always)]
    unsafe fn below(self, o: Self) -> Self {
        // SAFETY: the level is supported.
        unsafe {
            let lower = _mm256_cmp_pd::<_CMP_LT_OQ>(self.0, o.0);
            Self(_mm256_blendv_pd(_mm256_set1_pd(f64::MIN), self.0, lower))
        }
    }
    #[inline(always)]
    unsafe fn zip(self, o: Self) -> (Self, Self) {
        // SAFETY: the level is supported.
        unsafe {
            // Within halves of the vectors first.
            let (even, odd) = (_mm256_unpacklo_pd(self.0, o.0), _mm256_unpackhi_pd(self.0, o.0));
            let low = _mm256_permute2f128_pd::<0x20>(even, odd);
            (Self(low), Self(_mm256_permute2f128_pd::<0x31>(even, odd)))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f64 {
        let mut lanes = [0.0; 4];
        // SAFETY: the level is supported and `lanes` is a whole vector.
        unsafe { self.store(lanes.as_mut_ptr()) };
        (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
    }
    #[inline(always)]
    unsafe fn largest(self) -> f64 {
        let mut lanes = [0.0; 4];
        // SAFETY: the level is supported and `lanes` is a whole vector.
        unsafe { self.store(lanes.as_mut_ptr()) };
        lanes.into_iter().fold(f64::NEG_INFINITY, f64::max)
    }
}
