//! `favor asr import`.

use crate::commands::nn::print;
use crate::failure::Outcome;
use favor_io::data::data_folder;
use favor_speech::{Corpus, import};
use std::path::PathBuf;

/// Convert a public corpus to audio files and manifests.
///
/// A manifest is a file of JSON lines, {"path": …, "text": …, "duration": …}, with paths relative
/// to its folder. To use your own speech, write one for it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  favor asr import an4 --out speech")]
pub(crate) struct Arguments {
    /// an4, fsdd, audiomnist, ljspeech, or digits: strings of digits from fsdd and audiomnist
    corpus: Corpus,
    /// Folder with speech/ [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Output folder; a subfolder named after the corpus is created in it
    #[arg(long, value_name = "DIR", default_value = "favor-speech")]
    out: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let data = data_folder(self.data).path.join("speech");
        let written = import(self.corpus, &data, &self.out)?;
        let lines = written.iter().map(|(path, n)| format!("{}: {n} utterances\n", path.display()));
        print(&lines.collect::<String>())
    }
}
