//! `favor asr nst`.

use super::train::TrainingArguments;
use crate::commands::nn::{AttentionArguments, Redraw, print, watched};
use crate::failure::Outcome;
use favor_speech::run::{NstRequest, nst};
use std::path::PathBuf;

const EXAMPLES: &str = "Example:
  favor asr nst --labelled speech/fsdd/train.jsonl --unlabelled speech/audiomnist/unlabelled.jsonl \\
    --test speech/audiomnist/all.jsonl --epochs 10 --out students";

/// Train noisy students: learn from utterances without labels too.
///
/// A teacher learns from the labelled utterances and labels the others. A student learns from the
/// labelled ones and from those of which the teacher was sure, all changed at random; then it is the
/// teacher of the next. Ctrl-C saves and stops; the same command goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Manifest with texts
    #[arg(long, value_name = "FILE")]
    labelled: PathBuf,
    /// Manifest without; texts in it are not looked at
    #[arg(long, value_name = "FILE")]
    unlabelled: PathBuf,
    /// Manifest to be judged by
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    #[command(flatten)]
    attention: AttentionArguments,
    #[command(flatten)]
    redraw: Redraw,
    #[command(flatten)]
    training: TrainingArguments,
    /// Students after the first teacher
    #[arg(long, value_name = "N", default_value_t = usual().generations)]
    generations: u64,
    /// Leave out labels of which the teacher was less sure, from 0 to 1
    #[arg(long, value_name = "P", default_value_t = usual().confidence)]
    confidence: f64,
    /// Folder for a folder of each generation; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "favor-nst")]
    out: PathBuf,
    /// Decides weights, order, dropout, changes of utterances and draws
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
