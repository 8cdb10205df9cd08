//! `favor near`.

use crate::failure::Outcome;
use crate::list::List;
use crate::terminal::{self, Bar};
use favor_io::{HeadArrays, write_atomically};
use favor_lab::near::{NearOptions, measure};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor near --queries qkv.npz:q --keys qkv.npz:k --values qkv.npz:v
  favor near --queries q.npy --keys k.npy --values v.npy --causal --windows 0,64 --plot near.svg";

/// Measure how exact attention to nearby keys reduces the error.
///
/// Keys within the window are exact and all others go through features, under one normalisation.
/// For comparison: the window alone, and the plain mean of the values. Queries and keys are
/// multiplied by d^(-1/4), as in attention. The maps are fitted to each head.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Queries: a file such as q.npy, or file:array such as qkv.npz:q
    #[arg(long, value_name = "FILE")]
    queries: String,
    /// Keys, one per query
    #[arg(long, value_name = "FILE")]
    keys: String,
    /// Values, one per key
    #[arg(long, value_name = "FILE")]
    values: String,
    /// Window widths: number of keys before and after each query
    #[arg(long, value_name = "W,…", default_value_t = List(NearOptions::default().widths))]
    windows: List<usize>,
    /// Number of features
    #[arg(long, value_name = "M", default_value_t = NearOptions::default().features)]
    features: usize,
    /// Family of the feature maps
    #[arg(long, value_name = "NAME", default_value_t = NearOptions::default().family)]
    family: favor::Family,
    /// Causal attention: queries see only keys that are not later
    #[arg(long)]
    causal: bool,
    /// Print JSON at full precision instead of a table
    #[arg(long)]
    json: bool,
    /// Plot the errors to this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Seed for random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let arrays = HeadArrays::read(&self.queries, &self.keys, Some(&self.values))?;
        let options = NearOptions::default()
            .widths(self.windows.0)
            .features(self.features)
            .family(self.family)
            .causal(self.causal)
            .seed(self.seed);
        let bar = Bar::new("near");
        let found = measure(&arrays, &options, &|tick| bar.show(tick))?;
        drop(bar);
        if let Some(path) = &self.plot {
            write_atomically(path, found.to_svg().as_bytes())?;
        }
        terminal::print(&if self.json { found.to_json() } else { found.to_text() })
    }
}
