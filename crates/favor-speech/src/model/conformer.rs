//! The encoder: subsampling by convolution, and Conformer blocks (A. Gulati et al., "Conformer", 2020).
//!
//! The batch norm of the original convolution module would mix utterances of a batch and their padding;
//! here it is layer norm, so an utterance's result depends on nothing but itself.

use super::config::SpeechConfig;
use super::depthwise::depthwise;
use super::frames::{Frames, clear};
use crate::Result;
use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig, Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use favor_nn::attention::KeyMask;
use favor_nn::host::{Norm, drop_some, rowwise, sigmoid, silu};
use favor_nn::{FavorAttention, FavorAttentionConfig, LayerOptions};

const XAVIER: Initializer = Initializer::XavierUniform { gain: 1.0 };

/// A matrix with new weights and a zero bias.
pub(super) fn linear(from: usize, to: usize, device: &Device) -> Linear {
    let mut linear =
        LinearConfig::new(from, to).with_bias(false).with_initializer(XAVIER).init(device);
    linear.bias = Some(Initializer::Zeros.init([to], device));
    linear
}

fn norm(width: usize, device: &Device) -> Norm {
    Norm::new(width, 1e-5, device)
}

/// Two convolutions over time with a stride of two and three taps each: four frames become one.
#[derive(Module, Debug)]
struct Subsampling {
    first: Linear,
    second: Linear,
    output: Linear,
    dropout: Dropout,
}

impl Subsampling {
    fn forward(&self, frames: &Frames, device: &Device) -> (Tensor<3>, Vec<usize>) {
        let halved = |lengths: &[usize]| lengths.iter().map(|l| l.div_ceil(2)).collect::<Vec<_>>();
        let x = rowwise(&self.first, halve(frames.tensor(device)));
        let lengths = halved(frames.lengths());
        let x = rowwise(&self.second, halve(clear(silu(x), &lengths)));
        (drop_some(&self.dropout, rowwise(&self.output, silu(x))), halved(&lengths))
    }
}

/// The three frames that make each frame at half the rate, side by side: the last one of the previous
/// pair, and the pair.
fn halve(x: Tensor<3>) -> Tensor<3> {
    let [batch, length, dim] = x.dims();
    let pairs = x.reshape([batch, length / 2, 2 * dim]);
    let mut before = vec![Tensor::zeros([batch, 1, dim], &pairs.device())];
    // A tensor cannot be empty, and a single pair has none before it.
    if length > 2 {
        before.push(pairs.clone().narrow(2, dim, dim).narrow(1, 0, length / 2 - 1));
    }
    Tensor::cat(vec![Tensor::cat(before, 1), pairs], 2)
}

/// Two matrices with an activation between them.
#[derive(Module, Debug)]
struct Feed {
    norm: Norm,
    inner: Linear,
    outer: Linear,
    dropout: Dropout,
}

impl Feed {
    fn new(config: &SpeechConfig, device: &Device) -> Self {
        let (width, inner) = (config.width, config.feed * config.width);
        Self {
            norm: norm(width, device),
            inner: linear(width, inner, device),
            outer: linear(inner, width, device),
            dropout: DropoutConfig::new(config.dropout).init(),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let inner = silu(rowwise(&self.inner, self.norm.forward(x)));
        drop_some(&self.dropout, rowwise(&self.outer, inner))
    }
}

/// A depth-wise convolution over neighbouring frames, between two matrices.
#[derive(Module, Debug)]
struct Convolution {
    norm: Norm,
    value: Linear,
    gate: Linear,
    kernel: Param<Tensor<2>>,
    inner_norm: Norm,
    output: Linear,
    dropout: Dropout,
}

impl Convolution {
    fn new(config: &SpeechConfig, device: &Device) -> Self {
        let width = config.width;
        let bound = (config.kernel as f64).sqrt().recip();
        Self {
            norm: norm(width, device),
            value: linear(width, width, device),
            gate: linear(width, width, device),
            kernel: Initializer::Uniform { min: -bound, max: bound }
                .init([config.kernel, width], device),
            inner_norm: norm(width, device),
            output: linear(width, width, device),
            dropout: DropoutConfig::new(config.dropout).init(),
        }
    }

