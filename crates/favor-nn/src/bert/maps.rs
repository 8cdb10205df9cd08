//! The maps of a converted model: `favor_sharp.safetensors` beside its weights. The Python package reads and
//! writes the same file.

use super::Bert;
use crate::attention::Attention;
use crate::layer::{GivenMaps, LayerOptions};
use crate::{Error, Result};
use favor::{ExactKeys, FeatureMap, maps_from_bytes, maps_to_bytes_with_note, note_from_bytes};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file of the maps.
pub(super) const MAPS: &str = "favor_sharp.safetensors";

/// The note of the file: which layers the maps belong to.
#[derive(Serialize, Deserialize)]
struct Note {
    layers: Vec<Entry>,
}

/// One layer.
#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    /// How many maps are its own; 0 for attention without maps.
    maps: usize,
    /// Heads that are exact throughout.
    exact: Vec<usize>,
    exact_keys: Keys,
    /// Whether short sequences are computed exactly. Weights that are used to features are not.
    short_is_exact: bool,
    /// Attention without maps, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Attention>,
}

#[derive(Serialize, Deserialize)]
struct Keys {
    near: usize,
    global_keys: usize,
    routed: Option<(usize, usize)>,
}

impl Keys {
    fn of(exact: ExactKeys) -> Self {
        let routed = exact.is_routed().then_some((exact.slots, exact.members));
        Self { near: exact.near, global_keys: exact.global, routed }
    }

    fn exact(&self) -> ExactKeys {
        let (slots, members) = self.routed.unwrap_or((0, 0));
        ExactKeys::NONE.near(self.near).global(self.global_keys).routed(slots, members)
    }
}

impl Bert {
    /// The bytes of the file of maps, or none if every layer is exact.
    pub(super) fn maps_to_bytes(&self, prefix: &str) -> Result<Option<Vec<u8>>> {
        let (mut maps, mut entries) = (Vec::new(), Vec::new());
        for (i, layer) in self.encoder.layers.iter().enumerate() {
            let name = format!("{prefix}encoder.layer.{i}.attention.self");
            let kind = layer.attention.options().kind;
            let none = Keys::of(ExactKeys::NONE);
            if let Some(given) = layer.attention.given() {
                let all = given.exact();
                let heads = (0..all.len()).filter(|h| all[*h].is_all()).collect();
                let exact_keys = Keys::of(shared_keys(i, all)?);
                let own = given.maps()?;
                let entry = Entry {
                    name,
                    maps: own.len(),
                    exact: heads,
                    exact_keys,
                    short_is_exact: given.short_is_exact(),
                    kind: None,
                };
                entries.push(entry);
                maps.extend(own);
            } else if matches!(kind, Attention::Elu | Attention::Relu | Attention::Mean) {
                let kind = Some(kind);
                let (maps, exact) = (0, vec![]);
                let short_is_exact = false;
                entries.push(Entry { name, maps, exact, exact_keys: none, short_is_exact, kind });
            }
        }
        if entries.is_empty() {
            return Ok(None);
        }
        Ok(Some(maps_to_bytes_with_note(&maps, &Note { layers: entries })?))
    }

    /// The attention that the folder's file of maps says, if it has one: the maps of a converted model.
    pub(super) fn read_maps(mut self, folder: &Path) -> Result<Self> {
        let path = folder.join(MAPS);
        if !path.exists() {
            return Ok(self);
        }
        let refuse = |e: Error| Error::file(&path, e);
        let bytes = std::fs::read(&path).map_err(|e| Error::file(&path, e))?;
        self.take_maps(&bytes).map_err(refuse)?;
        Ok(self)
    }

    fn take_maps(&mut self, bytes: &[u8]) -> Result<()> {
        let mut maps = maps_from_bytes(bytes)?;
        let note: Note = note_from_bytes(bytes)?
            .ok_or_else(|| Error::invalid("maps", "not of the layers of a model"))?;
        for entry in note.layers {
            let count = self.encoder.layers.len();
            let number = layer_number(&entry.name).filter(|n| *n < count).ok_or_else(|| {
                let reason = format!("of a layer '{}'; the model has {count} layers", entry.name);
                Error::invalid("maps", reason)
            })?;
            let attention = &mut self.encoder.layers[number].attention;
            if let Some(kind) = entry.kind {
                attention.set_options(LayerOptions::new(kind, 1))?;
                continue;
            }
            if entry.maps > maps.len() {
                return Err(Error::invalid("maps", "fewer than their note says"));
            }
            let rest = maps.split_off(entry.maps);
            let own: Vec<FeatureMap> = std::mem::replace(&mut maps, rest);
            let mut exact = vec![entry.exact_keys.exact(); own.len()];
            for head in entry.exact {
                let known = own.len();
                *exact.get_mut(head).ok_or_else(|| {
                    Error::invalid("maps", format!("head {head} is exact where {known} have maps"))
                })? = ExactKeys::ALL;
            }
            let given = GivenMaps::fixed(own, exact)?.with_short_exact(entry.short_is_exact);
            attention.set_given(Some(given))?;
        }
        Ok(())
    }
}

