//! A model as one safetensors file: a header with a version, and arrays.

use crate::model::{Model, ModelInfo};
use crate::states::{Item, Sample};
use crate::write_file::write_atomically;
use crate::{Error, Result};
use favor::learn::Task;
use favor::{FeatureMap, KeySums, Matrix, Moments};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

const SCHEMA: &str = "favor.table_model";
const VERSION: u32 = 2;
const KEY: &str = "favor";

#[derive(Serialize, Deserialize)]
struct Header {
    schema: String,
    version: u32,
    info: ModelInfo,
    /// Vectors that the moments are of.
    moment_rows: u64,
    moment_weight: f64,
    /// The labels of the sample, one per row; none but for classification.
    sample_labels: Vec<String>,
}

impl Model {
    /// The bytes of the model's file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let items = &self.sample.items;
        let classify = self.info.task == Task::Classify;
        let header = Header {
            schema: SCHEMA.into(),
            version: VERSION,
            info: self.info.clone(),
            moment_rows: self.moments.count(),
            moment_weight: self.moments.weight(),
            sample_labels: if classify {
                items.keys().map(|(_, label)| label.clone()).collect()
            } else {
                vec![]
            },
        };
        let (d, n) = (self.map.dim(), items.len());
        let sums = self.sums.sums();
        let rows: Vec<f64> = items.values().flat_map(|i| i.row.iter().copied()).collect();
        let values: Vec<f64> = items.values().map(|i| i.value).collect();
        let weights: Vec<f64> = items.values().map(|i| i.weight).collect();
        let floats: [(&str, Vec<usize>, &[f64]); 7] = [
            ("log_scale", vec![sums.rows()], self.sums.log_scale()),
            ("sums", vec![sums.rows(), sums.columns()], sums.as_slice()),
            ("mean", vec![d], self.moments.mean()),
            ("scatter", vec![d, d], self.moments.scatter().as_slice()),
            ("sample_rows", vec![n, d], &rows),
            ("sample_targets", vec![n], &values),
            ("sample_weights", vec![n], &weights),
        ];
        let mut arrays: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)> = floats
            .into_iter()
            .map(|(name, shape, data)| {
                (name, Dtype::F64, shape, data.iter().flat_map(|v| v.to_le_bytes()).collect())
            })
            .collect();
        let places = items.keys().flat_map(|(place, _)| place.to_le_bytes()).collect();
        arrays.push(("sample_places", Dtype::U64, vec![n], places));
        let map = self.map.to_bytes()?;
        arrays.push(("map", Dtype::U8, vec![map.len()], map));
        let bad = |e: String| Error::Model { place: "model".into(), reason: e };
        let header = serde_json::to_string(&header).map_err(|e| bad(e.to_string()))?;
        let views: std::result::Result<Vec<_>, _> = arrays
            .iter()
            .map(|(name, dtype, shape, data)| {
                TensorView::new(*dtype, shape.clone(), data).map(|view| (*name, view))
            })
            .collect();
        views
            .and_then(|v| safetensors::serialize(v, Some(HashMap::from([(KEY.into(), header)]))))
            .map_err(|e| bad(e.to_string()))
    }

    /// Reads the bytes of a file that [`Model::to_bytes`] made. Damaged, truncated or foreign bytes
    /// give an error that says what is wrong with them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        read(bytes).map_err(|reason| Error::Model { place: "model".into(), reason })
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::source(&place, "there is no such file"),
            _ => Error::source(&place, e.to_string()),
        })?;
        read(&bytes).map_err(|reason| Error::Model { place, reason })
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_atomically(path, &self.to_bytes()?)
    }
}

