//! Random features that turn the softmax and Gaussian kernels into linear-time products.

mod element;
mod error;
mod rows;

pub mod draw;

pub use draw::Coupling;
pub use element::Element;
pub use error::{Error, Result};
pub use rows::{Matrix, Rows};
