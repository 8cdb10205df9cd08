//! The crates that are published: what a registry wants to know of them, and the files they consist of.
//! Nothing is compiled.

use crate::places;
use crate::step::{Outcome, cargo, execute, output};
use crate::workspace::{self, Member};
use std::collections::BTreeSet;

/// What every published crate contains, besides its sources.
const FILES: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The most bytes that crates.io takes.
const MOST_BYTES: u64 = 10 << 20;

/// Checks what the published crates say of themselves, and the lists of their files.
pub(crate) fn check() -> Outcome {
    let members = workspace::members()?;
    let unpublished: BTreeSet<&str> =
        members.iter().filter(|m| !m.published).map(|m| m.name.as_str()).collect();
    let mut faults = vec![];
    for member in members.iter().filter(|m| m.published) {
        let name = &member.name;
        // Changes that are not committed belong to the list, too.
        let list = format!("package --list --allow-dirty --package {name}");
        let files = output(&mut cargo(&list))?;
        let files: BTreeSet<&str> = files.lines().collect();
        let sources = files.iter().filter(|f| f.starts_with("src")).count();
        eprintln!("{name}: {} files, {sources} of them sources", files.len());
        let found = faults_of(member, &files, &unpublished);
        faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    faults.extend(versions_of_documents(&members)?);
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Documents that state another version than the crates.
fn versions_of_documents(members: &[Member]) -> Result<Vec<String>, String> {
    let Some(version) = members.first().map(|m| &m.version) else { return Ok(vec![]) };
    let lines = [
        ("CITATION.cff", format!("version: {version}")),
        ("CHANGELOG.md", format!("## [{version}]")),
    ];
    let mut faults = vec![];
    for (file, start) in lines {
        let text = std::fs::read_to_string(places::root().join(file));
        let text = text.map_err(|e| format!("{file}: {e}"))?;
        if !text.lines().any(|line| line.starts_with(&start)) {
            faults.push(format!("{file} has no line '{start}'"));
        }
    }
    Ok(faults)
}

/// Makes the archives as they would be uploaded, without compiling what is in them.
pub(crate) fn archive() -> Outcome {
    let members = workspace::members()?;
    let published: Vec<&Member> = members.iter().filter(|m| m.published).collect();
    let names: String = published.iter().map(|m| format!(" --package {}", m.name)).collect();
    // Together, because then those that build on one another need not be in the registry yet.
    execute(&mut cargo(&format!("package --no-verify --allow-dirty{names}")))?;
    let folder = places::target()?.join("package");
    for member in published {
        let path = folder.join(format!("{}-{}.crate", member.name, member.version));
        let bytes = std::fs::metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?.len();
        eprintln!("{}: {} kB", path.display(), bytes.div_ceil(1000));
        if bytes > MOST_BYTES {
            return Err(format!("{} has {bytes} bytes, of at most {MOST_BYTES}", path.display()));
        }
    }
    Ok(())
}

fn faults_of(member: &Member, files: &BTreeSet<&str>, unpublished: &BTreeSet<&str>) -> Vec<String> {
    let absent = member.absent.iter().map(|key| format!("its Cargo.toml has no {key}"));
    let files = FILES
        .into_iter()
        .filter(|file| !files.contains(file))
        .map(|file| format!("{file} is not in its package"));
    let needed = member
        .needs
        .iter()
        .filter(|other| unpublished.contains(other.as_str()))
        .map(|other| format!("needs {other}, which is not published"));
    absent.chain(files).chain(needed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named() {
        let mut member = Member {
            name: "own".into(),
            version: "0.1.0".into(),
            features: vec![],
            rust_version: None,
            published: true,
            absent: vec![],
            needs: vec!["other".into(), "public".into()],
        };
        let all = BTreeSet::from(["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"]);
        assert!(faults_of(&member, &all, &BTreeSet::new()).is_empty());
        member.absent.push("keywords");
        let (some, private) = (BTreeSet::from(["Cargo.toml", "README.md"]), ["other"].into());
        let faults = faults_of(&member, &some, &private);
        assert_eq!(faults.len(), 4, "{faults:?}");
        assert!(faults[0].contains("keywords") && faults[3].contains("other"));
    }
}
