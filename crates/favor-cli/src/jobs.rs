//! The subcommands by job, for the help.

use clap::Command;
use std::fmt::Write;

/// Every subcommand of any build, under the job that a person comes with.
const JOBS: &[(&str, &[&str])] = &[
    ("Features and attention", &["demo", "inspect", "near", "learn"]),
    (
        "Tables",
        &[
            "fit", "predict", "evaluate", "info", "update", "merge", "subtract", "compare",
            "project", "cluster",
        ],
    ),
    ("Transformers", &["convert", "embed", "finetune", "pretrain"]),
    ("Speech", &["asr"]),
    ("Experiments", &["reproduce", "bench"]),
    ("Help and shell", &["help", "completions", "man"]),
];

/// The form of the help: clap lists subcommands in one block, so the blocks are written here.
pub(crate) fn help_template(command: &Command) -> String {
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let width = command.get_subcommands().map(|s| s.get_name().len()).max().unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (job, names) in JOBS {
        let built: Vec<&Command> =
            names.iter().filter_map(|name| command.find_subcommand(name)).collect();
        if built.is_empty() {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{header}{job}:{header:#}");
        for subcommand in built {
            let name = subcommand.get_name();
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_subcommand_has_one_job() {
        let command = crate::Cli::command();
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            let jobs = JOBS.iter().filter(|(_, names)| names.contains(&name));
            assert_eq!(jobs.count(), 1, "{name}");
            // Braces would be taken for parts of the template.
            let about = subcommand.get_about().unwrap().to_string();
            assert!(!about.is_empty() && !about.contains(['{', '}']), "{name}: {about}");
        }
    }
}
