//! `cargo xtask peers`: the comparison with public implementations.

use crate::step::{Outcome, cargo, execute, step};
use crate::{places, python};
use std::path::Path;
use std::process::Command;

pub(crate) fn run() -> Outcome {
    let requirements = places::root().join("bench/peers/requirements.txt");
    let mut environment = None;
    step("packages", || {
        environment = python::environment("peers", &requirements)?;
        match environment {
            Some(_) => Ok(()),
            None => Err("python3 with its venv module is needed for this comparison".into()),
        }
    })?;
    let environment = environment.expect("the step before has set it");
    step("compiled packages", || {
        compile(&environment);
        Ok(())
    })?;
    step("our side", || execute(&mut cargo("build --package favor --release --example attend")))?;
    step("comparison", || {
        let mut python = Command::new(python::program(&environment, "python"));
        python.arg("bench/peers/compare.py").arg("--attend").arg(places::example("attend")?);
        execute(python.current_dir(places::root()))
    })
}

/// Packages that come as source and do not build everywhere: the comparison does without those.
fn compile(environment: &Path) {
    let mut pip = Command::new(python::program(environment, "python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--no-build-isolation", "-r", "bench/peers/requirements-compiled.txt"]);
    if let Err(reason) = execute(pip.current_dir(places::root())) {
        eprintln!("left out: {reason}");
    }
}
