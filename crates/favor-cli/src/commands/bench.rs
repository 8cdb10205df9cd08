//! `favor bench`.

use crate::failure::Outcome;
use crate::list::List;
use crate::routed::Routed;
use crate::terminal::{self, Bar};
use favor::ExactKeys;
use favor_lab::bench::{BenchOptions, Work, run, to_json, to_text};

const EXAMPLES: &str = "Examples:
  favor bench
  favor bench --work forward,exact --length 1024,16384 --features 128,256 --threads 2
  favor bench --work forward,causal,decode --length 16384 --features 64 --near 16 --routed 4x8
  favor bench --work causal,prompt,prompt_pieces,decode --length 4096 --near 16
  favor bench --work product --length 1000000 --dim 16 --heads 1 --features 256 --json";

/// Benchmark this machine: time, extra memory and error of each kind of work.
///
/// Times are the best of several runs. With the defaults, it takes about a minute.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Comma-separated kinds of work: forward, backward, causal, causal_backward, exact,
    /// exact_causal, exact_backward, prompt and prompt_pieces (into the state of decoding, at once
    /// or 512 tokens at a time), decode, pack (what the first call with a map takes longer than the
    /// second), product; all of these by default. Also sgemm, a matrix product by faer for
    /// comparison
    #[arg(long, value_name = "NAME,…")]
    work: Option<List<Work>>,
    /// Sequence lengths, or the number of points on each side of a product
    #[arg(long, value_name = "L,…", default_value_t = List(BenchOptions::default().lengths))]
    length: List<usize>,
    /// Numbers of features
    #[arg(long, value_name = "M,…", default_value_t = List(BenchOptions::default().features))]
    features: List<usize>,
    /// Dimension of keys and values
    #[arg(long, value_name = "D", default_value_t = BenchOptions::default().dim)]
    dim: usize,
    /// Number of heads
    #[arg(long, value_name = "H", default_value_t = BenchOptions::default().heads)]
    heads: usize,
    /// Number of sequences
    #[arg(long, value_name = "N", default_value_t = BenchOptions::default().batch)]
    batch: usize,
    /// Pad a fifth of the keys, in attention
    #[arg(long)]
    masked: bool,
    /// Make several sequences of unequal length of each, packed one after the other, in attention
    #[arg(long)]
    packed: bool,
    /// Family of the feature maps
    #[arg(long, value_name = "NAME", default_value_t = BenchOptions::default().family)]
    family: favor::Family,
    /// Attend exactly to keys at most this far from the query, in addition to the features
    #[arg(long, value_name = "W", default_value_t = 0)]
    near: usize,
    /// Attend exactly to the members of each query's preferred slots, slots × members
    #[arg(long, value_name = "SxM")]
    routed: Option<Routed>,
    /// Number of keys that every query attends to exactly
    #[arg(long, value_name = "N", default_value_t = 0)]
    global: usize,
    /// Number of threads [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Runs per measurement, more if they are short; the best one counts
    #[arg(long, value_name = "N", default_value_t = BenchOptions::default().runs)]
    runs: usize,
    /// Print JSON at full precision instead of a table
    #[arg(long)]
    json: bool,
    /// Seed for data and random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let Routed { slots, members } = self.routed.unwrap_or(Routed { slots: 0, members: 0 });
        let exact = ExactKeys::NONE.near(self.near).global(self.global).routed(slots, members);
        let options = BenchOptions::default();
        let works = self.work.map_or_else(|| options.works.clone(), |work| work.0);
        let options = options
            .works(works)
            .lengths(self.length.0)
            .features(self.features.0)
            .dim(self.dim)
            .heads(self.heads)
            .batch(self.batch)
            .masked(self.masked)
            .packed(self.packed)
            .family(self.family)
            .exact(exact)
            .threads(self.threads)
            .runs(self.runs)
            .seed(self.seed);
        let bar = Bar::new("bench");
        let measured = run(&options, &|tick| bar.show(tick))?;
        drop(bar);
        terminal::print(&if self.json { to_json(&measured) } else { to_text(&measured) })
    }
}
