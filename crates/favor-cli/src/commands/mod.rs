//! The subcommands: each turns its arguments into plain data and calls one function of a library.

#[cfg(feature = "speech")]
mod asr;
mod bench;
#[cfg(feature = "cluster")]
mod cluster;
mod completions;
mod demo;
mod help;
mod inspect;
mod learn;
mod man;
mod near;
#[cfg(feature = "nn")]
mod nn;
mod reproduce;
#[cfg(feature = "tables")]
mod tables;

use crate::failure::Outcome;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Bench(bench::Arguments),
    #[cfg(feature = "cluster")]
    Cluster(cluster::Arguments),
    Completions(completions::Arguments),
    Demo(demo::Arguments),
    Help(help::Arguments),
    Inspect(inspect::Arguments),
    Learn(learn::Arguments),
    Man(man::Arguments),
    Near(near::Arguments),
    Reproduce(reproduce::Arguments),
    #[cfg(feature = "speech")]
    Asr(asr::Arguments),
    #[cfg(feature = "nn")]
    Convert(nn::convert::Arguments),
    #[cfg(feature = "nn")]
    Embed(nn::embed::Arguments),
    #[cfg(feature = "nn")]
    Finetune(nn::finetune::Arguments),
    #[cfg(feature = "nn")]
    Pretrain(nn::pretrain::Arguments),
    #[cfg(feature = "tables")]
    Compare(tables::compare::Arguments),
    #[cfg(feature = "tables")]
    Evaluate(tables::evaluate::Arguments),
    #[cfg(feature = "tables")]
    Fit(tables::fit::Arguments),
    #[cfg(feature = "tables")]
    Info(tables::info::Arguments),
    #[cfg(feature = "tables")]
    Merge(tables::merge::Arguments),
    #[cfg(feature = "tables")]
    Predict(tables::predict::Arguments),
    #[cfg(feature = "tables")]
    Project(tables::project::Arguments),
    #[cfg(feature = "tables")]
    Subtract(tables::subtract::Arguments),
    #[cfg(feature = "tables")]
    Update(tables::update::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Bench(arguments) => arguments.run(),
            #[cfg(feature = "cluster")]
            Self::Cluster(arguments) => arguments.run(),
            Self::Completions(arguments) => arguments.run(),
            Self::Demo(arguments) => arguments.run(),
            Self::Help(arguments) => arguments.run(),
            Self::Inspect(arguments) => arguments.run(),
            Self::Learn(arguments) => arguments.run(),
            Self::Man(arguments) => arguments.run(),
            Self::Near(arguments) => arguments.run(),
            Self::Reproduce(arguments) => arguments.run(),
            #[cfg(feature = "speech")]
            Self::Asr(arguments) => arguments.run(),
            #[cfg(feature = "nn")]
            Self::Convert(arguments) => arguments.run(),
            #[cfg(feature = "nn")]
            Self::Embed(arguments) => arguments.run(),
            #[cfg(feature = "nn")]
            Self::Finetune(arguments) => arguments.run(),
            #[cfg(feature = "nn")]
            Self::Pretrain(arguments) => arguments.run(),
            #[cfg(feature = "tables")]
            Self::Compare(arguments) => arguments.run(),
            #[cfg(feature = "tables")]
            Self::Evaluate(arguments) => arguments.run(),
            #[cfg(feature = "tables")]
            Self::Fit(arguments) => arguments.run(),
            #[cfg(feature = "tables")]
            Self::Info(arguments) => arguments.run(),
            #[cfg(feature = "tables")]
            Self::Merge(arguments) => arguments.run(),
            #[cfg(feature = "tables")]
            Self::Predict(arguments) => arguments.run(),
            #[cfg(feature = "tables")]
            Self::Project(arguments) => arguments.run(),
            #[cfg(feature = "tables")]
            Self::Subtract(arguments) => arguments.run(),
            #[cfg(feature = "tables")]
            Self::Update(arguments) => arguments.run(),
        }
    }
}
