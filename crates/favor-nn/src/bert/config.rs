//! `config.json` of a BERT, as transformers writes it.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

/// The shape of a BERT. Fields that this crate does not know are kept as they are.
///
/// ```
/// use favor_nn::bert::BertConfig;
/// let config = BertConfig::small(1000, 64, 2, 4);
/// assert_eq!(config.intermediate_size, 256);
/// config.check()?;
/// # Ok::<(), favor_nn::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BertConfig {
    /// The number of tokens that have a vector.
    pub vocab_size: usize,
    /// The width.
    pub hidden_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of heads, which share the width.
    pub num_attention_heads: usize,
    /// The width between the two matrices after attention.
    pub intermediate_size: usize,
    /// The activation between them.
    #[serde(default = "gelu")]
    pub hidden_act: String,
    /// The fraction of numbers that training drops.
    #[serde(default = "tenth")]
    pub hidden_dropout_prob: f64,
    /// The same after attention; here of the heads' outputs, since weights need not exist.
    #[serde(default = "tenth")]
    pub attention_probs_dropout_prob: f64,
    /// Positions that have a vector.
    pub max_position_embeddings: usize,
    /// Kinds of segments that have a vector.
    #[serde(default = "two")]
    pub type_vocab_size: usize,
    /// The standard deviation of new weights.
    #[serde(default = "initial")]
    pub initializer_range: f64,
    /// ε of the layer normalisations.
    #[serde(default = "epsilon")]
    pub layer_norm_eps: f64,
    /// Everything else.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

setters! { BertConfig {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    hidden_act: String,
    hidden_dropout_prob: f64,
    attention_probs_dropout_prob: f64,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    initializer_range: f64,
    layer_norm_eps: f64,
} }

fn gelu() -> String {
    "gelu".into()
}
fn tenth() -> f64 {
    0.1
}
fn two() -> usize {
    2
}
fn initial() -> f64 {
    0.02
}
fn epsilon() -> f64 {
    1e-12
}

impl BertConfig {
    /// A BERT of this vocabulary, width, depth and number of heads, for 512 positions.
    pub fn small(vocabulary: usize, width: usize, layers: usize, heads: usize) -> Self {
        let mut other = Map::new();
        other.insert("model_type".into(), "bert".into());
        Self {
            vocab_size: vocabulary,
            hidden_size: width,
            num_hidden_layers: layers,
            num_attention_heads: heads,
            intermediate_size: 4 * width,
            hidden_act: gelu(),
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            other,
        }
    }

    /// Reads and checks a `config.json`.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::file(path, e))?;
        let config: Self = serde_json::from_slice(&bytes)
            .map_err(|e| Error::file(path, format!("not the configuration of a BERT: {e}")))?;
        config.check().map_err(|e| Error::file(path, e))?;
        Ok(config)
    }

    /// Refuses what this crate does not compute.
    pub fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::invalid("config", reason));
        let text = |name: &str| self.other.get(name).and_then(Value::as_str);
        if let Some(kind) = text("model_type").filter(|kind| *kind != "bert") {
            return refuse(format!("model_type is '{kind}'; only 'bert' is known"));
        }
        if !["gelu", "relu"].contains(&self.hidden_act.as_str()) {
            return refuse(format!("hidden_act is '{}'; gelu and relu are known", self.hidden_act));
        }
        if let Some(kind) = text("position_embedding_type").filter(|kind| *kind != "absolute") {
            return refuse(format!("position_embedding_type '{kind}'; only 'absolute' is known"));
        }
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return refuse(format!("{name} is 0"));
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let (width, heads) = (self.hidden_size, self.num_attention_heads);
            return refuse(format!("hidden_size {width} is not a multiple of {heads} heads"));
        }
        for rate in [self.hidden_dropout_prob, self.attention_probs_dropout_prob] {
            if !(0.0..1.0).contains(&rate) {
                return refuse(format!("a dropout of {rate} is not from 0 to below 1"));
            }
        }
        Ok(())
    }

    /// The number of labels of a classifier: 2 where nothing is said.
    pub fn labels(&self) -> usize {
        let named = self.other.get("id2label").and_then(Value::as_object).map(Map::len);
        let counted = self.other.get("num_labels").and_then(Value::as_u64).map(|n| n as usize);
        named.or(counted).unwrap_or(2)
    }

    /// Writes down which heads a model has, in the words of transformers.
    pub(crate) fn describe(&mut self, architecture: &str, labels: Option<&[String]>) {
        self.other.insert("architectures".into(), vec![architecture].into());
        self.other.insert("model_type".into(), "bert".into());
        for name in ["id2label", "label2id", "num_labels", "problem_type"] {
            self.other.remove(name);
        }
        if let Some(labels) = labels {
            let numbered = labels.iter().enumerate();
            let names: Map<_, _> =
                numbered.clone().map(|(i, l)| (i.to_string(), l.as_str().into())).collect();
            let ids: Map<_, _> = numbered.map(|(i, l)| (l.clone(), i.into())).collect();
            self.other.insert("id2label".into(), names.into());
            self.other.insert("label2id".into(), ids.into());
            if labels.len() == 1 {
                self.other.insert("problem_type".into(), "regression".into());
            }
        }
    }
}
