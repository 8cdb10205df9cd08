//! Fine-tuning a model on a task.

use super::device;
use super::session::{Session, Watch};
use crate::batches::Batches;
use crate::bert::{Bert, BertConfig};
use crate::layer::LayerOptions;
use crate::task::{Answers, Example, TextTask, answers, encode};
use crate::text::{Batch, Encoded, TextTokenizer};
use crate::train::{AdamOptions, Schedule, Trainer};
use crate::{Error, Result};
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use favor_io::create_folder;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How to fine-tune.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TuningOptions {
    /// Times that every example is seen.
    pub epochs: u64,
    /// Examples of a step.
    pub batch: usize,
    /// The peak of the rate.
    pub rate: f64,
    /// The fraction of steps in which the rate rises.
    pub warmup: f64,
    /// Texts are cut to so many tokens.
    pub length: usize,
    /// Decides the new weights, the order of examples, and dropout.
    pub seed: u64,
    /// Only so many examples are learned from.
    pub examples: Option<usize>,
}

setters! { TuningOptions {
    epochs: u64,
    batch: usize,
    rate: f64,
    warmup: f64,
    length: usize,
    seed: u64,
    examples: Option<usize>,
} }

impl Default for TuningOptions {
    fn default() -> Self {
        Self { epochs: 3, batch: 32, rate: 1e-4, warmup: 0.1, length: 128, seed: 0, examples: None }
    }
}

/// What to fine-tune on what.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FinetuneRequest {
    /// The folder of the model to begin with.
    pub model: PathBuf,
    /// A task of GLUE, or a file.
    pub task: String,
    /// The folder of the data.
    pub data: PathBuf,
    /// Where the model is written.
    pub out: PathBuf,
    /// The attention; `None`: that of a converted model, else exact.
    pub attention: Option<LayerOptions>,
    /// How.
    pub options: TuningOptions,
}

setters! { FinetuneRequest {
    model: PathBuf,
    task: String,
    data: PathBuf,
    out: PathBuf,
    attention: Option<LayerOptions>,
    options: TuningOptions,
} }

