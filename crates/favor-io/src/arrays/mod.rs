//! Arrays in files.
//!
//! [`read`] reads `.npy`, `.npz`, `.safetensors` and `.csv` files, [`read_spec`] does the same with
//! the name of an array after a colon, as in `qkv.npz:q`, and [`read_sequences`] reads arrays that
//! may have an axis for sequences. Every error names the file and what is wrong with it; a broken or
//! hostile file never aborts the program or makes it allocate more memory than the file can fill.
//! [`npy_bytes`] goes the other way.

mod dtype;
mod header;
mod kind;
mod layout;
mod npy;
mod npz;
mod tensors;
mod text;

pub use npy::npy_bytes;
pub use text::number;

use crate::{InputError, Problem, Sequences, Stack};
use crate::{sequences, stack};
use kind::Kind;
use layout::{Array, Check};
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// Reads an array of two, three or four dimensions: rows × columns, heads × rows × columns, or a
/// batch of one such stack.
///
/// `name` chooses an array of a `.npz` or `.safetensors` file; without it the file must hold only
/// one. Numbers of any type become `f64`, exactly where `f64` can hold them: integers beyond 2^53
/// are rounded to the nearest.
pub fn read(path: &Path, name: Option<&str>) -> Result<Stack, InputError> {
    let make = |array: Array| Stack::of_shape(array.values, &array.shape);
    let stack = read_as(path, name, |shape| stack::dimensions(shape).map(|_| ()), make)?;
    Ok(stack.from_source(source(path, name)))
}

/// Reads an array of sequences: heads × tokens × columns, or sequences × heads × tokens × columns.
/// The file's name may be followed by a colon and the name of an array.
pub fn read_sequences(spec: &str) -> Result<Sequences, InputError> {
    let (path, name) = split_spec(spec);
    let make = |array: Array| Sequences::of_shape(array.values, &array.shape);
    let array = read_as(&path, name, |shape| sequences::dimensions(shape).map(|_| ()), make)?;
    Ok(array.from_source(source(&path, name)))
}

/// Where an array came from, as messages name it.
fn source(path: &Path, name: Option<&str>) -> String {
    let chosen = name.map_or_else(String::new, |name| format!(":{name}"));
    format!("{}{chosen}", path.display())
}

/// The bytes of a file that exists and is not empty.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, InputError> {
    let bytes = check_regular(path).and_then(|()| whole(&mut open_filled(path)?.0));
    bytes.map_err(|problem| InputError { path: path.to_path_buf(), array: None, problem })
}

/// Reads a file whose name may be followed by a colon and the name of an array.
///
/// ```no_run
/// let queries = favor_io::arrays::read_spec("qkv.npz:q")?;
/// assert!(!queries.heads().is_empty());
/// # Ok::<(), favor_io::InputError>(())
/// ```
pub fn read_spec(spec: &str) -> Result<Stack, InputError> {
    let (path, name) = split_spec(spec);
    read(&path, name)
}

/// Splits `file:array` at the last colon, but only if the part before it is a file and the whole is
/// not.
///
/// So file names that contain a colon keep working.
pub fn split_spec(spec: &str) -> (PathBuf, Option<&str>) {
    if let Some((path, name)) = spec.rsplit_once(':')
        && !name.is_empty()
        && !Path::new(spec).is_file()
        && Path::new(path).is_file()
    {
        return (PathBuf::from(path), Some(name));
    }
    (PathBuf::from(spec), None)
}

/// The name of the array that was read or could not be read, and the array.
type Named = (Option<String>, Result<Array, Problem>);

fn read_as<T>(
    path: &Path,
    name: Option<&str>,
    check: Check,
    make: impl FnOnce(Array) -> Result<T, Problem>,
) -> Result<T, InputError> {
    let (array, read) = read_named(path, name, check);
    read.and_then(make).map_err(|problem| InputError { path: path.to_path_buf(), array, problem })
}

fn read_named(path: &Path, name: Option<&str>, check: Check) -> Named {
    let opened = open(path);
    let (kind, mut file, size) = match opened {
        Ok(opened) => opened,
        Err(e) => return (None, Err(e)),
    };
    if name.is_some() && !kind.has_names() {
        return (None, Err(Problem::NameNotUsed(kind.extension())));
    }
    match kind {
        Kind::Npy => (None, npy::read(&mut BufReader::new(file), size, check)),
        Kind::Npz => npz::read(file, name, check),
        Kind::Safetensors => match whole(&mut file) {
            Ok(bytes) => tensors::read(&bytes, name, check),
            Err(e) => (None, Err(e)),
        },
        Kind::Csv => (None, whole(&mut file).and_then(|bytes| text::read(&bytes, check))),
    }
}

/// Opens a file, returns its size in bytes, and compares its first bytes with its extension.
fn open(path: &Path) -> Result<(Kind, File, u64), Problem> {
    check_regular(path)?;
    let kind = Kind::of_path(path)?;
    let (mut file, size) = open_filled(path)?;
    let mut start = [0; 16];
    let got = dtype::fill(&mut file, &mut start)?;
    kind.check(&start[..got])?;
    file.rewind()?;
    Ok((kind, file, size))
}

/// An error for anything but a file.
fn check_regular(path: &Path) -> Result<(), Problem> {
    let metadata = fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Problem::Missing,
        _ => Problem::Io(e),
    })?;
    if metadata.is_dir() {
        return Err(Problem::NotAFile("a folder"));
    }
    // Opening a pipe would wait for a writer, and a device may never end.
    if !metadata.is_file() {
        return Err(Problem::NotAFile("a device or a pipe"));
    }
    Ok(())
}

/// Opens a file that is not empty, and returns its size in bytes.
fn open_filled(path: &Path) -> Result<(File, u64), Problem> {
    let file = File::open(path)?;
    match file.metadata()?.len() {
        0 => Err(Problem::EmptyFile),
        size => Ok((file, size)),
    }
}

/// The nonblank lines of a text file with their numbers.
pub fn lines(path: &Path) -> Result<Vec<(usize, String)>, Problem> {
    check_regular(path)?;
    let bytes = whole(&mut open_filled(path)?.0)?;
    text::lines(&bytes).map(|line| line.map(|(number, text)| (number, text.to_owned()))).collect()
}

fn whole(file: &mut File) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The requested array, or the only one there is.
fn choose(name: Option<&str>, mut present: Vec<String>) -> Result<String, Problem> {
    match name {
        Some(name) if present.iter().any(|p| p == name) => Ok(name.to_owned()),
        Some(name) => {
            if present.is_empty() {
                return Err(Problem::NoArrays);
            }
            Err(Problem::NameUnknown { name: name.to_owned(), present })
        }
        None if present.len() > 1 => Err(Problem::NameNeeded(present)),
        None => present.pop().ok_or(Problem::NoArrays),
    }
}
