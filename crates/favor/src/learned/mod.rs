//! Maps learned from the queries and keys of a head.
//!
//! Attention by positive features is a mixture: M *slots* pool the values, each with its own weights over
//! the keys, and a query mixes the slots. Random features draw the slots blindly. If the queries and keys
//! of a head are available, the slots can be learned: the map starts at the closed form and minimises the
//! divergence between the exact weights and its own. It is no longer unbiased for arbitrary input, but far
//! more accurate on what the head really sees. The result is an ordinary [`FeatureMap`].

mod adam;
mod budget;
mod gradient;
mod head;
mod measure;
mod numbers;
mod options;
mod probes;
mod routing;
mod sequence;
#[cfg(test)]
mod tests;
mod through;
mod weights;

pub use budget::{Budget, FrontPoint, HeadPlan, LayerPlan, plan_heads};
pub use options::{Calibration, LearnOptions, LearnProgress};
pub use through::{MapGradient, map_gradients};

use crate::engine::tensor::{Scalar, Strided};
use crate::{Error, FeatureMap, FeatureSpec, Float, Matrix, Result, threads};
use head::{Head, HeadData, learn_head};
use rayon::prelude::*;
use sequence::Raw;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of pieces that a single sequence is split into, so that one can be held out.
const PIECES: usize = 4;

/// What was returned for a head.
///
/// ```
/// use favor::learned::Kept;
/// assert_eq!(Kept::ExactAlone.name(), "exact_alone");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kept {
    /// The learned map.
    Learned,
    /// The start: learning did not improve it on held-out sequences.
    Start,
    /// A map whose features are switched off: the exact keys alone are better than with features.
    ExactAlone,
}

impl Kept {
    /// The name in reports: `learned`, `start` or `exact_alone`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::Start => "start",
            Self::ExactAlone => "exact_alone",
        }
    }
}

/// Measurements of a head on held-out sequences. Errors are those of outputs, relative to exact attention.
///
/// Part of a [`LearnedHead`]; [`learn_maps`] has an example.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct HeadReport {
    /// The error of the start, with the same exact keys.
    pub before: f64,
    /// The error of the map that was kept.
    pub after: f64,
    /// The error of the exact keys alone, if there are any.
    pub exact_alone: Option<f64>,
    /// The error of an exact window alone that takes as many operations.
    pub window_alone: f64,
    /// The width of that window.
    pub window: usize,
    /// The error of the plain mean of the values.
    pub uniform: f64,
    /// The mean divergence of the weights of the start.
    pub kl_before: f64,
    /// The same for the map that was kept.
    pub kl_after: f64,
    /// Exact keys per query.
    pub exact_keys: f64,
    /// What was kept.
    pub kept: Kept,
}

/// A learned map and its measurements.
///
/// [`learn_maps`] returns one per head; its page has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LearnedHead {
    /// The map.
    pub map: FeatureMap,
    /// What was measured on held-out sequences.
    pub report: HeadReport,
}

/// Learns one map per head. The same data, options and seed give the same maps, whatever the number of
/// threads. On held-out sequences, what is returned for a head is never worse than the closed-form start or
/// the exact keys alone.
///
/// ```
/// use favor::learned::{Calibration, LearnOptions, learn_maps};
/// use favor::{Family, FeatureSpec, Kernel, Tensor, draw::Stream};
/// let mut noise = Stream::new(1, 0);
/// let x: Vec<f32> = (0..8 * 64 * 4).map(|_| 2.0 * noise.normal() as f32).collect();
/// let t = Tensor::new(&x, [8, 1, 64, 4])?; // 8 sequences of 64 tokens, one head
///
/// let spec = FeatureSpec::new(Family::Balanced, 16).kernel(Kernel::attention(4));
/// let heads = learn_maps(spec, Calibration::new(t, t), &LearnOptions::new().steps(60))?;
/// assert!(heads[0].report.after <= heads[0].report.before);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn learn_maps<T: Scalar>(
    spec: FeatureSpec,
    data: Calibration<'_, T>,
    options: &LearnOptions<'_>,
) -> Result<Vec<LearnedHead>> {
    each_head(spec, &data, options, 1, |number, parallel, done| {
        learn_head(&Head::new(spec, split(&data, number, options)?, options, parallel)?, done)
    })
}

