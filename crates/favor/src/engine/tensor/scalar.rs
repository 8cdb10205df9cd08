//! The number formats of tensors, and the format that each is computed in.

use crate::engine::entry::TensorEntry;
use crate::map::Cached;

/// A number format of tensors: `f32`, `f64`, or a 16-bit format that is computed in `f32`.
///
/// ```
/// use favor::{Scalar, Tensor};
/// fn length<T: Scalar>(tensor: Tensor<'_, T>) -> usize {
///     tensor.shape()[2]
/// }
/// let x = [half::bf16::ONE; 6];
/// assert_eq!(length(Tensor::new(&x, [1, 1, 3, 2])?), 3);
/// # Ok::<(), favor::Error>(())
/// ```
pub trait Scalar: sealed::Compute + TensorEntry + Copy + Default + Send + Sync + 'static {}

impl Scalar for f32 {}
impl Scalar for f64 {}
impl Scalar for half::f16 {}
impl Scalar for half::bf16 {}

pub(crate) mod sealed {
    use super::Cached;

    pub trait Compute: Sized {
        #[allow(private_bounds)]
        type Real: Cached;
        const NAME: &'static str;
        fn widen(self) -> Self::Real;
        fn narrow(value: Self::Real) -> Self;
        /// The nearest number of this format.
        fn narrow_f64(value: f64) -> Self {
            Self::narrow(<Self::Real as crate::Float>::from_f64(value))
        }
        /// `out = row · factor`, narrowed.
        fn scaled_into(row: &[Self::Real], factor: Self::Real, out: &mut [Self]);
        /// The numbers themselves, where no conversion is needed.
        fn as_real(_: &[Self]) -> Option<&[Self::Real]> {
            None
        }
        /// As [`as_real`](Self::as_real), to write to.
        fn as_real_mut(_: &mut [Self]) -> Option<&mut [Self::Real]> {
            None
        }
    }

    macro_rules! same {
        ($real:ty) => {
            impl Compute for $real {
                type Real = $real;
                const NAME: &'static str = stringify!($real);
                fn widen(self) -> $real {
                    self
                }
                fn narrow(value: $real) -> $real {
                    value
                }
                fn scaled_into(row: &[$real], factor: $real, out: &mut [Self]) {
                    out.iter_mut().zip(row).for_each(|(o, x)| *o = x * factor);
                }
                fn as_real(values: &[Self]) -> Option<&[$real]> {
                    Some(values)
                }
                fn as_real_mut(values: &mut [Self]) -> Option<&mut [$real]> {
                    Some(values)
                }
            }
        };
    }
    same!(f32);
    same!(f64);

    macro_rules! half {
        ($half:ty, $name:expr) => {
            impl Compute for $half {
                type Real = f32;
                const NAME: &'static str = $name;
                fn widen(self) -> f32 {
                    self.to_f32()
                }
                fn narrow(value: f32) -> Self {
                    <$half>::from_f32(value)
                }
                fn scaled_into(row: &[f32], factor: f32, out: &mut [Self]) {
                    out.iter_mut().zip(row).for_each(|(o, x)| *o = Self::narrow(x * factor));
                }
            }
        };
    }
    half!(half::f16, "f16");
    half!(half::bf16, "bf16");
}