/// The exact keys of the heads of a layer that are not exact throughout: the file has room for one kind.
fn shared_keys(layer: usize, all: &[ExactKeys]) -> Result<ExactKeys> {
    let mut some = all.iter().filter(|exact| !exact.is_all());
    let first = some.next().copied().unwrap_or(ExactKeys::NONE);
    match some.find(|exact| **exact != first) {
        None => Ok(first),
        Some(other) => {
            let reason = format!(
                "heads of layer {layer} have different exact keys, '{first}' and '{other}'; a file \
                 keeps one kind for all heads of a layer that are not exact throughout"
            );
            Err(Error::invalid("maps", reason))
        }
    }
}

/// Whether a folder holds a converted model.
pub(crate) fn is_converted(folder: &Path) -> Option<PathBuf> {
    let path = folder.join(MAPS);
    path.exists().then_some(path)
}

/// The number of a layer by its name in transformers.
fn layer_number(name: &str) -> Option<usize> {
    let name = name.strip_prefix("bert.").unwrap_or(name);
    name.strip_prefix("encoder.layer.")?.strip_suffix(".attention.self")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::BertConfig;
    use crate::testing::generator;
    use crate::text::Batch;
    use burn::tensor::Device;
    use favor::{Family, FeatureSpec, Kernel, Moments, Rows};

    fn map() -> FeatureMap {
        let x: Vec<f64> = (0..32).map(|i| f64::from(i).sin()).collect();
        let moments = Moments::of(Rows::new(&x, 8, 4).unwrap()).unwrap();
        let spec = FeatureSpec::new(Family::Balanced, 6).kernel(Kernel::attention(4));
        spec.fit(&moments, &moments).unwrap()
    }

    /// Heads that are exact throughout may be beside others, but the others need the same keys.
    #[test]
    fn keys_come_back_or_are_refused() {
        let _held = generator();
        let folder = tempfile::tempdir().unwrap();
        let (config, device) = (BertConfig::small(20, 12, 1, 3), Device::flex());
        device.seed(1);
        let options = LayerOptions::new(Attention::Exact, 1);
        let mut bert = Bert::new(&config, options, &device).unwrap();
        let mut save = |place: &Path, exact: &[ExactKeys]| {
            let given = GivenMaps::fixed(vec![map(); 3], exact.to_vec()).unwrap();
            bert.encoder.layers[0].attention.set_given(Some(given)).unwrap();
            bert.save(place, &config, None, None)
        };
        let near = |n| ExactKeys::NONE.near(n).routed(2, 3);
        let kept = [near(2), ExactKeys::ALL, near(2)];
        let place = folder.path().join("kept");
        save(&place, &kept).unwrap();
        let (read, _) = Bert::open(&place, None, &device).unwrap();
        assert_eq!(read.encoder.layers[0].attention.given().unwrap().exact(), kept);
        let place = folder.path().join("refused");
        let message = save(&place, &[near(2), ExactKeys::ALL, near(4)]).unwrap_err().to_string();
        assert!(message.contains("layer 0") && message.contains("window ±4"), "{message}");
        assert!(!place.exists());
    }

    /// The note of the file says whether short texts are computed exactly.
    #[test]
    fn short_texts_are_exact_if_the_file_says_so() {
        let _held = generator();
        let (config, device) = (BertConfig::small(20, 12, 1, 3), Device::flex());
        device.seed(1);
        let options = LayerOptions::new(Attention::Exact, 1);
        let mut bert = Bert::new(&config, options, &device).unwrap();
        let states = |bert: &Bert| {
            let text = Batch::new(vec![vec![5, 6, 7, 8, 9, 10]]).unwrap();
            bert.embed(&text).unwrap().into_data().iter::<f32>().collect::<Vec<f32>>()
        };
        let exact = states(&bert);
        let mut by_file = |short_is_exact: bool| {
            let given = GivenMaps::fixed(vec![map(); 3], vec![ExactKeys::NONE; 3]).unwrap();
            let given = given.with_short_exact(short_is_exact);
            bert.encoder.layers[0].attention.set_given(Some(given)).unwrap();
            let folder = tempfile::tempdir().unwrap();
            bert.save(folder.path(), &config, None, None).unwrap();
            states(&Bert::open(folder.path(), None, &device).unwrap().0)
        };
        // Six tokens are fewer than six features are worth.
        assert_eq!(by_file(true), exact);
        assert_ne!(by_file(false), exact);
    }
}
