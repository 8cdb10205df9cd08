//! A recogniser with all that it takes to use it, in one file.

use super::config::SpeechConfig;
use super::frames::{Frames, SUBSAMPLING, subsampled};
use super::model::Recogniser;
use super::search::{Heard, Search};
use super::vocabulary::Vocabulary;
use crate::audio::{Features, FrontEnd};
use crate::layer::{AttentionOptions, MapState};
use crate::train::Model;
use crate::{Error, Result};
use burn::tensor::Device;
use favor_io::write_atomically;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The file of a model's folder.
const FILE: &str = "model.safetensors";

/// Marks the format.
const FORMAT: &str = "favor-nn.speech.v1";

/// Utterances that go through a model together, if they are short.
const BATCH: usize = 16;

/// Frames of a batch at most, unless one utterance has more.
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
    pub attention: AttentionOptions,
    /// The network.
    pub network: Recogniser,
}

/// One entry of the header, because entries come in any order and equal models are equal files.
#[derive(Serialize, Deserialize)]
struct About {
    format: String,
    config: SpeechConfig,
    front: FrontEnd,
    vocabulary: Vocabulary,
    attention: AttentionOptions,
}

impl SpeechModel {
    /// The file of a model that is given by its folder or by the file itself.
    pub fn file(path: &Path) -> PathBuf {
        if path.is_dir() { path.join(FILE) } else { path.to_path_buf() }
    }

    /// Writes the model to `model.safetensors` of a folder.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let refuse = |e: String| Error::invalid("model", e);
        std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
        let about = About {
            format: FORMAT.to_owned(),
            config: self.config.clone(),
            front: self.front.clone(),
            vocabulary: self.vocabulary.clone(),
            attention: self.attention,
        };
        let about = serde_json::to_string(&about).map_err(|e| refuse(e.to_string()))?;
        let states: Vec<MapState> =
            self.network.attentions().iter().map(|a| a.map_state()).collect();
        let parts = [
            ("maps", postcard::to_stdvec(&states).map_err(|e| refuse(e.to_string()))?),
            ("weights", self.network.to_bytes()?),
        ];
        let mut views = BTreeMap::new();
        for (name, bytes) in &parts {
            let view = TensorView::new(Dtype::U8, vec![bytes.len()], bytes);
            views.insert(*name, view.map_err(|e| refuse(e.to_string()))?);
        }
        let header = HashMap::from([("about".to_owned(), about)]);
        let bytes =
            safetensors::serialize(views, Some(header)).map_err(|e| refuse(e.to_string()))?;
        Ok(write_atomically(folder.join(FILE), &bytes)?)
    }

    /// Reads a model, given by its folder or its file.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        let file = Self::file(path);
        let bytes = std::fs::read(&file).map_err(|e| Error::file(&file, e))?;
        Self::from_bytes(&bytes, device).map_err(|e| Error::file(&file, e))
    }

    fn from_bytes(bytes: &[u8], device: &Device) -> Result<Self> {
        let refuse = |reason: String| Error::invalid("model", reason);
        let damaged = |e: safetensors::SafeTensorError| refuse(format!("damaged: {e}"));
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let header = header.metadata().clone().unwrap_or_default();
        let Some(about) = header.get("about") else {
            return Err(refuse("no speech recogniser".into()));
        };
        let About { format, config, front, vocabulary, attention } =
            serde_json::from_str(about).map_err(|e| refuse(format!("damaged: {e}")))?;
        if format != FORMAT {
            return Err(refuse(format!("a recogniser of another version, {format}")));
        }
        if config.input != front.dim() || config.vocabulary != vocabulary.size() {
            return Err(refuse("damaged: its parts do not fit together".into()));
        }
        let network = Recogniser::new(&config, attention, device)?;
        let network = network.with_weights(file.tensor("weights").map_err(damaged)?.data())?;
        let states: Vec<MapState> =
            postcard::from_bytes(file.tensor("maps").map_err(damaged)?.data())
                .map_err(|e| refuse(format!("damaged maps: {e}")))?;
        let attentions = network.attentions();
        if states.len() != attentions.len() {
            return Err(refuse("maps of another model".into()));
        }
        for (attention, state) in attentions.into_iter().zip(states) {
            attention.set_map_state(state)?;
        }
        Ok(Self { config, front, vocabulary, attention, network })
    }

    /// What is heard in utterances, in their order. A beam of one is a greedy search; `done` is told
    /// how many utterances are.
    pub fn listen(
        &self,
        utterances: &[Features],
        beam: usize,
        mut done: impl FnMut(usize),
    ) -> Result<Vec<Heard>> {
        let search = Search::new(&self.network)?;
        let mut order: Vec<usize> = (0..utterances.len()).collect();
        order.sort_by_key(|i| utterances[*i].frames());
        let mut out = vec![Heard::default(); utterances.len()];
        let mut rest = &order[..];
        while !rest.is_empty() {
            // Sorted, so that the last of a batch is its longest.
            let fits = |n: &usize| n * utterances[rest[n - 1]].frames() <= FRAMES;
            let size = (1..=rest.len().min(BATCH)).rev().find(fits).unwrap_or(1);
            let (group, later) = rest.split_at(size);
            rest = later;
            let frames = Frames::new(group.iter().map(|i| &utterances[*i]))?;
            let (states, lengths) = self.network.encode(&frames)?;
            let found = search.run(&self.network, states, &lengths, beam)?;
            for (i, heard) in group.iter().zip(found) {
                out[*i] = heard;
            }
            done(utterances.len() - rest.len());
        }
        Ok(out)
    }

    /// Listens to one utterance in pieces of so many frames, each with so many frames to either side
    /// for context, and tells `each` what was heard so far. Time and memory of a piece do not depend on
    /// the length of the whole.
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
