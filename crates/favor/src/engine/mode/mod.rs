//! The modes of the engine, one head at a time: features for every query, causal features, exact
//! attention, features with keys that are exact, and kernel products; each with its gradients.

mod backward;
mod causal;
mod causal_backward;
mod exact;
mod exact_backward;
mod forward;
mod hybrid;
mod key_sums;
mod product;

pub(crate) use backward::{HeadGradients, HeadInputs, backward};
pub(crate) use causal::{forward_causal, walk_on};
pub(crate) use causal_backward::backward_causal;
pub(crate) use exact::exact_head;
pub(crate) use exact_backward::exact_backward;
pub(crate) use forward::{forward, visible};
pub(crate) use hybrid::{Hybrid, State, StateUndo, Tools};
pub(crate) use key_sums::{add_keys, apply_sums};
pub use product::{ProductGradients, kernel_product, kernel_product_backward};
pub(crate) use product::{product, product_backward};
