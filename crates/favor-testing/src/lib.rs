//! What the tests of all crates share: data that may be absent, and tests that say so when they skip.
//!
//! A test that cannot run here calls [`skipped`] and returns. The harness counts it as passed, so
//! the line also goes to the file named by the environment variable [`LIST`], which whoever runs all
//! tests can print at the end.
//!
//! ```no_run
//! // In a test:
//! let Some(images) = favor_testing::data("mnist") else { return };
//! ```

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::panic::Location;
use std::path::{Path, PathBuf};

/// The environment variable that names the file for the list of skipped tests.
pub const LIST: &str = "FAVOR_SKIPPED";

/// The environment variable that names the folder of data which the repository does not hold.
pub const DATA: &str = "FAVOR_DATA";

/// Records that a test did not run, and why: `test<TAB>reason`, on standard error and at the end of
/// the file named by [`LIST`], if that is set.
///
/// # Panics
///
/// If the list cannot be written: a skip must never go unseen.
pub fn skipped(test: &str, reason: &str) {
    let line = line(test, reason);
    eprint!("skipped: {line}");
    if let Some(list) = variable(LIST) {
        let list = Path::new(&list);
        append(list, &line).unwrap_or_else(|e| panic!("{LIST}={}: {e}", list.display()));
    }
}

/// A file or folder in the folder named by [`DATA`]; without it the test that asks is recorded as
/// [`skipped`] and should return.
#[track_caller]
pub fn data(relative: &str) -> Option<PathBuf> {
    match find(variable(DATA), relative) {
        Ok(path) => Some(path),
        Err(reason) => {
            skipped(&this_test(), &reason);
            None
        }
    }
}

/// The name of the test that runs: the harness gives it to the thread, unless it runs all tests on
/// the main thread; then the place in the source has to do.
#[track_caller]
fn this_test() -> String {
    let caller = Location::caller();
    match std::thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", caller.file(), caller.line()),
    }
}

/// An empty variable counts as unset.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn find(folder: Option<OsString>, relative: &str) -> Result<PathBuf, String> {
    let folder = folder.ok_or_else(|| format!("{DATA} is not set; needs its {relative}"))?;
    let path = Path::new(&folder).join(relative);
    if path.exists() { Ok(path) } else { Err(format!("{DATA} has no {relative}")) }
}

fn line(test: &str, reason: &str) -> String {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}\t{}\n", one_line(test), one_line(reason))
}

/// One write at the end of the file, so that lines of several processes do not mix.
fn append(list: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(list)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let given = || Some(folder.path().as_os_str().to_owned());
        assert_eq!(find(None, "sets").unwrap_err(), "FAVOR_DATA is not set; needs its sets");
        assert_eq!(find(given(), "sets").unwrap_err(), "FAVOR_DATA has no sets");
        let sets = folder.path().join("sets");
        std::fs::create_dir(&sets).unwrap();
        assert_eq!(find(given(), "sets"), Ok(sets));
    }

    #[test]
    fn the_list_grows_by_lines() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("skipped");
        append(&list, &line("first", "no data")).unwrap();
        append(&list, &line("sec\tond", "two\nlines")).unwrap();
        let text = std::fs::read_to_string(&list).unwrap();
        assert_eq!(text, "first\tno data\nsec ond\ttwo lines\n");
        assert!(append(folder.path(), "x").is_err());
    }

    #[test]
    fn tests_know_their_names() {
        let named = std::thread::Builder::new().name("a::test".into());
        assert_eq!(named.spawn(this_test).unwrap().join().unwrap(), "a::test");
        let unnamed = std::thread::spawn(|| this_test()).join().unwrap();
        assert!(unnamed.starts_with(&format!("{}:", file!())), "{unnamed}");
    }
}
