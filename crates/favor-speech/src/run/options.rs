//! How a recogniser is trained.

use crate::audio::Augment;
use crate::{Error, Result, SpeechConfig, Units};
use favor_io::setters;
use favor_nn::Positions;
use serde::{Deserialize, Serialize};

/// The number of characters that the prediction network remembers, if labels are characters.
const CHARACTERS: usize = 5;

/// How large a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// [`SpeechConfig::tiny`].
    Tiny,
    /// [`SpeechConfig::small`].
    Small,
    /// [`SpeechConfig::paper`].
    Paper,
}

impl std::str::FromStr for Size {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "tiny" => Ok(Self::Tiny),
            "small" => Ok(Self::Small),
            "paper" => Ok(Self::Paper),
            _ => {
                Err(Error::invalid("size", favor::unknown_name(name, &["tiny", "small", "paper"])))
            }
        }
    }
}

/// How to train.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrainOptions {
    /// The units of the labels.
    pub units: Units,
    /// How large the model is.
    pub size: Size,
    /// Another width, number of blocks and number of heads.
    pub shape: Option<[usize; 3]>,
    /// Another number of frames that the convolution of a block sees: with one, attention alone brings frames
    /// together.
    pub kernel: Option<usize>,
    /// How attention encodes positions.
    pub positions: Positions,
    /// The dropout rate.
    pub dropout: f64,
    /// The number of epochs.
    pub epochs: u64,
    /// Utterances per step.
    pub batch: usize,
    /// The peak learning rate.
    pub rate: f64,
    /// The fraction of steps in which the learning rate rises.
    pub warmup: f64,
    /// The fraction of epochs, at the start, in which words are spread evenly over loud frames.
    pub spread: f64,
    /// How utterances are augmented.
    pub augment: Augment,
    /// The test utterances are evaluated every this many epochs, and after the last.
    pub judge: u64,
    /// The seed of weights, order, dropout and augmentation.
    pub seed: u64,
}

setters! { TrainOptions {
    units: Units,
    size: Size,
    shape: Option<[usize; 3]>,
    kernel: Option<usize>,
    positions: Positions,
    dropout: f64,
    epochs: u64,
    batch: usize,
    rate: f64,
    warmup: f64,
    spread: f64,
    augment: Augment,
    judge: u64,
    seed: u64,
} }

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            units: Units::Words,
            size: Size::Tiny,
            shape: None,
            kernel: None,
            positions: Positions::Rotary,
            dropout: 0.1,
            epochs: 40,
            batch: 8,
            rate: 2e-3,
            warmup: 0.1,
            spread: 0.1,
            augment: Augment::default(),
            judge: 5,
            seed: 0,
        }
    }
}

impl TrainOptions {
    pub(super) fn check(&self) -> Result<()> {
        let counts = [self.epochs, self.batch as u64, self.judge].contains(&0);
        let Augment { speed, noise, .. } = self.augment;
        let fractions = [self.warmup, self.spread].iter().all(|f| (0.0..=1.0).contains(f));
        if counts || !fractions {
            let reason =
                "epochs, batch and judge must be above 0, the warm-up and the spread fractions";
            return Err(Error::invalid("training", reason));
        }
        if !(0.0..=0.5).contains(&speed) || !(0.0..=1.0).contains(&noise) {
            let reason = "speed is from 0 to 0.5 and noise a fraction";
            return Err(Error::invalid("augment", reason));
        }
        Ok(())
    }

    /// Epochs with a first guess of the alignment, for words only: characters vary more in length, and with
    /// it ten utterances were memorised later.
    pub(super) fn guessed_epochs(&self) -> u64 {
        match self.units {
            Units::Words => (self.spread * self.epochs as f64).round() as u64,
            Units::Characters => 0,
        }
    }

    pub(super) fn config(&self, input: usize, vocabulary: usize) -> SpeechConfig {
        let mut config = match self.size {
            Size::Tiny => SpeechConfig::tiny(input, vocabulary),
            Size::Small => SpeechConfig::small(input, vocabulary),
            Size::Paper => SpeechConfig::paper(input, vocabulary),
        };
        if let Some([width, layers, heads]) = self.shape {
            (config.width, config.layers, config.heads) = (width, layers, heads);
        }
        config.kernel = self.kernel.unwrap_or(config.kernel);
        (config.positions, config.dropout) = (self.positions, self.dropout);
        if self.units == Units::Characters {
            config.context = CHARACTERS;
        }
        config
    }
}
