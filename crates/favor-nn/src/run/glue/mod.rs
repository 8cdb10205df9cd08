//! The paper's comparison of attentions on GLUE, on what is at hand. Every attention is treated alike: the exact
//! model is fine-tuned on a task, then converted with the same number of steps, then judged.

mod dropin;
mod report;
mod variant;

pub use report::GlueReport;
pub use variant::Variant;

use super::convert::{ConvertOptions, ConvertRequest, Source, convert, estimate};
use super::finetune::{FinetuneRequest, Tuning, TuningOptions, finetune, judge};
use super::grid::{self, Grid, Plan};
use super::session::{Session, Watch};
use crate::attention::Attention;
use crate::layer::LayerOptions;
use crate::task::{Glue, TextTask};
use crate::{Error, Result};
use favor::{ExactKeys, Family, Redraw};
use favor_io::progress::Tick;
use favor_io::write_atomically;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Steps that are timed to say how long a cell takes, after one that is not.
const TIMED: u64 = 3;

/// About the time of a cell without training.
const DROP_IN: Duration = Duration::from_secs(20);

/// Examples of the training set that a search for rates and epochs looks at, and the part it judges by: one in
/// so many.
const SEARCHED: usize = 4000;
const SEARCH_HELD_OUT: usize = 5;

/// The grid.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GlueRequest {
    /// The folder of the model to begin with.
    pub model: PathBuf,
    /// The folder of the data.
    pub data: PathBuf,
    /// Where results are kept.
    pub out: PathBuf,
    /// The tasks.
    pub tasks: Vec<Glue>,
    /// The attentions.
    pub variants: Vec<Variant>,
    /// Numbers of features.
    pub features: Vec<usize>,
    /// The number of seeds, from 0.
    pub seeds: u64,
    /// How to fine-tune the exact model; rate, epochs and seed are overwritten.
    pub tuning: TuningOptions,
    /// Rates of the exact model. Of several rates and epochs the best are found for each task, on a part of
    /// its training set.
    pub rates: Vec<f64>,
    /// Epochs of the exact model.
    pub epochs: Vec<u64>,
    /// How to convert; the seed is overwritten.
    pub convert: ConvertOptions,
    /// Also without any training, on STS-B.
    pub drop_in: bool,
}

setters! { GlueRequest {
    model: PathBuf,
    data: PathBuf,
    out: PathBuf,
    tasks: Vec<Glue>,
    variants: Vec<Variant>,
    features: Vec<usize>,
    seeds: u64,
    tuning: TuningOptions,
    rates: Vec<f64>,
    epochs: Vec<u64>,
    convert: ConvertOptions,
    drop_in: bool,
} }

impl GlueRequest {
    /// Table 1 of the paper, with the balanced family and learned features beside it, these also with exact keys, and
    /// the keys alone: 64 features and three seeds.
    pub fn new(
        model: impl Into<PathBuf>,
        data: impl Into<PathBuf>,
        out: impl Into<PathBuf>,
    ) -> Self {
        let families = [Family::Pos, Family::Ge, Family::Sade, Family::Sde, Family::Balanced];
        let plain = [Attention::Exact, Attention::Elu, Attention::Relu];
        let attentions = plain.into_iter().chain(families.map(Attention::Features));
        let attentions = attentions.chain([Attention::Learned]).map(Variant::from);
        let exact = ExactKeys::NONE.near(4).routed(2, 4);
        let keys =
            [false, true].map(|alone| Variant { attention: Attention::Learned, exact, alone });
        Self {
            model: model.into(),
            data: data.into(),
            out: out.into(),
            tasks: vec![Glue::Cola, Glue::Mrpc, Glue::Rte, Glue::Stsb],
            variants: attentions.chain(keys).collect(),
            features: vec![64],
            seeds: 3,
            tuning: TuningOptions::default(),
            rates: vec![1e-4],
            epochs: vec![5],
            convert: ConvertOptions::default(),
            drop_in: true,
        }
    }
}

/// What a cell does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Tries a rate and a number of epochs with exact attention.
    Search {
        /// The rate.
        rate: f64,
        /// The number of epochs.
        epochs: u64,
    },
    /// Replaces the attention and trains nothing: sentences of STS-B one by one.
    DropIn,
    /// Fine-tunes the exact model, and converts it unless the attention is exact.
    Convert,
}

