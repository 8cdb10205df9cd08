//! `favor convert`.

use super::{glue_tasks, print, watched};
use crate::failure::Outcome;
use crate::routed::Routed;
use favor::ExactKeys;
use favor_io::data::data_folder;
use favor_nn::Attention;
use favor_nn::run::{ConvertOptions, ConvertRequest, Source, convert};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const EXAMPLES: &str = "Examples:
  favor convert --model minilm --texts wiki.txt.gz --near 16 --routed 4x8 --out minilm-linear
  favor convert --model stsb --task stsb --budget 15m --out stsb-linear
  favor convert --model stsb --task stsb --attention sde --skip values --out stsb-sde";

/// What the card of a converted model says of the other commands.
const CARD_NOTE: &str =
    "`favor embed --model FOLDER` and `favor finetune --model FOLDER` open it as it is.";

/// Convert a trained BERT to linear-time attention.
///
/// The original model, with exact attention, is the teacher. Each head first learns a map from its
/// own queries and keys (stage learn). Then the maps alone (maps), the maps with values and output
/// projections (values), and all weights (weights) are trained to match the teacher's hidden states
/// and outputs; any texts will do, and no labels are needed. With --task, a last stage (task)
/// trains on labels as well as the teacher's outputs. Every stage reports how far the model is from
/// the exact one on held-out texts, and with --texts stops early when that distance no longer falls.
/// With --task it does all its steps: the exact model knows the examples of a task by heart.
///
/// The output folder opens in transformers. The maps are in favor_sharp.safetensors next to the
/// weights, and README.md says what was done. Ctrl-C saves and stops; run the same command again to
/// resume.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Folder of the exact model, with its tokenizer
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Text files, or folders of .txt and .txt.gz files, to train on
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "task")]
    texts: Vec<PathBuf>,
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "texts", help = task_help())]
    task: Option<String>,
    /// Attention: learned, a family such as balanced or sde, elu or relu
    #[arg(long, value_name = "NAME", default_value_t = usual().attention)]
    attention: Attention,
    /// Number of features per head
    #[arg(long, value_name = "M", default_value_t = usual().features)]
    features: usize,
    /// Attend exactly to keys at most this far from the query
    #[arg(long, value_name = "N", default_value_t = 0)]
    near: usize,
    /// Attend exactly to the members of each query's preferred slots, slots × members
    #[arg(long, value_name = "SxM")]
    routed: Option<Routed>,
    /// Comma-separated layers to convert, counted from 0 [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    layers: Option<Vec<usize>>,
    /// Keep exact the N heads whose features do the most harm
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_exact: usize,
    /// Turn the features off and use the exact keys alone, as a control
    #[arg(long)]
    exact_alone: bool,
    /// Comma-separated stages to skip: learn, maps, values, weights, task
    #[arg(long, value_name = "STAGE,…", value_delimiter = ',')]
    skip: Vec<Stage>,
    /// Solve for the output projections by least squares before training
    #[arg(long)]
    repair: bool,
    /// Scale all stages so that they take about this long in total, as in 90s, 15m or 2h
    #[arg(long, value_name = "TIME")]
    budget: Option<Budget>,
    /// Steps for each head to learn its map
    #[arg(long, value_name = "N", default_value_t = ConvertOptions::default().learn)]
    learn: u64,
    /// Steps of distillation: an eighth on maps, an eighth on values, the rest on all weights
    #[arg(long, value_name = "N", default_value_t = ConvertOptions::STEPS)]
    steps: u64,
    /// Epochs over the labelled examples of a task
    #[arg(long, value_name = "N", default_value_t = ConvertOptions::default().epochs)]
    epochs: u64,
    /// Texts per step
    #[arg(long, value_name = "N", default_value_t = ConvertOptions::default().batch)]
    batch: usize,
    /// Truncate texts to this many tokens
    #[arg(long, value_name = "N", default_value_t = ConvertOptions::default().length)]
    length: usize,
    /// Peak learning rate of the weights; maps learn 1.5 times as fast
    #[arg(long, value_name = "R", default_value_t = ConvertOptions::default().rate)]
    rate: f64,
    /// Folder with glue/ [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Output folder for the converted model; created if missing
    #[arg(long, value_name = "DIR", default_value = "favor-converted")]
    out: PathBuf,
    /// Seed for random features, the order of texts and dropout
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

fn task_help() -> String {
    let names = glue_tasks();
    format!("Task: {names}, or a file as for favor finetune; the model must be fine-tuned on it")
}

/// A stage that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Stage {
    Learn,
    Maps,
    Values,
    Weights,
    Task,
}

/// A time with its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Budget(Duration);

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || "give a time with its unit, as in 90s, 15m or 2h".to_owned();
        let unit = match text.chars().last() {
            Some('s') => 1.0,
            Some('m') => 60.0,
            Some('h') => 3600.0,
            _ => return Err(wanted()),
        };
        let count: f64 = text[..text.len() - 1].parse().map_err(|_| wanted())?;
        let seconds = count * unit;
        if !(seconds > 0.0 && seconds < 1e8) {
            return Err(wanted());
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

/// What is done if nothing else is asked for.
fn usual() -> ConvertRequest {
    ConvertRequest::new("", Source::Texts(vec![]), "")
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let Routed { slots, members } = self.routed.unwrap_or(Routed { slots: 0, members: 0 });
        let unless = |stage: Stage, n: u64| if self.skip.contains(&stage) { 0 } else { n };
        let options = ConvertOptions::default().steps(self.steps);
        let options = options
            .learn(unless(Stage::Learn, self.learn))
            .repair(self.repair)
            .maps(unless(Stage::Maps, options.maps))
            .values(unless(Stage::Values, options.values))
            .weights(unless(Stage::Weights, options.weights))
            .epochs(unless(Stage::Task, self.epochs))
            .batch(self.batch)
            .length(self.length)
            .rate(self.rate)
            .seed(self.seed)
            .budget(self.budget.map(|Budget(time)| time));
        let source = match self.task {
            Some(task) => Source::Task(task),
            None => Source::Texts(self.texts),
        };
        let request = ConvertRequest::new(self.model, source, self.out)
            .data(data_folder(self.data).path)
            .attention(self.attention)
            .features(self.features)
            .exact(ExactKeys::NONE.near(self.near).routed(slots, members))
            .layers(self.layers)
            .keep_exact(self.keep_exact)
            .exact_alone(self.exact_alone)
            .card_note(Some(CARD_NOTE.to_owned()))
            .options(options);
        let found = watched("convert", |watch| convert(&request, watch))?;
        print(&format!("{}wrote {}\n", found.to_text(), request.out.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!("90s".parse(), Ok(Budget(Duration::from_secs(90))));
        assert_eq!("1.5m".parse(), Ok(Budget(Duration::from_secs(90))));
        assert_eq!("2h".parse(), Ok(Budget(Duration::from_secs(7200))));
        for text in ["", "15", "m", "-1m", "0s", "nans", "1d", "1é"] {
            assert!(text.parse::<Budget>().unwrap_err().contains("15m"), "{text}");
        }
    }
}
