//! Training a speech recogniser.

use super::device;
use super::listen::read_all;
use super::options::TrainOptions;
use crate::audio::{Features, FrontEnd, Recording};
use crate::{
    Error, Errors, Frames, Manifest, Recogniser, Result, SpeechConfig, SpeechModel, Utterance,
    Vocabulary,
};
use burn::module::Module;
use burn::tensor::Tensor;
use favor::draw::Stream;
use favor_io::progress::Tick;
use favor_io::setters;
use favor_io::{create_folder, write_atomically};
use favor_nn::LayerOptions;
use favor_nn::batches::Batches;
use favor_nn::run::{Session, Watch};
use favor_nn::train::{AdamOptions, Schedule, Trainer};
use rayon::prelude::*;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The random stream of augmentation.
const PURPOSE: u64 = 0x736f_756e;

/// Steps timed to estimate how long training takes.
const TIMED: usize = 5;

/// What to train on what.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TrainRequest {
    /// Manifests to learn from.
    pub data: Vec<PathBuf>,
    /// A manifest to evaluate on.
    pub test: Option<PathBuf>,
    /// Where the model is written.
    pub out: PathBuf,
    /// The attention.
    pub attention: LayerOptions,
    /// How.
    pub options: TrainOptions,
}

setters! { TrainRequest {
    data: Vec<PathBuf>,
    test: Option<PathBuf>,
    out: PathBuf,
    attention: LayerOptions,
    options: TrainOptions,
} }

impl TrainRequest {
    /// Training on these manifests, with the default attention and settings.
    pub fn new(data: Vec<PathBuf>, out: impl Into<PathBuf>) -> Self {
        Self {
            data,
            test: None,
            out: out.into(),
            attention: LayerOptions::default(),
            options: TrainOptions::default(),
        }
    }
}

/// One line of the training log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// Epochs finished.
    pub epoch: u64,
    /// The running mean of the loss.
    pub loss: f64,
    /// The word error rate on the test utterances, if they were evaluated.
    pub wer: Option<f64>,
    /// The duration of this epoch in seconds.
    pub seconds: f64,
}

/// The result.
#[derive(Debug, Clone)]
pub struct Trained {
    /// Every epoch.
    pub epochs: Vec<Epoch>,
    /// On the test utterances, at the end.
    pub errors: Option<Errors>,
    /// The number of training utterances.
    pub utterances: usize,
    /// The number of weights of the model.
    pub weights: usize,
}

/// Recordings and labels, ready for training.
struct Training {
    front: FrontEnd,
    vocabulary: Vocabulary,
    config: SpeechConfig,
    recordings: Vec<Recording>,
    labels: Vec<Vec<usize>>,
    batches: Batches,
    options: TrainOptions,
    test: Option<(Vec<Features>, Vec<String>)>,
}

impl Training {
    fn new(request: &TrainRequest) -> Result<Self> {
        let options = request.options;
        options.check()?;
        let mut utterances: Vec<Utterance> = Vec::new();
        for path in &request.data {
            let manifest = Manifest::read(path)?;
            manifest.texts()?;
            utterances.extend(manifest.utterances);
        }
        let Some(first) = utterances.first() else {
            return Err(Error::invalid("data", "no manifest is given"));
        };
        let texts: Vec<&str> = utterances.iter().filter_map(|u| u.text.as_deref()).collect();
        let vocabulary = Vocabulary::of(texts.iter().copied(), options.units)?;
        let labels = texts.iter().map(|text| vocabulary.encode(text)).collect::<Result<_>>()?;
        let front = FrontEnd::for_file(&first.path)?;
        let recordings = read_all(&front, &utterances)?;
        let front = front.fitted(recordings.iter());
        let test = request.test.as_deref().map(|path| -> Result<_> {
            let manifest = Manifest::read(path)?;
            let texts = manifest.texts()?.into_iter().map(str::to_owned).collect();
            Ok((features(&front, &manifest)?, texts))
        });
        let lengths = recordings.par_iter().map(|r| front.features(r, None).frames()).collect();
        Ok(Self {
            config: options.config(front.dim(), vocabulary.size()),
            batches: Batches::new(lengths, options.batch, options.seed),
            test: test.transpose()?,
            front,
            vocabulary,
            recordings,
            labels,
            options,
        })
    }

