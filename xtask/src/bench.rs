//! `cargo xtask bench`: the speed comparison with PyTorch, JAX, NumPy and scikit-learn.

use crate::step::{Outcome, cargo, execute, step};
use crate::{places, python};
use std::process::Command;

pub(crate) fn run(more: &[&str]) -> Outcome {
    let requirements = places::root().join("bench/speed/requirements.txt");
    let mut environment = None;
    step("packages", || {
        environment = python::environment("speed", &requirements)?;
        Ok(())
    })?;
    let missing = "python3 with its venv module is needed for this comparison";
    let environment = environment.ok_or(missing)?;
    step("our side", || execute(&mut cargo("build --package favor-cli --release")))?;
    step("comparison", || {
        let mut python = Command::new(python::program(&environment, "python"));
        python.arg("bench/speed/run.py").arg("--favor").arg(places::favor()?).args(more);
        execute(python.current_dir(places::root()))
    })
}
