//! Feature maps as bytes: one map or several, in one format.
//!
//! ω is stored, not only its seed: a file keeps its meaning forever, even if a later version draws
//! differently, and maps with a custom ω can be stored too. The seed and the coupling are in the header for
//! information.

use super::{Drawn, FeatureMap, FeatureSpec, Learned, LearnedFrom, Probes, Projection, RowTerm};
use crate::store::{Array, File, Kind};
use crate::{Kernel, Parameters, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const KIND: Kind = Kind::new("favor.maps", "feature map", 5);

/// The contents of the header: an entry per map, and a note by the writer of the file.
#[derive(Serialize, Deserialize)]
struct Contents {
    maps: Vec<Entry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<Value>,
}

/// What the header says about a map.
#[derive(Serialize, Deserialize)]
struct Entry {
    spec: FeatureSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    learned: Option<LearnedFrom>,
}

/// Maps as the bytes of a safetensors file, for example one per head of a layer.
///
/// ```
/// use favor::{Family, FeatureSpec, Moments, Rows, maps_from_bytes, maps_to_bytes};
/// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
/// let maps = [1, 2].map(|seed| FeatureSpec::new(Family::Sde, 8).seed(seed).fit(&m, &m).unwrap());
/// assert_eq!(maps_from_bytes(&maps_to_bytes(&maps)?)?, maps);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn maps_to_bytes(maps: &[FeatureMap]) -> Result<Vec<u8>> {
    write(maps, None)
}

/// [`maps_to_bytes`] with a note, which goes into the header as JSON and is covered by its checksum: for
/// example, which layers of a model the maps belong to. [`maps_from_bytes`] reads the maps,
/// [`note_from_bytes`] the note.
///
/// ```
/// use favor::{Family, FeatureSpec, Moments, Rows};
/// use favor::{maps_from_bytes, maps_to_bytes_with_note, note_from_bytes};
/// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
/// let maps = [FeatureSpec::new(Family::Sde, 8).fit(&m, &m)?];
/// let bytes = maps_to_bytes_with_note(&maps, &["layer 1", "layer 2"])?;
/// assert_eq!(maps_from_bytes(&bytes)?, maps);
/// let note: Option<Vec<String>> = note_from_bytes(&bytes)?;
/// assert_eq!(note.unwrap()[1], "layer 2");
/// # Ok::<(), favor::Error>(())
/// ```
pub fn maps_to_bytes_with_note(maps: &[FeatureMap], note: &impl Serialize) -> Result<Vec<u8>> {
    write(maps, Some(serde_json::to_value(note).map_err(|e| KIND.bad(e.to_string()))?))
}

/// The note of a file of maps, if it has one.
///
/// ```
/// use favor::{Family, FeatureSpec, Moments, Rows, maps_to_bytes, note_from_bytes};
/// let m = Moments::of(Rows::new(&[1.0, 2.0, 3.0, 5.0], 2, 2)?)?;
/// let bytes = maps_to_bytes(&[FeatureSpec::new(Family::Sde, 8).fit(&m, &m)?])?;
/// assert_eq!(note_from_bytes::<String>(&bytes)?, None);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn note_from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<T>> {
    let note = KIND.read::<Contents>(bytes)?.contents.note;
    let read = |note| serde_json::from_value(note).map_err(|e| KIND.bad(format!("its note: {e}")));
    note.map(read).transpose()
}

fn write(maps: &[FeatureMap], note: Option<Value>) -> Result<Vec<u8>> {
    let entry = |map: &FeatureMap| Entry { spec: *map.spec(), learned: map.learned().cloned() };
    let contents = Contents { maps: maps.iter().map(entry).collect(), note };
    let arrays = maps.iter().enumerate().flat_map(|(i, map)| arrays(i, map)).collect();
    KIND.write(&contents, arrays)
}

/// Reads the bytes written by [`maps_to_bytes`] or [`FeatureMap::to_bytes`]. Damaged, truncated or foreign
/// bytes are an error that says what is wrong.
///
/// ```
/// let error = favor::maps_from_bytes(b"something else").unwrap_err();
/// assert!(error.to_string().starts_with("not a readable feature map"));
/// ```
pub fn maps_from_bytes(bytes: &[u8]) -> Result<Vec<FeatureMap>> {
    let file = KIND.read::<Contents>(bytes)?;
    let one = |(i, entry): (usize, &Entry)| read(&file, i, entry);
    file.contents.maps.iter().enumerate().map(one).collect()
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
        maps_to_bytes(std::slice::from_ref(self))
    }

    /// Reads the bytes of a file with one map.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut maps = maps_from_bytes(bytes)?;
        match (maps.pop(), maps.len()) {
            (Some(map), 0) => Ok(map),
            (_, rest) => Err(KIND.bad(format!("{} maps where one is expected", rest + 1))),
        }
    }
}

