//! What was not tested, and why.
//!
//! A test that cannot run here adds a line `test<TAB>reason` to the file that `FAVOR_SKIPPED` names, in
//! Rust by `favor_testing::skipped` and in Python by a hook in `conftest.py`. Steps that cannot run add
//! theirs here.

use crate::places::Scratch;
use crate::step::Outcome;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// The list of one run.
pub(crate) struct Skips {
    folder: Scratch,
}

impl Skips {
    pub(crate) fn new() -> Result<Self, String> {
        Ok(Self { folder: Scratch::new("skipped")? })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("list")
    }

    /// Lets the tests that a command runs add to the list.
    pub(crate) fn told_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("FAVOR_SKIPPED", self.file())
    }

    /// Adds a step to the list.
    pub(crate) fn add(&self, step: &str, reason: &str) -> Outcome {
        eprintln!("skipped: {reason}");
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file())
            .map_err(|e| format!("{}: {e}", self.file().display()))?;
        writeln!(file, "{step}\t{reason}").map_err(|e| format!("{}: {e}", self.file().display()))
    }

    /// The list as it is to be read.
    pub(crate) fn report(&self) -> String {
        // Nothing has made the file if nothing was skipped.
        report(&std::fs::read_to_string(self.file()).unwrap_or_default())
    }
}

fn report(list: &str) -> String {
    let mut rows: Vec<(&str, &str)> =
        list.lines().map(|l| l.split_once('\t').unwrap_or((l, "no reason given"))).collect();
    rows.sort_unstable();
    rows.dedup();
    if rows.is_empty() {
        return "nothing skipped\n".into();
    }
    let mut text = format!("skipped: {}\n", rows.len());
    for (test, reason) in rows {
        text += &format!("  {test}: {reason}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(report(""), "nothing skipped\n");
        let list = "b::two\tno data\na.py::one\tno torch\nb::two\tno data\nodd\n";
        let wanted =
            "skipped: 3\n  a.py::one: no torch\n  b::two: no data\n  odd: no reason given\n";
        assert_eq!(report(list), wanted);
    }
}
