//! The paper's comparison of attentions in speech recognition (Figure 7): trained on all labels, by noisy
//! students with half of the labels hidden, and put into a model that was trained with exact attention.

use super::device;
use super::nst::{NstRequest, nst};
use super::options::TrainOptions;
use super::replace::replaced;
use super::train::{TrainRequest, expected_time, features, judge, train};
use crate::{Corpus, Error, Errors, Manifest, Rate, Result, SpeechModel, Utterance, import};
use favor::{Family, Redraw};
use favor_figure::Bars;
use favor_io::setters;
use favor_io::stats::mean;
use favor_io::write_atomically;
use favor_nn::run::Watch;
use favor_nn::run::grid::{self, Grid, Plan};
use favor_nn::{Attention, LayerOptions};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// About the time of a cell without training, and of one whose maps are learned.
const REPLACED: Duration = Duration::from_secs(20);
const LEARNED: Duration = Duration::from_secs(300);

/// How a model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// On all labels.
    Trans,
    /// As noisy students, with half of the labels hidden.
    Nst,
    /// On all labels with exact attention, which is then replaced; nothing is trained after.
    Replaced,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Trans, Self::Nst, Self::Replaced];

    /// The name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trans => "trans",
            Self::Nst => "nst",
            Self::Replaced => "replaced",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Trans => "TRANS",
            Self::Nst => "NST",
            Self::Replaced => "REPLACED",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
            Error::invalid("mode", favor::unknown_name(name, &Self::ALL.map(Self::name)))
        })
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The grid.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SpeechRequest {
    /// The folder that holds the corpora.
    pub data: PathBuf,
    /// What is learned and judged by: one that has both parts.
    pub corpus: Corpus,
    /// Where results are kept.
    pub out: PathBuf,
    /// How models are trained.
    pub modes: Vec<Mode>,
    /// The attentions.
    pub attentions: Vec<Attention>,
    /// The numbers of features.
    pub features: Vec<usize>,
    /// The number of seeds, from 0.
    pub seeds: u64,
    /// How to train; the seed is overwritten.
    pub options: TrainOptions,
    /// When maps are fitted again.
    pub redraw: Redraw,
    /// The number of students in noisy student training.
    pub generations: u64,
    /// Labels that a teacher was less sure of are left out.
    pub confidence: f64,
}

setters! { SpeechRequest {
    data: PathBuf,
    corpus: Corpus,
    out: PathBuf,
    modes: Vec<Mode>,
    attentions: Vec<Attention>,
    features: Vec<usize>,
    seeds: u64,
    options: TrainOptions,
    redraw: Redraw,
    generations: u64,
    confidence: f64,
} }

impl SpeechRequest {
    /// The paper's attentions with 8, 32 and 128 features, three seeds each.
    pub fn new(data: impl Into<PathBuf>, out: impl Into<PathBuf>) -> Self {
        let families = [Family::Sde, Family::Balanced, Family::Ge, Family::Pos];
        let features = families.map(Attention::Features);
        Self {
            data: data.into(),
            corpus: Corpus::An4,
            out: out.into(),
            modes: vec![Mode::Trans, Mode::Nst],
            attentions: [Attention::Exact].into_iter().chain(features).collect(),
            features: vec![8, 32, 128],
            seeds: 3,
            options: TrainOptions::default(),
            redraw: LayerOptions::default().redraw,
            generations: 1,
            confidence: 0.8,
        }
    }
}

/// One training of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpeechCell {
    /// How.
    pub mode: Mode,
    /// The attention.
    pub attention: Attention,
    /// The number of features; 0 for attentions without features.
    pub features: usize,
    /// The seed.
    pub seed: u64,
}

/// What decides the result of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    options: TrainOptions,
    redraw: Redraw,
    /// Generations and confidence of noisy student training.
    students: Option<(u64, f64)>,
}

impl SpeechRequest {
    fn check(&self) -> Result<()> {
        grid::check(&[
            ("modes", self.modes.is_empty()),
            ("attentions", self.attentions.is_empty()),
            ("features", self.features.is_empty() || self.features.contains(&0)),
            ("seeds", self.seeds == 0),
        ])?;
        if !matches!(self.corpus, Corpus::An4 | Corpus::Fsdd | Corpus::Digits) {
            let reason = format!("'{}' has no test set", self.corpus.name());
            return Err(Error::invalid("corpus", reason));
        }
        let trained = self.modes.iter().any(|mode| *mode != Mode::Replaced);
        if trained && self.attentions.contains(&Attention::Learned) {
            let reason = "maps are learned from a trained model: 'learned' is for replaced alone";
            return Err(Error::invalid("attentions", reason));
        }
        Ok(())
    }

    /// The cell whose model other attentions are put into.
    fn exact(&self, cell: &SpeechCell) -> SpeechCell {
        SpeechCell { mode: Mode::Trans, attention: Attention::Exact, features: 0, seed: cell.seed }
    }

