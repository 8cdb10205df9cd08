//! Python environments, made in the target directory and kept for the next time.

use crate::places;
use crate::step::execute;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The environment of this name with the packages of the requirements file, or `None` if there is
/// no python3 that can make one.
pub(crate) fn environment(name: &str, requirements: &Path) -> Result<Option<PathBuf>, String> {
    let wanted = std::fs::read_to_string(requirements)
        .map_err(|e| format!("{}: {e}", requirements.display()))?;
    let folder = places::target()?.join("python").join(name);
    let stamp = folder.join("installed.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Some(folder));
    }
    if !succeeds("python3", &["-c", "import venv, ensurepip"]) {
        return Ok(None);
    }
    execute(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(program(&folder, "python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    execute(pip.arg(requirements))?;
    std::fs::write(&stamp, wanted).map_err(|e| format!("{}: {e}", stamp.display()))?;
    Ok(Some(folder))
}

/// A program of an environment.
pub(crate) fn program(environment: &Path, name: &str) -> PathBuf {
    let folder = if cfg!(windows) { "Scripts" } else { "bin" };
    environment.join(folder).join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
