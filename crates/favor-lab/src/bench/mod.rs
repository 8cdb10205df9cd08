//! How fast the engine is on this machine: time, extra memory and error of each kind of work.
//!
//! Times are the best of several runs. They say little alone: compare them with a peer's, taken in
//! turns on the same machine.

mod decoding;
mod inputs;
mod memory;
mod report;
mod seen;
mod sgemm;
mod work;

pub use report::{Measured, to_json, to_text};
pub use work::Work;

use crate::{Error, Result};
use favor::{ExactKeys, Family};
use favor_io::progress::{Counter, Listener};
use inputs::Inputs;

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BenchOptions {
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
    /// Sequences.
    pub batch: usize,
    /// Whether a fifth of the keys is padding, in attention.
    pub masked: bool,
    /// Whether each sequence is several, packed one after the other, in attention.
    pub packed: bool,
    /// The family of the maps.
    pub family: Family,
    /// The keys that attention by features and decoding attend to exactly.
    pub exact: ExactKeys,
    /// Threads; rayon's own number if `None`.
    pub threads: Option<usize>,
    /// Runs of each measurement, more if they are short; the best counts.
    pub runs: usize,
    /// Decides data and draws.
    pub seed: u64,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            works: Work::OURS.to_vec(),
            lengths: vec![1024, 4096, 16_384],
            features: vec![128],
            dim: 64,
            heads: 8,
            batch: 1,
            masked: false,
            packed: false,
            family: Family::Balanced,
            exact: ExactKeys::NONE,
            threads: None,
            runs: 3,
            seed: 0,
        }
    }
}

setters! { BenchOptions {
    works: Vec<Work>,
    lengths: Vec<usize>,
    features: Vec<usize>,
    dim: usize,
    heads: usize,
    batch: usize,
    masked: bool,
    packed: bool,
    family: Family,
    exact: ExactKeys,
    threads: Option<usize>,
    runs: usize,
    seed: u64,
} }

impl BenchOptions {
    fn check(&self) -> Result<()> {
        let sizes =
            [("dim", self.dim), ("heads", self.heads), ("batch", self.batch), ("runs", self.runs)];
        let lengths = self.lengths.iter().map(|&n| ("lengths", n));
        let features = self.features.iter().map(|&n| ("features", n));
        let zero = sizes.into_iter().chain(lengths).chain(features).find(|(_, size)| *size == 0);
        if let Some((what, _)) = zero {
            return Err(Error::invalid(what, "0 is too few; give at least 1"));
        }
        if self.packed && self.batch > 1 {
            return Err(Error::invalid("packed", "packed sequences are a batch of one"));
        }
        let missing = [("works", self.works.is_empty()), ("features", self.features.is_empty())];
        match missing.into_iter().find(|(_, missing)| *missing) {
            Some((what, _)) => Err(Error::invalid(what, "give at least one")),
            None => Ok(()),
        }
    }
}

/// Measures every combination; exact work is left out where it would take minutes.
pub fn run(options: &BenchOptions, listener: &Listener<'_>) -> Result<Vec<Measured>> {
    options.check()?;
    let BenchOptions { works, lengths, features, .. } = options;
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
        let inputs = Inputs::new(options, group[0].0)?;
        for &(length, work, m) in group {
            measured.push(work::measure(work, options, &inputs, m)?);
            counter.step(&format!("{} {length}", work.name()));
        }
    }
    Ok(measured)
}
