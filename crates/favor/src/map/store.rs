//! Feature maps as safetensors bytes.
//!
//! ω is stored, not only its seed: a file then means the same for ever, even if a later version
//! should draw differently, and maps with an ω of their own can be kept too. The seed and the
//! coupling stay in the header for the reader.

use super::{FeatureMap, FeatureSpec, Record};
use crate::{Error, Matrix, Parameters, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

const SCHEMA: &str = "favor.feature_map";
const VERSION: u32 = 1;
const KEY: &str = "favor";

#[derive(Serialize, Deserialize)]
struct Header {
    schema: String,
    version: u32,
    spec: FeatureSpec,
}

impl FeatureMap {
    /// The map as the bytes of a safetensors file.
    ///
    /// ```
    /// use favor::{Family, FeatureMap, FeatureSpec, Moments, Rows};
    /// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
    /// let map = FeatureSpec::new(Family::Sde, 8).fit(&m, &m)?;
    /// assert_eq!(FeatureMap::from_bytes(&map.to_bytes()?)?, map);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let Record { spec, parameters, omega, offsets } = &*self.record;
        let (m, d) = omega.shape();
        let mut arrays: Vec<(&str, Vec<usize>, &[f64])> =
            vec![("omega", vec![m, d], omega.as_slice())];
        match parameters {
            None => arrays.push(("offsets", vec![m], offsets)),
            Some(p) => arrays.extend([
                ("quadratic", vec![d], p.quadratic()),
                ("query_transform", vec![d, d], p.query_transform().as_slice()),
                ("key_transform", vec![d, d], p.key_transform().as_slice()),
                ("query_shift", vec![d], p.query_shift()),
                ("key_shift", vec![d], p.key_shift()),
            ]),
        }
        let bytes: Vec<Vec<u8>> = arrays
            .iter()
            .map(|(_, _, a)| a.iter().flat_map(|v| v.to_le_bytes()).collect())
            .collect();
        let views: std::result::Result<Vec<_>, _> = arrays
            .iter()
            .zip(&bytes)
            .map(|((name, shape, _), b)| {
                TensorView::new(Dtype::F64, shape.clone(), b).map(|view| (*name, view))
            })
            .collect();
        let header = Header { schema: SCHEMA.into(), version: VERSION, spec: *spec };
        let header = serde_json::to_string(&header).map_err(|e| Error::Format(e.to_string()))?;
        let metadata = HashMap::from([(KEY.to_string(), header)]);
        views
            .and_then(|views| safetensors::serialize(views, Some(metadata)))
            .map_err(|e| Error::Format(e.to_string()))
    }

    /// Reads the bytes of a file that [`FeatureMap::to_bytes`] made. Damaged, truncated or foreign
    /// bytes give an error that says what is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |reason: String| Error::Format(reason);
        let (_, metadata) = SafeTensors::read_metadata(bytes)
            .map_err(|e| bad(format!("not a complete safetensors file ({e})")))?;
        let header = metadata.metadata().as_ref().and_then(|m| m.get(KEY)).ok_or_else(|| {
            bad(format!("a safetensors file without the '{KEY}' entry of a feature map"))
        })?;
        // The version first: the rest of a header from another version need not be readable.
        let value: serde_json::Value =
            serde_json::from_str(header).map_err(|e| bad(format!("damaged header ({e})")))?;
        if value["schema"] != SCHEMA {
            return Err(bad(format!("the file holds a {}, not a {SCHEMA}", value["schema"])));
        }
        if value["version"] != VERSION {
            let version = &value["version"];
            return Err(bad(format!("version {version}; this build reads version {VERSION}")));
        }
        let Header { spec, .. } =
            serde_json::from_value(value).map_err(|e| bad(format!("damaged header ({e})")))?;
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| bad(e.to_string()))?;
        let vector = |name: &str| -> Result<(Vec<usize>, Vec<f64>)> {
            let view =
                tensors.tensor(name).map_err(|_| bad(format!("array '{name}' is missing")))?;
            if view.dtype() != Dtype::F64 {
                return Err(bad(format!("array '{name}' is not of 64-bit floats")));
            }
            let (chunks, _) = view.data().as_chunks::<8>();
            Ok((view.shape().to_vec(), chunks.iter().map(|c| f64::from_le_bytes(*c)).collect()))
        };
        let matrix = |name: &str| -> Result<Matrix<f64>> {
            match vector(name)? {
                (shape, data) if shape.len() == 2 => Matrix::new(data, shape[0], shape[1]),
                (shape, _) => Err(bad(format!("array '{name}' has shape {shape:?}"))),
            }
        };
        let parameters = match spec.family.is_positive() {
            false => None,
            true => Some(Parameters::checked(
                vector("quadratic")?.1,
                matrix("query_transform")?,
                matrix("key_transform")?,
                vector("query_shift")?.1,
                vector("key_shift")?.1,
            )?),
        };
        let offsets = if parameters.is_some() { vec![] } else { vector("offsets")?.1 };
        Self::from_record(Record { spec, parameters, omega: matrix("omega")?, offsets })
    }
}
