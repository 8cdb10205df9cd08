//! `favor update`.

use super::place::Place;
use super::{Data, run};
use crate::failure::{Failure, Outcome};
use crate::terminal;
use favor_tables::{Model, Table, update};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor update model.favor today.csv
  favor update model.favor today.parquet --out newer.favor";

/// Add the rows of a table to a model.
///
/// Encoders, map and σ stay as they are: the result is the model that this map has of all rows.
/// New labels become new classes. Fit anew when the columns no longer look as they did.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model, as written by favor fit
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    place: Place,
    /// The file to write; the model itself by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let model = Model::load(&self.model)?;
        let (source, threads) = (self.data.source(), self.data.threads);
        let newer = run(threads, async |progress| {
            let place = &self.place;
            let table = Table::open(&place.session(&self.data).await?, &source).await?;
            let work = async {
                let newer = update(&table, &model, &progress).await;
                Ok::<_, Failure>(place.complete(newer.map_err(|e| place.explain(e))?)?)
            };
            place.watched(work).await
        })?;
        let out = self.out.unwrap_or(self.model);
        newer.save(&out)?;
        let (before, after) = (model.about().rows, newer.about().rows);
        let added = after - before;
        terminal::print(&format!("added {added} rows; {} has {after}\n", out.display()))
    }
}
