//! A trained model with other attention: the exact model is the teacher. Maps are made from its queries and
//! keys, then maps, values and outputs, and at last all weights are trained towards its states and outputs.

mod card;
mod distil;
mod heads;
mod learn;
mod options;
mod repair;
mod stage;
mod texts;
mod work;

pub use distil::Distance;
pub use options::{ConvertOptions, ConvertRequest, Source};
pub use stage::StageReport;

use super::device;
use super::session::Watch;
use crate::attention::Attention;
use crate::batches::Batches;
use crate::bert::{Bert, BertConfig, is_converted};
use crate::layer::{GivenMaps, LayerOptions};
use crate::text::{Batch, TextTokenizer};
use crate::train::Rates;
use crate::{Error, Result};
use burn::module::Module;
use burn::tensor::Tensor;
use favor::learned::LearnProgress;
use favor::{ExactKeys, FeatureMap, Side, maps_from_bytes, maps_to_bytes};
use favor_io::progress::Tick;
use favor_io::write_atomically;
use learn::Passage;
use serde::{Deserialize, Serialize};
use stage::Stage;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use texts::Texts;
use work::Work;

/// A logarithm by which features are lowered to switch them off.
const OFF: f64 = 1000.0;

/// Steps that are timed to meet a budget, after one that is not.
const TIMED: u32 = 3;
const TIMED_LEARNING: u64 = 24;

/// What came of a conversion.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Converted {
    /// The stages that were run, in their order; the first gives the maps and changes no weight.
    pub stages: Vec<StageReport>,
    /// The mean relative error of the heads' outputs before and after learning, where maps were learned.
    pub head_errors: Option<[f64; 2]>,
    /// Heads that stayed exact, by layer and number.
    pub exact_heads: Vec<(usize, usize)>,
    /// The name of the score of a task, and that of the exact model.
    pub exact_score: Option<(&'static str, f64)>,
    /// Texts learned from and held out.
    pub texts: [usize; 2],
}

impl Converted {
    /// The distance and the score at the end.
    pub fn last(&self) -> Option<&StageReport> {
        self.stages.last()
    }

    /// A line for each stage.
    pub fn to_text(&self) -> String {
        let [train, held] = self.texts;
        let mut out = format!("{train} texts to learn from, {held} held out\n");
        if let Some([before, after]) = self.head_errors {
            out += &format!(
                "mean error of a head's output: {:.1} % by closed form, {:.1} % learned\n",
                100.0 * before,
                100.0 * after
            );
        }
        let title = self.exact_score.map_or("", |(metric, _)| metric);
        out += &format!(
            "{:9} {:>6} {:>8} {:>8} {:>8}  {title}\n",
            "stage", "steps", "seconds", "states", "output"
        );
        for stage in &self.stages {
            let StageReport { name, steps, kept, seconds, distance, score, undone } = stage;
            let score = score.map_or(String::new(), |s| format!("  {:.1}", 100.0 * s));
            let note = match (undone, kept < steps) {
                (true, _) => "  (undone: no better on held-out texts)".to_owned(),
                (false, true) => format!("  (best after {kept} steps, which was kept)"),
                (false, false) => String::new(),
            };
            out += &format!(
                "{name:9} {steps:6} {seconds:8.0} {:7.1}% {:7.1}%{score}{note}\n",
                100.0 * distance.states,
                100.0 * distance.output
            );
        }
        if let Some((metric, score)) = self.exact_score {
            out += &format!("exact model: {metric} {:.1}\n", 100.0 * score);
        }
        if !self.exact_heads.is_empty() {
            let names: Vec<String> =
                self.exact_heads.iter().map(|(l, h)| format!("{l}.{h}")).collect();
            out += &format!("heads that stayed exact (layer.head): {}\n", names.join(", "));
        }
        out
    }
}

/// The exact model and what it is asked about.
struct Context<'a> {
    request: &'a ConvertRequest,
    teacher: Bert,
    config: BertConfig,
    texts: Texts,
}

/// How many steps each stage gets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Steps {
    learn: u64,
    maps: u64,
    values: u64,
    weights: u64,
    task: u64,
}

