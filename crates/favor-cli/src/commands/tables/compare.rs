//! `favor compare`.

use super::backend::Backend;
use super::{Data, run};
use crate::failure::Outcome;
use crate::terminal;
use favor_tables::Model;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor compare model.favor today.csv
  favor compare model.favor 'july/*.parquet'";

/// Say whether the rows of a table have the distribution of the rows of a model.
///
/// The distance is that of the mean features of both, the maximum mean discrepancy of the model's kernel;
/// the probability is that of a distance as large if both were drawn alike. Columns that have moved are
/// listed.
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
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let model = Model::load(&self.model)?;
        let newer = run(self.data.threads, async |progress| {
            self.backend.fit_like(&self.data, &model, &progress).await
        })?;
        let found = model.compare(&newer)?;
        terminal::print(&format!(
            "distance {:.4} of {} rows from {} rows of the model, p {:.4}\n{}",
            found.distance,
            newer.info().rows,
            model.info().rows,
            found.p_value,
            model.drift(&newer).to_text()
        ))
    }
}
