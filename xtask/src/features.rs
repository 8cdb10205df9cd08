//! `cargo xtask features`: every crate compiles without features and with each one alone, and the tests
//! of the command pass as a user first builds it. The tests have all features at once, so they see
//! neither what is compiled only without a feature nor a dependency that another feature provides.
//!
//! Within a larger build, other crates may give the dependencies of a library features that it forgot to
//! ask for, so small libraries are also checked alone. For those on the query engine or the network stack
//! that would compile hundreds of packages once more, each time with slightly other features, so they are
//! checked within a command that has them.

use crate::step::{Outcome, Steps, cargo, execute};
use crate::workspace;
use std::collections::BTreeSet;

/// A crate and the features it has, separated by commas.
type Build = (String, String);

/// The most packages of a build that is always tried. Those of libraries with few dependencies have about
/// 150 at most; those on the query engine or the network stack have 400 and more.
const SMALL: usize = 200;

/// A build that is wanted.
struct Wanted {
    build: Build,
    /// The crates of the workspace in it, with their features.
    contains: BTreeSet<Build>,
    /// Whether it is tried even if another one contains it.
    always: bool,
}

pub(crate) fn run() -> Outcome {
    let mut steps = Steps::default();
    let outcome = steps_of(&mut steps);
    eprint!("\n{}\n{}", steps.table(), workspace::not_run());
    outcome.inspect(|()| eprintln!("\neverything passed"))
}

fn steps_of(steps: &mut Steps) -> Outcome {
    for (name, features) in steps.run("plan", plan)? {
        let title = if features.is_empty() { name.clone() } else { format!("{name}, {features}") };
        // Nothing else compiles the tests of a feature whose tests are not run.
        let tests = if workspace::is_not_run(&name, &features) { " --tests" } else { "" };
        let arguments = arguments(&(name, features));
        steps.run(&title, || execute(&mut cargo(&format!("check {arguments}{tests}"))))?;
    }
    steps.run("tests of the default command", || {
        execute(&mut cargo("test --package favor-cli --test cli"))
    })
}

fn arguments((name, features): &Build) -> String {
    let base = format!("--package {name} --no-default-features");
    if features.is_empty() { base } else { format!("{base} --features {features}") }
}

/// The builds to try: small ones, and of the others those which no other one contains. A build of the
/// command compiles the libraries too.
fn plan() -> Result<Vec<Build>, String> {
    let members = workspace::members()?;
    let names: BTreeSet<&str> = members.iter().map(|m| m.name.as_str()).collect();
    let mut builds = vec![];
    for member in &members {
        for feature in [""].into_iter().chain(member.features.iter().map(String::as_str)) {
            let build = (member.name.clone(), feature.to_owned());
            let tree = workspace::tree(&arguments(&build))?;
            let always = tree.len() <= SMALL;
            let ours = tree.into_iter().filter(|(p, _)| names.contains(p.name.as_str()));
            let contains = ours.map(|(p, features)| (p.name, features)).collect();
            builds.push(Wanted { build, contains, always });
        }
    }
    Ok(needed(builds))
}

/// The builds, larger ones first, without those that an earlier one contains, unless they are always tried.
fn needed(mut builds: Vec<Wanted>) -> Vec<Build> {
    builds.sort_by_key(|wanted| std::cmp::Reverse(wanted.contains.len()));
    let mut compiled = BTreeSet::new();
    let mut needed = vec![];
    for Wanted { build, contains, always } in builds {
        if always || !compiled.contains(&build) {
            compiled.extend(contains);
            needed.push(build);
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_contains_is_not_built_again() {
        let build = |name: &str, features: &str| (name.to_owned(), features.to_owned());
        let (library, more) = (build("library", ""), build("library", "more"));
        let (command, small) = (build("command", "tables"), build("small", ""));
        let wanted = |build: &Build, others: &[&Build], always: bool| {
            let contains = others.iter().copied().chain([build]).cloned().collect();
            Wanted { build: build.clone(), contains, always }
        };
        let builds = vec![
            wanted(&library, &[], false),
            wanted(&more, &[], false),
            wanted(&small, &[], true),
            wanted(&command, &[&library, &small], false),
        ];
        assert_eq!(needed(builds), [command, more, small]);
    }
}
