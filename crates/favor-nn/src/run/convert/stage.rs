//! One stage of training towards the exact model, with a look at held-out texts now and then.

use super::Context;
use super::distil::Distance;
use super::work::Work;
use crate::Result;
use crate::bert::Bert;
use crate::run::session::{Session, Watch};
use crate::train::{AdamOptions, Rates, Schedule, Trainer};
use burn::module::Module;
use burn::tensor::Tensor;
use favor_io::progress::Tick;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Looks at held-out texts in a stage.
const LOOKS: u64 = 10;

/// A stage ends early after so many looks in a row without a new least loss.
const PATIENCE: usize = 3;

/// The part of the steps in which the rate rises.
const WARMUP: f64 = 0.1;

/// How the weights of a stage are trained.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) steps: u64,
    pub(super) rate: f64,
    pub(super) rates: Rates,
    /// Whether held-out texts decide when it ends and which weights are kept, rather than only being looked at. They
    /// must be new to the exact model: answers that it knows by heart are lost by any training on others, however
    /// useful.
    pub(super) judged: bool,
    /// Steps of the stages before, and of all stages.
    pub(super) before: u64,
    pub(super) of: u64,
}

/// What a stage has brought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StageReport {
    /// The stage.
    pub name: String,
    /// Steps made.
    pub steps: u64,
    /// The step whose weights were kept: the last, or the one after which held-out texts were best.
    pub kept: u64,
    /// How long they took, in all runs together.
    pub seconds: f64,
    /// How far the model is from the exact one on held-out texts, at the end of the stage.
    pub distance: Distance,
    /// The score on the examples of a task that are there to judge by, at the end of the stage.
    pub score: Option<f64>,
    /// Whether held-out texts were no better at the end than at the beginning, which was then kept.
    pub undone: bool,
}

/// What is kept of a stage under way.
#[derive(Default, Serialize, Deserialize)]
struct Log {
    /// Steps, and the loss on held-out texts after them.
    looks: Vec<(u64, f64)>,
    seconds: f64,
    report: Option<StageReport>,
}

/// Rates of the maps alone.
pub(super) fn maps_alone(path: &str) -> f64 {
    if path.contains(".given.") { MAPS } else { 0.0 }
}

/// Rates of maps, values and output projections.
pub(super) fn values_and_outputs(path: &str) -> f64 {
    let own = [".attention.value.", ".attention.output."].iter().any(|part| path.contains(part));
    if own { 1.0 } else { maps_alone(path) }
}

/// Rates of everything.
pub(super) fn everything(path: &str) -> f64 {
    if path.contains(".given.") { MAPS } else { 1.0 }
}

/// Maps learn faster than weights.
const MAPS: f64 = 1.5;

