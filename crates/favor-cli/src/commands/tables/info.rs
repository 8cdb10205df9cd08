//! `favor info`.

use crate::failure::Outcome;
use crate::terminal;
use favor_tables::Model;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor info model.favor
  favor info model.favor --json";

/// Describe a model: columns, classes, features, bandwidth and its curve, predicted error.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Model written by favor fit
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Print JSON at full precision instead of text
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let model = Model::load(&self.model)?;
        terminal::print(&if self.json { model.to_json() } else { model.to_text() })
    }
}
