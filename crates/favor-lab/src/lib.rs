//! The experiments.
//!
//! - [`inspection`] draws what `favor-inspect` found on given queries and keys,
//! - [`learning`] learns maps, measures them on held-out sequences, and shows both as one page,
//! - [`near`] measures what exact neighbours do to the error,
//! - [`variance`] repeats the paper's comparison of variances,
//! - [`uci`] repeats the paper's kernel classification,
//! - [`demo`] shows the three jobs of the library on synthetic data, as one page,
//! - [`mod@bench`] measures the engine on this machine.
//!
//! An experiment is one function: plain data in, a struct out. The struct knows how to write itself
//! as text, JSON, CSV, SVG or a page.

#[macro_use(setters)]
extern crate favor_io;

pub mod bench;
pub mod demo;
pub mod families;
pub mod finding;
pub mod inspection;
pub mod learning;
pub mod near;
pub mod uci;
pub mod variance;

mod error;
mod page;

pub use error::{Error, Result};
