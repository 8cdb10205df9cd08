//! Attention in plain tensor operations, for devices that the engine does not know.

use super::KeyMask;
use super::linear::ratio;
use crate::{Error, Result};
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use favor::{ExactKeys, FeatureMap, Kernel, Matrix, Projection, RowTerm};

/// Queries and keys of a causal step that meet one by one.
const STEP: usize = 16;

/// A logarithm so low that its exponential is nothing, but that can still be added to.
const NOTHING: f32 = -1e30;

/// Exact attention, with the whole matrix of weights, by one kernel for all heads, one per head, or one per
/// sequence and head. `bias` is added to the products of queries and keys, before they are scaled.
pub(super) fn exact(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    (kernels, bias): (&[Kernel], Option<Tensor<4>>),
    mask: Option<&KeyMask>,
    causal: bool,
) -> Tensor<4> {
    let (device, [batch, heads, length, _], keys) = (q.device(), q.dims(), k.dims()[2]);
    let shape = [batch, heads, length, keys];
    let (k, v) = without_padding(k, v, mask, &device);
    let [a, b] = lead(kernels.len(), batch, heads);
    let per_head = |number: fn(&Kernel) -> f64| {
        let numbers: Vec<f64> = kernels.iter().map(number).collect();
        Tensor::<4>::from_data(TensorData::new(numbers, [a, b, 1, 1]), (&device, v.dtype()))
    };
    let products = q.matmul(k.clone().swap_dims(2, 3));
    let products = match bias {
        Some(bias) => products + bias,
        None => products,
    };
    let mut logits = products * per_head(|kernel| kernel.scale().powi(2));
    if kernels.iter().any(|kernel| kernel.alpha() != 0.0) {
        // α‖sy‖²; the same of the query cancels.
        let norms = k.square().sum_dim(3).swap_dims(2, 3);
        logits = logits + norms * per_head(|kernel| kernel.alpha() * kernel.scale().powi(2));
    }
    if let Some(mask) = mask {
        logits = logits.mask_fill(mask.hidden(&device).expand(shape), NOTHING);
    }
    if causal {
        let later = Tensor::<2, Bool>::tril_mask([length, keys], 0, &device);
        logits = logits.mask_fill(later.unsqueeze::<4>().expand(shape), NOTHING);
    }
    let out = softmax(logits.clone(), 3).matmul(v);
    let seen = logits.max_dim(3).greater_scalar(NOTHING / 2.0);
    out.clone().mask_fill(seen.bool_not().expand(out.shape()), 0.0)
}

/// Some heads exactly, the others by features.
pub(super) fn hybrid(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    (maps, exact_keys): (&[FeatureMap], &[ExactKeys]),
    mask: Option<&KeyMask>,
    causal: bool,
) -> Result<Tensor<4>> {
    let [batch, heads, ..] = q.dims();
    if let Some(some) = exact_keys.iter().find(|e| !e.is_all() && !e.is_none()) {
        let reason = format!("exact keys ({some}) are computed by the engine alone, on the CPU");
        return Err(Error::invalid("attention", reason));
    }
    let exact_heads: Vec<bool> = exact_keys.iter().map(ExactKeys::is_all).collect();
    let [a, b] = lead(exact_heads.len(), batch, heads);
    let device = q.device();
    let kernels: Vec<Kernel> = maps.iter().map(|map| map.kernel()).collect();
    let exactly = |q, k, v| exact(q, k, v, (&kernels, None), mask, causal);
    if !exact_heads.contains(&false) {
        return Ok(exactly(q, k, v));
    }
    let features = features(q.clone(), k.clone(), v.clone(), maps, mask, causal)?;
    if !exact_heads.contains(&true) {
        return Ok(features);
    }
    let which = TensorData::new(exact_heads, [a, b, 1, 1]);
    let which = Tensor::<4, Bool>::from_data(which, &device).expand(features.shape());
    Ok(features.mask_where(which, exactly(q, k, v)))
}