/// One run of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The task.
    pub task: Glue,
    /// The attention.
    pub variant: Variant,
    /// The number of features; 0 for attentions without.
    pub features: usize,
    /// The seed.
    pub seed: u64,
    /// What is done.
    pub how: How,
}

/// What decides the result of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    model: PathBuf,
    tuning: TuningOptions,
    rates: Vec<f64>,
    epochs: Vec<u64>,
    convert: ConvertOptions,
}

/// What came of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The score.
    pub score: f64,
    /// The score of a converted model before its weights were trained.
    pub replaced: Option<f64>,
}

impl GlueRequest {
    fn check(&self) -> Result<()> {
        grid::check(&[
            ("tasks", self.tasks.is_empty() && !self.drop_in),
            ("attentions", self.variants.is_empty()),
            ("features", self.features.is_empty() || self.features.contains(&0)),
            ("seeds", self.seeds == 0),
            ("rates", self.rates.is_empty()),
            ("epochs", self.epochs.is_empty()),
        ])?;
        match self.variants.iter().find(|v| v.attention == Attention::Auto) {
            Some(_) => Err(Error::invalid("attentions", "'auto' is nothing to convert to")),
            None => Ok(()),
        }
    }

    fn is_searched(&self) -> bool {
        self.rates.len() * self.epochs.len() > 1
    }

    /// The task, or the part of its training set that a search looks at.
    fn task(&self, cell: &Cell) -> Result<TextTask> {
        let mut task = cell.task.read(&self.data.join("glue"))?;
        if let How::Search { .. } = cell.how {
            task = task.truncated(Some(SEARCHED));
            let parts = std::mem::take(&mut task.train).into_iter().enumerate();
            let (dev, train): (Vec<_>, Vec<_>) =
                parts.partition(|(i, _)| i % SEARCH_HELD_OUT == SEARCH_HELD_OUT - 1);
            task.train = train.into_iter().map(|(_, example)| example).collect();
            task.dev = dev.into_iter().map(|(_, example)| example).collect();
        }
        Ok(task)
    }

    /// How the exact model of a cell is fine-tuned: as the search found best, or as it is to be tried.
    fn tuning_of(&self, cell: &Cell) -> Result<TuningOptions> {
        let (rate, epochs) = match cell.how {
            How::Search { rate, epochs } => (rate, epochs),
            _ => self.best(cell.task)?.unwrap_or((self.rates[0], self.epochs[0])),
        };
        Ok(self.tuning.rate(rate).epochs(epochs).seed(cell.seed))
    }

    /// Rate and epochs with the best score of a search, once all of them were tried.
    fn best(&self, task: Glue) -> Result<Option<(f64, u64)>> {
        let mut best: Option<(f64, (f64, u64))> = None;
        for cell in self.searches(task) {
            let (Some(kept), How::Search { rate, epochs }) = (grid::known(self, &cell)?, cell.how)
            else {
                return Ok(None);
            };
            if best.is_none_or(|(score, _)| kept.found.score > score) {
                best = Some((kept.found.score, (rate, epochs)));
            }
        }
        Ok(best.map(|(_, tried)| tried))
    }

    fn searches(&self, task: Glue) -> Vec<Cell> {
        if !self.is_searched() {
            return vec![];
        }
        let tried = |&rate| self.epochs.iter().map(move |&epochs| How::Search { rate, epochs });
        let variant = Variant::from(Attention::Exact);
        let cell = |how| Cell { task, variant, features: 0, seed: 0, how };
        self.rates.iter().flat_map(tried).map(cell).collect()
    }

    fn teacher_folder(&self, cell: &Cell) -> PathBuf {
        self.out.join("exact").join(format!("{}-{}", cell.task.name(), cell.seed))
    }

