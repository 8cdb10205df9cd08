//! The fast engine: attention and kernel products in fused tiles, with memory `O(M·d)` beside the
//! inputs and outputs. The plain implementations in [`reference`](mod@crate::reference) are what it is
//! tested against.
//!
//! - `tensor`: tensors of any strides and number format,
//! - `tile`: a block of rows packed, projected and turned into features while it is in cache,
//! - `mode`: what is computed of one head, forward and backward,
//! - `decode`: attention token by token,
//! - `entry`: all of it once per number format.

mod decode;
pub(crate) mod entry;
pub(crate) mod mode;
pub(crate) mod tensor;
mod tile;

pub use decode::DecodeState;
pub use mode::{ProductGradients, kernel_product, kernel_product_backward};
pub use tensor::{Scalar, Tensor};
