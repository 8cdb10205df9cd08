//! The fast engine: attention and kernel products in fused tiles, with memory `O(M·d)` beside the
//! inputs and outputs. The plain implementations are what it is tested against.

mod adapt;
mod attention;
mod auto;
mod backward;
mod causal;
mod causal_backward;
mod decode;
mod exact;
mod exact_backward;
mod forward;
mod gradient;
mod near;
mod number;
mod packing;
mod product;
mod stream;
mod strided;
mod sums;
mod tensor;
mod threads;
mod tile;

pub use adapt::{AdaptiveMaps, Redraw, Statistics};
pub use attention::{Gradients, Options, attention, attention_backward, attention_into};
pub use auto::{Choice, auto_attention, auto_attention_backward, choose};
pub use decode::DecodeState;
pub use exact::exact_attention_tensors;
pub use exact_backward::exact_attention_backward;
pub use number::Number;
pub use product::{ProductGradients, kernel_product, kernel_product_backward};
pub use tensor::Tensor;
