//! The outputs that documents quote, checked against what the commands print.
//!
//! A quote is a fenced block right after a comment that names its command:
//!
//! ````text
//! <!-- output of `cargo run --release -p favor --example product` -->
//! ```text
//! …
//! ```
//! ````
//!
//! A line `…` in a quote stands for any lines.

use crate::places::{self, Profile, Scratch};
use crate::step::{Outcome, cargo, execute, output};
use crate::workspace;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const OPEN: &str = "<!-- output of `";
const FENCE: &str = "```";
const ANYTHING: &str = "…";

/// A quoted output: its command and the lines of its block, as a range of line numbers.
struct Quote {
    command: String,
    start: usize,
    end: usize,
}

/// Compares every quote with the output of its command.
pub(crate) fn check() -> Outcome {
    let mut programs = Programs::build()?;
    for path in documents()? {
        let text = read(&path)?;
        let lines: Vec<&str> = text.lines().collect();
        for quote in find(&lines).map_err(|e| format!("{}: {e}", path.display()))? {
            let found = programs.print(&quote.command)?;
            let found: Vec<&str> = found.lines().map(str::trim_end).collect();
            if !matches(&lines[quote.start..quote.end], &found) {
                return Err(format!(
                    "{}, line {}: `{}` now prints\n\n{}\n\nto quote it again:\n\n    cargo xtask quotes\n",
                    path.display(),
                    quote.start,
                    quote.command,
                    found.join("\n"),
                ));
            }
            eprintln!("{}: `{}`", path.display(), quote.command);
        }
    }
    Ok(())
}

/// Writes the output of each command into its quotes, except into those with a `…`.
pub(crate) fn rewrite() -> Outcome {
    let mut programs = Programs::build()?;
    for path in documents()? {
        let text = read(&path)?;
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        let borrowed: Vec<&str> = text.lines().collect();
        let mut quotes = find(&borrowed)?;
        quotes.retain(|quote| !borrowed[quote.start..quote.end].contains(&ANYTHING));
        // In order, because a command may need what an earlier one wrote; then from the end, because that
        // leaves the places of the others as they are.
        for quote in &quotes {
            programs.print(&quote.command)?;
        }
        for quote in quotes.into_iter().rev() {
            let found = programs.print(&quote.command)?;
            let found = found.lines().map(|l| l.trim_end().to_string());
            lines.splice(quote.start..quote.end, found);
        }
        let new = lines.join("\n") + "\n";
        if new != text {
            std::fs::write(&path, new).map_err(|e| format!("{}: {e}", path.display()))?;
            eprintln!("wrote {}", path.display());
        }
    }
    Ok(())
}

/// The README and everything in `docs/`, in order.
fn documents() -> Result<Vec<PathBuf>, String> {
    let folder = places::root().join("docs");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "md"));
    paths.push(places::root().join("README.md"));
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn find(lines: &[&str]) -> Result<Vec<Quote>, String> {
    let mut quotes = vec![];
    for (number, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix(OPEN) else { continue };
        let here = format!("line {}", number + 1);
        let (command, _) = rest.split_once('`').ok_or(format!("{here}: no command"))?;
        let start = number + 2;
        if !lines.get(number + 1).is_some_and(|l| l.starts_with(FENCE)) {
            return Err(format!("{here}: no block follows the comment"));
        }
        let length = lines[start..].iter().position(|l| *l == FENCE);
        let length = length.ok_or(format!("{here}: the block does not end"))?;
        quotes.push(Quote { command: command.into(), start, end: start + length });
    }
    Ok(quotes)
}

/// The command and the examples, as the tests build them, and what they have printed.
struct Programs {
    /// A folder of their own: what one command writes the next may read.
    folder: Scratch,
    printed: HashMap<String, String>,
}

impl Programs {
    fn build() -> Result<Self, String> {
        execute(&mut cargo(&format!("build {} --bins --examples", workspace::whole()?)))?;
        Ok(Self { folder: Scratch::new("quotes")?, printed: HashMap::new() })
    }

    /// What a command prints. Each is run once. Documents tell users to build with `--release`; here
    /// the programs of the tests print the same.
    fn print(&mut self, command: &str) -> Result<String, String> {
        if let Some(text) = self.printed.get(command) {
            return Ok(text.clone());
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        let (program, arguments) = match &words[..] {
            ["cargo", "run", "--release", "-p", _, "--example", name] => {
                (Profile::Dev.example(name)?, &[][..])
            }
            ["cargo", "run", "--release", "-p", _, "--example", name, "--", rest @ ..] => {
                (Profile::Dev.example(name)?, rest)
            }
            ["cargo", "run", "--release", "--", rest @ ..] | ["favor", rest @ ..] => {
                (Profile::Dev.favor()?, rest)
            }
            _ => return Err(format!("`{command}` is neither an example nor the favor command")),
        };
        let mut run = Command::new(program);
        let text = output(run.args(arguments).current_dir(self.folder.path()))?;
        self.printed.insert(command.into(), text.clone());
        Ok(text)
    }
}

/// Whether the lines are the pattern's, a `…` standing for any number of them.
fn matches(pattern: &[&str], lines: &[&str]) -> bool {
    match pattern.split_first() {
        None => lines.is_empty(),
        Some((&ANYTHING, rest)) => (0..=lines.len()).any(|k| matches(rest, &lines[k..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(l, more)| l == first && matches(rest, more))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_found() {
        let text = "a\n<!-- output of `favor help` -->\n```text\none\ntwo\n```\nb";
        let lines: Vec<&str> = text.lines().collect();
        let quotes = find(&lines).unwrap();
        assert_eq!(quotes.len(), 1);
        assert_eq!(quotes[0].command, "favor help");
        assert_eq!(&lines[quotes[0].start..quotes[0].end], ["one", "two"]);
        assert!(find(&["<!-- output of `x` -->", "no block"]).is_err());
        assert!(find(&["<!-- output of `x` -->", "```text", "never closed"]).is_err());
    }

    #[test]
    fn dots_stand_for_any_lines() {
        assert!(matches(&["a", "…", "c"], &["a", "b", "b", "c"]));
        assert!(matches(&["…"], &[]));
        assert!(matches(&["a"], &["a"]));
        assert!(!matches(&["a", "…", "c"], &["a", "b"]));
        assert!(!matches(&["a"], &["a", "b"]));
    }
}
