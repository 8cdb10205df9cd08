//! A recogniser with everything needed to use it, in one file.

use super::config::SpeechConfig;
use super::frames::{Frames, SUBSAMPLING, subsampled};
use super::recogniser::Recogniser;
use super::search::{Heard, Search};
use crate::Vocabulary;
use crate::audio::{Features, FrontEnd};
use crate::{Error, Result};
use burn::tensor::Device;
use favor::store::Kind;
use favor_io::{create_folder, write_atomically};
use favor_nn::LayerOptions;
use favor_nn::batches::like_length;
use favor_nn::store;
use favor_nn::train::Model;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The name of the file in a model's folder.
const FILE: &str = "model.safetensors";

const KIND: Kind = Kind::new("favor_speech.recogniser", "recogniser", 3);

/// Utterances per batch, if they are short.
const BATCH: usize = 16;

/// The maximum number of frames per batch, unless one utterance has more.
const FRAMES: usize = 16_000;

/// A model with its front end and its vocabulary.
#[derive(Debug, Clone)]
pub struct SpeechModel {
    /// The shape.
    pub config: SpeechConfig,
    /// From recordings to frames.
    pub front: FrontEnd,
    /// From labels to texts.
    pub vocabulary: Vocabulary,
    /// The attention.
    pub attention: LayerOptions,
    /// The network.
    pub network: Recogniser,
}

/// What the file contains besides the weights.
#[derive(Serialize, Deserialize)]
struct Metadata {
    config: SpeechConfig,
    front: FrontEnd,
    vocabulary: Vocabulary,
    attention: LayerOptions,
}

impl SpeechModel {
    /// The file of a model, given its folder or the file itself.
    pub fn file(path: &Path) -> PathBuf {
        if path.is_dir() { path.join(FILE) } else { path.to_path_buf() }
    }

    /// Writes the model to `model.safetensors` of a folder.
    pub fn save(&self, folder: &Path) -> Result<()> {
        create_folder(folder)?;
        let metadata = Metadata {
            config: self.config.clone(),
            front: self.front.clone(),
            vocabulary: self.vocabulary.clone(),
            attention: self.attention,
        };
        let bytes = store::write(KIND, &metadata, &self.network.state()?)?;
        Ok(write_atomically(folder.join(FILE), &bytes)?)
    }

    /// Reads a model, given by its folder or its file.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        let file = Self::file(path);
        let bytes = std::fs::read(&file).map_err(|e| Error::file(&file, e))?;
        Self::from_bytes(&bytes, device).map_err(|e| Error::file(&file, e))
    }

    fn from_bytes(bytes: &[u8], device: &Device) -> Result<Self> {
        let (metadata, tensors) = store::read(KIND, bytes)?;
        let Metadata { config, front, vocabulary, attention } = metadata;
        if config.input != front.dim() || config.vocabulary != vocabulary.size() {
            return Err(Error::invalid("model", "damaged: its parts do not fit together"));
        }
        let network = Recogniser::new(&config, attention, device)?.with_state(&tensors)?;
        Ok(Self { config, front, vocabulary, attention, network })
    }

    /// The transcripts of utterances, in order. A beam of one is a greedy search; `done` is called with
    /// the number of utterances finished.
    pub fn listen(
        &self,
        utterances: &[Features],
        beam: usize,
        mut done: impl FnMut(usize),
    ) -> Result<Vec<Heard>> {
        let search = Search::new(&self.network)?;
        let lengths: Vec<usize> = utterances.iter().map(Features::frames).collect();
        let (mut out, mut count) = (vec![Heard::default(); utterances.len()], 0);
        for group in like_length(&lengths, BATCH, FRAMES) {
            let frames = Frames::new(group.iter().map(|i| &utterances[*i]))?;
            let (states, lengths) = self.network.encode(&frames)?;
            let found = search.run(&self.network, states, &lengths, beam)?;
            for (i, heard) in group.iter().zip(found) {
                out[*i] = heard;
            }
            count += group.len();
            done(count);
        }
        Ok(out)
    }

    /// Transcribes one utterance in pieces of this many frames, each with some frames of context on
    /// either side, and calls `each` with the text so far. The time and memory of a piece do not depend
    /// on the length of the whole.
    pub fn listen_in_pieces(
        &self,
        utterance: &Features,
        piece: usize,
        context: usize,
        mut each: impl FnMut(&Heard),
    ) -> Result<Heard> {
        let (piece, context) =
            (piece.max(1).next_multiple_of(SUBSAMPLING), context.next_multiple_of(SUBSAMPLING));
        let search = Search::new(&self.network)?;
        let mut heard = Heard::default();
        for start in (0..utterance.frames()).step_by(piece) {
            let from = start.saturating_sub(context);
            let end = (start + piece).min(utterance.frames());
            let part = utterance.part(from, (end + context).min(utterance.frames()));
            let (states, _) = self.network.encode(&Frames::new([&part])?)?;
            let (skip, count) = ((start - from) / SUBSAMPLING, subsampled(end - start));
            heard = search.go_on(&self.network, states.narrow(1, skip, count), heard)?;
            each(&heard);
        }
        Ok(heard)
    }
}
