//! The `favor` command.

mod commands;
mod failure;
mod list;
mod optional;
mod routed;
mod terminal;
mod usage;
#[cfg(feature = "tables")]
mod words;

use clap::Parser;
use std::process::ExitCode;

/// Keeps freed memory for the next call. The system's allocator gives outputs of some megabytes back
/// each time, and asking for them again shows in the time of a backward pass.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Random features that turn the softmax and Gaussian kernels into linear-time products.
#[derive(Debug, Parser)]
#[command(name = "favor", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = optional::after_help())]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => failure::exit_code(cli.command.run()),
        Err(error) => usage::explain(&error),
    }
}
