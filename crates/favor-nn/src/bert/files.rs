//! A model's folder: `config.json` and `model.safetensors`, as transformers reads and writes them.

use super::names::{self, Stored};
use super::pytorch;
use super::{Bert, BertConfig};
use crate::attention::Engine;
use crate::layer::AttentionOptions;
use crate::{Error, Result};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, Tensor, TensorData};
use favor_lab::output::write_atomically;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::{BTreeMap, HashMap};
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
        options: AttentionOptions,
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
        let model = Self::from_bytes(&bytes, &config, options, Engine::Auto, device)
            .map_err(|e| Error::file(&path, e))?;
        Ok((model, config))
    }

    /// A model of the bytes of a `model.safetensors`.
    pub fn from_bytes(
        bytes: &[u8],
        config: &BertConfig,
        options: AttentionOptions,
        engine: Engine,
        device: &Device,
    ) -> Result<Self> {
        let file = SafeTensors::deserialize(bytes)
            .map_err(|e| Error::invalid("weights", format!("not a safetensors file: {e}")))?;
        let mut tensors: HashMap<String, TensorView<'_>> = HashMap::new();
        for (name, view) in file.iter() {
            tensors.insert(plain_name(name), view);
        }
        let mut model = Self::with_engine(config, options, engine, device)?;
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
        let mut loader = Loader { tensors, path: vec![], device: device.clone(), error: None };
        let model = model.map(&mut loader);
        match loader.error {
            Some(error) => Err(error),
            None => Ok(model),
        }
    }

    /// The weights as the bytes of a `model.safetensors`.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut saver = Saver { tensors: BTreeMap::new(), path: vec![], error: None };
        self.visit(&mut saver);
        if let Some(error) = saver.error {
            return Err(error);
        }
        let bare = self.masked.is_none() && self.classifier.is_none();
        let mut all = BTreeMap::new();
        for (name, (shape, bytes)) in &saver.tensors {
            let name = match bare || names::is_head(name) {
                true => name.clone(),
                false => format!("bert.{name}"),
            };
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes)
                .map_err(|e| Error::invalid("weights", e.to_string()))?;
            all.insert(name, view);
        }
        let about = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        safetensors::serialize(all, Some(about))
            .map_err(|e| Error::invalid("weights", e.to_string()))
    }

    /// Writes a folder that transformers opens: configuration and weights, and beside them the files
    /// of the tokenizer as they are in `from`. `labels` are the names of the classes.
    pub fn save(
        &self,
        folder: &Path,
        config: &BertConfig,
        labels: Option<&[String]>,
        from: Option<&Path>,
    ) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
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
        write_atomically(folder.join(WEIGHTS), &self.to_bytes()?)?;
        write_atomically(folder.join("config.json"), &text)?;
        Ok(())
    }
}

/// The name without a prefix, in today's words.
fn plain_name(name: &str) -> String {
    let name = name.strip_prefix("bert.").unwrap_or(name);
    let name = name.strip_suffix(".gamma").map(|n| format!("{n}.weight")).unwrap_or(name.into());
    name.strip_suffix(".beta").map(|n| format!("{n}.bias")).unwrap_or(name)
}

struct Loader<'a> {
    tensors: HashMap<String, TensorView<'a>>,
    path: Vec<String>,
    device: Device,
    error: Option<Error>,
}

impl ModuleMapper for Loader<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let shape: [usize; D] = param.lazy_shape().dims();
        match self.read(shape) {
            Ok(data) => {
                let tensor = Tensor::<D>::from_data(data, &self.device);
                let tensor = match self.device.is_autodiff() {
                    true => tensor.require_grad(),
                    false => tensor,
                };
                Param::initialized(ParamId::new(), tensor)
            }
            Err(error) => {
                self.error.get_or_insert(error);
                param
            }
        }
    }
}

impl Loader<'_> {
    /// The numbers of the weight at the present path, as our modules hold them.
    fn read<const D: usize>(&self, shape: [usize; D]) -> Result<TensorData> {
        let path = self.path.join(".");
        let Some(Stored { name, transposed }) = names::stored(&path) else {
            return Err(Error::invalid("weights", format!("{path} has no name in files")));
        };
        let Some(view) = self.tensors.get(&name) else {
            let reason = format!("'{name}' is missing: not the weights of a BERT of this shape");
            return Err(Error::invalid("weights", reason));
        };
        let mut wanted = shape.to_vec();
        if transposed {
            wanted.reverse();
        }
        if view.shape() != wanted {
            let reason = format!("'{name}' has shape {:?} where {wanted:?}", view.shape());
            return Err(Error::invalid("weights", format!("{reason} follows from config.json")));
        }
        let values = floats(view).ok_or_else(|| {
            let reason = format!("'{name}' holds {:?}; f32, f16 and bf16 are read", view.dtype());
            Error::invalid("weights", reason)
        })?;
        if let Some(bad) = values.iter().find(|v| !v.is_finite()) {
            return Err(Error::invalid("weights", format!("'{name}' holds {bad}")));
        }
        Ok(match (transposed, &shape[..]) {
            (true, &[rows, columns]) => TensorData::new(transpose(&values, columns, rows), shape),
            _ => TensorData::new(values, shape),
        })
    }
}

fn floats(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = view.data();
    let pairs = || bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
    Some(match view.dtype() {
        Dtype::F32 => {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        }
        Dtype::F16 => pairs().map(|b| half::f16::from_le_bytes(b).to_f32()).collect(),
        Dtype::BF16 => pairs().map(|b| half::bf16::from_le_bytes(b).to_f32()).collect(),
        _ => return None,
    })
}

/// The transpose of a matrix of so many rows and columns.
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}

struct Saver {
    tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)>,
    path: Vec<String>,
    error: Option<Error>,
}

impl ModuleVisitor for Saver {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Err(error) = self.take(param.val()) {
            self.error.get_or_insert(error);
        }
    }
}

impl Saver {
    fn take<const D: usize>(&mut self, tensor: Tensor<D>) -> Result<()> {
        let path = self.path.join(".");
        let Some(Stored { name, transposed }) = names::stored(&path) else {
            return Err(Error::invalid("weights", format!("{path} has no name in files")));
        };
        let mut shape: Vec<usize> = tensor.dims().to_vec();
        let unread = |e| Error::invalid("weights", format!("{path} cannot be read: {e:?}"));
        let mut values = tensor.try_into_vec_as::<f32>().map_err(unread)?;
        if transposed && let &[rows, columns] = &shape[..] {
            values = transpose(&values, rows, columns);
            shape.reverse();
        }
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensors.insert(name, (shape, bytes));
        Ok(())
    }
}
