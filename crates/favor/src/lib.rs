//! Random features that turn the softmax and Gaussian kernels into linear-time products.
//!
//! The kernel `K(x,y) = exp(α‖x‖² + xᵀy + α‖y‖²)` is estimated as a mean of products
//! `f₁(ω,x) f₂(ω,y)` over random ω. A kernel matrix then is a product of two thin matrices, and
//! `K(X,Y)·C`, or attention, takes time and memory linear in the sizes of the sets.
//!
//! The way through the crate:
//!
//! 1. [`Rows`] and [`Matrix`] hold sets of vectors; [`Moments`] sums one up.
//! 2. [`FeatureSpec`] says which [`Family`], [`Kernel`], number of features, [`Coupling`] and seed,
//!    and [`FeatureSpec::fit`] makes a [`FeatureMap`] of the moments of both sides.
//! 3. The map serves [`kernel_product`] and [`KeySums`] (streams, several workers), and
//!    [`attention`](attention()) on tensors.
//! 4. [`diagnose`] says beforehand how many features an accuracy needs, or to use the exact kernel:
//!    [`Kernel::product`], [`exact_attention`].
//!
//! ```
//! use favor::{Family, FeatureSpec, Kernel, Matrix, Moments, Options, Tensor, attention};
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
//! let out = attention(&[map], tensor(&q)?, tensor(&k)?, tensor(&v)?, &Options::default())?;
//! assert_eq!(out.len(), 64 * 8);
//! # Ok::<(), favor::Error>(())
//! ```
//!
//! Parameters are fitted in closed form, features are positive (but for the trigonometric ones)
//! and kept as logarithms, so no ε is needed and nothing overflows. Any parameters give an unbiased
//! estimate; fitting only lowers the variance. The same seed gives the same draws everywhere.

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
pub use engine::{
    AdaptiveMaps, Choice, DecodeState, Gradients, Number, Options, ProductGradients, Redraw,
    Statistics, Tensor, attention, attention_backward, attention_into, auto_attention,
    auto_attention_backward, choose, exact_attention_backward, exact_attention_tensors,
    kernel_product, kernel_product_backward,
};
pub use error::{Error, Result};
pub use family::Family;
pub use kernel::{Kernel, LogScaled};
pub use map::{FeatureMap, FeatureSpec, Side};
pub use moments::Moments;
pub use parameters::{Parameters, best_quadratic, floor};
pub use product::KeySums;
pub use rows::{Matrix, Rows};
