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
    let Stage { name, steps, rate, rates, before, of } = stage;
    let (log_name, checkpoint) =
        (format!("{name}.json"), work.path(&format!("{name}.safetensors")));
    let mut log: Log = work.read(&log_name)?.unwrap_or_default();
    if let Some(report) = log.report.as_ref().filter(|report| report.undone) {
        return Ok((model, report.clone()));
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
    let watch = Watch { listener: &listener, ..watch };
    let described = (name, steps, &work.request);
    let mut session = Session::start(trainer, &described, checkpoint.clone(), watch)?;
    if let Some(report) = log.report {
        return Ok((session.into_model(), report));
    }
    log.looks.retain(|(step, _)| *step <= session.trainer().steps_made());
    if log.looks.is_empty() {
        log.looks.push((0, held_out(&start.valid())?));
        work.write(&log_name, &log)?;
    }
    let every = steps.div_ceil(LOOKS);
    while session.trainer().steps_made() < steps && !is_over(&log.looks) {
        let begun = Instant::now();
        let next = (session.trainer().steps_made() / every + 1) * every;
        let trained = session.train(next.min(steps), &loss);
        log.seconds += begun.elapsed().as_secs_f64();
        if let Err(error) = trained {
            work.write(&log_name, &log)?;
            return Err(error);
        }
        let model = session.trainer().model().valid();
        log.looks.push((session.trainer().steps_made(), held_out(&model)?));
        work.write(&log_name, &log)?;
    }
    let (first, last) = (log.looks[0].1, log.looks[log.looks.len() - 1].1);
    let steps = session.trainer().steps_made();
    // Worse than nothing, or not a number.
    let undone = last.is_nan() || last >= first;
    session.save()?;
    let model = if undone { start } else { session.into_model() };
    let (distance, score) = context.measure(&model.valid())?;
    let name = name.to_owned();
    let report = StageReport { name, steps, seconds: log.seconds, distance, score, undone };
    log.report = Some(report.clone());
    work.write(&log_name, &log)?;
    Ok((model, report))
}

/// Whether the last looks have brought nothing.
fn is_over(looks: &[(u64, f64)]) -> bool {
    let losses: Vec<f64> = looks.iter().map(|(_, loss)| *loss).collect();
    let Some((before, last)) = losses.len().checked_sub(PATIENCE).map(|n| losses.split_at(n))
    else {
        return false;
    };
    let least = before.iter().copied().fold(f64::INFINITY, f64::min);
    !before.is_empty() && last.iter().all(|loss| *loss >= least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_over_when_nothing_gets_better() {
        let looks = |losses: &[f64]| -> Vec<(u64, f64)> {
            losses.iter().enumerate().map(|(i, loss)| (i as u64, *loss)).collect()
        };
        assert!(!is_over(&looks(&[3.0, 3.1, 3.2])));
        assert!(is_over(&looks(&[3.0, 3.1, 3.2, 3.0])));
        assert!(!is_over(&looks(&[3.0, 2.0, 2.1, 1.9])));
        assert!(is_over(&looks(&[3.0, 2.0, 2.1, 2.5, 2.0])));
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
