//! `favor man`.

use crate::failure::{Failure, Outcome};
use crate::{optional, terminal};
use clap::Command;
use clap_mangen::Man;
use favor::Error;

const EXAMPLES: &str = "Examples:
  favor man | man -l -
  favor man reproduce uci > favor-reproduce-uci.1";

/// Print the manual page for favor or one of its commands.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Command to describe [default: favor itself]
    #[arg(value_name = "COMMAND")]
    path: Vec<String>,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let mut all = crate::command().disable_help_subcommand(true);
        // Only then do commands know their full names.
        all.build();
        let mut command = &all;
        for name in &self.path {
            command = command.find_subcommand(name).ok_or_else(|| unknown(command, name))?;
        }
        let mut page = Vec::new();
        Man::new(command.clone()).render(&mut page).map_err(Failure::Print)?;
        terminal::print(&String::from_utf8_lossy(&page))
    }
}

fn unknown(command: &Command, name: &str) -> Error {
    let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let reason = optional::missing(name).unwrap_or_else(|| {
        if names.is_empty() {
            format!("'{}' has no further commands", command.get_name())
        } else {
            favor::unknown_name(name, &names)
        }
    });
    Error::invalid("command", reason)
}
