//! A model's folder: `config.json` and `model.safetensors`, as transformers reads and writes them.

use super::maps::MAPS;
use super::{Bert, BertConfig};
use super::{names, pytorch};
use crate::attention::{Attention, Implementation};
use crate::layer::{FavorAttention, LayerOptions};
use crate::store::{self, Views};
use crate::train::Model;
use crate::weights;
use crate::{Error, Result};
use burn::tensor::Device;
use favor_io::{create_folder, write_atomically};
use std::collections::HashMap;
use std::path::Path;

/// The file of the weights.
const WEIGHTS: &str = "model.safetensors";

/// The file of older folders.
const OLD_WEIGHTS: &str = "pytorch_model.bin";

impl Bert {
    /// Reads a model of a folder with `config.json` and `model.safetensors`, or else
    /// `pytorch_model.bin`. It gets the heads that the file holds.
    pub fn load(
        folder: &Path,
        options: LayerOptions,
        device: &Device,
    ) -> Result<(Self, BertConfig)> {
        if !folder.is_dir() {
            let reason =
                "no such folder; a model is a folder with config.json and model.safetensors";
            return Err(Error::file(folder, reason));
        }
        let config = BertConfig::read(&folder.join("config.json"))?;
        let mut path = folder.join(WEIGHTS);
        let bytes = if path.exists() {
            std::fs::read(&path).map_err(|e| Error::file(&path, e))?
        } else if folder.join(OLD_WEIGHTS).exists() {
            path = folder.join(OLD_WEIGHTS);
            pytorch::to_safetensors(&path)?
        } else {
            let reason = format!("missing, and {OLD_WEIGHTS} too: the folder holds no weights");
            return Err(Error::file(path, reason));
        };
        let model = Self::from_bytes(&bytes, &config, options, Implementation::Auto, device)
            .map_err(|e| Error::file(&path, e))?;
        Ok((model, config))
    }

    /// The same with the attention that the folder says: that of a converted model, else exact attention.
    pub fn open(
        folder: &Path,
        attention: Option<LayerOptions>,
        device: &Device,
    ) -> Result<(Self, BertConfig)> {
        let options = attention.unwrap_or_else(|| LayerOptions::new(Attention::Exact, 1));
        let (model, config) = Self::load(folder, options, device)?;
        match attention {
            Some(_) => Ok((model, config)),
            None => Ok((model.read_maps(folder)?, config)),
        }
    }

    /// A model of the bytes of a `model.safetensors`.
    pub fn from_bytes(
        bytes: &[u8],
        config: &BertConfig,
        options: LayerOptions,
        implementation: Implementation,
        device: &Device,
    ) -> Result<Self> {
        let tensors = views(bytes)?;
        let mut model = Self::with_implementation(config, options, implementation, device)?;
        if tensors.contains_key("pooler.dense.weight") {
            model = model.with_pooler(config, device);
        }
        if tensors.contains_key("cls.predictions.transform.dense.weight") {
            model = model.with_masked_head(config, device);
        }
        if let Some(view) = tensors.get("classifier.weight") {
            let labels = view.shape().first().copied().unwrap_or(0);
            model = model.with_classifier(config, labels, device);
        }
        weights::load(model, &tensors, names::stored, device)
    }

    /// The weights as the bytes of a `model.safetensors`.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let prefix = self.prefix();
        let named = |name: String| {
            if names::is_head(&name) { name } else { format!("{prefix}{name}") }
        };
        // Maps have a file of their own.
        let mut plain = self.clone();
        for layer in &mut plain.encoder.layers {
            layer.attention.set_given(None)?;
        }
        let all = weights::collect(&plain, names::stored)?;
        let all = all.into_iter().map(|(name, weight)| (named(name), weight)).collect();
        store::serialize(&all, HashMap::from([("format".to_owned(), "pt".to_owned())]))
    }

    /// What transformers writes before the names of the encoder: nothing where there is no head.
    fn prefix(&self) -> &'static str {
        if self.masked.is_none() && self.classifier.is_none() { "" } else { "bert." }
    }

    /// Writes a folder that transformers opens: configuration and weights, beside them the files of the
    /// tokenizer as they are in `from`, and the maps of a converted model. `labels` are the names of the
    /// classes.
    pub fn save(
        &self,
        folder: &Path,
        config: &BertConfig,
        labels: Option<&[String]>,
        from: Option<&Path>,
    ) -> Result<()> {
        // What cannot be written leaves nothing behind.
        let maps = self.maps_to_bytes(self.prefix())?;
        create_folder(folder)?;
        let mut config = config.clone();
        let architecture = match (&self.classifier, &self.masked) {
            (Some(_), _) => "BertForSequenceClassification",
            (None, Some(_)) => "BertForMaskedLM",
            (None, None) => "BertModel",
        };
        config.describe(architecture, labels.filter(|_| self.classifier.is_some()));
        let text = serde_json::to_vec_pretty(&config)
            .map_err(|e| Error::invalid("config", e.to_string()))?;
        if let Some(from) = from {
            for name in crate::text::TOKENIZER_FILES {
                if let Ok(bytes) = std::fs::read(from.join(name)) {
                    write_atomically(folder.join(name), &bytes)?;
                }
            }
        }
        if let Some(bytes) = maps {
            write_atomically(folder.join(MAPS), &bytes)?;
        }
        write_atomically(folder.join(WEIGHTS), &self.to_bytes()?)?;
        write_atomically(folder.join("config.json"), &text)?;
        Ok(())
    }
}

impl Model for Bert {
    fn device(&self) -> Device {
        self.encoder.embeddings.device()
    }

    fn attentions(&self) -> Vec<&FavorAttention> {
        self.encoder.layers.iter().map(|layer| &layer.attention).collect()
    }
}

/// The weights of a file, by their plain names.
fn views(bytes: &[u8]) -> Result<Views<'_>> {
    let views = store::views(bytes)
        .map_err(|e| Error::invalid("weights", format!("not a safetensors file: {e}")))?;
    Ok(views.into_iter().map(|(name, view)| (plain_name(&name), view)).collect())
}

/// The name without a prefix, in today's words.
fn plain_name(name: &str) -> String {
    let name = name.strip_prefix("bert.").unwrap_or(name);
    let name = name.strip_suffix(".gamma").map(|n| format!("{n}.weight")).unwrap_or(name.into());
    name.strip_suffix(".beta").map(|n| format!("{n}.bias")).unwrap_or(name)
}
