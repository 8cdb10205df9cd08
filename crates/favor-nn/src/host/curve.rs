//! Activations as one differentiable operation on the CPU. Value and slope share their exponential, so the
//! slope is found with the value, and the backward pass is a product.

use super::is_flex;
use super::operation::{HostOperation, Input, Output, apply};
use burn::tensor::{DType, Tensor, activation};
use pulp::Arch;
use rayon::prelude::*;

/// Numbers that a thread works on at a time.
const PIECE: usize = 1 << 13;

/// `x Φ(x)` with the distribution function Φ of a standard normal variable.
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    ours(Curve::Gelu, &x).unwrap_or_else(|| activation::gelu(x))
}

/// `x/(1 + e⁻ˣ)`.
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    ours(Curve::Silu, &x).unwrap_or_else(|| activation::silu(x))
}

/// `1/(1 + e⁻ˣ)`.
pub fn sigmoid<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    ours(Curve::Sigmoid, &x).unwrap_or_else(|| activation::sigmoid(x))
}

/// The hyperbolic tangent.
pub fn tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    ours(Curve::Tanh, &x).unwrap_or_else(|| activation::tanh(x))
}

/// The curve by our operation, where it can be.
fn ours<const D: usize>(curve: Curve, x: &Tensor<D>) -> Option<Tensor<D>> {
    if x.dtype() != DType::F32 || !is_flex(&x.device()) {
        return None;
    }
    let input = Input::new(x.clone()).ok()?;
    Some(apply(Along { curve, shape: x.dims() }, [input]))
}

#[derive(Debug, Clone, Copy)]
enum Curve {
    Gelu,
    Silu,
    Sigmoid,
    Tanh,
}

#[derive(Debug)]
struct Along<const D: usize> {
    curve: Curve,
    shape: [usize; D],
}

impl<const D: usize> HostOperation<1, D> for Along<D> {
    const INPUTS: bool = false;

    fn forward(&self, [x]: [&[f32]; 1], tracked: bool) -> Output<D> {
        let mut values = vec![0.0; x.len()];
        let mut kept = vec![0.0; if tracked { x.len() } else { 0 }];
        let one = |x: &[f32], values: &mut [f32], slopes: &mut [f32]| match self.curve {
            Curve::Gelu => each(x, values, slopes, gelu_and_slope),
            Curve::Silu => each(x, values, slopes, silu_and_slope),
            Curve::Sigmoid => each(x, values, slopes, sigmoid_and_slope),
            Curve::Tanh => each(x, values, slopes, tanh_and_slope),
        };
        let pieces = values.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE));
        if tracked {
            let pieces = pieces.zip(kept.par_chunks_mut(PIECE));
            pieces.for_each(|((values, x), slopes)| one(x, values, slopes));
        } else {
            let slopes = || vec![0.0; PIECE];
            pieces.for_each_init(slopes, |slopes, (values, x)| one(x, values, &mut slopes[..]));
        }
        Output { values, shape: self.shape, kept }
    }

    fn backward(&self, _: [&[f32]; 1], mut kept: Vec<f32>, gradient: &[f32]) -> [Vec<f32>; 1] {
        let pieces = kept.par_chunks_mut(PIECE).zip(gradient.par_chunks(PIECE));
        pieces.for_each(|(slopes, gradient)| {
            slopes.iter_mut().zip(gradient).for_each(|(slope, g)| *slope *= g);
        });
        [kept]
    }
}

/// Writes the value of the curve at each number, and the slope there. Compiled for what the processor at
/// hand can do.
fn each(x: &[f32], values: &mut [f32], slopes: &mut [f32], curve: impl Fn(f32) -> (f32, f32)) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for ((value, slope), x) in values.iter_mut().zip(slopes).zip(x) {
                (*value, *slope) = curve(*x);
            }
        },
    );
}

