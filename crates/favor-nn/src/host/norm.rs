//! Layer normalisation as one differentiable operation on the CPU. burn differentiates it step by step,
//! which takes a dozen passes over the numbers and as many copies of them.

use super::dropout::{Mask, drop_some};
use super::is_flex;
use super::lanes::{inner, sum};
use super::operation::{HostOperation, Input, Output, apply};
use burn::module::{Module, Param};
use burn::nn::{Dropout, Initializer};
use burn::tensor::module::layer_norm;
use burn::tensor::{DType, Device, Tensor};
use pulp::Arch;
use rayon::prelude::*;

/// Rows that a thread works on at a time: fixed, so that the number of threads does not show in sums over rows.
const ROWS: usize = 64;

// Where the rows of a thread begin, a mask can begin.
const _: () = assert!(ROWS.is_multiple_of(Mask::STEP));

/// `γ (x − mean)/√(variance + ε) + β` over the last axis.
#[derive(Module, Debug)]
pub struct Norm {
    /// The factors γ.
    pub gamma: Param<Tensor<1>>,
    /// The terms β.
    pub beta: Param<Tensor<1>>,
    epsilon: f64,
}

impl Norm {
    /// With factors of one and terms of zero.
    pub fn new(width: usize, epsilon: f64, device: &Device) -> Self {
        let gamma = Initializer::Ones.init([width], device);
        Self { gamma, beta: Initializer::Zeros.init([width], device), epsilon }
    }

    /// Normalises the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if self.is_ours(&x)
            && let (Ok(input), Some([gamma, beta])) = (Input::new(x.clone()), self.inputs())
        {
            let norm = Normalise { epsilon: self.epsilon, shape: x.dims() };
            return apply(norm, [input, gamma, beta]);
        }
        layer_norm(x, self.gamma.val(), Some(self.beta.val()), self.epsilon)
    }

    /// Normalises `x`, some of it dropped, plus `residual`: in one pass.
    pub fn forward_sum<const D: usize>(
        &self,
        dropout: &Dropout,
        x: Tensor<D>,
        residual: Tensor<D>,
    ) -> Tensor<D> {
        if self.is_ours(&x)
            && x.dims() == residual.dims()
            && let Some([gamma, beta]) = self.inputs()
            && let (Ok(a), Ok(b)) = (Input::new(x.clone()), Input::new(residual.clone()))
        {
            let mask = Mask::of(dropout, &x.device());
            let norm = Normalise { epsilon: self.epsilon, shape: x.dims() };
            return apply(NormaliseSum { norm, mask }, [a, b, gamma, beta]);
        }
        self.forward(drop_some(dropout, x) + residual)
    }

    fn is_ours<const D: usize>(&self, x: &Tensor<D>) -> bool {
        x.dtype() == DType::F32 && x.is_autodiff() && is_flex(&x.device())
    }

    fn inputs(&self) -> Option<[Input; 2]> {
        Some([Input::new(self.gamma.val()).ok()?, Input::new(self.beta.val()).ok()?])
    }
}

/// The operation on vectors, factors and terms. It keeps the mean and the inverse deviation of each row.
#[derive(Debug)]
struct Normalise<const D: usize> {
    epsilon: f64,
    shape: [usize; D],
}

/// The same on the sum of two tensors, one of which is masked. It keeps the sum too, before the rest.
#[derive(Debug)]
struct NormaliseSum<const D: usize> {
    norm: Normalise<D>,
    mask: Option<Mask>,
}

impl<const D: usize> HostOperation<3, D> for Normalise<D> {
    const INPUTS: bool = true;

    fn forward(&self, [values, factors, terms]: [&[f32]; 3], _: bool) -> Output<D> {
        let width = factors.len();
        let mut out = vec![0.0; values.len()];
        let mut kept = vec![0.0; 2 * (values.len() / width)];
        let pieces = out.par_chunks_mut(ROWS * width).zip(values.par_chunks(ROWS * width));
        pieces.zip(kept.par_chunks_mut(2 * ROWS)).for_each(|((out, values), kept)| {
            normalise(values, (factors, terms), self.epsilon, out, kept);
        });
        Output { values: out, shape: self.shape, kept }
    }

    fn backward(
        &self,
        [values, factors, _]: [&[f32]; 3],
        kept: Vec<f32>,
        given: &[f32],
    ) -> [Vec<f32>; 3] {
        slopes(values, factors, &kept, given)
    }
}

impl<const D: usize> HostOperation<4, D> for NormaliseSum<D> {
    const INPUTS: bool = true;

