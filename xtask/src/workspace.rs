//! What cargo knows of the workspace and its dependencies.

use crate::step::{cargo, output};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A crate of the workspace.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Its features, without `default`.
    pub(crate) features: Vec<String>,
    pub(crate) rust_version: Option<String>,
    /// Whether it goes to the registry.
    pub(crate) published: bool,
    /// What a registry shows or demands, and its Cargo.toml does not say.
    pub(crate) absent: Vec<&'static str>,
    /// The packages that it is built with, without those that only tests need.
    pub(crate) needs: Vec<String>,
}

/// What the registry shows or demands.
const SHOWN: [&str; 6] =
    ["categories", "description", "keywords", "license", "readme", "repository"];

/// The crates of the workspace, by name.
pub(crate) fn members() -> Result<Vec<Member>, String> {
    let metadata = metadata("--no-deps")?;
    let mut members: Vec<Member> = packages(&metadata)?.map(member).collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

/// Features whose tests are checked but not run, and why.
const NOT_RUN: [(&str, &str, &str); 1] =
    [("favor-nn", "wgpu", "needs a graphics device and 300 crates more")];

/// Whether the tests of a crate with this feature are not run.
pub(crate) fn is_not_run(name: &str, feature: &str) -> bool {
    NOT_RUN.iter().any(|(n, f, _)| (*n, *f) == (name, feature))
}

/// The tests that are checked but not run, with the reason, as it is to be read.
pub(crate) fn not_run() -> String {
    let line = |(name, feature, reason): &(&str, &str, &str)| {
        format!("checked, but not run: tests of {name} with {feature}, because it {reason}\n")
    };
    NOT_RUN.iter().map(line).collect()
}

impl Member {
    /// The features that tests are built with.
    fn tested(&self) -> impl Iterator<Item = &str> {
        self.features.iter().map(String::as_str).filter(|f| !is_not_run(&self.name, f))
    }
}

/// The arguments for the whole workspace with every feature: what a default build leaves out is tested
/// too, and with one set of features for everything, nothing is built twice.
pub(crate) fn whole() -> Result<String, String> {
    let members = members()?;
    let features = members.iter().flat_map(|m| m.tested().map(move |f| format!("{}/{f}", m.name)));
    Ok(format!("--workspace --features {}", features.collect::<Vec<_>>().join(",")))
}

/// The minimum Rust version of every package that any build may use, as far as they tell it.
pub(crate) fn rust_versions() -> Result<BTreeMap<Package, String>, String> {
    let metadata = metadata("--all-features")?;
    let versions = packages(&metadata)?.filter_map(|p| {
        let package = Package { name: text(p, "name"), version: text(p, "version") };
        Some((package, p["rust_version"].as_str()?.to_owned()))
    });
    Ok(versions.collect())
}

/// A package in one version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// What a build of a crate with some features compiles: every package with its features, without what
/// only tests need.
pub(crate) fn tree(arguments: &str) -> Result<BTreeSet<(Package, String)>, String> {
    let tree = "tree --edges normal,build --target all --prefix none --format {p}|{f}";
    parse_tree(&output(&mut cargo(&format!("{tree} {arguments}")))?)
}

/// Reads lines like `name v1.2.3 (proc-macro)|feature,another (*)`.
fn parse_tree(text: &str) -> Result<BTreeSet<(Package, String)>, String> {
    let parse = |line: &str| {
        let (package, features) = line.split_once('|')?;
        let mut words = package.split_whitespace();
        let name = words.next()?.to_owned();
        let version = words.next()?.strip_prefix('v')?.to_owned();
        let features = features.trim_end_matches("(*)").trim_end().to_owned();
        Some((Package { name, version }, features))
    };
    let lines = text.lines().filter(|l| !l.trim().is_empty());
    lines.map(|l| parse(l).ok_or_else(|| format!("cargo tree: unknown line '{l}'"))).collect()
}

fn metadata(arguments: &str) -> Result<Value, String> {
    let text = output(&mut cargo(&format!("metadata --format-version 1 {arguments}")))?;
    serde_json::from_str(&text).map_err(|e| format!("cargo metadata: {e}"))
}

fn packages(metadata: &Value) -> Result<impl Iterator<Item = &Value>, String> {
    let packages = metadata["packages"].as_array();
    packages.map(|p| p.iter()).ok_or_else(|| "cargo metadata: no packages".into())
}

fn text(package: &Value, key: &str) -> String {
    package[key].as_str().unwrap_or_default().to_owned()
}

fn member(package: &Value) -> Member {
    let features = package["features"].as_object().into_iter().flat_map(|f| f.keys());
    let empty = |key: &&str| match &package[*key] {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    Member {
        name: text(package, "name"),
        version: text(package, "version"),
        features: features.filter(|f| *f != "default").cloned().collect(),
        rust_version: package["rust_version"].as_str().map(str::to_owned),
        published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
        absent: SHOWN.into_iter().filter(empty).collect(),
        needs: dependencies.filter(|d| d["kind"] != "dev").map(|d| text(d, "name")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places;

    #[test]
    fn trees_are_read() {
        let text = "own v0.1.0 (/a b)|\nserde v1.0.2|std,derive\nmacros v2.0.0+x (proc-macro)|a (*)\n\nserde v1.0.2|std,derive (*)\n";
        let found = parse_tree(text).unwrap();
        let found: Vec<(&str, &str, &str)> =
            found.iter().map(|(p, f)| (&*p.name, &*p.version, &**f)).collect();
        let wanted =
            [("macros", "2.0.0+x", "a"), ("own", "0.1.0", ""), ("serde", "1.0.2", "std,derive")];
        assert_eq!(found, wanted);
        assert!(parse_tree("nonsense").is_err());
    }

    /// Whatever is not run has tests, in the file with the name of the feature.
    #[test]
    fn tests_that_are_not_run_are_named() {
        for (name, feature, reason) in NOT_RUN {
            let path = places::root().join(format!("crates/{name}/tests/{feature}.rs"));
            assert!(std::fs::read_to_string(path).unwrap().contains("#[test]"));
            assert!(
                not_run()
                    .contains(&format!("tests of {name} with {feature}, because it {reason}\n"))
            );
        }
    }

    #[test]
    fn members_are_read() {
        let text = r#"{"packages": [{"name": "own", "version": "0.1.0", "rust_version": "1.90",
            "features": {"default": [], "more": ["dep:x"]}, "publish": null, "license": "MIT",
            "description": "x", "readme": "README.md", "repository": null, "keywords": ["a"],
            "categories": [], "dependencies": [{"name": "x", "kind": null},
                {"name": "y", "kind": "dev"}]}, {"name": "private", "publish": []}]}"#;
        let metadata: Value = serde_json::from_str(text).unwrap();
        let mut all = packages(&metadata).unwrap().map(member);
        let (found, private) = (all.next().unwrap(), all.next().unwrap());
        assert_eq!((&*found.name, &found.features[..]), ("own", &["more".to_string()][..]));
        assert_eq!(found.rust_version.as_deref(), Some("1.90"));
        assert_eq!((found.published, private.published), (true, false));
        assert_eq!((&*found.version, &found.needs[..]), ("0.1.0", &["x".to_string()][..]));
        assert_eq!(found.absent, ["categories", "repository"]);
        let features = vec!["fast".into(), "wgpu".into()];
        let nn = Member { name: "favor-nn".into(), features, ..found };
        assert_eq!(nn.tested().collect::<Vec<_>>(), ["fast"]);
    }
}
