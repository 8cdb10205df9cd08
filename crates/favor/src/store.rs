//! One file format for everything that is stored: safetensors with a header that says what the file
//! contains.
//!
//! The header is JSON under the metadata key `favor`: schema, version, a checksum of header and arrays,
//! and the contents that belong to the schema. Reading a foreign, damaged or newer file is an error that
//! says so and names what was expected.
//!
//! ```
//! use favor::store::{Array, Kind};
//! let kind = Kind::new("example.points", "table of points", 1);
//! let bytes = kind.write(&"two points", vec![Array::f64("points", [2, 1], &[0.5, 0.25])])?;
//! let file = kind.read::<String>(&bytes)?;
//! assert_eq!(file.contents, "two points");
//! assert_eq!(file.f64("points")?.1, [0.5, 0.25]);
//! assert!(Kind::new("example.lines", "table of lines", 1).read::<String>(&bytes).is_err());
//! # Ok::<(), favor::Error>(())
//! ```

use crate::{Error, Matrix, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;

const KEY: &str = "favor";

/// A kind of file.
///
/// Bytes of another kind or version are refused:
///
/// ```
/// use favor::store::Kind;
/// const POINTS: Kind = Kind::new("example.points", "table of points", 2);
/// let old = Kind::new("example.points", "table of points", 1).write(&(), vec![])?;
/// let error = POINTS.read::<()>(&old).err().unwrap();
/// assert!(error.to_string().contains("version 1; this build reads version 2"));
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    schema: &'static str,
    name: &'static str,
    version: u32,
}

/// An array of a file, with the bytes of its numbers.
///
/// The [module](self) has an example.
#[derive(Debug, Clone)]
pub struct Array<'a> {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

/// A file that was read: the contents of its header, and its arrays.
///
/// [`Kind::read`] returns it; the [module](self) has an example.
pub struct File<'a, H> {
    /// The contents of the header besides schema and version.
    pub contents: H,
    kind: Kind,
    tensors: SafeTensors<'a>,
}

#[derive(Serialize, Deserialize)]
struct Header<H> {
    schema: String,
    version: u32,
    checksum: String,
    contents: H,
}

impl<'a> Array<'a> {
    /// An array of any format, from its bytes.
    pub fn new(
        name: impl Into<String>,
        dtype: Dtype,
        shape: impl Into<Vec<usize>>,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> Self {
        Self { name: name.into(), dtype, shape: shape.into(), bytes: bytes.into() }
    }

    /// An array of 64-bit floats.
    pub fn f64(name: impl Into<String>, shape: impl Into<Vec<usize>>, values: &[f64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::new(name, Dtype::F64, shape, bytes)
    }
}

impl Kind {
    /// Files of a schema and version; `name` is their name in messages.
    pub const fn new(schema: &'static str, name: &'static str, version: u32) -> Self {
        Self { schema, name, version }
    }

    /// The bytes of a file.
    pub fn write<H: Serialize>(&self, contents: &H, arrays: Vec<Array<'_>>) -> Result<Vec<u8>> {
        let contents = serde_json::to_value(contents).map_err(|e| self.bad(e.to_string()))?;
        let named = arrays.iter().map(|a| (a.name.as_str(), &a.bytes[..]));
        let header = Header {
            schema: self.schema.into(),
            version: self.version,
            checksum: checksum(&contents.to_string(), named),
            contents,
        };
        let header = serde_json::to_string(&header).map_err(|e| self.bad(e.to_string()))?;
        let views: std::result::Result<Vec<_>, _> = arrays
            .iter()
            .map(|a| {
                let view = TensorView::new(a.dtype, a.shape.clone(), &a.bytes)?;
                Ok::<_, safetensors::SafeTensorError>((a.name.as_str(), view))
            })
            .collect();
        let metadata = HashMap::from([(KEY.to_string(), header)]);
        views
            .and_then(|views| safetensors::serialize(views, Some(metadata)))
            .map_err(|e| self.bad(e.to_string()))
    }

    /// Reads the bytes of a file of this kind. Damaged, truncated or foreign bytes are an error that
    /// says what is wrong.
    pub fn read<'b, H: DeserializeOwned>(&self, bytes: &'b [u8]) -> Result<File<'b, H>> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)
            .map_err(|e| self.bad(format!("not a complete safetensors file ({e})")))?;
        let header = metadata.metadata().as_ref().and_then(|m| m.get(KEY)).ok_or_else(|| {
            self.bad(format!("a safetensors file without the '{KEY}' entry in its header"))
        })?;
        let damaged = |e: serde_json::Error| self.bad(format!("damaged header ({e})"));
        let header: serde_json::Value = serde_json::from_str(header).map_err(damaged)?;
        if header["schema"] != self.schema {
            let found = header["schema"].as_str().unwrap_or("file without a schema");
            return Err(self.bad(format!("the file holds a {found}, not a {}", self.schema)));
        }
        // The version is checked first: the contents of another version may not be readable.
        if header["version"] != self.version {
            let (found, own) = (&header["version"], self.version);
            let reason =
                format!("version {found}; this build reads version {own}: make the file again");
            return Err(self.bad(reason));
        }
        let header: Header<serde_json::Value> = serde_json::from_value(header).map_err(damaged)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| self.bad(e.to_string()))?;
        let arrays = tensors.tensors();
        let named = arrays.iter().map(|(name, view)| (name.as_str(), view.data()));
        if checksum(&header.contents.to_string(), named) != header.checksum {
            return Err(self.bad("damaged: the checksum does not match"));
        }
        let contents = serde_json::from_value(header.contents).map_err(damaged)?;
        Ok(File { contents, kind: *self, tensors })
    }

    /// The error of a file of this kind that cannot be read.
    pub fn bad(&self, reason: impl Into<String>) -> Error {
        Error::Format { what: self.name.into(), reason: reason.into() }
    }
}

