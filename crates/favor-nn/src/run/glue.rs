//! The paper's comparison of attentions on GLUE, on what is at hand: one model to begin with, and the
//! same settings for every attention.

use super::dropin;
use super::finetune::{Tuning, TuningOptions};
use super::grid::{self, Grid, Plan};
use super::session::{Session, Watch};
use crate::Result;
use crate::attention::Attention;
use crate::layer::AttentionOptions;
use crate::task::Glue;
use favor::Family;
use favor_io::progress::Tick;
use favor_io::write_atomically;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Steps that are timed to say how long a cell takes, after one that is not.
const TIMED: u64 = 3;

/// About the time of a cell without fine-tuning.
const DROP_IN: Duration = Duration::from_secs(20);

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
    pub attentions: Vec<Attention>,
    /// Numbers of features.
    pub features: Vec<usize>,
    /// The number of seeds, from 0.
    pub seeds: u64,
    /// How to fine-tune; its seed is overwritten.
    pub options: TuningOptions,
    /// After so many steps maps are fitted again.
    pub redraw: Option<u64>,
    /// Also without fine-tuning, on STS-B.
    pub drop_in: bool,
}

setters! { GlueRequest {
    model: PathBuf,
    data: PathBuf,
    out: PathBuf,
    tasks: Vec<Glue>,
    attentions: Vec<Attention>,
    features: Vec<usize>,
    seeds: u64,
    options: TuningOptions,
    redraw: Option<u64>,
    drop_in: bool,
} }

impl GlueRequest {
    /// The paper's attentions with 128 features on four tasks, three seeds each.
    pub fn new(
        model: impl Into<PathBuf>,
        data: impl Into<PathBuf>,
        out: impl Into<PathBuf>,
    ) -> Self {
        let families = [Family::Pos, Family::Ge, Family::Sade, Family::Sde, Family::Balanced];
        let plain = [Attention::Exact, Attention::Elu, Attention::Relu];
        Self {
            model: model.into(),
            data: data.into(),
            out: out.into(),
            tasks: vec![Glue::Cola, Glue::Mrpc, Glue::Rte, Glue::Stsb],
            attentions: plain.into_iter().chain(families.map(Attention::Features)).collect(),
            features: vec![128],
            seeds: 3,
            options: TuningOptions::default(),
            redraw: Some(100),
            drop_in: true,
        }
    }
}

/// One fine-tuning run of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The task.
    pub task: Glue,
    /// The attention.
    pub attention: Attention,
    /// The number of features; 0 for attentions without.
    pub features: usize,
    /// The seed.
    pub seed: u64,
    /// Without fine-tuning: the attention is replaced and nothing else, on STS-B.
    pub drop_in: bool,
}

/// What decides the result of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    model: PathBuf,
    options: TuningOptions,
    redraw: Option<u64>,
}

impl GlueRequest {
    fn check(&self) -> Result<()> {
        grid::check(&[
            ("tasks", self.tasks.is_empty() && !self.drop_in),
            ("attentions", self.attentions.is_empty()),
            ("features", self.features.is_empty() || self.features.contains(&0)),
            ("seeds", self.seeds == 0),
        ])
    }

    fn attention(&self, cell: &Cell) -> AttentionOptions {
        let options = AttentionOptions::new(cell.attention, cell.features.max(1));
        options.redraw(self.redraw).seed(cell.seed)
    }

    fn tuning(&self, cell: &Cell) -> Result<(Tuning, crate::train::Trainer)> {
        let task = cell.task.read(&self.data.join("glue"))?;
        Tuning::new(&self.model, task, self.attention(cell), self.settings(cell).options)
    }
}

impl Grid for GlueRequest {
    type Cell = Cell;
    type Settings = Settings;
    type Found = f64;

    fn cells(&self) -> Vec<Cell> {
        let drop_in = self.drop_in.then_some((Glue::Stsb, true));
        let tasks = drop_in.into_iter().chain(self.tasks.iter().map(|task| (*task, false)));
        let tasks: Vec<(Glue, bool)> = tasks.collect();
        let mut out = Vec::new();
        for seed in 0..self.seeds {
            for &(task, drop_in) in &tasks {
                for &attention in &self.attentions {
                    let cell = |&features| Cell { task, attention, features, seed, drop_in };
                    out.extend(grid::sizes(attention, &self.features).iter().map(cell));
                }
            }
        }
        out
    }

    fn settings(&self, cell: &Cell) -> Settings {
        let options = self.options.seed(cell.seed);
        Settings { model: self.model.clone(), options, redraw: self.redraw }
    }

    fn place(&self, cell: &Cell) -> PathBuf {
        let Cell { task, attention, features, seed, drop_in } = cell;
        let how = if *drop_in { "-dropin" } else { "" };
        let name = format!("{}{how}-{attention}-{features}-{seed}.json", task.name());
        self.out.join("cells").join(name)
    }

