//! Files of our own: tensors in the safetensors format, below a header that says what they are.

use crate::{Error, Result};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// The entry of the header. It is a single one, because entries come in any order and equal contents
/// should be equal bytes.
const KEY: &str = "favor";

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stored {
    /// Numbers of this shape.
    pub fn floats(shape: Vec<usize>, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape, bytes }
    }

    /// Bytes as they are.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self { dtype: Dtype::U8, shape: vec![bytes.len()], bytes }
    }
}

/// Tensors to be written, by name.
pub type Tensors = BTreeMap<String, Stored>;

/// Tensors of a file, by name.
pub type Views<'a> = HashMap<String, TensorView<'a>>;

#[derive(Serialize, Deserialize)]
struct Kind {
    schema: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Header<M> {
    #[serde(flatten)]
    kind: Kind,
    metadata: M,
}

/// The bytes of a file of this schema and version.
///
/// ```
/// use favor_nn::store::{Stored, Tensors, read, write};
/// let tensors = Tensors::from([("x".to_owned(), Stored::floats(vec![2], &[1.0, 2.0]))]);
/// let bytes = write("example", 1, &"what it is", &tensors)?;
/// let (metadata, tensors) = read::<String>(&bytes, "example", 1)?;
/// assert_eq!((metadata.as_str(), tensors["x"].shape()), ("what it is", &[2][..]));
/// assert!(read::<String>(&bytes, "example", 2).is_err());
/// # Ok::<(), favor_nn::Error>(())
/// ```
pub fn write(
    schema: &str,
    version: u32,
    metadata: &impl Serialize,
    tensors: &Tensors,
) -> Result<Vec<u8>> {
    let kind = Kind { schema: schema.to_owned(), version };
    let header = serde_json::to_string(&Header { kind, metadata })
        .map_err(|e| Error::invalid("file", format!("its header cannot be written: {e}")))?;
    serialize(tensors, HashMap::from([(KEY.to_owned(), header)]))
}

/// What is in a file of this schema and version: its metadata and its tensors.
pub fn read<'a, M: DeserializeOwned>(
    bytes: &'a [u8],
    schema: &str,
    version: u32,
) -> Result<(M, Views<'a>)> {
    let refuse = |reason: String| Error::invalid("file", reason);
    let damaged = |e: &dyn std::fmt::Display| refuse(format!("no readable {schema}: {e}"));
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(&e))?;
    let header = header.metadata().as_ref().and_then(|entries| entries.get(KEY));
    let header = header.ok_or_else(|| damaged(&"it has no header of ours"))?;
    let kind: Kind = serde_json::from_str(header).map_err(|e| damaged(&e))?;
    if kind.schema != schema {
        return Err(refuse(format!("of kind {}; {schema} is needed", kind.schema)));
    }
    if kind.version != version {
        let found = kind.version;
        return Err(refuse(format!("version {found} of {schema}; version {version} is needed")));
    }
    let Header { metadata, .. } =
        serde_json::from_str::<Header<M>>(header).map_err(|e| damaged(&e))?;
    Ok((metadata, views(bytes).map_err(|e| damaged(&e))?))
}

/// The tensors of any safetensors file.
pub(crate) fn views(bytes: &[u8]) -> std::result::Result<Views<'_>, safetensors::SafeTensorError> {
    let file = SafeTensors::deserialize(bytes)?;
    Ok(file.iter().map(|(name, view)| (name.to_owned(), view)).collect())
}

/// The bytes of any safetensors file.
pub(crate) fn serialize(tensors: &Tensors, entries: HashMap<String, String>) -> Result<Vec<u8>> {
    let refuse = |e: safetensors::SafeTensorError| Error::invalid("file", e.to_string());
    let mut views = BTreeMap::new();
    for (name, Stored { dtype, shape, bytes }) in tensors {
        views.insert(name, TensorView::new(*dtype, shape.clone(), bytes).map_err(refuse)?);
    }
    safetensors::serialize(views, Some(entries)).map_err(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_are_equal_bytes_and_others_are_refused() {
        let tensors: Tensors = (0..9)
            .map(|i| (format!("t{i}"), Stored::floats(vec![1, 2], &[i as f32, 0.5])))
            .collect();
        let bytes = write("one", 3, &[1, 2], &tensors).unwrap();
        assert_eq!(bytes, write("one", 3, &[1, 2], &tensors).unwrap());
        let (metadata, views) = read::<[u32; 2]>(&bytes, "one", 3).unwrap();
        assert_eq!((metadata, views.len()), ([1, 2], 9));
        assert_eq!(views["t7"].data(), [7.0_f32, 0.5].map(f32::to_le_bytes).concat());
        let refused = |bytes: &[u8], schema: &str, version: u32, part: &str| {
            let message = read::<[u32; 2]>(bytes, schema, version).unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains('\n'), "{message}");
        };
        refused(&bytes, "other", 3, "of kind one; other is needed");
        refused(&bytes, "one", 4, "version 3 of one; version 4 is needed");
        refused(&bytes[..bytes.len() - 1], "one", 3, "no readable one");
        refused(b"", "one", 3, "no readable one");
        let foreign = serialize(&tensors, HashMap::new()).unwrap();
        refused(&foreign, "one", 3, "no header of ours");
        let wrong = write("one", 3, &"text", &tensors).unwrap();
        refused(&wrong, "one", 3, "no readable one");
    }
}
