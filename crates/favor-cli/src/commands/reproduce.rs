//! `favor reproduce`.

use crate::failure::Outcome;
use crate::list::List;
use crate::terminal::{self, Bar};
use favor_io::data::data_folder;
use favor_lab::uci::{self, QueryMoments, Set, UciOptions};
use favor_lab::variance;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor reproduce variance
  favor reproduce variance --data data --out figures
  favor reproduce uci
  favor reproduce uci --sets wifi,car --seeds 5";

/// Reproduce an experiment from the paper.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, clap::Subcommand)]
enum Experiment {
    Variance(Variance),
    Uci(Uci),
    #[cfg(feature = "nn")]
    Glue(super::nn::glue::Arguments),
    #[cfg(feature = "speech")]
    Speech(Box<super::asr::reproduce::Arguments>),
}

/// Compare the variances of all families on six kinds of data (Figures 1 and 5).
///
/// Writes variance.csv and variance.svg and prints the paper's findings next to ours. Data that
/// needs image files is skipped, and reported, if the files are missing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct Variance {
    /// Folder with mnist/ and cifar10/ [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Output folder for variance.csv and variance.svg; created if missing
    #[arg(long, value_name = "DIR", default_value = "favor-variance")]
    out: PathBuf,
}

/// Compare the families in kernel classification on eight UCI data sets (Figure 6).
///
/// Writes uci.csv and uci.svg and prints the accuracies, the ranking and the paper's findings
/// next to ours. Takes a few minutes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct Uci {
    /// Folder with uci8/, which holds the data sets [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Output folder for uci.csv and uci.svg; created if missing
    #[arg(long, value_name = "DIR", default_value = "favor-uci")]
    out: PathBuf,
    /// Comma-separated data sets: abalone, banknote, car, yeast, cmc, nursery, wifi, chess; or all
    #[arg(long, value_name = "NAME,…", default_value = "all", value_parser = sets)]
    sets: List<Set>,
    /// Number of draws of random features to average accuracies over
    #[arg(long, value_name = "N", default_value_t = UciOptions::paper().seeds)]
    seeds: u64,
    /// Which points represent the queries when features are fitted: training, or queries (without
    /// their classes)
    #[arg(long, value_name = "WHICH", default_value = "training", value_parser = moments)]
    moments: QueryMoments,
    /// Seed for the splits and random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

fn sets(text: &str) -> Result<List<Set>, String> {
    List::parse(text, &Set::ALL)
}

fn moments(text: &str) -> Result<QueryMoments, String> {
    match text {
        "training" => Ok(QueryMoments::Training),
        "queries" => Ok(QueryMoments::Queries),
        _ => Err("give \"training\" or \"queries\"".to_owned()),
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        match self.experiment {
            Experiment::Variance(arguments) => arguments.run(),
            Experiment::Uci(arguments) => arguments.run(),
            #[cfg(feature = "nn")]
            Experiment::Glue(arguments) => arguments.run(),
            #[cfg(feature = "speech")]
            Experiment::Speech(arguments) => arguments.run(),
        }
    }
}

impl Variance {
    fn run(self) -> Outcome {
        let options = variance::VarianceOptions::paper();
        let bar = Bar::new("variance");
        let folder = data_folder(self.data);
        let found = variance::reproduce(&options, &folder, &self.out, &|tick| bar.show(tick))?;
        drop(bar);
        let mut text = found.to_text(&self.out);
        if found.missing.is_some() {
            text.push_str("set the folder of the images with --data or FAVOR_DATA\n");
        }
        terminal::print(&text)
    }
}

impl Uci {
    fn run(self) -> Outcome {
        let options = UciOptions::paper()
            .sets(self.sets.0)
            .seeds(self.seeds)
            .moments(self.moments)
            .seed(self.seed);
        let bar = Bar::new("uci");
        let folder = data_folder(self.data);
        let found = uci::reproduce(&options, &folder, &self.out, &|tick| bar.show(tick))?;
        drop(bar);
        terminal::print(&found.to_text(&self.out))
    }
}
