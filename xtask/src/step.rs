//! Steps: a name, some work, its time, and how to repeat what failed.

use crate::places;
use std::ffi::OsStr;
use std::process::Command;
use std::time::{Duration, Instant};

/// Nothing, or the reason of the failure.
pub(crate) type Outcome = Result<(), String>;

/// Steps one after the other, and the time that each has taken.
#[derive(Default)]
pub(crate) struct Steps {
    times: Vec<(String, Duration)>,
}

impl Steps {
    /// Runs one named step and keeps its time, whether it fails or not.
    pub(crate) fn run<T>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        eprintln!("\n== {name}");
        let start = Instant::now();
        let outcome = work();
        let time = start.elapsed();
        self.times.push((name.into(), time));
        let seconds = time.as_secs_f64();
        match outcome {
            Ok(value) => {
                eprintln!("== {name}: passed in {seconds:.1} s");
                Ok(value)
            }
            Err(reason) => Err(format!("{name} failed after {seconds:.1} s\n{reason}")),
        }
    }

    /// The times as a table, with their sum.
    pub(crate) fn table(&self) -> String {
        let total = self.times.iter().map(|(_, t)| *t).sum();
        let total = ("total".to_string(), total);
        let rows: Vec<&(String, Duration)> = self.times.iter().chain([&total]).collect();
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let line = |(name, time): &(String, Duration)| {
            let tenths = (10.0 * time.as_secs_f64()).round() as u64;
            let (minutes, seconds) = (tenths / 600, tenths % 600);
            format!("  {name:width$} {minutes:>4} min {:>2}.{} s\n", seconds / 10, seconds % 10)
        };
        rows.into_iter().map(line).collect()
    }
}

/// A cargo command at the top of the tree.
pub(crate) fn cargo(arguments: &str) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).current_dir(places::root());
    // What cargo told this program of itself. Build scripts of dependencies look at it, and half of them
    // would be built again whenever cargo is called from here and then by hand.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(name)) {
        command.env_remove(name);
    }
    command
}

fn is_of_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start))
}

/// Runs a command to its end. A failure comes with the line that repeats it.
pub(crate) fn execute(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{status}; to repeat:\n\n    {}\n", line(command))),
        Err(error) => Err(format!("{error}; the command was:\n\n    {}\n", line(command))),
    }
}

/// Runs a command and gives what it wrote.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let result = command.output().map_err(|e| format!("{}: {e}", line(command)))?;
    if !result.status.success() {
        let errors = String::from_utf8_lossy(&result.stderr);
        return Err(format!("{}: {}\n{errors}", line(command), result.status));
    }
    String::from_utf8(result.stdout).map_err(|_| format!("{}: not UTF-8", line(command)))
}

/// The command as a person would type it.
fn line(command: &Command) -> String {
    let word = |text: &OsStr| {
        let text = text.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,".contains(c);
        if text.chars().all(plain) { text.into_owned() } else { format!("'{text}'") }
    };
    let set = command.get_envs().filter_map(|(k, v)| Some((word(k), word(v?))));
    let mut words: Vec<String> = set.map(|(k, v)| format!("{k}={v}")).collect();
    let program = command.get_program();
    match std::env::var_os("CARGO") {
        Some(cargo) if cargo == program => words.push("cargo".into()),
        _ => words.push(word(program)),
    }
    words.extend(command.get_args().map(word));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_can_be_typed() {
        let mut command = Command::new("tool");
        command.args(["--all", "a b"]).env("FLAGS", "-D warnings");
        assert_eq!(line(&command), "FLAGS='-D warnings' tool --all 'a b'");
    }

    #[test]
    fn times_are_summed() {
        let mut steps = Steps::default();
        assert_eq!(steps.run("one", || Ok(1)), Ok(1));
        let failed = steps.run("the second", || -> Outcome { Err("why".into()) });
        assert!(failed.unwrap_err().ends_with("\nwhy"));
        steps.times[0].1 = Duration::from_millis(59_960);
        steps.times[1].1 = Duration::from_millis(7_000);
        let wanted = "  one           1 min  0.0 s\n  the second    0 min  7.0 s\n  total         1 min  7.0 s\n";
        assert_eq!(steps.table(), wanted);
    }
}
