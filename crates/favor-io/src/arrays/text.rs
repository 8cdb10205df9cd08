//! A table of numbers as text, cells separated by commas.

use super::layout::{Array, Check, Order};
use crate::Problem;
use csv::{ByteRecord, ReaderBuilder};

/// Reads a table. Blank lines and lines that start with `#` are skipped.
///
/// The first line is a heading if none of its cells is a number. A first line that mixes numbers
/// and words is an error, because it may be data with a typo.
pub(super) fn read(bytes: &[u8], check: Check) -> Result<Array, Problem> {
    let bytes = without_mark(bytes);
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .from_reader(bytes);
    let mut record = ByteRecord::new();
    let mut values = Vec::new();
    let mut columns = None;
    let mut rows = 0_u64;
    let mut heading_possible = true;
    let damaged = |e: csv::Error| Problem::malformed("csv", e.to_string());
    while reader.read_byte_record(&mut record).map_err(damaged)? {
        let line = || line_of(bytes, &record);
        let cells = record.iter().map(|cell| text_of(cell, line).map(bare));
        let cells = cells.collect::<Result<Vec<&str>, Problem>>()?;
        match cells[..] {
            [] | [""] => continue,
            [first, ..] if first.starts_with('#') => continue,
            _ => {}
        }
        if std::mem::take(&mut heading_possible) && is_heading(&cells) {
            continue;
        }
        for (column, cell) in cells.iter().enumerate() {
            let value = finite(cell);
            values.push(value.map_err(|wanted| cell_problem(cell, line(), column + 1, wanted))?);
        }
        let wanted = *columns.get_or_insert(cells.len());
        if cells.len() != wanted {
            return Err(Problem::Ragged { line: line(), found: cells.len(), wanted });
        }
        rows += 1;
    }
    let shape = vec![rows, columns.unwrap_or(0) as u64];
    check(&shape)?;
    Ok(Array::new(values, shape, Order::C))
}

/// The line that a record starts on, counted from 1. Only messages need it.
fn line_of(bytes: &[u8], record: &ByteRecord) -> usize {
    let start = record.position().map_or(0, |p| p.byte() as usize);
    // A record's position is where the reader started to look for it: before line ends and
    // comments.
    let mut at = start.min(bytes.len());
    loop {
        at += match bytes.get(at) {
            Some(b'\r' | b'\n') => 1,
            Some(b'#') => bytes[at..].iter().take_while(|b| **b != b'\n').count(),
            _ => break,
        };
    }
    1 + bytes[..at].iter().filter(|b| **b == b'\n').count()
}

/// The nonblank lines, trimmed, with their numbers from 1.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, &str), Problem>> {
    let numbered = without_mark(bytes).split(|&b| b == b'\n').enumerate();
    numbered
        .map(|(index, line)| Ok((index + 1, text_of(line, || index + 1)?.trim())))
        .filter(|line| !matches!(line, Ok((_, ""))))
}

/// The bytes without the byte order mark that some programs put before UTF-8.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn text_of(bytes: &[u8], line: impl Fn() -> usize) -> Result<&str, Problem> {
    if bytes.contains(&0) {
        return Err(Problem::NotText { line: line(), what: "a NUL byte" });
    }
    let what = "bytes that are not UTF-8";
    std::str::from_utf8(bytes).map_err(|_| Problem::NotText { line: line(), what })
}

/// A cell without surrounding spaces, nor quotes that were not parsed because of a space.
fn bare(cell: &str) -> &str {
    let cell = cell.trim();
    let inner = cell.strip_prefix('"').and_then(|c| c.strip_suffix('"'));
    inner.map_or(cell, str::trim)
}

fn is_heading(cells: &[&str]) -> bool {
    cells.iter().all(|cell| !cell.is_empty() && cell.parse::<f64>().is_err())
}

/// A cell as a finite number; `line` and `column` are for the message.
pub fn number(cell: &str, line: usize, column: usize) -> Result<f64, Problem> {
    finite(cell).map_err(|wanted| cell_problem(cell, line, column, wanted))
}

/// A finite number, or what the cell should contain.
fn finite(cell: &str) -> Result<f64, &'static str> {
    match cell.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err("a finite number"),
        // The most common mistake is another separator, so the message says which one is expected.
        Err(_) if cell.contains([';', '\t', ' ']) => Err("a number (commas separate the cells)"),
        Err(_) => Err("a number"),
    }
}

fn cell_problem(cell: &str, line: usize, column: usize, wanted: &'static str) -> Problem {
    Problem::Cell { line, column, cell: cell.to_owned(), wanted }
}
