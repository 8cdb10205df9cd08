//! The engine as an operation of burn's CPU backend, with its own gradients.

use super::{AttendMethod, BackwardFailure};
use crate::{Error, Result};
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients as Graph;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Element, Tensor, TensorData};
use bytemuck::Pod;
use favor::{AdaptiveMaps, AttentionOptions, Choice, FeatureMap, Gradients, Kernel, Qkv, Scalar};
use std::sync::Arc;

/// burn's tensor on the CPU.
pub(super) type HostTensor = <Flex as burn::backend::BackendTypes>::FloatTensorPrimitive;

/// All of a call but its tensors.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: AttendMethod,
    pub(super) kernel: Kernel,
    pub(super) mask: Option<Arc<Vec<bool>>>,
    pub(super) causal: bool,
    pub(super) failure: BackwardFailure,
}

/// Attention by the engine, tracked if any of the inputs is.
pub(super) fn attend(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, call: Call) -> Result<Tensor<4>> {
    let tracked = [&q, &k, &v].iter().any(|t| t.is_autodiff());
    if !tracked {
        let [q, k, v] = [q, k, v].map(|t| t.try_into_primitive::<Flex>().map_err(foreign));
        return Ok(Tensor::from_primitive::<Flex>(forward(&call, &q?, &k?, &v?)?));
    }
    let [q, k, v] =
        [q, k, v].map(|t| t.autodiff().try_into_primitive::<Autodiff<Flex>>().map_err(foreign));
    let ((q, node_q), (k, node_k), (v, node_v)) =
        (q?.into_parts(), k?.into_parts(), v?.into_parts());
    let out = forward(&call, &q, &k, &v)?;
    let prepared = Operation.prepare::<NoCheckpointing>([node_q, node_k, node_v]);
    let out = match prepared.compute_bound().stateful() {
        OpsKind::UnTracked(prepared) => prepared.finish(out),
        OpsKind::Tracked(prepared) => {
            let state = Saved { call: Arc::new(call), inputs: [q, k, v, out.clone()] };
            prepared.finish(state, out)
        }
    };
    Ok(Tensor::from_primitive::<Autodiff<Flex>>(out))
}

pub(super) fn foreign(error: impl std::fmt::Debug) -> Error {
    Error::invalid("attention", format!("queries, keys and values on one device: {error:?}"))
}

/// What the backward pass needs.
#[derive(Debug, Clone)]
pub(super) struct Saved {
    pub(super) call: Arc<Call>,
    /// Queries, keys, values and outputs.
    pub(super) inputs: [HostTensor; 4],
}

#[derive(Debug)]
struct Operation;

impl Backward<Flex, 3> for Operation {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 3>, graph: &mut Graph, _: &mut Checkpointer) {
        let gradient = graph.consume::<Flex>(&ops.node);
        let gradients = backward(&ops.state, &gradient);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some(node) = parent {
                graph.register::<Flex>(node.id, gradient);
            }
        }
    }
}

pub(super) fn forward(
    call: &Call,
    q: &HostTensor,
    k: &HostTensor,
    v: &HostTensor,
) -> Result<HostTensor> {
    match q.dtype() {
        DType::F64 => forward_in::<f64>(call, q, k, v),
        _ => forward_in::<f32>(call, q, k, v),
    }
}

pub(super) fn backward(saved: &Saved, gradient: &HostTensor) -> [HostTensor; 3] {
    match gradient.dtype() {
        DType::F64 => backward_in::<f64>(saved, gradient),
        _ => backward_in::<f32>(saved, gradient),
    }
}

/// A number format that both burn and the engine know.
pub(super) trait Shared: Scalar + Element + Pod {}
impl Shared for f32 {}
impl Shared for f64 {}

fn forward_in<T: Shared>(
    call: &Call,
    q: &HostTensor,
    k: &HostTensor,
    v: &HostTensor,
) -> Result<HostTensor> {
    let [q, k, v] = [q, k, v].map(plain);
    let (q, k, v) = (view::<T>(&q)?, view::<T>(&k)?, view::<T>(&v)?);
    let out = favor::attention(call.method()?, Qkv::new(q, k, v), &call.options())?;
    Ok(tensor(out, [q.shape()[0], q.shape()[1], q.shape()[2], v.shape()[3]]))
}

fn backward_in<T: Shared>(saved: &Saved, gradient: &HostTensor) -> [HostTensor; 3] {
    let [q, k, v, _] = &saved.inputs;
    let shapes = [q, k, v].map(|t| t.layout().shape().dims::<4>());
    // A backward pass cannot refuse. Whoever looks at the norm of the gradients, as the training loop
    // does, sees NaN and finds the reason where the call has left it.
    let undefined = |n: [usize; 4]| vec![T::from_elem(f32::NAN); n.iter().product()];
    let found = gradients::<T>(saved, gradient).unwrap_or_else(|error| {
        saved.call.failure.report(error);
        let [q, k, v] = shapes.map(undefined);
        Gradients { q, k, v }
    });
    let [a, b, c] = shapes;
    [tensor(found.q, a), tensor(found.k, b), tensor(found.v, c)]
}

