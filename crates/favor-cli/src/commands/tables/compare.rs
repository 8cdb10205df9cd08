//! `favor compare`.

use super::backend::Backend;
use super::{Data, run};
use crate::failure::Outcome;
use crate::terminal;
use favor_tables::Model;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor compare model.favor today.csv
  favor compare model.favor 'july/*.parquet'
  favor compare june.favor july.favor";

/// Test whether a table, or the rows of another model, have the same distribution as a model's rows.
///
/// The distance is the maximum mean discrepancy under the model's kernel, that is, the distance
/// between the mean features. p is the probability of a distance at least this large if both came
/// from one distribution. Columns that have drifted are listed. Two models can be compared if they
/// have the same features, as with favor fit --map-of.
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
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let model = Model::load(&self.model)?;
        let newer = match self.data.model() {
            Some(path) => Model::load(path)?,
            None => run(self.data.threads, async |progress| {
                self.backend.fit_like(&self.data, &model, &progress).await
            })?,
        };
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
