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
mod holdout;
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
pub use holdout::{HeldOut, held_out};
pub use options::{Calibration, LearnOptions, LearnProgress};
pub use through::{MapGradient, map_gradients};

use crate::engine::tensor::{Scalar, Strided};
use crate::{Error, FeatureMap, FeatureSpec, Float, Matrix, Result, threads};
use head::{Head, HeadData, learn_head};
use holdout::{is_held_out, piece, pieces};
use rayon::prelude::*;
use sequence::Raw;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What was returned for a head.
///
/// ```
/// use favor::learned::Kept;
/// assert_eq!(Kept::ExactAlone.name(), "exact_alone");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
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

impl From<Kept> for &'static str {
    fn from(kept: Kept) -> Self {
        kept.name()
    }
}

/// What measured best on the held-out sequences of a head, for what it costs.
///
/// ```
/// use favor::learned::Recommended;
/// assert_eq!(Recommended::Window.name(), "window");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
#[non_exhaustive]
pub enum Recommended {
    /// The map, with its exact keys.
    Map,
    /// An exact window alone: it takes no more operations and is no worse. It is the one of
    /// [`HeadReport::window`] or, if that is worse than the map, the window of the exact keys, which were then
    /// kept without features.
    Window,
    /// Exact attention: at this length it takes no longer, by [`break_even`](crate::diagnose::break_even).
    Exact,
}

impl Recommended {
    /// The name in reports: `map`, `window` or `exact`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Window => "window",
            Self::Exact => "exact",
        }
    }
}

impl From<Recommended> for &'static str {
    fn from(recommended: Recommended) -> Self {
        recommended.name()
    }
}

/// Measurements of a head on held-out sequences, at up to [`LearnOptions::queries`] evenly spaced queries of
/// each. Errors are those of outputs, relative to exact attention.
///
/// Part of a [`LearnedHead`]; [`learn_maps`] has an example.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeadReport {
    /// The error of the start, with the same exact keys.
    pub before: f64,
    /// The error of the map that was kept.
    pub after: f64,
    /// The error of the exact keys alone, if there are any. Where the map decides which they are, those of
    /// the start or of what was learned, whichever are better.
    pub exact_alone: Option<f64>,
    /// The error of an exact window alone that takes as many operations; none unless there are as many
    /// queries as keys.
    pub window_alone: Option<f64>,
    /// The width of that window.
    pub window: usize,
    /// The error of the plain mean of the values.
    pub uniform: f64,
    /// The mean divergence of the weights of the start.
    pub kl_before: f64,
    /// The same for the map that was kept. If only the exact keys are kept, any weight on other keys would
    /// make it infinite; features that are switched off are e⁻¹⁰⁰⁰ times as large instead, and the
    /// divergence is about 1000 times that weight.
    pub kl_after: f64,
    /// Exact keys per query.
    pub exact_keys: f64,
    /// What was kept.
    pub kept: Kept,
    /// What to use for the head.
    pub recommended: Recommended,
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
/// the exact keys alone. Like all figures of a report, this is measured at evenly spaced queries of each
/// sequence, at most [`LearnOptions::queries`], against all its keys, so that the cost stays linear in the
/// length; for all queries of a longer sequence it holds up to the error of that sample.
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
    options.exact.check(spec.features)?;
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
    let ([.., queries, _], [.., keys, _]) = (data.q.shape(), data.k.shape());
    if count < 2 {
        let why = if queries == keys {
            "is too short to be cut".to_owned()
        } else {
            format!(
                "cannot be cut, because its {queries} queries have no place among its {keys} keys"
            )
        };
        let reason = format!("one sequence that {why}: give several, so that one can be held out");
        return Err(Error::invalid("calibration", reason));
    }
    let (mut train, mut held_out) = (vec![], vec![]);
    for (raw, held) in all.into_iter().zip(is_held_out(count, options)) {
        if held { held_out.push(raw) } else { train.push(raw) }
    }
    let (causal, has_windows, source) = (data.causal, queries == keys, data.source.to_owned());
    Ok(HeadData { train, held_out, causal, has_windows, source })
}

/// One sequence of a head, or its pieces if it is the only one.
fn read<T: Scalar>(data: &Calibration<'_, T>, sequence: usize, head: usize) -> Result<Vec<Raw>> {
    let ([sequences, _, queries, _], [.., keys, _]) = (data.q.shape(), data.k.shape());
    let mask = data.mask.map(|mask| &mask[sequence * keys..(sequence + 1) * keys]);
    let visible = |place: &usize| mask.is_none_or(|mask| mask[*place]);
    let key_places: Vec<usize> = (0..keys).filter(visible).collect();
    if key_places.is_empty() {
        let reason = format!("sequence {sequence} has no key that can be seen");
        return Err(Error::invalid("calibration", reason));
    }
    // The padding of the keys is that of the queries, if there are as many.
    let same = queries == keys;
    let query_places = if same { key_places.clone() } else { (0..queries).collect() };
    // What can be seen is cut, so that padding leaves no piece empty.
    let pieces = if same { pieces(sequences, key_places.len()) } else { 1 };
    (0..pieces)
        .map(|p| {
            let own = |places: &[usize]| places[piece(p, pieces, places.len())].to_vec();
            let (query_places, key_places) = (own(&query_places), own(&key_places));
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
