//! Texts as vectors.

use super::device;
use crate::bert::Bert;
use crate::layer::AttentionOptions;
use crate::text::{Batch, Encoded, TextTokenizer};
use crate::{Error, Result};
use favor_io::progress::{Listener, Tick};
use std::path::PathBuf;

/// What to turn into vectors, and by what.
#[derive(Debug, Clone)]
pub struct EmbedRequest {
    /// The folder of the model.
    pub model: PathBuf,
    /// The texts.
    pub texts: Vec<String>,
    /// The attention.
    pub attention: AttentionOptions,
    /// Texts are cut to so many tokens; `None`: to as many as the model has positions. Beyond those,
    /// positions are interpolated.
    pub length: Option<usize>,
    /// Texts that go through the model together.
    pub batch: usize,
    /// Scale every vector to length one.
    pub normalise: bool,
}

/// The vectors of texts, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// One row a text.
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
    let (model, config) = Bert::load(&request.model, request.attention, &device())?;
    let positions = config.max_position_embeddings;
    let length = request.length.unwrap_or(positions);
    let tokenizer = TextTokenizer::load(&request.model, length)?;
    let texts = tokenizer.encode(request.texts.iter().map(|t| (t.as_str(), None)))?;
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|i| texts[*i].ids.len());
    let mut vectors = vec![Vec::new(); texts.len()];
    let total = texts.len() as u64;
    listener(Tick { done: 0, total, what: "" });
    let mut done = 0;
    for group in groups(&order, &texts, request.batch.max(1)) {
        let batch = Batch::of(group.iter().map(|i| &texts[*i]))?;
        let rows = model.embed(&batch)?;
        let width = rows.dims()[1];
        let unread = |e| Error::invalid("model", format!("its output cannot be read: {e:?}"));
        let values = rows.try_into_vec_as::<f32>().map_err(unread)?;
        for (i, row) in group.iter().zip(values.chunks(width)) {
            vectors[*i] = if request.normalise { normalised(row) } else { row.to_vec() };
        }
        done += group.len() as u64;
        let what = format!("{} tokens", batch.length());
        listener(Tick { done, total, what: &what });
    }
    let tokens: Vec<usize> = texts.iter().map(|t| t.ids.len()).collect();
    let cut = texts.iter().filter(|t| t.cut).count();
    let interpolated = tokens.iter().filter(|t| **t > positions).count();
    Ok(Embedded { vectors, tokens, cut, interpolated })
}

/// Runs of texts of like length: at most so many, and fewer of long ones.
fn groups(order: &[usize], texts: &[Encoded], size: usize) -> Vec<Vec<usize>> {
    let mut out: Vec<Vec<usize>> = Vec::new();
    for &i in order {
        let length = texts[i].ids.len();
        // A batch of padded texts holds no more tokens than so many texts of 512.
        match out.last_mut() {
            Some(group) if group.len() < size && (group.len() + 1) * length <= 512 * size => {
                group.push(i);
            }
            _ => out.push(vec![i]),
        }
    }
    out
}

fn normalised(row: &[f32]) -> Vec<f32> {
    let norm = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    row.iter().map(|v| (f64::from(*v) / norm.max(f64::MIN_POSITIVE)) as f32).collect()
}

impl Embedded {
    /// One line a text, its numbers separated by tabs.
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
