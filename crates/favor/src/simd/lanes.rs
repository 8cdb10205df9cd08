//! A SIMD vector of numbers. One trait, with one implementation per processor level and number format;
//! every kernel in this module is written once against the trait.

/// A vector of `COUNT` numbers.
///
/// # Safety
/// All methods may be called only where the processor supports the implementing level.
#[allow(clippy::missing_safety_doc)]
pub(crate) trait Lanes: Copy {
    /// The number format.
    type Real: Constants;
    /// Numbers in a vector.
    const COUNT: usize;
    /// Rows of the register tile of a matrix product.
    const TILE_ROWS: usize;

    /// Prefetches a cache line, if the processor can. Safe everywhere: it is a hint.
    fn fetch(_line: *const u8) {}
    unsafe fn splat(x: Self::Real) -> Self;
    unsafe fn load(p: *const Self::Real) -> Self;
    unsafe fn store(self, p: *mut Self::Real);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// `self · b + c`, with one rounding if the processor has FMA.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;
    /// The nearest integers.
    unsafe fn round(self) -> Self;
    /// `self · 2^n` for integers `n`, correct down to zero and up to infinity.
    unsafe fn times_power_of_two(self, n: Self) -> Self;
    /// One bit per number: whether it equals the other's.
    unsafe fn equals(self, other: Self) -> u32;
    /// The numbers that are less than the other's, and the lowest number in place of the rest.
    unsafe fn below(self, other: Self) -> Self;
    /// The numbers of both, interleaved: the first halves, and the second halves.
    unsafe fn zip(self, other: Self) -> (Self, Self);
    unsafe fn sum(self) -> Self::Real;
    unsafe fn largest(self) -> Self::Real;
}

/// Numbers in the longest vector.
pub(super) const LONGEST: usize = 16;

/// The numbers of a format that the kernels need.
pub(crate) trait Constants:
    crate::Float
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
{
    const ONE: Self;
    const ZERO: Self;
    const LOWEST: Self;
    /// Coefficients of `(2^r − 1)/r` on `|r| ≤ ½`, lowest first: its interpolation at Chebyshev
    /// nodes, with relative error 9.2e-9 (`f32`) and 2.0e-17 (`f64`) of `2^r`.
    const EXP2: &'static [Self];
    const QUARTER: Self;
    /// Coefficients of `sin(2πu)/u` in `u²` on `|u| ≤ ¼`, lowest first: its interpolation at Chebyshev
    /// nodes, with error 6.7e-9 (`f32`) and 4.8e-22 (`f64`) of the sine.
    const SINE: &'static [Self];
    /// Zeros, ones and zeros, a vector of each at least: parts of it say which columns are seen.
    const STEPS: &'static [Self; 3 * LONGEST];
}

macro_rules! steps {
    () => {{
        let mut numbers = [0.0; 3 * LONGEST];
        let mut n = LONGEST;
        while n < 2 * LONGEST {
            numbers[n] = 1.0;
            n += 1;
        }
        numbers
    }};
}

impl Constants for f32 {
    const ONE: f32 = 1.0;
    const ZERO: f32 = 0.0;
    const LOWEST: f32 = f32::MIN;
    const EXP2: &'static [f32] = &[
        std::f32::consts::LN_2,
        0.240_226_5,
        0.055_503_57,
        0.009_618_083,
        0.001_339_086_3,
        0.000_154_531_63,
    ];
    const QUARTER: f32 = 0.25;
    const SINE: &'static [f32] =
        &[std::f32::consts::TAU, -41.341_68, 81.602_48, -76.581_17, 39.759_827];
    const STEPS: &'static [f32; 3 * LONGEST] = &steps!();
}

impl Constants for f64 {
    const ONE: f64 = 1.0;
    const ZERO: f64 = 0.0;
    const LOWEST: f64 = f64::MIN;
    const EXP2: &'static [f64] = &[
        std::f64::consts::LN_2,
        0.240_226_506_959_100_97,
        0.055_504_108_664_821_6,
        0.009_618_129_107_606_888,
        0.001_333_355_814_641_693_6,
        0.000_154_035_304_417_360_5,
        1.525_273_382_983_612e-5,
        1.321_544_258_792_169e-6,
        1.017_806_244_584_577_4e-7,
        7.072_585_949_269_223e-9,
        4.454_960_598_186_518_6e-10,
    ];
    const QUARTER: f64 = 0.25;
    const SINE: &'static [f64] = &[
        std::f64::consts::TAU,
        -41.341_702_240_399_76,
        81.605_249_276_075_05,
        -76.705_859_753_060_72,
        42.058_693_944_828_7,
        -15.094_642_572_701_974,
        3.819_952_434_866_809,
        -0.718_118_921_891_065_8,
        0.104_183_090_870_646_48,
        -0.011_683_082_881_307_492,
    ];
    const STEPS: &'static [f64; 3 * LONGEST] = &steps!();
}