/// Trains from where the stage stands to its end.
pub(super) fn run(
    stage: Stage,
    model: Bert,
    (context, work, watch): (&Context<'_>, &Work, Watch<'_>),
    held_out: &dyn Fn(&Bert) -> Result<f64>,
    loss: impl Fn(&Bert, u64) -> Result<Tensor<1>> + Sync,
) -> Result<(Bert, StageReport)> {
    let Stage { name, steps, rate, rates, judged, before, of } = stage;
    let (log_name, checkpoint) =
        (format!("{name}.json"), work.path(&format!("{name}.safetensors")));
    let best = format!("{name}-best.safetensors");
    let mut log: Log = work.read(&log_name)?.unwrap_or_default();
    if let Some(report) = log.report {
        let model = if report.undone { model } else { work.read_model(&best, model)? };
        return Ok((model, report));
    }
    let start = model.clone();
    let warmup = (WARMUP * steps as f64).round() as u64;
    let schedule = Schedule::new(steps, rate).warmup(warmup);
    let adam = AdamOptions::default().decay(0.0);
    let trainer = Trainer::new(model, schedule, adam, context.seed())?.rates(rates);
    let listener = |tick: Tick<'_>| {
        let what = format!("{name} {}", tick.what);
        (watch.listener)(Tick { done: before + tick.done, total: of, what: &what });
    };
    let watch = watch.listener(&listener);
    let described = (name, steps, &work.request);
    let mut session = Session::start(trainer, &described, checkpoint, watch)?;
    log.looks.retain(|(step, _)| *step <= session.trainer().steps_made());
    if log.looks.is_empty() {
        log.looks.push((0, held_out(&start.valid())?));
        work.write(&log_name, &log)?;
    }
    let every = steps.div_ceil(LOOKS);
    while session.trainer().steps_made() < steps && !(judged && is_over(&log.looks)) {
        let begun = Instant::now();
        let next = (session.trainer().steps_made() / every + 1) * every;
        let trained = session.train(next.min(steps), &loss);
        log.seconds += begun.elapsed().as_secs_f64();
        if let Err(error) = trained {
            work.write(&log_name, &log)?;
            return Err(error);
        }
        let model = session.trainer().model();
        log.looks.push((session.trainer().steps_made(), held_out(&model.valid())?));
        if kept_look(&log.looks, judged) == log.looks.len() - 1 {
            work.write_model(&best, model)?;
        }
        work.write(&log_name, &log)?;
    }
    let (kept, _) = log.looks[kept_look(&log.looks, judged)];
    let undone = kept == 0;
    let steps = session.trainer().steps_made();
    let model = if undone { start } else { work.read_model(&best, start)? };
    let (distance, score) = context.measure(&model.valid())?;
    let name = name.to_owned();
    let report = StageReport { name, steps, kept, seconds: log.seconds, distance, score, undone };
    log.report = Some(report.clone());
    work.write(&log_name, &log)?;
    session.finish()?;
    Ok((model, report))
}

/// The look whose weights are kept.
fn kept_look(looks: &[(u64, f64)], judged: bool) -> usize {
    if judged { best_look(looks) } else { looks.len() - 1 }
}

/// The first look with the least loss. One that is not a number is never the least.
fn best_look(looks: &[(u64, f64)]) -> usize {
    let better = |best: usize, i: usize| if looks[i].1 < looks[best].1 { i } else { best };
    (1..looks.len()).fold(0, better)
}

/// Whether the last looks have brought nothing.
fn is_over(looks: &[(u64, f64)]) -> bool {
    looks.len() > best_look(looks) + PATIENCE
}

#[cfg(test)]
mod tests {
    use super::super::{ConvertOptions, ConvertRequest, Source, distil};
    use super::*;
    use crate::attention::Attention;
    use crate::layer::LayerOptions;
    use crate::testing::generator;
    use crate::train::Model;
    use crate::{Error, store};
    use std::cell::RefCell;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Trains a small model in steps of a stage whose looks give these losses. Gives what the model was at each
    /// look, what came out, and the report.
    fn scripted(
        folder: &Path,
        losses: &[f64],
        (stop_after, judged): (u64, bool),
    ) -> Result<(Vec<store::Tensors>, store::Tensors, StageReport)> {
        let texts = folder.join("a.txt");
        std::fs::write(&texts, "the cat sat on the mat . a dog ran fast !\n".repeat(60)).unwrap();
        let fixture = std::env::current_dir().unwrap().join("tests/fixtures/tiny-bert");
        let source = Source::Texts(vec![texts]);
        let request = ConvertRequest::new(&fixture, source, folder.join("out"))
            .options(ConvertOptions::default().length(16).batch(8));
        let context = Context::read(&request)?;
        let work = Work::start(&request.out, &request)?;
        let relu = LayerOptions::new(Attention::Relu, 1);
        let (mut model, _) = Bert::load(&fixture, relu, &crate::run::device().autodiff())?;
        model.set_dropout(0.0, 0.0);
        let stop = AtomicBool::new(false);
        let listener = |tick: Tick<'_>| stop.store(tick.done == stop_after, Ordering::Relaxed);
        let watch = Watch::new(&listener, &stop);
        let seen = RefCell::new(Vec::new());
        // A stage that goes on has looked before: the log says how often.
        let before = work.read::<Log>("scripted.json")?.map_or(0, |log| log.looks.len());
        let held_out = |model: &Bert| {
            let mut seen = seen.borrow_mut();
            seen.push(model.state()?);
            Ok(losses[before + seen.len() - 1])
        };
        let loss = |model: &Bert, step: u64| {
            let batch = context.batch(&context.batches().epoch(step)[0])?;
            distil::loss(model, &context.teacher, &batch)
        };
        let (name, steps, rate, rates, before, of) = ("scripted", 20, 1e-3, everything, 0, 20);
        let stage = Stage { name, steps, rate, rates, judged, before, of };
        let (model, report) = run(stage, model, (&context, &work, watch), &held_out, loss)?;
        Ok((seen.into_inner(), model.valid().state()?, report))
    }

