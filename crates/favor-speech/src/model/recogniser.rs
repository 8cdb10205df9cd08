//! The recogniser: encoder, prediction network and joiner.

use super::config::SpeechConfig;
use super::conformer::{Conformer, linear};
use super::frames::Frames;
use crate::loss::{BLANK, ctc_loss, spread, transducer_loss};
use crate::{Error, Result};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, Linear};
use burn::tensor::activation::{log_softmax, relu};
use burn::tensor::{Device, Int, Tensor, TensorData};
use favor_nn::host::{drop_some, rowwise, tanh};
use favor_nn::train::Model;
use favor_nn::{FavorAttention, GivenMaps, LayerOptions};

/// A Conformer-Transducer with any kind of attention.
///
/// The prediction network has no state: it sees the last few labels. This is as good as a recurrent one
/// (M. Ghodsi et al., "RNN-Transducer with stateless prediction network", 2020), and a search can cache
/// its results.
///
/// ```
/// use burn::tensor::Device;
/// use favor_speech::audio::Features;
/// use favor_speech::{Frames, Recogniser, SpeechConfig};
/// use favor_nn::{Attention, LayerOptions};
/// let config = SpeechConfig::small(13, 11).width(16).layers(1);
/// let options = LayerOptions::new("sde".parse::<Attention>()?, 16);
/// let device = Device::flex();
/// device.seed(1);
/// let model = Recogniser::new(&config, options, &device)?;
/// let utterance = Features::new(vec![0.5; 13 * 50], 13)?;
/// let (states, lengths) = model.encode(&Frames::new([&utterance])?)?;
/// assert_eq!((states.dims(), lengths), ([1, 13, 16], vec![13]));
/// # Ok::<(), favor_speech::Error>(())
/// ```
#[derive(Module, Debug)]
pub struct Recogniser {
    pub(super) encoder: Conformer,
    pub(super) embedding: Embedding,
    pub(super) memory: Linear,
    pub(super) joint_encoder: Linear,
    pub(super) joint_memory: Linear,
    pub(super) output: Linear,
    alone: Linear,
    dropout: Dropout,
    #[module(skip)]
    auxiliary: f64,
}

impl Recogniser {
    /// A recogniser with new weights, drawn by the device's generator.
    pub fn new(config: &SpeechConfig, options: LayerOptions, device: &Device) -> Result<Self> {
        config.check()?;
        let SpeechConfig { vocabulary, width, prediction, joint, .. } = *config;
        Ok(Self {
            encoder: Conformer::new(config, options, device)?,
            embedding: EmbeddingConfig::new(vocabulary, prediction).init(device),
            memory: linear(config.context * prediction, prediction, device),
            joint_encoder: linear(width, joint, device),
            joint_memory: linear(prediction, joint, device),
            output: linear(joint, vocabulary, device),
            alone: linear(width, vocabulary, device),
            dropout: DropoutConfig::new(config.dropout).init(),
            auxiliary: config.auxiliary,
        })
    }

    /// `[batch, frames / 4, width]` and the lengths there. Rows at padding hold anything.
    pub fn encode(&self, frames: &Frames) -> Result<(Tensor<3>, Vec<usize>)> {
        let device = self.encoder.device();
        let input = self.encoder.input();
        if frames.dim() != input {
            let reason =
                format!("{} numbers per frame where the model takes {input}", frames.dim());
            return Err(Error::invalid("utterances", reason));
        }
        self.encoder.forward(frames, &device)
    }

    /// The mean loss of utterances with these labels.
    pub fn loss(&self, frames: &Frames, labels: &[Vec<usize>]) -> Result<Tensor<1>> {
        let (states, lengths) = self.encode(frames)?;
        if labels.len() != lengths.len() {
            let reason = format!("{} for {} utterances", labels.len(), lengths.len());
            return Err(Error::invalid("labels", reason));
        }
        let [batch, length, _] = states.dims();
        let rows = labels.iter().map(Vec::len).max().unwrap_or(0) + 1;
        let states = drop_some(&self.dropout, states);
        let heard = rowwise(&self.joint_encoder, states.clone());
        let width = heard.dims()[2];
        let said = rowwise(&self.joint_memory, self.remember(labels, rows));
        let joint =
            tanh(heard.reshape([batch, length, 1, width]) + said.reshape([batch, 1, rows, width]));
        let joint = rowwise(&self.output, joint.reshape([batch, length * rows, width]));
        let joint = joint.reshape([batch as i32, length as i32, rows as i32, -1]);
        let loss = transducer_loss(joint, &lengths, labels)?.mean();
        if self.auxiliary == 0.0 {
            return Ok(loss);
        }
        let alone = ctc_loss(rowwise(&self.alone, states), &lengths, labels)?.mean();
        Ok(loss + alone * self.auxiliary)
    }

