//! `favor predict`.

use super::backend::{Backend, Predictions};
use super::{Data, run};
use crate::failure::{Failure, Outcome};
use crate::terminal;
use favor_tables::{Missing, Model, PredictOptions, write_csv, write_table};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "Examples:
  favor predict model.favor new.csv
  favor predict model.favor 'new/*.parquet' --out predictions.parquet --proba --keep id
  favor predict prices.favor new.csv --interval 95
  favor predict model.favor --sql \"select * from 'new.parquet' limit 10\"";

/// Predict the rows of a table.
///
/// Predictions keep the order of the rows; on a cluster, only with --ordered.
///
/// Writes the column prediction (log_density for a density) and, with --proba, one column per
/// class. A gp model adds deviation, the standard deviation of a new observation, and with
/// --interval 95 the columns lower and upper. A nw model adds relative_error, the expected error of
/// the features' sum over the model's rows at this row; above about 0.5, a prediction is
/// unreliable.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Model written by favor fit
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    backend: Backend,
    /// File to write: .parquet, .csv or .arrow [default: CSV on standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write the probability of each class
    #[arg(long)]
    proba: bool,
    /// Also write the bounds of the interval that contains a new observation with this probability;
    /// for models fitted with --head gp
    #[arg(long, value_name = "PERCENT")]
    interval: Option<f64>,
    /// Comma-separated columns of the table to copy to the output
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    keep: Vec<String>,
    /// Keep the order of the rows on a cluster too; each file is then one task
    #[arg(long)]
    ordered: bool,
    /// How to treat missing values: error, drop (predict nothing), mean or mark [default: as in the
    /// model]
    #[arg(long, value_name = "HOW")]
    missing: Option<Missing>,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let model = Model::load(&self.model)?;
        let options = PredictOptions::default()
            .probabilities(self.proba)
            .interval(self.interval)
            .keep(self.keep)
            .missing(self.missing);
        let written = run(self.data.threads, async |progress| {
            let made =
                self.backend.predict(&self.data, &model, &options, self.ordered, &progress).await?;
            write(self.out.as_deref(), made).await
        })?;
        match (written, &self.out) {
            (Some(rows), Some(path)) => {
                terminal::print(&format!("wrote {rows} predictions to {}\n", path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Writes predictions to a file and gives their number, or to standard output.
pub(super) async fn write(
    out: Option<&Path>,
    (schema, batches): Predictions,
) -> Result<Option<usize>, Failure> {
    match out {
        Some(path) => Ok(Some(write_table(path, &schema, batches).await?)),
        None => {
            write_csv(std::io::stdout(), batches).await?.map_err(Failure::Print)?;
            Ok(None)
        }
    }
}