    #[test]
    fn the_best_state_is_kept() {
        let _held = generator();
        let folder = tempfile::tempdir().unwrap();
        let losses = [5.0, 4.0, 2.0, 3.0, 2.5, 2.0, 0.0];
        let (seen, kept, report) = scripted(folder.path(), &losses, (u64::MAX, true)).unwrap();
        assert_eq!((report.steps, report.kept, report.undone), (10, 4, false));
        assert!(kept == seen[2] && kept != seen[5] && seen[0] != seen[2]);
        // Asked again, it gives the same without a look.
        let (seen, again, _) = scripted(folder.path(), &[], (u64::MAX, true)).unwrap();
        assert!(seen.is_empty() && again == kept);

        // Stopped after the best look, and before the next.
        let folder = tempfile::tempdir().unwrap();
        let stopped = scripted(folder.path(), &losses, (5, true));
        assert!(matches!(stopped, Err(Error::Stopped { step: 5, .. })));
        let (_, parts, report) = scripted(folder.path(), &losses, (u64::MAX, true)).unwrap();
        assert!(parts == kept && report.kept == 4);

        // Nothing better than the beginning: it is kept.
        let folder = tempfile::tempdir().unwrap();
        let worse = [5.0, 5.0, f64::NAN, 6.0];
        let (seen, kept, report) = scripted(folder.path(), &worse, (u64::MAX, true)).unwrap();
        assert_eq!((report.steps, report.kept, report.undone), (6, 0, true));
        assert!(kept == seen[0]);
    }

    /// Where held-out texts do not decide, the last weights are kept, however far they are.
    #[test]
    fn a_whole_cycle_is_kept_where_nobody_can_judge() {
        let _held = generator();
        let folder = tempfile::tempdir().unwrap();
        let worse = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0];
        let (seen, kept, report) = scripted(folder.path(), &worse, (u64::MAX, false)).unwrap();
        assert_eq!((report.steps, report.kept, report.undone), (20, 20, false));
        assert!(kept == seen[10] && kept != seen[0]);
        let (seen, again, _) = scripted(folder.path(), &[], (u64::MAX, false)).unwrap();
        assert!(seen.is_empty() && again == kept);
    }

    #[test]
    fn a_stage_is_over_when_nothing_gets_better() {
        let looks = |losses: &[f64]| -> Vec<(u64, f64)> {
            losses.iter().enumerate().map(|(i, loss)| (i as u64, *loss)).collect()
        };
        assert!(!is_over(&looks(&[3.0, 3.1, 3.2])));
        assert!(is_over(&looks(&[3.0, 3.1, 3.2, 3.0])));
        assert!(!is_over(&looks(&[3.0, 2.0, 2.1, 1.9])));
        assert!(is_over(&looks(&[3.0, 2.0, 2.1, 2.5, 2.0])));
        assert!(is_over(&looks(&[3.0, 2.0, f64::NAN, f64::NAN, f64::NAN])));
    }

    #[test]
    fn rates_go_by_the_place_of_a_weight() {
        let map = "encoder.layers.1.attention.given.numbers.query";
        let value = "encoder.layers.1.attention.value.weight";
        let word = "encoder.embeddings.word.weight";
        let rates = |f: Rates| [map, value, word].map(f);
        assert_eq!(rates(maps_alone), [MAPS, 0.0, 0.0]);
        assert_eq!(rates(values_and_outputs), [MAPS, 1.0, 0.0]);
        assert_eq!(rates(everything), [MAPS, 1.0, 1.0]);
    }
}
