//! Models on tables against plain computations, in one program: it links a query engine.

mod buckets;
mod common;
mod encoding;
mod errors;
mod files;
mod fitting;
mod functions;
mod heads;
mod predicting;
mod sources;
mod streaming;
mod workers;
