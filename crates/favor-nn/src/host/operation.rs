//! Operations of our own on the CPU: slices in, slices out, with gradients of their own.

use crate::{Error, Result};
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Flex};
use burn::tensor::{Tensor, TensorData};
use std::fmt::Debug;
use std::sync::Arc;

type HostTensor = <Flex as burn::backend::BackendTypes>::FloatTensorPrimitive;
type Tracked = <Autodiff<Flex> as burn::backend::BackendTypes>::FloatTensorPrimitive;

/// What an operation gives.
pub struct Output<const D: usize> {
    /// The numbers, row by row.
    pub values: Vec<f32>,
    /// Their axes.
    pub shape: [usize; D],
    /// What only the backward pass needs; nothing if there will be none.
    pub kept: Vec<f32>,
}

/// An operation on `N` tensors in `f32`, whose result has `D` axes.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use favor_nn::host::{HostOperation, Input, Output, apply};
///
/// /// The sum of all numbers.
/// #[derive(Debug)]
/// struct Sum {
///     count: usize,
/// }
///
/// impl HostOperation<1, 1> for Sum {
///     const INPUTS: bool = false;
///
///     fn forward(&self, [x]: [&[f32]; 1], _: bool) -> Output<1> {
///         Output { values: vec![x.iter().sum()], shape: [1], kept: vec![] }
///     }
///
///     fn backward(&self, _: [&[f32]; 1], _: Vec<f32>, gradient: &[f32]) -> [Vec<f32>; 1] {
///         [vec![gradient[0]; self.count]]
///     }
/// }
///
/// let x = Tensor::<2>::ones([3, 4], &Device::flex().autodiff()).require_grad();
/// let sum = apply(Sum { count: 12 }, [Input::new(x.clone())?]);
/// assert_eq!(x.grad(&sum.backward()).unwrap().sum().into_scalar::<f32>(), 12.0);
/// # Ok::<(), favor_nn::Error>(())
/// ```
pub trait HostOperation<const N: usize, const D: usize>: Debug + Send + Sync + 'static {
    /// Whether the backward pass looks at the inputs.
    const INPUTS: bool;

    /// `tracked` says whether a backward pass may follow.
    fn forward(&self, inputs: [&[f32]; N], tracked: bool) -> Output<D>;

    /// The gradients of the inputs, which are empty slices unless asked for.
    fn backward(&self, inputs: [&[f32]; N], kept: Vec<f32>, gradient: &[f32]) -> [Vec<f32>; N];
}

/// A tensor of any number of axes.
pub struct Input {
    tensor: Tracked,
    tracked: bool,
}

impl Input {
    /// A tensor of the CPU in `f32`.
    pub fn new<const D: usize>(tensor: Tensor<D>) -> Result<Self> {
        let tracked = tensor.is_autodiff();
        let refuse = |e| {
            let reason = format!("this operation is computed on the CPU (flex) in f32: {e:?}");
            Error::invalid("device", reason)
        };
        let tensor = tensor.autodiff().try_into_primitive::<Autodiff<Flex>>().map_err(refuse)?;
        Ok(Self { tensor, tracked })
    }
}

/// The result of an operation, tracked if any input is.
pub fn apply<const N: usize, const D: usize, O: HostOperation<N, D>>(
    operation: O,
    inputs: [Input; N],
) -> Tensor<D> {
    let tracked = inputs.iter().any(|input| input.tracked);
    let parts = inputs.map(|input| input.tensor.into_parts());
    let tensors = parts.each_ref().map(|(tensor, _)| tensor.to_contiguous());
    let nodes = parts.map(|(_, node)| node);
    let Output { values, shape, kept } = operation.forward(tensors.each_ref().map(slice), tracked);
    let out = HostTensor::from_data(TensorData::new(values, shape));
    if !tracked {
        return Tensor::from_primitive::<Flex>(out);
    }
    let step = Step::<O, D> { operation: Arc::new(operation) };
    let out = match step.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::UnTracked(prepared) => prepared.finish(out),
        OpsKind::Tracked(prepared) => {
            let shapes = tensors.each_ref().map(|t| t.layout().shape().iter().copied().collect());
            let inputs = O::INPUTS.then_some(tensors);
            prepared.finish(Saved { shapes, inputs, kept }, out)
        }
    };
    Tensor::from_primitive::<Autodiff<Flex>>(out)
}

fn slice(tensor: &HostTensor) -> &[f32] {
    let layout = tensor.layout();
    let count = layout.shape().iter().product::<usize>();
    &tensor.storage::<f32>()[layout.start_offset()..][..count]
}

#[derive(Debug)]
struct Step<O, const D: usize> {
    operation: Arc<O>,
}

#[derive(Debug, Clone)]
struct Saved<const N: usize> {
    shapes: [Vec<usize>; N],
    inputs: Option<[HostTensor; N]>,
    kept: Vec<f32>,
}

impl<const N: usize, const D: usize, O: HostOperation<N, D>> Backward<Flex, N> for Step<O, D> {
    type State = Saved<N>;

    fn backward(self, ops: Ops<Saved<N>, N>, graph: &mut Gradients, _: &mut Checkpointer) {
        let gradient = graph.consume::<Flex>(&ops.node).to_contiguous();
        let Saved { shapes, inputs, kept } = ops.state;
        let slices = match &inputs {
            Some(tensors) => tensors.each_ref().map(slice),
            None => [&[][..]; N],
        };
        let found = self.operation.backward(slices, kept, slice(&gradient));
        for ((parent, values), shape) in ops.parents.into_iter().zip(found).zip(shapes) {
            if let Some(node) = parent {
                let data = TensorData::new(values, shape);
                graph.register::<Flex>(node.id, HostTensor::from_data(data));
            }
        }
    }
}
