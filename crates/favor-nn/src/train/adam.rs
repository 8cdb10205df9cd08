//! AdamW with clipping of the whole gradient, on the host: one pass over each weight.

use crate::host::lanes::inner;
use crate::{Error, Result};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor, TensorData};
use pulp::Arch;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Weights that a thread updates at a time.
const PIECE: usize = 1 << 14;

/// Weights of which gradients could be read can be read too.
const READ: &str = "weights on a device that gave gradients";

/// The numbers of AdamW.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AdamOptions {
    /// What is kept of the mean of gradients at each step.
    pub beta1: f64,
    /// What is kept of the mean of squared gradients.
    pub beta2: f64,
    /// Added to the root of that mean.
    pub epsilon: f64,
    /// The fraction of matrices and tables, times the rate, that each step takes away.
    pub decay: f64,
    /// The whole gradient is scaled down to this norm.
    pub clip: f64,
}

setters! { AdamOptions {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    decay: f64,
    clip: f64,
} }

impl Default for AdamOptions {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decay: 0.01, clip: 1.0 }
    }
}

/// The means of one weight.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Means {
    pub(super) first: Vec<f32>,
    pub(super) second: Vec<f32>,
}

/// What the rate of a weight is multiplied by, given its path in the model; a weight of 0 stays as it is.
pub type Rates = fn(&str) -> f64;

#[derive(Debug)]
pub(super) struct Adam {
    options: AdamOptions,
    pub(super) rates: Rates,
    /// By the weight's path.
    pub(super) means: BTreeMap<String, Means>,
    pub(super) updates: u64,
}

impl Adam {
    pub(super) fn new(options: AdamOptions) -> Result<Self> {
        let AdamOptions { beta1, beta2, epsilon, decay, clip } = options;
        let fractions = [beta1, beta2].iter().all(|b| (0.0..1.0).contains(b));
        let positive = [epsilon, clip].iter().all(|v| v.is_finite() && *v > 0.0);
        if !(fractions && positive && decay.is_finite() && decay >= 0.0) {
            return Err(Error::invalid("training", format!("no sensible AdamW: {options:?}")));
        }
        Ok(Self { options, rates: |_| 1.0, means: BTreeMap::new(), updates: 0 })
    }

    /// The model one step further, or as it was if the gradient is NaN or infinite. Weights that nobody else
    /// holds are changed where they lie.
    pub(super) fn update<M: Module>(
        &mut self,
        model: M,
        gradients: Gradients,
        rate: f64,
    ) -> (M, bool) {
        let rates = self.rates;
        let mut found = Collector { gradients, rates, path: vec![], all: BTreeMap::new() };
        model.visit(&mut found);
        let norm = norm(found.all.values());
        if !norm.is_finite() {
            return (model, false);
        }
        self.updates += 1;
        let AdamOptions { beta1, beta2, clip, .. } = self.options;
        let corrected = |beta: f64| 1.0 - beta.powf(self.updates as f64);
        let step = Step {
            options: self.options,
            scale: (clip / norm).min(1.0) as f32,
            rate: (rate / corrected(beta1)) as f32,
            root: corrected(beta2).sqrt().recip() as f32,
            decay: rate * self.options.decay,
        };
        let mut mapper = Updater { adam: self, step, gradients: found.all, path: vec![] };
        (model.map(&mut mapper), true)
    }
}

/// The norm of all gradients together; sums in blocks of fixed size, so that the number of threads does not show.
fn norm<'g>(gradients: impl Iterator<Item = &'g Vec<f32>>) -> f64 {
    let sums = gradients.map(|g| g.par_chunks(PIECE).map(squared).collect::<Vec<_>>());
    sums.map(|blocks| blocks.iter().sum::<f64>()).sum::<f64>().sqrt()
}

fn squared(numbers: &[f32]) -> f64 {
    Arch::new().dispatch(
        #[inline(always)]
        || inner(numbers, numbers),
    )
}

struct Collector {
    gradients: Gradients,
    rates: Rates,
    path: Vec<String>,
    all: BTreeMap<String, Vec<f32>>,
}

impl ModuleVisitor for Collector {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.join(".");
        if (self.rates)(&path) == 0.0 {
            return;
        }
        if let Some(gradient) = param.val().grad_remove(&mut self.gradients) {
            let values = gradient.try_into_vec_as::<f32>();
            // A device that gives no numbers gave no gradient.
            let values = values.unwrap_or_else(|_| vec![f32::NAN]);
            self.all.insert(path, values);
        }
    }
}

/// The numbers of one step.
#[derive(Clone, Copy)]
struct Step {
    options: AdamOptions,
    /// What clipping leaves of the gradient.
    scale: f32,
    rate: f32,
    root: f32,
    decay: f64,
}

struct Updater<'a> {
    adam: &'a mut Adam,
    step: Step,
    gradients: BTreeMap<String, Vec<f32>>,
    path: Vec<String>,
}

