//! `favor inspect`.

use crate::failure::{Failure, Outcome};
use crate::list::List;
use crate::routed::Routed;
use crate::terminal::{self, Bar};
use clap::builder::RangedU64ValueParser;
use favor::diagnose::MOST_FEATURES;
use favor::{Family, FeatureMap, Kernel, maps_from_bytes};
use favor_inspect::{InspectOptions, MapOptions, compared, inspect, inspect_maps};
use favor_io::arrays::read_bytes;
use favor_io::{HeadArrays, SequenceArrays, write_atomically};
use favor_lab::inspection;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "Examples:
  favor inspect --queries q.npy --keys k.npy
  favor inspect --queries qkv.npz:q --keys qkv.npz:k --values qkv.npz:v --attention
  favor inspect --queries x.csv --keys x.csv --alpha -0.5 --families sde,balanced --json
  favor inspect --maps maps.safetensors --queries q.npy --keys k.npy --values v.npy";

/// Measure how accurate random features are on your queries and keys.
///
/// Reports, for every head and family, the closed-form variance of the features, the number of
/// features needed for an error of 10 %, the measured error, and a recommendation. Files are .npy,
/// .npz, .safetensors or .csv with rows × columns or heads × rows × columns.
///
/// With --maps, measures existing maps, such as those that favor learn writes. Arrays are then
/// heads × tokens × columns or sequences × heads × tokens × columns.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Queries: a file such as q.npy, or file:array such as qkv.npz:q
    #[arg(long, value_name = "FILE")]
    queries: String,
    /// Keys, with as many heads and columns as the queries
    #[arg(long, value_name = "FILE")]
    keys: String,
    /// Values, one row per key; adds the error of the attention output
    #[arg(long, value_name = "FILE")]
    values: Option<String>,
    /// Measure the maps in this file instead, with the exact keys they were learned with
    #[arg(long, value_name = "FILE.safetensors")]
    #[arg(conflicts_with_all = ["alpha", "features", "families", "attention", "scale", "plot", "seed"])]
    maps: Option<PathBuf>,
    /// With --maps: width of the exact window, instead of the one the maps were learned with
    #[arg(long, value_name = "W", requires = "maps")]
    near: Option<usize>,
    /// With --maps: slots × members to attend to exactly, as in 4x8
    #[arg(long, value_name = "SxM", requires = "maps")]
    routed: Option<Routed>,
    /// With --maps: number of keys that every query attends to exactly
    #[arg(long, value_name = "N", requires = "maps")]
    global: Option<usize>,
    /// With --maps: causal attention; queries see only keys that are not later
    #[arg(long, requires = "maps")]
    causal: bool,
    /// A in the kernel exp(A‖x‖² + xᵀy + A‖y‖²): 0 is softmax, -0.5 is Gaussian
    #[arg(long, value_name = "A", default_value_t = 0.0, allow_negative_numbers = true)]
    alpha: f64,
    /// Numbers of features to measure, as in 64,256
    #[arg(long, value_name = "M,…", default_value = "64,256", value_delimiter = ',')]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_FEATURES as u64))]
    features: Vec<usize>,
    /// Families to compare: all, or a comma-separated list such as sde,balanced
    #[arg(long, value_name = "NAME,…", default_value = "all", value_parser = families)]
    families: List<Family>,
    /// Multiply queries and keys by d^(-1/4), as attention does
    #[arg(long, conflicts_with = "scale")]
    attention: bool,
    /// Multiply queries and keys by a number, as in 0.5, or by "attention"
    #[arg(long, value_name = "S", value_parser = scale, allow_negative_numbers = true)]
    scale: Option<Scale>,
    /// Print JSON at full precision instead of tables
    #[arg(long)]
    json: bool,
    /// Plot the variances to this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Seed for random features and samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// What queries and keys are multiplied by.
#[derive(Debug, Clone, Copy)]
enum Scale {
    Attention,
    Factor(f64),
}

fn families(text: &str) -> Result<List<Family>, String> {
    List::parse(text, &compared())
}

fn scale(text: &str) -> Result<Scale, String> {
    match text {
        "attention" => Ok(Scale::Attention),
        _ => text
            .parse()
            .map(Scale::Factor)
            .map_err(|_| "give a positive number or \"attention\"".to_owned()),
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        if let Some(path) = &self.maps {
            return self.run_maps(&read_maps(path)?);
        }
        let arrays = HeadArrays::read(&self.queries, &self.keys, self.values.as_deref())?;
        let scale = match self.scale {
            None if !self.attention => 1.0,
            Some(Scale::Factor(factor)) => factor,
            _ => Kernel::attention(arrays.dim()).scale(),
        };
        let options = InspectOptions::new(Kernel::new(self.alpha, scale)?)
            .features(self.features)
            .families(self.families.0)
            .seed(self.seed);
        let bar = Bar::new("inspect");
        let mut found = inspect(&arrays, &options, &|tick| bar.show(tick))?;
        drop(bar);
        found.hint = found.hint.map(|hint| format!("{hint}; --attention does so here"));
        if let Some(path) = &self.plot {
            write_atomically(path, inspection::to_svg(&found).as_bytes())?;
        }
        terminal::print(&if self.json { found.to_json() } else { found.to_text() })
    }

    fn run_maps(&self, maps: &[FeatureMap]) -> Outcome {
        let arrays = SequenceArrays::read(&self.queries, &self.keys, self.values.as_deref())?;
        let options = MapOptions::new()
            .near(self.near)
            .global(self.global)
            .routed(self.routed.map(|r| (r.slots, r.members)))
            .causal(self.causal.then_some(true));
        let bar = Bar::new("inspect");
        let found = inspect_maps(&arrays, maps, &options, &|tick| bar.show(tick))?;
        drop(bar);
        terminal::print(&if self.json { found.to_json() } else { found.to_text() })
    }
}

/// The maps of a file, which errors name.
fn read_maps(path: &Path) -> Result<Vec<FeatureMap>, Failure> {
    let bytes = read_bytes(path).map_err(favor_io::Error::from)?;
    let place = format!("{}: ", path.display());
    maps_from_bytes(&bytes)
        .map_err(|reason| Failure::Lab(favor_lab::Error::Library { place, reason }))
}