    /// The trainer before the first step.
    fn trainer(&self, attention: LayerOptions) -> Result<Trainer<Recogniser>> {
        let TrainOptions { epochs, rate, warmup, seed, .. } = self.options;
        let device = device().autodiff();
        // New weights are drawn by the device's generator.
        device.seed(seed);
        let network = Recogniser::new(&self.config, attention, &device)?;
        let steps = epochs * self.batches.per_epoch();
        let schedule = Schedule::new(steps, rate).warmup((warmup * steps as f64).round() as u64);
        let adam = AdamOptions::default().beta2(0.98);
        Trainer::new(network, schedule, adam, seed)
    }

    /// The loss of these utterances, each augmented according to the seed, the epoch and its number;
    /// not augmented in the epochs with a first guess of the alignment.
    fn loss(&self, model: &Recogniser, epoch: u64, chosen: &[usize]) -> Result<Tensor<1>> {
        let guessed = epoch < self.options.guessed_epochs();
        let changed = |i: &usize| {
            let seed = self.options.seed.wrapping_add(epoch << 32).wrapping_add((*i as u64) << 8);
            let mut stream = Stream::new(seed, PURPOSE);
            let augment = (!guessed).then_some((&self.options.augment, &mut stream));
            self.front.features(&self.recordings[*i], augment)
        };
        let features: Vec<Features> = chosen.par_iter().map(changed).collect();
        let labels: Vec<Vec<usize>> = chosen.iter().map(|i| self.labels[*i].clone()).collect();
        let frames = Frames::new(&features)?;
        if guessed {
            let loudness: Vec<Vec<f32>> = features.iter().map(|f| self.front.loudness(f)).collect();
            return model.spread_loss(&frames, &loudness, &labels);
        }
        model.loss(&frames, &labels)
    }

    fn model(&self, network: &Recogniser, attention: LayerOptions) -> SpeechModel {
        SpeechModel {
            config: self.config.clone(),
            front: self.front.clone(),
            vocabulary: self.vocabulary.clone(),
            attention,
            network: network.valid(),
        }
    }

    fn judge(&self, model: &SpeechModel) -> Result<Option<Errors>> {
        let Some((features, texts)) = &self.test else { return Ok(None) };
        let heard = model.listen(features, 1, |_| {})?;
        let heard: Vec<String> = heard.iter().map(|h| self.vocabulary.decode(&h.labels)).collect();
        let pairs = texts.iter().zip(&heard).map(|(a, b)| (a.as_str(), b.as_str()));
        Ok(Some(Errors::of(pairs, self.options.seed)))
    }
}