/// Converts a model and writes it. The same request goes on where it was stopped.
pub fn convert(request: &ConvertRequest, watch: Watch<'_>) -> Result<Converted> {
    let context = Context::read(request)?;
    if let Some(task) = &context.texts.task {
        distil::check_teacher(&context.teacher, &task.task)?;
    }
    let work = Work::start(&request.out, request)?;
    let exact_score = work.once("exact.json", || context.score(&context.teacher))?;
    let steps = work.once("steps.json", || context.steps())?;
    let mut stages = Vec::new();
    let (mut student, head_errors) = context.student(&work, steps, watch, &mut stages)?;
    let exact_heads = context.exact_heads(&mut student, &work, watch, &mut stages)?;
    if request.options.repair {
        student = context.repaired(student, &work, &mut stages)?;
    }
    student = context.distilled(student, (&work, watch), steps, &mut stages)?;
    let metric = context.texts.task.as_ref().map(|t| t.task.metric.title());
    let found = Converted {
        stages,
        head_errors,
        exact_heads,
        exact_score: metric.zip(exact_score),
        texts: [context.texts.train.len(), context.texts.held.len()],
    };
    let labels = context.labels();
    student.save(&request.out, &context.config, labels.as_deref(), Some(&request.model))?;
    write_atomically(request.out.join("README.md"), card::text(request, &found).as_bytes())?;
    work.finish()?;
    Ok(found)
}

/// About how long a conversion takes, by a few of its steps. The model need not be fine-tuned yet.
pub(super) fn estimate(request: &ConvertRequest) -> Result<Duration> {
    let context = Context::read(request)?;
    let steps = context.steps()?;
    let learning = if steps.learn > 0 { context.time_learning()? } else { Duration::ZERO };
    let trained = steps.maps + steps.values + steps.weights + steps.task;
    Ok(learning.mul_f64(steps.learn as f64) + context.time_step()?.mul_f64(trained as f64))
}

impl<'a> Context<'a> {
    fn read(request: &'a ConvertRequest) -> Result<Self> {
        if let Some(path) = is_converted(&request.model) {
            return Err(Error::file(path, "the model is converted already; give the exact one"));
        }
        let exact = LayerOptions::new(Attention::Exact, 1);
        let (teacher, config) = Bert::load(&request.model, exact, &device())?;
        request.check(config.num_hidden_layers, config.num_attention_heads)?;
        let length = request.options.length;
        if length > config.max_position_embeddings {
            let most = config.max_position_embeddings;
            let reason = format!("{length} tokens where the model has {most} positions");
            return Err(Error::invalid("length", reason));
        }
        let tokenizer = TextTokenizer::load(&request.model, length)?;
        let texts = Texts::read(request, &tokenizer)?;
        Ok(Self { request, teacher, config, texts })
    }

    fn seed(&self) -> u64 {
        self.request.options.seed
    }

    /// The names of the classes of a classifier, as the configuration has them.
    fn labels(&self) -> Option<Vec<String>> {
        let classes = self.teacher.classifier.as_ref()?.weight.dims()[1];
        let named = self.config.other.get("id2label");
        let name = |i: usize| {
            let found = named.and_then(|names| names.get(i.to_string())?.as_str());
            found.map_or(format!("LABEL_{i}"), str::to_owned)
        };
        Some((0..classes).map(name).collect())
    }

    fn score(&self, model: &Bert) -> Result<Option<f64>> {
        let Some(task) = &self.texts.task else { return Ok(None) };
        distil::score(model, &task.task, &task.dev, self.request.options.batch).map(Some)
    }

    /// How far a model is from the exact one, and its score.
    fn measure(&self, model: &Bert) -> Result<(Distance, Option<f64>)> {
        let size = self.request.options.batch;
        let distance = distil::distance(model, &self.teacher, &self.texts.held, size)?;
        Ok((distance, self.score(model)?))
    }

    fn batches(&self) -> Batches {
        let lengths = self.texts.train.iter().map(|t| t.ids.len()).collect();
        Batches::new(lengths, self.request.options.batch, self.seed())
    }

