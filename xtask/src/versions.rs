//! The minimum Rust version that each crate states: no dependency needs a later one, whatever features
//! are chosen; CONTRIBUTING.md says the same, and the build on GitHub compiles the crate with it. That our
//! own code needs no later one either is what clippy's `incompatible_msrv` looks for.

use crate::places;
use crate::step::Outcome;
use crate::workspace::{self, Package};
use std::collections::BTreeMap;

/// What the build on GitHub does.
const WORKFLOW: &str = ".github/workflows/test.yml";

pub(crate) fn check() -> Outcome {
    let known = workspace::rust_versions()?;
    let page = read("CONTRIBUTING.md")?;
    let workflow = read(WORKFLOW)?;
    let mut wrong = vec![];
    for member in workspace::members()? {
        let (name, stated) = (&member.name, member.rust_version.as_deref());
        let Some(stated) = stated else {
            wrong.push(format!("{name} states no rust-version"));
            continue;
        };
        let tree = workspace::tree(&format!("--package {name} --all-features"))?;
        let packages = tree.into_iter().map(|(package, _)| package);
        if let Some((package, needed)) = latest(packages, &known)
            && parse(&needed) > parse(stated)
        {
            let Package { name: other, version } = package;
            wrong
                .push(format!("{name} states Rust {stated}, but {other} {version} needs {needed}"));
        }
        let row = format!("| `{name}` | {stated} |");
        if !page.lines().any(|line| line == row) {
            wrong.push(format!("CONTRIBUTING.md has no line '{row}'"));
        }
        if !compiles(&workflow, name, stated) {
            wrong.push(format!("{WORKFLOW} does not compile {name} with Rust {stated}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn read(file: &str) -> Result<String, String> {
    let path = places::root().join(file);
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Whether a row of the workflow's matrix has the crate with this version.
fn compiles(workflow: &str, name: &str, rust: &str) -> bool {
    let has = |row: &str| {
        let words: Vec<&str> = row.split([' ', ',', '}']).collect();
        words.windows(2).any(|pair| pair == ["-p", name])
    };
    let version = format!("- {{rust: \"{rust}\",");
    workflow.lines().any(|row| row.trim_start().starts_with(&version) && has(row))
}

/// The package that needs the latest Rust.
fn latest(
    packages: impl Iterator<Item = Package>,
    known: &BTreeMap<Package, String>,
) -> Option<(Package, String)> {
    let needed = packages.filter_map(|p| Some((known.get(&p)?.clone(), p)));
    needed.max_by_key(|(version, _)| parse(version)).map(|(version, package)| (package, version))
}

/// A version as numbers; what is left out is zero.
fn parse(version: &str) -> [u64; 3] {
    let mut parts = [0; 3];
    for (part, text) in parts.iter_mut().zip(version.split('.')) {
        *part = text.parse().unwrap_or(0);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        assert!(parse("1.100") > parse("1.94.1"));
        assert!(parse("1.90") == parse("1.90.0"));
    }

    #[test]
    fn rows_of_the_workflow_are_read() {
        let text = "matrix:\n  - {rust: \"1.90\", crates: -p favor-io -p favor}\n";
        assert!(compiles(text, "favor", "1.90") && compiles(text, "favor-io", "1.90"));
        assert!(!compiles(text, "favor-lab", "1.90") && !compiles(text, "favor", "1.94"));
    }

    #[test]
    fn the_latest_is_found() {
        let package = |name: &str| Package { name: name.into(), version: "1.0.0".into() };
        let known = [("a", "1.85"), ("b", "1.100.1"), ("c", "1.94")];
        let known = known.map(|(name, rust)| (package(name), rust.to_owned())).into();
        let found = latest(["a", "b", "silent"].map(package).into_iter(), &known);
        assert_eq!(found, Some((package("b"), "1.100.1".into())));
        assert_eq!(latest([package("silent")].into_iter(), &known), None);
    }
}