    /// The exact model of a cell, fine-tuned unless it is there, and its folder.
    fn teacher(&self, cell: &Cell, watch: Watch<'_>) -> Result<PathBuf> {
        let folder = self.teacher_folder(cell);
        let finished =
            folder.join("config.json").exists() && !folder.join("checkpoint.safetensors").exists();
        if !finished {
            let request = FinetuneRequest::new(&self.model, cell.task.name(), &folder)
                .data(self.data.clone())
                .attention(Some(LayerOptions::new(Attention::Exact, 1)))
                .options(self.tuning_of(cell)?);
            finetune(&request, watch)?;
        }
        Ok(folder)
    }

    fn conversion(&self, cell: &Cell, model: PathBuf) -> ConvertRequest {
        let Cell { task, variant, features, seed, .. } = *cell;
        let out = self.place(cell).with_extension("model");
        let options = self.convert.seed(seed).examples(self.tuning.examples);
        ConvertRequest::new(model, Source::Task(task.name().to_owned()), out)
            .data(self.data.clone())
            .attention(variant.attention)
            .features(features.max(1))
            .exact(variant.exact)
            .exact_alone(variant.alone)
            .options(options.length(self.tuning.length))
    }

    /// The time of fine-tuning, by a few steps.
    fn time_tuning(&self, cell: &Cell) -> Result<Duration> {
        let options = self.tuning_of(cell)?;
        let exact = Some(LayerOptions::new(Attention::Exact, 1));
        let (tuning, mut trainer) = Tuning::new(&self.model, self.task(cell)?, exact, options)?;
        let order = tuning.order(0);
        let mut start = Instant::now();
        for (step, batch) in order.iter().take(1 + TIMED as usize).enumerate() {
            trainer.step(|model| tuning.loss(model, batch))?;
            if step == 0 {
                start = Instant::now();
            }
        }
        let timed = (order.len() as u64).clamp(2, 1 + TIMED) - 1;
        let step = start.elapsed().div_f64(timed as f64);
        // Judging goes forward only, after each epoch: about a third of a step for each batch.
        let judging = tuning.judging() as f64 * options.epochs as f64 / 3.0;
        Ok(step.mul_f64(trainer.steps() as f64 + judging))
    }
}

impl Grid for GlueRequest {
    type Cell = Cell;
    type Settings = Settings;
    type Found = Found;

    fn cells(&self) -> Vec<Cell> {
        let mut out: Vec<Cell> = self.tasks.iter().flat_map(|task| self.searches(*task)).collect();
        let all = |task, how: How, seed| {
            self.variants.iter().flat_map(move |&variant| {
                let sizes = grid::sizes(variant.attention, &self.features).iter();
                sizes.map(move |&features| Cell { task, variant, features, seed, how })
            })
        };
        for seed in 0..self.seeds {
            if self.drop_in {
                let plain = |cell: &Cell| {
                    cell.variant.exact.is_none() && cell.variant.attention != Attention::Learned
                };
                out.extend(all(Glue::Stsb, How::DropIn, seed).filter(plain));
            }
            for &task in &self.tasks {
                out.extend(all(task, How::Convert, seed));
            }
        }
        out
    }

    fn phase(&self, cell: &Cell) -> usize {
        match cell.how {
            How::Search { .. } => 0,
            How::Convert if cell.variant.attention == Attention::Exact => 1,
            How::DropIn => 1,
            // The exact model of the task and seed comes first.
            How::Convert => 2,
        }
    }

    fn settings(&self, cell: &Cell) -> Settings {
        Settings {
            model: self.model.clone(),
            tuning: self.tuning.seed(cell.seed),
            rates: self.rates.clone(),
            epochs: self.epochs.clone(),
            convert: self.convert.seed(cell.seed),
        }
    }

    fn place(&self, cell: &Cell) -> PathBuf {
        let Cell { task, variant, features, seed, how } = cell;
        let task = task.name();
        let name = match how {
            How::Search { rate, epochs } => format!("{task}-search-{rate}-{epochs}.json"),
            How::DropIn => format!("{task}-dropin-{variant}-{features}-{seed}.json"),
            How::Convert => format!("{task}-{variant}-{features}-{seed}.json"),
        };
        self.out.join("cells").join(name)
    }