/// What the engine computes.
pub(super) fn features(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    maps: &[FeatureMap],
    mask: Option<&KeyMask>,
    causal: bool,
) -> Result<Tensor<4>> {
    let ([batch, heads, ..], device) = (q.dims(), q.device());
    let lead = lead(maps.len(), batch, heads);
    let (k, v) = without_padding(k, v, mask, &device);
    let queries = Side::new(maps, lead, true, &q)?.log_features(q, false);
    let mut keys = Side::new(maps, lead, false, &k)?.log_features(k, true);
    if let Some(mask) = mask {
        let hidden = mask.hidden(&device).swap_dims(2, 3).expand(keys.shape());
        keys = keys.mask_fill(hidden, NOTHING);
    }
    Ok(if causal { causal_sums(queries, keys, v) } else { all_sums(queries, keys, v) })
}

/// The leading axes of so many maps, kernels or choices, which go with `[batch, heads]`.
fn lead(count: usize, batch: usize, heads: usize) -> [usize; 2] {
    match count {
        1 => [1, 1],
        n if n == heads => [1, heads],
        _ => [batch, heads],
    }
}

/// Zeros at padding, which may hold anything: 0 · NaN is NaN.
fn without_padding(
    k: Tensor<4>,
    v: Tensor<4>,
    mask: Option<&KeyMask>,
    device: &Device,
) -> (Tensor<4>, Tensor<4>) {
    let Some(mask) = mask else { return (k, v) };
    let hidden = mask.hidden(device).swap_dims(2, 3);
    let clean = |t: Tensor<4>| t.clone().mask_fill(hidden.clone().expand(t.shape()), 0.0);
    (clean(k), clean(v))
}

/// One side of the maps: `log f(x) = W(sx + shift) + constants + row term`. The leading axes go with
/// `[batch, heads]`.
struct Side {
    weights: Tensor<4>,
    constants: Tensor<4>,
    shift: Tensor<4>,
    transform: Tensor<4>,
    linear: Tensor<4>,
    alpha: Tensor<4>,
    scale: Tensor<4>,
}

impl Side {
    fn new(maps: &[FeatureMap], lead: [usize; 2], query: bool, like: &Tensor<4>) -> Result<Self> {
        let (features, dim) = (maps[0].features(), maps[0].dim());
        if maps.iter().any(|m| m.features() != features) {
            return Err(Error::invalid("attention", "maps of different sizes; all must be alike"));
        }
        let side = if query { favor::Side::Query } else { favor::Side::Key };
        let parts = maps.iter().map(|map| Part::of(map, side)).collect::<Result<Vec<_>>>()?;
        let device = like.device();
        let dtype = like.dtype();
        let pack = |numbers: for<'p> fn(&'p Part<'_>) -> &'p [f64], rows: usize, columns: usize| {
            let all: Vec<f64> =
                parts.iter().flat_map(|part| numbers(part).iter().copied()).collect();
            let data = TensorData::new(all, [lead[0], lead[1], rows, columns]);
            Tensor::<4>::from_data(data, (&device, dtype))
        };
        Ok(Self {
            weights: pack(|s| s.projection.weights.as_slice(), features, dim),
            constants: pack(|s| &s.projection.constants, 1, features),
            shift: pack(|s| &s.projection.shift, 1, dim),
            transform: pack(|s| s.transform.as_slice(), dim, dim),
            linear: pack(|s| s.linear, 1, dim),
            alpha: pack(|s| std::slice::from_ref(&s.alpha), 1, 1),
            scale: pack(|s| std::slice::from_ref(&s.scale), 1, 1),
        })
    }

    /// `[batch, heads, length, features]`. Without the row term, which cancels for queries.
    fn log_features(self, x: Tensor<4>, row_term: bool) -> Tensor<4> {
        let x = x * self.scale;
        let moved = x.clone() + self.shift;
        let logs = moved.clone().matmul(self.weights.swap_dims(2, 3)) + self.constants;
        if !row_term {
            return logs;
        }
        let transformed = moved.matmul(self.transform.swap_dims(2, 3)).square().sum_dim(3) * 0.5;
        let linear = (x.clone() * self.linear).sum_dim(3);
        let norm = x.square().sum_dim(3) * self.alpha;
        logs + (norm - transformed - linear)
    }
}

/// One side of one map, as the library projects by it. The constant of the row term cancels.
struct Part<'a> {
    projection: &'a Projection,
    transform: &'a Matrix<f64>,
    linear: &'a [f64],
    alpha: f64,
    scale: f64,
}