fn gradients<T: Shared>(saved: &Saved, gradient: &HostTensor) -> Result<Gradients<T>> {
    let Saved { call, inputs } = saved;
    let (inputs, gradient) = (inputs.each_ref().map(plain), plain(gradient));
    let [q, k, v, out] = inputs.each_ref().map(view::<T>);
    let (q, k, v, out, gradient) = (q?, k?, v?, out?, view::<T>(&gradient)?);
    let inputs = Qkv::new(q, k, v);
    Ok(favor::attention_backward(call.method()?, inputs, out, gradient, &call.options())?)
}

impl Call {
    pub(super) fn method(&self) -> Result<favor::Method<'_>> {
        let unknown = || Error::invalid("attention", "the engine does not compute this kind");
        self.method.for_engine(self.kernel).ok_or_else(unknown)
    }

    pub(super) fn options(&self) -> AttentionOptions<'_> {
        let key_mask = self.mask.as_ref().map(|m| m.as_slice());
        AttentionOptions::new().causal(self.causal).key_mask(key_mask)
    }
}

/// The tensor, copied only if some of its strides are negative.
pub(super) fn plain(tensor: &HostTensor) -> HostTensor {
    if tensor.layout().strides().iter().all(|s| *s >= 0) {
        tensor.clone()
    } else {
        tensor.to_contiguous()
    }
}

/// The engine's view of a tensor, where it lies.
pub(super) fn view<T: Shared>(tensor: &HostTensor) -> Result<favor::Tensor<'_, T>> {
    let layout = tensor.layout();
    let strides: Vec<usize> = layout.strides().iter().map(|s| s.unsigned_abs()).collect();
    let strides = [strides[0], strides[1], strides[2], strides[3]];
    let data = &tensor.storage::<T>()[layout.start_offset()..];
    Ok(favor::Tensor::with_strides(data, layout.shape().dims::<4>(), strides)?)
}

pub(super) fn tensor<T: Shared, const D: usize>(values: Vec<T>, shape: [usize; D]) -> HostTensor {
    HostTensor::from_data(TensorData::new(values, shape))
}

/// What maps are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Follow {
    /// Statistics alone.
    Calibrate,
    /// The maps of a training call.
    Train { causal: bool },
    /// The maps as they are.
    Evaluate { causal: bool },
}

/// Queries, keys or values as the host sees them, without a place in any graph. Only those of another
/// device are copied.
pub(crate) struct HostView(HostTensor);

impl HostView {
    pub(crate) fn of(tensor: &Tensor<4>) -> Result<Self> {
        let tensor = tensor.clone().without_autodiff();
        if super::on_host(&tensor) {
            return Ok(Self(plain(&tensor.try_into_primitive::<Flex>().map_err(foreign)?)));
        }
        let unread = |e| Error::invalid("attention", format!("cannot be read from device: {e:?}"));
        let data = tensor.try_into_data_dtype(DType::F32).map_err(unread)?;
        Ok(Self(HostTensor::from_data(data)))
    }

    /// The maps for these queries and keys, or none for a calibration.
    pub(crate) fn follow(
        [q, k]: [&Self; 2],
        maps: &mut AdaptiveMaps,
        mask: Option<&[bool]>,
        how: Follow,
    ) -> Result<Option<Vec<FeatureMap>>> {
        fn follow<T: Shared>(
            [q, k]: [&HostView; 2],
            maps: &mut AdaptiveMaps,
            mask: Option<&[bool]>,
            how: Follow,
        ) -> Result<Option<Vec<FeatureMap>>> {
            let (q, k) = (view::<T>(&q.0)?, view::<T>(&k.0)?);
            Ok(match how {
                Follow::Calibrate => {
                    maps.calibrate(q, k, mask)?;
                    None
                }
                Follow::Train { causal } => Some(maps.training(q, k, mask, causal)?),
                Follow::Evaluate { causal } => Some(maps.evaluation(q, k, mask, causal)?),
            })
        }
        match q.0.dtype() {
            DType::F64 => follow::<f64>([q, k], maps, mask, how),
            _ => follow::<f32>([q, k], maps, mask, how),
        }
    }

    /// Exact or features, for each sequence and head.
    pub(crate) fn choose(
        [q, k, v]: [&Self; 3],
        maps: &[FeatureMap],
        mask: Option<&[bool]>,
        causal: bool,
        tolerance: f64,
    ) -> Result<Vec<Choice>> {
        fn choose<T: Shared>(
            [q, k, v]: [&HostView; 3],
            maps: &[FeatureMap],
            options: &AttentionOptions<'_>,
            tolerance: f64,
        ) -> Result<Vec<Choice>> {
            let (q, k, v) = (view::<T>(&q.0)?, view::<T>(&k.0)?, view::<T>(&v.0)?);
            Ok(favor::choose_heads(maps, Qkv::new(q, k, v), options, tolerance)?)
        }
        let options = AttentionOptions::new().causal(causal).key_mask(mask);
        match q.0.dtype() {
            DType::F64 => choose::<f64>([q, k, v], maps, &options, tolerance),
            _ => choose::<f32>([q, k, v], maps, &options, tolerance),
        }
    }
}
