//! A model as one safetensors file: a header with a version, and arrays.

use crate::model::{Model, ModelInfo};
use crate::states::{Item, Sample};
use crate::{Error, Result};
use favor::learn::Task;
use favor::store::{Array, Kind};
use favor::{FeatureMap, KeySums, Moments};
use favor_io::write_atomically;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const KIND: Kind = Kind::new("favor.table_model", "model", 3);

#[derive(Serialize, Deserialize)]
struct Header {
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
        let places: Vec<u8> = items.keys().flat_map(|(place, _)| place.to_le_bytes()).collect();
        let map = self.map.to_bytes()?;
        let arrays = vec![
            Array::f64("log_scale", [sums.rows()], self.sums.log_scale()),
            Array::f64("sums", [sums.rows(), sums.columns()], sums.as_slice()),
            Array::f64("mean", [d], self.moments.mean()),
            Array::f64("scatter", [d, d], self.moments.scatter().as_slice()),
            Array::f64("sample_rows", [n, d], &rows),
            Array::f64("sample_targets", [n], &values),
            Array::f64("sample_weights", [n], &weights),
            Array::new("sample_places", Dtype::U64, [n], places),
            Array::new("map", Dtype::U8, [map.len()], map),
        ];
        Ok(KIND.write(&header, arrays)?)
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
        write_atomically(path, &self.to_bytes()?).map_err(|e| Error::output(path, e.reason))
    }
}

fn read(bytes: &[u8]) -> std::result::Result<Model, String> {
    let refused = |error: favor::Error| match error {
        favor::Error::Format { reason, .. } => reason,
        other => other.to_string(),
    };
    let file = KIND.read::<Header>(bytes).map_err(refused)?;
    let floats = |name: &str| file.f64(name).map(|(_, values)| values).map_err(refused);
    let matrix = |name: &str| file.matrix(name).map_err(refused);
    let array = |name: &str, dtype| file.array_of(name, dtype).map_err(refused);
    let map = FeatureMap::from_bytes(array("map", Dtype::U8)?.data()).map_err(|e| e.to_string())?;
    let sums = KeySums::from_parts(floats("log_scale")?, matrix("sums")?).map_err(refused)?;
    let header = &file.contents;
    let (count, weight) = (header.moment_rows, header.moment_weight);
    let moments = Moments::from_scatter(count, weight, floats("mean")?, matrix("scatter")?);
    let moments = moments.map_err(refused)?;
    let view = array("sample_places", Dtype::U64)?;
    let (places, _) = view.data().as_chunks::<8>();
    let places: Vec<u64> = places.iter().map(|c| u64::from_le_bytes(*c)).collect();
    let (rows, values, weights) =
        (matrix("sample_rows")?, floats("sample_targets")?, floats("sample_weights")?);
    let info = header.info.clone();
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
