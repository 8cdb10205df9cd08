//! The subcommands on transformers: what they share.

pub(super) mod convert;
pub(super) mod embed;
pub(super) mod finetune;
pub(super) mod glue;
pub(super) mod pretrain;

use crate::failure::{Failure, Outcome};
use crate::terminal::{self, Bar};
use favor::{MapPolicy, Redraw};
use favor_nn::run::Watch;
use favor_nn::task::Glue;
use favor_nn::{Attention, LayerOptions};

/// Which attention.
#[derive(Debug, clap::Args)]
pub(super) struct AttentionArguments {
    #[arg(long, value_name = "NAME", help = kinds())]
    attention: Option<Attention>,
    /// Number of features per head
    #[arg(long, value_name = "M", default_value_t = 128)]
    features: usize,
}

/// The names of the tasks of GLUE.
fn glue_tasks() -> String {
    Glue::ALL.map(Glue::name).join(", ")
}

/// The names of all kinds of attention.
fn kinds() -> String {
    let names: Vec<&str> = Attention::all().map(Attention::name).collect();
    format!("Attention: {} [default: that of a converted model, else exact]", names.join(", "))
}

/// How maps follow a training.
#[derive(Debug, clap::Args)]
pub(super) struct RedrawArguments {
    /// Refit the maps, with a new draw, every N steps; 0 never does
    #[arg(long, value_name = "N", default_value_t = MapPolicy::REDRAW)]
    redraw: u64,
}

impl RedrawArguments {
    pub(super) fn redraw(&self) -> Redraw {
        if self.redraw > 0 { Redraw::Every(self.redraw) } else { Redraw::Never }
    }
}

impl AttentionArguments {
    /// What was asked for, or exact attention.
    pub(super) fn options(&self, seed: u64) -> LayerOptions {
        let kind = self.attention.unwrap_or(Attention::Exact);
        LayerOptions::new(kind, self.features).seed(seed)
    }

    /// What was asked for, if anything was: else a model has its own.
    pub(super) fn asked(&self, options: LayerOptions) -> Option<LayerOptions> {
        self.attention.map(|_| options)
    }

    pub(super) fn training(&self, seed: u64, redraw: &RedrawArguments) -> LayerOptions {
        self.options(seed).redraw(redraw.redraw())
    }
}

/// Runs a training with a bar. Ctrl-C ends it after the step under way; a second one at once.
pub(super) fn watched<T>(
    name: &'static str,
    work: impl FnOnce(Watch<'_>) -> favor_nn::Result<T>,
) -> Result<T, Failure> {
    let stop = terminal::stopped();
    let bar = Bar::new(name);
    let listener = |tick: favor_io::progress::Tick<'_>| bar.show(tick);
    Ok(work(Watch::new(&listener, stop))?)
}

pub(super) fn print(text: &str) -> Outcome {
    crate::terminal::print(text)
}
