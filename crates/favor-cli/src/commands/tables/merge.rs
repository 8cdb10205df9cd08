//! `favor merge`.

use crate::failure::Outcome;
use crate::terminal;
use favor_tables::Model;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor fit first.csv --target y --classify --out first.favor
  favor fit second.csv --map-of first.favor --out second.favor
  favor merge first.favor second.favor --out both.favor";

/// Merge models that share a map into one model of all their rows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Two or more models; all but the first fitted with --map-of the first
    #[arg(value_name = "MODEL", num_args = 2.., required = true)]
    models: Vec<PathBuf>,
    /// Model file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let mut merged: Option<Model> = None;
        for path in &self.models {
            let model = Model::load(path)?;
            merged = Some(match merged {
                Some(before) => before.merge(&model)?,
                None => model,
            });
        }
        let Some(model) = merged else { return Ok(()) };
        model.save(&self.out)?;
        let rows = model.info().rows;
        terminal::print(&format!("wrote {}, a model of {rows} rows\n", self.out.display()))
    }
}
