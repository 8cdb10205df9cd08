//! `cargo xtask bench`: the speed comparisons with PyTorch, JAX, NumPy and scikit-learn.

use crate::step::{Outcome, build, cargo, execute, step};
use crate::{places, python};
use std::path::PathBuf;
use std::process::Command;

/// Attention and products; `bench tables` instead compares the commands on tables, and `bench nn` the
/// training of transformers.
pub(crate) fn run(more: &[&str]) -> Outcome {
    match more {
        ["tables", more @ ..] => tables(more),
        ["nn", more @ ..] => nn(more),
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

/// The environment of a comparison, with its packages.
fn packages(name: &str) -> Result<PathBuf, String> {
    let requirements = places::root().join("bench").join(name).join("requirements.txt");
    let mut environment = None;
    step("packages", || {
        environment = python::environment(name, &requirements)?;
        Ok(())
    })?;
    environment.ok_or_else(|| "python3 with its venv module is needed for this comparison".into())
}
