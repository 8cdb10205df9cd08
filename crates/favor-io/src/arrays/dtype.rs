//! Number formats in files, and how their bytes become `f64`.

use crate::Problem;
use half::{bf16, f16};
use std::io::{ErrorKind, Read};

/// A number format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

/// A number format together with the order of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dtype {
    pub(super) number: Number,
    pub(super) big_endian: bool,
}

impl Dtype {
    /// Reads the type string of a NumPy header, such as `<f4` or `|u1`.
    pub(super) fn from_numpy(text: &str) -> Result<Self, Problem> {
        let unknown = || Problem::Dtype(text.to_owned());
        let order = text.chars().next().ok_or_else(unknown)?;
        let (big_endian, kind) = match order {
            '<' | '|' => (false, &text[1..]),
            '>' => (true, &text[1..]),
            '=' => (cfg!(target_endian = "big"), &text[1..]),
            _ => return Err(unknown()),
        };
        let number = match kind {
            "f2" => Number::F16,
            "f4" => Number::F32,
            "f8" => Number::F64,
            "i1" => Number::I8,
            "i2" => Number::I16,
            "i4" => Number::I32,
            "i8" => Number::I64,
            "u1" => Number::U8,
            "u2" => Number::U16,
            "u4" => Number::U32,
            "u8" => Number::U64,
            _ => return Err(unknown()),
        };
        // "Not applicable" is true only for single bytes.
        if order == '|' && !matches!(number, Number::I8 | Number::U8) {
            return Err(unknown());
        }
        Ok(Self { number, big_endian })
    }

    /// Bytes of one number.
    pub(super) fn size(self) -> usize {
        match self.number {
            Number::I8 | Number::U8 => 1,
            Number::F16 | Number::Bf16 | Number::I16 | Number::U16 => 2,
            Number::F32 | Number::I32 | Number::U32 => 4,
            Number::F64 | Number::I64 | Number::U64 => 8,
        }
    }

    /// Bytes of an array of this shape; an error if the count overflows.
    pub(super) fn bytes_of(self, shape: &[u64]) -> Result<u64, Problem> {
        // A zero dimension makes the array empty, whatever the others are.
        if shape.contains(&0) {
            return Ok(0);
        }
        let total = shape.iter().try_fold(self.size() as u64, |n, &d| n.checked_mul(d));
        total.ok_or_else(|| Problem::TooLarge(shape.to_vec()))
    }

    /// Reads all numbers of an array of this shape, in the order of the file.
    ///
    /// The caller has checked the size against the file. The allocation may still fail, which is an
    /// error and does not abort the program.
    pub(super) fn read(self, from: &mut impl Read, shape: &[u64]) -> Result<Vec<f64>, Problem> {
        let promised = self.bytes_of(shape)?;
        let too_large = || Problem::TooLarge(shape.to_vec());
        let count = usize::try_from(promised / self.size() as u64).map_err(|_| too_large())?;
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|_| too_large())?;
        let mut buffer = [0_u8; 1 << 14];
        let mut left = promised;
        while left > 0 {
            // The buffer size is a multiple of every number size.
            let wanted = left.min(buffer.len() as u64) as usize;
            let got = fill(from, &mut buffer[..wanted])?;
            if got < wanted {
                let present = promised - left + got as u64;
                return Err(Problem::Truncated { promised, present });
            }
            self.decode(&buffer[..wanted], &mut values);
            left -= wanted as u64;
        }
        Ok(values)
    }

    fn decode(self, bytes: &[u8], values: &mut Vec<f64>) {
        // One arm per format: the bytes in file order, then the exact or nearest `f64`.
        macro_rules! each {
            ($number:ty, $to_f64:expr) => {
                each_number(bytes, self.big_endian, values, |b| {
                    $to_f64(<$number>::from_le_bytes(b))
                })
            };
        }
        match self.number {
            Number::F16 => each!(f16, f16::to_f64),
            Number::Bf16 => each!(bf16, bf16::to_f64),
            Number::F32 => each!(f32, f64::from),
            Number::F64 => each!(f64, |v| v),
            Number::I8 => each!(i8, f64::from),
            Number::I16 => each!(i16, f64::from),
            Number::I32 => each!(i32, f64::from),
            Number::I64 => each!(i64, |v| v as f64),
            Number::U8 => each!(u8, f64::from),
            Number::U16 => each!(u16, f64::from),
            Number::U32 => each!(u32, f64::from),
            Number::U64 => each!(u64, |v| v as f64),
        }
    }
}

fn each_number<const N: usize>(
    bytes: &[u8],
    big_endian: bool,
    values: &mut Vec<f64>,
    to_f64: impl Fn([u8; N]) -> f64,
) {
    let (chunks, _) = bytes.as_chunks::<N>();
    values.extend(chunks.iter().map(|chunk| {
        let mut chunk = *chunk;
        if big_endian {
            chunk.reverse();
        }
        to_f64(chunk)
    }));
}

/// Reads until the buffer is full or the input ends; returns the number of bytes read.
pub(super) fn fill(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Problem> {
    let mut got = 0;
    while got < buffer.len() {
        match from.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Problem::Io(e)),
        }
    }
    Ok(got)
}
