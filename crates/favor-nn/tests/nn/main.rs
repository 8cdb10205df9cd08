//! Transformers with attention by features: against transformers, against themselves on another
//! engine, against finite differences.

mod attention;
mod bert;
mod common;
mod convert;
mod files;
mod layer;
mod runs;
mod training;
