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

/// Score a model on a table, and compare with the exact kernel on a sample.
///
/// The exact kernel is fitted to the rows that the model has kept (see favor fit --sample), and so
/// are features: the difference between the two is the loss due to the features.
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
    /// How to treat missing values: error, drop, mean or mark [default: as in the model]
    #[arg(long, value_name = "HOW")]
    missing: Option<Missing>,
    /// Plot a reliability diagram to this SVG file; for classification
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
