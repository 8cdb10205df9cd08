//! `favor asr train`.

use crate::commands::nn::{AttentionArguments, RedrawArguments, print, watched};
use crate::failure::Outcome;
use favor_nn::Positions;
use favor_speech::Units;
use favor_speech::audio::Augment;
use favor_speech::run::{Size, TrainOptions, TrainRequest, train};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor asr train --data speech/an4/train.jsonl --test speech/an4/test.jsonl --out an4
  favor asr train --data mine.jsonl --units characters --attention sde --features 32 --out mine";

/// Train a speech recogniser.
///
/// Trains on manifests of .wav, .flac or .npy (precomputed features) files. Prints the word error
/// rate on the test manifest at intervals and at the end; it does not influence training. Writes
/// model.safetensors and training.csv. Ctrl-C saves and stops; run the same command again to
/// resume.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Manifests to train on
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    data: Vec<PathBuf>,
    /// Manifest to evaluate on
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    #[command(flatten)]
    attention: AttentionArguments,
    #[command(flatten)]
    redraw: RedrawArguments,
    #[command(flatten)]
    training: TrainingArguments,
    /// Output folder for the model; created if missing
    #[arg(long, value_name = "DIR", default_value = "favor-asr")]
    out: PathBuf,
    /// Seed for weights, order, dropout, augmentation and random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// How to train.
#[derive(Debug, clap::Args)]
pub(super) struct TrainingArguments {
    /// Output units: words or characters
    #[arg(long, value_name = "NAME", default_value = "words")]
    units: Units,
    /// Size: tiny (3 blocks of width 96), small (4 of 144), or paper (20 of width 512, 8 heads)
    #[arg(long, value_name = "NAME", default_value = "tiny")]
    size: Size,
    /// Width, number of blocks and number of heads, instead of those of --size
    #[arg(long, value_name = "W,L,H", value_parser = crate::commands::nn::pretrain::shape)]
    shape: Option<[usize; 3]>,
    /// Convolution kernel in frames of 40 ms, odd; 1 leaves all context to attention
    #[arg(long, value_name = "N")]
    kernel: Option<usize>,
    /// Position encoding of attention: rotary, none, or relative (exact attention only)
    #[arg(long, value_name = "NAME", default_value = "rotary", value_parser = positions)]
    positions: Positions,
    /// Number of epochs
    #[arg(long, value_name = "N", default_value_t = TrainOptions::default().epochs)]
    epochs: u64,
    /// Utterances per step
    #[arg(long, value_name = "N", default_value_t = TrainOptions::default().batch)]
    batch: usize,
    /// Peak learning rate, after a warm-up over a tenth of the steps
    #[arg(long, value_name = "R", default_value_t = TrainOptions::default().rate)]
    rate: f64,
    /// Fraction of epochs, at the start, in which words are aligned evenly to the loud frames
    #[arg(long, value_name = "F", default_value_t = TrainOptions::default().spread)]
    spread: f64,
    /// Dropout rate
    #[arg(long, value_name = "F", default_value_t = TrainOptions::default().dropout)]
    dropout: f64,
    /// Evaluate on the test manifest every N epochs
    #[arg(long, value_name = "N", default_value_t = TrainOptions::default().judge)]
    judge: u64,
    /// Turn off augmentation (speed, noise, masks)
    #[arg(long)]
    no_augment: bool,
}

/// Dimensions of the distances of relative positions, as in the paper.
const DISTANCES: usize = 512;

fn positions(name: &str) -> Result<Positions, String> {
    match name {
        "rotary" => Ok(Positions::Rotary),
        "relative" => Ok(Positions::Relative(DISTANCES)),
        "none" => Ok(Positions::None),
        _ => Err("give rotary, relative or none".to_owned()),
    }
}

impl TrainingArguments {
    pub(super) fn options(&self, seed: u64) -> TrainOptions {
        let options = TrainOptions::default()
            .units(self.units)
            .size(self.size)
            .shape(self.shape)
            .kernel(self.kernel)
            .positions(self.positions)
            .dropout(self.dropout)
            .epochs(self.epochs)
            .batch(self.batch)
            .rate(self.rate)
            .spread(self.spread)
            .judge(self.judge)
            .seed(seed);
        if self.no_augment { options.augment(Augment::NONE) } else { options }
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let request = TrainRequest::new(self.data, self.out)
            .test(self.test)
            .attention(self.attention.training(self.seed, &self.redraw))
            .options(self.training.options(self.seed));
        let found = watched("asr", |watch| train(&request, watch))?;
        let minutes = found.epochs.iter().map(|e| e.seconds).sum::<f64>() / 60.0;
        let mut text = format!(
            "learned from {} utterances, {} times, in {minutes:.1} min; {} weights\n",
            found.utterances,
            found.epochs.len(),
            found.weights
        );
        for epoch in &found.epochs {
            if let Some(wer) = epoch.wer {
                let (n, loss) = (epoch.epoch, epoch.loss);
                text += &format!("epoch {n}: loss {loss:.3}, WER {:.1} %\n", 100.0 * wer);
            }
        }
        if let Some(errors) = &found.errors {
            text += &super::errors(errors);
        }
        print(&format!("{text}wrote {}\n", request.out.display()))
    }
}
