//! The paper's comparison of attentions on GLUE, on what is at hand: one model to begin with, and the
//! same settings for every attention.

use super::dropin;
use super::finetune::{Tuning, TuningOptions};
use super::session::{Outcome, Session, Watch};
use crate::attention::Attention;
use crate::layer::AttentionOptions;
use crate::task::Glue;
use crate::{Error, Result};
use favor_lab::output::write_atomically;
use favor_lab::progress::Tick;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Steps that are timed to say how long a cell takes, after one that is not.
const TIMED: u64 = 3;

/// About the time of a cell without fine-tuning.
const DROP_IN: Duration = Duration::from_secs(60);

/// The grid.
#[derive(Debug, Clone)]
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
    /// After so many steps maps are fitted anew.
    pub redraw: Option<u64>,
    /// Also without fine-tuning, on STS-B.
    pub drop_in: bool,
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

/// A cell and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Finished {
    cell: Cell,
    options: TuningOptions,
    score: f64,
    seconds: f64,
}

impl GlueRequest {
    fn check(&self) -> Result<()> {
        let empty = [
            ("tasks", self.tasks.is_empty()),
            ("attentions", self.attentions.is_empty()),
            ("features", self.features.is_empty() || self.features.contains(&0)),
            ("seeds", self.seeds == 0),
        ];
        match empty.iter().find(|(_, empty)| *empty) {
            Some((what, _)) => Err(Error::invalid(what, "at least one is needed")),
            None => Ok(()),
        }
    }

    /// All cells, seed by seed, so that a run that is stopped has something of everything.
    fn cells(&self) -> Vec<Cell> {
        let drop_in = self.drop_in.then_some((Glue::Stsb, true));
        let tasks = drop_in.into_iter().chain(self.tasks.iter().map(|task| (*task, false)));
        let tasks: Vec<(Glue, bool)> = tasks.collect();
        let mut out = Vec::new();
        for seed in 0..self.seeds {
            for &(task, drop_in) in &tasks {
                for &attention in &self.attentions {
                    let sizes = match attention.family() {
                        Some(_) => &self.features[..],
                        None => &[0],
                    };
                    let cell = |&features| Cell { task, attention, features, seed, drop_in };
                    out.extend(sizes.iter().map(cell));
                }
            }
        }
        out
    }

    fn place(&self, cell: &Cell) -> PathBuf {
        let Cell { task, attention, features, seed, drop_in } = cell;
        let how = if *drop_in { "-dropin" } else { "" };
        let name = format!("{}{how}-{attention}-{features}-{seed}.json", task.name());
        self.out.join("cells").join(name)
    }

    fn options(&self, cell: &Cell) -> TuningOptions {
        TuningOptions { seed: cell.seed, ..self.options }
    }

    fn attention(&self, cell: &Cell) -> AttentionOptions {
        let options = AttentionOptions::new(cell.attention, cell.features.max(1));
        AttentionOptions { redraw: self.redraw, seed: cell.seed, ..options }
    }

    fn tuning(&self, cell: &Cell) -> Result<(Tuning, crate::train::Trainer)> {
        let task = cell.task.read(&self.data.join("glue"))?;
        Tuning::new(&self.model, task, self.attention(cell), self.options(cell))
    }

    /// The result of a cell of an earlier run with the same settings.
    fn known(&self, cell: &Cell) -> Result<Option<Finished>> {
        let path = self.place(cell);
        let Ok(bytes) = std::fs::read(&path) else { return Ok(None) };
        let found: Finished = serde_json::from_slice(&bytes)
            .map_err(|e| Error::file(&path, format!("not a result: {e}; remove it")))?;
        if found.options != self.options(cell) {
            let reason = "the result of other settings; remove it, or write elsewhere (--out)";
            return Err(Error::file(path, reason));
        }
        Ok(Some(found))
    }
}

/// What is still to be done, and how long it takes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Cells that have a result.
    pub done: usize,
    /// For each task and attention with cells to do: those cells, and the time of one.
    pub ahead: Vec<(Cell, usize, Duration)>,
}

impl Plan {
    /// The time of everything.
    pub fn total(&self) -> Duration {
        self.ahead.iter().map(|(_, count, each)| *each * *count as u32).sum()
    }

