//! A model whose attention is replaced without any fine-tuning, on STS-B.

use crate::bert::Bert;
use crate::layer::LayerOptions;
use crate::run::device;
use crate::task::{Example, Glue, Metric};
use crate::text::{Batch, Encoded, TextTokenizer};
use crate::{Result, Statistics};
use std::path::Path;

/// Sentences of the training set that maps are fitted to.
const CALIBRATION: usize = 200;
/// Sentences that go through the model together.
const BATCH: usize = 64;
/// Tokens that sentences are cut to.
const LENGTH: usize = 128;

/// Spearman's correlation of the cosines of mean vectors with people's scores on the pairs of STS-B that
/// are there to judge by. Maps are fitted to sentences of the training set, and frozen.
pub(super) fn score(model: &Path, data: &Path, options: LayerOptions) -> Result<f64> {
    let task = Glue::Stsb.read(&data.join("glue"))?;
    let options = options.statistics(Statistics::Calibrated);
    let (bert, config) = Bert::load(model, options, &device())?;
    let tokenizer = TextTokenizer::load(model, LENGTH.min(config.max_position_embeddings))?;
    let encode = |texts: Vec<&str>| tokenizer.encode(texts.into_iter().map(|t| (t, None)));
    if options.kind.family().is_some() {
        let step = (task.train.len() / CALIBRATION).max(1);
        let sample: Vec<&str> = task.train.iter().step_by(step).map(|e| e.first.as_str()).collect();
        bert.begin_calibration();
        vectors(&bert, &encode(sample)?)?;
        bert.end_calibration();
    }
    let second = |e: &'_ Example| e.second.clone().unwrap_or_default();
    let seconds: Vec<String> = task.dev.iter().map(second).collect();
    let left = vectors(&bert, &encode(task.dev.iter().map(|e| e.first.as_str()).collect())?)?;
    let right = vectors(&bert, &encode(seconds.iter().map(String::as_str).collect())?)?;
    let cosines: Vec<f64> = left.iter().zip(&right).map(|(a, b)| cosine(a, b)).collect();
    let people: Vec<f64> = task.dev.iter().map(|e| e.label).collect();
    Ok(Metric::Spearman.score(&cosines, &people))
}

/// The mean vector of each text, in their order.
fn vectors(bert: &Bert, texts: &[Encoded]) -> Result<Vec<Vec<f32>>> {
    Batch::rows(texts, BATCH, |batch| bert.embed(batch), |_, _| ())
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let product = |x: &[f32], y: &[f32]| -> f64 {
        x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
    };
    product(a, b) / (product(a, a) * product(b, b)).sqrt()
}
