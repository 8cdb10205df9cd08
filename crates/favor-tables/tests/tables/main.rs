//! Models on tables against plain computations, in one program: it links a query engine.

mod buckets;
mod common;
mod errors;
mod files;
mod fitting;
mod functions;
#[cfg(feature = "linfa")]
mod linfa;
mod predicting;
mod rows;
mod sources;
mod streaming;
