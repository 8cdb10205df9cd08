//! The site as a browser shows it: every page on a screen and on a phone, without errors, missing images, dead links,
//! anything from the network or anything wider than the window; and the search finds something.

use super::browser::Browser;
use crate::step::Outcome;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Looks at the open page.
const LOOK: &str = include_str!("../../site/look.js");
/// Counts what was found for the query in the address.
const FOUND: &str = include_str!("../../site/found.js");
/// A word that the documents use.
const WORD: &str = "variance";

/// A screen and a phone, in pixels.
const WIDTHS: [u32; 2] = [1200, 390];

/// What a page has that links can lead to, and where its own links lead.
#[derive(Default)]
struct Seen {
    ids: BTreeSet<String>,
    links: BTreeSet<String>,
}

/// Opens every page and reports everything that is wrong, not only the first.
pub(super) fn run(program: &str, site: &Path) -> Outcome {
    let top = format!("file://{}/", site.display());
    let address =
        |page: &str| top.replace('%', "%25").replace(' ', "%20").replace('#', "%23") + page;
    let pages = pages(site)?;
    let mut browser = Browser::start(program)?;
    let (mut seen, mut faults) = (BTreeMap::new(), BTreeSet::new());
    for width in WIDTHS {
        browser.resize(width)?;
        for page in &pages {
            browser.open(&address(page))?;
            let look = browser.evaluate(LOOK)?;
            let mut found: Vec<String> = browser.errors();
            found.extend(texts(&look["images"]).map(|image| format!("no image {image}")));
            found.extend(
                texts(&look["foreign"]).map(|url| format!("{url} is not part of the site")),
            );
            found.extend(
                texts(&look["wide"]).map(|what| format!("wider than {width} pixels: {what}")),
            );
            faults.extend(found.into_iter().map(|fault| format!("{page}: {fault}")));
            let ids = texts(&look["ids"]).collect();
            let inside = |link: String| link.strip_prefix(&top).map(str::to_owned);
            let links = texts(&look["links"]).filter_map(inside).collect();
            seen.insert(page.clone(), Seen { ids, links });
        }
        eprintln!("{} pages at {width} pixels", pages.len());
    }
    browser.open(&address(&format!("index.html?search={WORD}")))?;
    if browser.evaluate(FOUND)?.as_u64().is_none_or(|count| count == 0) {
        faults.insert(format!("index.html: the search does not find '{WORD}'"));
    }
    faults.extend(dead_links(&seen, |file| site.join(file).is_file()));
    let faults: Vec<String> = faults.into_iter().collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The pages, relative to the top of the site.
fn pages(site: &Path) -> Result<Vec<String>, String> {
    let mut pages = vec![];
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(site.join(&folder));
        for entry in entries.map_err(|e| format!("{}: {e}", site.display()))?.flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "html") {
                pages.push(path.display().to_string());
            }
        }
    }
    pages.sort();
    Ok(pages)
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned))
}

/// The links to files or places in pages that are not there.
fn dead_links(seen: &BTreeMap<String, Seen>, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut dead = vec![];
    for (page, Seen { links, .. }) in seen {
        for link in links {
            let (file, id) = link.split_once('#').unwrap_or((link, ""));
            let file = file.split('?').next().unwrap_or(file);
            let place = || seen.get(file).is_some_and(|other| other.ids.contains(id));
            if !exists(file) || !(id.is_empty() || place()) {
                dead.push(format!("{page}: dead link to {link}"));
            }
        }
    }
    dead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let seen = |ids: &[&str], links: &[&str]| Seen {
            ids: ids.iter().map(|id| id.to_string()).collect(),
            links: links.iter().map(|link| link.to_string()).collect(),
        };
        let a = seen(&["x"], &["b.html#y", "b.html#z", "c.html", "data.csv", "a.html#x"]);
        let pages =
            [("a.html".into(), a), ("b.html".into(), seen(&["y"], &["a.html?search=x"]))].into();
        let exists = |file: &str| ["a.html", "b.html", "data.csv"].contains(&file);
        let wanted = ["a.html: dead link to b.html#z", "a.html: dead link to c.html"];
        assert_eq!(dead_links(&pages, exists), wanted);
    }
}
