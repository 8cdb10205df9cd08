//! `favor fit`.

use super::place::Place;
use super::{Data, run};
use crate::failure::{Failure, Outcome};
use crate::terminal;
use favor_tables::{
    Coupling, Family, Goal, Missing, Model, Prior, Request, Search, Sigma, Table, fit, fit_like,
};
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
/// standardised, booleans are 0 and 1, texts one number a category. The table is read twice, for the
/// moments of the columns and for the sums of the features, and once before where there are texts or
/// means to fill in; the factor σ of the columns is chosen on a sample.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    place: Place,
    /// The column to predict
    #[arg(long, value_name = "COLUMN", required_unless_present_any = ["density", "map_of"])]
    target: Option<String>,
    /// Predict a label; so are texts and booleans anyway
    #[arg(long, group = "goal")]
    classify: bool,
    /// Predict a number; so are floating-point columns anyway
    #[arg(long, group = "goal")]
    regress: bool,
    /// Predict the logarithm of the density of the rows; needs no target
    #[arg(long, group = "goal", conflicts_with = "target")]
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
    /// How draws depend on one another: iid, orthogonal, simplex, antithetic, sobol
    #[arg(long, value_name = "NAME", default_value = "orthogonal")]
    coupling: Coupling,
    /// The factor of the standardised columns in the kernel exp(−σ²‖u−v‖²/2), or auto: the best
    /// of ten from 0.01 to 100
    #[arg(long, value_name = "S", default_value = "auto", value_parser = sigma,
        allow_negative_numbers = true)]
    sigma: Factor,
    /// Choose σ by cross-validation in so many parts instead of one part held out
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
    /// The most rows of the sample that σ is chosen on and that the model keeps for comparison
    #[arg(long, value_name = "N", default_value_t = 4096)]
    sample: usize,
    /// Take encoders, map, σ and task of this model, so that the two can be merged
    #[arg(long, value_name = "MODEL", conflicts_with_all = [
        "target", "goal", "columns", "ignore", "weight", "folds", "no_standardise",
    ])]
    map_of: Option<PathBuf>,
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "model.favor")]
    out: PathBuf,
    /// Decides draws and samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// A given σ, or none.
#[derive(Debug, Clone, Copy)]
struct Factor(Option<f64>);

fn sigma(text: &str) -> Result<Factor, String> {
    match (text, text.parse::<f64>()) {
        ("auto", _) => Ok(Factor(None)),
        (_, Ok(value)) if value.is_finite() && value > 0.0 => Ok(Factor(Some(value))),
        _ => Err("give a positive number or auto".into()),
    }
}

impl Arguments {
    fn request(&self) -> Request {
        let goal = [
            (self.classify, Goal::Classify),
            (self.regress, Goal::Regress),
            (self.density, Goal::Density),
        ];
        Request {
            goal: goal.into_iter().find(|(asked, _)| *asked).map(|(_, goal)| goal),
            target: self.target.clone(),
            weight: self.weight.clone(),
            columns: self.columns.clone(),
            ignore: self.ignore.clone(),
            family: self.family,
            features: self.features,
            coupling: self.coupling,
            seed: self.seed,
            sigma: match (self.sigma.0, self.folds) {
                (Some(sigma), _) => Sigma::Fixed(sigma),
                (None, Some(folds)) => Sigma::Auto(Search::CrossValidation { folds }),
                (None, None) => Sigma::Auto(Search::Validation),
            },
            missing: self.missing,
            categories: self.categories,
            standardise: !self.no_standardise,
            prior: self.prior.clone(),
            sample: self.sample,
        }
    }

    pub(crate) fn run(self) -> Outcome {
        let (source, request) = (self.data.source(), self.request());
        let like = self.map_of.as_deref().map(Model::load).transpose()?;
        let threads = self.data.threads;
        let model = run(threads, async |progress| {
            let place = &self.place;
            let table = Table::open(&place.session(&self.data).await?, &source).await?;
            let work = async {
                let model = match &like {
                    Some(like) => fit_like(&table, like, &progress).await,
                    None => fit(&table, &request, &progress).await,
                };
                let model = model.map_err(|e| place.explain(e))?;
                Ok::<_, Failure>(place.complete(model)?)
            };
            place.watched(work).await
        })?;
        model.save(&self.out)?;
        terminal::print(&format!("{}\nwrote {}\n", model.to_text(), self.out.display()))
    }
}
