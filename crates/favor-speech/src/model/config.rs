//! The shape of a speech recogniser.

use crate::{Error, Result};
use favor_io::setters;
use favor_nn::Positions;
use serde::{Deserialize, Serialize};

/// The shape of a [`Recogniser`](super::Recogniser).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SpeechConfig {
    /// Entries per frame.
    pub input: usize,
    /// The number of symbols, including the blank.
    pub vocabulary: usize,
    /// The width of the encoder.
    pub width: usize,
    /// The number of Conformer blocks.
    pub layers: usize,
    /// The number of attention heads.
    pub heads: usize,
    /// The inner width of a feed-forward half, as a multiple of the width.
    pub feed: usize,
    /// Frames that the convolution of a block sees, after subsampling; odd.
    pub kernel: usize,
    /// How attention encodes positions.
    pub positions: Positions,
    /// The number of labels that the prediction network remembers. It must distinguish the first of two
    /// equal words from the second if both end in the same frame: two words are enough for that, two
    /// characters are not.
    pub context: usize,
    /// The width of the prediction network.
    pub prediction: usize,
    /// The width in which encoder and prediction network meet.
    pub joint: usize,
    /// The dropout rate.
    pub dropout: f64,
    /// The weight of the encoder's own loss (connectionist temporal classification) in training.
    pub auxiliary: f64,
}

setters! { SpeechConfig {
    input: usize,
    vocabulary: usize,
    width: usize,
    layers: usize,
    heads: usize,
    feed: usize,
    kernel: usize,
    positions: Positions,
    context: usize,
    prediction: usize,
    joint: usize,
    dropout: f64,
    auxiliary: f64,
} }

impl SpeechConfig {
    /// A recogniser with some two million weights.
    pub fn small(input: usize, vocabulary: usize) -> Self {
        Self {
            input,
            vocabulary,
            width: 144,
            layers: 4,
            heads: 4,
            feed: 4,
            kernel: 15,
            positions: Positions::Rotary,
            context: 2,
            prediction: 128,
            joint: 160,
            dropout: 0.1,
            auxiliary: 0.3,
        }
    }

    /// A recogniser with less than a million weights, for an hour of speech or less.
    pub fn tiny(input: usize, vocabulary: usize) -> Self {
        Self { width: 96, layers: 3, ..Self::small(input, vocabulary) }
    }

    /// The paper's: 20 blocks of width 512 with 8 heads. Exact attention can use its relative positions
    /// of 512 dimensions ([`Positions::Relative`]); the others rotate queries and keys.
    pub fn paper(input: usize, vocabulary: usize) -> Self {
        Self {
            width: 512,
            layers: 20,
            heads: 8,
            kernel: 31,
            prediction: 640,
            joint: 640,
            ..Self::small(input, vocabulary)
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what, reason: String| Err(Error::invalid(what, reason));
        let sizes = [self.input, self.width, self.layers, self.heads, self.feed, self.context];
        if sizes.contains(&0) || self.prediction == 0 || self.joint == 0 {
            return refuse("model", format!("a size of zero in {self:?}"));
        }
        if self.vocabulary < 2 {
            return refuse("vocabulary", "there must be a blank and at least one symbol".into());
        }
        if self.kernel.is_multiple_of(2) {
            return refuse("kernel", format!("{} frames have no middle", self.kernel));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return refuse("dropout", format!("{} is not from 0 to below 1", self.dropout));
        }
        if !(self.auxiliary.is_finite() && self.auxiliary >= 0.0) {
            return refuse("auxiliary", format!("{} is not 0 or more", self.auxiliary));
        }
        Ok(())
    }
}