    fn folder(&self, cell: &SpeechCell) -> PathBuf {
        let SpeechCell { mode, attention, features, seed } = cell;
        self.out.join("cells").join(format!("{mode}-{attention}-{features}-{seed}"))
    }

    fn attention(&self, cell: &SpeechCell) -> LayerOptions {
        let options = LayerOptions::new(cell.attention, cell.features.max(1));
        options.redraw(self.redraw).seed(cell.seed)
    }

    fn training(&self, cell: &SpeechCell) -> TrainRequest {
        TrainRequest::new(vec![self.manifest("train")], self.folder(cell))
            .test(Some(self.manifest("test")))
            .attention(self.attention(cell))
            .options(self.settings(cell).options)
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.out.join("data").join(self.corpus.name()).join(format!("{name}.jsonl"))
    }

    /// The corpus, imported once, and its halves with and without labels.
    fn prepare(&self) -> Result<()> {
        if self.manifest("unlabelled").exists() {
            return Ok(());
        }
        import(self.corpus, &self.data, &self.out.join("data"))?;
        let all = Manifest::read(&self.manifest("train"))?;
        let folder = self.out.join("data").join(self.corpus.name());
        let local = |u: &Utterance| {
            let path = u.path.strip_prefix(&folder).unwrap_or(&u.path).to_path_buf();
            Utterance { path, ..u.clone() }
        };
        let half = |odd: usize| all.utterances.iter().skip(odd).step_by(2).map(local);
        Manifest::write(&self.manifest("labelled"), &half(0).collect::<Vec<_>>())?;
        let bare: Vec<Utterance> = half(1).map(|u| Utterance { text: None, ..u }).collect();
        Manifest::write(&self.manifest("unlabelled"), &bare)
    }
}

impl Grid for SpeechRequest {
    type Cell = SpeechCell;
    type Settings = Settings;
    type Found = Errors;

    fn cells(&self) -> Vec<SpeechCell> {
        let mut out = Vec::new();
        for seed in 0..self.seeds {
            for &mode in &self.modes {
                for &attention in &self.attentions {
                    let cell = |&features| SpeechCell { mode, attention, features, seed };
                    let cells = grid::sizes(attention, &self.features).iter().map(cell);
                    for cell in cells {
                        let exact = self.exact(&cell);
                        if mode == Mode::Replaced && !out.contains(&exact) {
                            out.push(exact);
                        }
                        // Exact attention in the place of exact attention is that.
                        let same = mode == Mode::Replaced && attention == Attention::Exact;
                        if !same && !out.contains(&cell) {
                            out.push(cell);
                        }
                    }
                }
            }
        }
        out
    }

    fn phase(&self, cell: &SpeechCell) -> usize {
        usize::from(cell.mode == Mode::Replaced)
    }

    fn settings(&self, cell: &SpeechCell) -> Settings {
        Settings {
            options: self.options.seed(cell.seed),
            redraw: self.redraw,
            students: (cell.mode == Mode::Nst).then_some((self.generations, self.confidence)),
        }
    }

    fn place(&self, cell: &SpeechCell) -> PathBuf {
        self.folder(cell).join("cell.json")
    }

    fn title(&self, cell: &SpeechCell) -> String {
        format!("{} {}", cell.column(), cell.attention.title())
    }

    fn time(&self, cell: &SpeechCell) -> Result<Duration> {
        let trained = || expected_time(&self.training(cell));
        Ok(match cell.mode {
            Mode::Trans => trained()?,
            // A teacher on half of the utterances, and students on up to all.
            Mode::Nst => trained()?.mul_f64(0.5 + self.generations as f64),
            Mode::Replaced if cell.attention == Attention::Learned => LEARNED,
            Mode::Replaced => REPLACED,
        })
    }

    fn run(&self, cell: &SpeechCell, watch: Watch<'_>) -> Result<Errors> {
        let training = self.training(cell);
        let found = match cell.mode {
            Mode::Replaced => {
                let model = SpeechModel::load(&self.folder(&self.exact(cell)), &device())?;
                let train = features(&model.front, &Manifest::read(&self.manifest("train"))?)?;
                let model = replaced(model, training.attention, &train)?;
                Some(judge(&model, &Manifest::read(&self.manifest("test"))?, cell.seed)?)
            }
            Mode::Trans => train(&training, watch)?.errors,
            Mode::Nst => {
                let (labelled, unlabelled) =
                    (self.manifest("labelled"), self.manifest("unlabelled"));
                let request = NstRequest::new(labelled, unlabelled, training.out)
                    .test(training.test)
                    .attention(training.attention)
                    .options(training.options)
                    .generations(self.generations)
                    .confidence(self.confidence);
                nst(&request, watch)?.pop().and_then(|last| last.errors)
            }
        };
        let missing = || Error::Training("the model was not judged".into());
        found.ok_or_else(missing)
    }
}

