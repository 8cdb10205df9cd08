//! Arguments that could not be read, reported in one line.

use crate::optional;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use std::process::ExitCode;

/// Prints help or version as asked for, or one line about what is wrong with the arguments.
pub(crate) fn explain(error: &Error) -> ExitCode {
    // A reader that has gone away is no reason to complain: printing errors are ignored.
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(crate::failure::BAD_INPUT)
        }
        _ => {
            let line = left_out(error).unwrap_or_else(|| one_line(&error.to_string()));
            eprintln!("favor: {line}");
            ExitCode::from(crate::failure::BAD_INPUT)
        }
    }
}

/// That the subcommand or the option exists but not in this build, if so.
fn left_out(error: &Error) -> Option<String> {
    let unknown = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    match unknown.into_iter().find_map(|kind| error.get(kind))? {
        ContextValue::String(name) => optional::missing(name),
        _ => None,
    }
}

/// The message and its tips, without the usage that follows.
fn one_line(message: &str) -> String {
    let mut parts = Vec::new();
    let mut before_blank = true;
    for line in message.lines().map(str::trim) {
        if line.is_empty() || line.starts_with("Usage:") {
            before_blank = false;
        } else if before_blank || line.starts_with("tip:") {
            parts.push(line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    format!("{}; see favor --help", parts.join("; "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_become_one_line() {
        let message = "error: unexpected argument '--query' found\n\n  tip: a similar argument \
                       exists: '--queries'\n\nUsage: favor inspect\n\nFor more, try '--help'.";
        let line = super::one_line(message);
        assert_eq!(
            line,
            "unexpected argument '--query' found; tip: a similar argument exists: '--queries'; see \
             favor --help"
        );
    }
}
