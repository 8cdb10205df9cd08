//! A grid of training runs with a file of results for each cell, so that a run that was stopped goes on
//! where it was.

use super::session::Watch;
use crate::attention::Attention;
use crate::{Error, Result};
use favor_io::progress::Tick;
use favor_io::{create_folder, write_atomically};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often processes are looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// The code of a process that a person stopped.
const STOPPED: i32 = 130;

/// A grid of runs: its cells, and what each takes and gives.
pub trait Grid {
    /// One run.
    type Cell: Copy + PartialEq + Serialize + DeserializeOwned;
    /// All else that decides its result.
    type Settings: PartialEq + Serialize + DeserializeOwned;
    /// Its result.
    type Found: Serialize + DeserializeOwned;

    /// All cells, seed by seed, so that a run that is stopped has something of everything.
    fn cells(&self) -> Vec<Self::Cell>;
    /// Cells of a phase need those of earlier phases, and not one another.
    fn phase(&self, _: &Self::Cell) -> usize {
        0
    }
    /// What decides the result of a cell.
    fn settings(&self, cell: &Self::Cell) -> Self::Settings;
    /// The file of the result.
    fn place(&self, cell: &Self::Cell) -> PathBuf;
    /// For people; the same for all seeds.
    fn title(&self, cell: &Self::Cell) -> String;
    /// How long the cell will take, by a few steps of it.
    fn time(&self, cell: &Self::Cell) -> Result<Duration>;
    /// Runs a cell to its end.
    fn run(&self, cell: &Self::Cell, watch: Watch<'_>) -> Result<Self::Found>;
}

/// A cell and what came of it, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct Finished<C, S, F> {
    /// The cell.
    pub cell: C,
    settings: S,
    /// Its result.
    pub found: F,
    /// How long it took.
    pub seconds: f64,
}

/// A finished cell of a grid.
pub type Kept<G> = Finished<<G as Grid>::Cell, <G as Grid>::Settings, <G as Grid>::Found>;

/// The result of a cell of an earlier run with the same settings.
pub(super) fn known<G: Grid>(grid: &G, cell: &G::Cell) -> Result<Option<Kept<G>>> {
    let path = grid.place(cell);
    let Ok(bytes) = std::fs::read(&path) else { return Ok(None) };
    let kept: Kept<G> = serde_json::from_slice(&bytes)
        .map_err(|e| Error::file(&path, format!("not a result: {e}; remove it")))?;
    if kept.settings != grid.settings(cell) {
        return Err(Error::OtherSettings { path });
    }
    Ok(Some(kept))
}

/// What is still to be done, and how long it takes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Cells that have a result.
    pub done: usize,
    /// Cells to do that differ in their seeds alone: what they are, how many, and the time of one.
    pub ahead: Vec<(String, usize, Duration)>,
}

impl Plan {
    /// The time of everything.
    pub fn total(&self) -> Duration {
        self.ahead.iter().map(|(_, count, each)| *each * *count as u32).sum()
    }

    /// A line for all cells that differ in their seeds alone.
    pub fn to_text(&self) -> String {
        let minutes = |time: Duration| time.as_secs_f64() / 60.0;
        let mut out = format!("{} cells have a result.\n", self.done);
        for (title, count, each) in &self.ahead {
            let _ = writeln!(out, "{title:46} {count:3} × {:6.1} min", minutes(*each));
        }
        let _ = writeln!(out, "in all {:.1} h", minutes(self.total()) / 60.0);
        out
    }
}

/// Times a few steps of each kind of cell that is to be done.
pub fn plan<G: Grid>(grid: &G, watch: Watch<'_>) -> Result<Plan> {
    let (mut done, mut first): (usize, Vec<(G::Cell, usize)>) = (0, Vec::new());
    for cell in grid.cells() {
        if known(grid, &cell)?.is_some() {
            done += 1;
            continue;
        }
        let title = grid.title(&cell);
        match first.iter_mut().find(|(c, _)| grid.title(c) == title) {
            Some((_, count)) => *count += 1,
            None => first.push((cell, 1)),
        }
    }
    let total = first.len() as u64;
    let mut ahead = Vec::new();
    for (i, (cell, count)) in first.iter().enumerate() {
        let title = grid.title(cell);
        let what = format!("timing {title}");
        (watch.listener)(Tick { done: i as u64, total, what: &what });
        ahead.push((title, *count, grid.time(cell)?));
    }
    Ok(Plan { done, ahead })
}

/// Runs the cells that have no result yet, phase by phase, and gives all in their order.
pub fn run<G: Grid>(grid: &G, watch: Watch<'_>) -> Result<Vec<Kept<G>>> {
    let cells = grid.cells();
    for (_, number) in by_phase(grid, &cells) {
        run_cell(grid, number, watch)?;
    }
    all(grid, &cells)
}