impl<'a, H> File<'a, H> {
    /// The contents of the header, and all arrays by name.
    pub fn into_parts(self) -> (H, HashMap<String, TensorView<'a>>) {
        (self.contents, self.tensors.tensors().into_iter().collect())
    }

    /// An array by its name.
    pub fn array(&self, name: &str) -> Result<TensorView<'_>> {
        let missing = |_| self.kind.bad(format!("array '{name}' is missing"));
        self.tensors.tensor(name).map_err(missing)
    }

    /// The names of all arrays, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names = self.tensors.names();
        names.sort_unstable();
        names
    }

    /// An array of this format by its name.
    pub fn array_of(&self, name: &str, dtype: Dtype) -> Result<TensorView<'_>> {
        let view = self.array(name)?;
        if view.dtype() == dtype {
            return Ok(view);
        }
        let found = view.dtype();
        Err(self.kind.bad(format!("array '{name}' is of {found:?} where {dtype:?} is needed")))
    }

    /// Shape and numbers of an array of 64-bit floats.
    pub fn f64(&self, name: &str) -> Result<(Vec<usize>, Vec<f64>)> {
        let view = self.array_of(name, Dtype::F64)?;
        let (chunks, _) = view.data().as_chunks::<8>();
        Ok((view.shape().to_vec(), chunks.iter().map(|c| f64::from_le_bytes(*c)).collect()))
    }

    /// A matrix of 64-bit floats.
    pub fn matrix(&self, name: &str) -> Result<Matrix<f64>> {
        match self.f64(name)? {
            (shape, data) if shape.len() == 2 => Matrix::new(data, shape[0], shape[1]),
            (shape, _) => Err(self.kind.bad(format!("array '{name}' has shape {shape:?}"))),
        }
    }
}

/// A checksum of a header and its arrays, independent of their order: it distinguishes files and detects
/// damage, but is no defence against forgery.
fn checksum<'a>(header: &str, arrays: impl Iterator<Item = (&'a str, &'a [u8])>) -> String {
    // FNV-1a on eight-byte words.
    fn hash(start: u64, bytes: &[u8]) -> u64 {
        let step =
            |h: u64, word: u64| (h ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        let (words, rest) = bytes.as_chunks::<8>();
        let h = words.iter().fold(start, |h, w| step(h, u64::from_le_bytes(*w)));
        let h = rest.iter().fold(h, |h, b| step(h, u64::from(*b)));
        step(h, bytes.len() as u64)
    }
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    let sum = arrays.fold(hash(START, header.as_bytes()), |sum, (name, bytes)| {
        sum.wrapping_add(hash(hash(START, name.as_bytes()), bytes))
    });
    format!("{sum:016x}")
}
