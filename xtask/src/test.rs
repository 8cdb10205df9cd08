//! `cargo xtask test`: what the build server runs and what a person runs.

use crate::step::{FEATURES, Outcome, build, cargo, execute, step};
use crate::{places, python, quotes, store, wheel};
use std::time::Instant;

/// One profile and one set of features throughout, so that nothing is built twice.
pub(crate) fn run() -> Outcome {
    let start = Instant::now();
    for (component, command) in [("rustfmt", "fmt --version"), ("clippy", "clippy --version")] {
        if cargo(command).output().map_or(true, |o| !o.status.success()) {
            return Err(format!(
                "{component} is not installed; get it by\n\n    rustup component add {component}\n"
            ));
        }
    }
    step("format", || execute(&mut cargo("fmt --all --check")))?;
    step("lints", || {
        let lints = format!("clippy --workspace --all-targets --release {FEATURES} -- -D warnings");
        execute(&mut cargo(&lints))
    })?;
    step("tests", || {
        let mut tests = cargo(&format!("test --workspace --release {FEATURES}"));
        match store::server()? {
            Some(server) => tests.env("FAVOR_MOTO_SERVER", server),
            None => &mut tests,
        };
        execute(&mut tests)
    })?;
    step("reference pages", || {
        // With the examples, because then dependencies have the features that the lints gave them.
        let doc = format!("doc --workspace --lib --examples --no-deps --release {FEATURES}");
        let mut doc = cargo(&doc);
        execute(doc.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("quoted outputs", || {
        execute(&mut build())?;
        quotes::check()
    })?;
    step("python", lint_python)?;
    step("python package", wheel::test)?;
    eprintln!("\neverything passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Lints, format and types of the Python files, by tools of their own in the target directory.
fn lint_python() -> Outcome {
    let requirements = places::root().join("xtask/requirements.txt");
    let Some(environment) = python::environment("lint", &requirements)? else {
        eprintln!("skipped: there is no python3 that can make an environment");
        return Ok(());
    };
    let cache = places::target()?.join("python").join("ruff-cache");
    for arguments in [&["check"][..], &["format", "--check"]] {
        let mut ruff = std::process::Command::new(python::program(&environment, "ruff"));
        ruff.args(arguments).arg("--cache-dir").arg(&cache).arg(".");
        execute(ruff.current_dir(places::root()))?;
    }
    let cache = places::target()?.join("python").join("mypy-cache");
    let mut mypy = std::process::Command::new(python::program(&environment, "mypy"));
    execute(mypy.arg("--cache-dir").arg(cache).current_dir(places::root()))
}
