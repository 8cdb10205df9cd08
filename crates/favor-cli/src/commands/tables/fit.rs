//! `favor fit`.

use super::backend::Backend;
use super::{Data, run};
use crate::failure::Outcome;
use crate::terminal;
use favor_tables::{Bandwidth, Coupling, Family, FitRequest, Missing, Model, Prior, Search, Task};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor fit shells.csv --target rings --regress
  favor fit 'logs/*.parquet' --target label --ignore id --out label.favor
  favor fit --sql \"select a, b, y from 'x.parquet' where a > 0\" --target y --classify
  favor fit more.csv --map-of label.favor --out more.favor";

/// Fit a kernel classifier, regression or density to a table.
///
/// The Gaussian kernel by random features: time is linear in the rows, the table is read in batches
/// on all cores and may be larger than memory, and the model is one small file. Numbers are
/// standardised, booleans are 0 and 1, texts one number per category. The table is read twice, for the
/// moments of the columns and for the sums of the features, and once before where there are texts or
/// means to fill in; the bandwidth of the kernel is chosen on a sample.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    backend: Backend,
    /// The column to predict
    #[arg(long, value_name = "COLUMN", required_unless_present_any = ["density", "map_of"])]
    target: Option<String>,
    /// Predict a label; so are texts and booleans anyway
    #[arg(long, group = "task")]
    classify: bool,
    /// Predict a number; so are floating-point columns anyway
    #[arg(long, group = "task")]
    regress: bool,
    /// Predict the logarithm of the density of the rows; needs no target
    #[arg(long, group = "task", conflicts_with = "target")]
    density: bool,
    /// Columns to predict from, with commas; all others by default
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// Columns to leave out, with commas
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    ignore: Vec<String>,
    /// A column with a weight ≥ 0 for each row
    #[arg(long, value_name = "COLUMN")]
    weight: Option<String>,
    /// The family of the features
    #[arg(long, value_name = "NAME", default_value = "balanced")]
    family: Family,
    /// The number of features: more are more exact
    #[arg(long, value_name = "M", default_value_t = 256)]
    features: usize,
    #[arg(long, value_name = "NAME", default_value = "orthogonal", help = couplings())]
    coupling: Coupling,
    /// The bandwidth h of the kernel exp(−‖u−v‖²/(2h²)) of the standardised columns, or auto: the best
    /// of ten from 0.01 to 100
    #[arg(long, value_name = "H", default_value = "auto", value_parser = bandwidth,
        allow_negative_numbers = true)]
    bandwidth: Width,
    /// Choose the bandwidth by cross-validation in so many parts instead of one part held out
    #[arg(long, value_name = "K")]
    folds: Option<usize>,
    /// What to do with missing values: error, drop (the row) or mean (of the column)
    #[arg(long, value_name = "HOW", default_value = "error")]
    missing: Missing,
    /// The most categories of a text column
    #[arg(long, value_name = "N", default_value_t = 64)]
    categories: usize,
    /// Take numbers as they are, not standardised
    #[arg(long)]
    no_standardise: bool,
    /// How likely classes are before a row is seen: data, uniform, or as in yes=0.3,no=0.7
    #[arg(long, value_name = "HOW", default_value = "data")]
    prior: Prior,
    /// The most rows of the sample that the bandwidth is chosen on and that the model keeps for
    /// comparison
    #[arg(long, value_name = "N", default_value_t = 4096)]
    sample: usize,
    /// Take encoders, map, bandwidth and task of this model, so that the two can be merged
    #[arg(long, value_name = "MODEL", conflicts_with_all = [
        "target", "task", "columns", "ignore", "weight", "folds", "no_standardise",
    ])]
    map_of: Option<PathBuf>,
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "model.favor")]
    out: PathBuf,
    /// Decides draws and samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// A given bandwidth, or none.
#[derive(Debug, Clone, Copy)]
struct Width(Option<f64>);

/// The names of all couplings.
fn couplings() -> String {
    format!("How draws depend on one another: {}", Coupling::ALL.map(Coupling::name).join(", "))
}

fn bandwidth(text: &str) -> Result<Width, String> {
    match (text, text.parse::<f64>()) {
        ("auto", _) => Ok(Width(None)),
        (_, Ok(value)) if value.is_finite() && value > 0.0 => Ok(Width(Some(value))),
        _ => Err("give a positive number or auto".into()),
    }
}

impl Arguments {
    fn request(&self) -> FitRequest {
        let tasks = [
            (self.classify, Task::Classify),
            (self.regress, Task::Regress),
            (self.density, Task::Density),
        ];
        let bandwidth = match (self.bandwidth.0, self.folds) {
            (Some(width), _) => Bandwidth::Fixed(width),
            (None, Some(folds)) => Bandwidth::Auto(Search::CrossValidation { folds }),
            (None, None) => Bandwidth::Auto(Search::Validation),
        };
        let mut request = FitRequest::default()
            .ignore(self.ignore.iter().cloned())
            .family(self.family)
            .features(self.features)
            .coupling(self.coupling)
            .seed(self.seed)
            .bandwidth(bandwidth)
            .missing(self.missing)
            .categories(self.categories)
            .standardise(!self.no_standardise)
            .prior(self.prior.clone())
            .sample(self.sample);
        request.task = tasks.into_iter().find(|(asked, _)| *asked).map(|(_, task)| task);
        request.target.clone_from(&self.target);
        request.weight.clone_from(&self.weight);
        request.columns.clone_from(&self.columns);
        request
    }

    pub(crate) fn run(self) -> Outcome {
        let like = self.map_of.as_deref().map(Model::load).transpose()?;
        let model = run(self.data.threads, async |progress| match &like {
            Some(like) => self.backend.fit_like(&self.data, like, &progress).await,
            None => self.backend.fit(&self.data, &self.request(), &progress).await,
        })?;
        model.save(&self.out)?;
        terminal::print(&format!("{}\nwrote {}\n", model.to_text(), self.out.display()))
    }
}