    /// The steps of all stages, within the budget.
    fn steps(&self) -> Result<Steps> {
        let ConvertOptions { learn, maps, values, weights, epochs, budget, .. } =
            self.request.options;
        let task = if self.texts.task.is_some() { epochs * self.batches().per_epoch() } else { 0 };
        let mut steps = Steps { learn, maps, values, weights, task };
        // Every attention gets the same number of steps.
        if self.request.attention != Attention::Learned {
            steps.learn = 0;
        }
        if !self.request.trains_maps() {
            steps.weights += steps.maps;
            steps.maps = 0;
        }
        let Some(budget) = budget else { return Ok(steps) };
        let learning = if steps.learn > 0 { self.time_learning()? } else { Duration::ZERO };
        let step = self.time_step()?;
        let trained = steps.maps + steps.values + steps.weights + steps.task;
        let whole =
            learning.as_secs_f64() * steps.learn as f64 + step.as_secs_f64() * trained as f64;
        let factor = budget.as_secs_f64() / whole.max(f64::MIN_POSITIVE);
        let scaled = |n: u64| if n == 0 { 0 } else { ((n as f64 * factor) as u64).max(1) };
        Ok(Steps {
            learn: scaled(steps.learn),
            maps: scaled(steps.maps),
            values: scaled(steps.values),
            weights: scaled(steps.weights),
            task: scaled(steps.task),
        })
    }

    /// The time of a step of learning in all layers.
    fn time_learning(&self) -> Result<Duration> {
        let mut passage = Passage::new(&self.teacher, &self.texts.train)?;
        let chosen = self.request.chosen(self.config.num_hidden_layers);
        passage.advance_to(chosen[0])?;
        let never = std::sync::atomic::AtomicBool::new(false);
        let begun = Instant::now();
        learn::maps(self.request, &passage, TIMED_LEARNING, &never, &|_| ())?;
        Ok(begun.elapsed().mul_f64(chosen.len() as f64 / TIMED_LEARNING as f64))
    }

    /// The time of a step of training, by the exact model's.
    fn time_step(&self) -> Result<Duration> {
        let device = device().autodiff();
        let exact = LayerOptions::new(Attention::Exact, 1);
        let (model, _) = Bert::load(&self.request.model, exact, &device)?;
        let order = self.batches().epoch(0);
        let mut begun = Instant::now();
        for i in 0..=TIMED {
            if i == 1 {
                begun = Instant::now();
            }
            let batch = self.batch(&order[i as usize % order.len()])?;
            distil::loss(&model, &self.teacher, &batch)?.backward();
        }
        Ok(begun.elapsed() / TIMED)
    }

    fn batch(&self, chosen: &[usize]) -> Result<Batch> {
        Batch::of(chosen.iter().map(|i| &self.texts.train[*i]))
    }

    /// The model with new attention and the weights of the exact one, and the errors of the heads.
    fn student(
        &self,
        work: &Work,
        steps: Steps,
        watch: Watch<'_>,
        stages: &mut Vec<StageReport>,
    ) -> Result<(Bert, Option<[f64; 2]>)> {
        let request = self.request;
        let device = device().autodiff();
        let exact = LayerOptions::new(Attention::Exact, 1);
        let (mut student, _) = Bert::load(&request.model, exact, &device)?;
        student.set_dropout(0.0, 0.0);
        let mut errors = None;
        let mut seconds = 0.0;
        if request.has_maps() {
            let layers = self.maps(work, steps.learn, watch)?;
            let known: Vec<[f64; 2]> = layers.iter().filter_map(|layer| layer.errors).collect();
            let mean = |i: usize| known.iter().map(|e| e[i]).sum::<f64>() / known.len() as f64;
            errors = (!known.is_empty()).then(|| [mean(0), mean(1)]);
            seconds = layers.iter().map(|layer| layer.seconds).sum();
            for layer in layers {
                let path = work.path(&layer.file);
                let bytes = std::fs::read(&path).map_err(|e| Error::file(&path, e))?;
                let mut maps = maps_from_bytes(&bytes)?;
                if request.exact_alone {
                    maps = maps.iter().map(switched_off).collect::<Result<_>>()?;
                }
                let given =
                    GivenMaps::fixed(maps, vec![request.exact; self.config.num_attention_heads])?;
                let given = if request.trains_maps() { given.trained(&device)? } else { given };
                student.encoder.layers[layer.number].attention.set_given(Some(given))?;
            }
        } else {
            for layer in request.chosen(self.config.num_hidden_layers) {
                let options = LayerOptions::new(request.attention, 1);
                student.encoder.layers[layer].attention.set_options(options)?;
            }
        }
        let name = if steps.learn > 0 { "learn" } else { "replace" };
        stages.push(work.once("replaced.json", || {
            let (distance, score) = self.measure(&student.valid())?;
            let (name, steps, undone) = (name.to_owned(), steps.learn, false);
            Ok(StageReport { name, steps, kept: steps, seconds, distance, score, undone })
        })?);
        Ok((student, errors))
    }

