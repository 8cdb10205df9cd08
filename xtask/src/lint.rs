//! `cargo xtask lint`: format, lints, reference pages, minimum Rust versions, what published crates say of
//! themselves, and the Python files.

use crate::places;
use crate::python::{self, NO_PYTHON, Packages};
use crate::skips::Skips;
use crate::step::{Outcome, Steps, cargo, execute};
use crate::{crates, versions, workspace};
use std::process::Command;

pub(crate) fn run() -> Outcome {
    for (component, command) in [("rustfmt", "fmt --version"), ("clippy", "clippy --version")] {
        if cargo(command).output().map_or(true, |o| !o.status.success()) {
            return Err(format!(
                "{component} is not installed; get it by\n\n    rustup component add {component}\n"
            ));
        }
    }
    let (mut steps, skips) = (Steps::default(), Skips::new()?);
    let outcome = steps_of(&mut steps, &skips);
    eprint!("\n{}\n{}", steps.table(), skips.report());
    outcome.inspect(|()| eprintln!("\neverything passed"))
}

fn steps_of(steps: &mut Steps, skips: &Skips) -> Outcome {
    steps.run("format", || execute(&mut cargo("fmt --all --check")))?;
    steps.run("minimum rust versions", versions::check)?;
    steps.run("published crates", crates::check)?;
    steps.run("python files", || python_files(skips))?;
    let whole = workspace::whole()?;
    steps.run("lints", || {
        execute(&mut cargo(&format!("clippy {whole} --all-targets -- -D warnings")))
    })?;
    steps.run("reference pages", || {
        // With the examples, because then dependencies have the features that the lints gave them.
        let doc = format!("doc {whole} --lib --examples --no-deps");
        execute(cargo(&doc).env("RUSTDOCFLAGS", "-D warnings"))
    })
}

/// Lints, format and types of the Python files, by tools of their own in the target directory.
fn python_files(skips: &Skips) -> Outcome {
    let packages = Packages::complete("xtask/python/lint.txt")?;
    let Some(tools) = python::environment("lint", &packages)? else {
        return skips.add("python files", NO_PYTHON);
    };
    let cache = places::target()?.join("python");
    let (ruff, mypy) = (cache.join("ruff-cache"), cache.join("mypy-cache"));
    for arguments in [&["check"][..], &["format", "--check"]] {
        let mut command = Command::new(tools.program("ruff"));
        command.args(arguments).arg("--cache-dir").arg(&ruff).arg(".");
        execute(command.current_dir(places::root()))?;
    }
    let mut command = Command::new(tools.program("mypy"));
    execute(command.arg("--cache-dir").arg(mypy).current_dir(places::root()))
}
