//! A zip archive of NumPy arrays.

use super::layout::{Array, Check};
use super::{Named, choose, npy};
use crate::Problem;
use std::fs::File;
use std::io::BufReader;
use zip::ZipArchive;
use zip::result::ZipError;

// Deflate cannot shrink its input more than about 1032 times, so an entry that claims more is
// lying.
const HIGHEST_RATIO: u64 = 1100;

/// Reads one array, and returns the name of the array that it read or failed to read.
pub(super) fn read(file: File, name: Option<&str>, check: Check) -> Named {
    let mut archive = match ZipArchive::new(BufReader::new(file)) {
        Ok(archive) => archive,
        Err(e) => return (None, Err(problem(e))),
    };
    // NumPy hides the extension of the entries, and so do we.
    let entries = archive.file_names().flatten();
    let arrays: Vec<String> =
        entries.filter_map(|e| e.strip_suffix(".npy").map(str::to_owned)).collect();
    let name = name.map(|n| n.strip_suffix(".npy").unwrap_or(n));
    let chosen = match choose(name, arrays) {
        Ok(chosen) => chosen,
        Err(e) => return (None, Err(e)),
    };
    let array = read_entry(&mut archive, &format!("{chosen}.npy"), check);
    (Some(chosen), array)
}

fn read_entry(
    archive: &mut ZipArchive<BufReader<File>>,
    entry: &str,
    check: Check,
) -> Result<Array, Problem> {
    let mut entry = archive.by_name(entry).map_err(problem)?;
    let size = entry.size();
    let possible = entry.compressed_size().saturating_mul(HIGHEST_RATIO).saturating_add(1024);
    if size > possible {
        let stored = entry.compressed_size();
        return Err(bad(format!("{stored} stored bytes cannot hold the {size} bytes claimed")));
    }
    npy::read(&mut entry, size, check)
}

fn problem(error: ZipError) -> Problem {
    match error {
        ZipError::Io(e) => Problem::Io(e),
        other => bad(other.to_string()),
    }
}

fn bad(what: String) -> Problem {
    Problem::malformed("npz", what)
}
