//! What a conversion is asked for.

use crate::attention::Attention;
use crate::{Error, Result};
use favor::ExactKeys;
use favor::learned::LearnOptions;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the model is shown while it gets used to its new attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Files of text, compressed or not, cut into pieces. No labels are needed.
    Texts(Vec<PathBuf>),
    /// The examples of a task of GLUE or of a file, whose labels are learned again at the end.
    Task(String),
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Texts(files) => {
                let names: Vec<String> = files.iter().map(|file| name(file)).collect();
                write!(f, "texts: {}", names.join(", "))
            }
            Self::Task(task) => write!(f, "task: {}", name(Path::new(task))),
        }
    }
}

/// The last part of a path.
pub(super) fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned())
}

/// How long each stage of a conversion is. A stage of 0 steps is left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConvertOptions {
    /// Steps in which each head learns its map from the queries and keys of the exact model.
    pub learn: u64,
    /// Solve for the output projection of each layer by least squares.
    pub repair: bool,
    /// Steps on the maps alone, towards the states and outputs of the exact model.
    pub maps: u64,
    /// Steps on maps, values and output projections.
    pub values: u64,
    /// Steps on all weights.
    pub weights: u64,
    /// Times that every example of a task is seen, with its label beside the exact model's answer.
    pub epochs: u64,
    /// Texts of a step.
    pub batch: usize,
    /// Texts are cut to so many tokens.
    pub length: usize,
    /// The peak of the rate of the weights; maps learn 1.5 times as fast. Of the default and 2e-4, the default brought
    /// a converted MiniLM closer to the exact one on held-out examples of STS-B.
    pub rate: f64,
    /// The same while labels are learned.
    pub task_rate: f64,
    /// Decides draws, the order of texts, and dropout.
    pub seed: u64,
    /// Only so many examples of a task are learned from.
    pub examples: Option<usize>,
    /// All stages are made longer or shorter by one factor so that they take about this long together.
    pub budget: Option<Duration>,
}

setters! { ConvertOptions {
    learn: u64,
    repair: bool,
    maps: u64,
    values: u64,
    weights: u64,
    epochs: u64,
    batch: usize,
    length: usize,
    rate: f64,
    task_rate: f64,
    seed: u64,
    examples: Option<usize>,
    budget: Option<Duration>,
} }

impl Default for ConvertOptions {
    fn default() -> Self {
        let options = Self {
            learn: LearnOptions::STEPS as u64,
            repair: false,
            maps: 0,
            values: 0,
            weights: 0,
            epochs: 3,
            batch: 16,
            length: 128,
            rate: 3e-5,
            task_rate: 1e-4,
            seed: 0,
            examples: None,
            budget: None,
        };
        options.steps(Self::STEPS)
    }
}

impl ConvertOptions {
    /// Steps towards the exact model, if none are asked for.
    pub const STEPS: u64 = 1200;

    /// So many steps towards the exact model: an eighth on maps, an eighth on values, the rest on all weights.
    ///
    /// ```
    /// use favor_nn::run::ConvertOptions;
    /// let options = ConvertOptions::default().steps(20);
    /// assert_eq!((options.maps, options.values, options.weights), (2, 2, 16));
    /// ```
    #[must_use]
    pub fn steps(self, steps: u64) -> Self {
        let eighth = steps / 8;
        self.maps(eighth).values(eighth).weights(steps - 2 * eighth)
    }
}

/// A model to convert, and to what.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ConvertRequest {
    /// The folder of the exact model.
    pub model: PathBuf,
    /// What it is shown.
    pub source: Source,
    /// The folder of the data of tasks.
    pub data: PathBuf,
    /// Where the converted model is written.
    #[serde(skip)]
    pub out: PathBuf,
    /// The attention.
    pub attention: Attention,
    /// Features of each head.
    pub features: usize,
    /// The keys that every head attends exactly.
    pub exact: ExactKeys,
    /// Layers to convert, from 0; `None`: all.
    pub layers: Option<Vec<usize>>,
    /// So many heads stay exact: those whose features do most harm.
    pub keep_exact: usize,
    /// Switches the features off, so that the exact keys stand alone: a control.
    pub exact_alone: bool,
    /// A paragraph for the card of the model, such as what else opens it.
    #[serde(skip)]
    pub card_note: Option<String>,
    /// How.
    pub options: ConvertOptions,
}

setters! { ConvertRequest {
    model: PathBuf,
    source: Source,
    data: PathBuf,
    out: PathBuf,
    attention: Attention,
    features: usize,
    exact: ExactKeys,
    layers: Option<Vec<usize>>,
    keep_exact: usize,
    exact_alone: bool,
    card_note: Option<String>,
    options: ConvertOptions,
} }

impl ConvertRequest {
    /// 64 learned features for this model, and data of tasks in the current folder.
    pub fn new(model: impl Into<PathBuf>, source: Source, out: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            source,
            data: PathBuf::from("."),
            out: out.into(),
            attention: Attention::Learned,
            features: 64,
            exact: ExactKeys::NONE,
            layers: None,
            keep_exact: 0,
            exact_alone: false,
            card_note: None,
            options: ConvertOptions::default(),
        }
    }

    /// Whether the attention has maps that are given to the layers.
    pub(super) fn has_maps(&self) -> bool {
        self.attention.family().is_some()
    }

    /// Whether the maps are weights of the model, which training changes.
    pub(super) fn trains_maps(&self) -> bool {
        self.attention == Attention::Learned && !self.exact_alone
    }

    pub(super) fn check(&self, layers: usize, heads: usize) -> Result<()> {
        let refuse = |what: &'static str, reason: String| Err(Error::invalid(what, reason));
        let name = self.attention.name();
        if matches!(self.attention, Attention::Exact | Attention::Auto) {
            let reason =
                format!("'{name}' is nothing to convert to; use learned, a family, elu or relu");
            return refuse("attention", reason);
        }
        if !self.has_maps() && (!self.exact.is_none() || self.keep_exact > 0 || self.exact_alone) {
            return refuse("attention", format!("'{name}' has no features to add exact keys to"));
        }
        if self.exact_alone && (self.exact.is_none() || self.attention != Attention::Learned) {
            let reason =
                "only those of learned features, which point at some of them, can stand alone";
            return refuse("exact keys", reason.into());
        }
        if self.features == 0 || self.exact.slots > self.features {
            let reason =
                format!("{} features, {} preferred slots", self.features, self.exact.slots);
            return refuse("features", reason);
        }
        let chosen = self.chosen(layers);
        if chosen.is_empty() || chosen.iter().any(|l| *l >= layers) {
            let reason = format!("{chosen:?} of a model whose layers are 0 to {}", layers - 1);
            return refuse("layers", reason);
        }
        if self.keep_exact >= chosen.len() * heads {
            let reason = format!("{} of {} heads", self.keep_exact, chosen.len() * heads);
            return refuse("exact heads", format!("{reason}: nothing would be converted"));
        }
        let ConvertOptions { batch, rate, task_rate, .. } = self.options;
        let positive = [rate, task_rate].iter().all(|r| r.is_finite() && *r > 0.0);
        if batch == 0 || !positive {
            return refuse("training", "a batch and the rates must be above zero".into());
        }
        if matches!(&self.source, Source::Texts(files) if files.is_empty()) {
            return refuse("texts", "no file is given".into());
        }
        Ok(())
    }

    /// The layers to convert.
    pub(super) fn chosen(&self, layers: usize) -> Vec<usize> {
        let mut chosen = self.layers.clone().unwrap_or_else(|| (0..layers).collect());
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }
}
