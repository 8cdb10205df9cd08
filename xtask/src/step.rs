//! Steps: a name, some work, its time, and how to repeat what failed.

use crate::places;
use std::ffi::OsStr;
use std::process::Command;
use std::time::Instant;

/// Nothing, or the reason of the failure.
pub(crate) type Outcome = Result<(), String>;

/// Runs one named step and tells its time.
pub(crate) fn step(name: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    eprintln!("\n== {name}");
    let start = Instant::now();
    let outcome = work();
    let seconds = start.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => eprintln!("== {name}: passed in {seconds:.1} s"),
        Err(reason) => return Err(format!("{name} failed after {seconds:.1} s\n{reason}")),
    }
    Ok(())
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

/// Every feature of the command and of the libraries: what a default build leaves out is tested too.
pub(crate) const FEATURES: &str = "--features favor-cli/s3,favor-cli/speech,favor-tables/linfa";

/// Builds the command with all that it can have, and the examples: as the tests build them.
pub(crate) fn build() -> Command {
    cargo(&format!("build --workspace --release --bins --examples {FEATURES}"))
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
}