    /// The maps of all layers to convert, in files of the work.
    fn maps(&self, work: &Work, steps: u64, watch: Watch<'_>) -> Result<Vec<LayerMaps>> {
        let chosen = self.request.chosen(self.config.num_hidden_layers);
        let mut passage = Passage::new(&self.teacher, &self.texts.train)?;
        let mut out = Vec::new();
        for (i, &number) in chosen.iter().enumerate() {
            let found = work.once(&format!("layer-{number}.json"), || {
                passage.advance_to(number)?;
                let begun = Instant::now();
                let what = format!("learning maps, layer {} of {}", i + 1, chosen.len());
                let tell = |p: LearnProgress| {
                    let (done, total) = (i * p.total + p.done, chosen.len() * p.total);
                    let (done, total) = (done as u64, total as u64);
                    (watch.listener)(Tick { done, total, what: &what });
                };
                let (maps, reports) = learn::maps(self.request, &passage, steps, watch.stop, &tell)
                    .map_err(|e| stopped(e, work, (i, chosen.len())))?;
                let file = format!("layer-{number}.safetensors");
                write_atomically(work.path(&file), &maps_to_bytes(&maps)?)?;
                let errors = reports.map(|all| {
                    let mean = |f: fn(&favor::learned::HeadReport) -> f64| {
                        all.iter().map(f).sum::<f64>() / all.len() as f64
                    };
                    [mean(|r| r.before), mean(|r| r.after)]
                });
                Ok(LayerMaps { number, file, errors, seconds: begun.elapsed().as_secs_f64() })
            })?;
            if watch.stop.load(Ordering::Relaxed) {
                let (step, steps) = (i as u64 + 1, chosen.len() as u64);
                return Err(Error::Stopped { step, steps, checkpoint: work.folder().to_owned() });
            }
            out.push(found);
        }
        Ok(out)
    }

    /// Makes the most harmful heads exact.
    fn exact_heads(
        &self,
        student: &mut Bert,
        work: &Work,
        watch: Watch<'_>,
        stages: &mut Vec<StageReport>,
    ) -> Result<Vec<(usize, usize)>> {
        let count = self.request.keep_exact;
        if count == 0 {
            return Ok(vec![]);
        }
        let heads = work.once("heads.json", || {
            let tell = |done: u64, total: u64| {
                (watch.listener)(Tick { done, total, what: "measuring the harm of heads" });
                if watch.stop.load(Ordering::Relaxed) {
                    let checkpoint = work.folder().to_owned();
                    return Err(Error::Stopped { step: done, steps: total, checkpoint });
                }
                Ok(())
            };
            let size = self.request.options.batch;
            let (plain, held) = (student.valid(), &self.texts.held);
            heads::most_harmful(&plain, &self.teacher, held, (count, size), tell)
        })?;
        heads::keep_exact(student, &heads)?;
        stages.push(work.once("kept.json", || {
            let (distance, score) = self.measure(&student.valid())?;
            let (name, steps, seconds, undone) = ("keep".to_owned(), 0, 0.0, false);
            Ok(StageReport { name, steps, kept: 0, seconds, distance, score, undone })
        })?);
        Ok(heads)
    }

    /// The model with output projections in closed form, if that is better on held-out texts.
    fn repaired(&self, student: Bert, work: &Work, stages: &mut Vec<StageReport>) -> Result<Bert> {
        let begun = Instant::now();
        let mut repaired = student.clone();
        let passage = Passage::new(&self.teacher, &self.texts.train)?;
        repair::repair(&mut repaired, &self.teacher, &passage)?;
        let before = stages.last().map_or(f64::INFINITY, |stage| stage.distance.loss());
        let report = work.once("repaired.json", || {
            let (distance, score) = self.measure(&repaired.valid())?;
            // Not a number is no gain either.
            let undone = distance.loss().is_nan() || distance.loss() >= before;
            let seconds = begun.elapsed().as_secs_f64();
            let name = "repair".to_owned();
            Ok(StageReport { name, steps: 0, kept: 0, seconds, distance, score, undone })
        })?;
        let model = if report.undone { student } else { repaired };
        stages.push(report);
        Ok(model)
    }

