//! `favor asr nst`.

use super::train::TrainingArguments;
use crate::commands::nn::{AttentionArguments, RedrawArguments, print, watched};
use crate::failure::Outcome;
use favor_speech::run::{NstRequest, nst};
use std::path::PathBuf;

const EXAMPLES: &str = "Example:
  favor asr nst --labelled speech/fsdd/train.jsonl --unlabelled speech/audiomnist/unlabelled.jsonl \\
    --test speech/audiomnist/all.jsonl --epochs 10 --out students";

/// Train noisy students, which also learn from unlabelled utterances.
///
/// A teacher learns from the labelled utterances and labels the others. A student learns from the
/// labelled ones and those the teacher was sure of, all augmented at random, and becomes the
/// teacher of the next student. Ctrl-C saves and stops; run the same command again to resume.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Manifest of labelled utterances
    #[arg(long, value_name = "FILE")]
    labelled: PathBuf,
    /// Manifest of unlabelled utterances; any texts in it are ignored
    #[arg(long, value_name = "FILE")]
    unlabelled: PathBuf,
    /// Manifest to evaluate on
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    #[command(flatten)]
    attention: AttentionArguments,
    #[command(flatten)]
    redraw: RedrawArguments,
    #[command(flatten)]
    training: TrainingArguments,
    /// Number of students after the first teacher
    #[arg(long, value_name = "N", default_value_t = usual().generations)]
    generations: u64,
    /// Minimum confidence of the teacher for a label to be used, from 0 to 1
    #[arg(long, value_name = "P", default_value_t = usual().confidence)]
    confidence: f64,
    /// Output folder, with one subfolder per generation; created if missing
    #[arg(long, value_name = "DIR", default_value = "favor-nst")]
    out: PathBuf,
    /// Seed for weights, order, dropout, augmentation and random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// What is done if nothing else is asked for.
fn usual() -> NstRequest {
    NstRequest::new("", "", "")
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let request = NstRequest::new(self.labelled, self.unlabelled, self.out)
            .test(self.test)
            .attention(self.attention.training(self.seed, &self.redraw))
            .options(self.training.options(self.seed))
            .generations(self.generations)
            .confidence(self.confidence);
        let found = watched("nst", |watch| nst(&request, watch))?;
        let mut text = String::new();
        for one in &found {
            let [sure, all] = one.labelled;
            let with = match one.generation {
                0 => "labelled utterances only".to_owned(),
                _ => format!("{sure} of {all} labels of its teacher"),
            };
            let wer = one.errors.as_ref().map(|e| format!(", WER {}", super::percent(&e.words)));
            text += &format!("generation {}: {with}{}\n", one.generation, wer.unwrap_or_default());
        }
        print(&format!("{text}wrote {}\n", request.out.display()))
    }
}
