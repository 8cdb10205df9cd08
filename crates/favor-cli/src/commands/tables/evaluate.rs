//! `favor evaluate`.

use super::backend::Backend;
use super::{Data, run};
use crate::failure::Outcome;
use crate::terminal;
use favor_tables::{Missing, Model};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor evaluate model.favor test.csv
  favor evaluate model.favor test.csv --plot reliability.svg
  favor evaluate model.favor test.parquet --json";

/// Say how good a model is on a table, and the exact kernel on a sample beside it.
///
/// The exact kernel sees the rows that the model has kept (see favor fit --sample), and so do features
/// for comparison: the difference of these two is what the features cost.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model, as written by favor fit
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    backend: Backend,
    /// What to do with missing values: error, drop, mean or mark; as the model does by default
    #[arg(long, value_name = "HOW")]
    missing: Option<Missing>,
    /// Draw probabilities against frequencies as an SVG file; for classes
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON at full precision instead of text
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let model = Model::load(&self.model)?;
        let found = run(self.data.threads, async |progress| {
            self.backend.evaluate(&self.data, &model, self.missing, &progress).await
        })?;
        if let Some(path) = &self.plot {
            favor_io::write_atomically(path, found.to_svg()?.as_bytes())?;
        }
        terminal::print(&if self.json { found.to_json() } else { found.to_text() })
    }
}
