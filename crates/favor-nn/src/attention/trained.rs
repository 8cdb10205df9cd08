//! Attention whose maps are trained: the engine, with gradients of the numbers of the maps too.

use super::host::{self, Call, HostTensor, Shared, foreign, plain, tensor, view};
use crate::Result;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients as Graph;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor};
use favor::Qkv;
use favor::learned::{MapGradient, map_gradients};
use std::sync::Arc;

/// The numbers of the maps of all heads, as [`favor::FeatureMap::with_weights`] takes them.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    /// `[heads, features, dim]`.
    pub(crate) query: Tensor<3>,
    /// `[heads, features, dim]`.
    pub(crate) key: Tensor<3>,
    /// `[heads, features]`.
    pub(crate) constants: Tensor<2>,
}

/// Attention by the maps of the call, which are those with these numbers.
pub(super) fn attend([q, k, v]: [Tensor<4>; 3], numbers: Numbers, call: Call) -> Result<Tensor<4>> {
    let tracked = numbers.query.is_autodiff();
    if !tracked {
        return host::attend(q, k, v, call);
    }
    let [q, k, v] =
        [q, k, v].map(|t| t.autodiff().try_into_primitive::<Autodiff<Flex>>().map_err(foreign));
    let ((q, node_q), (k, node_k), (v, node_v)) =
        (q?.into_parts(), k?.into_parts(), v?.into_parts());
    let Numbers { query, key, constants } = numbers;
    let [query, key] =
        [query, key].map(|t| t.try_into_primitive::<Autodiff<Flex>>().map_err(foreign));
    let constants = constants.try_into_primitive::<Autodiff<Flex>>().map_err(foreign)?;
    let ((query, node_query), (_, node_key), (_, node_constants)) =
        (query?.into_parts(), key?.into_parts(), constants.into_parts());
    let shape = query.layout().shape().dims::<3>();
    let out = host::forward(&call, &q, &k, &v)?;
    let nodes = [node_q, node_k, node_v, node_query, node_key, node_constants];
    let out = match Operation.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::UnTracked(prepared) => prepared.finish(out),
        OpsKind::Tracked(prepared) => {
            let inputs = host::Saved { call: Arc::new(call), inputs: [q, k, v, out.clone()] };
            prepared.finish(Saved { inputs, shape }, out)
        }
    };
    Ok(Tensor::from_primitive::<Autodiff<Flex>>(out))
}

/// What the backward pass needs.
#[derive(Debug, Clone)]
struct Saved {
    inputs: host::Saved,
    /// Heads, features and dimension.
    shape: [usize; 3],
}

#[derive(Debug)]
struct Operation;

impl Backward<Flex, 6> for Operation {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 6>, graph: &mut Graph, _: &mut Checkpointer) {
        let gradient = graph.consume::<Flex>(&ops.node);
        let Saved { inputs, shape } = &ops.state;
        let [q, k, v] = host::backward(inputs, &gradient);
        let wanted = ops.parents[3..].iter().any(Option::is_some);
        let numbers = wanted.then(|| numbers(inputs, &gradient, *shape));
        let [query, key, constants] = numbers.map_or([None, None, None], |n| n.map(Some));
        let all = [Some(q), Some(k), Some(v), query, key, constants];
        for (parent, gradient) in ops.parents.into_iter().zip(all) {
            if let (Some(node), Some(gradient)) = (parent, gradient) {
                graph.register::<Flex>(node.id, gradient);
            }
        }
    }
}

/// The gradients of the numbers, or NaN with a reason left where the call says.
fn numbers(
    saved: &host::Saved,
    gradient: &HostTensor,
    [heads, features, dim]: [usize; 3],
) -> [HostTensor; 3] {
    let found = match gradient.dtype() {
        DType::F64 => of_maps::<f64>(saved, gradient),
        _ => of_maps::<f32>(saved, gradient),
    };
    let part = |number: fn(&MapGradient) -> &[f64], size: usize| -> Vec<f32> {
        match &found {
            Ok(maps) => maps.iter().flat_map(|m| number(m).iter().map(|x| *x as f32)).collect(),
            Err(_) => vec![f32::NAN; heads * size],
        }
    };
    let all = [
        tensor(part(|m| m.query.as_slice(), features * dim), [heads, features, dim]),
        tensor(part(|m| m.key.as_slice(), features * dim), [heads, features, dim]),
        tensor(part(|m| &m.constants, features), [heads, features]),
    ];
    if let Err(error) = found {
        saved.call.failure.report(error);
    }
    all
}

fn of_maps<T: Shared>(saved: &host::Saved, gradient: &HostTensor) -> Result<Vec<MapGradient>> {
    let host::Saved { call, inputs } = saved;
    let (inputs, gradient) = (inputs.each_ref().map(plain), plain(gradient));
    let [q, k, v, out] = inputs.each_ref().map(view::<T>);
    let (inputs, out, gradient) = (Qkv::new(q?, k?, v?), out?, view::<T>(&gradient)?);
    Ok(map_gradients(call.method()?, inputs, out, gradient, &call.options())?)
}
