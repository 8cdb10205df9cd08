//! Noisy student training (D. Park et al., "Improved noisy student training for automatic speech
//! recognition", 2020): a teacher labels unlabelled utterances, a student learns from those the teacher was
//! sure of and from the labelled ones, all augmented; then the student becomes the teacher.

use super::device;
use super::listen::read_all;
use super::options::TrainOptions;
use super::train::{TrainRequest, Trained, train};
use crate::audio::Features;
use crate::{Error, Errors, Manifest, Result, SpeechModel, Utterance};
use favor_io::progress::Tick;
use favor_io::setters;
use favor_io::{create_folder, write_atomically};
use favor_nn::LayerOptions;
use favor_nn::run::Watch;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The width of the teacher's beam. A greedy search only knows the probability of one alignment, and would
/// doubt a word that could start in either of two frames.
const BEAM: usize = 4;

/// What to learn from, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NstRequest {
    /// The manifest with labels.
    pub labelled: PathBuf,
    /// The manifest without labels; any texts in it are ignored.
    pub unlabelled: PathBuf,
    /// A manifest to evaluate on.
    pub test: Option<PathBuf>,
    /// Where a folder for each generation is created.
    pub out: PathBuf,
    /// The attention.
    pub attention: LayerOptions,
    /// How each generation is trained.
    pub options: TrainOptions,
    /// The number of students after the first teacher.
    pub generations: u64,
    /// Labels that the teacher was less sure of are left out.
    pub confidence: f64,
}

setters! { NstRequest {
    labelled: PathBuf,
    unlabelled: PathBuf,
    test: Option<PathBuf>,
    out: PathBuf,
    attention: LayerOptions,
    options: TrainOptions,
    generations: u64,
    confidence: f64,
} }

impl NstRequest {
    /// Two students after a teacher, with labels it was sure of to 0.8.
    pub fn new(
        labelled: impl Into<PathBuf>,
        unlabelled: impl Into<PathBuf>,
        out: impl Into<PathBuf>,
    ) -> Self {
        Self {
            labelled: labelled.into(),
            unlabelled: unlabelled.into(),
            test: None,
            out: out.into(),
            attention: LayerOptions::default(),
            options: TrainOptions::default(),
            generations: 2,
            confidence: 0.8,
        }
    }
}

/// One generation: the first is the teacher that saw labelled utterances only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// From 0.
    pub generation: u64,
    /// The number of unlabelled utterances that got a label.
    pub labelled: [usize; 2],
    /// On the test utterances.
    pub errors: Option<Errors>,
    /// Seconds of training.
    pub seconds: f64,
}

/// A generation and its request, as stored.
#[derive(Serialize, Deserialize)]
struct Kept {
    request: String,
    generation: Generation,
}

/// Trains a teacher and its students. The same request resumes where it was stopped.
pub fn nst(request: &NstRequest, watch: Watch<'_>) -> Result<Vec<Generation>> {
    if !(0.0..=1.0).contains(&request.confidence) {
        let reason = format!("{} is not between 0 and 1", request.confidence);
        return Err(Error::invalid("confidence", reason));
    }
    Manifest::read(&request.labelled)?.texts()?;
    let unlabelled = Manifest::read(&request.unlabelled)?;
    let described = (
        (&request.labelled, &request.unlabelled),
        (request.attention, request.options, request.confidence),
    );
    let described =
        serde_json::to_string(&described).map_err(|e| Error::invalid("request", e.to_string()))?;
    let mut done: Vec<Generation> = Vec::new();
    for generation in 0..=request.generations {
        let folder = request.out.join(format!("generation-{generation}"));
        if let Some(known) = known(&folder, &described)? {
            done.push(known);
            continue;
        }
        let listener = |tick: Tick<'_>| {
            let what = format!("generation {generation}, {}", tick.what);
            (watch.listener)(Tick { what: &what, ..tick });
        };
        let mut data = vec![request.labelled.clone()];
        let mut labelled = [0, unlabelled.utterances.len()];
        if generation > 0 {
            create_folder(&folder)?;
            let teacher = request.out.join(format!("generation-{}", generation - 1));
            let sure = label(&teacher, &unlabelled, request.confidence)?;
            labelled[0] = sure.len();
            // An empty list is not a manifest; the student then learns from the same data as its teacher.
            if !sure.is_empty() {
                let path = folder.join("labelled-by-teacher.jsonl");
                Manifest::write(&path, &sure)?;
                data.push(path);
            }
        }
        // Every generation starts with new weights.
        let seed = request.options.seed.wrapping_add(generation << 16);
        let request = TrainRequest::new(data, &folder)
            .test(request.test.clone())
            .attention(request.attention)
            .options(request.options.seed(seed));
        let Trained { epochs, errors, .. } = train(&request, watch.listener(&listener))?;
        let seconds = epochs.iter().map(|e| e.seconds).sum();
        let generation = Generation { generation, labelled, errors, seconds };
        let kept = Kept { request: described.clone(), generation: generation.clone() };
        let text = serde_json::to_vec_pretty(&kept)
            .map_err(|e| Error::invalid("result", e.to_string()))?;
        write_atomically(folder.join("result.json"), &text)?;
        done.push(generation);
    }
    Ok(done)
}

/// The result of a generation of an earlier run of the same request.
fn known(folder: &Path, described: &str) -> Result<Option<Generation>> {
    let path = folder.join("result.json");
    let Ok(bytes) = std::fs::read(&path) else { return Ok(None) };
    let kept: Kept = serde_json::from_slice(&bytes)
        .map_err(|e| Error::file(&path, format!("not a result: {e}; remove it")))?;
    if kept.request != described {
        return Err(Error::OtherSettings { path });
    }
    Ok(Some(kept.generation))
}

/// The utterances that the teacher is sure of, with the texts it recognised.
fn label(teacher: &Path, unlabelled: &Manifest, confidence: f64) -> Result<Vec<Utterance>> {
    let model = SpeechModel::load(teacher, &device())?;
    let recordings = read_all(&model.front, &unlabelled.utterances)?;
    let features: Vec<Features> =
        recordings.par_iter().map(|r| model.front.features(r, None)).collect();
    let heard = model.listen(&features, BEAM, |_| {})?;
    let mut sure = Vec::new();
    for (utterance, heard) in unlabelled.utterances.iter().zip(heard) {
        if heard.confidence() < confidence {
            continue;
        }
        let path =
            std::path::absolute(&utterance.path).map_err(|e| Error::file(&utterance.path, e))?;
        let text = Some(model.vocabulary.decode(&heard.labels));
        sure.push(Utterance { path, text, duration: utterance.duration });
    }
    Ok(sure)
}
