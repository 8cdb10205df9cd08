//! Models on tables against plain computations, in one program: it links a query engine.

mod buckets;
mod common;
mod errors;
mod files;
mod fitting;
mod functions;
mod predicting;
mod sources;
mod streaming;
mod workers;
