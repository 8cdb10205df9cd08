//! `favor reproduce`.

use crate::failure::Outcome;
use crate::terminal::{self, Bar};
use favor_lab::variance;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor reproduce variance
  favor reproduce variance --data ../shared/data --out figures";

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
}

/// Compare the variances of all families on six kinds of data (Figures 1 and 5).
///
/// Writes variance.csv and variance.svg and prints the paper's findings beside ours. The kinds of
/// data that need image files are left out, and named, when the files are not there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct Variance {
    /// Folder with mnist/ and cifar10/ [default: $FAVOR_DATA, else ../shared/data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Folder for variance.csv and variance.svg; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "favor-variance")]
    out: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        match self.experiment {
            Experiment::Variance(arguments) => arguments.run(),
        }
    }
}

impl Variance {
    fn run(self) -> Outcome {
        let bar = Bar::new("variance");
        let setup = variance::Setup::paper();
        let folder = variance::data_folder(self.data);
        let found = variance::reproduce(&setup, &folder, &self.out, &|tick| bar.show(tick))?;
        drop(bar);
        terminal::print(&found.to_text(&self.out))
    }
}
