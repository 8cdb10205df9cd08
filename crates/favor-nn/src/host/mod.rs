//! Operations on the CPU with gradients of their own, for the layers around an attention. On other
//! devices, or in other formats than `f32`, burn's own operations compute the same.

mod affine;
mod curve;
mod dense;
mod dropout;
pub(crate) mod lanes;
mod lookup;
mod norm;
mod operation;

pub use affine::rowwise;
pub use curve::{gelu, sigmoid, silu, tanh};
pub use dropout::drop_some;
pub use lookup::lookup;
pub use norm::Norm;
pub use operation::{HostOperation, Input, Output, apply};

use burn::backend::DispatchDevice;
use burn::tensor::Device;

/// Whether tensors of a device can be read where they lie.
pub(crate) fn is_flex(device: &Device) -> bool {
    *device == Device::flex()
        && !matches!(device.as_dispatch(), DispatchDevice::Autodiff(a)
        if a.gradient_checkpointing_strategy() != Default::default())
}
