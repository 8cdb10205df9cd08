//! Attention as a differentiable operation on burn's tensors `[batch, heads, length, dim]`.
//!
//! On the CPU (burn's `flex`) the engine of [`favor`] computes values and gradients, without copies of
//! its inputs. On any other device plain tensor operations do, and burn differentiates them. The two
//! agree in value and gradient.

mod failure;
mod host;
mod kind;
mod linear;
mod mask;
mod tensors;
mod trained;

pub use failure::BackwardFailure;
pub(crate) use host::{Follow, HostView};
pub use kind::Attention;
pub use mask::KeyMask;
pub(crate) use trained::Numbers;

use crate::host::is_flex;
use crate::{Error, Result};
use burn::tensor::{DType, Tensor};
use favor::{ExactKeys, FeatureMap, Kernel};
use std::sync::Arc;

/// Which code computes attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Implementation {
    /// The engine of [`favor`] on the CPU, tensor operations elsewhere.
    #[default]
    Auto,
    /// Tensor operations everywhere.
    Tensors,
}

/// How attention is computed from queries, keys and values.
#[derive(Debug, Clone)]
pub enum AttendMethod {
    /// Softmax of the scaled products.
    Exact,
    /// Linear attention with `elu(x) + 1`.
    Elu,
    /// Linear attention with `relu(x) + ε`.
    Relu,
    /// The plain mean of the values.
    Mean,
    /// The features of these maps: one for all heads, one per head, or one per sequence and head.
    Features(Arc<[FeatureMap]>),
    /// By features, with some keys of each query attended exactly.
    Hybrid {
        /// As for [`AttendMethod::Features`].
        maps: Arc<[FeatureMap]>,
        /// Which keys are exact: one entry for all heads, one per head, or one per sequence and head as
        /// [`favor::choose_heads`] orders them. Tensor operations compute a head exactly or by features
        /// alone.
        exact: Arc<[ExactKeys]>,
    },
}

impl AttendMethod {
    /// The same for the engine, where it computes this kind.
    fn for_engine(&self, kernel: Kernel) -> Option<favor::Method<'_>> {
        match self {
            Self::Exact => Some(favor::Method::Exact(kernel)),
            Self::Features(maps) => Some(favor::Method::Features(maps)),
            Self::Hybrid { maps, exact } => Some(favor::Method::Hybrid { maps, exact }),
            Self::Elu | Self::Relu | Self::Mean => None,
        }
    }
}

/// All of a call of [`attend`] but its tensors and its method.
///
/// ```
/// use favor_nn::attention::AttendOptions;
/// let options = AttendOptions::default().causal(true);
/// assert!(options.causal && options.mask.is_none());
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AttendOptions<'a> {
    /// Which keys are padding; `None`: none of them.
    pub mask: Option<&'a KeyMask>,
    /// Whether a query sees its own and earlier keys only.
    pub causal: bool,
    /// Which code computes.
    pub implementation: Implementation,
    /// Where a backward pass on the CPU leaves the reason of its failure.
    pub failure: BackwardFailure,
}

setters! { AttendOptions<'a> {
    mask: Option<&'a KeyMask>,
    causal: bool,
    implementation: Implementation,
    failure: BackwardFailure,
} }

/// ε of the ReLU features.
pub const RELU_EPSILON: f64 = 1e-3;