/// With `erfc z ≈ p(1/(1 + cz)) e^(−z²)`, which is off by at most 1.5e-7 (Abramowitz and Stegun, 7.1.26).
#[inline(always)]
fn gelu_and_slope(x: f32) -> (f32, f32) {
    const TERMS: [f32; 5] = [0.254_829_6, -0.284_496_74, 1.421_413_7, -1.453_152_1, 1.061_405_4];
    const DENSITY: f32 = 0.398_942_3;
    let bell = exp(-0.5 * x * x);
    let t = 1.0 / (1.0 + 0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2 * x.abs());
    let tail = 0.5 * bell * t * TERMS.iter().rev().fold(0.0, |sum, term| sum * t + term);
    let below = if x < 0.0 { tail } else { 1.0 - tail };
    (x * below, below + x * DENSITY * bell)
}

#[inline(always)]
fn silu_and_slope(x: f32) -> (f32, f32) {
    let power = exp(-x);
    let sigmoid = 1.0 / (1.0 + power);
    // Its own complement is `power · sigmoid`, where a difference from one would lose digits.
    (x * sigmoid, sigmoid * (1.0 + x * (power * sigmoid)))
}

#[inline(always)]
fn sigmoid_and_slope(x: f32) -> (f32, f32) {
    let power = exp(-x);
    let sigmoid = 1.0 / (1.0 + power);
    (sigmoid, sigmoid * (power * sigmoid))
}

#[inline(always)]
fn tanh_and_slope(x: f32) -> (f32, f32) {
    let power = exp(-2.0 * x);
    let sigmoid = 1.0 / (1.0 + power);
    (2.0 * sigmoid - 1.0, 4.0 * sigmoid * (power * sigmoid))
}

/// `eˣ` within some units of the last place, without branches. Beyond ±87 it stays at its value there.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding and taking away one and a half times 2²³ rounds to an integer.
    const ROUND: f32 = 12_582_912.0;
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let x = x.clamp(-87.0, 87.0);
    let whole = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
    let rest = (x - whole * LN_2[0]) - whole * LN_2[1];
    let terms = [1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0];
    let series = terms.iter().rev().fold(0.0, |sum, term| sum * rest + term);
    series * f32::from_bits(((whole as i32 + 127) << 23) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn exponentials_are_within_three_places() {
        for i in -870_000..=870_000 {
            let x = i as f32 * 1e-4;
            let right = f64::from(x).exp();
            let off = (f64::from(exp(x)) - right).abs() / right;
            assert!(off <= 3.0 * f64::from(f32::EPSILON), "{x}: {off}");
        }
        assert!(exp(-1e9) > 0.0 && exp(1e9).is_finite());
    }

    /// burn's own in 64 bits, and its gradients. Beside rounding, Φ is off by half of 1.5e-7, which the
    /// value multiplies by x.
    #[test]
    fn values_and_slopes_are_those_of_burn() {
        let device = Device::flex().autodiff();
        let places: Vec<f64> = (-3000..3000).map(|i| f64::from(i) / 100.0).collect();
        type Way = fn(Tensor<2>) -> Tensor<2>;
        for way in [gelu::<2> as Way, silu::<2>, sigmoid::<2>, tanh::<2>] {
            let run = |kind: DType| -> Vec<Vec<f64>> {
                let data = TensorData::new(places.clone(), [60, 100]);
                let x = Tensor::<2>::from_data(data, (&device, kind)).require_grad();
                // Strides that are not those of a plain tensor must be read right too.
                let out = way(x.clone().swap_dims(0, 1)).swap_dims(0, 1);
                let found = (out.clone() * x.clone().detach()).sum().backward();
                let all = [out.into_data(), x.grad(&found).unwrap().into_data()];
                all.iter().map(|data| data.iter::<f64>().collect()).collect()
            };
            for (ours, burns) in run(DType::F32).iter().zip(run(DType::F64)) {
                for ((a, b), x) in ours.iter().zip(&burns).zip(&places) {
                    let bound = (7.5e-8 + 4.0 * f64::from(f32::EPSILON)) * x.abs().max(1.0);
                    assert!((a - b).abs() <= bound, "{a} {b} at {x}");
                }
            }
        }
    }
}
