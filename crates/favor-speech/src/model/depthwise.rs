//! Depth-wise convolution over time that ignores padding, with its own gradients: each channel of
//! `[batch, frames, channels]` is weighted by its own column of a kernel `[size, channels]`.

use crate::Result;
use burn::tensor::Tensor;
use favor_nn::host::{HostOperation, Input, Output, apply};
use rayon::prelude::*;

/// Convolution with an odd number of taps, centred, over the first `lengths[b]` frames of each
/// sequence. Frames beyond them come out as zero.
pub(super) fn depthwise(x: Tensor<3>, kernel: Tensor<2>, lengths: &[usize]) -> Result<Tensor<3>> {
    let operation =
        Depthwise { shape: x.dims(), taps: kernel.dims()[0], lengths: lengths.to_vec() };
    Ok(apply(operation, [Input::new(x)?, Input::new(kernel)?]))
}

#[derive(Debug)]
struct Depthwise {
    shape: [usize; 3],
    taps: usize,
    lengths: Vec<usize>,
}

impl Depthwise {
    /// Calls `each(output frame, input frame, tap)` for all combinations in a sequence of this length.
    fn meetings(&self, length: usize, mut each: impl FnMut(usize, usize, usize)) {
        let half = self.taps / 2;
        for t in 0..length {
            for tap in half.saturating_sub(t)..self.taps.min(length + half - t) {
                each(t, t + tap - half, tap);
            }
        }
    }
}

impl HostOperation<2, 3> for Depthwise {
    const INPUTS: bool = true;

    fn forward(&self, [x, kernel]: [&[f32]; 2], _: bool) -> Output<3> {
        let [_, frames, c] = self.shape;
        let mut values = vec![0.0; x.len()];
        let parts = values.par_chunks_mut(frames * c).zip(x.par_chunks(frames * c));
        parts.zip(&self.lengths).for_each(|((out, x), &length)| {
            self.meetings(length, |to, from, tap| {
                add(&mut out[to * c..][..c], &x[from * c..][..c], &kernel[tap * c..][..c]);
            });
        });
        Output { values, shape: self.shape, kept: vec![] }
    }

    fn backward(&self, [x, kernel]: [&[f32]; 2], _: Vec<f32>, gradient: &[f32]) -> [Vec<f32>; 2] {
        let [_, frames, c] = self.shape;
        let mut to_x = vec![0.0; x.len()];
        let parts = to_x.par_chunks_mut(frames * c).zip(x.par_chunks(frames * c));
        let parts = parts.zip(gradient.par_chunks(frames * c)).zip(&self.lengths);
        let each = parts.map(|(((to_x, x), gradient), &length)| {
            let mut to_kernel = vec![0.0; kernel.len()];
            self.meetings(length, |to, from, tap| {
                let g = &gradient[to * c..][..c];
                add(&mut to_x[from * c..][..c], g, &kernel[tap * c..][..c]);
                add(&mut to_kernel[tap * c..][..c], g, &x[from * c..][..c]);
            });
            to_kernel
        });
        // Collected first, so that the sum is in batch order whatever the threads do.
        let each: Vec<Vec<f32>> = each.collect();
        let mut to_kernel = vec![0.0; kernel.len()];
        for part in each {
            to_kernel.iter_mut().zip(part).for_each(|(sum, g)| *sum += g);
        }
        [to_x, to_kernel]
    }
}

fn add(out: &mut [f32], a: &[f32], b: &[f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out += a * b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    fn numbers(count: usize, seed: f32) -> Vec<f32> {
        (0..count).map(|i| (seed + 1.7 * i as f32).sin()).collect()
    }

    /// Compared with its definition; the operation is linear in either input, so differences are
    /// gradients.
    #[test]
    fn agrees_with_the_definition() {
        let (shape, taps, lengths) = ([3, 6, 2], 5, [6, 1, 4]);
        let (x, kernel) = (numbers(36, 0.1), numbers(10, 0.7));
        let plain = |x: &[f32], kernel: &[f32]| -> Vec<f32> {
            let one = |i: usize| {
                let (b, t, c) = (i / 12, (i / 2 % 6) as isize, i % 2);
                if t >= lengths[b] as isize {
                    return 0.0;
                }
                let taps =
                    (0..taps as isize).filter(|k| (0..lengths[b] as isize).contains(&(t + k - 2)));
                taps.map(|k| x[b * 12 + (t + k - 2) as usize * 2 + c] * kernel[k as usize * 2 + c])
                    .sum()
            };
            (0..36).map(one).collect()
        };
        let device = Device::flex().autodiff();
        let tensor =
            |v: &[f32]| Tensor::<1>::from_data(TensorData::new(v.to_vec(), [v.len()]), &device);
        let (tx, tk) = (tensor(&x).require_grad(), tensor(&kernel).require_grad());
        let out =
            depthwise(tx.clone().reshape(shape), tk.clone().reshape([5, 2]), &lengths).unwrap();
        let found: Vec<f32> = out.clone().into_data().iter::<f32>().collect();
        for (a, b) in found.iter().zip(plain(&x, &kernel)) {
            assert!((a - b).abs() < 1e-5);
        }
        let weights = numbers(36, 2.0);
        let gradients = (out.reshape([36]) * tensor(&weights)).sum().backward();
        let inner = |out: Vec<f32>| out.iter().zip(&weights).map(|(a, b)| a * b).sum::<f32>();
        let unit =
            |n: usize, i: usize| (0..n).map(|j| f32::from(u8::from(i == j))).collect::<Vec<_>>();
        let of = |t: &Tensor<1>| {
            t.grad(&gradients).unwrap().into_data().iter::<f32>().collect::<Vec<_>>()
        };
        for (i, found) in of(&tx).into_iter().enumerate() {
            assert!((found - inner(plain(&unit(36, i), &kernel))).abs() < 1e-5, "{i}");
        }
        for (i, found) in of(&tk).into_iter().enumerate() {
            assert!((found - inner(plain(&x, &unit(10, i)))).abs() < 1e-5, "{i}");
        }
    }
}