    /// The model after all stages of training.
    fn distilled(
        &self,
        mut student: Bert,
        (work, watch): (&Work, Watch<'_>),
        steps: Steps,
        stages: &mut Vec<StageReport>,
    ) -> Result<Bert> {
        let batches = self.batches();
        let per_epoch = batches.per_epoch();
        let chosen = |step: u64| {
            let mut epoch = batches.epoch(step / per_epoch);
            epoch.swap_remove((step % per_epoch) as usize)
        };
        let size = self.request.options.batch;
        let held_out = |model: &Bert| {
            Ok(distil::distance(model, &self.teacher, &self.texts.held, size)?.loss())
        };
        let ConvertOptions { rate, task_rate, .. } = self.request.options;
        let Steps { maps, values, weights, task: last, .. } = steps;
        let of = maps + values + weights + last;
        // The exact model was most likely fine-tuned on the examples that are held out from a task.
        let judged = self.texts.task.is_none();
        let stage =
            |name, steps, rates, before| Stage { name, steps, rate, rates, judged, before, of };
        let towards = [
            stage("maps", maps, stage::maps_alone as Rates, 0),
            stage("values", values, stage::values_and_outputs, maps),
            stage("weights", weights, stage::everything, maps + values),
        ];
        for stage in towards.into_iter().filter(|stage| stage.steps > 0) {
            let loss = |model: &Bert, step: u64| -> Result<Tensor<1>> {
                distil::loss(model, &self.teacher, &self.batch(&chosen(step))?)
            };
            let place = (self, work, watch);
            let (model, report) = stage::run(stage, student, place, &held_out, loss)?;
            student = model;
            stages.push(report);
        }
        let Some(task) = self.texts.task.as_ref().filter(|_| last > 0) else {
            return Ok(student);
        };
        student
            .set_dropout(self.config.attention_probs_dropout_prob, self.config.hidden_dropout_prob);
        let (rate, rates, before) =
            (task_rate, stage::everything as Rates, maps + values + weights);
        let stage = Stage { name: "task", steps: last, rate, rates, judged, before, of };
        let loss = |model: &Bert, step: u64| -> Result<Tensor<1>> {
            let chosen = chosen(step);
            let labels: Vec<f64> = chosen.iter().map(|i| task.train[*i]).collect();
            distil::task_loss(model, &self.teacher, &self.batch(&chosen)?, &labels, &task.task)
        };
        let held_out = |model: &Bert| self.held_out_task(model);
        let place = (self, work, watch);
        let (model, report) = stage::run(stage, student, place, &held_out, loss)?;
        stages.push(report);
        Ok(model)
    }

    /// The loss of a task on held-out examples.
    fn held_out_task(&self, model: &Bert) -> Result<f64> {
        let Some(task) = &self.texts.task else { return Ok(0.0) };
        let size = self.request.options.batch;
        let (mut sum, mut count) = (0.0, 0);
        let held: Vec<usize> = (0..self.texts.held.len()).collect();
        for chosen in held.chunks(size) {
            let batch = Batch::of(chosen.iter().map(|i| &self.texts.held[*i]))?;
            let labels: Vec<f64> = chosen.iter().map(|i| task.held[*i]).collect();
            let loss = distil::task_loss(model, &self.teacher, &batch, &labels, &task.task)?;
            sum += f64::from(loss.into_scalar::<f32>()) * chosen.len() as f64;
            count += chosen.len();
        }
        Ok(sum / count as f64)
    }
}

/// The maps of a layer, in a file of the work.
#[derive(Serialize, Deserialize)]
struct LayerMaps {
    number: usize,
    file: String,
    /// Mean errors of the heads' outputs, by closed form and learned.
    errors: Option<[f64; 2]>,
    seconds: f64,
}

/// A learned map whose features vanish beside any exact key.
fn switched_off(map: &FeatureMap) -> Result<FeatureMap> {
    let (query, key) = (map.side(Side::Query), map.side(Side::Key));
    let constants = query.constants.iter().map(|c| c - OFF).collect();
    Ok(map.with_weights(query.weights.clone(), key.weights.clone(), constants)?)
}

/// A cancelled call as a run that was stopped.
fn stopped(error: Error, work: &Work, (done, of): (usize, usize)) -> Error {
    match error {
        Error::Attention(favor::Error::Cancelled) => Error::Stopped {
            step: done as u64,
            steps: of as u64,
            checkpoint: work.folder().to_owned(),
        },
        other => other,
    }
}

/// Exact keys in words, for people.
fn keys_in_words(exact: ExactKeys) -> String {
    if exact.is_none() { "no exact keys".to_owned() } else { format!("exact keys: {exact}") }
}