/// Runs a job for every head, each with `runs` times all steps of learning. The job gets the head's number,
/// whether it should distribute its own work, and a callback for its steps.
fn each_head<T: Scalar, O: Send>(
    spec: FeatureSpec,
    data: &Calibration<'_, T>,
    options: &LearnOptions<'_>,
    runs: usize,
    one: impl Fn(usize, bool, &(dyn Fn(usize, f64) + Sync)) -> Result<O> + Sync,
) -> Result<Vec<O>> {
    options.check()?;
    data.check(options.exact)?;
    if options.exact.slots > spec.features {
        let slots = options.exact.slots;
        let reason = format!("{slots} preferred slots of {} features", spec.features);
        return Err(Error::invalid("exact keys", reason));
    }
    let heads = data.q.shape()[1];
    let (steps, total) = (AtomicUsize::new(0), heads * runs * options.steps);
    threads::within(options.threads, || {
        let parallel = heads < rayon::current_num_threads();
        (0..heads)
            .into_par_iter()
            .map(|head| {
                options.check_cancelled()?;
                let last = AtomicUsize::new(0);
                let done = |step: usize, held_out: f64| {
                    // A smaller step than before belongs to the next run.
                    let before = last.swap(step, Ordering::Relaxed);
                    let new = if step > before { step - before } else { step };
                    let done = steps.fetch_add(new, Ordering::Relaxed) + new;
                    if let Some(progress) = options.progress {
                        progress(LearnProgress { done, total, held_out });
                    }
                };
                one(head, parallel, &done)
            })
            .collect()
    })
}

/// The sequences of a head: those to learn from and those held out.
fn split<T: Scalar>(
    data: &Calibration<'_, T>,
    head: usize,
    options: &LearnOptions<'_>,
) -> Result<HeadData> {
    let mut all = vec![];
    for sequence in 0..data.q.shape()[0] {
        all.extend(read(data, sequence, head)?);
    }
    let count = all.len();
    if count < 2 {
        let reason =
            "one sequence that is too short to be cut: give several, so that one can be held out";
        return Err(Error::invalid("calibration", reason));
    }
    let held = ((options.holdout * count as f64).round() as usize).clamp(1, count - 1);
    let mut order: Vec<usize> = (0..count).collect();
    let mut stream = crate::draw::Stream::new(options.seed, 1 << 32);
    for i in (1..count).rev() {
        let j = stream.index(i + 1);
        order.swap(i, j);
    }
    let mut is_held = vec![false; count];
    order[..held].iter().for_each(|&i| is_held[i] = true);
    let (mut train, mut held_out) = (vec![], vec![]);
    for (raw, held) in all.into_iter().zip(is_held) {
        if held { held_out.push(raw) } else { train.push(raw) }
    }
    Ok(HeadData { train, held_out, causal: data.causal })
}

/// One sequence of a head, or its pieces if it is the only one.
fn read<T: Scalar>(data: &Calibration<'_, T>, sequence: usize, head: usize) -> Result<Vec<Raw>> {
    let ([sequences, _, queries, _], [.., keys, _]) = (data.q.shape(), data.k.shape());
    let pieces = if sequences == 1 && queries == keys { PIECES.min(keys) } else { 1 };
    let mask = data.mask.map(|mask| &mask[sequence * keys..(sequence + 1) * keys]);
    let visible = |place: usize| mask.is_none_or(|mask| mask[place]);
    (0..pieces)
        .map(|p| {
            let range = |length: usize| p * length / pieces..(p + 1) * length / pieces;
            let key_places: Vec<usize> = range(keys).filter(|&j| visible(j)).collect();
            // The padding of the keys is that of the queries, if there are as many.
            let same = queries == keys;
            let sees = |i: usize| !data.causal || key_places.first().is_some_and(|j| *j <= i);
            let query_places: Vec<usize> =
                range(queries).filter(|&i| (!same || visible(i)) && sees(i)).collect();
            if key_places.is_empty() || query_places.is_empty() {
                let reason = format!("sequence {sequence} has no key that can be seen");
                return Err(Error::invalid("calibration", reason));
            }
            let rows = |what, matrix: Strided<'_, T>, places: &[usize]| {
                if let Some(error) = matrix.non_finite(what, places) {
                    return Err(in_sequence(error, sequence, head));
                }
                let number = |i: usize, l: usize| matrix.at(places[i], l).widen().to_f64();
                Ok(Matrix::from_fn(places.len(), matrix.columns, number))
            };
            let values = data
                .v
                .map(|v| rows("values", v.head(sequence, head, 0, keys), &key_places))
                .transpose()?;
            Ok(Raw {
                queries: rows("queries", data.q.head(sequence, head, 0, queries), &query_places)?,
                keys: rows("keys", data.k.head(sequence, head, 0, keys), &key_places)?,
                values,
                query_places,
                key_places,
            })
        })
        .collect()
}

fn in_sequence(error: Error, sequence: usize, head: usize) -> Error {
    match error {
        Error::NonFinite { what, row, column, value } => Error::NonFinite {
            what: format!("sequence {sequence}, head {head}: {what}").into(),
            row,
            column,
            value,
        },
        other => other,
    }
}
