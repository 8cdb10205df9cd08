//! How fast the engine is on this machine: time, extra memory and error of each kind of work.
//!
//! Times are the best of several runs. They say little alone: compare them with a peer's, taken in
//! turns on the same machine.

mod inputs;
mod memory;
mod report;
mod sgemm;
mod work;

pub use report::{Measured, to_json, to_text};
pub use work::Work;

use crate::{Error, Result};
use favor::Family;
use favor_io::progress::{Counter, Listener};
use inputs::Inputs;

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The kinds of work.
    pub works: Vec<Work>,
    /// Tokens, or points on each side of a product.
    pub lengths: Vec<usize>,
    /// Numbers of features.
    pub features: Vec<usize>,
    /// Dimension of keys and values.
    pub dim: usize,
    /// Heads.
    pub heads: usize,
    /// The family of the maps.
    pub family: Family,
    /// Threads; rayon's own number if `None`.
    pub threads: Option<usize>,
    /// Runs of each measurement, more if they are short; the best counts.
    pub runs: usize,
    /// Decides data and draws.
    pub seed: u64,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            works: Work::OURS.to_vec(),
            lengths: vec![1024, 4096, 16_384],
            features: vec![128],
            dim: 64,
            heads: 8,
            family: Family::Balanced,
            threads: None,
            runs: 3,
            seed: 0,
        }
    }
}

/// Measures every combination; exact work is left out where it would take minutes.
pub fn run(request: &Request, listener: &Listener<'_>) -> Result<Vec<Measured>> {
    let Request { works, lengths, features, dim, heads, runs, .. } = request;
    let positive = [(*dim, "dim"), (*heads, "heads"), (*runs, "runs")];
    for (value, name) in positive {
        if value == 0 {
            return Err(Error::Invalid(format!("{name} must be at least 1")));
        }
    }
    if lengths.contains(&0) || features.contains(&0) {
        return Err(Error::Invalid("lengths and features must be at least 1".into()));
    }
    let mut tasks = vec![];
    for &length in lengths {
        for &work in works {
            let counts = if work.uses_features() { &features[..] } else { &features[..1] };
            tasks.extend(
                counts.iter().map(|&m| (length, work, m)).filter(|_| work.bearable(length)),
            );
        }
    }
    let counter = Counter::new(listener, tasks.len());
    let mut measured = vec![];
    // Tasks come by length, so one set of inputs is in memory at a time.
    for group in tasks.chunk_by(|a, b| a.0 == b.0) {
        let inputs = Inputs::new(request, group[0].0)?;
        for &(length, work, m) in group {
            measured.push(work::measure(work, request, &inputs, m)?);
            counter.step(&format!("{} {length}", work.name()));
        }
    }
    Ok(measured)
}