    fn title(&self, cell: &Cell) -> String {
        let features = match cell.features {
            0 => String::new(),
            m => format!(", M = {m}"),
        };
        let what = match cell.how {
            How::Search { rate, epochs } => format!("search: rate {rate}, {epochs} epochs"),
            _ => cell.variant.title(),
        };
        format!("{:13} {what}{features}", cell.column())
    }

    fn time(&self, cell: &Cell) -> Result<Duration> {
        match cell.how {
            How::DropIn => Ok(DROP_IN),
            How::Search { .. } => self.time_tuning(cell),
            How::Convert if cell.variant.attention == Attention::Exact => self.time_tuning(cell),
            How::Convert => estimate(&self.conversion(cell, self.model.clone())),
        }
    }

    fn run(&self, cell: &Cell, watch: Watch<'_>) -> Result<Found> {
        let score = |score| Found { score, replaced: None };
        match cell.how {
            How::DropIn => {
                let options = LayerOptions::new(cell.variant.attention, cell.features.max(1));
                let options = options.redraw(Redraw::Never).seed(cell.seed);
                let found = dropin::score(&self.model, &self.data, options)?;
                (watch.listener)(Tick { done: 1, total: 1, what: "" });
                Ok(score(found))
            }
            How::Search { .. } => {
                let exact = Some(LayerOptions::new(Attention::Exact, 1));
                let options = self.tuning_of(cell)?;
                let (tuning, trainer) = Tuning::new(&self.model, self.task(cell)?, exact, options)?;
                let described = (cell, self.settings(cell));
                let checkpoint = self.place(cell).with_extension("checkpoint");
                let mut session = Session::start(trainer, &described, checkpoint, watch)?;
                let scores = tuning.run(&mut session)?;
                session.finish()?;
                Ok(score(scores.last().copied().unwrap_or(0.0)))
            }
            How::Convert => {
                let teacher = self.teacher(cell, watch)?;
                if cell.variant.attention == Attention::Exact {
                    let task = self.task(cell)?;
                    return Ok(score(judge(&teacher, &task, self.tuning)?));
                }
                let request = self.conversion(cell, teacher);
                let found = convert(&request, watch)?;
                // The table needs the scores alone; a converted model is as large as the exact one.
                std::fs::remove_dir_all(&request.out).map_err(|e| Error::file(&request.out, e))?;
                let replaced = found.stages.first().and_then(|stage| stage.score);
                let last = found.stages.last().and_then(|stage| stage.score).unwrap_or(0.0);
                Ok(Found { score: last, replaced })
            }
        }
    }
}

impl Cell {
    fn column(&self) -> String {
        let how = match self.how {
            How::Search { .. } => " search",
            How::DropIn => " drop-in",
            How::Convert => "",
        };
        format!("{}{how}", self.task.title())
    }
}

/// Times a few steps of each task and attention that has cells to do.
pub fn plan(request: &GlueRequest, watch: Watch<'_>) -> Result<Plan> {
    request.check()?;
    grid::plan(request, watch)
}

/// Runs the cells that have no result yet, and gives all.
pub fn glue(request: &GlueRequest, watch: Watch<'_>) -> Result<GlueReport> {
    request.check()?;
    written(request, grid::run(request, watch)?)
}

/// The same in so many processes at a time: `command` starts one that calls [`glue_cell`] with a number.
pub fn glue_in_processes(
    request: &GlueRequest,
    jobs: usize,
    command: &dyn Fn(usize) -> Command,
    watch: Watch<'_>,
) -> Result<GlueReport> {
    request.check()?;
    written(request, grid::run_in_processes(request, jobs, command, watch)?)
}

/// Runs one cell, by its number, unless it has a result.
pub fn glue_cell(request: &GlueRequest, number: usize, watch: Watch<'_>) -> Result<()> {
    request.check()?;
    grid::run_cell(request, number, watch)
}

fn written(request: &GlueRequest, kept: Vec<grid::Kept<GlueRequest>>) -> Result<GlueReport> {
    let cells = kept.into_iter().map(|kept| (kept.cell, kept.found, kept.seconds)).collect();
    let report = GlueReport { cells };
    write_atomically(request.out.join("glue.csv"), report.to_csv().as_bytes())?;
    write_atomically(request.out.join("glue.md"), report.to_markdown().as_bytes())?;
    Ok(report)
}
