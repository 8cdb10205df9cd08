//! `favor subtract`.

use super::backend::Backend;
use super::{Data, run};
use crate::failure::Outcome;
use crate::terminal;
use favor_tables::Model;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor subtract model.favor withdrawn.csv
  favor subtract model.favor january.parquet --out newer.favor";

/// Remove the rows of a table from a model.
///
/// Up to rounding, the result is a model that was never fitted to them; encoders, map and bandwidth
/// stay the same. Together with favor update, a model can follow a sliding window. Whether the rows
/// were in the model cannot be checked; removing too many is an error.
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
    /// Model file to write [default: overwrite MODEL]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let model = Model::load(&self.model)?;
        let rest = run(self.data.threads, async |progress| {
            self.backend.subtract(&self.data, &model, &progress).await
        })?;
        let out = self.out.unwrap_or(self.model);
        rest.save(&out)?;
        let (before, after) = (model.info().rows, rest.info().rows);
        let gone = before - after;
        terminal::print(&format!("subtracted {gone} rows; {} has {after}\n", out.display()))
    }
}
