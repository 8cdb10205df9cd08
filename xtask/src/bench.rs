//! `cargo xtask bench`: the speed comparisons with PyTorch, JAX, NumPy and scikit-learn.

use crate::step::{Outcome, build, cargo, execute, step};
use crate::{places, python, wheel};
use std::path::PathBuf;
use std::process::Command;

/// Attention and products; `bench tables` instead compares the commands on tables, `bench nn` the
/// training of transformers, and `bench python` the package with the engine alone.
pub(crate) fn run(more: &[&str]) -> Outcome {
    match more {
        ["tables", more @ ..] => tables(more),
        ["nn", more @ ..] => nn(more),
        ["python", more @ ..] => package(more),
        _ => speed(more),
    }
}

fn speed(more: &[&str]) -> Outcome {
    let environment = packages("speed")?;
    step("our side", || execute(&mut cargo("build --package favor-cli --release")))?;
    step("comparison", || {
        let mut python = Command::new(python::program(&environment, "python"));
        python.arg("bench/speed/run.py").arg("--favor").arg(places::favor()?).args(more);
        execute(python.current_dir(places::root()))
    })
}

fn tables(more: &[&str]) -> Outcome {
    let environment = packages("tables")?;
    step("our side", || execute(&mut build()))?;
    step("comparison", || {
        let mut python = Command::new(python::program(&environment, "python"));
        python.arg("bench/tables/run.py").arg("--favor").arg(places::favor()?);
        python.arg("--overhead").arg(places::example("overhead")?).args(more);
        execute(python.current_dir(places::root()))
    })
}

fn nn(more: &[&str]) -> Outcome {
    let environment = packages("nn")?;
    step("our side", || execute(&mut build()))?;
    step("comparison", || {
        let mut python = Command::new(python::program(&environment, "python"));
        python.arg("bench/nn/run.py").arg("--step").arg(places::example("step")?).args(more);
        execute(python.current_dir(places::root()))
    })
}

fn package(more: &[&str]) -> Outcome {
    step("the engine", || execute(&mut cargo("build --package favor-cli --release")))?;
    let mut environment = None;
    step("the package", || {
        environment = wheel::installed()?;
        Ok(())
    })?;
    let environment = environment.ok_or(NO_PYTHON)?;
    step("comparison", || {
        let mut python = Command::new(python::program(&environment, "python"));
        python.arg("bench/python/overhead.py").arg("--favor").arg(places::favor()?).args(more);
        execute(python.current_dir(places::root()))
    })
}

const NO_PYTHON: &str = "python3 with its venv module is needed for this comparison";

/// The environment of a comparison, with its packages.
fn packages(name: &str) -> Result<PathBuf, String> {
    let requirements = places::root().join("bench").join(name).join("requirements.txt");
    let mut environment = None;
    step("packages", || {
        environment = python::environment(name, &requirements)?;
        Ok(())
    })?;
    environment.ok_or_else(|| NO_PYTHON.into())
}
