//! `favor asr`.

mod evaluate;
mod import;
mod nst;
pub(super) mod reproduce;
mod train;
mod transcribe;

use crate::failure::Outcome;

/// Recognise speech: train, transcribe, evaluate.
///
/// The recogniser is a Conformer-Transducer with any kind of attention.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Import(import::Arguments),
    Train(Box<train::Arguments>),
    Transcribe(transcribe::Arguments),
    Evaluate(evaluate::Arguments),
    Nst(Box<nst::Arguments>),
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        match self.command {
            Command::Import(arguments) => arguments.run(),
            Command::Train(arguments) => arguments.run(),
            Command::Transcribe(arguments) => arguments.run(),
            Command::Evaluate(arguments) => arguments.run(),
            Command::Nst(arguments) => arguments.run(),
        }
    }
}

/// A rate of errors with its range, in per cent.
fn percent(rate: &favor_speech::Rate) -> String {
    let [low, high] = rate.range;
    format!("{:.1} % ({:.1} to {:.1})", 100.0 * rate.value, 100.0 * low, 100.0 * high)
}

/// The errors of a set of utterances, a line each.
fn errors(errors: &favor_speech::Errors) -> String {
    let edits = errors.edits;
    format!(
        "word error rate        {}\nnormalised             {}\ncharacter error rate   {}\n\
         {} utterances, {} words: {} replaced, {} missing, {} added\n",
        percent(&errors.words),
        percent(&errors.normalised),
        percent(&errors.characters),
        errors.utterances,
        edits.truth,
        edits.replaced,
        edits.missing,
        edits.added
    )
}
