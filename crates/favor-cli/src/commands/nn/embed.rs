//! `favor embed`.

use super::{AttentionArguments, print};
use crate::failure::Outcome;
use crate::terminal::Bar;
use favor_io::write_atomically;
use favor_nn::run::{EmbedRequest, embed};
use favor_nn::{Error, Statistics};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor embed --model minilm texts.txt --out vectors.npy
  favor embed --model minilm --whole speeches/*.txt --length 32768 --attention balanced";

/// Embed texts with a BERT.
///
/// The vector of a text is the mean of its token vectors, scaled to unit length. A converted model
/// uses its own maps; otherwise, features are fitted to each text, so that its vector depends on
/// nothing else. Texts longer than the model's positions are truncated; with a larger --length the
/// positions are interpolated, which models are not trained for.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files with one text per line
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Folder with config.json, model.safetensors, and tokenizer.json or vocab.txt
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    #[command(flatten)]
    attention: AttentionArguments,
    /// Treat each file as one text
    #[arg(long)]
    whole: bool,
    /// Truncate texts to this many tokens [default: the model's positions]
    #[arg(long, value_name = "N")]
    length: Option<usize>,
    /// Texts per batch; fewer if they are long
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: usize,
    /// Do not scale vectors to unit length
    #[arg(long)]
    no_normalise: bool,
    /// File to write, .npy or .tsv [default: print one line per text]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seed for random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let npy = self.out.as_ref().is_some_and(|out| out.extension().is_some_and(|e| e == "npy"));
        let attention = self.attention.options(self.seed).statistics(Statistics::PerSequence);
        let request = EmbedRequest::new(&self.model, self.texts()?)
            .attention(self.attention.asked(attention))
            .length(self.length)
            .batch(self.batch)
            .normalise(!self.no_normalise);
        let bar = Bar::new("embed");
        let found = embed(&request, &|tick| bar.show(tick))?;
        drop(bar);
        for (count, what) in [
            (found.cut, "truncated; see --length"),
            (found.interpolated, "longer than the model's positions, which were interpolated"),
        ] {
            if count > 0 {
                eprintln!("favor: {count} of {} texts are {what}", found.vectors.len());
            }
        }
        let Some(out) = self.out else { return print(&found.to_tsv()) };
        let bytes = if npy { found.to_npy() } else { found.to_tsv().into_bytes() };
        write_atomically(&out, &bytes)?;
        let (texts, width) = (found.vectors.len(), found.vectors[0].len());
        print(&format!("wrote {texts} vectors of {width} numbers to {}\n", out.display()))
    }

    fn texts(&self) -> Result<Vec<String>, Error> {
        let mut texts = Vec::new();
        for path in &self.files {
            let text = favor_nn::text::read(path)?;
            if self.whole {
                texts.push(text);
            } else {
                texts.extend(text.lines().map(str::to_owned));
            }
        }
        Ok(texts)
    }
}
