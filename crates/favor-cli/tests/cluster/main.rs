//! Clusters of real processes on this machine: one scheduler and two executors each.

#![cfg(feature = "cluster")]

mod data;
mod harness;
mod loss;
mod refusals;
mod results;
#[cfg(feature = "s3")]
mod store;