fn read(bytes: &[u8]) -> std::result::Result<Model, String> {
    let (_, metadata) = SafeTensors::read_metadata(bytes)
        .map_err(|e| format!("not a complete safetensors file ({e})"))?;
    let header = metadata.metadata().as_ref().and_then(|m| m.get(KEY));
    let header =
        header.ok_or_else(|| format!("a safetensors file without the '{KEY}' entry of a model"))?;
    // The version first: the rest of a header from another version need not be readable.
    let value: serde_json::Value =
        serde_json::from_str(header).map_err(|e| format!("damaged header ({e})"))?;
    if value["schema"] != SCHEMA {
        return Err(format!("the file holds a {}, not a {SCHEMA}", value["schema"]));
    }
    if value["version"] != VERSION {
        return Err(format!(
            "version {}; this build reads version {VERSION}: fit the model again",
            value["version"]
        ));
    }
    let header: Header =
        serde_json::from_value(value).map_err(|e| format!("damaged header ({e})"))?;
    let tensors = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let tensor = |name: &str, dtype: Dtype| {
        let view = tensors.tensor(name).map_err(|_| format!("array '{name}' is missing"))?;
        if view.dtype() == dtype {
            Ok(view)
        } else {
            Err(format!("array '{name}' is of {:?}, not of {dtype:?}", view.dtype()))
        }
    };
    let floats = |name: &str| -> std::result::Result<(Vec<usize>, Vec<f64>), String> {
        let view = tensor(name, Dtype::F64)?;
        let (chunks, _) = view.data().as_chunks::<8>();
        Ok((view.shape().to_vec(), chunks.iter().map(|c| f64::from_le_bytes(*c)).collect()))
    };
    let matrix = |name: &str| -> std::result::Result<Matrix<f64>, String> {
        match floats(name)? {
            (shape, data) if shape.len() == 2 => {
                Matrix::new(data, shape[0], shape[1]).map_err(|e| e.to_string())
            }
            (shape, _) => Err(format!("array '{name}' has shape {shape:?}")),
        }
    };
    let map =
        FeatureMap::from_bytes(tensor("map", Dtype::U8)?.data()).map_err(|e| e.to_string())?;
    let sums =
        KeySums::from_parts(floats("log_scale")?.1, matrix("sums")?).map_err(|e| e.to_string())?;
    let (count, weight) = (header.moment_rows, header.moment_weight);
    let moments = Moments::from_scatter(count, weight, floats("mean")?.1, matrix("scatter")?)
        .map_err(|e| e.to_string())?;
    let view = tensor("sample_places", Dtype::U64)?;
    let (places, _) = view.data().as_chunks::<8>();
    let places: Vec<u64> = places.iter().map(|c| u64::from_le_bytes(*c)).collect();
    let (rows, values, weights) =
        (matrix("sample_rows")?, floats("sample_targets")?.1, floats("sample_weights")?.1);
    let info = header.info;
    check(&info, &map, &sums, &moments)?;
    let classify = info.task == Task::Classify;
    let n = places.len();
    if rows.shape() != (n, map.dim())
        || values.len() != n
        || weights.len() != n
        || (classify && header.sample_labels.len() != n)
        || !rows.as_slice().iter().chain(&values).chain(&weights).all(|v| v.is_finite())
    {
        return Err("the arrays of the sample do not fit together".into());
    }
    let mut items = BTreeMap::new();
    for i in 0..n {
        let mark = if classify {
            header.sample_labels[i].clone()
        } else {
            format!("{:x}", values[i].to_bits())
        };
        let item = Item { row: rows.row(i).to_vec(), value: values[i], weight: weights[i] };
        items.insert((places[i], mark), item);
    }
    Model::new(info, map, moments, sums, Sample { items }).map_err(|e| e.to_string())
}

/// That the parts of a model belong together.
fn check(
    info: &ModelInfo,
    map: &FeatureMap,
    sums: &KeySums,
    moments: &Moments,
) -> std::result::Result<(), String> {
    let d = info.encoder.width();
    if map.dim() != d || moments.dim() != d || info.encoder.fill.len() != d {
        return Err(format!("a map of dimension {} for vectors of dimension {d}", map.dim()));
    }
    let columns = match info.task {
        Task::Classify => info.classes.len(),
        Task::Regress => 2,
        Task::Density => 1,
    };
    if sums.sums().shape() != (map.features(), columns) || columns == 0 {
        return Err(format!("sums of shape {:?}", sums.sums().shape()));
    }
    if info.target.is_some() == (info.task == Task::Density)
        || info.target_scaling.is_some() != (info.task == Task::Regress)
    {
        return Err(format!("a {} with the wrong kind of target", info.task.name()));
    }
    let (centres, scales) = info.encoder.centres_and_scales();
    let positive = |v: f64| v.is_finite() && v > 0.0;
    let good = positive(info.bandwidth)
        && positive(info.total_weight)
        && scales.iter().all(|s| positive(*s))
        && info.target_scaling.is_none_or(|s| s.centre.is_finite() && positive(s.scale))
        && centres.iter().chain(&info.encoder.fill).all(|v| v.is_finite())
        && info.classes.iter().all(|c| c.weight.is_finite() && c.weight >= 0.0);
    if good { Ok(()) } else { Err("a number in the header is out of its range".into()) }
}
