//! Texts as vectors.

use super::device;
use crate::bert::Bert;
use crate::layer::LayerOptions;
use crate::text::{Batch, TextTokenizer};
use crate::{Error, Result};
use favor_io::progress::{Listener, Tick};
use std::path::PathBuf;

/// What to turn into vectors, and by what.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmbedRequest {
    /// The folder of the model.
    pub model: PathBuf,
    /// The texts.
    pub texts: Vec<String>,
    /// The attention; `None`: that of a converted model, else exact.
    pub attention: Option<LayerOptions>,
    /// Texts are cut to so many tokens; `None`: to as many as the model has positions. Beyond those,
    /// positions are interpolated.
    pub length: Option<usize>,
    /// Texts that go through the model together.
    pub batch: usize,
    /// Scale every vector to length one.
    pub normalise: bool,
}

setters! { EmbedRequest {
    model: PathBuf,
    texts: Vec<String>,
    attention: Option<LayerOptions>,
    length: Option<usize>,
    batch: usize,
    normalise: bool,
} }

impl EmbedRequest {
    /// Vectors of length one by the model's own attention, 32 texts at a time.
    pub fn new(model: impl Into<PathBuf>, texts: Vec<String>) -> Self {
        let model = model.into();
        Self { model, texts, attention: None, length: None, batch: 32, normalise: true }
    }
}

/// The vectors of texts, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// One row per text.
    pub vectors: Vec<Vec<f32>>,
    /// The tokens of each text.
    pub tokens: Vec<usize>,
    /// Texts that were cut.
    pub cut: usize,
    /// Texts longer than the model's own positions, which were interpolated.
    pub interpolated: usize,
}

/// The mean of the model's vectors of each text.
pub fn embed(request: &EmbedRequest, listener: &Listener<'_>) -> Result<Embedded> {
    if request.texts.is_empty() {
        return Err(Error::invalid("texts", "there are none"));
    }
    let (model, config) = Bert::open(&request.model, request.attention, &device())?;
    let positions = config.max_position_embeddings;
    let length = request.length.unwrap_or(positions);
    let tokenizer = TextTokenizer::load(&request.model, length)?;
    let texts = tokenizer.encode(request.texts.iter().map(|t| (t.as_str(), None)))?;
    let total = texts.len() as u64;
    listener(Tick { done: 0, total, what: "" });
    let tick = |done: usize, batch: &Batch| {
        let what = format!("{} tokens", batch.length());
        listener(Tick { done: done as u64, total, what: &what });
    };
    let mut vectors = Batch::rows(&texts, request.batch, |batch| model.embed(batch), tick)?;
    if request.normalise {
        vectors.iter_mut().for_each(|row| normalise(row));
    }
    let tokens: Vec<usize> = texts.iter().map(|t| t.ids.len()).collect();
    let cut = texts.iter().filter(|t| t.cut).count();
    let interpolated = tokens.iter().filter(|t| **t > positions).count();
    Ok(Embedded { vectors, tokens, cut, interpolated })
}

fn normalise(row: &mut [f32]) {
    let norm = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    row.iter_mut().for_each(|v| *v = (f64::from(*v) / norm.max(f64::MIN_POSITIVE)) as f32);
}

impl Embedded {
    /// One line per text, its numbers separated by tabs.
    pub fn to_tsv(&self) -> String {
        let line = |row: &Vec<f32>| {
            let numbers: Vec<String> = row.iter().map(|v| format!("{v}")).collect();
            numbers.join("\t") + "\n"
        };
        self.vectors.iter().map(line).collect()
    }

    /// The bytes of a NumPy file, `[texts, width]` of `f32`.
    pub fn to_npy(&self) -> Vec<u8> {
        let (rows, columns) = (self.vectors.len(), self.vectors.first().map_or(0, Vec::len));
        favor_io::arrays::npy_bytes(rows, columns, self.vectors.iter().flatten())
    }
}
