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

/// Fit a kernel classifier, regression or density estimate to a table.
///
/// Features turn the kernel into plain products, so time is linear in the number of rows. The table
/// is read in batches on all cores and may be larger than memory. The model is a single file and
/// can be merged with others. A ridge head on the features is fitted in closed form;
/// cross-validation chooses its penalty and estimates what more features would gain.
///
/// The table is read twice: for the contents and moments of its columns, and for the sums of the
/// features. It is read once more if it has texts, missing values or numbers that are ranked, and a
/// few more times for a logistic head. Labels take one more pass, over the target alone. Family, kernel and
/// bandwidth are chosen on a sample.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    backend: Backend,
    /// Column to predict
    #[arg(long, value_name = "COLUMN", required_unless_present_any = ["density", "map_of"])]
    target: Option<String>,
    /// Predict a label; the default for text and booleans
    #[arg(long, group = "task")]
    classify: bool,
    /// Predict a number; the default for floating-point columns
    #[arg(long, group = "task")]
    regress: bool,
    /// Estimate the log-density of the rows; needs no target
    #[arg(long, group = "task", conflicts_with = "target")]
    density: bool,
    /// Comma-separated columns to predict from [default: all others]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// Comma-separated columns to leave out
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    ignore: Vec<String>,
    /// Column of row weights ≥ 0
    #[arg(long, value_name = "COLUMN")]
    weight: Option<String>,
    /// What turns features into predictions: ridge, gp (numbers with intervals), logistic
    /// (probabilities) or nw (Nadaraya–Watson, the only one for densities) [default: ridge]
    #[arg(long, value_name = "NAME")]
    head: Option<TableHead>,
    /// Features: nystrom, trig, balanced or another family, or auto, the best of these on a sample
    /// (with nw: balanced)
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = auto::<Basis>)]
    family: Auto<Basis>,
    /// Kernel: gaussian, laplace, matern32, matern52, or auto, the best on a sample; all but
    /// gaussian need nystrom or trig features
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = auto::<KernelShape>)]
    kernel: Auto<KernelShape>,
    /// plain, or learned: one bandwidth per encoded column according to its importance, if that
    /// improves the cross-validation score
    #[arg(long, value_name = "NAME", default_value = "plain", value_parser = learned)]
    metric: Learned,
    /// Use the features alone, without the columns themselves as a linear part
    #[arg(long)]
    no_linear: bool,
    /// Number of features; more are more accurate
    #[arg(long, value_name = "M", default_value_t = FitRequest::default().features)]
    features: usize,
    #[arg(long, value_name = "NAME", default_value_t = FitRequest::default().coupling, help = couplings())]
    coupling: Coupling,
    /// Bandwidth h of the kernel on the encoded columns, exp(−‖u−v‖²/(2h²)) for the Gaussian, or
    /// auto, the best on a sample
    #[arg(long, value_name = "H", default_value = "auto", value_parser = bandwidth,
        allow_negative_numbers = true)]
    bandwidth: Width,
    /// With nw: choose the bandwidth by K-fold cross-validation instead of a single hold-out set
    #[arg(long, value_name = "K")]
    folds: Option<usize>,
    /// How to treat missing values: error, drop (the row), mean (of the column), or mark (the mean
    /// and an indicator) [default: mark; for a density, error]
    #[arg(long, value_name = "HOW")]
    missing: Option<Missing>,
    /// One-hot encode text columns of at most this many categories; a column with more becomes the
    /// mean of the target over the rows with the same value
    #[arg(long, value_name = "N", default_value_t = FitRequest::default().categories)]
    categories: usize,
    /// How to encode numbers: standard (mean 0, variance 1), rank (mapped to a normal
    /// distribution), raw, or auto: rank if the tails are heavy, else standard
    #[arg(long, value_name = "HOW", default_value = "auto")]
    numbers: NumberEncoding,
    /// Prior probabilities of the classes: data, uniform, or a list such as yes=0.3,no=0.7
    #[arg(long, value_name = "HOW", default_value = "data")]
    prior: Prior,
    /// Maximum size of the sample that the bandwidth is chosen on and the model keeps for comparison
    #[arg(long, value_name = "N", default_value_t = FitRequest::default().sample)]
    sample: usize,
    /// Reuse the encoders, map, bandwidth and task of this model, so that the two can be merged
    #[arg(long, value_name = "MODEL", conflicts_with_all = [
        "target", "task", "columns", "ignore", "weight", "folds", "head",
    ])]
    map_of: Option<PathBuf>,
    /// Model file to write
    #[arg(long, value_name = "FILE", default_value = "model.favor")]
    out: PathBuf,
    /// Plot the cross-validation score against the number of features to this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Seed for random features and samples
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
    format!("Coupling of the draws: {}", Coupling::ALL.map(Coupling::name).join(", "))
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
