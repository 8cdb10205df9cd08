//! What surrounds the estimators: arrays read from files, figures drawn as SVG, and files written
//! so that a reader never sees half of one.
//!
//! - [`input`] reads `.npy`, `.npz`, `.safetensors` and `.csv` files into matrices,
//! - [`figure`] draws line charts and bar charts,
//! - [`output`] writes files in one step.

pub mod figure;
pub mod input;
pub mod output;
