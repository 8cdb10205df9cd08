//! `favor reproduce glue`.

use super::{glue_tasks, print, watched};
use crate::failure::Outcome;
use crate::list::List;
use favor_io::data::data_folder;
use favor_nn::run::{
    ConvertOptions, GlueRequest, Variant, glue, glue_cell, glue_in_processes, plan,
};
use favor_nn::task::Glue;
use std::path::PathBuf;
use std::process::Command;

const EXAMPLES: &str = "Examples:
  favor reproduce glue --model minilm --dry-run
  favor reproduce glue --model minilm --tasks stsb --attentions exact,balanced,learned,learned+4+2x4 --seeds 1
  favor reproduce glue --model minilm --rates 5e-5,1e-4,2e-4 --epochs 4,8 --jobs 2
  favor reproduce glue --model minilm --only-drop-in --features 16,64,256";

/// Compare attention kinds on GLUE tasks (Table 1).
///
/// Every kind is treated alike: the exact model is fine-tuned on a task, converted with the same
/// number of steps (see favor convert), and evaluated; random features are drawn once. If several
/// rates or epochs are given, the best for exact attention are chosen first, on part of the
/// training set. A kind can have exact keys: learned+4+2x4 has a window of ±4 and two slots of four
/// members, keys+4+2x4 has these keys alone.
///
/// Estimates how long each cell takes, then writes glue.csv and glue.md. Ctrl-C saves and stops;
/// run the same command again to resume.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Folder of the model to start from
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    #[arg(long, value_name = "NAME,…", default_value_t = List(usual().tasks), help = tasks_help())]
    tasks: List<Glue>,
    /// Comma-separated kinds of attention
    #[arg(long, value_name = "NAME,…", default_value_t = List(usual().variants))]
    attentions: List<Variant>,
    /// Comma-separated numbers of features
    #[arg(long, value_name = "M,…", default_value_t = List(usual().features))]
    features: List<usize>,
    /// Number of seeds per cell, starting from 0
    #[arg(long, value_name = "N", default_value_t = usual().seeds)]
    seeds: u64,
    /// Comma-separated learning rates of the exact model; the best is chosen
    #[arg(long, value_name = "R,…", default_value_t = List(usual().rates))]
    rates: List<f64>,
    /// Comma-separated numbers of epochs of the exact model; the best is chosen
    #[arg(long, value_name = "N,…", default_value_t = List(usual().epochs))]
    epochs: List<u64>,
    /// Examples per step of the exact model
    #[arg(long, value_name = "N", default_value_t = usual().tuning.batch)]
    batch: usize,
    /// Truncate texts to this many tokens
    #[arg(long, value_name = "N", default_value_t = usual().tuning.length)]
    length: usize,
    /// Train on the first N examples only
    #[arg(long, value_name = "N")]
    examples: Option<usize>,
    /// Steps for each head to learn its map
    #[arg(long, value_name = "N", default_value_t = usual().convert.learn)]
    learn: u64,
    /// Steps of distillation from the exact model
    #[arg(long, value_name = "N", default_value_t = ConvertOptions::STEPS)]
    steps: u64,
    /// Epochs over the labelled examples after distillation
    #[arg(long, value_name = "N", default_value_t = usual().convert.epochs)]
    label_epochs: u64,
    /// Skip the STS-B column where attention is replaced without any training
    #[arg(long)]
    no_drop_in: bool,
    /// Run that column only
    #[arg(long, conflicts_with_all = ["no_drop_in", "tasks"])]
    only_drop_in: bool,
    /// Cells to run at a time, each in its own single-threaded process; 0 runs one after another
    #[arg(long, value_name = "N", default_value_t = 0)]
    jobs: usize,
    /// Only estimate how long it would take
    #[arg(long)]
    dry_run: bool,
    /// Skip the estimate
    #[arg(long, conflicts_with = "dry_run")]
    no_estimate: bool,
    /// Run the cell of this number alone
    #[arg(long, value_name = "N", hide = true)]
    cell: Option<usize>,
    /// Folder with glue/ [default: $FAVOR_DATA, else data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Output folder; created if missing
    #[arg(long, value_name = "DIR", default_value = "favor-glue")]
    out: PathBuf,
}

/// What is done if nothing else is asked for.
fn usual() -> GlueRequest {
    GlueRequest::new("", "", "")
}

fn tasks_help() -> String {
    format!("Comma-separated tasks: {}", glue_tasks())
}

impl Arguments {
    fn request(&self) -> GlueRequest {
        let usual = usual();
        let tuning = usual.tuning.batch(self.batch).length(self.length).examples(self.examples);
        let convert = usual.convert.learn(self.learn).steps(self.steps).epochs(self.label_epochs);
        let tasks = if self.only_drop_in { vec![] } else { self.tasks.0.clone() };
        GlueRequest::new(&self.model, data_folder(self.data.clone()).path, &self.out)
            .tasks(tasks)
            .variants(self.attentions.0.clone())
            .features(self.features.0.clone())
            .seeds(self.seeds)
            .tuning(tuning)
            .rates(self.rates.0.clone())
            .epochs(self.epochs.0.clone())
            .convert(convert)
            .drop_in(!self.no_drop_in)
    }

    pub(crate) fn run(self) -> Outcome {
        let request = self.request();
        if let Some(cell) = self.cell {
            return watched("glue", |watch| glue_cell(&request, cell, watch));
        }
        if !self.no_estimate {
            let ahead = watched("glue", |watch| plan(&request, watch))?;
            print(&ahead.to_text())?;
        }
        if self.dry_run {
            return Ok(());
        }
        let found = watched("glue", |watch| match self.jobs {
            0 => glue(&request, watch),
            jobs => glue_in_processes(&request, jobs, &cell_command, watch),
        })?;
        let out = request.out.display();
        print(&format!("\n{}\nwrote {out}/glue.csv and {out}/glue.md\n", found.to_markdown()))
    }
}

/// This command again, for one cell and on one thread.
fn cell_command(number: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "favor".into()));
    command.args(std::env::args_os().skip(1)).args(["--cell", &number.to_string()]);
    command.env("RAYON_NUM_THREADS", "1");
    command
}