/// Trains a recogniser and writes it. The same request resumes from its checkpoint.
pub fn train(request: &TrainRequest, watch: Watch<'_>) -> Result<Trained> {
    let training = Training::new(request)?;
    let TrainOptions { epochs, judge, .. } = request.options;
    let trainer = training.trainer(request.attention)?;
    create_folder(&request.out)?;
    let weights = trainer.model().num_params();
    let per_epoch = training.batches.per_epoch();
    let described = (&request.data, request.attention, request.options);
    let checkpoint = request.out.join("checkpoint.safetensors");
    let said = Mutex::new(String::new());
    let listener = |tick: Tick<'_>| {
        let said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = 1 + tick.done.saturating_sub(1) / per_epoch;
        let what = format!("epoch {epoch}, {}{said}", tick.what);
        (watch.listener)(Tick { what: &what, ..tick });
    };
    let watch = watch.listener(&listener);
    let mut session = Session::start(trainer, &described, checkpoint, watch)?;
    let log = request.out.join("training.csv");
    let mut lines = read_log(&log, session.trainer().steps_made() / per_epoch);
    let mut errors = None;
    for epoch in 0..epochs {
        let end = (epoch + 1) * per_epoch;
        if session.trainer().steps_made() >= end && epoch + 1 < epochs {
            continue;
        }
        let (order, start) = (training.batches.epoch(epoch), Instant::now());
        let loss = |model: &Recogniser, step: u64| {
            training.loss(model, epoch, &order[(step - epoch * per_epoch) as usize])
        };
        session.train(end, loss)?;
        let seconds = start.elapsed().as_secs_f64();
        if (epoch + 1).is_multiple_of(judge) || epoch + 1 == epochs {
            let model = training.model(session.trainer().model(), request.attention);
            errors = training.judge(&model)?;
        }
        let wer = errors.as_ref().map(|e| e.words.value);
        if let Some(wer) = wer {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            *said = format!(", WER {:.1} %", 100.0 * wer);
        }
        let judged = (epoch + 1).is_multiple_of(judge) || epoch + 1 == epochs;
        let loss = session.loss().unwrap_or(f64::NAN);
        lines.push(Epoch { epoch: epoch + 1, loss, wer: wer.filter(|_| judged), seconds });
        write_log(&log, &lines)?;
    }
    training.model(session.trainer().model(), request.attention).save(&request.out)?;
    session.finish()?;
    let utterances = training.recordings.len();
    Ok(Trained { epochs: lines, errors, utterances, weights })
}

/// The frames of all utterances of a manifest.
pub(super) fn features(front: &FrontEnd, manifest: &Manifest) -> Result<Vec<Features>> {
    let recordings = read_all(front, &manifest.utterances)?;
    Ok(recordings.par_iter().map(|r| front.features(r, None)).collect())
}

/// The errors of a model on a manifest, by greedy search.
pub(super) fn judge(model: &SpeechModel, manifest: &Manifest, seed: u64) -> Result<Errors> {
    let heard = model.listen(&features(&model.front, manifest)?, 1, |_| {})?;
    let heard: Vec<String> = heard.iter().map(|h| model.vocabulary.decode(&h.labels)).collect();
    let pairs = manifest.texts()?.into_iter().zip(heard.iter().map(String::as_str));
    Ok(Errors::of(pairs, seed))
}

/// Estimates how long training takes: times a few steps, after one that is not timed.
pub(super) fn expected_time(request: &TrainRequest) -> Result<Duration> {
    let training = Training::new(request)?;
    let mut trainer = training.trainer(request.attention)?;
    let order = training.batches.epoch(0);
    let mut start = Instant::now();
    for (step, batch) in order.iter().take(1 + TIMED).enumerate() {
        // With the loss of the last epoch, which most epochs use.
        trainer.step(|model| training.loss(model, request.options.epochs - 1, batch))?;
        if step == 0 {
            start = Instant::now();
        }
    }
    let timed = order.len().clamp(2, 1 + TIMED) - 1;
    Ok(start.elapsed().mul_f64(trainer.steps() as f64 / timed as f64))
}

const HEAD: &str = "epoch,loss,wer,seconds";

fn write_log(path: &Path, lines: &[Epoch]) -> Result<()> {
    let mut text = format!("{HEAD}\n");
    for Epoch { epoch, loss, wer, seconds } in lines {
        let wer = wer.map(|wer| format!("{wer:.4}")).unwrap_or_default();
        let _ = writeln!(text, "{epoch},{loss:.4},{wer},{seconds:.1}");
    }
    Ok(write_atomically(path, text.as_bytes())?)
}

/// The lines of the epochs before a run resumes; a missing log is started again.
fn read_log(path: &Path, epochs: u64) -> Vec<Epoch> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [epoch, loss, wer, seconds] = fields[..] else { return None };
        Some(Epoch {
            epoch: epoch.parse().ok()?,
            loss: loss.parse().ok()?,
            wer: wer.parse().ok(),
            seconds: seconds.parse().ok()?,
        })
    };
    text.lines().skip(1).filter_map(line).filter(|l| l.epoch <= epochs).collect()
}
