//! `favor demo`.

use crate::failure::Outcome;
use crate::terminal::{self, Bar};
use favor_io::write_atomically;
use favor_lab::demo;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor demo
  favor demo --out report.html --seed 7";

/// How readers of the page go on with data of their own.
const FURTHER: &str = "favor inspect --queries q.npy --keys k.npy --values v.npy --attention
favor reproduce variance
favor help";

/// Show what the library does on synthetic data, as an HTML page.
///
/// Compares exact and approximate kernel products, kernel classification and attention for all
/// families. Needs neither data nor a network.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Page to write
    #[arg(long, value_name = "FILE.html", default_value = "favor-report.html")]
    out: PathBuf,
    /// Seed for data and random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let bar = Bar::new("demo");
        let found = demo::run(&demo::DemoOptions::new(self.seed), &|tick| bar.show(tick))?;
        drop(bar);
        write_atomically(&self.out, found.to_html(FURTHER).as_bytes())?;
        terminal::print(&found.to_text(&self.out))
    }
}