impl<'a> Part<'a> {
    fn of(map: &'a FeatureMap, side: favor::Side) -> Result<Self> {
        let projection = map.side(side);
        let RowTerm::Exponential { transform, linear, alpha, .. } = &projection.row else {
            let reason = "needs a positive family, not a trigonometric one";
            return Err(Error::invalid("attention", reason));
        };
        let scale = map.kernel().scale();
        Ok(Self { projection, transform, linear, alpha: *alpha, scale })
    }
}

/// The maximum as a constant: every use of it cancels.
fn peak(logs: &Tensor<4>, axis: usize) -> Tensor<4> {
    logs.clone().detach().max_dim(axis)
}

/// Every query sees every key.
fn all_sums(queries: Tensor<4>, keys: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let top = peak(&keys, 2);
    // Where every key is padding, nothing is left of the weights.
    let some = top.clone().greater_scalar(NOTHING / 2.0);
    let weights = (keys - top.clone()).exp();
    let weights = weights.clone() * some.clone().expand(weights.shape()).float().cast(v.dtype());
    let queries = queries + top.mask_fill(some.bool_not(), 0.0);
    let queries = (queries.clone() - peak(&queries, 3)).exp();
    let total = (queries.clone() * weights.clone().sum_dim(2)).sum_dim(3);
    ratio(queries.matmul(weights.swap_dims(2, 3).matmul(v)), total)
}

/// Every query sees its own and earlier keys: sums over the steps before, and one by one within a
/// step, so that no later key has a say in the scale.
fn causal_sums(queries: Tensor<4>, keys: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let ([batch, heads, length, features], device) = (keys.dims(), keys.device());
    let columns = v.dims()[3];
    let empty = |shape| Tensor::<4>::zeros(shape, (&device, v.dtype()));
    let mut top = empty([batch, heads, 1, features]) + NOTHING;
    let mut total = empty([batch, heads, 1, features]);
    let mut sums = empty([batch, heads, features, columns]);
    let mut out = Vec::new();
    for start in (0..length).step_by(STEP) {
        let count = STEP.min(length - start);
        let cut = |t: &Tensor<4>| t.clone().narrow(2, start, count);
        let (f, g, w) = (cut(&queries), cut(&keys), cut(&v));
        let pairs = within(&f, &g);
        // The steps before, and this one, to one scale.
        let before = f + top.clone();
        let scale = peak(&before, 3).max_pair(peak(&pairs, 3));
        // A query that has seen nothing yet has no scale; its weights are then nothing too.
        let unseen = scale.clone().lower_scalar(NOTHING / 2.0);
        let scale = scale.mask_fill(unseen, 0.0);
        let (far, near) = ((before - scale.clone()).exp(), (pairs - scale).exp());
        let values = far.clone().matmul(sums.clone()) + near.clone().matmul(w.clone());
        let weight = (far * total.clone()).sum_dim(3) + near.sum_dim(3);
        out.push(ratio(values, weight));
        // The keys of the step join the sums.
        let new = top.clone().max_pair(peak(&g, 2));
        let shown = g.clone().detach().greater_scalar(NOTHING / 2.0).float().cast(v.dtype());
        let (shrink, fresh) = ((top - new.clone()).exp(), (g - new.clone()).exp() * shown);
        sums = shrink.clone().swap_dims(2, 3) * sums + fresh.clone().swap_dims(2, 3).matmul(w);
        total = shrink * total + fresh.sum_dim(2);
        top = new;
    }
    Tensor::cat(out, 2)
}

/// The logarithms of the weights of pairs within a step, `[batch, heads, queries, keys]`.
fn within(f: &Tensor<4>, g: &Tensor<4>) -> Tensor<4> {
    let (device, count) = (f.device(), f.dims()[2]);
    let pairs = f.clone().unsqueeze_dim::<5>(3) + g.clone().unsqueeze_dim::<5>(2);
    let top = pairs.clone().detach().max_dim(4);
    let logs = (pairs - top.clone()).exp().sum_dim(4).log() + top;
    let logs = logs.squeeze_dim::<4>(4);
    let padding = g.clone().detach().max_dim(3).lower_scalar(NOTHING / 2.0).swap_dims(2, 3);
    let later = Tensor::<2, Bool>::tril_mask([count, count], 0, &device).unsqueeze::<4>();
    let hidden = later.expand(logs.shape()).bool_or(padding.expand(logs.shape()));
    logs.mask_fill(hidden, NOTHING)
}
