//! Vector kernels, chosen once for the processor in use. The only module with `unsafe` in it.
//!
//! Outside, kernels are methods of [`Kernels`] on slices; each checks that its slices are long
//! enough, so no caller can make it read or write out of bounds.

#![allow(unsafe_code)]

mod aligned;
mod cos;
mod exp;
mod features;
mod gemm;
mod lanes;
mod learning;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pairs;
mod portable;
mod prefetch;
#[cfg(test)]
mod tests;
mod transpose;
mod upper;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use aligned::Aligned;
pub(crate) use features::Layout;
use features::Slopes;
pub(crate) use gemm::{Gather, Gemm, GemmTransposed};
pub(crate) use lanes::Constants;
pub(crate) use pairs::{PairGradientRows, PairRows};
pub(crate) use prefetch::Prefetch;
pub(crate) use transpose::Transpose;
pub(crate) use upper::clear_upper_halves;

type GatherKernel<R> = unsafe fn(&Gather, (&[usize], &[usize]), *const R, *const R, *mut R);
type PairGradientsKernel<R> =
    unsafe fn(Layout, (*mut R, *mut R, *mut R), &mut PairGradientRows<'_, R>);
type PlacesKernel<R> = unsafe fn((usize, &[usize]), *const R, *const R, (*mut R, usize));

/// The kernels of one processor level for numbers of one format.
pub(crate) struct Kernels<R: 'static> {
    /// The name of the level.
    pub(crate) name: &'static str,
    /// Numbers in a vector; widths of tiles are multiples of it.
    pub(crate) lanes: usize,
    /// Numbers in a shorter vector, for products of few columns.
    pub(crate) narrow: usize,
    gemm: unsafe fn(&Gemm, *const R, *const R, *mut R),
    narrow_gemm: unsafe fn(&Gemm, *const R, *const R, *mut R),
    gather: GatherKernel<R>,
    narrow_gather: GatherKernel<R>,
    add_places: PlacesKernel<R>,
    largest_columns: unsafe fn(Layout, *const R, *const R, *mut R, (*mut usize, usize)),
    columns_over: unsafe fn(Layout, *const R, *const R, *const R, *mut u32),
    inner: unsafe fn(&GemmTransposed, *const R, *const R, *mut R),
    transpose: unsafe fn(&Transpose, *const R, *mut R),
    narrow_transpose: unsafe fn(&Transpose, *const R, *mut R),
    row_terms: unsafe fn(Layout, *const R, *const R, *const R, *mut R),
    raise_exponents: unsafe fn(Layout, *const R, *const R, *const R, *mut R, *mut R) -> bool,
    key_features: unsafe fn(Layout, *mut R, *const R, *const R, *const R, *mut R),
    query_features: unsafe fn(Layout, *mut R, *const R, *const R, *const R, *mut R, *mut R),
    softmax_rows: unsafe fn(Layout, *mut R, *const R, *mut R, *mut R, *mut R),
    correct: unsafe fn(Layout, *mut R, *const R, &mut PairRows<'_, R>),
    pair_gradients: PairGradientsKernel<R>,
    log_gradient: unsafe fn(Layout, *mut R, *const R, *const R, *const R, *mut R),
    add_slopes: unsafe fn(Layout, *mut R, *const R, *const R, &Slopes<R>),
    weighted_columns: unsafe fn(Layout, *const R, *const R, *mut R),
    affine: unsafe fn(Layout, *const R, R, *const R, *mut R) -> bool,
    scale_rows: unsafe fn(Layout, *const R, *const R, *mut R),
    row_products: unsafe fn(Layout, *const R, *const R, *mut R),
    row_sums: unsafe fn(Layout, *const R, *mut R),
    residuals: unsafe fn(Layout, *mut R, *const R, *const R, *const R, R),
    scale_all: unsafe fn(Layout, *mut R, R),
    exp2_all: unsafe fn(usize, *mut R),
    cosines: unsafe fn(usize, R, *mut R),
}

/// A number format that the engine computes in.
pub(crate) trait Real: Constants {
    /// The best kernels that this processor supports.
    fn kernels() -> &'static Kernels<Self>;
    /// The kernels of every level that this processor supports, best first.
    fn all_kernels() -> Vec<&'static Kernels<Self>>;
}

/// Entry points of one level: each is compiled for the level's instructions, and the generic kernel
/// is inlined into it.
macro_rules! level {
    ($module:ident, $name:expr, $vector:ty, $narrow:ty, $real:ty $(, #[$feature:meta])?) => {
        mod $module {
            use super::*;
            $(#[$feature])?
            unsafe fn gemm(s: &Gemm, a: *const $real, b: *const $real, c: *mut $real) {
                // SAFETY: passed on from the caller, as in all entry points.
                unsafe { super::gemm::gemm::<$vector>(s, a, b, c) }
            }
            $(#[$feature])?
            unsafe fn narrow_gemm(s: &Gemm, a: *const $real, b: *const $real, c: *mut $real) {
                // SAFETY: passed on from the caller.
                unsafe { super::gemm::gemm::<$narrow>(s, a, b, c) }
            }
            $(#[$feature])?
            unsafe fn gather(
                s: &Gather, rows: (&[usize], &[usize]), a: *const $real, b: *const $real,
                c: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { super::gemm::gather::<$vector>(s, rows, a, b, c) }
            }
            $(#[$feature])?
            unsafe fn narrow_gather(
                s: &Gather, rows: (&[usize], &[usize]), a: *const $real, b: *const $real,
                c: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { super::gemm::gather::<$narrow>(s, rows, a, b, c) }
            }
            $(#[$feature])?
            unsafe fn add_places(
                places: (usize, &[usize]), weights: *const $real, x: *const $real,
                out: (*mut $real, usize),
            ) {
                // SAFETY: passed on from the caller.
                unsafe { super::gemm::add_places::<$vector>(places, weights, x, out) }
            }
            $(#[$feature])?
            unsafe fn largest_columns(
                tile: Layout, t: *const $real, z: *const $real, scores: *mut $real,
                out: (*mut usize, usize),
            ) {
                // SAFETY: passed on from the caller.
                unsafe { features::largest_columns::<$vector>(tile, t, z, scores, out) }
            }
            $(#[$feature])?
            unsafe fn columns_over(
                tile: Layout, t: *const $real, terms: *const $real, least: *const $real,
                out: *mut u32,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { features::columns_over::<$vector>(tile, t, terms, least, out) }
            }
            $(#[$feature])?
            unsafe fn inner(s: &GemmTransposed, a: *const $real, b: *const $real, c: *mut $real) {
                // SAFETY: passed on from the caller.
                unsafe { super::gemm::inner::<$vector>(s, a, b, c) }
            }
            $(#[$feature])?
            unsafe fn transpose(s: &Transpose, x: *const $real, out: *mut $real) {
                // SAFETY: passed on from the caller.
                unsafe { super::transpose::transpose::<$vector>(s, x, out) }
            }
            $(#[$feature])?
            unsafe fn narrow_transpose(s: &Transpose, x: *const $real, out: *mut $real) {
                // SAFETY: passed on from the caller.
                unsafe { super::transpose::transpose::<$narrow>(s, x, out) }
            }
            $(#[$feature])?
            unsafe fn row_terms(
                tile: Layout, v: *const $real, a: *const $real, b: *const $real, out: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { features::row_terms::<$vector>(tile, v, a, b, out) }
            }
            $(#[$feature])?
            unsafe fn raise_exponents(
                tile: Layout, t: *const $real, terms: *const $real, constants: *const $real,
                exponents: *mut $real, shrink: *mut $real,
            ) -> bool {
                // SAFETY: passed on from the caller.
                unsafe {
                    features::raise_exponents::<$vector>(tile, t, terms, constants, exponents, shrink)
                }
            }
            $(#[$feature])?
            unsafe fn key_features(
                tile: Layout, t: *mut $real, terms: *const $real, constants: *const $real,
                exponents: *const $real, sums: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe {
                    features::key_features::<$vector>(tile, t, terms, constants, exponents, sums)
                }
            }
            $(#[$feature])?
            unsafe fn query_features(
                tile: Layout, t: *mut $real, constants: *const $real, exponents: *const $real,
                sums: *const $real, denominators: *mut $real, row_exponents: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe {
                    features::query_features::<$vector>(
                        tile, t, constants, exponents, sums, denominators, row_exponents,
                    )
                }
            }
            $(#[$feature])?
            unsafe fn softmax_rows(
                tile: Layout,
                t: *mut $real,
                constants: *const $real,
                exponents: *mut $real,
                denominators: *mut $real,
                shrink: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe {
                    features::softmax_rows::<$vector>(
                        tile,
                        t,
                        constants,
                        exponents,
                        denominators,
                        shrink,
                    )
                }
            }
            $(#[$feature])?
            unsafe fn correct(
                tile: Layout, w: *mut $real, h: *const $real, rows: &mut PairRows<'_, $real>,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { pairs::correct::<$vector>(tile, w, h, rows) }
            }
            $(#[$feature])?
            unsafe fn pair_gradients(
                tile: Layout, pairs: (*mut $real, *mut $real, *mut $real),
                rows: &mut PairGradientRows<'_, $real>,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { pairs::pair_gradients::<$vector>(tile, pairs, rows) }
            }
            $(#[$feature])?
            unsafe fn log_gradient(
                tile: Layout,
                e: *mut $real,
                f: *const $real,
                delta: *const $real,
                z: *const $real,
                sums: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { features::log_gradient::<$vector>(tile, e, f, delta, z, sums) }
            }
            $(#[$feature])?
            unsafe fn add_slopes(
                tile: Layout, out: *mut $real, v: *const $real, factors: *const $real,
                slopes: &Slopes<$real>,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { features::add_slopes::<$vector>(tile, out, v, factors, slopes) }
            }
            $(#[$feature])?
            unsafe fn weighted_columns(
                tile: Layout,
                f: *const $real,
                weights: *const $real,
                out: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { features::weighted_columns::<$vector>(tile, f, weights, out) }
            }
            $(#[$feature])?
            unsafe fn affine(
                tile: Layout, x: *const $real, scale: $real, shift: *const $real, out: *mut $real,
            ) -> bool {
                // SAFETY: passed on from the caller.
                unsafe { features::affine::<$vector>(tile, x, scale, shift, out) }
            }
            $(#[$feature])?
            unsafe fn scale_rows(
                tile: Layout, x: *const $real, factors: *const $real, out: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { features::scale_rows::<$vector>(tile, x, factors, out) }
            }
            $(#[$feature])?
            unsafe fn row_products(
                tile: Layout, x: *const $real, y: *const $real, out: *mut $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { features::row_products::<$vector>(tile, x, y, out) }
            }
            $(#[$feature])?
            unsafe fn row_sums(tile: Layout, x: *const $real, out: *mut $real) {
                // SAFETY: passed on from the caller.
                unsafe { learning::row_sums::<$vector>(tile, x, out) }
            }
            $(#[$feature])?
            unsafe fn residuals(
                tile: Layout, k: *mut $real, a: *const $real, rates: *const $real,
                factors: *const $real, floor: $real,
            ) {
                // SAFETY: passed on from the caller.
                unsafe { learning::residuals::<$vector>(tile, k, a, rates, factors, floor) }
            }
            $(#[$feature])?
            unsafe fn scale_all(tile: Layout, x: *mut $real, scale: $real) {
                // SAFETY: passed on from the caller.
                unsafe { features::scale_all::<$vector>(tile, x, scale) }
            }
            $(#[$feature])?
            unsafe fn exp2_all(count: usize, x: *mut $real) {
                // SAFETY: passed on from the caller.
                unsafe { features::exp2_all::<$vector>(count, x) }
            }
            $(#[$feature])?
            unsafe fn cosines(count: usize, factor: $real, x: *mut $real) {
                // SAFETY: passed on from the caller.
                unsafe { cos::cosines::<$vector>(count, factor, x) }
            }
            pub(super) static KERNELS: Kernels<$real> = Kernels {
                name: $name,
                lanes: <$vector as lanes::Lanes>::COUNT,
                narrow: <$narrow as lanes::Lanes>::COUNT,
                gemm,
                narrow_gemm,
                gather,
                narrow_gather,
                add_places,
                largest_columns,
                columns_over,
                inner,
                transpose,
                narrow_transpose,
                row_terms,
                raise_exponents,
                key_features,
                query_features,
                softmax_rows,
                correct,
                pair_gradients,
                log_gradient,
                add_slopes,
                weighted_columns,
                affine,
                scale_rows,
                row_products,
                row_sums,
                residuals,
                scale_all,
                exp2_all,
                cosines,
            };
        }
    };
}

#[cfg(target_arch = "x86_64")]
level!(avx512_f32, "AVX-512", x86::Avx512F32, x86::Avx2F32, f32, #[target_feature(enable = "avx512f,avx512dq,fma,avx2")]);
#[cfg(target_arch = "x86_64")]
level!(avx512_f64, "AVX-512", x86::Avx512F64, x86::Avx2F64, f64, #[target_feature(enable = "avx512f,avx512dq,fma,avx2")]);
#[cfg(target_arch = "x86_64")]
level!(avx2_f32, "AVX2", x86::Avx2F32, x86::Avx2F32, f32, #[target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
level!(avx2_f64, "AVX2", x86::Avx2F64, x86::Avx2F64, f64, #[target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "aarch64")]
level!(neon_f32, "NEON", neon::NeonF32, neon::NeonF32, f32);
#[cfg(target_arch = "aarch64")]
level!(neon_f64, "NEON", neon::NeonF64, neon::NeonF64, f64);
level!(portable_f32, "portable", portable::Portable<f32>, portable::Portable<f32>, f32);
level!(portable_f64, "portable", portable::Portable<f64>, portable::Portable<f64>, f64);

/// The best level, or the one requested by name if the processor has it, so that tests can try the others.
fn chosen<R>(levels: &[&'static Kernels<R>]) -> &'static Kernels<R> {
    let wanted = std::env::var("FAVOR_SIMD").unwrap_or_default();
    levels.iter().find(|level| level.name == wanted).unwrap_or(&levels[0])
}

macro_rules! real {
    ($real:ty, $avx512:ident, $avx2:ident, $neon:ident, $portable:ident) => {
        impl Real for $real {
            fn kernels() -> &'static Kernels<Self> {
                static BEST: std::sync::OnceLock<&Kernels<$real>> = std::sync::OnceLock::new();
                BEST.get_or_init(|| chosen(&Self::all_kernels()))
            }
            fn all_kernels() -> Vec<&'static Kernels<Self>> {
                let mut levels: Vec<&'static Kernels<Self>> = vec![];
                #[cfg(target_arch = "x86_64")]
                {
                    let fma = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
                    if fma
                        && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512dq")
                    {
                        levels.push(&$avx512::KERNELS);
                    }
                    if fma {
                        levels.push(&$avx2::KERNELS);
                    }
                }
                #[cfg(target_arch = "aarch64")]
                levels.push(&$neon::KERNELS);
                levels.push(&$portable::KERNELS);
                levels
            }
        }
    };
}

real!(f32, avx512_f32, avx2_f32, neon_f32, portable_f32);
real!(f64, avx512_f64, avx2_f64, neon_f64, portable_f64);

impl<R: Real> Kernels<R> {
    /// `C (+)= A B`, with whole vectors of columns, or with a single shorter one.
    pub(crate) fn gemm(&self, s: &Gemm, a: &[R], b: &[R], c: &mut [R]) {
        if s.rows == 0 || s.columns == 0 || (s.depth == 0 && s.accumulate) {
            return;
        }
        let narrow = s.columns == self.narrow;
        assert!(narrow || s.columns.is_multiple_of(self.lanes), "{} columns", s.columns);
        let panels = s.columns.div_ceil(2 * self.lanes);
        let last = s.columns - (panels - 1) * 2 * self.lanes;
        if s.depth > 0 {
            assert!(a.len() >= span(&[(s.rows, s.a.0), (s.depth, s.a.1)], 1));
            assert!(b.len() >= span(&[(panels, s.b_panel), (s.depth, s.b_row)], last));
            let whole = &[(panels - 1, s.b_panel), (s.depth, s.b_row)];
            assert!(panels == 1 || b.len() >= span(whole, 2 * self.lanes));
        }
        assert!(c.len() >= span(&[(s.rows, s.c_row)], s.columns));
        let gemm = if narrow { self.narrow_gemm } else { self.gemm };
        // SAFETY: the level was detected, and every address was checked above.
        unsafe { gemm(s, a.as_ptr(), b.as_ptr(), c.as_mut_ptr()) }
    }

    /// `C_{target n} = A_{row n} B`, with whole vectors of columns or a single shorter one. The rows of `A` and
    /// what is written of `C` are contiguous.
    pub(crate) fn gather(
        &self,
        s: &Gather,
        (rows, targets): (&[usize], &[usize]),
        a: &[R],
        b: &[R],
        c: &mut [R],
    ) {
        let (Some(last), Some(furthest)) = (rows.iter().max(), targets.iter().max()) else {
            return;
        };
        let narrow = s.columns == self.narrow;
        assert!(narrow || s.columns.is_multiple_of(self.lanes), "{} columns", s.columns);
        assert!(rows.len() == targets.len() && *last < usize::MAX);
        assert!(a.len() >= span(&[(last + 1, s.a_row)], s.depth));
        assert!(s.depth == 0 || b.len() >= span(&[(s.depth, s.columns)], s.columns));
        assert!(c.len() >= span(&[(2, *furthest)], s.columns));
        let gather = if narrow { self.narrow_gather } else { self.gather };
        // SAFETY: the level was detected, and every address was checked above.
        unsafe { gather(s, (rows, targets), a.as_ptr(), b.as_ptr(), c.as_mut_ptr()) }
    }

    /// `out += Σ_g Σ_{c < room} w_{g,c} x_{start g + c}`, rows of `x` being as long as `out`.
    pub(crate) fn add_places(
        &self,
        room: usize,
        starts: &[usize],
        weights: &[R],
        x: &[R],
        out: &mut [R],
    ) {
        let Some(last) = starts.iter().max() else { return };
        assert!(out.len().is_multiple_of(self.lanes) && room > 0);
        assert!(weights.len() >= span(&[(starts.len(), room)], room));
        assert!(
            x.len() >= span(&[(2, last.saturating_mul(out.len())), (room, out.len())], out.len())
        );
        let (weights, x, out) = (weights.as_ptr(), x.as_ptr(), (out.as_mut_ptr(), out.len()));
        // SAFETY: the level was detected, and every address was checked above.
        unsafe { (self.add_places)((room, starts), weights, x, out) }
    }

    /// The columns of the `most` largest `t_ij z_j` of each row, in descending order; of equal ones, the
    /// first comes first. `scores` is scratch memory for a row.
    pub(crate) fn largest_columns(
        &self,
        tile: Layout,
        t: &[R],
        z: &[R],
        scores: &mut [R],
        (out, most): (&mut [usize], usize),
    ) {
        self.check(tile, t.len(), &[z.len(), scores.len()], &[]);
        assert!(out.len() / most.max(1) >= tile.rows);
        let (t, z, scores) = (t.as_ptr(), z.as_ptr(), scores.as_mut_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.largest_columns)(tile, t, z, scores, (out.as_mut_ptr(), most)) }
    }

    /// Where `t_ij + term_i > least_j`: one bit per column, one number per vector of them.
    pub(crate) fn columns_over(
        &self,
        tile: Layout,
        t: &[R],
        terms: &[R],
        least: &[R],
        out: &mut [u32],
    ) {
        self.check(tile, t.len(), &[least.len()], &[terms.len()]);
        assert!(out.len() >= span(&[(tile.rows + 1, tile.columns / self.lanes)], 0));
        let (t, terms, least, out) = (t.as_ptr(), terms.as_ptr(), least.as_ptr(), out.as_mut_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.columns_over)(tile, t, terms, least, out) }
    }

    /// `C_ij = Σ_k A_ik B_jk`.
    pub(crate) fn inner(&self, s: &GemmTransposed, a: &[R], b: &[R], c: &mut [R]) {
        if s.rows == 0 || s.columns == 0 {
            return;
        }
        assert!(s.depth.is_multiple_of(self.lanes));
        assert!(a.len() >= span(&[(s.rows, s.a_row)], s.depth));
        assert!(b.len() >= span(&[(s.columns, s.b_row)], s.depth));
        assert!(c.len() >= span(&[(s.rows, s.c_row)], s.columns));
        // SAFETY: the level was detected, and every address was checked above.
        unsafe { (self.inner)(s, a.as_ptr(), b.as_ptr(), c.as_mut_ptr()) }
    }

    /// `out_lj = x_jl`, with rows of whole vectors or of a single shorter one, padded with zeros.
    pub(crate) fn transpose(&self, s: &Transpose, x: &[R], out: &mut [R]) {
        if s.columns == 0 || s.width == 0 {
            return;
        }
        let narrow = s.width == self.narrow;
        assert!(narrow || s.width.is_multiple_of(self.lanes), "{} columns", s.width);
        assert!(s.width >= s.rows && s.out_stride >= s.width);
        assert!(s.rows == 0 || x.len() >= span(&[(s.rows, s.row_stride)], s.columns));
        assert!(out.len() >= span(&[(s.columns, s.out_stride)], s.width));
        let transpose = if narrow { self.narrow_transpose } else { self.transpose };
        // SAFETY: the level was detected, and every address was checked above.
        unsafe { transpose(s, x.as_ptr(), out.as_mut_ptr()) }
    }

    /// Adds `Σ_l (a_l v_il + b_l) v_il` to `out_i`.
    pub(crate) fn row_terms(&self, tile: Layout, v: &[R], a: &[R], b: &[R], out: &mut [R]) {
        self.check(tile, v.len(), &[a.len(), b.len()], &[out.len()]);
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.row_terms)(tile, v.as_ptr(), a.as_ptr(), b.as_ptr(), out.as_mut_ptr()) }
    }

    /// Raises the exponents of the features to those of a tile of keys, whose columns are whole panels.
    pub(crate) fn raise_exponents(
        &self,
        tile: Layout,
        t: &[R],
        terms: &[R],
        constants: &[R],
        exponents: &mut [R],
        shrink: &mut [R],
    ) -> bool {
        let columns = [constants.len(), exponents.len(), shrink.len()];
        self.check(tile, t.len(), &columns, &[terms.len()]);
        assert!(tile.columns.is_multiple_of(2 * self.lanes), "{} columns", tile.columns);
        let (e, s) = (exponents.as_mut_ptr(), shrink.as_mut_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe {
            (self.raise_exponents)(tile, t.as_ptr(), terms.as_ptr(), constants.as_ptr(), e, s)
        }
    }

    /// Turns projections of keys into features and adds them up.
    pub(crate) fn key_features(
        &self,
        tile: Layout,
        t: &mut [R],
        terms: &[R],
        constants: &[R],
        exponents: &[R],
        sums: &mut [R],
    ) {
        let columns = [constants.len(), exponents.len(), sums.len()];
        self.check(tile, t.len(), &columns, &[terms.len()]);
        let (t, terms, sums) = (t.as_mut_ptr(), terms.as_ptr(), sums.as_mut_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.key_features)(tile, t, terms, constants.as_ptr(), exponents.as_ptr(), sums) }
    }

    /// Turns projections of queries into features; writes denominators and exponents of the rows.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn query_features(
        &self,
        tile: Layout,
        t: &mut [R],
        constants: &[R],
        exponents: &[R],
        sums: &[R],
        denominators: &mut [R],
        row_exponents: &mut [R],
    ) {
        let columns = [constants.len(), exponents.len(), sums.len()];
        self.check(tile, t.len(), &columns, &[denominators.len(), row_exponents.len()]);
        let (d, e) = (denominators.as_mut_ptr(), row_exponents.as_mut_ptr());
        let (c, n, z) = (constants.as_ptr(), exponents.as_ptr(), sums.as_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.query_features)(tile, t.as_mut_ptr(), c, n, z, d, e) }
    }

    /// One block of online softmax; the constants are added to the logits.
    pub(crate) fn softmax_rows(
        &self,
        tile: Layout,
        t: &mut [R],
        constants: Option<&[R]>,
        exponents: &mut [R],
        denominators: &mut [R],
        shrink: &mut [R],
    ) {
        let rows = [exponents.len(), denominators.len(), shrink.len()];
        self.check(tile, t.len(), &[constants.map_or(tile.columns, <[R]>::len)], &rows);
        let constants = constants.map_or(std::ptr::null(), <[R]>::as_ptr);
        let (e, d, s) = (exponents.as_mut_ptr(), denominators.as_mut_ptr(), shrink.as_mut_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.softmax_rows)(tile, t.as_mut_ptr(), constants, e, d, s) }
    }

    /// Logits become weights, with what is left of the estimates `h` taken off; the sums of the rows follow.
    pub(crate) fn correct(&self, tile: Layout, w: &mut [R], h: &[R], rows: &mut PairRows<'_, R>) {
        let columns = rows.constants.map_or(tile.columns, <[R]>::len);
        let PairRows { seen, exponents, factors, denominators, shrink, .. } = rows;
        let lengths = [exponents.len(), factors.len(), denominators.len(), shrink.len()];
        self.check(tile, w.len().min(h.len()), &[columns], &lengths);
        assert!(seen.len() >= tile.rows);
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.correct)(tile, w.as_mut_ptr(), h.as_ptr(), rows) }
    }

    /// The gradients of pairs: `w` from logits to `e t`, `h` from estimates to `−factor t`, `t` from `t − δ` to
    /// `e − factor h`.
    pub(crate) fn pair_gradients(
        &self,
        tile: Layout,
        (w, h, t): (&mut [R], &mut [R], &mut [R]),
        rows: &mut PairGradientRows<'_, R>,
    ) {
        let PairGradientRows { seen, constants, exponents, factors, delta, sums } = rows;
        let lengths = [seen.len(), exponents.len(), factors.len(), delta.len(), sums.len()];
        self.check(tile, w.len().min(h.len()).min(t.len()), &[constants.len()], &lengths);
        let pairs = (w.as_mut_ptr(), h.as_mut_ptr(), t.as_mut_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.pair_gradients)(tile, pairs, rows) }
    }

    /// `E ← F ∘ (E + δzᵀ)`, and the sum of each row.
    pub(crate) fn log_gradient(
        &self,
        tile: Layout,
        e: &mut [R],
        f: &[R],
        delta: &[R],
        z: &[R],
        sums: &mut [R],
    ) {
        self.check(tile, e.len().min(f.len()), &[z.len()], &[delta.len(), sums.len()]);
        let (e, sums) = (e.as_mut_ptr(), sums.as_mut_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.log_gradient)(tile, e, f.as_ptr(), delta.as_ptr(), z.as_ptr(), sums) }
    }

    /// `out_i += factor_i · slope at v_i`; the rows of `out` and `v` lie one after the other.
    pub(crate) fn add_slopes(
        &self,
        tile: Layout,
        out: &mut [R],
        v: &[R],
        factors: &[R],
        (a, b): (&[R], &[R]),
        transformed: Option<(&[R], usize)>,
    ) {
        self.check(tile, out.len().min(v.len()), &[a.len(), b.len()], &[factors.len()]);
        if let Some((numbers, stride)) = transformed {
            self.check(Layout { stride, ..tile }, numbers.len(), &[], &[]);
        }
        let (numbers, stride) = transformed.map_or((std::ptr::null(), 0), |(t, s)| (t.as_ptr(), s));
        let slopes = Slopes { a: a.as_ptr(), b: b.as_ptr(), transformed: numbers, stride };
        let (out, v, factors) = (out.as_mut_ptr(), v.as_ptr(), factors.as_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.add_slopes)(tile, out, v, factors, &slopes) }
    }

    /// `out_m += Σ_i weights_i f_im`.
    pub(crate) fn weighted_columns(&self, tile: Layout, f: &[R], weights: &[R], out: &mut [R]) {
        self.check(tile, f.len(), &[out.len()], &[weights.len()]);
        let (f, weights, out) = (f.as_ptr(), weights.as_ptr(), out.as_mut_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.weighted_columns)(tile, f, weights, out) }
    }

    /// `out = x · scale + shift`, row by row; returns whether every `out` is finite.
    pub(crate) fn affine(
        &self,
        tile: Layout,
        x: &[R],
        scale: R,
        shift: &[R],
        out: &mut [R],
    ) -> bool {
        self.check(tile, x.len(), &[shift.len()], &[]);
        assert!(out.len() >= tile.rows * tile.columns);
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.affine)(tile, x.as_ptr(), scale, shift.as_ptr(), out.as_mut_ptr()) }
    }

    /// `out_i = factor_i · x_i`, row by row; the rows of `out` lie one after the other.
    pub(crate) fn scale_rows(&self, tile: Layout, x: &[R], factors: &[R], out: &mut [R]) {
        self.check(tile, x.len(), &[], &[factors.len()]);
        assert!(out.len() >= tile.rows * tile.columns);
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.scale_rows)(tile, x.as_ptr(), factors.as_ptr(), out.as_mut_ptr()) }
    }

    /// `out_i = Σ_l x_il y_il`; the rows of `y` lie one after the other.
    pub(crate) fn row_products(&self, tile: Layout, x: &[R], y: &[R], out: &mut [R]) {
        self.check(tile, x.len(), &[], &[out.len()]);
        assert!(y.len() >= tile.rows * tile.columns);
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.row_products)(tile, x.as_ptr(), y.as_ptr(), out.as_mut_ptr()) }
    }

    /// `out_i = Σ_j x_ij`.
    pub(crate) fn row_sums(&self, tile: Layout, x: &[R], out: &mut [R]) {
        self.check(tile, x.len(), &[], &[out.len()]);
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.row_sums)(tile, x.as_ptr(), out.as_mut_ptr()) }
    }

    /// `K_ij ← rate_i − factor_i a_ij / max(K_ij, floor)`; `a` has the same layout as `K`.
    pub(crate) fn residuals(
        &self,
        tile: Layout,
        k: &mut [R],
        a: &[R],
        rates: &[R],
        factors: &[R],
        floor: R,
    ) {
        self.check(tile, k.len().min(a.len()), &[], &[rates.len(), factors.len()]);
        let (k, a, rates, factors) = (k.as_mut_ptr(), a.as_ptr(), rates.as_ptr(), factors.as_ptr());
        // SAFETY: the level was detected, and the slices were checked.
        unsafe { (self.residuals)(tile, k, a, rates, factors, floor) }
    }

    /// `2^x` of the first `count` numbers; others in the same vector become anything.
    pub(crate) fn exp2(&self, x: &mut [R], count: usize) {
        let count = count.next_multiple_of(self.lanes);
        assert!(x.len() >= count);
        // SAFETY: the level was detected, and the length is whole vectors.
        unsafe { (self.exp2_all)(count, x.as_mut_ptr()) }
    }

    /// `x ← scale · x`; the rows of `x` lie one after the other.
    pub(crate) fn scale_all(&self, tile: Layout, x: &mut [R], scale: R) {
        self.check(tile, x.len(), &[], &[]);
        // SAFETY: the level was detected, and the slice was checked.
        unsafe { (self.scale_all)(tile, x.as_mut_ptr(), scale) }
    }

    /// `factor · cos(2πx)` of every number; the length is a multiple of the vector length.
    pub(crate) fn cosines(&self, factor: R, x: &mut [R]) {
        assert!(x.len().is_multiple_of(self.lanes));
        // SAFETY: the level was detected, and the length is whole vectors.
        unsafe { (self.cosines)(x.len(), factor, x.as_mut_ptr()) }
    }

    fn check(&self, tile: Layout, numbers: usize, columns: &[usize], rows: &[usize]) {
        assert!(tile.columns.is_multiple_of(self.lanes) && tile.stride >= tile.columns);
        assert!(tile.rows == 0 || numbers >= span(&[(tile.rows, tile.stride)], tile.columns));
        assert!(columns.iter().all(|&n| n >= tile.columns));
        assert!(rows.iter().all(|&n| n >= tile.rows));
    }
}

/// The number of elements from the first to the last one touched: `count − 1` strides along each axis, and
/// `last` more. Panics rather than wraps, since unsafe code relies on it.
fn span(axes: &[(usize, usize)], last: usize) -> usize {
    axes.iter().fold(last, |sum, (count, stride)| {
        let along = count.saturating_sub(1).checked_mul(*stride);
        along.and_then(|along| sum.checked_add(along)).expect("the span of a slice fits usize")
    })
}
