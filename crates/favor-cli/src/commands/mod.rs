//! The subcommands: each turns its arguments into plain data and calls one function of the lab.

mod bench;
mod demo;
mod inspect;
mod near;
mod reproduce;

use crate::failure::Outcome;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Bench(bench::Arguments),
    Demo(demo::Arguments),
    Inspect(inspect::Arguments),
    Near(near::Arguments),
    Reproduce(reproduce::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Bench(arguments) => arguments.run(),
            Self::Demo(arguments) => arguments.run(),
            Self::Inspect(arguments) => arguments.run(),
            Self::Near(arguments) => arguments.run(),
            Self::Reproduce(arguments) => arguments.run(),
        }
    }
}
