//! `favor finetune`.

use super::{AttentionArguments, RedrawArguments, glue_tasks, print, watched};
use crate::failure::Outcome;
use favor_io::data::data_folder;
use favor_nn::run::{FinetuneRequest, TuningOptions, finetune};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor finetune --model minilm --task rte --attention balanced --out rte
  favor finetune --model minilm --task reviews.tsv --epochs 5";

/// Fine-tune a BERT on a GLUE task, or one of your own.
///
/// Prints the score on the validation set after each epoch: Matthews correlation for CoLA, F1 for
/// MRPC, accuracy for RTE, SST-2 and files with a label column, Spearman correlation for STS-B and
/// files with a score column. The model is written in the format of transformers. Ctrl-C saves and
/// stops; run the same command again to resume.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Folder with config.json, model.safetensors, and tokenizer.json or vocab.txt
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    #[arg(long, value_name = "NAME|FILE", help = task_help())]
    task: String,
    #[command(flatten)]
    attention: AttentionArguments,
    #[command(flatten)]
    redraw: RedrawArguments,
    #[command(flatten)]
    tuning: TuningArguments,
    /// Folder with glue/ [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Output folder for the model; created if missing
    #[arg(long, value_name = "DIR", default_value = "favor-finetuned")]
    out: PathBuf,
    /// Seed for new weights, the order of examples, dropout and random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

fn task_help() -> String {
    format!(
        "Task: {}, or a file of tab-separated columns whose first line names sentence (or \
         sentence1 and sentence2) and label or score",
        glue_tasks()
    )
}

/// How to fine-tune.
#[derive(Debug, clap::Args)]
pub(super) struct TuningArguments {
    /// Number of epochs
    #[arg(long, value_name = "N", default_value_t = TuningOptions::default().epochs)]
    epochs: u64,
    /// Examples per step
    #[arg(long, value_name = "N", default_value_t = TuningOptions::default().batch)]
    batch: usize,
    /// Peak learning rate, after a warm-up over a tenth of the steps
    #[arg(long, value_name = "R", default_value_t = TuningOptions::default().rate)]
    rate: f64,
    /// Truncate texts to this many tokens
    #[arg(long, value_name = "N", default_value_t = TuningOptions::default().length)]
    length: usize,
    /// Train on the first N examples only, for a trial run
    #[arg(long, value_name = "N")]
    examples: Option<usize>,
}

impl TuningArguments {
    pub(super) fn options(&self, seed: u64) -> TuningOptions {
        TuningOptions::default()
            .epochs(self.epochs)
            .batch(self.batch)
            .rate(self.rate)
            .length(self.length)
            .examples(self.examples)
            .seed(seed)
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let request = FinetuneRequest::new(self.model, self.task, self.out)
            .data(data_folder(self.data).path)
            .attention(self.attention.asked(self.attention.training(self.seed, &self.redraw)))
            .options(self.tuning.options(self.seed));
        let found = watched("finetune", |watch| finetune(&request, watch))?;
        let [train, dev] = found.examples;
        let mut text = format!("learned from {train} examples, judged by {dev}\n");
        let first = request.options.epochs as usize - found.scores.len();
        for (i, score) in found.scores.iter().enumerate() {
            let percent = 100.0 * score;
            text += &format!("epoch {}: {} {percent:.1}\n", first + i + 1, found.metric);
        }
        print(&format!("{text}wrote {}\n", request.out.display()))
    }
}
