//! The subcommands on transformers: what they share.

pub(super) mod asr;
pub(super) mod embed;
pub(super) mod finetune;
pub(super) mod glue;
pub(super) mod pretrain;
pub(super) mod speech;

use crate::failure::{Failure, Outcome};
use crate::terminal::Bar;
use favor_nn::run::Watch;
use favor_nn::{Attention, AttentionOptions};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

/// Which attention.
#[derive(Debug, clap::Args)]
pub(super) struct AttentionArguments {
    /// exact, elu, relu, pos (FAVOR+), ge (FAVOR++), sade and sde (FAVOR#), ade, balanced or auto
    #[arg(long, value_name = "NAME", default_value = "exact")]
    attention: Attention,
    /// The number of features of each head
    #[arg(long, value_name = "M", default_value_t = 128)]
    features: usize,
}

/// How maps follow a training.
#[derive(Debug, clap::Args)]
pub(super) struct Redraw {
    /// Fit the maps anew, with a new draw, after so many steps; 0: never
    #[arg(long, value_name = "N", default_value_t = 100)]
    redraw: u64,
}

impl Redraw {
    fn steps(&self) -> Option<u64> {
        (self.redraw > 0).then_some(self.redraw)
    }
}

impl AttentionArguments {
    fn options(&self, seed: u64) -> AttentionOptions {
        AttentionOptions { seed, ..AttentionOptions::new(self.attention, self.features) }
    }

    fn training(&self, seed: u64, redraw: &Redraw) -> AttentionOptions {
        AttentionOptions { redraw: redraw.steps(), ..self.options(seed) }
    }
}

/// Runs a training with a bar. Ctrl-C ends it after the step under way; a second one at once.
fn watched<T>(
    name: &'static str,
    work: impl FnOnce(Watch<'_>) -> favor_nn::Result<T>,
) -> Result<T, Failure> {
    // A process has one handler: the second command of a process, as in tests, keeps the first's.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    let bar = Bar::new(name);
    let listener = |tick: favor_io::progress::Tick<'_>| bar.show(tick);
    Ok(work(Watch { listener: &listener, stop: &STOP })?)
}

fn print(text: &str) -> Outcome {
    crate::terminal::print(text)
}
