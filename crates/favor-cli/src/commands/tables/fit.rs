//! `favor fit`.

use super::backend::Backend;
use super::{Data, run};
use crate::failure::Outcome;
use crate::terminal;
use favor_tables::{
    Bandwidth, Basis, Coupling, FitRequest, KernelShape, Missing, Model, NumberEncoding, Prior,
    Search, TableHead, Task,
};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor fit shells.csv --target rings --regress
  favor fit 'logs/*.parquet' --target label --ignore id --out label.favor
  favor fit shells.csv --target rings --regress --head gp --features 1024 --plot curve.svg
  favor fit --sql \"select a, b, y from 'x.parquet' where a > 0\" --target y --classify
  favor fit more.csv --map-of label.favor --out more.favor";

/// Fit a kernel classifier, regression or density to a table.
///
/// Features turn the kernel into plain products: time is linear in the rows, the table is read in
/// batches on all cores and may be larger than memory, and the model is one file that merges with
/// others. A ridge head on the features is fitted in closed form; the folds of the rows choose its
/// penalty and say what more features would bring.
///
/// The table is read three times: for what its columns hold, for their moments, and for the sums of
/// the features; a logistic head needs some passes more. Family, kernel and bandwidth are chosen on a
/// sample.
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
    /// What turns features into predictions: ridge, gp (numbers with intervals), logistic
    /// (probabilities) or nw (Nadaraya–Watson, the only one for a density); ridge by default
    #[arg(long, value_name = "NAME")]
    head: Option<TableHead>,
    /// The features: nystrom, trig, balanced or another family, or auto: the best of these on a sample;
    /// balanced with nw
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = auto::<Basis>)]
    family: Auto<Basis>,
    /// The kernel: gaussian, laplace, matern32, matern52, or auto: the best on a sample; others than
    /// gaussian need nystrom or trig features
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = auto::<KernelShape>)]
    kernel: Auto<KernelShape>,
    /// plain, or learned: a bandwidth for each encoded column, by how much it matters, where the folds
    /// find that better
    #[arg(long, value_name = "NAME", default_value = "plain", value_parser = learned)]
    metric: Learned,
    /// Leave out the linear part: the columns themselves beside the features
    #[arg(long)]
    no_linear: bool,
    /// The number of features: more are more exact
    #[arg(long, value_name = "M", default_value_t = FitRequest::default().features)]
    features: usize,
    #[arg(long, value_name = "NAME", default_value_t = FitRequest::default().coupling, help = couplings())]
    coupling: Coupling,
    /// The bandwidth h of the kernel, exp(−‖u−v‖²/(2h²)) for the Gaussian, of the encoded columns, or
    /// auto: the best on a sample
    #[arg(long, value_name = "H", default_value = "auto", value_parser = bandwidth,
        allow_negative_numbers = true)]
    bandwidth: Width,
    /// With nw, choose the bandwidth by cross-validation in so many parts instead of one part held out
    #[arg(long, value_name = "K")]
    folds: Option<usize>,
    /// What to do with missing values: error, drop (the row), mean (of the column), or mark (the mean,
    /// and a further number that says so); mark by default, error for a density
    #[arg(long, value_name = "HOW")]
    missing: Option<Missing>,
    /// The most categories of a text column that become a number each; a column with more becomes the
    /// mean of the target over the rows of the same value
    #[arg(long, value_name = "N", default_value_t = FitRequest::default().categories)]
    categories: usize,
    /// How numbers are encoded: standard (mean 0, variance 1), rank (as normal numbers), raw, or auto:
    /// rank where the tails are heavy
    #[arg(long, value_name = "HOW", default_value = "auto")]
    numbers: NumberEncoding,
    /// How likely classes are before a row is seen: data, uniform, or as in yes=0.3,no=0.7
    #[arg(long, value_name = "HOW", default_value = "data")]
    prior: Prior,
    /// The most rows of the sample that the bandwidth is chosen on and that the model keeps for
    /// comparison
    #[arg(long, value_name = "N", default_value_t = FitRequest::default().sample)]
    sample: usize,
    /// Take encoders, map, bandwidth and task of this model, so that the two can be merged
    #[arg(long, value_name = "MODEL", conflicts_with_all = [
        "target", "task", "columns", "ignore", "weight", "folds", "head",
    ])]
    map_of: Option<PathBuf>,
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "model.favor")]
    out: PathBuf,
    /// Draw what the folds say of the number of features as an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Decides draws and samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Something given, or none for "auto".
#[derive(Debug, Clone, Copy)]
struct Auto<T>(Option<T>);

fn auto<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Auto<T>, String> {
    if text == "auto" {
        return Ok(Auto(None));
    }
    text.parse().map(|value| Auto(Some(value))).map_err(|e: T::Err| e.to_string())
}

/// Whether a metric is learned.
#[derive(Debug, Clone, Copy)]
struct Learned(bool);

fn learned(text: &str) -> Result<Learned, String> {
    match text {
        "plain" => Ok(Learned(false)),
        "learned" => Ok(Learned(true)),
        _ => Err("give plain or learned".into()),
    }
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
        let task = tasks.into_iter().find(|(asked, _)| *asked).map(|(_, task)| task);
        FitRequest::default()
            .task(task)
            .target(self.target.clone())
            .weight(self.weight.clone())
            .columns(self.columns.clone())
            .head(self.head)
            .basis(self.family.0)
            .kernel(self.kernel.0)
            .missing(self.missing)
            .ignore(self.ignore.iter().cloned())
            .linear(!self.no_linear)
            .learned_metric(self.metric.0)
            .features(self.features)
            .coupling(self.coupling)
            .seed(self.seed)
            .bandwidth(bandwidth)
            .categories(self.categories)
            .numbers(self.numbers)
            .prior(self.prior.clone())
            .sample(self.sample)
    }

    pub(crate) fn run(self) -> Outcome {
        let like = self.map_of.as_deref().map(Model::load).transpose()?;
        let model = run(self.data.threads, async |progress| match &like {
            Some(like) => self.backend.fit_like(&self.data, like, &progress).await,
            None => self.backend.fit(&self.data, &self.request(), &progress).await,
        })?;
        model.save(&self.out)?;
        if let Some(path) = &self.plot {
            favor_io::write_atomically(path, model.to_svg()?.as_bytes())?;
        }
        terminal::print(&format!("{}\nwrote {}\n", model.to_text(), self.out.display()))
    }
}
