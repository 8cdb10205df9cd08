//! Layer normalisation as one differentiable operation on the CPU. burn differentiates it step by step,
//! which takes a dozen passes over the numbers and as many copies of them.

use super::is_flex;
use super::operation::{HostOperation, Input, Output, apply};
use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::tensor::module::layer_norm;
use burn::tensor::{DType, Device, Tensor};
use rayon::prelude::*;

/// Rows that a thread works on at a time: fixed, so that the number of threads does not show in sums over rows.
const ROWS: usize = 64;

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
        let (gamma, beta) = (self.gamma.val(), self.beta.val());
        let ours = x.dtype() == DType::F32 && x.is_autodiff() && is_flex(&x.device());
        if ours
            && let (Ok(a), Ok(b), Ok(c)) =
                (Input::new(x.clone()), Input::new(gamma.clone()), Input::new(beta.clone()))
        {
            return apply(Normalise { epsilon: self.epsilon, shape: x.dims() }, [a, b, c]);
        }
        layer_norm(x, gamma, Some(beta), self.epsilon)
    }
}

/// The operation on vectors, factors and terms. It keeps the mean and the inverse deviation of each row.
#[derive(Debug)]
struct Normalise<const D: usize> {
    epsilon: f64,
    shape: [usize; D],
}

impl<const D: usize> HostOperation<3, D> for Normalise<D> {
    const INPUTS: bool = true;

    fn forward(&self, [values, factors, terms]: [&[f32]; 3], _: bool) -> Output<D> {
        let width = factors.len();
        let mut out = vec![0.0; values.len()];
        let mut kept = vec![0.0; 2 * (values.len() / width)];
        let pieces = out.par_chunks_mut(ROWS * width).zip(values.par_chunks(ROWS * width));
        pieces.zip(kept.par_chunks_mut(2 * ROWS)).for_each(|((out, values), kept)| {
            let each = out.chunks_mut(width).zip(values.chunks(width)).zip(kept.chunks_mut(2));
            for ((out, x), kept) in each {
                let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / width as f64;
                let squares = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>();
                let inverse = (squares / width as f64 + self.epsilon).sqrt().recip();
                (kept[0], kept[1]) = (mean as f32, inverse as f32);
                for (((out, x), factor), term) in out.iter_mut().zip(x).zip(factors).zip(terms) {
                    *out = ((f64::from(*x) - mean) * inverse) as f32 * factor + term;
                }
            }
        });
        Output { values: out, shape: self.shape, kept }
    }

    /// With `x̂` the normalised row and `h = g γ`: `(h − mean h − x̂ mean(h x̂))/deviation`, `Σ g x̂` and
    /// `Σ g`.
    fn backward(
        &self,
        [values, factors, _]: [&[f32]; 3],
        kept: Vec<f32>,
        given: &[f32],
    ) -> [Vec<f32>; 3] {
        let width = factors.len();
        let mut out = vec![0.0; values.len()];
        let size = ROWS * width;
        let pieces =
            out.par_chunks_mut(size).zip(values.par_chunks(size)).zip(given.par_chunks(size));
        let sums: Vec<Vec<(f64, f64)>> = pieces
            .zip(kept.par_chunks(2 * ROWS))
            .map(|(((out, values), given), kept)| {
                let mut sums = vec![(0.0, 0.0); width];
                let each = out.chunks_mut(width).zip(values.chunks(width)).zip(given.chunks(width));
                for (((out, x), g), kept) in each.zip(kept.chunks(2)) {
                    let (mean, inverse) = (f64::from(kept[0]), f64::from(kept[1]));
                    let normal = |x: &f32| (f64::from(*x) - mean) * inverse;
                    let weighed = |g: &f32, factor: &f32| f64::from(*g) * f64::from(*factor);
                    let (mut first, mut second) = (0.0, 0.0);
                    for (((x, g), factor), sum) in x.iter().zip(g).zip(factors).zip(&mut sums) {
                        let (x, h) = (normal(x), weighed(g, factor));
                        first += h;
                        second += h * x;
                        sum.0 += f64::from(*g) * x;
                        sum.1 += f64::from(*g);
                    }
                    let (first, second) = (first / width as f64, second / width as f64);
                    for (((out, x), g), factor) in out.iter_mut().zip(x).zip(g).zip(factors) {
                        let slope = weighed(g, factor) - first - normal(x) * second;
                        *out = (slope * inverse) as f32;
                    }
                }
                sums
            })
            .collect();
        let total = |part: fn(&(f64, f64)) -> f64| {
            (0..width).map(|c| sums.iter().map(|s| part(&s[c])).sum::<f64>() as f32).collect()
        };
        [out, total(|s| s.0), total(|s| s.1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;
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
}
