//! What a conversion keeps on its way, so that one that was stopped goes on: a folder beside the model to come.

use crate::bert::Bert;
use crate::train::Model;
use crate::{Error, Result, store};
use favor::store::Kind;
use favor_io::{create_folder, write_atomically};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The folder, inside the one where the model is to be.
const FOLDER: &str = "conversion";

/// Files of a model as it was at some step.
const STATE: Kind = Kind::new("favor_nn.conversion", "model under conversion", 1);

/// The folder of a conversion under way.
pub(super) struct Work {
    folder: PathBuf,
    /// Describes the run.
    pub(super) request: String,
}

impl Work {
    /// Begins a conversion, or goes on with it. A conversion that something else began is refused.
    pub(super) fn start(out: &Path, request: &impl Serialize) -> Result<Self> {
        let request =
            serde_json::to_string(request).map_err(|e| Error::invalid("request", e.to_string()))?;
        let folder = out.join(FOLDER);
        create_folder(&folder)?;
        let work = Self { folder, request };
        match work.read::<String>("request.json")? {
            Some(found) if found != work.request => {
                return Err(Error::OtherSettings { path: work.folder });
            }
            Some(_) => {}
            None => work.write("request.json", &work.request)?,
        }
        Ok(work)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What was kept under a name, if anything was.
    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.path(name);
        if !path.exists() {
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(|e| Error::file(&path, e))?;
        let found = serde_json::from_slice(&bytes);
        found.map(Some).map_err(|e| Error::file(&path, format!("damaged: {e}; remove it")))
    }

    pub(super) fn write(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec_pretty(value)
            .map_err(|e| Error::invalid("conversion", e.to_string()))?;
        Ok(write_atomically(self.path(name), &text)?)
    }

    /// What was kept under a name, or what `make` makes, which is then kept.
    pub(super) fn once<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if let Some(found) = self.read(name)? {
            return Ok(found);
        }
        let made = make()?;
        self.write(name, &made)?;
        Ok(made)
    }

    /// Keeps all that a model has learned.
    pub(super) fn write_model(&self, name: &str, model: &Bert) -> Result<()> {
        let bytes = store::write(STATE, &self.request, &model.state()?)?;
        Ok(write_atomically(self.path(name), &bytes)?)
    }

    /// A model of the same shape with what was kept.
    pub(super) fn read_model(&self, name: &str, model: Bert) -> Result<Bert> {
        let path = self.path(name);
        let refuse = |e: Error| Error::file(&path, e);
        let bytes = std::fs::read(&path).map_err(|e| Error::file(&path, e))?;
        let (_, tensors) = store::read::<String>(STATE, &bytes).map_err(refuse)?;
        model.with_state(&tensors).map_err(refuse)
    }

    /// Removes the folder, when all is done.
    pub(super) fn finish(self) -> Result<()> {
        std::fs::remove_dir_all(&self.folder).map_err(|e| Error::file(&self.folder, e))
    }
}
