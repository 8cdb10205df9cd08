//! `cargo xtask bench`: the speed comparisons with PyTorch, JAX, NumPy and scikit-learn.

use crate::places::Profile;
use crate::python::{self, Environment, NO_PYTHON, Packages};
use crate::step::{Outcome, Steps, cargo, execute};
use crate::wheel::{self, Installed};
use crate::workspace;

/// Attention and products; `bench tables` instead compares the commands on tables, `bench nn` the
/// training of transformers, `bench python` the package with the engine alone, and `bench quality` error and
/// time of every way to attend.
pub(crate) fn run(more: &[&str]) -> Outcome {
    let steps = &mut Steps::default();
    match more {
        ["tables", more @ ..] => tables(steps, more),
        ["nn", more @ ..] => nn(steps, more),
        ["python", more @ ..] => package(steps, more),
        ["quality", more @ ..] => quality(steps, more),
        _ => speed(steps, more),
    }
}

fn speed(steps: &mut Steps, more: &[&str]) -> Outcome {
    let environment = packages(steps, "speed")?;
    steps.run("our side", || execute(&mut cargo("build --package favor-cli --release")))?;
    steps.run("comparison", || {
        let mut python = environment.python();
        python.arg("bench/speed/run.py").arg("--favor").arg(Profile::Release.favor()?);
        execute(python.args(more))
    })
}

fn tables(steps: &mut Steps, more: &[&str]) -> Outcome {
    let environment = packages(steps, "tables")?;
    steps.run("our side", build)?;
    let installed = steps.run("our package", || Installed::new(&environment, Profile::Release))?;
    steps.run("comparison", || {
        let mut python = installed.python();
        python.arg("bench/tables/run.py").arg("--favor").arg(Profile::Release.favor()?);
        python.arg("--overhead").arg(Profile::Release.example("overhead")?);
        execute(python.args(more))
    })
}

fn nn(steps: &mut Steps, more: &[&str]) -> Outcome {
    let environment = packages(steps, "nn")?;
    steps.run("our side", build)?;
    steps.run("comparison", || {
        let mut python = environment.python();
        python.arg("bench/nn/run.py").arg("--step").arg(Profile::Release.example("step")?);
        execute(python.args(more))
    })
}

fn package(steps: &mut Steps, more: &[&str]) -> Outcome {
    steps.run("the engine", || execute(&mut cargo("build --package favor-cli --release")))?;
    let packages = steps.run("packages", wheel::packages)?.ok_or(NO_PYTHON)?;
    let installed = steps.run("our package", || Installed::new(&packages, Profile::Release))?;
    steps.run("comparison", || {
        let mut python = installed.python();
        python.arg("bench/python/overhead.py").arg("--favor").arg(Profile::Release.favor()?);
        execute(python.args(more))
    })
}

fn quality(steps: &mut Steps, more: &[&str]) -> Outcome {
    let environment = packages(steps, "quality")?;
    let installed = steps.run("our package", || Installed::new(&environment, Profile::Release))?;
    steps.run("comparison", || {
        let mut python = installed.python();
        execute(python.arg("bench/quality/run.py").args(more))
    })
}

/// Builds the command with all that it can have, and the examples, for speed.
fn build() -> Outcome {
    execute(&mut cargo(&format!("build {} --release --bins --examples", workspace::whole()?)))
}

/// The environment of a comparison, with its packages.
fn packages(steps: &mut Steps, name: &str) -> Result<Environment, String> {
    let packages = Packages::of(&format!("bench/{name}/requirements.txt"))?;
    let found = steps.run("packages", || python::environment(name, &packages))?;
    found.ok_or_else(|| NO_PYTHON.into())
}
