//! The fast engine: attention and kernel products in fused tiles, with memory `O(M·d)` beside the
//! inputs and outputs. The plain implementations are what it is tested against.

mod attention;
mod backward;
mod causal;
mod causal_backward;
mod decode;
mod exact;
mod forward;
mod gradient;
mod number;
mod product;
mod strided;
mod sums;
mod tensor;
mod threads;
mod tile;

pub use attention::{Gradients, Options, attention, attention_backward};
pub use decode::DecodeState;
pub use exact::{exact_attention_backward, exact_attention_tensors};
pub use number::Number;
pub use product::{ProductGradients, kernel_product, kernel_product_backward};
pub use tensor::Tensor;
