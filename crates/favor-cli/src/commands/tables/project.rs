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

/// Give the rows of a table as points along the directions in which a model's features vary most.
///
/// The directions are the principal components of the kernel, over all rows that the model has seen; they
/// come from its sums. Writes the columns component_1, component_2, …, from the mean of the model's rows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model, as written by favor fit; any head but nw
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    backend: Backend,
    /// How many components
    #[arg(long, value_name = "N", default_value_t = 2)]
    components: usize,
    /// The file to write: .parquet, .csv or .arrow; CSV on standard output by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Columns of the table to carry over, with commas
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    keep: Vec<String>,
    /// On a cluster too, give the points in the order of the rows: each file is one task
    #[arg(long)]
    ordered: bool,
    /// What to do with missing values: error, drop (no point), mean or mark; as the model does by default
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
