//! A document as a page of the site: formulas become MathML, and links out of the book lead to the repository.

use pulldown_cmark::{CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};
use pulldown_latex::config::{DisplayMode, RenderConfig};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

/// The page around the demo report, which the contents leave open: the report is not in the source tree.
pub(super) const DEMO: &str = "demo.md";

/// The folder whose files come along if a page shows or links them.
const DOCS: &str = "docs";

/// Which documents there are, and which of them are pages.
pub(super) struct Book<'a> {
    pub(super) root: &'a Path,
    pub(super) chapters: &'a BTreeSet<PathBuf>,
}

/// A page of the site.
pub(super) struct Page {
    pub(super) text: String,
    /// The files it shows or links, relative to the top.
    pub(super) files: BTreeSet<PathBuf>,
}

/// The contents, with their links from the top, and the pages in them.
pub(super) fn summary(text: &str, path: &Path) -> Result<(String, BTreeSet<PathBuf>), String> {
    let mut edits = vec![];
    let mut chapters = BTreeSet::new();
    for (event, range) in events(text) {
        let Event::Start(Tag::Link { dest_url, .. }) = event else { continue };
        let target = match &*dest_url {
            "" => DEMO.into(),
            link => resolved(path, link).ok_or_else(|| fault(path, text, &range, link))?,
        };
        edits.push((place_of(text, &range, &dest_url)?, slashed(&target)));
        if !dest_url.is_empty() {
            chapters.insert(target);
        }
    }
    Ok((edited(text, edits), chapters))
}

impl Book<'_> {
    /// Refuses documents that the contents do not list.
    pub(super) fn is_complete(&self, summary: &str) -> Result<(), String> {
        let mut missing = vec![];
        let mut folders = vec![PathBuf::from(DOCS)];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(self.root.join(&folder));
            for entry in entries.map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
                let path = folder.join(entry.file_name());
                if entry.path().is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "md")
                    && path != Path::new(summary)
                    && !self.chapters.contains(&path)
                {
                    missing.push(format!("{summary}: {} is not listed", path.display()));
                }
            }
        }
        missing.sort();
        if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
    }

    /// Makes a page of a document. Reports everything that is wrong with it.
    pub(super) fn page(&self, path: &Path, text: &str) -> Result<Page, String> {
        let (mut edits, mut files, mut faults) = (vec![], BTreeSet::new(), vec![]);
        let mut block: Option<String> = None;
        for (event, range) in events(text) {
            let edit = match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) if &*info == "math" => {
                    block = Some(String::new());
                    continue;
                }
                Event::Text(part) if block.is_some() => {
                    block = block.map(|text| text + &part);
                    continue;
                }
                Event::End(TagEnd::CodeBlock) => match block.take() {
                    Some(latex) => display(&latex).map(|html| Some((range.clone(), html))),
                    None => continue,
                },
                Event::DisplayMath(latex) => {
                    display(&latex).map(|html| Some((range.clone(), html)))
                }
                Event::InlineMath(latex) => {
                    mathml(&latex, DisplayMode::Inline).map(|html| Some((range.clone(), html)))
                }
                Event::Start(
                    Tag::Link { link_type, dest_url, .. } | Tag::Image { link_type, dest_url, .. },
                ) => match self.destination(path, &dest_url) {
                    Ok(Destination::Kept) => continue,
                    Ok(Destination::File(file)) => {
                        files.insert(file);
                        continue;
                    }
                    Ok(Destination::Other(_)) if link_type != LinkType::Inline => {
                        Err(format!("write the link to {dest_url} as [text](file)"))
                    }
                    Ok(Destination::Other(link)) => {
                        place_of(text, &range, &dest_url).map(|place| Some((place, link)))
                    }
                    Err(reason) => Err(reason),
                },
                _ => continue,
            };
            match edit {
                Ok(edit) => edits.extend(edit),
                Err(reason) => faults.push(fault(path, text, &range, &reason)),
            }
        }
        if faults.is_empty() {
            Ok(Page { text: edited(text, edits), files })
        } else {
            Err(faults.join("\n"))
        }
    }

    /// Where a link leads on the site.
    fn destination(&self, page: &Path, link: &str) -> Result<Destination, String> {
        if link.contains("://") || link.starts_with("mailto:") || link.starts_with('#') {
            return Ok(Destination::Kept);
        }
        let file = link.split('#').next().unwrap_or(link);
        let target =
            resolved(page, file).ok_or_else(|| format!("{link} is outside of the source tree"))?;
        let there = self.root.join(&target);
        if !there.exists() {
            return Err(format!("{link} is not there"));
        }
        let heading = &link[file.len()..];
        if self.chapters.contains(&target) {
            // mdBook makes an index of it, but leaves the links to it alone.
            return Ok(match file.strip_suffix("README.md") {
                Some(folder) => Destination::Other(format!("{folder}index.html{heading}")),
                None => Destination::Kept,
            });
        }
        let text = target.extension().is_some_and(|e| e == "md");
        if target.starts_with(DOCS) && there.is_file() && !text {
            return Ok(Destination::File(target));
        }
        let kind = if there.is_dir() { "tree" } else { "blob" };
        let (repository, path) = (env!("CARGO_PKG_REPOSITORY"), slashed(&target));
        Ok(Destination::Other(format!("{repository}/{kind}/main/{path}{heading}")))
    }
}