    fn forward(&self, x: Tensor<3>, lengths: &[usize]) -> Result<Tensor<3>> {
        let x = self.norm.forward(x);
        let gated = rowwise(&self.value, x.clone()) * sigmoid(rowwise(&self.gate, x));
        let mixed = depthwise(gated, self.kernel.val(), lengths)?;
        let out = rowwise(&self.output, silu(self.inner_norm.forward(mixed)));
        Ok(drop_some(&self.dropout, out))
    }
}

/// Half a feed-forward, attention, convolution, half a feed-forward; each added to its input.
#[derive(Module, Debug)]
pub struct Block {
    first: Feed,
    attention_norm: Norm,
    pub(super) attention: FavorAttention,
    convolution: Convolution,
    second: Feed,
    norm: Norm,
    dropout: Dropout,
}

impl Block {
    fn new(config: &SpeechConfig, options: LayerOptions, device: &Device) -> Result<Self> {
        let attention = FavorAttentionConfig::new(config.width, config.heads)
            .attention(options)
            .positions(config.positions);
        Ok(Self {
            first: Feed::new(config, device),
            attention_norm: norm(config.width, device),
            attention: attention.init(&XAVIER, device)?,
            convolution: Convolution::new(config, device),
            second: Feed::new(config, device),
            norm: norm(config.width, device),
            dropout: DropoutConfig::new(config.dropout).init(),
        })
    }

    /// What attention is added to, and what it looks at.
    fn halfway(&self, x: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
        let x = x.clone() + self.first.forward(x) * 0.5;
        let seen = self.attention_norm.forward(x.clone());
        (x, seen)
    }

    /// Queries, keys and values.
    fn heads(&self, x: Tensor<3>) -> [Tensor<4>; 3] {
        let (_, seen) = self.halfway(x);
        self.attention.heads(seen.clone(), seen.clone(), seen)
    }

    fn forward(
        &self,
        x: Tensor<3>,
        lengths: &[usize],
        mask: Option<&KeyMask>,
    ) -> Result<Tensor<3>> {
        let (x, seen) = self.halfway(x);
        let attended = self.attention.forward(seen, mask, false)?;
        let x = x + drop_some(&self.dropout, attended);
        let x = x.clone() + self.convolution.forward(x, lengths)?;
        let x = x.clone() + self.second.forward(x) * 0.5;
        Ok(self.norm.forward(x))
    }
}

/// Frames in, one vector for every four of them out.
#[derive(Module, Debug)]
pub struct Conformer {
    subsampling: Subsampling,
    pub(super) blocks: Vec<Block>,
}

impl Conformer {
    pub(super) fn new(
        config: &SpeechConfig,
        options: LayerOptions,
        device: &Device,
    ) -> Result<Self> {
        let width = config.width;
        let block = |i: usize| Block::new(config, options.for_layer(i), device);
        Ok(Self {
            subsampling: Subsampling {
                first: linear(3 * config.input, width, device),
                second: linear(3 * width, width, device),
                output: linear(width, width, device),
                dropout: DropoutConfig::new(config.dropout).init(),
            },
            blocks: (0..config.layers).map(block).collect::<Result<_>>()?,
        })
    }

    /// `[batch, frames / 4, width]` and the lengths there. Rows at padding hold anything.
    pub(super) fn forward(
        &self,
        frames: &Frames,
        device: &Device,
    ) -> Result<(Tensor<3>, Vec<usize>)> {
        self.pass(frames, device, |_, _| ())
    }

    /// Queries, keys and values of each block, and the lengths.
    pub(super) fn heads(
        &self,
        frames: &Frames,
        device: &Device,
    ) -> Result<(Vec<[Tensor<4>; 3]>, Vec<usize>)> {
        let mut out = Vec::new();
        let (_, lengths) =
            self.pass(frames, device, |block, x| out.push(block.heads(x.clone())))?;
        Ok((out, lengths))
    }

    /// Through all blocks; `each` is told what goes into them.
    fn pass(
        &self,
        frames: &Frames,
        device: &Device,
        mut each: impl FnMut(&Block, &Tensor<3>),
    ) -> Result<(Tensor<3>, Vec<usize>)> {
        let (mut x, lengths) = self.subsampling.forward(frames, device);
        let length = x.dims()[1];
        let padded = lengths.iter().any(|l| *l < length);
        let mask = padded.then(|| KeyMask::of_lengths(&lengths, length));
        for block in &self.blocks {
            each(block, &x);
            x = block.forward(x, &lengths, mask.as_ref())?;
        }
        Ok((x, lengths))
    }

    /// Entries per frame.
    pub(super) fn input(&self) -> usize {
        self.subsampling.first.weight.val().dims()[0] / 3
    }

    pub(super) fn device(&self) -> Device {
        self.subsampling.first.weight.val().device()
    }
}
