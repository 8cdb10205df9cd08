//! Random features that turn the softmax and Gaussian kernels into linear-time products.
//!
//! The kernel `K(x,y) = exp(α‖x‖² + xᵀy + α‖y‖²)` is estimated as a mean of products `f₁(ω,x) f₂(ω,y)`
//! over random ω. A kernel matrix is then a product of two thin matrices, and `K(X,Y)·C`, or attention,
//! takes time and memory linear in the sizes of the sets.
//!
//! How the crate fits together:
//!
//! 1. [`Rows`] and [`Matrix`] hold sets of vectors; [`Moments`] summarises one.
//! 2. [`FeatureSpec`] chooses the [`Family`], [`Kernel`], number of features, [`Coupling`] and seed, and
//!    [`FeatureSpec::fit`] makes a [`FeatureMap`] from the moments of both sides.
//! 3. Pass the map to [`kernel_product`] or [`KeySums`] (streams, several workers), or as a [`Method`]
//!    to [`attention`](attention()) on tensors.
//! 4. [`diagnose`] tells you in advance how many features an accuracy needs, or to use the exact kernel:
//!    [`Kernel::product`], [`Method::Exact`].
//! 5. [`mod@reference`] has plain `f64` versions of everything.
//!
//! ```
//! use favor::{AttentionOptions, Family, FeatureSpec, Kernel, Matrix, Method, Moments, Qkv, Tensor};
//!
//! // 64 tokens, one head of dimension 8.
//! let q = Matrix::from_fn(64, 8, |i, l| ((3 * i + l) as f32).sin());
//! let k = Matrix::from_fn(64, 8, |i, l| ((5 * i + l) as f32).cos());
//! let v = Matrix::from_fn(64, 8, |i, l| (i * l) as f32 / 500.0);
//!
//! let spec = FeatureSpec::new(Family::Balanced, 256).kernel(Kernel::attention(8)).seed(1);
//! let map = spec.fit(&Moments::of(q.view())?, &Moments::of(k.view())?)?;
//!
//! let tensor = |m| Tensor::new(Matrix::as_slice(m), [1, 1, 64, 8]);
//! let inputs = Qkv::new(tensor(&q)?, tensor(&k)?, tensor(&v)?);
//! let out = favor::attention(Method::Features(&[map]), inputs, &AttentionOptions::new())?;
//! assert_eq!(out.len(), 64 * 8);
//! # Ok::<(), favor::Error>(())
//! ```
//!
//! Parameters are fitted in closed form. Features are positive (except the trigonometric ones) and kept
//! as logarithms, so no ε is needed and nothing overflows. Any parameters give an unbiased estimate;
//! fitting only lowers the variance. The same seed gives the same draws everywhere.

mod adapt;
mod attention;
mod engine;
mod error;
mod family;
mod float;
mod kernel;
mod key_sums;
mod linalg;
mod map;
mod moments;
mod parameters;
mod rows;
mod simd;
mod threads;

pub mod diagnose;
pub mod draw;
pub mod learn;
pub mod learned;
pub mod reference;
pub mod store;

pub use adapt::{AdaptiveMaps, MapPolicy, Redraw, Statistics, fit_heads, fit_sequences};
pub use attention::{
    AttentionOptions, Choice, ExactKeys, Gradients, Method, Qkv, attention, attention_backward,
    attention_into, choose_heads,
};
pub use draw::Coupling;
pub use engine::{
    DecodeState, ProductGradients, Scalar, Tensor, kernel_product, kernel_product_backward,
};
pub use error::{Error, Result};
pub use family::Family;
pub use float::Float;
pub use kernel::{Kernel, LogScaled};
pub use key_sums::KeySums;
pub use map::{
    FeatureMap, FeatureSpec, LearnedFrom, Projection, RowTerm, Side, maps_from_bytes,
    maps_to_bytes, maps_to_bytes_with_note, note_from_bytes,
};
pub use moments::Moments;
pub use parameters::{Parameters, objective_floor, optimal_quadratic};
pub use rows::{Matrix, Rows};