    fn forward(&self, [x, residual, factors, terms]: [&[f32]; 4], _: bool) -> Output<D> {
        let width = factors.len();
        let mut out = vec![0.0; x.len()];
        let mut kept = vec![0.0; x.len() + 2 * (x.len() / width)];
        let (sum, moments) = kept.split_at_mut(x.len());
        let size = ROWS * width;
        let inputs = x.par_chunks(size).zip(residual.par_chunks(size));
        let kept_pieces = sum.par_chunks_mut(size).zip(moments.par_chunks_mut(2 * ROWS));
        let pieces = out.par_chunks_mut(size).zip(inputs).zip(kept_pieces).enumerate();
        pieces.for_each(|(piece, ((out, (x, residual)), (sum, moments)))| {
            self.masked(piece * size, x, sum);
            sum.iter_mut().zip(residual).for_each(|(sum, r)| *sum += r);
            normalise(sum, (factors, terms), self.norm.epsilon, out, moments);
        });
        Output { values: out, shape: self.norm.shape, kept }
    }

    fn backward(
        &self,
        [x, _, factors, _]: [&[f32]; 4],
        kept: Vec<f32>,
        given: &[f32],
    ) -> [Vec<f32>; 4] {
        let (sum, moments) = kept.split_at(x.len());
        let [of_sum, of_factors, of_terms] = slopes(sum, factors, moments, given);
        let size = ROWS * factors.len();
        let mut of_x = vec![0.0; x.len()];
        let pieces = of_x.par_chunks_mut(size).zip(of_sum.par_chunks(size)).enumerate();
        pieces.for_each(|(piece, (out, of_sum))| self.masked(piece * size, of_sum, out));
        [of_x, of_sum, of_factors, of_terms]
    }
}

impl<const D: usize> NormaliseSum<D> {
    /// Numbers from a place on times their factors of the mask.
    fn masked(&self, first: usize, numbers: &[f32], out: &mut [f32]) {
        let Some(mask) = &self.mask else { return out.copy_from_slice(numbers) };
        Arch::new().dispatch(
            #[inline(always)]
            || {
                mask.fill(first, out);
                out.iter_mut().zip(numbers).for_each(|(out, x)| *out *= x);
            },
        );
    }
}

/// Normalises rows. `moments` gets the mean and the inverse deviation of each. Compiled for what the
/// processor at hand can do, as is what follows.
fn normalise(
    rows: &[f32],
    (factors, terms): (&[f32], &[f32]),
    epsilon: f64,
    out: &mut [f32],
    moments: &mut [f32],
) {
    let width = factors.len();
    let mut wide = vec![0.0; width];
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let rows = rows.chunks_exact(width).zip(out.chunks_exact_mut(width));
            for ((x, out), moments) in rows.zip(moments.chunks_exact_mut(2)) {
                wide.iter_mut().zip(x).for_each(|(wide, x)| *wide = f64::from(*x));
                let mean = sum(&wide) / width as f64;
                wide.iter_mut().for_each(|x| *x -= mean);
                let inverse = (inner(&wide, &wide) / width as f64 + epsilon).sqrt().recip();
                (moments[0], moments[1]) = (mean as f32, inverse as f32);
                for (((out, x), factor), term) in out.iter_mut().zip(&wide).zip(factors).zip(terms)
                {
                    *out = (x * inverse) as f32 * factor + term;
                }
            }
        },
    );
}

/// With `x̂` the normalised row and `h = g γ`: `(h − mean h − x̂ mean(h x̂))/deviation`, `Σ g x̂` and
/// `Σ g`.
fn slopes(values: &[f32], factors: &[f32], moments: &[f32], given: &[f32]) -> [Vec<f32>; 3] {
    let width = factors.len();
    let mut out = vec![0.0; values.len()];
    let size = ROWS * width;
    let pieces = out.par_chunks_mut(size).zip(values.par_chunks(size)).zip(given.par_chunks(size));
    let pieces = pieces.zip(moments.par_chunks(2 * ROWS));
    let sums = pieces.map(|(((out, values), given), moments)| {
        slopes_of_rows(values, factors, moments, given, out)
    });
    let sums: Vec<[Vec<f64>; 2]> = sums.collect();
    let total = |part: usize| {
        (0..width).map(|c| sums.iter().map(|s| s[part][c]).sum::<f64>() as f32).collect()
    };
    [out, total(0), total(1)]
}

