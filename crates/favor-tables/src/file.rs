//! A model as one safetensors file: a header with a version, and arrays.

use crate::encode::{Column, FOLDS};
use crate::head::TableHead;
use crate::model::{Estimator, Linear, Model, ModelInfo, Nw};
use crate::states::{Item, Sample};
use crate::{Error, Result};
use favor::learn::{Design, GramSums, Head, Outcome, Task};
use favor::store::{Array, Kind};
use favor::{FeatureMap, KeySums, Moments};
use favor_io::write_atomically;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const KIND: Kind = Kind::new("favor.table_model", "model", 4);

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
        let (d, n) = (self.moments.dim(), items.len());
        let rows: Vec<f64> = items.values().flat_map(|i| i.row.iter().copied()).collect();
        let values: Vec<f64> = items.values().map(|i| i.value).collect();
        let weights: Vec<f64> = items.values().map(|i| i.weight).collect();
        let places: Vec<u8> = items.keys().flat_map(|(place, _)| place.to_le_bytes()).collect();
        let folds: Vec<u8> = items.values().map(|i| i.fold).collect();
        let mut arrays = vec![
            Array::f64("mean", [d], self.moments.mean()),
            Array::f64("scatter", [d, d], self.moments.scatter().as_slice()),
            Array::f64("sample_rows", [n, d], &rows),
            Array::f64("sample_targets", [n], &values),
            Array::f64("sample_weights", [n], &weights),
            Array::new("sample_places", Dtype::U64, [n], places),
            Array::new("sample_folds", Dtype::U8, [n], folds),
        ];
        let bytes = |name, bytes: Vec<u8>| Array::new(name, Dtype::U8, [bytes.len()], bytes);
        match &self.estimator {
            Estimator::Nw(nw) => {
                let sums = nw.sums.sums();
                arrays.push(Array::f64("log_scale", [sums.rows()], nw.sums.log_scale()));
                arrays.push(Array::f64("sums", [sums.rows(), sums.columns()], sums.as_slice()));
                arrays.push(bytes("map", nw.map.to_bytes()?));
            }
            Estimator::Linear(linear) => {
                arrays.push(bytes("design", linear.design.to_bytes()?));
                arrays.push(bytes("gram", linear.sums.to_bytes()?));
                arrays.push(bytes("head", linear.head.to_bytes()?));
            }
        }
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
    let header = &file.contents;
    let (count, weight) = (header.moment_rows, header.moment_weight);
    let moments = Moments::from_scatter(count, weight, floats("mean")?, matrix("scatter")?);
    let moments = moments.map_err(refused)?;
    let view = array("sample_places", Dtype::U64)?;
    let (places, _) = view.data().as_chunks::<8>();
    let places: Vec<u64> = places.iter().map(|c| u64::from_le_bytes(*c)).collect();
    let (rows, values, weights) =
        (matrix("sample_rows")?, floats("sample_targets")?, floats("sample_weights")?);
    let folds = array("sample_folds", Dtype::U8)?.data().to_vec();
    let info = header.info.clone();
    check(&info, &moments)?;
    let classify = info.task == Task::Classify;
    let n = places.len();
    if rows.shape() != (n, moments.dim())
        || folds.len() != n
        || folds.iter().any(|f| usize::from(*f) >= FOLDS)
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
        let (row, value) = (rows.row(i).to_vec(), values[i]);
        let item = Item { row, value, weight: weights[i], fold: folds[i] };
        items.insert((places[i], mark), item);
    }
    let bytes = |name: &str| array(name, Dtype::U8).map(|a| a.data().to_vec());
    let estimator = if info.head == TableHead::Nw {
        let map = FeatureMap::from_bytes(&bytes("map")?).map_err(|e| e.to_string())?;
        let sums = KeySums::from_parts(floats("log_scale")?, matrix("sums")?).map_err(refused)?;
        check_nw(&info, &map, &sums)?;
        let nw = Nw::new(&info, map, &moments, sums).map_err(|e| e.to_string())?;
        Estimator::Nw(Box::new(nw))
    } else {
        let design = Design::from_bytes(&bytes("design")?).map_err(|e| e.to_string())?;
        let sums = GramSums::from_bytes(&bytes("gram")?).map_err(|e| e.to_string())?;
        let head = Head::from_bytes(&bytes("head")?).map_err(|e| e.to_string())?;
        check_linear(&info, &design, &sums, &head)?;
        let linear = Linear::new(&info, design, sums, head).map_err(|e| e.to_string())?;
        Estimator::Linear(Box::new(linear))
    };
    Model::new(info, moments, Sample { items }, estimator).map_err(|e| e.to_string())
}

/// That what is known of a model makes sense.
fn check(info: &ModelInfo, moments: &Moments) -> std::result::Result<(), String> {
    let d = info.encoder.width();
    let encoder = &info.encoder;
    if moments.dim() != d || encoder.fill.len() != d || encoder.scalings.len() != d {
        return Err(format!("moments of dimension {} for vectors of dimension {d}", moments.dim()));
    }
    if info.target.is_some() == (info.task == Task::Density)
        || info.target_scaling.is_some() != (info.task == Task::Regress)
        || !info.head.does(info.task)
    {
        return Err(format!("a {} with the wrong kind of target", info.task.name()));
    }
    let (centres, scales) = encoder.centres_and_scales();
    let positive = |v: f64| v.is_finite() && v > 0.0;
    let good = positive(info.bandwidth)
        && positive(info.total_weight)
        && scales.iter().all(|s| positive(*s))
        && info.target_scaling.is_none_or(|s| s.centre.is_finite() && positive(s.scale))
        && centres.iter().chain(&encoder.fill).all(|v| v.is_finite())
        && encoder.columns.iter().all(Column::is_sound)
        && info.classes.iter().all(|c| c.weight.is_finite() && c.weight >= 0.0);
    if good { Ok(()) } else { Err("a number in the header is out of its range".into()) }
}

/// That the parts of a Nadaraya–Watson model belong together.
fn check_nw(info: &ModelInfo, map: &FeatureMap, sums: &KeySums) -> std::result::Result<(), String> {
    let d = info.encoder.width();
    if map.dim() != d {
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
    Ok(())
}

/// That the parts of any other model belong together.
fn check_linear(
    info: &ModelInfo,
    design: &Design,
    sums: &GramSums,
    head: &Head,
) -> std::result::Result<(), String> {
    let d = info.encoder.width();
    if design.dim() != d {
        return Err(format!("features of dimension {} for vectors of dimension {d}", design.dim()));
    }
    let fits = match sums.outcome() {
        Outcome::Classes(count) => {
            info.task == Task::Classify && *count == info.classes.len() && *count > 0
        }
        Outcome::Numbers(scalings) => scalings.first().copied() == info.target_scaling,
    };
    if !fits || head.outcome() != sums.outcome() || sums.width() != design.width() {
        return Err("the sums are not those of the model's target and features".into());
    }
    Ok(())
}
