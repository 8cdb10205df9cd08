//! One NumPy array, as in a `.npy` file or inside a `.npz` archive.

use super::dtype::{Dtype, fill};
use super::header::{self, Header};
use super::layout::{Array, Check};
use crate::Problem;
use std::io::Read;

// NumPy itself writes a few hundred bytes at most and refuses more than 10 000 by default.
const LONGEST_HEADER: u32 = 1 << 16;

/// Reads an array from an input that is `size` bytes long.
///
/// The size is compared with what the header promises before any memory is allocated.
pub(super) fn read(from: &mut impl Read, size: u64, check: Check) -> Result<Array, Problem> {
    let (header, used) = read_header(from)?;
    check(&header.shape)?;
    let dtype = Dtype::from_numpy(&header.descr)?;
    let promised = dtype.bytes_of(&header.shape)?;
    let present = size.saturating_sub(used);
    if promised > present {
        return Err(Problem::Truncated { promised, present });
    }
    if promised < present {
        return Err(bad(format!("{} bytes follow the array", present - promised)));
    }
    let values = dtype.read(from, &header.shape)?;
    // One more read reaches the end, where an archive compares its checksum.
    if fill(from, &mut [0])? != 0 {
        return Err(bad("more bytes follow the array"));
    }
    Ok(Array::new(values, header.shape, header.order))
}

/// The bytes of a `.npy` file with the given number of rows and columns.
///
/// ```
/// let bytes = favor_io::arrays::npy_bytes(2, 3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// assert_eq!(&bytes[..6], b"\x93NUMPY");
/// assert_eq!(bytes.len(), 128 + 6 * 4);
/// ```
pub fn npy_bytes<'a>(
    rows: usize,
    columns: usize,
    values: impl IntoIterator<Item = &'a f32>,
) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    // Magic, version and length are 10 bytes; the whole is a multiple of 64 and ends a line.
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(values.into_iter().flat_map(|v| v.to_le_bytes()));
    out
}

fn read_header(from: &mut impl Read) -> Result<(Header, u64), Problem> {
    let mut start = [0; 8];
    exact(from, &mut start)?;
    if &start[..6] != b"\x93NUMPY" {
        return Err(bad("it does not begin with the mark of a NumPy array"));
    }
    let (length, used) = match (start[6], start[7]) {
        (1, 0) => {
            let mut length = [0; 2];
            exact(from, &mut length)?;
            (u32::from(u16::from_le_bytes(length)), 10)
        }
        (2 | 3, 0) => {
            let mut length = [0; 4];
            exact(from, &mut length)?;
            (u32::from_le_bytes(length), 12)
        }
        (major, minor) => return Err(bad(format!("version {major}.{minor} is not known"))),
    };
    if length > LONGEST_HEADER {
        return Err(bad(format!("the header claims to be {length} bytes long")));
    }
    let mut text = vec![0; length as usize];
    exact(from, &mut text)?;
    // Field names may contain any letters, but arrays of plain numbers have none.
    let text = std::str::from_utf8(&text).map_err(|_| bad("the header is not text"))?;
    Ok((header::parse(text)?, used + u64::from(length)))
}

fn exact(from: &mut impl Read, buffer: &mut [u8]) -> Result<(), Problem> {
    if fill(from, buffer)? < buffer.len() {
        return Err(bad("it ends inside the header"));
    }
    Ok(())
}

fn bad(what: impl Into<String>) -> Problem {
    Problem::malformed("npy", what)
}