impl FinetuneRequest {
    /// A task for this model, with its own attention, the usual settings, and data in the current folder.
    pub fn new(
        model: impl Into<PathBuf>,
        task: impl Into<String>,
        out: impl Into<PathBuf>,
    ) -> Self {
        Self {
            model: model.into(),
            task: task.into(),
            data: PathBuf::from("."),
            out: out.into(),
            attention: None,
            options: TuningOptions::default(),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct FineTuned {
    /// The name of the score.
    pub metric: &'static str,
    /// The score on the examples to be judged by, after each epoch of this run.
    pub scores: Vec<f64>,
    /// Examples learned from and judged by.
    pub examples: [usize; 2],
}

impl FineTuned {
    /// The score at the end.
    pub fn score(&self) -> f64 {
        self.scores.last().copied().unwrap_or(0.0)
    }
}

/// A task, ready to be learned.
pub(super) struct Tuning {
    pub(super) task: TextTask,
    config: BertConfig,
    options: TuningOptions,
    train: Vec<Encoded>,
    dev: Vec<Encoded>,
    batches: Batches,
    device: Device,
}

impl Tuning {
    /// Reads model and task, and gives the trainer of the first step.
    pub(super) fn new(
        model: &Path,
        task: TextTask,
        attention: Option<LayerOptions>,
        options: TuningOptions,
    ) -> Result<(Self, Trainer)> {
        let TuningOptions { epochs, batch, rate, warmup, seed, .. } = options;
        if epochs == 0 || batch == 0 || !(0.0..=1.0).contains(&warmup) {
            let reason = "epochs and batch must be above 0, and the warm-up a fraction";
            return Err(Error::invalid("training", reason));
        }
        let task = task.truncated(options.examples);
        let device = device().autodiff();
        let (bert, config) = Bert::open(model, attention, &device)?;
        if options.length > config.max_position_embeddings {
            let (length, most) = (options.length, config.max_position_embeddings);
            let reason = format!("{length} tokens where the model has {most} positions");
            return Err(Error::invalid("length", reason));
        }
        let tokenizer = TextTokenizer::load(model, options.length)?;
        let (train, dev) = (encode(&task.train, &tokenizer)?, encode(&task.dev, &tokenizer)?);
        // The new weights are drawn by the device's generator.
        device.seed(seed);
        let mut bert = bert.with_classifier(&config, task.labels(), &device);
        bert.masked = None;
        let lengths = train.iter().map(|t| t.ids.len()).collect();
        let batches = Batches::new(lengths, batch, seed);
        let steps = epochs * batches.per_epoch();
        let schedule = Schedule::new(steps, rate).warmup((warmup * steps as f64).round() as u64);
        let trainer = Trainer::new(bert, schedule, AdamOptions::default(), seed)?;
        Ok((Self { task, config, options, train, dev, batches, device }, trainer))
    }

    fn steps_per_epoch(&self) -> u64 {
        self.batches.per_epoch()
    }

    /// The batches of an epoch.
    pub(super) fn order(&self, epoch: u64) -> Vec<Vec<usize>> {
        self.batches.epoch(epoch)
    }

    /// The number of batches to be judged by.
    pub(super) fn judging(&self) -> usize {
        self.dev.len().div_ceil(self.options.batch)
    }

    /// The loss of a step.
    pub(super) fn loss(&self, model: &Bert, chosen: &[usize]) -> Result<Tensor<1>> {
        let batch = Batch::of(chosen.iter().map(|i| &self.train[*i]))?;
        let labels: Vec<f64> = chosen.iter().map(|i| self.task.train[*i].label).collect();
        let scores = model.classify(&batch)?;
        Ok(match self.task.answers {
            Answers::Classes(_) => {
                let labels: Vec<i64> = labels.iter().map(|l| *l as i64).collect();
                let labels = TensorData::new(labels, [chosen.len()]);
                let labels = Tensor::<1, Int>::from_data(labels, &self.device);
                CrossEntropyLossConfig::new().init(&self.device).forward(scores, labels)
            }
            Answers::Number => {
                let labels: Vec<f32> = labels.iter().map(|l| *l as f32).collect();
                let labels = TensorData::new(labels, [chosen.len(), 1]);
                (scores - Tensor::<2>::from_data(labels, &self.device)).square().mean()
            }
        })
    }

    /// The score on the examples to be judged by.
    pub(super) fn score(&self, model: &Bert) -> Result<f64> {
        let answers = answers(&model.valid(), &self.dev, &self.task.answers, self.options.batch)?;
        let right: Vec<f64> = self.task.dev.iter().map(|e: &Example| e.label).collect();
        Ok(self.task.metric.score(&answers, &right))
    }

    /// Trains from where the session stands to the end, and gives the scores of the epochs.
    pub(super) fn run(&self, session: &mut Session<'_>) -> Result<Vec<f64>> {
        let per_epoch = self.steps_per_epoch();
        let mut scores = Vec::new();
        for epoch in 0..self.options.epochs {
            let end = (epoch + 1) * per_epoch;
            if session.trainer().steps_made() >= end && end < session.trainer().steps() {
                continue;
            }
            let order = self.order(epoch);
            let loss = |model: &Bert, step: u64| {
                self.loss(model, &order[(step - epoch * per_epoch) as usize])
            };
            session.train(end, loss)?;
            scores.push(self.score(session.trainer().model())?);
        }
        Ok(scores)
    }
}

/// The score of a model of a folder on the examples of a task that are there to judge by.
pub(super) fn judge(model: &Path, task: &TextTask, options: TuningOptions) -> Result<f64> {
    let (bert, _) = Bert::open(model, None, &device())?;
    let tokenizer = TextTokenizer::load(model, options.length)?;
    let found = answers(&bert, &encode(&task.dev, &tokenizer)?, &task.answers, options.batch)?;
    let right: Vec<f64> = task.dev.iter().map(|e| e.label).collect();
    Ok(task.metric.score(&found, &right))
}

/// Fine-tunes a model on a task and writes it. The same request goes on from its checkpoint.
pub fn finetune(request: &FinetuneRequest, watch: Watch<'_>) -> Result<FineTuned> {
    let task = TextTask::read(&request.task, &request.data)?;
    let (tuning, trainer) = Tuning::new(&request.model, task, request.attention, request.options)?;
    create_folder(&request.out)?;
    let described = (&request.model, &request.task, request.attention, request.options);
    let checkpoint = request.out.join("checkpoint.safetensors");
    let mut session = Session::start(trainer, &described, checkpoint, watch)?;
    let scores = tuning.run(&mut session)?;
    let names = tuning.task.label_names();
    let model = session.trainer().model();
    model.save(&request.out, &tuning.config, Some(&names), Some(&request.model))?;
    session.finish()?;
    Ok(FineTuned {
        metric: tuning.task.metric.title(),
        scores,
        examples: [tuning.task.train.len(), tuning.task.dev.len()],
    })
}
