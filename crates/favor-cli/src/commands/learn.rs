//! `favor learn`.

use crate::failure::Outcome;
use crate::routed::Routed;
use crate::terminal::{self, Bar};
use clap::builder::RangedU64ValueParser;
use favor::diagnose::MOST_FEATURES;
use favor::learned::{Budget, LearnOptions};
use favor::{ExactKeys, Family, FeatureSpec, maps_to_bytes};
use favor_io::progress::Tick;
use favor_io::{AtomicFile, SequenceArrays, write_atomically};
use favor_lab::learning::{learn, plan};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

const EXAMPLES: &str = "Examples:
  favor learn --queries q.npy --keys k.npy --values v.npy --out maps.safetensors
  favor learn --queries qkv.npz:q --keys qkv.npz:k --values qkv.npz:v --features 64 --near 16 \\
      --routed 4x8 --out maps.safetensors --html report.html
  favor learn --queries q.npy --keys k.npy --causal --steps 200 --out maps.safetensors --json
  favor learn --queries q.npy --keys k.npy --values v.npy --features 128 --near 32 --routed 4x8 \\
      --tolerance 0.1 --out maps.safetensors";

/// Learn feature maps from the queries and keys of attention heads.
///
/// A map starts from the closed form and learns by gradient descent on the divergence between the
/// exact attention weights and its own. The result is never worse than the start on held-out
/// sequences, measured at up to 256 queries per sequence.
///
/// Files are .npy, .npz or .safetensors with heads × tokens × columns or sequences × heads × tokens
/// × columns. A single sequence is cut into pieces. Queries and keys are multiplied by d^(-1/4), as
/// in attention.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Queries: a file such as q.npy, or file:array such as qkv.npz:q
    #[arg(long, value_name = "FILE")]
    queries: String,
    /// Keys, with as many sequences, heads and columns as the queries
    #[arg(long, value_name = "FILE")]
    keys: String,
    /// Values, one per key; with them, errors are those of outputs, otherwise of weights
    #[arg(long, value_name = "FILE")]
    values: Option<String>,
    /// Number of features
    #[arg(long, value_name = "M", default_value_t = 64)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_FEATURES as u64))]
    features: usize,
    /// Family that learning starts from
    #[arg(long, value_name = "NAME", default_value_t)]
    family: Family,
    /// Attend exactly to keys at most this far from the query
    #[arg(long, value_name = "W", default_value_t = 16)]
    near: usize,
    /// Attend exactly to the members of each query's preferred slots, slots × members
    #[arg(long, value_name = "SxM")]
    routed: Option<Routed>,
    /// Number of keys that every query attends to exactly
    #[arg(long, value_name = "N", default_value_t = 0)]
    global: usize,
    /// Causal attention: queries see only keys that are not later
    #[arg(long)]
    causal: bool,
    /// Fraction of the sequences to hold out
    #[arg(long, value_name = "PART", default_value_t = LearnOptions::new().holdout)]
    holdout: f64,
    /// Training steps; 0 keeps the closed form
    #[arg(long, value_name = "N", default_value_t = LearnOptions::new().steps)]
    steps: usize,
    /// Sequences per step [default: about 1024 tokens' worth, at least four]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Peak learning rate
    #[arg(long, value_name = "RATE", default_value_t = LearnOptions::new().rate)]
    rate: f64,
    /// Number of threads [default: all cores]; results do not depend on it
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Seed for random features, the held-out sequences and the order of the others
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// File to write the maps to, one per head
    #[arg(long, value_name = "FILE.safetensors", value_parser = maps_path)]
    out: PathBuf,
    /// For each head, choose the cheapest setting with at most this relative error on held-out
    /// sequences: any features and exact keys up to those given, or exact attention
    #[arg(long, value_name = "ERROR", conflicts_with = "operations")]
    tolerance: Option<f64>,
    /// The same, but with the least error that this many multiply-adds per token and head allow on
    /// average
    #[arg(long, value_name = "N")]
    operations: Option<f64>,
    /// Print JSON at full precision instead of a table
    #[arg(long)]
    json: bool,
    /// Also write a page with the table and error against cost; without a budget, with plots of the
    /// weights too
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
}

fn maps_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.extension().is_some_and(|e| e == "safetensors") {
        Ok(path)
    } else {
        Err("the file name must end in .safetensors".to_owned())
    }
}

/// What was stopped after learning, but before anything was written, is stopped too.
fn check_stopped() -> Outcome {
    if terminal::stopped().load(Ordering::Relaxed) {
        return Err(favor::Error::Cancelled.into());
    }
    Ok(())
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        // What cannot be written is said before anything is learned.
        for path in [Some(&self.out), self.html.as_ref()].into_iter().flatten() {
            AtomicFile::create(path)?;
        }
        let arrays = SequenceArrays::read(&self.queries, &self.keys, self.values.as_deref())?;
        let Routed { slots, members } = self.routed.unwrap_or(Routed { slots: 0, members: 0 });
        let exact = ExactKeys::NONE.near(self.near).global(self.global).routed(slots, members);
        let options = LearnOptions::new()
            .exact(exact)
            .steps(self.steps)
            .batch(self.batch)
            .rate(self.rate)
            .holdout(self.holdout)
            .seed(self.seed)
            .threads(self.threads)
            .cancel(Some(terminal::stopped()));
        let spec = FeatureSpec::new(self.family, self.features).seed(self.seed);
        let bar = Bar::new("learn");
        let budget = self.tolerance.map(Budget::Error).or(self.operations.map(Budget::Operations));
        if let Some(budget) = budget {
            let listener = |tick: Tick<'_>| bar.show(tick);
            let found = plan(&arrays, spec, self.causal, &options, budget, &listener)?;
            drop(bar);
            check_stopped()?;
            write_atomically(&self.out, &maps_to_bytes(&found.maps())?)?;
            if let Some(path) = &self.html {
                write_atomically(path, found.to_html(&self.to_measure()).as_bytes())?;
            }
            return terminal::print(&if self.json {
                found.to_json()
            } else {
                found.to_text(&self.out)
            });
        }
        let found = learn(&arrays, spec, self.causal, &options, &|tick| bar.show(tick))?;
        drop(bar);
        let maps = maps_to_bytes(&found.maps())?;
        let page = match &self.html {
            None => None,
            Some(path) => {
                let bar = Bar::new("report");
                Some((path, found.to_html(&arrays, &self.to_measure(), &|tick| bar.show(tick))?))
            }
        };
        check_stopped()?;
        write_atomically(&self.out, &maps)?;
        if let Some((path, page)) = page {
            write_atomically(path, page.as_bytes())?;
        }
        if self.json {
            return terminal::print(&found.to_json());
        }
        let next = found
            .warning()
            .unwrap_or_else(|| format!("To measure them on other data: {}", self.to_measure()));
        let maps = self.out.display();
        terminal::print(&format!("{}\nThe maps are in {maps}. {next}\n", found.to_text()))
    }

    /// The command that measures the maps on other data.
    fn to_measure(&self) -> String {
        let maps = self.out.display();
        format!("favor inspect --maps {maps} --queries q.npy --keys k.npy --values v.npy")
    }
}