/// Where a link leads on the site.
#[derive(Debug, PartialEq)]
enum Destination {
    /// Where it led before.
    Kept,
    /// There too, to a file that comes along.
    File(PathBuf),
    /// Elsewhere, mostly to the repository.
    Other(String),
}

/// What is in a document, and where.
fn events(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_MATH).into_offset_iter()
}

/// A path relative to a page, from the top; nothing if it leads out of the top.
fn resolved(page: &Path, link: &str) -> Option<PathBuf> {
    let mut path = page.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            _ => return None,
        }
    }
    Some(path)
}

fn slashed(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

/// The place of the target in a link `[text](target)`.
fn place_of(text: &str, link: &Range<usize>, target: &str) -> Result<Range<usize>, String> {
    let start = text[link.clone()].rfind(&format!("]({target}"));
    let start =
        start.ok_or_else(|| format!("the link to {target} is not of the form [text](file)"))?;
    let start = link.start + start + 2;
    Ok(start..start + target.len())
}

/// Replaces parts of a text, which come in order.
fn edited(text: &str, edits: Vec<(Range<usize>, String)>) -> String {
    let (mut new, mut end) = (String::new(), 0);
    for (range, replacement) in edits {
        new += &text[end..range.start];
        new += &replacement;
        end = range.end;
    }
    new + &text[end..]
}

fn fault(path: &Path, text: &str, range: &Range<usize>, reason: &str) -> String {
    let line = text[..range.start].matches('\n').count() + 1;
    format!("{}, line {line}: {reason}", path.display())
}

/// A formula in a box of its own, which scrolls where the page is narrower.
fn display(latex: &str) -> Result<String, String> {
    Ok(format!("<div class=\"math\">{}</div>", mathml(latex, DisplayMode::Block)?))
}

fn mathml(latex: &str, display_mode: DisplayMode) -> Result<String, String> {
    let storage = pulldown_latex::Storage::new();
    let events: Result<Vec<_>, _> = pulldown_latex::Parser::new(latex, &storage).collect();
    let events = events.map_err(|e| format!("the formula cannot be read: {e}"))?;
    let config = RenderConfig { display_mode, ..RenderConfig::default() };
    let mut html = String::new();
    let events = events.into_iter().map(Ok::<_, std::convert::Infallible>);
    pulldown_latex::push_mathml(&mut html, events, config).map_err(|e| e.to_string())?;
    // A blank line would end the block of HTML, and the crate writes "less than" as it is.
    Ok(html.replace('\n', " ").replace("><</", ">&lt;</"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of a book in the real tree.
    fn page(path: &str, text: &str) -> Result<Page, String> {
        let chapters = ["README.md", "docs/guide.md", "docs/uci.md"].map(PathBuf::from).into();
        let root = crate::places::root();
        Book { root: &root, chapters: &chapters }.page(Path::new(path), text)
    }

    #[test]
    fn contents_start_from_the_top() {
        let text = "# Summary\n\n[a](../README.md)\n\n- [b `c`](guide.md)\n  - [d]()\n";
        let (summary, chapters) = summary(text, Path::new("docs/SUMMARY.md")).unwrap();
        assert_eq!(
            summary,
            "# Summary\n\n[a](README.md)\n\n- [b `c`](docs/guide.md)\n  - [d](demo.md)\n"
        );
        assert_eq!(chapters, ["README.md", "docs/guide.md"].map(PathBuf::from).into());
    }

    #[test]
    fn links_between_pages_stay() {
        let text =
            "[a](../README.md#python), `[x](y)` and [b\nc](uci.md), [d](#e), <https://f.g>\n";
        let wanted = text.replace("README.md", "index.html");
        assert_eq!(page("docs/guide.md", text).unwrap().text, wanted);
    }

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let top = env!("CARGO_PKG_REPOSITORY");
        let text = "[a](../xtask/src/main.rs) [`b`](../crates) [c](method.md#d)\n";
        let wanted = format!(
            "[a]({top}/blob/main/xtask/src/main.rs) [`b`]({top}/tree/main/crates) [c]({top}/blob/main/docs/method.md#d)\n"
        );
        assert_eq!(page("docs/guide.md", text).unwrap().text, wanted);
    }

    #[test]
    fn files_of_documents_come_along() {
        let found = page("README.md", "![p](docs/uci.svg) [q](docs/uci.csv)\n").unwrap();
        assert_eq!(found.files, ["docs/uci.csv", "docs/uci.svg"].map(PathBuf::from).into());
    }

    #[test]
    fn dead_links_are_found() {
        let found = page("docs/guide.md", "a\n\n[b](nowhere.md) ![c](no.svg)\n\n[d](../../e)\n");
        let faults = found.err().unwrap();
        assert_eq!(
            faults,
            "docs/guide.md, line 3: nowhere.md is not there\n\
             docs/guide.md, line 3: no.svg is not there\n\
             docs/guide.md, line 5: ../../e is outside of the source tree"
        );
    }

    #[test]
    fn formulas_become_mathml() {
        let text = "a $x^2$ `$y$`\n\n```math\n\\frac{1}{2}\n\n< z\n```\n\n```text\n$a$\n```\n";
        let found = page("docs/guide.md", text).unwrap().text;
        assert_eq!(found.matches("<math").count(), 2, "{found}");
        assert!(found.contains("<msup>") && found.contains("<mfrac>"), "{found}");
        assert!(found.contains("`$y$`") && found.contains("```text\n$a$\n```"), "{found}");
        let block = found.lines().find(|line| line.starts_with("<div class=\"math\">")).unwrap();
        assert!(block.ends_with("</div>") && block.contains("&lt;"), "{block}");
    }

    #[test]
    fn broken_formulas_are_found() {
        let fault = page("docs/guide.md", "a\n\n```math\n\\frac{1\n```\n").err().unwrap();
        assert!(fault.starts_with("docs/guide.md, line 3: the formula cannot be read"), "{fault}");
        assert!(page("docs/guide.md", "$\\nosuchcommand$\n").is_err());
    }

    #[test]
    fn orphans_are_found() {
        let root = crate::places::root();
        let book = Book { root: &root, chapters: &BTreeSet::from(["docs/guide.md".into()]) };
        let missing = book.is_complete("docs/SUMMARY.md").unwrap_err();
        assert!(missing.contains("docs/SUMMARY.md: docs/uci.md is not listed"));
        assert!(!missing.contains("guide.md"));
    }
}
