//! `cargo xtask peers`: the comparison with public implementations.

use crate::places::Profile;
use crate::python::{self, NO_PYTHON, Packages};
use crate::step::{Outcome, Steps, cargo, execute};

pub(crate) fn run() -> Outcome {
    let steps = &mut Steps::default();
    let packages = Packages::of("bench/peers/requirements.txt")?
        .and_from_source("bench/peers/requirements-compiled.txt")?;
    let environment = steps.run("packages", || python::environment("peers", &packages))?;
    let environment = environment.ok_or(NO_PYTHON)?;
    steps.run("our side", || {
        execute(&mut cargo("build --package favor --release --example attend"))
    })?;
    steps.run("comparison", || {
        let mut python = environment.python();
        python
            .arg("bench/peers/compare.py")
            .arg("--attend")
            .arg(Profile::Release.example("attend")?);
        execute(&mut python)
    })
}
