//! Layer normalisation as one differentiable operation on the CPU. burn differentiates it step by step,
//! which takes a dozen passes over the numbers and as many copies of them.

use crate::attention::{HostTensor, Shared, is_flex};
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients as Graph;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Flex};
use burn::module::{Module, Param};
use burn::nn::Initializer;
use burn::tensor::module::layer_norm;
use burn::tensor::{DType, Device, Tensor, TensorData};
use rayon::prelude::*;

/// Rows that a thread works on at a time: fixed, so that threads do not show in sums over rows.
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
        let kinds = [x.dtype(), gamma.dtype(), beta.dtype()];
        let known = kinds == [DType::F32; 3] || kinds == [DType::F64; 3];
        if !(known && x.is_autodiff() && is_flex(&x.device())) {
            return layer_norm(x, gamma, Some(beta), self.epsilon);
        }
        let inputs = (
            x.clone().try_into_primitive::<Autodiff<Flex>>(),
            gamma.clone().try_into_primitive::<Autodiff<Flex>>(),
            beta.clone().try_into_primitive::<Autodiff<Flex>>(),
        );
        let (Ok(one), Ok(two), Ok(three)) = inputs else {
            return layer_norm(x, gamma, Some(beta), self.epsilon);
        };
        let ((x, node_x), (gamma, node_gamma), (beta, node_beta)) =
            (one.into_parts(), two.into_parts(), three.into_parts());
        let x = x.to_contiguous();
        let (out, rows) = match x.dtype() {
            DType::F64 => forward::<f64>(&x, &gamma, &beta, self.epsilon),
            _ => forward::<f32>(&x, &gamma, &beta, self.epsilon),
        };
        let prepared = Operation.prepare::<NoCheckpointing>([node_x, node_gamma, node_beta]);
        Tensor::from_primitive::<Autodiff<Flex>>(match prepared.compute_bound().stateful() {
            OpsKind::UnTracked(prepared) => prepared.finish(out),
            OpsKind::Tracked(prepared) => prepared.finish(Saved { x, gamma, rows }, out),
        })
    }
}

/// What the backward pass needs.
#[derive(Debug, Clone)]
struct Saved {
    x: HostTensor,
    gamma: HostTensor,
    /// Mean and inverse deviation of each row.
    rows: Vec<(f64, f64)>,
}

#[derive(Debug)]
struct Operation;

impl Backward<Flex, 3> for Operation {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 3>, graph: &mut Graph, _: &mut Checkpointer) {
        let gradient = graph.consume::<Flex>(&ops.node).to_contiguous();
        let gradients = match gradient.dtype() {
            DType::F64 => backward::<f64>(&ops.state, &gradient),
            _ => backward::<f32>(&ops.state, &gradient),
        };
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some(node) = parent {
                graph.register::<Flex>(node.id, gradient);
            }
        }
    }
}

/// The numbers of a tensor without gaps.
fn numbers<T: Shared>(tensor: &HostTensor) -> &[T] {
    let start = tensor.layout().start_offset();
    &tensor.storage::<T>()[start..start + tensor.layout().shape().num_elements()]
}

fn vector<T: Shared>(tensor: &HostTensor) -> Vec<f64> {
    numbers::<T>(&tensor.to_contiguous()).iter().map(|v| v.to_f64()).collect()
}

fn tensor<T: Shared>(values: Vec<T>, like: &HostTensor) -> HostTensor {
    HostTensor::from_data(TensorData::new(values, like.layout().shape().clone()))
}

fn forward<T: Shared>(
    x: &HostTensor,
    gamma: &HostTensor,
    beta: &HostTensor,
    epsilon: f64,
) -> (HostTensor, Vec<(f64, f64)>) {
    let (values, factors, terms) = (numbers::<T>(x), vector::<T>(gamma), vector::<T>(beta));
    let width = factors.len();
    let mut out = vec![T::default(); values.len()];
    let mut rows = vec![(0.0, 0.0); values.len() / width];
    let pieces = out.par_chunks_mut(ROWS * width).zip(values.par_chunks(ROWS * width));
    pieces.zip(rows.par_chunks_mut(ROWS)).for_each(|((out, values), rows)| {
        let each = out.chunks_mut(width).zip(values.chunks(width)).zip(rows);
        for ((out, x), row) in each {
            let mean = x.iter().map(|v| v.to_f64()).sum::<f64>() / width as f64;
            let squares = x.iter().map(|v| (v.to_f64() - mean).powi(2)).sum::<f64>();
            let inverse = (squares / width as f64 + epsilon).sqrt().recip();
            for (((out, x), factor), term) in out.iter_mut().zip(x).zip(&factors).zip(&terms) {
                *out = T::from_elem((x.to_f64() - mean) * inverse * factor + term);
            }
            *row = (mean, inverse);
        }
    });
    (tensor(out, x), rows)
}

