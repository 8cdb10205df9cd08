//! Tables of texts: GLUE's files, compressed or not, and files of one's own.

use super::{Answers, Example, Metric, TextTask, check, class};
use crate::text::read;
use crate::{Error, Result};
use favor::draw::Stream;
use std::path::{Path, PathBuf};

/// One in so many rows of a file of one's own is kept to judge by.
const HELD_OUT: usize = 10;

/// The stream that decides which.
const PURPOSE: u64 = 0x6465_7620;

/// `name.tsv`, or `name.tsv.gz`.
pub(super) fn table(folder: &Path, name: &str) -> Result<(PathBuf, String)> {
    let plain = folder.join(format!("{name}.tsv"));
    let packed = folder.join(format!("{name}.tsv.gz"));
    let path = if plain.exists() { plain } else { packed };
    let text = read(&path)?;
    Ok((path, text))
}

/// The rows of a table, each with its number, from 1. Quotes mean nothing.
pub(super) fn rows(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(i, line)| (i + 1, line.split('\t').collect()))
}

/// A file with a header that names the columns `sentence` (or `sentence1` and `sentence2`, or `text`)
/// and `label` (classes) or `score` (numbers). One row in ten is kept to judge by.
pub(super) fn own(path: &Path) -> Result<TextTask> {
    let text = read(path)?;
    let mut rows = rows(&text);
    let Some((_, header)) = rows.next() else { return Err(Error::file(path, "is empty")) };
    let column = |name: &str| header.iter().position(|h| h.trim() == name);
    let first = column("sentence").or(column("sentence1")).or(column("text"));
    let (second, label, score) = (column("sentence2"), column("label"), column("score"));
    let (Some(first), Some(answer)) = (first, label.or(score)) else {
        let reason = "its first line must name the columns: sentence (or sentence1 and sentence2) \
                      and label or score, separated by tabs";
        return Err(Error::file(path, reason));
    };
    let rows: Vec<(usize, Vec<&str>)> = rows.collect();
    if let Some((line, row)) = rows.iter().find(|(_, row)| row.len() != header.len()) {
        let reason = format!("line {line} has {} columns of {}", row.len(), header.len());
        return Err(Error::file(path, reason));
    }
    let answers = match label {
        Some(_) => {
            let mut names: Vec<String> =
                rows.iter().map(|(_, row)| row[answer].trim().to_owned()).collect();
            names.sort();
            names.dedup();
            Answers::Classes(names)
        }
        None => Answers::Number,
    };
    if matches!(&answers, Answers::Classes(names) if names.len() < 2) {
        return Err(Error::file(path, "has a single class; at least two are needed"));
    }
    let mut parts: [Vec<Example>; 2] = Default::default();
    let mut stream = Stream::new(0, PURPOSE);
    for (line, row) in rows {
        let label = match &answers {
            Answers::Classes(names) => class(names, row[answer].trim()),
            Answers::Number => row[answer].trim().parse().ok().filter(|v: &f64| v.is_finite()),
        };
        let Some(label) = label else {
            let reason = format!("line {line}: '{}' is not a number", row[answer]);
            return Err(Error::file(path, reason));
        };
        let second = second.map(|c| row[c].to_owned());
        let held_out = stream.index(HELD_OUT) == 0;
        parts[usize::from(held_out)].push(Example { first: row[first].to_owned(), second, label });
    }
    let [train, dev] = parts;
    if dev.is_empty() {
        return Err(Error::file(path, "is too short: no row is left to judge by"));
    }
    let metric = match answers {
        Answers::Classes(_) => Metric::Accuracy,
        Answers::Number => Metric::Spearman,
    };
    let name = path.file_stem().map_or("file".into(), |n| n.to_string_lossy().into_owned());
    Ok(TextTask { name, answers, metric, train: check(path, train)?, dev })
}
