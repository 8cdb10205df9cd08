//! A table of numbers as text, cells separated by commas.

use super::layout::{self, Order};
use super::{Heads, Problem};

/// Reads a table. Blank lines and lines that begin with `#` are passed over.
///
/// The first line is a heading if none of its cells is a number. A first line that mixes numbers
/// and words is an error, because it may be data with a slip in it.
pub(super) fn read(bytes: &[u8]) -> Result<Heads, Problem> {
    let mut values = Vec::new();
    let mut columns = None;
    let mut rows = 0_u64;
    let mut heading_possible = true;
    for line in lines(bytes) {
        let (line_number, line) = line?;
        if line.starts_with('#') {
            continue;
        }
        if std::mem::take(&mut heading_possible) && is_heading(line) {
            continue;
        }
        let before = values.len();
        for (column, cell) in line.split(',').map(bare).enumerate() {
            values.push(number(cell, line_number, column + 1)?);
        }
        let found = values.len() - before;
        let wanted = *columns.get_or_insert(found);
        if found != wanted {
            return Err(Problem::Ragged { line: line_number, found, wanted });
        }
        rows += 1;
    }
    let shape = [rows, columns.unwrap_or(0) as u64];
    layout::heads(values, &shape, Order::C)
}

/// The lines that are not blank, trimmed, with their numbers from 1.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, &str), Problem>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let numbered = bytes.split(|&b| b == b'\n').enumerate();
    numbered
        .map(|(index, line)| Ok((index + 1, text_of(line, index + 1)?.trim())))
        .filter(|line| !matches!(line, Ok((_, ""))))
}

fn text_of(line: &[u8], number: usize) -> Result<&str, Problem> {
    if line.contains(&0) {
        return Err(Problem::NotText { line: number, what: "a NUL byte" });
    }
    let what = "bytes that are not UTF-8";
    std::str::from_utf8(line).map_err(|_| Problem::NotText { line: number, what })
}

/// A cell without the spaces and the quotes around it.
fn bare(cell: &str) -> &str {
    let cell = cell.trim();
    let inner = cell.strip_prefix('"').and_then(|c| c.strip_suffix('"'));
    inner.map_or(cell, str::trim)
}

fn is_heading(line: &str) -> bool {
    line.split(',').map(bare).all(|cell| !cell.is_empty() && cell.parse::<f64>().is_err())
}

/// A cell as a finite number; `line` and `column` are for the message.
pub fn number(cell: &str, line: usize, column: usize) -> Result<f64, Problem> {
    let wanted = match cell.parse::<f64>() {
        Ok(value) if value.is_finite() => return Ok(value),
        Ok(_) => "a finite number",
        // The most common slip is another separator, so the message says which one is wanted.
        Err(_) if cell.contains([';', '\t', ' ']) => "a number (commas separate the cells)",
        Err(_) => "a number",
    };
    Err(Problem::Cell { line, column, cell: cell.to_owned(), wanted })
}