/// With `x̂` the normalised row and `h = g γ`: `(h − mean h − x̂ mean(h x̂))/deviation`, `Σ g x̂` and `Σ g`.
fn backward<T: Shared>(saved: &Saved, gradient: &HostTensor) -> [HostTensor; 3] {
    let Saved { x, gamma, rows } = saved;
    let (values, given) = (numbers::<T>(x), numbers::<T>(gradient));
    let factors = vector::<T>(gamma);
    let width = factors.len();
    let mut out = vec![T::default(); values.len()];
    let size = ROWS * width;
    let pieces = out.par_chunks_mut(size).zip(values.par_chunks(size)).zip(given.par_chunks(size));
    let sums: Vec<Vec<(f64, f64)>> = pieces
        .zip(rows.par_chunks(ROWS))
        .map(|(((out, values), given), rows)| {
            let mut sums = vec![(0.0, 0.0); width];
            let each = out.chunks_mut(width).zip(values.chunks(width)).zip(given.chunks(width));
            for (((out, x), g), (mean, inverse)) in each.zip(rows) {
                let normal = |x: &T| (x.to_f64() - mean) * inverse;
                let (mut first, mut second) = (0.0, 0.0);
                for (((x, g), factor), sum) in x.iter().zip(g).zip(&factors).zip(&mut sums) {
                    let (x, g) = (normal(x), g.to_f64());
                    first += g * factor;
                    second += g * factor * x;
                    sum.0 += g * x;
                    sum.1 += g;
                }
                let (first, second) = (first / width as f64, second / width as f64);
                for (((out, x), g), factor) in out.iter_mut().zip(x).zip(g).zip(&factors) {
                    let h = g.to_f64() * factor;
                    *out = T::from_elem((h - first - normal(x) * second) * inverse);
                }
            }
            sums
        })
        .collect();
    let total = |part: fn(&(f64, f64)) -> f64| {
        let sum = |c: usize| T::from_elem(sums.iter().map(|s| part(&s[c])).sum::<f64>());
        tensor((0..width).map(sum).collect(), gamma)
    };
    [tensor(out, x), total(|s| s.0), total(|s| s.1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Distribution;

    /// burn's own operation and its gradients; rounding in 64 bits is all that may differ.
    #[test]
    fn values_and_gradients_are_those_of_burn() {
        let device = Device::flex().autodiff();
        let random = |shape: [usize; 3]| {
            Tensor::<3>::random(shape, Distribution::Normal(0.3, 2.0), &device).cast(DType::F64)
        };
        let (batch, length, width) = (3, 50, 24);
        let x = random([batch, length, width]).detach().require_grad();
        let weigh = random([batch, length, width]);
        let row = |shift: f64| (random([1, 1, width]) + shift).reshape([width]).detach();
        let (gamma, beta) = (row(1.0).require_grad(), row(0.0).require_grad());
        let norm = Norm {
            gamma: Param::from_tensor(gamma.clone()),
            beta: Param::from_tensor(beta.clone()),
            epsilon: 1e-5,
        };
        let (gamma, beta) = (norm.gamma.val(), norm.beta.val());
        let close = |a: Tensor<1>, b: Tensor<1>| {
            let worst = (a - b.clone()).abs().max().into_scalar::<f64>();
            let scale = b.abs().max().into_scalar::<f64>();
            assert!(worst <= 1e-12 * scale, "{worst} of {scale}");
        };
        // Strides that are not those of a plain tensor must be read right too.
        let turned = |t: Tensor<3>| t.swap_dims(0, 1);
        let ours = norm.forward(turned(x.clone()));
        let theirs = layer_norm(turned(x.clone()), gamma.clone(), Some(beta.clone()), 1e-5);
        let flat = |t: Tensor<3>| t.reshape([batch * length * width]);
        close(flat(ours.clone()).inner(), flat(theirs.clone()).inner());
        let ours = (ours * turned(weigh.clone())).sum().backward();
        let theirs = (theirs * turned(weigh)).sum().backward();
        close(flat(x.grad(&ours).unwrap()), flat(x.grad(&theirs).unwrap()));
        close(gamma.grad(&ours).unwrap(), gamma.grad(&theirs).unwrap());
        close(beta.grad(&ours).unwrap(), beta.grad(&theirs).unwrap());
    }
}