    /// A line for each task and attention.
    pub fn to_text(&self) -> String {
        let mut out = format!("{} cells have a result.\n", self.done);
        for (cell, count, each) in &self.ahead {
            let features = match cell.features {
                0 => String::new(),
                m => format!(", M = {m}"),
            };
            let (task, attention) = (cell.column(), cell.attention.title());
            let name = format!("{task:13} {attention}{features}");
            let _ = writeln!(out, "{name:46} {count:3} × {:6.1} min", minutes(*each));
        }
        let _ = writeln!(out, "in all {:.1} h", minutes(self.total()) / 60.0);
        out
    }
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

/// Times a few steps of each task and attention that has cells to do.
pub fn plan(request: &GlueRequest, watch: Watch<'_>) -> Result<Plan> {
    request.check()?;
    let mut open: Vec<Cell> = Vec::new();
    let mut done = 0;
    for cell in request.cells() {
        match request.known(&cell)? {
            Some(_) => done += 1,
            None => open.push(cell),
        }
    }
    let mut ahead: Vec<(Cell, usize, Duration)> = Vec::new();
    for cell in open {
        let same = |c: &Cell| Cell { seed: cell.seed, ..*c } == cell;
        match ahead.iter_mut().find(|(c, _, _)| same(c)) {
            Some((_, count, _)) => *count += 1,
            None => ahead.push((cell, 1, Duration::ZERO)),
        }
    }
    let total = ahead.len() as u64;
    for (i, (cell, _, each)) in ahead.iter_mut().enumerate() {
        let what = format!("timing {} {}", cell.column(), cell.attention);
        (watch.listener)(Tick { done: i as u64, total, what: &what });
        if cell.drop_in {
            *each = DROP_IN;
            continue;
        }
        let (tuning, mut trainer) = request.tuning(cell)?;
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
        let judging = tuning.judging() as f64 * request.options.epochs as f64 / 3.0;
        *each = step.mul_f64(trainer.steps() as f64 + judging);
    }
    Ok(Plan { done, ahead })
}

/// The scores of the grid.
#[derive(Debug, Clone, PartialEq)]
pub struct GlueReport {
    /// Score and seconds of each cell.
    pub cells: Vec<(Cell, f64, f64)>,
}

/// Runs the cells that have no result yet, and gives all.
pub fn glue(request: &GlueRequest, watch: Watch<'_>) -> Result<Outcome<GlueReport>> {
    request.check()?;
    let cells = request.cells();
    let folder = request.out.join("cells");
    std::fs::create_dir_all(&folder).map_err(|e| Error::file(&folder, e))?;
    let mut found = Vec::new();
    for (i, cell) in cells.iter().enumerate() {
        if let Some(known) = request.known(cell)? {
            found.push((*cell, known.score, known.seconds));
            continue;
        }
        let name = format!("{} {} ({} of {})", cell.column(), cell.attention, i + 1, cells.len());
        let listener = |tick: Tick<'_>| {
            let what = format!("{name} {}", tick.what);
            (watch.listener)(Tick { what: &what, ..tick });
        };
        let inner = Watch { listener: &listener, ..watch };
        match run(request, cell, inner)? {
            Outcome::Done(result) => {
                let text = serde_json::to_vec_pretty(&result)
                    .map_err(|e| Error::invalid("result", e.to_string()))?;
                write_atomically(request.place(cell), &text)?;
                found.push((*cell, result.score, result.seconds));
            }
            Outcome::Stopped { step, steps, checkpoint } => {
                return Ok(Outcome::Stopped { step, steps, checkpoint });
            }
        }
    }
    let report = GlueReport { cells: found };
    write_atomically(request.out.join("glue.csv"), report.to_csv().as_bytes())?;
    write_atomically(request.out.join("glue.md"), report.to_markdown().as_bytes())?;
    Ok(Outcome::Done(report))
}

fn run(request: &GlueRequest, cell: &Cell, watch: Watch<'_>) -> Result<Outcome<Finished>> {
    let start = Instant::now();
    let done = |score| Finished {
        cell: *cell,
        options: request.options(cell),
        score,
        seconds: start.elapsed().as_secs_f64(),
    };
    if cell.drop_in {
        let score = dropin::score(&request.model, &request.data, request.attention(cell))?;
        (watch.listener)(Tick { done: 1, total: 1, what: "" });
        return Ok(Outcome::Done(done(score)));
    }
    let (tuning, trainer) = request.tuning(cell)?;
    let described = (cell, request.options(cell), request.attention(cell));
    let checkpoint = checkpoint(&request.place(cell));
    let mut session = Session::new(trainer, &described, checkpoint, watch)?;
    session.resume()?;
    let Some(scores) = tuning.run(&mut session)? else { return Ok(session.stopped()) };
    session.finish()?;
    Ok(Outcome::Done(done(scores.last().copied().unwrap_or(0.0))))
}

fn checkpoint(place: &Path) -> PathBuf {
    place.with_extension("checkpoint")
}

impl GlueReport {
    /// One row a cell.
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

    /// A table of means and spreads over seeds, in per cent: one row an attention, one column a task.
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
                spread(&scores)
            };
            let cells: Vec<String> = columns.iter().map(one).collect();
            let size = if features == 0 { "–".to_owned() } else { features.to_string() };
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

/// Mean and standard deviation, in per cent.
fn spread(scores: &[f64]) -> String {
    let n = scores.len() as f64;
    let mean = scores.iter().sum::<f64>() / n;
    let deviation = (scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    match scores.len() {
        0 => "–".to_owned(),
        1 => format!("{:.1}", 100.0 * mean),
        _ => format!("{:.1} ± {:.1}", 100.0 * mean, 100.0 * deviation),
    }
}
