//! Attention and kernel products in linear time, by random features.
//!
//! Attention, kernel regression and density estimation all need a matrix of kernel values for every
//! pair of vectors, which takes quadratic time. This crate estimates the kernel
//! `K(x,y) = exp(α‖x‖² + xᵀy + α‖y‖²)`, softmax (`α = 0`) or Gaussian (`α = −½`), by a mean of products
//! `f₁(ω,x) f₂(ω,y)` over random ω. The matrix is then a product of two thin ones, and `K(X,Y)·C`, or
//! attention, takes time and memory linear in the sizes of the sets.
//!
//! Features are fitted to the data in closed form: any parameters give an unbiased estimate, and fitting
//! lowers its variance. Positive features are kept as logarithms, so there is no ε and nothing
//! overflows. The same seed gives the same draws on every machine.
//!
//! # Fit a map
//!
//! A [`FeatureSpec`] says which [`Family`], [`Kernel`], number of features, [`Coupling`] and seed to use.
//! [`FeatureSpec::fit`] makes a [`FeatureMap`] from the [`Moments`] of queries and keys, which are all it
//! needs to know about the data: they can be gathered in pieces and merged.
//!
//! ```
//! use favor::{Family, FeatureSpec, Kernel, Matrix, Moments, kernel_product};
//!
//! let x = Matrix::from_fn(1000, 3, |i, l| ((7 * i + l) as f64).sin());
//! let moments = Moments::of(x.view())?;
//! let map = FeatureSpec::new(Family::Balanced, 256)
//!     .kernel(Kernel::gaussian())
//!     .seed(1)
//!     .fit(&moments, &moments)?;
//!
//! // How many neighbours does each row have? The row sums of a kernel matrix that is never made.
//! let ones = Matrix::from_fn(1000, 1, |_, _| 1.0);
//! let sums = kernel_product(&map, x.view(), x.view(), ones.view())?.to_matrix()?;
//! let exact = map.kernel().product(x.view(), x.view(), ones.view())?.to_matrix()?;
//! assert!((sums[(0, 0)] / exact[(0, 0)] - 1.0).abs() < 0.1);
//! # Ok::<(), favor::Error>(())
//! ```
//!
//! For data that come in pieces or lie on several machines, use [`KeySums`]. [`maps_to_bytes`] and
//! [`maps_from_bytes`] store maps.
//!
//! # Attention
//!
//! [`attention`](attention()) takes queries, keys and values as tensors `[batch, heads, length, dim]` of
//! `f32`, `f64`, `f16` or `bf16`, and a [`Method`]: exact, by features, or by features with some exact
//! keys. [`AttentionOptions`] has masks, causality and threads; [`attention_backward`] has the gradients,
//! and [`DecodeState`] generates token by token.
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
//! If you have queries and keys of a head, [`learned::learn_maps`] learns its map from them, which is
//! usually far more accurate than drawing one. [`AdaptiveMaps`] refits maps during training.
//!
//! # How large is the error?
//!
//! Four times as many features halve it, and it depends on the data: long vectors need many features.
//! [`diagnose`] predicts it before anything is computed, and says when the exact kernel is the better
//! choice ([`Kernel::product`], [`Method::Exact`]).
//!
//! ```
//! use favor::diagnose::{Advice, Candidate, Estimator, break_even, predict, recommend, sample_rows};
//! use favor::{Family, Kernel, Matrix, Moments};
//!
//! let x = Matrix::from_fn(2000, 8, |i, l| ((7 * i + l) as f64).sin());
//! let moments = Moments::of(x.view())?;
//! let estimator = Estimator::fit(Family::Balanced, Kernel::attention(8), &moments, &moments)?;
//!
//! // The error of attention, relative to its output, from a sample of the queries and keys.
//! let (queries, keys) = (sample_rows(x.view(), 8, 0), sample_rows(x.view(), 200, 1));
//! let prediction = predict(&estimator, queries.view(), keys.view(), Some(keys.view()))?;
//! let needed = prediction.and_then(|p| p.features_for_output(0.2)).unwrap();
//!
//! let candidate = Candidate { family: Family::Balanced, features: needed };
//! let advice = recommend(&[candidate], break_even(2000, 2000, false)).unwrap();
//! assert!(matches!(advice, Advice::Features { .. }));
//! # Ok::<(), favor::Error>(())
//! ```
//!
//! [`choose_heads`] decides for every head of a layer; [`diagnose::attention_error`] measures.
//!
//! # Where to go next
//!
//! - Kernel ridge regression, Gaussian processes, classification and density on arrays: [`learn`].
//! - Plain `f64` versions of everything, a few lines each: [`mod@reference`].
//! - The [guide], the [method] with its formulas, and [benchmarks] against other libraries.
//! - The programs in `examples`: `cargo run --release -p favor --example attention`.
//! - The command `favor` (crate `favor-cli`), tables and SQL (`favor-tables`), transformers on burn
//!   (`favor-nn`), linfa (`favor-linfa`), and Python (`pip install favor-sharp`).
//!
//! [guide]: https://github.com/favor-sharp/favor-sharp/blob/main/docs/guide.md
//! [method]: https://github.com/favor-sharp/favor-sharp/blob/main/docs/method.md
//! [benchmarks]: https://github.com/favor-sharp/favor-sharp/blob/main/docs/benchmarks.md

#![deny(rustdoc::broken_intra_doc_links)]

#[macro_use]
mod named;

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
pub use named::{nearest, unknown_name};
pub use parameters::{Parameters, objective_floor, optimal_quadratic};
pub use rows::{Matrix, Rows};

/// The example of the page that registries show.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