impl ModuleMapper for Updater<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join(".");
        // A weight that had no part in the loss stays as it is.
        let Some(gradient) = self.gradients.remove(&path) else { return param };
        let factor = (self.adam.rates)(&path);
        let means = self.adam.means.entry(path).or_default();
        means.first.resize(gradient.len(), 0.0);
        means.second.resize(gradient.len(), 0.0);
        // Biases and the scales of normalisations are vectors, and do not decay.
        let keep = if D > 1 { 1.0 - factor * self.step.decay } else { 1.0 };
        let step = Step { rate: self.step.rate * factor as f32, ..self.step };
        param.map(|tensor| {
            let (shape, device) = (tensor.dims(), tensor.device());
            let mut values = tensor.without_autodiff().try_into_vec_as::<f32>().expect(READ);
            step.apply(&mut values, &gradient, means, keep as f32);
            Tensor::from_data(TensorData::new(values, shape), &device).require_grad()
        })
    }
}

impl Step {
    fn apply(&self, values: &mut [f32], gradient: &[f32], means: &mut Means, keep: f32) {
        let (b1, b2) = (self.options.beta1 as f32, self.options.beta2 as f32);
        let epsilon = self.options.epsilon as f32;
        let pieces = values
            .par_chunks_mut(PIECE)
            .zip(gradient.par_chunks(PIECE))
            .zip(means.first.par_chunks_mut(PIECE).zip(means.second.par_chunks_mut(PIECE)));
        pieces.for_each(|((values, gradient), (first, second))| {
            Arch::new().dispatch(
                #[inline(always)]
                || {
                    let means = first.iter_mut().zip(second);
                    for ((w, g), (m, v)) in values.iter_mut().zip(gradient).zip(means) {
                        let g = g * self.scale;
                        *m = b1 * *m + (1.0 - b1) * g;
                        *v = b2 * *v + (1.0 - b2) * g * g;
                        *w = *w * keep - self.rate * *m / (v.sqrt() * self.root + epsilon);
                    }
                },
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;
    use burn::tensor::Device;

    #[derive(Module, Debug)]
    struct Two {
        matrix: Param<Tensor<2>>,
        vector: Param<Tensor<1>>,
    }

    impl Two {
        fn values(&self) -> Vec<f64> {
            let (matrix, vector) = (self.matrix.val().into_data(), self.vector.val().into_data());
            matrix.iter::<f64>().chain(vector.iter::<f64>()).collect()
        }
    }

    /// The definition (I. Loshchilov and F. Hutter, 2019) in 64 bits, with gradients below and above the
    /// norm that is left to them. Ours rounds each of some ten operations to 2⁻²⁴.
    #[test]
    fn steps_are_those_of_the_definition() {
        let device = Device::flex().autodiff();
        let options = AdamOptions::default().decay(0.1).clip(2.0);
        let mut adam = Adam::new(options).unwrap();
        let mut model = Two {
            matrix: Param::from_tensor(
                Tensor::from_data(normal([3, 4], 0.0, 1.0, 1), &device).require_grad(),
            ),
            vector: Param::from_tensor(
                Tensor::from_data(normal([4], 0.0, 1.0, 2), &device).require_grad(),
            ),
        };
        let mut wanted = model.values();
        let (mut first, mut second) = (vec![0.0; 16], vec![0.0; 16]);
        for (step, size) in [0.1, 1.0, 0.1, 3.0].into_iter().enumerate() {
            let seed = 10 * step as u64;
            let (a, b) = (normal([3, 4], 0.0, size, seed + 3), normal([4], 0.0, size, seed + 4));
            let given: Vec<f64> = a.iter::<f64>().chain(b.iter::<f64>()).collect();
            let a = model.matrix.val() * Tensor::from_data(a, &device);
            let b = model.vector.val() * Tensor::from_data(b, &device);
            let gradients = (a.sum() + b.sum()).backward();
            let rate = 0.01 * (step + 1) as f64;
            let changed;
            (model, changed) = adam.update(model, gradients, rate);
            assert!(changed);

            let norm = given.iter().map(|g| g * g).sum::<f64>().sqrt();
            assert_eq!(norm > options.clip, size >= 1.0, "both are tried");
            let scale = (options.clip / norm).min(1.0);
            let corrected = |mean: f64, beta: f64| mean / (1.0 - beta.powi(step as i32 + 1));
            for (i, g) in given.iter().map(|g| g * scale).enumerate() {
                first[i] = options.beta1 * first[i] + (1.0 - options.beta1) * g;
                second[i] = options.beta2 * second[i] + (1.0 - options.beta2) * g * g;
                if i < 12 {
                    wanted[i] -= rate * options.decay * wanted[i];
                }
                let root = corrected(second[i], options.beta2).sqrt();
                wanted[i] -= rate * corrected(first[i], options.beta1) / (root + options.epsilon);
            }
            for (found, wanted) in model.values().iter().zip(&wanted) {
                assert!((found - wanted).abs() < 1e-6 * (1.0 + wanted.abs()), "{found} {wanted}");
            }
        }
    }
}
