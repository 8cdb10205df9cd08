//! The `favor` command.

mod commands;
mod failure;
mod jobs;
mod list;
mod optional;
mod routed;
mod terminal;
mod topics;
mod usage;
#[cfg(feature = "tables")]
mod words;

use clap::{CommandFactory, FromArgMatches, Parser};
use std::process::ExitCode;

/// Keeps freed memory for the next call. The system's allocator gives outputs of some megabytes
/// back each time, and asking for them again shows in the time of a backward pass.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Random features that turn the softmax and Gaussian kernels into linear-time products.
#[derive(Debug, Parser)]
#[command(name = "favor", version, arg_required_else_help = true, max_term_width = 100)]
#[command(disable_help_subcommand = true)]
#[command(after_help = after_help())]
struct Cli {
    /// Show no progress bars; they are hidden anyway where standard error is not a terminal
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: commands::Command,
}

/// What stands below the help.
fn after_help() -> String {
    [optional::after_help(), topics::list(), topics::environment()].join("\n\n")
}

/// The command as clap knows it, with its subcommands by job.
fn command() -> clap::Command {
    let command = Cli::command();
    let help = jobs::help_template(&command);
    command.help_template(help)
}

fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|found| Cli::from_arg_matches(&found));
    match parsed {
        Ok(cli) => {
            terminal::be_quiet(cli.quiet);
            failure::exit_code(cli.command.run())
        }
        Err(error) => usage::explain(&error),
    }
}
