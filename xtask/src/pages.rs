//! The documents as a reader walks through them: no dead link, no page that nothing leads to, no broken
//! table.

use crate::places;
use crate::step::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Where a reader starts.
const DOOR: &str = "README.md";

/// A page: its lines outside of code blocks, with their numbers.
struct Page {
    lines: Vec<(usize, String)>,
}

/// A link to another file or to a heading, and the line it is on.
struct Link {
    line: usize,
    file: Option<PathBuf>,
    heading: Option<String>,
}

/// Checks every page and reports everything that is wrong, not only the first.
pub(crate) fn check() -> Outcome {
    let root = places::root();
    let mut pages = BTreeMap::new();
    for path in markdown(&root)? {
        let text = std::fs::read_to_string(root.join(&path));
        let text = text.map_err(|e| format!("{}: {e}", path.display()))?;
        pages.insert(path, Page::of(&text));
    }
    let mut faults = vec![];
    let mut leads: BTreeMap<&Path, BTreeSet<PathBuf>> = BTreeMap::new();
    for (path, page) in &pages {
        let place = |line: usize| format!("{}, line {line}", path.display());
        for link in page.links() {
            let target = match &link.file {
                Some(file) => normal(&path.with_file_name("").join(file)),
                None => path.clone(),
            };
            if !root.join(&target).exists() {
                faults.push(format!("{}: {} is not there", place(link.line), target.display()));
                continue;
            }
            let other = pages.get(&target);
            if let (Some(heading), Some(other)) = (&link.heading, other)
                && !other.headings().contains(heading)
            {
                faults.push(format!(
                    "{}: {} has no heading #{heading}",
                    place(link.line),
                    target.display()
                ));
            }
            leads.entry(path).or_default().insert(target);
        }
        faults.extend(page.broken_rows().into_iter().map(|line| {
            format!("{}: the row has not as many cells as the head of its table", place(line))
        }));
    }
    let reached = reached(&leads);
    let docs = pages.keys().filter(|path| path.starts_with("docs"));
    faults.extend(
        docs.filter(|path| !reached.contains(*path))
            .map(|path| format!("{}: no way leads here from {DOOR}", path.display())),
    );
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The pages at the top and in `docs/`, relative to the top.
fn markdown(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![];
    let mut folders = vec![root.join("docs")];
    let mut files = entries(root)?;
    files.retain(|path| path.is_file());
    while let Some(folder) = folders.pop() {
        for path in entries(&folder)? {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for path in files {
        if path.extension().is_some_and(|e| e == "md") {
            let inside = path.strip_prefix(root).expect("it was found below the top");
            found.push(inside.to_path_buf());
        }
    }
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts
}

/// What can be reached from the door by following links.
fn reached(leads: &BTreeMap<&Path, BTreeSet<PathBuf>>) -> BTreeSet<PathBuf> {
    let mut seen = BTreeSet::from([PathBuf::from(DOOR)]);
    let mut open = vec![PathBuf::from(DOOR)];
    while let Some(page) = open.pop() {
        for next in leads.get(page.as_path()).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen
}

impl Page {
    fn of(text: &str) -> Self {
        let mut fence: Option<usize> = None;
        let mut lines = vec![];
        for (number, line) in text.lines().enumerate() {
            let ticks = line.trim_start().chars().take_while(|c| *c == '`').count();
            match fence {
                None if ticks >= 3 => fence = Some(ticks),
                None => lines.push((number + 1, line.to_owned())),
                Some(open) if ticks >= open => fence = None,
                Some(_) => {}
            }
        }
        Self { lines }
    }

    fn links(&self) -> Vec<Link> {
        let mut links = vec![];
        for (line, text) in &self.lines {
            let text = without_code(text);
            for (start, _) in text.match_indices("](") {
                let rest = &text[start + 2..];
                let Some(end) = rest.find(')') else { continue };
                let target = rest[..end].split_whitespace().next().unwrap_or("");
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (file, heading) = match target.split_once('#') {
                    Some((file, heading)) => (file, Some(heading.to_owned())),
                    None => (target, None),
                };
                let file = (!file.is_empty()).then(|| file.into());
                links.push(Link { line: *line, file, heading });
            }
        }
        links
    }

    /// The anchors of the headings, as GitHub makes them.
    fn headings(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for (_, line) in &self.lines {
            let depth = line.chars().take_while(|c| *c == '#').count();
            let Some(title) = line[depth..].strip_prefix(' ').filter(|_| (1..=6).contains(&depth))
            else {
                continue;
            };
            let anchor = anchor(title);
            let again = (1..).map(|n| format!("{anchor}-{n}"));
            let free = std::iter::once(anchor.clone()).chain(again).find(|a| !anchors.contains(a));
            anchors.extend(free);
        }
        anchors
    }

    /// The lines of tables whose number of cells differs from that of the head.
    fn broken_rows(&self) -> Vec<usize> {
        let mut broken = vec![];
        for table in self.lines.chunk_by(|a, b| is_row(&a.1) && is_row(&b.1) && a.0 + 1 == b.0) {
            let rule = table.get(1).is_some_and(|(_, line)| is_rule(line));
            if rule {
                let head = cells(&table[0].1);
                let rows = table.iter().filter(|(_, line)| cells(line) != head);
                broken.extend(rows.map(|(number, _)| *number));
            } else if is_row(&table[0].1) {
                broken.push(table[0].0);
            }
        }
        broken
    }
}

fn is_row(line: &str) -> bool {
    line.starts_with('|')
}

/// The line under the head of a table.
fn is_rule(line: &str) -> bool {
    is_row(line) && line.contains('-') && line.chars().all(|c| "|-: ".contains(c))
}

fn cells(row: &str) -> usize {
    let row = row.trim_end().replace("\\|", "");
    row.strip_suffix('|').unwrap_or(&row).matches('|').count()
}

/// The line with its code spans taken out: what looks like a link in them is none.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_links_outside_of_code() {
        let page = Page::of("[a](b.md#c), `[x](y)` and [d](#e)\n```\n[f](g)\n```\n[h](x://i)\n");
        let links = page.links();
        let found: Vec<_> = links.iter().map(|l| (l.line, l.file.clone())).collect();
        assert_eq!(found, [(1, Some("b.md".into())), (1, None)]);
        assert_eq!(links[0].heading.as_deref(), Some("c"));
        assert_eq!(links[1].heading.as_deref(), Some("e"));
    }

    #[test]
    fn makes_anchors_of_headings() {
        let page =
            Page::of("# The `favor` command\n## On two cores, 1.5 ×\n## Again\n## Again\n#no\n");
        let expected = ["again", "again-1", "on-two-cores-15-", "the-favor-command"];
        assert_eq!(page.headings().into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn finds_broken_rows() {
        let page =
            Page::of("| a | b |\n|---|---|\n| 1 | 2 |\n| 1 |\n| `x\\|y` | 2 |\n\n| no rule |\n");
        assert_eq!(page.broken_rows(), [4, 7]);
    }

    #[test]
    fn walks_from_the_door() {
        let lead = |to: &[&str]| to.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let leads = BTreeMap::from([
            (Path::new("README.md"), lead(&["docs/a.md"])),
            (Path::new("docs/a.md"), lead(&["docs/b.md"])),
            (Path::new("docs/c.md"), lead(&["docs/c.md"])),
        ]);
        assert_eq!(reached(&leads), lead(&["README.md", "docs/a.md", "docs/b.md"]));
        assert_eq!(normal(Path::new("docs/../README.md")), Path::new("README.md"));
    }
}
