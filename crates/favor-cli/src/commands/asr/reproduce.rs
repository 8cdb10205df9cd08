//! `favor reproduce speech`.

use super::train::TrainingArguments;
use crate::commands::nn::{RedrawArguments, print, watched};
use crate::failure::Outcome;
use crate::list::List;
use favor_io::data::data_folder;
use favor_nn::Attention;
use favor_speech::Corpus;
use favor_speech::run::{Mode, SpeechRequest, plan, reproduce};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor reproduce speech --dry-run
  favor reproduce speech --modes trans --attentions exact,sde,ge --features 8 --seeds 1
  favor reproduce speech --corpus digits --kernel 1 --modes trans,replaced --attentions exact,mean,sde,ge";

/// Compare attention kinds in speech recognition (Figure 7).
///
/// Every kind is trained with the same settings: on all labels (trans), or with half of them hidden
/// and noisy student training (nst). Or it replaces the attention of a model trained with exact
/// attention, without further training (replaced; learned maps too). mean, the plain mean of the
/// values, is a control: where it is far behind, attention matters.
///
/// Estimates how long each cell takes, then writes speech.csv, speech.md and speech.svg. Ctrl-C
/// saves and stops; run the same command again to resume.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Corpus: an4, fsdd or digits
    #[arg(long, value_name = "NAME", default_value_t = usual().corpus)]
    corpus: Corpus,
    /// Comma-separated modes: trans, nst, replaced
    #[arg(long, value_name = "NAME,…", default_value_t = List(usual().modes))]
    modes: List<Mode>,
    /// Comma-separated kinds of attention
    #[arg(long, value_name = "NAME,…", default_value_t = List(usual().attentions))]
    attentions: List<Attention>,
    /// Comma-separated numbers of features
    #[arg(long, value_name = "M,…", default_value_t = List(usual().features))]
    features: List<usize>,
    /// Number of seeds per cell, starting from 0
    #[arg(long, value_name = "N", default_value_t = usual().seeds)]
    seeds: u64,
    #[command(flatten)]
    training: TrainingArguments,
    #[command(flatten)]
    redraw: RedrawArguments,
    /// Number of students after the first teacher (nst)
    #[arg(long, value_name = "N", default_value_t = usual().generations)]
    generations: u64,
    /// Minimum confidence of the teacher for a label to be used, from 0 to 1 (nst)
    #[arg(long, value_name = "P", default_value_t = usual().confidence)]
    confidence: f64,
    /// Only estimate how long it would take
    #[arg(long)]
    dry_run: bool,
    /// Folder with speech/ [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Output folder; created if missing
    #[arg(long, value_name = "DIR", default_value = "favor-speech")]
    out: PathBuf,
}

/// What is done if nothing else is asked for.
fn usual() -> SpeechRequest {
    SpeechRequest::new("", "")
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let request = SpeechRequest::new(data_folder(self.data).path.join("speech"), self.out)
            .corpus(self.corpus)
            .modes(self.modes.0)
            .attentions(self.attentions.0)
            .features(self.features.0)
            .seeds(self.seeds)
            .options(self.training.options(0))
            .redraw(self.redraw.redraw())
            .generations(self.generations)
            .confidence(self.confidence);
        let ahead = watched("speech", |watch| plan(&request, watch))?;
        print(&ahead.to_text())?;
        if self.dry_run {
            return Ok(());
        }
        let found = watched("speech", |watch| reproduce(&request, watch))?;
        let out = request.out.display();
        let files = format!("{out}/speech.csv, {out}/speech.md and {out}/speech.svg");
        print(&format!("\n{}\nwrote {files}\n", found.to_markdown()))
    }
}
