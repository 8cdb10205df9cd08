//! The paper's comparison of attentions in speech recognition (Figure 7), on AN4: trained on all labels,
//! and by noisy students with half of the labels hidden.

use super::asr_nst::{NstRequest, nst};
use super::asr_train::{AsrOptions, AsrRequest, expected_time, train_asr};
use super::session::{Outcome, Watch};
use crate::attention::Attention;
use crate::layer::AttentionOptions;
use crate::speech::{Corpus, Errors, Manifest, Utterance, import};
use crate::{Error, Result};
use favor_lab::figure::Bars;
use favor_lab::output::write_atomically;
use favor_lab::progress::Tick;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How a model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// On all labels.
    Trans,
    /// With half of the labels hidden, by noisy students.
    Nst,
}

impl Mode {
    fn title(self) -> &'static str {
        match self {
            Self::Trans => "TRANS",
            Self::Nst => "NST",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "trans" => Ok(Self::Trans),
            "nst" => Ok(Self::Nst),
            _ => Err(Error::invalid("mode", format!("'{name}' is neither trans nor nst"))),
        }
    }
}

/// The grid.
#[derive(Debug, Clone)]
pub struct SpeechRequest {
    /// The folder that holds the corpus `an4`.
    pub data: PathBuf,
    /// Where results are kept.
    pub out: PathBuf,
    /// How models are trained.
    pub modes: Vec<Mode>,
    /// The attentions.
    pub attentions: Vec<Attention>,
    /// Numbers of features.
    pub features: Vec<usize>,
    /// The number of seeds, from 0.
    pub seeds: u64,
    /// How to train; the seed is overwritten.
    pub options: AsrOptions,
    /// After so many steps maps are fitted anew.
    pub redraw: Option<u64>,
    /// Students of noisy student training.
    pub generations: u64,
    /// Labels of which a teacher was less sure are left out.
    pub confidence: f64,
}

/// One training of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpeechCell {
    /// How.
    pub mode: Mode,
    /// The attention.
    pub attention: Attention,
    /// The number of features; 0 for attentions without.
    pub features: usize,
    /// The seed.
    pub seed: u64,
}

/// A cell and what came of it, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Finished {
    cell: SpeechCell,
    settings: Settings,
    errors: Errors,
    seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Settings {
    options: AsrOptions,
    redraw: Option<u64>,
    /// Generations and confidence of noisy student training.
    students: Option<(u64, f64)>,
}

