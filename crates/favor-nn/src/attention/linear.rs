//! Linear attention by features that estimate no softmax: ELU, ReLU and a constant, in tensor operations.

use super::{KeyMask, RELU_EPSILON};
use burn::tensor::activation::relu as relu_of;
use burn::tensor::{Bool, Tensor};

/// `elu(x) + 1`.
pub(super) fn elu(x: Tensor<4>) -> Tensor<4> {
    // max(x, 0) + exp(min(x, 0)): no exponential of a large number, nor its gradient.
    relu_of(x.clone()) + x.clamp_max(0.0).exp()
}

/// `relu(x) + ε`.
pub(super) fn relu(x: Tensor<4>) -> Tensor<4> {
    relu_of(x) + RELU_EPSILON
}

/// The same for all rows, so that every key counts alike. Gradients are zeros.
pub(super) fn constant(x: Tensor<4>) -> Tensor<4> {
    x * 0.0 + 1.0
}

pub(super) fn attend(
    features: fn(Tensor<4>) -> Tensor<4>,
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    mask: Option<&KeyMask>,
    causal: bool,
) -> Tensor<4> {
    let (device, length) = (q.device(), q.dims()[2]);
    let hidden = mask.map(|mask| mask.hidden(&device).swap_dims(2, 3));
    let clean = |t: Tensor<4>| match &hidden {
        Some(hidden) => t.clone().mask_fill(hidden.clone().expand(t.shape()), 0.0),
        None => t,
    };
    // Padding may hold anything, and 0 · NaN is NaN, in gradients too: it is cleared before its
    // features are taken, and the features of zero after.
    let (q, k, v) = (features(q), clean(features(clean(k))), clean(v));
    if causal {
        // In the square of the length: a baseline, not what anybody should use for long texts.
        let later = Tensor::<2, Bool>::tril_mask([length, length], 0, &device);
        let pairs = q.matmul(k.swap_dims(2, 3));
        let weights = pairs.clone().mask_fill(later.unsqueeze::<4>().expand(pairs.shape()), 0.0);
        return ratio(weights.clone().matmul(v), weights.sum_dim(3));
    }
    let sums = k.clone().swap_dims(2, 3).matmul(v);
    let total = q.clone() * k.sum_dim(2);
    ratio(q.matmul(sums), total.sum_dim(3))
}

/// Zeros for a query that saw no key.
pub(super) fn ratio(values: Tensor<4>, total: Tensor<4>) -> Tensor<4> {
    let empty = total.clone().equal_scalar(0.0);
    let inverse = total.mask_fill(empty.clone(), 1.0).recip().mask_fill(empty, 0.0);
    values * inverse
}
