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

/// Show the three jobs of the library on synthetic data, as one page to look at.
///
/// Kernel products, kernel classification and attention, exact against approximate, for all
/// families. Needs no data and no network.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The page to write
    #[arg(long, value_name = "FILE.html", default_value = "favor-report.html")]
    out: PathBuf,
    /// Decides the data and all draws
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
