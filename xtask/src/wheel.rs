//! The Python package: built as a wheel, installed into an environment of its own, and tested there.

use crate::step::{Outcome, execute};
use crate::{places, python};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds, installs and tests the wheel.
pub(crate) fn test() -> Outcome {
    let Some(environment) = installed()? else {
        eprintln!("skipped: there is no python3 that can make an environment");
        return Ok(());
    };
    // Isolated, so that the wheel is found and not the sources; nothing is written beside them.
    let mut tests = python(&environment);
    tests.args(["-I", "-B", "-m", "pytest", "-p", "no:cacheprovider", "--durations=5"]);
    execute(&mut tests)
}

/// The environment of the tests with the wheel in it, or `None` if there is no python3 that can make one.
pub(crate) fn installed() -> Result<Option<PathBuf>, String> {
    let requirements = places::root().join("python/tests/requirements.txt");
    let Some(environment) = python::environment("package", &requirements)? else {
        return Ok(None);
    };
    let wheel = build(&environment)?;
    let mut pip = python(&environment);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    execute(pip.args(["--force-reinstall", "--no-deps"]).arg(wheel))?;
    Ok(Some(environment))
}

/// The wheel, in the target directory.
fn build(environment: &Path) -> Result<PathBuf, String> {
    let folder = places::target()?.join("python").join("wheel");
    // What an earlier version left there would be taken for ours.
    let _ = std::fs::remove_dir_all(&folder);
    let mut maturin = python(environment);
    maturin.args(["-m", "maturin", "build", "--release", "--locked", "--quiet", "--out"]);
    maturin.arg(&folder).arg("--interpreter").arg(python::program(environment, "python"));
    execute(maturin.env("CARGO_TARGET_DIR", places::target()?))?;
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut wheels = entries.filter_map(|e| Some(e.ok()?.path()));
    wheels
        .find(|p| p.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| format!("{}: maturin has left no wheel", folder.display()))
}

fn python(environment: &Path) -> Command {
    let mut command = Command::new(python::program(environment, "python"));
    command.current_dir(places::root());
    command
}