/// Times a few steps of each mode, attention and number of features that has cells to do.
pub fn plan(request: &SpeechRequest, watch: Watch<'_>) -> Result<Plan> {
    request.check()?;
    request.prepare()?;
    grid::plan(request, watch)
}

/// The errors of the grid.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechReport {
    /// Errors and seconds of each cell.
    pub cells: Vec<(SpeechCell, Errors, f64)>,
}

/// Runs the cells that have no result yet, and writes and returns all.
pub fn reproduce(request: &SpeechRequest, watch: Watch<'_>) -> Result<SpeechReport> {
    request.check()?;
    request.prepare()?;
    let kept = grid::run(request, watch)?;
    let cells = kept.into_iter().map(|kept| (kept.cell, kept.found, kept.seconds)).collect();
    let report = SpeechReport { cells };
    write_atomically(request.out.join("speech.csv"), report.to_csv().as_bytes())?;
    write_atomically(request.out.join("speech.md"), report.to_markdown().as_bytes())?;
    write_atomically(request.out.join("speech.svg"), report.to_svg().as_bytes())?;
    Ok(report)
}

impl SpeechReport {
    /// One row per cell.
    pub fn to_csv(&self) -> String {
        let mut out =
            "mode,attention,features,seed,wer,wer_low,wer_high,nwer,cer,seconds\n".to_owned();
        for (cell, errors, seconds) in &self.cells {
            let SpeechCell { mode, attention, features, seed } = cell;
            let [low, high] = errors.words.range;
            let _ = writeln!(
                out,
                "{},{attention},{features},{seed},{:.4},{low:.4},{high:.4},{:.4},{:.4},{seconds:.0}",
                mode.name(),
                errors.words.value,
                errors.normalised.value,
                errors.characters.value,
            );
        }
        out
    }

    /// Means and standard deviations over seeds, in per cent: one row per attention, mode and number of
    /// features. The range is over resampled test utterances, averaged over seeds.
    pub fn to_markdown(&self) -> String {
        let mut out =
            "| attention | training | M | WER % | range | against exact | normalised WER % | CER % | seeds |\n\
                       |---|---|---|---|---|---|---|---|---|\n"
                .to_owned();
        for cell in self.rows() {
            let of = |value: fn(&Errors) -> f64| grid::spread(&self.values(&cell, value));
            let size = grid::size_title(cell.features);
            let _ = writeln!(
                out,
                "| {} | {} | {size} | {} | {:.1}–{:.1} | {} | {} | {} | {} |",
                cell.attention.title(),
                cell.mode.title(),
                of(|e| e.words.value),
                self.mean(&cell, |e| e.words.range[0]),
                self.mean(&cell, |e| e.words.range[1]),
                self.against_exact(&cell),
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
        let mut bars = Bars::new("Normalised word error rate", names)
            .labels("training and number of features", "normalised WER, %");
        let mean = |cell: &SpeechCell| self.mean(cell, |e| e.normalised.value);
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

    /// How many points a row is above exact attention of the same training and seed, with the range over
    /// utterances that are drawn for both together; means over seeds.
    fn against_exact(&self, row: &SpeechCell) -> String {
        let mode = if row.mode == Mode::Replaced { Mode::Trans } else { row.mode };
        let mut found: Vec<Rate> = Vec::new();
        for (cell, errors, _) in self.cells.iter().filter(|(c, _, _)| same_but_seed(c, row)) {
            let exact = SpeechCell { mode, attention: Attention::Exact, features: 0, ..*cell };
            let of = self.cells.iter().find(|(c, _, _)| *c == exact && c != cell);
            found.extend(of.and_then(|(_, exact, _)| errors.less(exact, cell.seed)));
        }
        if found.is_empty() {
            return "–".to_owned();
        }
        let mean = |of: fn(&Rate) -> f64| 100.0 * mean(&found.iter().map(of).collect::<Vec<_>>());
        let (value, low, high) = (mean(|r| r.value), mean(|r| r.range[0]), mean(|r| r.range[1]));
        format!("{value:+.1} ({low:+.1} to {high:+.1})")
    }

    /// Over seeds, in per cent.
    fn mean(&self, cell: &SpeechCell, value: fn(&Errors) -> f64) -> f64 {
        100.0 * mean(&self.values(cell, value))
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
        let same = self.cells.iter().filter(|(c, _, _)| same_but_seed(c, row));
        same.map(|(_, e, _)| value(e)).collect()
    }
}

fn same_but_seed(a: &SpeechCell, b: &SpeechCell) -> bool {
    SpeechCell { seed: 0, ..*a } == SpeechCell { seed: 0, ..*b }
}

impl SpeechCell {
    fn column(&self) -> String {
        match self.features {
            0 => self.mode.title().to_owned(),
            m => format!("{}-{m}", self.mode.title()),
        }
    }
}