/// The slopes of some rows, and their sums for factors and terms.
fn slopes_of_rows(
    rows: &[f32],
    factors: &[f32],
    moments: &[f32],
    given: &[f32],
    out: &mut [f32],
) -> [Vec<f64>; 2] {
    let width = factors.len();
    let [mut of_factors, mut of_terms, mut normal, mut slope] = [(); 4].map(|()| vec![0.0; width]);
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let rows = rows.chunks_exact(width).zip(given.chunks_exact(width));
            let rows = rows.zip(out.chunks_exact_mut(width)).zip(moments.chunks_exact(2));
            for (((x, g), out), moments) in rows {
                let (mean, inverse) = (f64::from(moments[0]), f64::from(moments[1]));
                for (normal, x) in normal.iter_mut().zip(x) {
                    *normal = (f64::from(*x) - mean) * inverse;
                }
                for ((slope, g), factor) in slope.iter_mut().zip(g).zip(factors) {
                    *slope = f64::from(*g) * f64::from(*factor);
                }
                let sums = of_factors.iter_mut().zip(&mut of_terms);
                for (((of_factor, of_term), g), normal) in sums.zip(g).zip(&normal) {
                    *of_factor += f64::from(*g) * normal;
                    *of_term += f64::from(*g);
                }
                let first = sum(&slope) / width as f64;
                let second = inner(&slope, &normal) / width as f64;
                for ((out, slope), normal) in out.iter_mut().zip(&slope).zip(&normal) {
                    *out = ((slope - first - normal * second) * inverse) as f32;
                }
            }
        },
    );
    [of_factors, of_terms]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{generator, normal};
    use burn::nn::DropoutConfig;
    use burn::tensor::TensorData;

    /// burn's own operation in 64 bits on the same numbers, and its gradients. Ours rounds the mean, the
    /// deviation and the result to 32 bits: some 2⁻²³ of the largest number each.
    #[test]
    fn values_and_gradients_are_those_of_burn() {
        const SHAPE: [usize; 3] = [3, 50, 24];
        let device = Device::flex().autodiff();
        let (x, weights) = (normal(SHAPE, 0.3, 2.0, 1), normal(SHAPE, 0.0, 2.0, 2));
        let row = |mean, seed| normal([SHAPE[2]], mean, 2.0, seed);
        let (gamma, beta) = (row(1.0, 3), row(0.0, 4));
        // The outputs and the gradients of their weighted sum, all as 64-bit numbers.
        let run = |kind: DType| -> Vec<Vec<f64>> {
            let put = |data: &TensorData| Tensor::<3>::from_data(data.clone(), (&device, kind));
            let leaf = |data: &TensorData| {
                Tensor::<1>::from_data(data.clone(), (&device, kind)).require_grad()
            };
            let x = put(&x).require_grad();
            let (gamma, beta) = (Param::from_tensor(leaf(&gamma)), Param::from_tensor(leaf(&beta)));
            let norm = Norm { gamma, beta, epsilon: 1e-5 };
            // Strides that are not those of a plain tensor must be read right too.
            let out = norm.forward(x.clone().swap_dims(0, 1));
            let found = (out.clone() * put(&weights).swap_dims(0, 1)).sum().backward();
            let gradient = |t: Tensor<1>| t.grad(&found).unwrap().into_data();
            let all = [
                out.into_data(),
                x.grad(&found).unwrap().into_data(),
                gradient(norm.gamma.val()),
                gradient(norm.beta.val()),
            ];
            all.iter().map(|data| data.iter::<f64>().collect()).collect()
        };
        // Only 32-bit numbers are ours.
        for (ours, burns) in run(DType::F32).iter().zip(run(DType::F64)) {
            assert_eq!(ours.len(), burns.len());
            let scale = burns.iter().fold(0.0, |m: f64, b| m.max(b.abs()));
            for (a, b) in ours.iter().zip(&burns) {
                assert!(
                    (a - b).abs() <= 8.0 * f64::from(f32::EPSILON) * scale,
                    "{a} {b} of {scale}"
                );
            }
        }
    }

    /// The same as one step after the other, with the same mask; and without one.
    #[test]
    fn sums_are_normalised_in_one_pass() {
        const SHAPE: [usize; 3] = [3, 50, 24];
        let _held = generator();
        let device = Device::flex().autodiff();
        let (x, residual) = (normal(SHAPE, 0.3, 2.0, 1), normal(SHAPE, 0.0, 2.0, 2));
        let weights = normal(SHAPE, 0.0, 2.0, 3);
        for dropped in [0.0, 0.3] {
            let dropout = DropoutConfig::new(dropped).init();
            let run = |in_one: bool| -> Vec<Vec<f64>> {
                device.seed(5);
                let put = |data: &TensorData| Tensor::<3>::from_data(data.clone(), &device);
                let norm = Norm::new(SHAPE[2], 1e-5, &device);
                let (x, residual) = (put(&x).require_grad(), put(&residual).require_grad());
                let out = if in_one {
                    norm.forward_sum(&dropout, x.clone(), residual.clone())
                } else {
                    norm.forward(drop_some(&dropout, x.clone()) + residual.clone())
                };
                let found = (out.clone() * put(&weights)).sum().backward();
                let all = [
                    out.into_data(),
                    x.grad(&found).unwrap().into_data(),
                    residual.grad(&found).unwrap().into_data(),
                    norm.gamma.val().grad(&found).unwrap().into_data(),
                    norm.beta.val().grad(&found).unwrap().into_data(),
                ];
                all.iter().map(|data| data.iter::<f64>().collect()).collect()
            };
            // The same operations on every number, in the same order.
            assert_eq!(run(true), run(false), "{dropped} dropped");
        }
    }
}
