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

/// Turn texts into vectors by a BERT.
///
/// The vector of a text is the mean of the vectors of its tokens, scaled to length one. A converted model
/// has maps of its own; other maps of features are fitted to each text, so that its vector depends on
/// nothing else. Texts longer than
/// the positions of the model are cut; with a greater --length the positions are interpolated, which
/// no model was trained for.
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
    /// Take each file as one text
    #[arg(long)]
    whole: bool,
    /// Cut texts to so many tokens [default: as many as the model has positions]
    #[arg(long, value_name = "N")]
    length: Option<usize>,
    /// Texts that go through the model together; fewer of long ones
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: usize,
    /// Leave vectors as long as they are
    #[arg(long)]
    no_normalise: bool,
    /// The file to write, .npy or .tsv; by default numbers are printed, one line per text
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Decides the draw of the features
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
            (found.cut, "cut to the length; see --length"),
            (found.interpolated, "longer than the model's positions, which are interpolated"),
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
