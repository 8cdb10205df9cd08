//! Why a file could not be read.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A file that could not be read. The message is "file: what is wrong", or "file:array: what is
/// wrong" where the file holds several arrays.
#[derive(Debug, thiserror::Error)]
pub struct InputError {
    /// The file.
    pub path: PathBuf,
    /// The array inside the file, where one was chosen.
    pub array: Option<String>,
    /// What is wrong.
    #[source]
    pub problem: Problem,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(array) = &self.array {
            write!(f, ":{}", shorten(array))?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// What can be wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No file of this name.
    #[error("there is no such file")]
    Missing,
    /// A folder, a device or the like.
    #[error("is {0}, not a file")]
    NotAFile(&'static str),
    /// The operating system reported an error.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// No bytes at all.
    #[error("the file is empty")]
    EmptyFile,
    /// The extension is not one of those known.
    #[error(
        "the extension {} is not known; a file ends in .npy, .npz, .safetensors or .csv",
        quoted(.0)
    )]
    UnknownExtension(String),
    /// The extension promises one format and the first bytes show another.
    #[error("is named .{extension} but {found}")]
    WrongContent {
        /// The extension of the file.
        extension: &'static str,
        /// What the first bytes look like.
        found: &'static str,
    },
    /// The bytes break the rules of the format.
    #[error("is not a valid .{format} file: {what}")]
    Malformed {
        /// The extension of the format.
        format: &'static str,
        /// The rule that is broken.
        what: String,
    },
    /// The file ends before its last number.
    #[error("ends early: the header announces {promised} bytes of numbers, {present} were found")]
    Truncated {
        /// Bytes the header announces.
        promised: u64,
        /// Bytes in the file.
        present: u64,
    },
    /// A name was given for a format that holds a single array without a name.
    #[error("a .{0} file holds one array without a name, so none can be chosen")]
    NameNotUsed(&'static str),
    /// Several arrays and no name given.
    #[error("holds several arrays ({}); choose one, as in file:{}", listed(.0), first(.0))]
    NameNeeded(Vec<String>),
    /// No array of the given name.
    #[error("holds no array {}; it has {}{}", quoted(.name), listed(.present), meant(.name, .present))]
    NameUnknown {
        /// The requested name.
        name: String,
        /// The names in the file.
        present: Vec<String>,
    },
    /// A file without arrays.
    #[error("holds no arrays")]
    NoArrays,
    /// An unsupported number format.
    #[error(
        "has numbers of type {}; expected f16, bf16, f32, f64 or integers of 8 to 64 bits",
        quoted(.0)
    )]
    Dtype(String),
    /// A shape that is not a list of vectors.
    #[error(
        "has shape {}; expected [rows, columns], [heads, rows, columns] or \
         [1, heads, rows, columns]", dimensions(.0)
    )]
    Shape(Vec<u64>),
    /// A shape that is not a list of sequences.
    #[error(
        "has shape {}; expected [heads, tokens, columns] or [sequences, heads, tokens, columns]",
        dimensions(.0)
    )]
    SequenceShape(Vec<u64>),
    /// The number of entries does not match the shape.
    #[error("has {found} numbers, which does not match its shape {}", dimensions(.shape))]
    Count {
        /// The shape.
        shape: Vec<u64>,
        /// The number of entries.
        found: usize,
    },
    /// No numbers.
    #[error("the array is empty: its shape is {}", dimensions(.0))]
    EmptyArray(Vec<u64>),
    /// The header announces more numbers than can be counted or held in memory.
    #[error("the array of shape {} does not fit into memory", dimensions(.0))]
    TooLarge(Vec<u64>),
    /// A NaN or an infinity.
    #[error(
        "holds {value} at {}{}row {row}, column {column} (counted from 0)",
        place("sequence", .sequence), place("head", .head)
    )]
    NonFinite {
        /// The sequence, for files that have several.
        sequence: Option<usize>,
        /// The head, for files that have several.
        head: Option<usize>,
        /// The row, from 0.
        row: usize,
        /// The column, from 0.
        column: usize,
        /// The entry.
        value: f64,
    },
    /// A cell of a text file that is not a finite number.
    #[error("line {line}, column {column}: {} is not {wanted}", quoted(.cell))]
    Cell {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The text of the cell.
        cell: String,
        /// What should be there.
        wanted: &'static str,
    },
    /// A line with more or fewer cells than the first one.
    #[error("line {line} has {found} columns where the first line of numbers has {wanted}")]
    Ragged {
        /// The line, from 1.
        line: usize,
        /// Its number of cells.
        found: usize,
        /// The number of cells of the first line of numbers.
        wanted: usize,
    },
    /// A line with more or fewer cells than the format has.
    #[error("line {line} has {found} columns, expected {wanted} separated by {separator}")]
    Columns {
        /// The line, from 1.
        line: usize,
        /// Its number of cells.
        found: usize,
        /// The number of cells of the format.
        wanted: usize,
        /// The separator between cells.
        separator: &'static str,
    },
    /// Too few rows.
    #[error("holds {found} rows; at least {wanted} are needed")]
    FewRows {
        /// The number of rows.
        found: usize,
        /// The number of rows needed.
        wanted: usize,
    },
    /// Bytes that are not text.
    #[error("line {line} is not text: it holds {what}")]
    NotText {
        /// The line, from 1.
        line: usize,
        /// What was found.
        what: &'static str,
    },
}

impl Problem {
    /// A broken rule of a format.
    #[cfg(feature = "arrays")]
    pub(crate) fn malformed(format: &'static str, what: impl Into<String>) -> Self {
        Self::Malformed { format, what: what.into() }
    }
}

/// Refuses an array with an entry that is not finite. `named` says whether messages name its sequences and its heads.
pub(crate) fn check_finite<T: Copy + Into<f64>>(
    values: &[T],
    [heads, rows, columns]: [usize; 3],
    named: [bool; 2],
) -> Result<(), Problem> {
    let found = values.iter().map(|&v| v.into()).enumerate().find(|(_, v)| !v.is_finite());
    let Some((at, value)) = found else { return Ok(()) };
    let head = at / (rows * columns);
    Err(Problem::NonFinite {
        sequence: named[0].then_some(head / heads),
        head: named[1].then_some(head % heads),
        row: at / columns % rows,
        column: at % columns,
        value,
    })
}

// Text from a file may be long or contain control characters; a message shows a short, escaped
// form.
fn shorten(text: &str) -> String {
    let escaped: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() { format!("{escaped}…") } else { escaped }
}

/// The name that was probably meant, if there is one.
fn meant(name: &str, present: &[String]) -> String {
    let present: Vec<&str> = present.iter().map(String::as_str).collect();
    favor::nearest(name, &present).map_or(String::new(), |near| format!("; did you mean '{near}'?"))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", shorten(text))
}

fn listed(names: &[String]) -> String {
    let mut shown: Vec<String> = names.iter().take(12).map(|n| shorten(n)).collect();
    if names.len() > shown.len() {
        shown.push(format!("and {} more", names.len() - shown.len()));
    }
    shown.join(", ")
}

fn first(names: &[String]) -> String {
    names.first().map(|n| shorten(n)).unwrap_or_default()
}

fn dimensions(shape: &[u64]) -> String {
    let shown: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", shown.join(", "))
}

fn place(what: &str, number: &Option<usize>) -> String {
    number.map(|n| format!("{what} {n}, ")).unwrap_or_default()
}
