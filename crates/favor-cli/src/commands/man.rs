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
        let mut all = crate::command();
        // Only then do commands know their full names.
        all.build();
        let mut page = Vec::new();
        Man::new(find(&mut all, &self.path, &[])?.clone())
            .render(&mut page)
            .map_err(Failure::Print)?;
        terminal::print(&String::from_utf8_lossy(&page))
    }
}

/// The subcommand of that path. What else could have been meant by a single name is in `others`.
pub(super) fn find<'c>(
    mut command: &'c mut Command,
    path: &[String],
    others: &[&str],
) -> Result<&'c mut Command, Error> {
    for (depth, name) in path.iter().enumerate() {
        let error = unknown(command, name, if depth == 0 { others } else { &[] });
        command = command.find_subcommand_mut(name).ok_or(error)?;
    }
    Ok(command)
}

fn unknown(command: &Command, name: &str, others: &[&str]) -> Error {
    let mut names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    names.extend(others);
    let reason = optional::missing(name).unwrap_or_else(|| {
        if names.is_empty() {
            format!("'{}' has no further commands", command.get_name())
        } else {
            favor::unknown_name(name, &names)
        }
    });
    Error::invalid("command", reason)
}