    /// The mean loss of the encoder alone, with labels spread evenly over the loud frames: a first guess
    /// to start with. `loudness` has one number per frame of each utterance, on any scale.
    pub fn spread_loss(
        &self,
        frames: &Frames,
        loudness: &[Vec<f32>],
        labels: &[Vec<usize>],
    ) -> Result<Tensor<1>> {
        let (states, lengths) = self.encode(frames)?;
        if [labels.len(), loudness.len()] != [lengths.len(); 2]
            || loudness.iter().zip(frames.lengths()).any(|(l, frames)| l.len() != *frames)
        {
            let reason = format!("not those of {} utterances", lengths.len());
            return Err(Error::invalid("labels and loudness", reason));
        }
        let scores = rowwise(&self.alone, drop_some(&self.dropout, states));
        let [batch, length, vocabulary] = scores.dims();
        let mut weights = vec![0.0; batch * length * vocabulary];
        for (b, (loudness, labels)) in loudness.iter().zip(labels).enumerate() {
            let symbols = spread(loudness, labels);
            // The same total weight as labels have, so that one learning rate suits both losses.
            let weight = labels.len().max(1) as f32 / (symbols.len() * batch) as f32;
            for (t, symbol) in symbols.into_iter().enumerate() {
                weights[(b * length + t) * vocabulary + symbol] = -weight;
            }
        }
        let weights = TensorData::new(weights, [batch, length, vocabulary]);
        let weights = Tensor::from_data(weights, &self.encoder.device());
        Ok((log_softmax(scores, 2) * weights).sum())
    }

    /// The output of the prediction network for the labels before each position, `[batch, rows, width]`.
    fn remember(&self, labels: &[Vec<usize>], rows: usize) -> Tensor<3> {
        let before = |back: usize| {
            let ids = labels.iter().flat_map(|labels| {
                (0..rows).map(move |u| match u.checked_sub(back) {
                    Some(place) => labels.get(place).copied().unwrap_or(BLANK) as i64,
                    None => BLANK as i64,
                })
            });
            let data = TensorData::new(ids.collect::<Vec<i64>>(), [labels.len(), rows]);
            let ids = Tensor::<2, Int>::from_data(data, &self.encoder.device());
            self.embedding.forward(ids)
        };
        let seen = Tensor::cat((1..=self.context()).map(before).collect(), 2);
        relu(rowwise(&self.memory, drop_some(&self.dropout, seen)))
    }

    /// The number of labels that the prediction network remembers.
    pub(super) fn context(&self) -> usize {
        self.memory.weight.val().dims()[0] / self.embedding.weight.val().dims()[1]
    }

    /// Another kind of attention with the same weights.
    pub fn set_attention(&mut self, options: LayerOptions) -> Result<()> {
        for (i, block) in self.encoder.blocks.iter_mut().enumerate() {
            block.attention.set_options(options.for_layer(i))?;
        }
        Ok(())
    }

    /// Attention by given maps from now on, of each block in their order.
    pub fn set_maps(&mut self, maps: Vec<GivenMaps>) -> Result<()> {
        let (given, blocks) = (maps.len(), self.encoder.blocks.len());
        if given != blocks {
            return Err(Error::invalid("maps", format!("those of {given} blocks for {blocks}")));
        }
        for (block, maps) in self.encoder.blocks.iter_mut().zip(maps) {
            block.attention.set_given(Some(maps))?;
        }
        Ok(())
    }

    /// Queries, keys and values of each block, `[batch, heads, frames / 4, dim]`, and the lengths there.
    pub fn heads(&self, frames: &Frames) -> Result<(Vec<[Tensor<4>; 3]>, Vec<usize>)> {
        self.encoder.heads(frames, &self.encoder.device())
    }
}

impl Model for Recogniser {
    fn device(&self) -> Device {
        self.encoder.device()
    }

    fn attentions(&self) -> Vec<&FavorAttention> {
        self.encoder.blocks.iter().map(|block| &block.attention).collect()
    }
}
