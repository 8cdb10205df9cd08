//! `favor reproduce glue`.

use super::finetune::TuningArguments;
use super::{Redraw, print, watched};
use crate::failure::Outcome;
use favor_io::data::data_folder;
use favor_nn::Attention;
use favor_nn::run::{GlueRequest, glue, plan};
use favor_nn::task::Glue;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  favor reproduce glue --model minilm --dry-run
  favor reproduce glue --model minilm --tasks rte,mrpc --attentions exact,sde,balanced --seeds 1
  favor reproduce glue --model minilm --only-drop-in --features 16,64,256";

/// Compare the attentions on tasks of GLUE (Table 1).
///
/// Every attention begins with the weights of one model and is fine-tuned with the same settings.
/// Says beforehand how long each cell takes, and writes glue.csv and glue.md. Ctrl-C saves and stops;
/// the same command goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Folder of the model to begin with
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Tasks: cola, mrpc, rte, sst2, stsb, with commas
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "cola,mrpc,rte,stsb"
    )]
    tasks: Vec<Glue>,
    /// Attentions, with commas
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "exact,elu,relu,pos,ge,sade,sde,balanced"
    )]
    attentions: Vec<Attention>,
    /// Numbers of features, with commas
    #[arg(long, value_name = "M,…", value_delimiter = ',', default_value = "128")]
    features: Vec<usize>,
    /// Seeds of each cell, from 0
    #[arg(long, value_name = "N", default_value_t = 3)]
    seeds: u64,
    #[command(flatten)]
    tuning: TuningArguments,
    #[command(flatten)]
    redraw: Redraw,
    /// Leave out the column of STS-B where the attention is replaced without fine-tuning
    #[arg(long)]
    no_drop_in: bool,
    /// Only that column: no fine-tuning
    #[arg(long, conflicts_with_all = ["no_drop_in", "tasks"])]
    only_drop_in: bool,
    /// Only say how long it would take
    #[arg(long)]
    dry_run: bool,
    /// Folder with glue/ [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Folder for results; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "favor-glue")]
    out: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let request = GlueRequest::new(self.model, data_folder(self.data).path, self.out)
            .tasks(if self.only_drop_in { vec![] } else { self.tasks })
            .attentions(self.attentions)
            .features(self.features)
            .seeds(self.seeds)
            .options(self.tuning.options(0))
            .redraw(self.redraw.steps())
            .drop_in(!self.no_drop_in);
        let ahead = watched("glue", |watch| plan(&request, watch))?;
        print(&ahead.to_text())?;
        if self.dry_run {
            return Ok(());
        }
        let found = watched("glue", |watch| glue(&request, watch))?;
        let out = request.out.display();
        print(&format!("\n{}\nwrote {out}/glue.csv and {out}/glue.md\n", found.to_markdown()))
    }
}
