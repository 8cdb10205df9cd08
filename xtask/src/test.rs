//! `cargo xtask test`: all tests, of the Rust crates, of what the documents quote, and of the Python
//! package. One profile and one set of features throughout, so that nothing is built twice.

use crate::places::Profile;
use crate::python::NO_PYTHON;
use crate::skips::Skips;
use crate::step::{Outcome, Steps, cargo, execute};
use crate::{pages, quotes, store, wheel, workspace};

/// What can be asked for alone.
const PARTS: [&str; 3] = ["rust", "quotes", "python"];

/// Runs all parts, or the one of `--only`.
pub(crate) fn run(arguments: &[&str]) -> Outcome {
    let parts = match arguments {
        [] => PARTS.to_vec(),
        ["--only", part] if PARTS.contains(part) => vec![*part],
        _ => return Err(format!("test takes no arguments or --only {}", PARTS.join("|"))),
    };
    let (mut steps, skips) = (Steps::default(), Skips::new()?);
    let outcome = parts.iter().try_for_each(|part| match *part {
        "rust" => rust(&mut steps, &skips),
        "quotes" => {
            steps.run("links and tables of documents", pages::check)?;
            steps.run("quoted outputs", quotes::check)
        }
        _ => python(&mut steps, &skips),
    });
    eprint!("\n{}\n{}{}", steps.table(), skips.report(), workspace::not_run());
    outcome.inspect(|()| eprintln!("\neverything passed"))
}

/// The tests of the workspace. What needs Python's packages gets them first: a server that speaks the
/// protocol of S3, and a pretrained model.
fn rust(steps: &mut Steps, skips: &Skips) -> Outcome {
    let store = steps.run("object store", store::environment)?;
    let packages = steps.run("python packages", wheel::packages)?;
    let whole = workspace::whole()?;
    steps.run("rust build", || execute(&mut cargo(&format!("test {whole} --no-run"))))?;
    steps.run("rust tests", || {
        let mut tests = cargo(&format!("test {whole}"));
        if let Some(store) = &store {
            tests.env("FAVOR_MOTO_SERVER", store::server(store));
        }
        if let (Some(packages), None) = (&packages, std::env::var_os("FAVOR_MINILM")) {
            tests.env("FAVOR_MINILM", wheel::minilm(packages)?);
        }
        execute(skips.told_to(&mut tests).env("FAVOR_AUTOGRAD", wheel::autograd()?))
    })
}

/// The wheel and its tests.
fn python(steps: &mut Steps, skips: &Skips) -> Outcome {
    let Some(packages) = steps.run("python packages", wheel::packages)? else {
        return skips.add("python package", NO_PYTHON);
    };
    let installed = steps.run("wheel", || wheel::Installed::new(&packages, Profile::Dev))?;
    steps.run("python tests", || wheel::test(&installed, skips))
}
