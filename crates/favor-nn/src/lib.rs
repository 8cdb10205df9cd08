//! Transformers on burn with attention by random features: FAVOR# and its relatives as a layer, and BERT
//! on it.

#[macro_use(setters)]
extern crate favor_io;

pub mod attention;
pub mod batches;
pub mod bert;
mod error;
pub mod host;
mod layer;
pub mod run;
pub mod store;
pub mod task;
#[cfg(test)]
mod testing;
pub mod text;
pub mod train;
mod weights;

pub use attention::Attention;
pub use error::{Error, Result};
pub use favor::{Coupling, Family, Redraw, Statistics};
pub use layer::{
    FavorAttention, FavorAttentionConfig, GivenMaps, LayerHeads, LayerOptions, Positions,
};

/// The page with Rust in it, compiled and run by `cargo test`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/transformers.md")]
struct Page;
