//! Models on tables against plain computations, in one program: it links a query engine.

mod common;
mod errors;
mod files;
mod fitting;
mod functions;
#[cfg(feature = "linfa")]
mod linfa;
mod predicting;
mod sources;
mod streaming;
