//! `favor update`.

use super::backend::Backend;
use super::{Data, run};
use crate::failure::Outcome;
use crate::terminal;
use favor_tables::Model;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor update model.favor today.csv
  favor update model.favor today.parquet --out newer.favor";

/// Add the rows of a table to a model.
///
/// Encoders, map and bandwidth stay the same; the result is the model of all rows under this map.
/// New labels become new classes. Reports which columns have drifted from the earlier rows; refit
/// the model if the drift is large.
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
        let (newer, drift) = run(self.data.threads, async |progress| {
            self.backend.update(&self.data, &model, &progress).await
        })?;
        let out = self.out.unwrap_or(self.model);
        newer.save(&out)?;
        let (before, after) = (model.info().rows, newer.info().rows);
        let added = after - before;
        let text =
            format!("added {added} rows; {} has {after}\n{}", out.display(), drift.to_text());
        terminal::print(&text)
    }
}
