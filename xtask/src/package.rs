//! `cargo xtask package`: what users get. The crates as archives, checked without compiling them, and the
//! Python wheel, tested and kept.

use crate::crates;
use crate::places::{self, Profile};
use crate::python::NO_PYTHON;
use crate::skips::Skips;
use crate::step::{Outcome, Steps};
use crate::wheel::{self, Installed};

pub(crate) fn run(arguments: &[&str]) -> Outcome {
    let mut steps = Steps::default();
    match arguments {
        [] => {
            crates(&mut steps)?;
            wheel(&mut steps)
        }
        ["crates"] => crates(&mut steps),
        ["wheel"] => wheel(&mut steps),
        _ => Err(format!("package takes 'crates' or 'wheel', not '{}'", arguments.join(" "))),
    }
}

fn crates(steps: &mut Steps) -> Outcome {
    steps.run("crates", crates::check)?;
    steps.run("archives", crates::archive)
}

fn wheel(steps: &mut Steps) -> Outcome {
    let skips = Skips::new()?;
    let packages = steps.run("python packages", wheel::packages)?.ok_or(NO_PYTHON)?;
    let folder = places::target()?.join("python").join("wheel");
    let wheel = steps.run("wheel", || {
        // What an earlier version left there would be taken for ours.
        let _ = std::fs::remove_dir_all(&folder);
        wheel::build(&packages, Profile::Release, &folder)
    })?;
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    if cfg!(target_os = "linux") && !name.contains("manylinux") {
        return Err(format!(
            "{name} is not a manylinux wheel: other systems may lack its libraries"
        ));
    }
    let installed = steps.run("installation", || Installed::of(&packages, &wheel))?;
    steps.run("python tests", || wheel::test(&installed, &skips))?;
    eprint!("\n{}\n{}\n{}\n", steps.table(), skips.report(), wheel.display());
    Ok(())
}