    fn title(&self, cell: &Cell) -> String {
        let features = match cell.features {
            0 => String::new(),
            m => format!(", M = {m}"),
        };
        format!("{:13} {}{features}", cell.column(), cell.attention.title())
    }

    fn time(&self, cell: &Cell) -> Result<Duration> {
        if cell.drop_in {
            return Ok(DROP_IN);
        }
        let (tuning, mut trainer) = self.tuning(cell)?;
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
        let judging = tuning.judging() as f64 * self.options.epochs as f64 / 3.0;
        Ok(step.mul_f64(trainer.steps() as f64 + judging))
    }

    fn run(&self, cell: &Cell, watch: Watch<'_>) -> Result<f64> {
        if cell.drop_in {
            let score = dropin::score(&self.model, &self.data, self.attention(cell))?;
            (watch.listener)(Tick { done: 1, total: 1, what: "" });
            return Ok(score);
        }
        let (tuning, trainer) = self.tuning(cell)?;
        let described = (cell, self.settings(cell), self.attention(cell));
        let checkpoint = self.place(cell).with_extension("checkpoint");
        let mut session = Session::start(trainer, &described, checkpoint, watch)?;
        let scores = tuning.run(&mut session)?;
        session.finish()?;
        Ok(scores.last().copied().unwrap_or(0.0))
    }
}

/// Times a few steps of each task and attention that has cells to do.
pub fn plan(request: &GlueRequest, watch: Watch<'_>) -> Result<Plan> {
    request.check()?;
    grid::plan(request, watch)
}

/// The scores of the grid.
#[derive(Debug, Clone, PartialEq)]
pub struct GlueReport {
    /// Score and seconds of each cell.
    pub cells: Vec<(Cell, f64, f64)>,
}

/// Runs the cells that have no result yet, and gives all.
pub fn glue(request: &GlueRequest, watch: Watch<'_>) -> Result<GlueReport> {
    request.check()?;
    let kept = grid::run(request, watch)?;
    let cells = kept.into_iter().map(|kept| (kept.cell, kept.found, kept.seconds)).collect();
    let report = GlueReport { cells };
    write_atomically(request.out.join("glue.csv"), report.to_csv().as_bytes())?;
    write_atomically(request.out.join("glue.md"), report.to_markdown().as_bytes())?;
    Ok(report)
}

impl GlueReport {
    /// One row per cell.
    pub fn to_csv(&self) -> String {
        let mut out = "task,metric,attention,features,seed,score,seconds\n".to_owned();
        for (cell, score, seconds) in &self.cells {
            let Cell { task, attention, features, seed, .. } = cell;
            let (name, metric) = (cell.column(), task.metric().title());
            let _ = writeln!(
                out,
                "{name},{metric},{attention},{features},{seed},{score:.5},{seconds:.0}"
            );
        }
        out
    }

    /// A table of means and spreads over seeds, in per cent: one row per attention, one column per task.
    pub fn to_markdown(&self) -> String {
        let mut columns: Vec<(Glue, bool)> =
            self.cells.iter().map(|(c, _, _)| (c.task, c.drop_in)).collect();
        columns.sort();
        columns.dedup();
        let mut rows: Vec<(Attention, usize)> = Vec::new();
        for (cell, _, _) in &self.cells {
            if !rows.contains(&(cell.attention, cell.features)) {
                rows.push((cell.attention, cell.features));
            }
        }
        let title = |(task, drop_in): &(Glue, bool)| {
            let name = column(*task, *drop_in);
            format!("{name} ({})", task.metric().title())
        };
        let heads: Vec<String> = columns.iter().map(title).collect();
        let mut out = format!("| attention | M | {} |\n", heads.join(" | "));
        let _ = writeln!(out, "|---|---|{}", "---|".repeat(columns.len()));
        for (attention, features) in rows {
            let one = |&(task, drop_in): &(Glue, bool)| {
                let same = |c: &Cell| {
                    (c.task, c.drop_in, c.attention, c.features)
                        == (task, drop_in, attention, features)
                };
                let scores: Vec<f64> =
                    self.cells.iter().filter(|(c, _, _)| same(c)).map(|(_, s, _)| *s).collect();
                grid::spread(&scores)
            };
            let cells: Vec<String> = columns.iter().map(one).collect();
            let size = grid::size_title(features);
            let _ = writeln!(out, "| {} | {size} | {} |", attention.title(), cells.join(" | "));
        }
        out
    }
}

impl Cell {
    fn column(&self) -> String {
        column(self.task, self.drop_in)
    }
}

fn column(task: Glue, drop_in: bool) -> String {
    let how = if drop_in { " drop-in" } else { "" };
    format!("{task}{how}")
}
