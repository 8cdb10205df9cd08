//! Transformers on burn with attention by random features: FAVOR# and its relatives as a layer, BERT
//! and a speech recogniser on it.

pub mod attention;
pub mod audio;
pub mod bert;
mod error;
mod layer;
mod op;
pub mod run;
pub mod speech;
pub mod task;
pub mod text;
pub mod train;
mod weights;

pub use attention::Attention;
pub use error::{Error, Result};
pub use favor::{Coupling, Family, Statistics};
pub use layer::{
    AttentionOptions, FavorAttention, FavorAttentionConfig, MapState, Norm, Positions,
};

/// The page with Rust in it, compiled and run by `cargo test`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/transformers.md")]
struct Page;
