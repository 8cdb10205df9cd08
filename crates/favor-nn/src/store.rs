//! Files of our own: tensors in the safetensors format, below a header that says what they are.

use crate::{Error, Result};
use favor::store::{Array, Kind};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};

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

/// The bytes of a file of this kind.
///
/// ```
/// use favor::store::Kind;
/// use favor_nn::store::{Stored, Tensors, read, write};
/// let kind = Kind::new("example", "example", 1);
/// let tensors = Tensors::from([("x".to_owned(), Stored::floats(vec![2], &[1.0, 2.0]))]);
/// let bytes = write(kind, &"what it is", &tensors)?;
/// let (metadata, tensors) = read::<String>(kind, &bytes)?;
/// assert_eq!((metadata.as_str(), tensors["x"].shape()), ("what it is", &[2][..]));
/// assert!(read::<String>(Kind::new("example", "example", 2), &bytes).is_err());
/// # Ok::<(), favor_nn::Error>(())
/// ```
pub fn write(kind: Kind, metadata: &impl Serialize, tensors: &Tensors) -> Result<Vec<u8>> {
    let array = |(name, stored): (&String, &'_ Stored)| {
        Array::new(name.clone(), stored.dtype, stored.shape.clone(), stored.bytes.clone())
    };
    Ok(kind.write(metadata, tensors.iter().map(array).collect())?)
}

/// What is in a file of this kind: its metadata and its tensors.
pub fn read<M: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<(M, Views<'_>)> {
    Ok(kind.read::<M>(bytes)?.into_parts())
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
        let kind = Kind::new("one", "thing", 3);
        let bytes = write(kind, &[1, 2], &tensors).unwrap();
        assert_eq!(bytes, write(kind, &[1, 2], &tensors).unwrap());
        let (metadata, views) = read::<[u32; 2]>(kind, &bytes).unwrap();
        assert_eq!((metadata, views.len()), ([1, 2], 9));
        assert_eq!(views["t7"].data(), [7.0_f32, 0.5].map(f32::to_le_bytes).concat());
        let refused = |bytes: &[u8], kind: Kind, part: &str| {
            let message = read::<[u32; 2]>(kind, bytes).unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains('\n'), "{message}");
        };
        refused(&bytes, Kind::new("other", "thing", 3), "holds a one, not a other");
        refused(&bytes, Kind::new("one", "thing", 4), "version 3; this build reads version 4");
        refused(&bytes[..bytes.len() - 1], kind, "not a readable thing");
        refused(b"", kind, "not a readable thing");
        let foreign = serialize(&tensors, HashMap::new()).unwrap();
        refused(&foreign, kind, "without the 'favor' entry");
        let wrong = write(kind, &"text", &tensors).unwrap();
        refused(&wrong, kind, "damaged header");
    }
}
