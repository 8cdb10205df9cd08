//! `cargo xtask package`: the Python wheel as users get it, tested and kept.

use crate::places::{self, Profile};
use crate::python::NO_PYTHON;
use crate::skips::Skips;
use crate::step::{Outcome, Steps};
use crate::wheel::{self, Installed};

pub(crate) fn run() -> Outcome {
    let (mut steps, skips) = (Steps::default(), Skips::new()?);
    let packages = steps.run("python packages", wheel::packages)?.ok_or(NO_PYTHON)?;
    let folder = places::target()?.join("python").join("wheel");
    let wheel = steps.run("wheel", || {
        // What an earlier version left there would be taken for ours.
        let _ = std::fs::remove_dir_all(&folder);
        wheel::build(&packages, Profile::Release, &folder)
    })?;
    let installed = steps.run("installation", || Installed::of(&packages, &wheel))?;
    steps.run("python tests", || wheel::test(&installed, &skips))?;
    eprint!("\n{}\n{}\n{}\n", steps.table(), skips.report(), wheel.display());
    Ok(())
}
