//! `favor project`.

use super::backend::Backend;
use super::predict::write;
use super::{Data, run};
use crate::failure::Outcome;
use crate::terminal;
use favor_tables::{Missing, Model, PredictOptions};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor project model.favor new.csv --keep id
  favor project model.favor 'new/*.parquet' --components 8 --out coordinates.parquet";

/// Project the rows of a table onto the kernel principal components of a model.
///
/// The components are computed from the sums of the model, so they cover all rows that it has seen.
/// Writes the columns component_1, component_2, …, centred at the mean of the model's rows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Model written by favor fit, with any head but nw
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    backend: Backend,
    /// Number of components
    #[arg(long, value_name = "N", default_value_t = 2)]
    components: usize,
    /// File to write: .parquet, .csv or .arrow [default: CSV on standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Comma-separated columns of the table to copy to the output
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    keep: Vec<String>,
    /// Keep the order of the rows on a cluster too; each file is then one task
    #[arg(long)]
    ordered: bool,
    /// How to treat missing values: error, drop (write no point), mean or mark [default: as in the
    /// model]
    #[arg(long, value_name = "HOW")]
    missing: Option<Missing>,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let model = Model::load(&self.model)?;
        let options = PredictOptions::default()
            .components(Some(self.components))
            .keep(self.keep)
            .missing(self.missing);
        let written = run(self.data.threads, async |progress| {
            let made =
                self.backend.predict(&self.data, &model, &options, self.ordered, &progress).await?;
            write(self.out.as_deref(), made).await
        })?;
        match (written, &self.out) {
            (Some(rows), Some(path)) => {
                terminal::print(&format!("wrote {rows} points to {}\n", path.display()))
            }
            _ => Ok(()),
        }
    }
}