/// Attention over `[batch, heads, length, dim]`, differentiable in queries, keys and values. Maps and
/// choices are constants. A query that sees no key gives zeros.
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use favor_nn::attention::{AttendOptions, AttendMethod, attend};
/// let device = Device::flex();
/// device.seed(1);
/// let x = || Tensor::<4>::random([1, 2, 10, 8], Distribution::Default, &device);
/// let out = attend(x(), x(), x(), &AttendMethod::Exact, &AttendOptions::default())?;
/// assert_eq!(out.dims(), [1, 2, 10, 8]);
/// # Ok::<(), favor_nn::Error>(())
/// ```
pub fn attend(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    method: &AttendMethod,
    options: &AttendOptions<'_>,
) -> Result<Tensor<4>> {
    let AttendOptions { mask, causal, .. } = *options;
    let kernel = Kernel::attention(q.dims()[3]);
    let by_engine = method.for_engine(kernel).is_some();
    if by_engine && options.implementation == Implementation::Auto && on_host(&q) {
        check_mask(&k, mask)?;
        let (method, mask) = (method.clone(), mask.map(|m| m.visible().clone()));
        let failure = options.failure.clone();
        return host::attend(q, k, v, host::Call { method, kernel, mask, causal, failure });
    }
    check([&q, &k, &v], method, mask, causal)?;
    match method {
        AttendMethod::Exact => Ok(tensors::exact(q, k, v, (&[kernel], None), mask, causal)),
        AttendMethod::Elu => Ok(linear::attend(linear::elu, q, k, v, mask, causal)),
        AttendMethod::Relu => Ok(linear::attend(linear::relu, q, k, v, mask, causal)),
        AttendMethod::Mean => Ok(linear::attend(linear::constant, q, k, v, mask, causal)),
        AttendMethod::Features(maps) => tensors::features(q, k, v, maps, mask, causal),
        AttendMethod::Hybrid { maps, exact } => {
            tensors::hybrid(q, k, v, (maps, exact), mask, causal)
        }
    }
}

/// The same by maps with these numbers, which are trained.
pub(crate) fn attend_trained(
    qkv: [Tensor<4>; 3],
    numbers: Numbers,
    method: &AttendMethod,
    options: &AttendOptions<'_>,
) -> Result<Tensor<4>> {
    if options.implementation == Implementation::Tensors || !on_host(&qkv[0]) {
        return Err(Error::invalid("maps", "they are trained on the CPU alone"));
    }
    let AttendOptions { mask, causal, .. } = *options;
    check_mask(&qkv[1], mask)?;
    let kernel = Kernel::attention(qkv[0].dims()[3]);
    let (method, mask) = (method.clone(), mask.map(|m| m.visible().clone()));
    let failure = options.failure.clone();
    trained::attend(qkv, numbers, host::Call { method, kernel, mask, causal, failure })
}

/// Exact attention with a term for each pair of query and key, `[batch, heads, queries, keys]`, added to
/// their product before it is scaled.
pub(crate) fn exact_with_bias(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    bias: Tensor<4>,
    mask: Option<&KeyMask>,
    causal: bool,
) -> Result<Tensor<4>> {
    check([&q, &k, &v], &AttendMethod::Exact, mask, causal)?;
    let kernel = Kernel::attention(q.dims()[3]);
    Ok(tensors::exact(q, k, v, (&[kernel], Some(bias)), mask, causal))
}

/// Whether the engine can read the tensor where it lies.
pub(crate) fn on_host(tensor: &Tensor<4>) -> bool {
    is_flex(&tensor.device()) && matches!(tensor.dtype(), DType::F32 | DType::F64)
}

/// What the engine checks itself, for what tensor operations compute.
fn check(
    inputs: [&Tensor<4>; 3],
    method: &AttendMethod,
    mask: Option<&KeyMask>,
    causal: bool,
) -> Result<()> {
    let [q, k, _] = inputs;
    check_mask(k, mask)?;
    let kernel = Kernel::attention(q.dims()[3]);
    let method = method.for_engine(kernel).unwrap_or(favor::Method::Exact(kernel));
    let options = favor::AttentionOptions::new().causal(causal);
    Ok(method.check(inputs.map(|t| t.dims()), &options)?)
}

fn check_mask(keys: &Tensor<4>, mask: Option<&KeyMask>) -> Result<()> {
    let [batch, _, length, _] = keys.dims();
    match mask {
        Some(mask) if mask.shape() != [batch, length] => {
            let reason = format!("shape {:?} where keys are {:?}", mask.shape(), [batch, length]);
            Err(Error::invalid("key mask", reason))
        }
        _ => Ok(()),
    }
}
