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

/// Measure what exact neighbours around each query do to the error of attention.
///
/// Keys within the window count exactly, all others by features, in one normalisation. Next to it
/// stand the window alone and the plain mean of the values. Queries and keys are multiplied by
/// d^(-1/4), as attention does; the maps are fitted to each head.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Queries, as in q.npy, or file:array as in qkv.npz:q
    #[arg(long, value_name = "FILE")]
    queries: String,
    /// Keys, one per query
    #[arg(long, value_name = "FILE")]
    keys: String,
    /// Values, one per key
    #[arg(long, value_name = "FILE")]
    values: String,
    /// Widths of the near field: keys before and behind each query
    #[arg(long, value_name = "W,…", default_value_t = List(NearOptions::default().widths))]
    windows: List<usize>,
    /// Number of features
    #[arg(long, value_name = "M", default_value_t = NearOptions::default().features)]
    features: usize,
    /// The family of the maps
    #[arg(long, value_name = "NAME", default_value_t = NearOptions::default().family)]
    family: favor::Family,
    /// Queries see only keys that are not later
    #[arg(long)]
    causal: bool,
    /// Print JSON at full precision instead of a table
    #[arg(long)]
    json: bool,
    /// Draw the errors as a figure, as in near.svg
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Decides the draws
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
