//! `cargo xtask site`: the documents as a site, by mdBook, with their mathematics as MathML and the report of
//! `favor demo`. The pages keep their places, so links between them stay as they are; a link to any other file of the
//! source tree leads to the repository.

mod browser;
mod check;
mod page;

use crate::places::{self, Profile, Scratch};
use crate::step::{Outcome, Steps, cargo, execute, output};
use crate::workspace;
use page::Book;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program, not a library: that would be compiled with every test.
const MDBOOK: &str = "0.5.4";

/// The contents of the site, and where what is not a document comes from.
const SUMMARY: &str = "docs/SUMMARY.md";
const EXTRAS: &str = "xtask/site";

/// What tells a site from any other folder, because its folder is emptied.
const MARK: &str = "demo/index.html";

pub(crate) fn run(arguments: &[&str]) -> Outcome {
    let (check, out) = match arguments {
        [] => (false, None),
        ["--check"] => (true, None),
        ["--out", out] => (false, Some(out)),
        ["--check", "--out", out] | ["--out", out, "--check"] => (true, Some(out)),
        _ => return Err("site takes --check and --out FOLDER".into()),
    };
    let out = match out {
        Some(out) => std::path::absolute(out).map_err(|e| format!("{out}: {e}"))?,
        None => places::target()?.join("site"),
    };
    may_be_emptied(&out)?;
    let mut steps = Steps::default();
    let outcome = steps_of(&mut steps, &out, check);
    eprint!("\n{}", steps.table());
    outcome?;
    println!("{}", out.join("index.html").display());
    Ok(())
}

fn steps_of(steps: &mut Steps, out: &Path, check: bool) -> Outcome {
    let stage = Scratch::new("site")?;
    let source = stage.path().join("src");
    steps.run("pages", || {
        let count = pages(&places::root(), &source)?;
        eprintln!("{count} pages");
        extras(stage.path())
    })?;
    steps.run("demo report", || {
        let report = source.join(MARK);
        make_folder_of(&report)?;
        // The command that the tests use, so that nothing is built for the site alone.
        execute(&mut cargo(&format!("build {} --bins", workspace::whole()?)))?;
        execute(Command::new(Profile::Dev.favor()?).args(["demo", "--quiet", "--out"]).arg(report))
    })?;
    let mdbook = steps.run("mdbook", mdbook)?;
    steps.run("site", || {
        let mut build = Command::new(mdbook);
        build.env("MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL", env!("CARGO_PKG_REPOSITORY"));
        execute(build.arg("build").arg(stage.path()).arg("--dest-dir").arg(out))
    })?;
    if check {
        let browser = steps.run("browser", browser::program)?;
        steps.run("check", || check::run(&browser, out))?;
    }
    Ok(())
}

/// Refuses a folder with anything else in it.
fn may_be_emptied(out: &Path) -> Outcome {
    let empty = std::fs::read_dir(out).map_or(true, |mut entries| entries.next().is_none());
    if empty || out.join(MARK).exists() {
        return Ok(());
    }
    Err(format!("{} is neither empty nor an earlier site", out.display()))
}

/// Copies the documents, with their links and mathematics made for the site, and the files they show.
fn pages(root: &Path, source: &Path) -> Result<usize, String> {
    let (summary, chapters) = page::summary(&read(&root.join(SUMMARY))?, Path::new(SUMMARY))?;
    let book = Book { root, chapters: &chapters };
    book.is_complete(SUMMARY)?;
    write(&source.join("SUMMARY.md"), &summary)?;
    write(&source.join(page::DEMO), &read(&root.join(EXTRAS).join(page::DEMO))?)?;
    let mut faults = vec![];
    for chapter in &chapters {
        let page = match book.page(chapter, &read(&root.join(chapter))?) {
            Ok(page) => page,
            Err(found) => {
                faults.push(found);
                continue;
            }
        };
        write(&source.join(chapter), &page.text)?;
        for file in &page.files {
            copy(&root.join(file), &source.join(file))?;
        }
    }
    if faults.is_empty() { Ok(chapters.len()) } else { Err(faults.join("\n")) }
}

/// The settings of the book, its looks, and the font of formulas. The font comes with the crate that makes them.
fn extras(stage: &Path) -> Outcome {
    let own = places::root().join(EXTRAS);
    copy(&own.join("book.toml"), &stage.join("book.toml"))?;
    copy(&own.join("site.css"), &stage.join("site.css"))?;
    let metadata = output(&mut cargo("metadata --format-version 1"))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|e| e.to_string())?;
    let crates = metadata["packages"].as_array().into_iter().flatten();
    let manifest =
        crates.filter(|c| c["name"] == "pulldown-latex").find_map(|c| c["manifest_path"].as_str());
    let latex =
        manifest.and_then(|m| Path::new(m).parent()).ok_or("cargo has no pulldown-latex")?;
    copy(&latex.join("styles.css"), &stage.join("math/styles.css"))?;
    let fonts =
        std::fs::read_dir(latex.join("font")).map_err(|e| format!("{}: {e}", latex.display()))?;
    for font in fonts.flatten() {
        copy(&font.path(), &stage.join("src/math/font").join(font.file_name()))?;
    }
    Ok(())
}

/// The program, compiled into the target directory unless it is there.
fn mdbook() -> Result<PathBuf, String> {
    let folder = places::target()?.join("xtask").join(format!("mdbook-{MDBOOK}"));
    let program = folder.join("bin").join(places::program("mdbook"));
    if !program.exists() {
        let mut install = cargo("install mdbook --locked --no-default-features --features search");
        install.args(["--version", MDBOOK, "--profile", "dev", "--root"]).arg(&folder);
        // In a folder that is removed afterwards, and neither slow to compile nor slow to run.
        install.env_remove("CARGO_TARGET_DIR").env("CARGO_PROFILE_DEV_DEBUG", "false");
        execute(install.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1"))?;
    }
    Ok(program)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Outcome {
    make_folder_of(path)?;
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    make_folder_of(to)?;
    std::fs::copy(from, to).map(|_| ()).map_err(|e| format!("{}: {e}", from.display()))
}

fn make_folder_of(path: &Path) -> Outcome {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_folders_are_left_alone() {
        let scratch = Scratch::new("site-test").unwrap();
        let out = scratch.path();
        assert!(may_be_emptied(out).is_ok() && may_be_emptied(&out.join("absent")).is_ok());
        write(&out.join("mine.txt"), "mine").unwrap();
        assert!(may_be_emptied(out).is_err());
        write(&out.join(MARK), "").unwrap();
        assert!(may_be_emptied(out).is_ok());
    }

    #[test]
    fn all_documents_become_pages() {
        let stage = Scratch::new("site-pages").unwrap();
        let count = pages(&places::root(), stage.path()).unwrap();
        assert!(count > 30, "{count}");
        assert!(read(&stage.path().join("docs/method.md")).unwrap().contains("<math"));
        assert!(stage.path().join("docs/benchmarks-quality.svg").exists());
    }
}
