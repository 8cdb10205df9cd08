//! `favor pretrain`.

use super::{AttentionArguments, RedrawArguments, print, watched};
use crate::failure::Outcome;
use favor_nn::run::{PretrainRequest, pretrain};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor pretrain --corpus speeches --model minilm --attention balanced --steps 500
  favor pretrain --corpus speeches --model minilm --new 256,4,8 --steps 5000 --rate 5e-4";

/// Pretrain a BERT to predict masked tokens.
///
/// The model predicts 15 % of the tokens; of these, 80 % are masked, 10 % replaced and 10 % left
/// unchanged. One piece of text in 20 is held out for validation. The model is written in the
/// format of transformers. Ctrl-C saves and stops; run the same command again to resume.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A folder of .txt or .txt.gz files, or one such file
    #[arg(long, value_name = "DIR")]
    corpus: PathBuf,
    /// Folder of the model to start from; with --new only its tokenizer is used
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Start from new weights with this width, number of layers and number of heads
    #[arg(long, value_name = "W,L,H", value_parser = shape)]
    new: Option<[usize; 3]>,
    #[command(flatten)]
    attention: AttentionArguments,
    #[command(flatten)]
    redraw: RedrawArguments,
    /// Total number of steps
    #[arg(long, value_name = "N", default_value_t = usual().steps)]
    steps: u64,
    /// Pieces of text per step
    #[arg(long, value_name = "N", default_value_t = usual().batch)]
    batch: usize,
    /// Tokens per piece
    #[arg(long, value_name = "N", default_value_t = usual().length)]
    length: usize,
    /// Peak learning rate
    #[arg(long, value_name = "R", default_value_t = usual().rate)]
    rate: f64,
    /// Fraction of the steps for warm-up
    #[arg(long, value_name = "F", default_value_t = usual().warmup)]
    warmup: f64,
    /// Output folder for the model; created if missing
    #[arg(long, value_name = "DIR", default_value = "favor-pretrained")]
    out: PathBuf,
    /// Seed for new weights, the order of texts, masks, dropout and random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// What is done if nothing else is asked for.
fn usual() -> PretrainRequest {
    PretrainRequest::new("", "", "")
}

pub(in super::super) fn shape(text: &str) -> Result<[usize; 3], String> {
    let parts: Vec<usize> = text.split(',').filter_map(|p| p.trim().parse().ok()).collect();
    parts.try_into().map_err(|_| "expected width, layers and heads, as in 256,4,8".to_owned())
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let request = PretrainRequest::new(self.corpus, self.model, self.out)
            .attention(self.attention.training(self.seed, &self.redraw))
            .shape(self.new)
            .steps(self.steps)
            .batch(self.batch)
            .length(self.length)
            .rate(self.rate)
            .warmup(self.warmup)
            .seed(self.seed);
        let found = watched("pretrain", |watch| pretrain(&request, watch))?;
        let [learned, judged] = found.pieces;
        print(&format!(
            "learned from {learned} pieces of text, judged by {judged}\nmasked tokens: loss {:.3}, \
             {:.1} % guessed right\nwrote {}\n",
            found.loss,
            100.0 * found.accuracy,
            request.out.display()
        ))
    }
}