fn arrays(i: usize, map: &FeatureMap) -> Vec<Array<'static>> {
    let array = |name: &str, shape: &[usize], values: &[f64]| {
        Array::f64(format!("{i}.{name}"), shape, values)
    };
    let (m, d) = (map.features(), map.dim());
    if let Some(learned) = map.learned_numbers() {
        let Probes { queries, log_means } = &learned.probes;
        let mut arrays = vec![
            array("probes", &[queries.rows(), d], queries.as_slice()),
            array("probe_logs", &[log_means.len()], log_means),
        ];
        for (side, projection) in [("query", &learned.query), ("key", &learned.key)] {
            let own = |name: &str, shape: &[usize], values: &[f64]| {
                array(&format!("{side}_{name}"), shape, values)
            };
            arrays.push(own("weights", &[m, d], projection.weights.as_slice()));
            arrays.push(own("constants", &[m], &projection.constants));
            arrays.push(own("shift", &[d], &projection.shift));
            if let RowTerm::Exponential { transform, linear, constant, .. } = &projection.row {
                arrays.push(own("transform", &[d, d], transform.as_slice()));
                arrays.push(own("linear", &[d], linear));
                arrays.push(own("constant", &[1], &[*constant]));
            }
        }
        return arrays;
    }
    let Some(Drawn { parameters, omega, offsets }) = map.drawn_numbers() else { return vec![] };
    let mut arrays = vec![array("omega", &[m, d], omega.as_slice())];
    match parameters {
        None => arrays.push(array("offsets", &[m], offsets)),
        Some(p) => arrays.extend([
            array("quadratic", &[d], p.quadratic()),
            array("query_transform", &[d, d], p.query_transform().as_slice()),
            array("key_transform", &[d, d], p.key_transform().as_slice()),
            array("query_shift", &[d], p.query_shift()),
            array("key_shift", &[d], p.key_shift()),
        ]),
    }
    arrays
}

fn read<H>(file: &File<'_, H>, i: usize, entry: &Entry) -> Result<FeatureMap> {
    let vector = |name: &str| file.f64(&format!("{i}.{name}")).map(|(_, values)| values);
    let matrix = |name: &str| file.matrix(&format!("{i}.{name}"));
    let spec = entry.spec;
    if let Some(from) = entry.learned.clone() {
        let side = |side: &str| projection(file, &format!("{i}.{side}"), spec.kernel);
        let probes = Probes { queries: matrix("probes")?, log_means: vector("probe_logs")? };
        let learned = Learned { query: side("query")?, key: side("key")?, probes, from };
        return FeatureMap::from_learned(spec, learned);
    }
    let (parameters, offsets) = if spec.family.is_positive() {
        let parameters = Parameters::checked(
            vector("quadratic")?,
            matrix("query_transform")?,
            matrix("key_transform")?,
            vector("query_shift")?,
            vector("key_shift")?,
        )?;
        (Some(parameters), vec![])
    } else {
        (None, vector("offsets")?)
    };
    FeatureMap::drawn(spec, Drawn { parameters, omega: matrix("omega")?, offsets })
}

/// A learned side; the names of its arrays start with `prefix`.
fn projection<H>(file: &File<'_, H>, prefix: &str, kernel: Kernel) -> Result<Projection> {
    let vector = |name: &str| file.f64(&format!("{prefix}_{name}")).map(|(_, values)| values);
    let matrix = |name: &str| file.matrix(&format!("{prefix}_{name}"));
    let [constant] = vector("constant")?[..] else {
        return Err(KIND.bad(format!("array '{prefix}_constant' does not hold one number")));
    };
    let row = RowTerm::Exponential {
        transform: matrix("transform")?,
        linear: vector("linear")?,
        constant,
        alpha: kernel.alpha(),
    };
    let (weights, constants) = (matrix("weights")?, vector("constants")?);
    Ok(Projection { weights, constants, shift: vector("shift")?, row })
}
