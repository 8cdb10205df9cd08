//! Random features that turn the softmax and Gaussian kernels into linear-time products.

mod attention;
mod element;
mod engine;
mod error;
mod family;
mod kernel;
mod linalg;
mod map;
mod moments;
mod parameters;
mod product;
mod rows;
mod simd;

pub mod diagnose;
pub mod draw;

pub use attention::{Baseline, Mask, baseline_attention, exact_attention, feature_attention};
pub use draw::Coupling;
pub use element::Element;
pub use engine::{Gradients, Number, Options, Tensor, attention, attention_backward};
pub use error::{Error, Result};
pub use family::Family;
pub use kernel::{Kernel, LogScaled};
pub use map::{FeatureMap, FeatureSpec, Side};
pub use moments::Moments;
pub use parameters::{Parameters, best_quadratic, floor};
pub use product::{KeySums, kernel_product};
pub use rows::{Matrix, Rows};
