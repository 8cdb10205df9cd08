//! A vector of numbers as the processor holds it. One trait, one implementation a processor level
//! and number format; every kernel of this room is written once against the trait.

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

    unsafe fn splat(x: Self::Real) -> Self;
    unsafe fn load(p: *const Self::Real) -> Self;
    unsafe fn store(self, p: *mut Self::Real);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// `self · b + c` with one rounding where the processor has it.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;
    /// The nearest integers.
    unsafe fn round(self) -> Self;
    /// `self · 2^n` for integers `n`, right down to zero and up to infinity.
    unsafe fn times_power_of_two(self, n: Self) -> Self;
    unsafe fn sum(self) -> Self::Real;
    unsafe fn largest(self) -> Self::Real;
}

/// The numbers of `exp` in one format.
pub(crate) trait Constants:
    crate::Element
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
{
    const LOG2_E: Self;
    /// `ln 2` in two parts, the first with trailing zeros.
    const LN2_HIGH: Self;
    const LN2_LOW: Self;
    const ONE: Self;
    const ZERO: Self;
    const LOWEST: Self;
    /// `e` to the minus this is zero, whatever power of two is near.
    const FAR_BELOW: Self;
    /// Coefficients of `(e^r − 1 − r)/r²` on `|r| ≤ ½ ln 2`, lowest first: its interpolation at
    /// Chebyshev nodes, with relative error 1.0e-8 (`f32`) and 1.7e-17 (`f64`) of `e^r`.
    const EXP: &'static [Self];
}

impl Constants for f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const ONE: f32 = 1.0;
    const ZERO: f32 = 0.0;
    const LOWEST: f32 = f32::MIN;
    const FAR_BELOW: f32 = 200.0;
    const EXP: &'static [f32] = &[0.5, 0.166_665_77, 0.041_666_554, 0.008_363_203, 0.001_392_621_3];
}

impl Constants for f64 {
    const LOG2_E: f64 = std::f64::consts::LOG2_E;
    const LN2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const ONE: f64 = 1.0;
    const ZERO: f64 = 0.0;
    const LOWEST: f64 = f64::MIN;
    const FAR_BELOW: f64 = 1600.0;
    const EXP: &'static [f64] = &[
        0.500_000_000_000_000_1,
        0.166_666_666_666_666_67,
        0.041_666_666_666_623_99,
        0.008_333_333_333_330_051,
        0.001_388_888_891_728_179_3,
        0.000_198_412_698_631_059_7,
        2.480_152_119_021_773e-5,
        2.755_726_837_868_419_3e-6,
        2.762_013_871_973_399_6e-7,
        2.510_042_415_700_506_7e-8,
    ];
}