impl SpeechRequest {
    fn check(&self) -> Result<()> {
        let empty = [
            ("modes", self.modes.is_empty()),
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
    fn cells(&self) -> Vec<SpeechCell> {
        let mut out = Vec::new();
        for seed in 0..self.seeds {
            for &mode in &self.modes {
                for &attention in &self.attentions {
                    let sizes = match attention.family() {
                        Some(_) => &self.features[..],
                        None => &[0],
                    };
                    let cell = |&features| SpeechCell { mode, attention, features, seed };
                    out.extend(sizes.iter().map(cell));
                }
            }
        }
        out
    }

    fn folder(&self, cell: &SpeechCell) -> PathBuf {
        let SpeechCell { mode, attention, features, seed } = cell;
        let mode = mode.title().to_lowercase();
        self.out.join("cells").join(format!("{mode}-{attention}-{features}-{seed}"))
    }

    fn settings(&self, cell: &SpeechCell) -> Settings {
        Settings {
            options: AsrOptions { seed: cell.seed, ..self.options },
            redraw: self.redraw,
            students: (cell.mode == Mode::Nst).then_some((self.generations, self.confidence)),
        }
    }

    fn attention(&self, cell: &SpeechCell) -> AttentionOptions {
        let options = AttentionOptions::new(cell.attention, cell.features.max(1));
        AttentionOptions { redraw: self.redraw, seed: cell.seed, ..options }
    }

    fn training(&self, cell: &SpeechCell) -> AsrRequest {
        AsrRequest {
            data: vec![self.manifest("train")],
            test: Some(self.manifest("test")),
            out: self.folder(cell),
            attention: self.attention(cell),
            options: self.settings(cell).options,
        }
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.out.join("data").join("an4").join(format!("{name}.jsonl"))
    }

    /// The corpus, imported once, and its halves with and without labels.
    fn prepare(&self) -> Result<()> {
        if self.manifest("unlabelled").exists() {
            return Ok(());
        }
        import(Corpus::An4, &self.data, &self.out.join("data"))?;
        let all = Manifest::read(&self.manifest("train"))?;
        let local = |u: &Utterance| {
            let name = u.path.file_name().unwrap_or_default();
            Utterance { path: Path::new("features").join(name), ..u.clone() }
        };
        let half = |odd: usize| all.utterances.iter().skip(odd).step_by(2).map(local);
        Manifest::write(&self.manifest("labelled"), &half(0).collect::<Vec<_>>())?;
        let bare: Vec<Utterance> = half(1).map(|u| Utterance { text: None, ..u }).collect();
        Manifest::write(&self.manifest("unlabelled"), &bare)
    }

    /// The result of a cell of an earlier run with the same settings.
    fn known(&self, cell: &SpeechCell) -> Result<Option<Finished>> {
        let path = self.folder(cell).join("cell.json");
        let Ok(bytes) = std::fs::read(&path) else { return Ok(None) };
        let found: Finished = serde_json::from_slice(&bytes)
            .map_err(|e| Error::file(&path, format!("not a result: {e}; remove it")))?;
        if found.settings != self.settings(cell) {
            let reason = "the result of other settings; remove it, or write elsewhere (--out)";
            return Err(Error::file(path, reason));
        }
        Ok(Some(found))
    }

    fn run(&self, cell: &SpeechCell, watch: Watch<'_>) -> Result<Outcome<Errors>> {
        let training = self.training(cell);
        let found = match cell.mode {
            Mode::Trans => match train_asr(&training, watch)? {
                Outcome::Done(trained) => trained.errors,
                Outcome::Stopped { step, steps, checkpoint } => {
                    return Ok(Outcome::Stopped { step, steps, checkpoint });
                }
            },
            Mode::Nst => {
                let request = NstRequest {
                    labelled: self.manifest("labelled"),
                    unlabelled: self.manifest("unlabelled"),
                    test: training.test,
                    out: training.out,
                    attention: training.attention,
                    options: training.options,
                    generations: self.generations,
                    confidence: self.confidence,
                };
                match nst(&request, watch)? {
                    Outcome::Done(mut all) => all.pop().and_then(|last| last.errors),
                    Outcome::Stopped { step, steps, checkpoint } => {
                        return Ok(Outcome::Stopped { step, steps, checkpoint });
                    }
                }
            }
        };
        let missing = || Error::Training("the model was not judged".into());
        Ok(Outcome::Done(found.ok_or_else(missing)?))
    }
}

/// What is still to be done, and how long it takes.
#[derive(Debug, Clone)]
pub struct SpeechPlan {
    /// Cells that have a result.
    pub done: usize,
    /// For each mode, attention and number of features with cells to do: those, and the time of one.
    pub ahead: Vec<(SpeechCell, usize, Duration)>,
}

impl SpeechPlan {
    /// A line for each.
    pub fn to_text(&self) -> String {
        let mut out = format!("{} cells have a result.\n", self.done);
        let minutes = |time: Duration| time.as_secs_f64() / 60.0;
        let mut total = 0.0;
        for (cell, count, each) in &self.ahead {
            let name = format!("{} {}", cell.column(), cell.attention.title());
            let _ = writeln!(out, "{name:40} {count:3} × {:6.1} min", minutes(*each));
            total += *count as f64 * minutes(*each);
        }
        let _ = writeln!(out, "in all {:.1} h", total / 60.0);
        out
    }
}

/// Times a few steps of each mode, attention and number of features that has cells to do.
pub fn plan_speech(request: &SpeechRequest, watch: Watch<'_>) -> Result<SpeechPlan> {
    request.check()?;
    request.prepare()?;
    let (mut done, mut ahead): (usize, Vec<(SpeechCell, usize, Duration)>) = (0, Vec::new());
    for cell in request.cells() {
        if request.known(&cell)?.is_some() {
            done += 1;
            continue;
        }
        let same = |c: &SpeechCell| SpeechCell { seed: cell.seed, ..*c } == cell;
        match ahead.iter_mut().find(|(c, _, _)| same(c)) {
            Some((_, count, _)) => *count += 1,
            None => ahead.push((cell, 1, Duration::ZERO)),
        }
    }
    let total = ahead.len() as u64;
    for (i, (cell, _, each)) in ahead.iter_mut().enumerate() {
        let what = format!("timing {} {}", cell.column(), cell.attention);
        (watch.listener)(Tick { done: i as u64, total, what: &what });
        let time = expected_time(&request.training(cell))?;
        *each = match cell.mode {
            Mode::Trans => time,
            // A teacher on half of the utterances, and students on up to all.
            Mode::Nst => time.mul_f64(0.5 + request.generations as f64),
        };
    }
    Ok(SpeechPlan { done, ahead })
}

/// The errors of the grid.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechReport {
    /// Errors and seconds of each cell.
    pub cells: Vec<(SpeechCell, Errors, f64)>,
}

/// Runs the cells that have no result yet, and writes and gives all.
pub fn speech(request: &SpeechRequest, watch: Watch<'_>) -> Result<Outcome<SpeechReport>> {
    request.check()?;
    request.prepare()?;
    let cells = request.cells();
    let mut found = Vec::new();
    for (i, cell) in cells.iter().enumerate() {
        if let Some(known) = request.known(cell)? {
            found.push((*cell, known.errors, known.seconds));
            continue;
        }
        let (column, attention) = (cell.column(), cell.attention);
        let name = format!("{column} {attention} ({} of {})", i + 1, cells.len());
        let listener = |tick: Tick<'_>| {
            let what = format!("{name} {}", tick.what);
            (watch.listener)(Tick { what: &what, ..tick });
        };
        let start = Instant::now();
        let errors = match request.run(cell, Watch { listener: &listener, ..watch })? {
            Outcome::Done(errors) => errors,
            Outcome::Stopped { step, steps, checkpoint } => {
                return Ok(Outcome::Stopped { step, steps, checkpoint });
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let settings = request.settings(cell);
        let result = Finished { cell: *cell, settings, errors: errors.clone(), seconds };
        let text = serde_json::to_vec_pretty(&result)
            .map_err(|e| Error::invalid("result", e.to_string()))?;
        write_atomically(request.folder(cell).join("cell.json"), &text)?;
        found.push((*cell, errors, seconds));
    }
    let report = SpeechReport { cells: found };
    write_atomically(request.out.join("speech.csv"), report.to_csv().as_bytes())?;
    write_atomically(request.out.join("speech.md"), report.to_markdown().as_bytes())?;
    write_atomically(request.out.join("speech.svg"), report.to_svg().as_bytes())?;
    Ok(Outcome::Done(report))
}

impl SpeechReport {
    /// One row a cell.
    pub fn to_csv(&self) -> String {
        let mut out =
            "mode,attention,features,seed,wer,wer_low,wer_high,nwer,cer,seconds\n".to_owned();
        for (cell, errors, seconds) in &self.cells {
            let SpeechCell { mode, attention, features, seed } = cell;
            let [low, high] = errors.words.range;
            let _ = writeln!(
                out,
                "{},{attention},{features},{seed},{:.4},{low:.4},{high:.4},{:.4},{:.4},{seconds:.0}",
                mode.title().to_lowercase(),
                errors.words.value,
                errors.normalised.value,
                errors.characters.value,
            );
        }
        out
    }

    /// Means and standard deviations over seeds, in per cent: one row an attention, mode and number of
    /// features.
    pub fn to_markdown(&self) -> String {
        let mut out = "| attention | training | M | WER % | normalised WER % | CER % | seeds |\n\
                       |---|---|---|---|---|---|---|\n"
            .to_owned();
        for cell in self.rows() {
            let of = |value: fn(&Errors) -> f64| spread(&self.values(&cell, value));
            let size =
                if cell.features == 0 { "–".to_owned() } else { cell.features.to_string() };
            let _ = writeln!(
                out,
                "| {} | {} | {size} | {} | {} | {} | {} |",
                cell.attention.title(),
                cell.mode.title(),
                of(|e| e.words.value),
                of(|e| e.normalised.value),
                of(|e| e.characters.value),
                self.values(&cell, |e| e.words.value).len()
            );
        }
        out
    }

    /// Normalised word error rates as bars.
    pub fn to_svg(&self) -> String {
        let rows = self.rows();
        let mut columns: Vec<(Mode, usize)> =
            rows.iter().filter(|c| c.features > 0).map(|c| (c.mode, c.features)).collect();
        columns.sort();
        columns.dedup();
        let names = columns.iter().map(|(mode, m)| format!("{}-{m}", mode.title())).collect();
        let mut bars = Bars::new("Normalised word error rate on AN4", names)
            .labels("training and number of features", "normalised WER, %");
        let mean = |cell: &SpeechCell| {
            let values = self.values(cell, |e| e.normalised.value);
            100.0 * values.iter().sum::<f64>() / values.len() as f64
        };
        let mut attentions: Vec<Attention> = Vec::new();
        for cell in &rows {
            match cell.features {
                0 => {
                    let name = format!("{}, {}", cell.attention.title(), cell.mode.title());
                    bars = bars.reference(name, mean(cell));
                }
                _ if attentions.contains(&cell.attention) => {}
                _ => attentions.push(cell.attention),
            }
        }
        for (style, attention) in attentions.into_iter().enumerate() {
            let value = |&(mode, features): &(Mode, usize)| {
                let of = |c: &&SpeechCell| {
                    (c.mode, c.attention, c.features) == (mode, attention, features)
                };
                rows.iter().find(of).map_or(f64::NAN, mean)
            };
            bars = bars.group(attention.title(), Some(style), columns.iter().map(value).collect());
        }
        bars.to_svg()
    }

    /// One cell for all seeds.
    fn rows(&self) -> Vec<SpeechCell> {
        let mut rows: Vec<SpeechCell> = Vec::new();
        for (cell, _, _) in &self.cells {
            let row = SpeechCell { seed: 0, ..*cell };
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    fn values(&self, row: &SpeechCell, value: impl Fn(&Errors) -> f64) -> Vec<f64> {
        let same = |c: &SpeechCell| SpeechCell { seed: 0, ..*c } == SpeechCell { seed: 0, ..*row };
        self.cells.iter().filter(|(c, _, _)| same(c)).map(|(_, e, _)| value(e)).collect()
    }
}

impl SpeechCell {
    fn column(&self) -> String {
        match self.features {
            0 => self.mode.title().to_owned(),
            m => format!("{}-{m}", self.mode.title()),
        }
    }
}

/// Mean and standard deviation, in per cent.
fn spread(values: &[f64]) -> String {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    match values.len() {
        0 => "–".to_owned(),
        1 => format!("{:.1}", 100.0 * mean),
        _ => format!("{:.1} ± {:.1}", 100.0 * mean, 100.0 * deviation),
    }
}
