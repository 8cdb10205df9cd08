//! A training run in one file, from which it goes on to the last bit as if it had not stopped.

use super::adam::Means;
use super::{Model, Trainer};
use crate::layer::MapState;
use crate::{Error, Result};
use favor_io::write_atomically;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Marks the format.
const FORMAT: &str = "favor-nn.checkpoint.v1";

impl<M: Model> Trainer<M> {
    /// Writes all that training needs to go on. `request` describes the run: only the same run goes on
    /// from it.
    pub fn save_checkpoint(&self, path: &Path, request: &str) -> Result<()> {
        let weights = self.model().to_bytes()?;
        let states: Vec<MapState> =
            self.model().attentions().iter().map(|a| a.map_state()).collect();
        let maps = postcard::to_stdvec(&states)
            .map_err(|e| Error::invalid("checkpoint", e.to_string()))?;
        let mut tensors: BTreeMap<String, (Dtype, Vec<u8>)> = BTreeMap::new();
        tensors.insert("weights".into(), (Dtype::U8, weights));
        tensors.insert("maps".into(), (Dtype::U8, maps));
        for (path, means) in &self.adam.means {
            let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect();
            tensors.insert(format!("first.{path}"), (Dtype::F32, bytes(&means.first)));
            tensors.insert(format!("second.{path}"), (Dtype::F32, bytes(&means.second)));
        }
        let about = HashMap::from([
            ("format".to_owned(), FORMAT.to_owned()),
            ("request".to_owned(), request.to_owned()),
            ("step".to_owned(), self.step.to_string()),
            ("updates".to_owned(), self.adam.updates.to_string()),
        ]);
        let refuse = |e: safetensors::SafeTensorError| Error::invalid("checkpoint", e.to_string());
        let mut views = BTreeMap::new();
        for (name, (dtype, bytes)) in &tensors {
            let size = if *dtype == Dtype::F32 { 4 } else { 1 };
            let view = TensorView::new(*dtype, vec![bytes.len() / size], bytes).map_err(refuse)?;
            views.insert(name.clone(), view);
        }
        let bytes = safetensors::serialize(views, Some(about)).map_err(refuse)?;
        write_atomically(path, &bytes)?;
        Ok(())
    }

    /// Goes on from a checkpoint of the same run.
    pub fn load_checkpoint(&mut self, path: &Path, request: &str) -> Result<()> {
        let bytes = std::fs::read(path).map_err(|e| Error::file(path, e))?;
        self.restore(&bytes, request).map_err(|e| Error::file(path, e))
    }

    fn restore(&mut self, bytes: &[u8], request: &str) -> Result<()> {
        let refuse = |reason: String| Error::invalid("checkpoint", reason);
        let (_, header) =
            SafeTensors::read_metadata(bytes).map_err(|e| refuse(format!("damaged: {e}")))?;
        let file = SafeTensors::deserialize(bytes).map_err(|e| refuse(format!("damaged: {e}")))?;
        let about = header.metadata().clone().unwrap_or_default();
        let word = |name: &str| about.get(name).map(String::as_str).unwrap_or_default();
        if word("format") != FORMAT {
            return Err(refuse("a file of another kind or version".into()));
        }
        if word("request") != request {
            let reason = "of a run with other settings; remove it, or write elsewhere (--out)";
            return Err(refuse(reason.into()));
        }
        let number = |name: &str| -> Result<u64> {
            word(name).parse().map_err(|_| refuse(format!("no number of {name}")))
        };
        let part = |name: &str| -> Result<TensorView<'_>> {
            file.tensor(name).map_err(|e| refuse(format!("damaged: {e}")))
        };
        let model = self.model().clone().with_weights(part("weights")?.data())?;
        let states: Vec<MapState> = postcard::from_bytes(part("maps")?.data())
            .map_err(|e| refuse(format!("damaged maps: {e}")))?;
        let attentions = model.attentions();
        if states.len() != attentions.len() {
            return Err(refuse("maps of another model".into()));
        }
        for (attention, state) in attentions.into_iter().zip(states) {
            attention.set_map_state(state)?;
        }
        let mut means: BTreeMap<String, Means> = BTreeMap::new();
        for (name, view) in file.iter() {
            let numbers = || -> Vec<f32> {
                let bytes = view.data().chunks_exact(4);
                bytes.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            };
            if let Some(path) = name.strip_prefix("first.") {
                means.entry(path.to_owned()).or_default().first = numbers();
            } else if let Some(path) = name.strip_prefix("second.") {
                means.entry(path.to_owned()).or_default().second = numbers();
            }
        }
        (self.step, self.adam.updates) = (number("step")?, number("updates")?);
        (self.model, self.adam.means) = (Some(model), means);
        Ok(())
    }
}
