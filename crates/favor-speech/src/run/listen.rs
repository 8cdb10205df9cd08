//! Using a speech recogniser: transcribing files, and errors on a manifest.

use super::device;
use crate::audio::{Features, FrontEnd, Recording};
use crate::{Error, Errors, Heard, Manifest, Result, SpeechModel, Utterance};
use favor_io::progress::{Listener, Tick};
use favor_io::setters;
use favor_nn::LayerOptions;
use rayon::prelude::*;
use std::path::PathBuf;

/// Frames per second.
const FRAME_RATE: f64 = 100.0;

/// Seconds of context on either side of a piece.
const CONTEXT: f64 = 2.0;

/// The recordings of utterances.
pub(super) fn read_all(front: &FrontEnd, utterances: &[Utterance]) -> Result<Vec<Recording>> {
    utterances.par_iter().map(|u| front.read(&u.path)).collect()
}

/// Files to transcribe.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TranscribeRequest {
    /// The model.
    pub model: PathBuf,
    /// `.wav`, `.flac` or `.npy` files.
    pub files: Vec<PathBuf>,
    /// An attention other than the one the model was trained with.
    pub attention: Option<LayerOptions>,
    /// The width of the beam; one is a greedy search.
    pub beam: usize,
    /// Transcribe in pieces of this many seconds, like a stream.
    pub piece: Option<f64>,
}

setters! { TranscribeRequest {
    model: PathBuf,
    files: Vec<PathBuf>,
    attention: Option<LayerOptions>,
    beam: usize,
    piece: Option<f64>,
} }

impl TranscribeRequest {
    /// Greedily, with the attention that the model was trained with.
    pub fn new(model: impl Into<PathBuf>, files: Vec<PathBuf>) -> Self {
        Self { model: model.into(), files, attention: None, beam: 1, piece: None }
    }
}

/// The transcript of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Spoken {
    /// The file.
    pub path: PathBuf,
    /// The text.
    pub text: String,
    /// The confidence, between 0 and 1.
    pub confidence: f64,
}

impl Spoken {
    fn new(path: PathBuf, model: &SpeechModel, heard: &Heard) -> Self {
        let text = model.vocabulary.decode(&heard.labels);
        Self { path, text, confidence: heard.confidence() }
    }
}

fn load(path: &std::path::Path, attention: Option<LayerOptions>) -> Result<SpeechModel> {
    let mut model = SpeechModel::load(path, &device())?;
    if let Some(options) = attention {
        model.network.set_attention(options)?;
        model.attention = options;
    }
    Ok(model)
}

/// Transcribes files. With pieces, `partial` is called with the text so far.
pub fn transcribe(
    request: &TranscribeRequest,
    listener: &Listener<'_>,
    partial: &dyn Fn(&str),
) -> Result<Vec<Spoken>> {
    if request.files.is_empty() {
        return Err(Error::invalid("files", "there are none"));
    }
    if request.beam == 0 || request.piece.is_some_and(|p| !(p.is_finite() && p > 0.0)) {
        return Err(Error::invalid("search", "the beam and pieces must be above zero"));
    }
    if request.piece.is_some() && request.beam > 1 {
        return Err(Error::invalid("beam", "pieces are searched greedily; leave one of them out"));
    }
    let model = load(&request.model, request.attention)?;
    let features = |path: &PathBuf| Ok(model.front.features(&model.front.read(path)?, None));
    let features: Vec<Features> = request.files.par_iter().map(features).collect::<Result<_>>()?;
    let total = features.len() as u64;
    let tick = |done: usize| listener(Tick { done: done as u64, total, what: "" });
    let heard = match request.piece {
        None => model.listen(&features, request.beam, tick)?,
        Some(seconds) => {
            let mut all = Vec::new();
            for (i, one) in features.iter().enumerate() {
                let piece = (seconds * FRAME_RATE).round().max(1.0) as usize;
                let context = (CONTEXT * FRAME_RATE) as usize;
                all.push(model.listen_in_pieces(one, piece, context, |heard| {
                    partial(&model.vocabulary.decode(&heard.labels));
                })?);
                tick(i + 1);
            }
            all
        }
    };
    let files = request.files.iter().cloned().zip(&heard);
    Ok(files.map(|(path, heard)| Spoken::new(path, &model, heard)).collect())
}

/// A manifest to evaluate on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EvaluateRequest {
    /// The model.
    pub model: PathBuf,
    /// The manifest.
    pub data: PathBuf,
    /// An attention other than the one the model was trained with.
    pub attention: Option<LayerOptions>,
    /// The width of the beam; one is a greedy search.
    pub beam: usize,
    /// The seed of the bootstrap samples.
    pub seed: u64,
}

setters! { EvaluateRequest {
    model: PathBuf,
    data: PathBuf,
    attention: Option<LayerOptions>,
    beam: usize,
    seed: u64,
} }

impl EvaluateRequest {
    /// Greedily, with the attention that the model was trained with.
    pub fn new(model: impl Into<PathBuf>, data: impl Into<PathBuf>) -> Self {
        Self { model: model.into(), data: data.into(), attention: None, beam: 1, seed: 0 }
    }
}

/// The result.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluated {
    /// The errors.
    pub errors: Errors,
    /// The truth and the recognised text.
    pub utterances: Vec<(String, Spoken)>,
    /// Seconds of speech, and seconds that the model took.
    pub seconds: [f64; 2],
}

/// The errors of a model on a manifest.
pub fn evaluate(request: &EvaluateRequest, listener: &Listener<'_>) -> Result<Evaluated> {
    if request.beam == 0 {
        return Err(Error::invalid("beam", "it must be above zero"));
    }
    let manifest = Manifest::read(&request.data)?;
    let texts: Vec<String> = manifest.texts()?.into_iter().map(str::to_owned).collect();
    let model = load(&request.model, request.attention)?;
    let recordings = read_all(&model.front, &manifest.utterances)?;
    let features: Vec<Features> =
        recordings.par_iter().map(|r| model.front.features(r, None)).collect();
    let total = features.len() as u64;
    let start = std::time::Instant::now();
    let heard = model.listen(&features, request.beam, |done| {
        listener(Tick { done: done as u64, total, what: "" });
    })?;
    let frames = features.iter().map(Features::frames).sum::<usize>();
    let seconds = [frames as f64 / FRAME_RATE, start.elapsed().as_secs_f64()];
    let spoken = manifest.utterances.iter().zip(&heard);
    let spoken = spoken.map(|(u, heard)| Spoken::new(u.path.clone(), &model, heard));
    let utterances: Vec<(String, Spoken)> = texts.into_iter().zip(spoken).collect();
    let pairs = utterances.iter().map(|(said, heard)| (said.as_str(), heard.text.as_str()));
    Ok(Evaluated { errors: Errors::of(pairs, request.seed), utterances, seconds })
}