/// The same in so many processes at a time. `command` gives the one that runs the cell of a number; it ends with
/// success when the result is there, and with 130 when a person stopped it.
pub fn run_in_processes<G: Grid>(
    grid: &G,
    jobs: usize,
    command: &dyn Fn(usize) -> Command,
    watch: Watch<'_>,
) -> Result<Vec<Kept<G>>> {
    let cells = grid.cells();
    let mut open = VecDeque::new();
    for (phase, number) in by_phase(grid, &cells) {
        if known(grid, &cells[number])?.is_none() {
            open.push_back((phase, number));
        }
    }
    let mut running: Vec<(usize, usize, Child)> = Vec::new();
    let mut stopped = false;
    while !(running.is_empty() && (open.is_empty() || stopped)) {
        stopped |= watch.stop.load(Ordering::Relaxed);
        let phase = running.first().map(|(phase, ..)| *phase);
        let next = open.front().filter(|(next, _)| phase.is_none_or(|phase| phase == *next));
        if let Some(&(phase, number)) = next.filter(|_| running.len() < jobs.max(1) && !stopped) {
            open.pop_front();
            let started = command(number).stdout(Stdio::null()).spawn();
            let failed =
                |e| Error::Training(format!("a process for a cell cannot be started: {e}"));
            running.push((phase, number, started.map_err(failed)?));
            continue;
        }
        std::thread::sleep(PAUSE);
        let mut still = Vec::new();
        for (phase, number, mut child) in running {
            match child.try_wait() {
                Ok(None) => still.push((phase, number, child)),
                Ok(Some(status)) if status.success() => {}
                Ok(Some(status)) if status.code() == Some(STOPPED) => stopped = true,
                found => {
                    stop(still);
                    let title = grid.title(&cells[number]);
                    let how = found.map_or_else(|e| e.to_string(), |s| format!("{s:?}"));
                    return Err(Error::Training(format!(
                        "the cell '{}' failed: {how}",
                        title.trim()
                    )));
                }
            }
        }
        running = still;
        let done = (cells.len() - open.len() - running.len()) as u64;
        let what = format!("{} cells at work", running.len());
        (watch.listener)(Tick { done, total: cells.len() as u64, what: &what });
    }
    if stopped {
        let (step, steps) = ((cells.len() - open.len()) as u64, cells.len() as u64);
        let checkpoint = cells.first().map(|cell| grid.place(cell)).unwrap_or_default();
        let checkpoint = checkpoint.parent().map(Into::into).unwrap_or_default();
        return Err(Error::Stopped { step, steps, checkpoint });
    }
    all(grid, &cells)
}

/// Ends processes that nobody waits for any more.
fn stop(running: Vec<(usize, usize, Child)>) {
    for (_, _, mut child) in running {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Cells by their phases and numbers.
fn by_phase<G: Grid>(grid: &G, cells: &[G::Cell]) -> Vec<(usize, usize)> {
    let mut order: Vec<(usize, usize)> =
        cells.iter().enumerate().map(|(number, cell)| (grid.phase(cell), number)).collect();
    order.sort_unstable();
    order
}

/// Runs one cell, by its number, unless it has a result.
pub fn run_cell<G: Grid>(grid: &G, number: usize, watch: Watch<'_>) -> Result<()> {
    let cells = grid.cells();
    let Some(cell) = cells.get(number) else {
        let reason = format!("{number}, where there are {}", cells.len());
        return Err(Error::invalid("cell", reason));
    };
    if known(grid, cell)?.is_some() {
        return Ok(());
    }
    let path = grid.place(cell);
    let folder = path.parent().unwrap_or(&path);
    create_folder(folder)?;
    let name = format!("{} ({} of {})", grid.title(cell), number + 1, cells.len());
    let listener = |tick: Tick<'_>| {
        let what = format!("{name} {}", tick.what);
        (watch.listener)(Tick { what: &what, ..tick });
    };
    let start = Instant::now();
    let found = grid.run(cell, watch.listener(&listener))?;
    let seconds = start.elapsed().as_secs_f64();
    let kept = Finished { cell: *cell, settings: grid.settings(cell), found, seconds };
    let text =
        serde_json::to_vec_pretty(&kept).map_err(|e| Error::invalid("result", e.to_string()))?;
    Ok(write_atomically(path, &text)?)
}

/// The results of all cells, once each has one.
fn all<G: Grid>(grid: &G, cells: &[G::Cell]) -> Result<Vec<Kept<G>>> {
    let one = |cell: &G::Cell| {
        let missing = || Error::file(grid.place(cell), "the result is missing");
        known(grid, cell)?.ok_or_else(missing)
    };
    cells.iter().map(one).collect()
}

/// Refuses lists of a request without members.
pub fn check(lists: &[(&'static str, bool)]) -> Result<()> {
    match lists.iter().find(|(_, empty)| *empty) {
        Some((what, _)) => Err(Error::invalid(what, "at least one is needed")),
        None => Ok(()),
    }
}

/// The numbers of features that an attention is tried with; 0 for attentions without.
pub fn sizes(attention: Attention, features: &[usize]) -> &[usize] {
    if attention.family().is_some() { features } else { &[0] }
}

/// A number of features for people.
pub fn size_title(features: usize) -> String {
    if features == 0 { "–".to_owned() } else { features.to_string() }
}

/// Mean and standard deviation over seeds, in per cent.
pub fn spread(values: &[f64]) -> String {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    match values.len() {
        0 => "–".to_owned(),
        1 => format!("{:.1}", 100.0 * mean),
        _ => format!("{:.1} ± {:.1}", 100.0 * mean, 100.0 * deviation),
    }
}
