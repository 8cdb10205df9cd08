//! A training run in one file, from which it goes on to the last bit as if it had not stopped.

use super::adam::Means;
use super::{Model, Trainer};
use crate::store::{self, Stored, Views};
use crate::{Error, Result};
use favor::store::Kind;
use favor_io::write_atomically;
use safetensors::tensor::TensorView;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const KIND: Kind = Kind::new("favor_nn.checkpoint", "checkpoint", 3);

/// How far a run has come.
#[derive(Serialize, Deserialize)]
struct Progress {
    description: String,
    step: u64,
    updates: u64,
}

impl<M: Model> Trainer<M> {
    /// Writes all that training needs to go on. Only a run of the same description goes on from it.
    pub fn save_checkpoint(&self, path: &Path, description: &str) -> Result<()> {
        let mut tensors = self.model().state()?;
        for (path, means) in &self.adam.means {
            let stored = |v: &[f32]| Stored::floats(vec![v.len()], v);
            tensors.insert(format!("first.{path}"), stored(&means.first));
            tensors.insert(format!("second.{path}"), stored(&means.second));
        }
        let description = description.to_owned();
        let progress = Progress { description, step: self.step, updates: self.adam.updates };
        write_atomically(path, &store::write(KIND, &progress, &tensors)?)?;
        Ok(())
    }

    /// Goes on from a checkpoint of the same run.
    pub fn load_checkpoint(&mut self, path: &Path, description: &str) -> Result<()> {
        let refuse = |e: Error| Error::file(path, e);
        let bytes = std::fs::read(path).map_err(|e| Error::file(path, e))?;
        let (progress, tensors): (Progress, _) = store::read(KIND, &bytes).map_err(refuse)?;
        if progress.description != description {
            return Err(Error::OtherSettings { path: path.to_path_buf() });
        }
        self.model = Some(self.model().clone().with_state(&tensors).map_err(refuse)?);
        self.adam.means = means(&tensors);
        (self.step, self.adam.updates) = (progress.step, progress.updates);
        Ok(())
    }
}

/// The means of all weights, by path.
fn means(tensors: &Views<'_>) -> BTreeMap<String, Means> {
    let numbers = |view: &TensorView<'_>| -> Vec<f32> {
        let bytes = view.data().chunks_exact(4);
        bytes.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let mut means: BTreeMap<String, Means> = BTreeMap::new();
    for (name, view) in tensors {
        if let Some(path) = name.strip_prefix("first.") {
            means.entry(path.to_owned()).or_default().first = numbers(view);
        } else if let Some(path) = name.strip_prefix("second.") {
            means.entry(path.to_owned()).or_default().second = numbers(view);
        }
    }
    means
}
