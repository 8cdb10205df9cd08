//! `favor asr evaluate`.

use crate::commands::nn::{AttentionArguments, print};
use crate::failure::Outcome;
use crate::terminal::Bar;
use favor_speech::run::{EvaluateRequest, evaluate};
use std::path::PathBuf;

/// Compute error rates of a model on a manifest.
///
/// Texts are compared in lower case and without punctuation. The word error rate is the number of
/// words replaced, missing and added, divided by the number of words said. The normalised rate
/// divides by words said plus words added, so it never exceeds one. Parentheses hold 95 % bootstrap
/// intervals over utterances.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  favor asr evaluate an4 --data speech/an4/test.jsonl --beam 8")]
pub(crate) struct Arguments {
    /// Folder of the model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Manifest to evaluate on
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Replace the model's attention with that of --attention and --features
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    attention: AttentionArguments,
    /// Beam width; 1 is greedy decoding
    #[arg(long, value_name = "N", default_value_t = 1)]
    beam: usize,
    /// Print every utterance with an error: what was said and what was recognised
    #[arg(long)]
    list: bool,
    /// Seed for the intervals and random features
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let request = EvaluateRequest::new(self.model, self.data)
            .attention(self.replace.then(|| self.attention.options(self.seed)))
            .beam(self.beam)
            .seed(self.seed);
        let bar = Bar::new("evaluate");
        let found = evaluate(&request, &|tick| bar.show(tick))?;
        drop(bar);
        let mut text = String::new();
        for (said, heard) in found.utterances.iter().filter(|_| self.list) {
            let said = favor_speech::plain(said);
            if said != favor_speech::plain(&heard.text) {
                text += &format!(
                    "{}\n  said   {said}\n  heard  {}\n",
                    heard.path.display(),
                    heard.text
                );
            }
        }
        let [speech, time] = found.seconds;
        text += &super::errors(&found.errors);
        print(&format!("{text}{speech:.0} s of speech in {time:.1} s\n"))
    }
}
