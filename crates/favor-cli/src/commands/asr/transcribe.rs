//! `favor asr transcribe`.

use crate::commands::nn::print;
use crate::failure::Outcome;
use crate::terminal::Bar;
use favor_speech::run::{TranscribeRequest, transcribe};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor asr transcribe an4 speech/an4/features/*.npy
  favor asr transcribe digits call.wav --pieces 10";

/// Transcribe audio files.
///
/// With --pieces, a long file is transcribed piece by piece in bounded memory, each piece with two
/// seconds of context on either side; the text so far goes to standard error.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Folder of the model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// .wav or .flac files, or .npy for models of precomputed features
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Beam width; 1 is greedy decoding
    #[arg(long, value_name = "N", default_value_t = 1)]
    beam: usize,
    /// Transcribe in pieces of this many seconds
    #[arg(long, value_name = "S")]
    pieces: Option<f64>,
    /// Also print the model's confidence, from 0 to 1
    #[arg(long)]
    confidence: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let request =
            TranscribeRequest::new(self.model, self.files).beam(self.beam).piece(self.pieces);
        let bar = Bar::new("transcribe");
        let partial = |text: &str| eprintln!("… {text}");
        let found = transcribe(&request, &|tick| bar.show(tick), &partial)?;
        drop(bar);
        let line = |spoken: &favor_speech::run::Spoken| {
            let sure =
                if self.confidence { format!("{:.3}\t", spoken.confidence) } else { String::new() };
            format!("{}\t{sure}{}\n", spoken.path.display(), spoken.text)
        };
        print(&found.iter().map(line).collect::<String>())
    }
}
