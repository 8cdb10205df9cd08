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

/// Repeat an experiment of the paper.
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
/// Writes variance.csv and variance.svg and prints the paper's findings next to ours. The kinds of
/// data that need image files are left out, and named, when the files are not there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct Variance {
    /// Folder with mnist/ and cifar10/ [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Folder for variance.csv and variance.svg; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "favor-variance")]
    out: PathBuf,
}

/// Compare the families in kernel classification on eight UCI sets (Figure 6).
///
/// Writes uci.csv and uci.svg and prints the accuracies, the ranking and the paper's findings
/// next to ours. The whole takes a few minutes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct Uci {
    /// Folder with uci8/, which holds the files of the sets [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Folder for uci.csv and uci.svg; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "favor-uci")]
    out: PathBuf,
    /// Sets: abalone, banknote, car, yeast, cmc, nursery, wifi, chess, with commas; or all
    #[arg(long, value_name = "NAME,…", default_value = "all", value_parser = sets)]
    sets: List<Set>,
    /// Draws of random features that accuracies are averaged over
    #[arg(long, value_name = "N", default_value_t = UciOptions::paper().seeds)]
    seeds: u64,
    /// What stands for the queries when features are fitted: the training points, or the queries
    /// themselves, without their classes
    #[arg(long, value_name = "WHICH", default_value = "training", value_parser = moments)]
    moments: QueryMoments,
    /// Decides the division of the sets and all draws
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
            text.push_str("choose the folder of the images with --data or FAVOR_DATA\n");
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
