//! How good given maps are on given sequences.

mod origin;
mod text;

pub use origin::MapOrigin;

use crate::{Error, Result};
use favor::diagnose::Operations;
use favor::reference::{Mask, attention_to, exact_key_sets, mean_of_values, window_keys};
use favor::{AttentionOptions, ExactKeys, FeatureMap, Matrix, Method, Qkv, Tensor, attention};
use favor_io::SequenceArrays;
use favor_io::progress::{Counter, Listener};
use rayon::prelude::*;
use serde::Serialize;

/// Which keys are exact when maps are measured. By default, those the map was learned with.
///
/// ```
/// use favor_inspect::MapOptions;
/// let options = MapOptions::new().near(Some(32));
/// assert_eq!(options.routed, None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MapOptions {
    /// The width of the window.
    pub near: Option<usize>,
    /// Keys that are exact for every query.
    pub global: Option<usize>,
    /// Slots that a query prefers, and members of each.
    pub routed: Option<(usize, usize)>,
    /// Whether a query sees only its own and earlier keys.
    pub causal: Option<bool>,
}

impl MapOptions {
    /// Everything as the maps were learned.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the width of the window.
    #[must_use]
    pub fn near(self, near: Option<usize>) -> Self {
        Self { near, ..self }
    }

    /// Sets how many keys are exact for every query.
    #[must_use]
    pub fn global(self, global: Option<usize>) -> Self {
        Self { global, ..self }
    }

    /// Sets how many slots a query prefers, and how many members each has.
    #[must_use]
    pub fn routed(self, routed: Option<(usize, usize)>) -> Self {
        Self { routed, ..self }
    }

    /// Sets whether a query sees only its own and earlier keys.
    #[must_use]
    pub fn causal(self, causal: Option<bool>) -> Self {
        Self { causal, ..self }
    }

    /// The exact keys used for a map. A map that was not learned has none of its own.
    fn of(&self, map: &FeatureMap) -> (ExactKeys, bool) {
        let learned = map.learned();
        let mut exact = learned.map_or(ExactKeys::NONE, |l| l.exact);
        exact.near = self.near.unwrap_or(exact.near);
        exact.global = self.global.unwrap_or(exact.global);
        (exact.slots, exact.members) = self.routed.unwrap_or((exact.slots, exact.members));
        (exact, self.causal.unwrap_or(learned.is_some_and(|l| l.causal)))
    }
}

/// How good a map is on the sequences of a head. Errors are those of outputs, relative to exact
/// attention.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MapReport {
    /// The head, from 0.
    pub head: usize,
    /// Features and exact keys.
    pub error: f64,
    /// The exact keys alone, if there are any.
    pub exact_alone: Option<f64>,
    /// An exact window alone that takes as many operations; none unless there are as many queries as
    /// keys.
    pub window_alone: Option<f64>,
    /// The width of that window.
    pub window: usize,
    /// The plain mean of the values.
    pub uniform: f64,
    /// Exact keys per query.
    pub exact_keys: f64,
}

/// How good maps are on given sequences.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MapInspection {
    /// Where the arrays came from, if known.
    pub sources: Option<String>,
    /// The number of sequences.
    pub sequences: usize,
    /// The number of keys per sequence.
    pub tokens: usize,
    /// The number of features, if all heads have the same.
    pub features: Option<usize>,
    /// Which keys were exact, if they were the same for all heads.
    pub exact: Option<ExactKeys>,
    /// Whether queries saw only their own and earlier keys.
    pub causal: bool,
    /// What the maps were learned on; empty if they have a closed form.
    pub learned: Vec<MapOrigin>,
    /// Whether there were values; without them, weights are compared.
    pub has_values: bool,
    /// One report per head.
    pub heads: Vec<MapReport>,
}

/// Measures maps, one for all heads or one per head, on sequences.
///
/// ```
/// use favor::{Family, FeatureSpec, Kernel, Moments};
/// use favor_inspect::{MapOptions, inspect_maps};
/// use favor_io::{SequenceArrays, Sequences, progress};
/// let noise = |phase: f64| (0..2 * 16 * 4).map(|i| (phase + 1.7 * i as f64).sin()).collect();
/// let array = |phase| Sequences::new(noise(phase), &[2, 1, 16, 4]);
/// let arrays = SequenceArrays::new(array(0.0)?, array(1.0)?, Some(array(2.0)?))?;
/// let m = Moments::of(arrays.keys().head(0, 0).view())?;
/// let map = FeatureSpec::new(Family::Balanced, 64).kernel(Kernel::attention(4)).fit(&m, &m)?;
/// let found = inspect_maps(&arrays, &[map], &MapOptions::new().near(Some(2)), &progress::silent)?;
/// assert!(found.heads[0].error < found.heads[0].uniform);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inspect_maps(
    arrays: &SequenceArrays,
    maps: &[FeatureMap],
    options: &MapOptions,
    listener: &Listener<'_>,
) -> Result<MapInspection> {
    let heads = arrays.heads();
    let Some(first) = maps.first() else {
        return Err(Error::invalid("maps", "there are none"));
    };
    if maps.len() != 1 && maps.len() != heads {
        let reason = format!("{} for {heads} heads; give one for all, or one per head", maps.len());
        return Err(Error::invalid("maps", reason));
    }
    if let Some(map) = maps.iter().find(|map| map.dim() != arrays.dim()) {
        let (map, rows) = (map.dim(), arrays.dim());
        let reason = format!("of dimension {map} for queries and keys of dimension {rows}");
        return Err(Error::invalid("maps", reason));
    }
    let counter = Counter::new(listener, arrays.sequences() * heads);
    let tasks: Vec<(usize, usize)> =
        (0..heads).flat_map(|h| (0..arrays.sequences()).map(move |s| (h, s))).collect();
    let scores: Vec<Score> = tasks
        .into_par_iter()
        .map(|(head, sequence)| {
            let map = &maps[head % maps.len()];
            let (exact, causal) = options.of(map);
            let score =
                Score::measure(arrays, (sequence, head), map, exact, causal).map_err(|reason| {
                    let place = format!("sequence {sequence}, head {head}");
                    Error::Library { place, reason }
                })?;
            counter.step("head");
            Ok(score)
        })
        .collect::<Result<_>>()?;
    let reports = scores.chunks(arrays.sequences()).enumerate();
    let reports = reports.map(|(head, scores)| report(head, scores));
    let exact: Vec<ExactKeys> = maps.iter().map(|map| options.of(map).0).collect();
    let features: Vec<usize> = maps.iter().map(FeatureMap::features).collect();
    Ok(MapInspection {
        sources: arrays.sources(),
        sequences: arrays.sequences(),
        tokens: arrays.keys().shape()[2],
        features: common(&features),
        exact: common(&exact),
        causal: options.of(first).1,
        learned: MapOrigin::of(maps),
        has_values: arrays.values().is_some(),
        heads: reports.collect(),
    })
}

/// What all of them are, unless they differ.
fn common<T: Copy + PartialEq>(all: &[T]) -> Option<T> {
    let first = *all.first()?;
    all.iter().all(|one| *one == first).then_some(first)
}

/// Sums over the queries of a sequence: squares of exact outputs, and of distances from them.
struct Score {
    queries: usize,
    exact_keys: usize,
    window: usize,
    power: f64,
    error: f64,
    alone: Option<f64>,
    window_alone: Option<f64>,
    uniform: f64,
}

impl Score {
    fn measure(
        arrays: &SequenceArrays,
        (sequence, head): (usize, usize),
        map: &FeatureMap,
        exact: ExactKeys,
        causal: bool,
    ) -> favor::Result<Self> {
        let (q, k) = (arrays.queries().head(sequence, head), arrays.keys().head(sequence, head));
        // With unit vectors as values, outputs are the weights themselves.
        let given = arrays.values().map(|v| v.head(sequence, head));
        let v = given.unwrap_or_else(|| Matrix::identity(k.rows()));
        let kernel = map.kernel();
        let run = |method| head_attention(method, &q, &k, &v, causal);
        let target = run(Method::Exact(kernel))?;
        let maps = std::slice::from_ref(map);
        let out = run(Method::Hybrid { maps, exact: &[exact] })?;
        let mask = Mask::new(causal, None);
        let sets = if exact.is_none() {
            vec![vec![]; q.rows()]
        } else {
            exact_key_sets(map, exact, q.view(), k.view(), mask)?
        };
        let exact_keys = sets.iter().map(Vec::len).sum::<usize>();
        let to_keys = |keys_of: &dyn Fn(usize) -> Vec<usize>| -> favor::Result<f64> {
            Ok(distance(&attention_to(kernel, q.view(), k.view(), v.view(), keys_of)?, &target))
        };
        let alone = if exact.is_none() { None } else { Some(to_keys(&|i| sets[i].clone())?) };
        let values = arrays.values().map_or(map.dim(), |v| v.shape()[3]);
        let operations = Operations { features: map.features(), dim: map.dim(), values };
        let window = operations.window(exact_keys as f64 / q.rows() as f64, causal);
        let window_alone = if q.rows() == k.rows() {
            Some(to_keys(&|i| window_keys(i, window, k.rows(), causal).collect())?)
        } else {
            None
        };
        Ok(Self {
            queries: q.rows(),
            exact_keys,
            window,
            power: target.as_slice().iter().map(|v| v * v).sum(),
            error: distance(&out, &target),
            alone,
            window_alone,
            uniform: distance(&mean_of_values(v.view(), q.rows(), causal), &target),
        })
    }
}

/// Attention of one head by the engine.
///
/// ```
/// use favor::{Kernel, Matrix, Method, reference::mean_of_values};
/// use favor_inspect::head_attention;
/// let (x, v) = (Matrix::zeros(4, 2), Matrix::from_fn(4, 1, |i, _| i as f64));
/// let out = head_attention(Method::Exact(Kernel::attention(2)), &x, &x, &v, true)?;
/// assert_eq!(out, mean_of_values(v.view(), 4, true)); // all keys weigh the same
/// # Ok::<(), favor::Error>(())
/// ```
pub fn head_attention(
    method: Method<'_>,
    q: &Matrix<f64>,
    k: &Matrix<f64>,
    v: &Matrix<f64>,
    causal: bool,
) -> favor::Result<Matrix<f64>> {
    let tensor = |m| Tensor::new(Matrix::as_slice(m), [1, 1, m.rows(), m.columns()]);
    let inputs = Qkv::new(tensor(q)?, tensor(k)?, tensor(v)?);
    let out = attention(method, inputs, &AttentionOptions::new().causal(causal))?;
    Matrix::new(out, q.rows(), v.columns())
}

/// The squared distance.
fn distance(a: &Matrix<f64>, b: &Matrix<f64>) -> f64 {
    a.as_slice().iter().zip(b.as_slice()).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// All sequences of a head together.
fn report(head: usize, scores: &[Score]) -> MapReport {
    let sum = |f: &dyn Fn(&Score) -> f64| scores.iter().map(f).sum::<f64>();
    let power = sum(&|s| s.power);
    let relative = |f: &dyn Fn(&Score) -> Option<f64>| {
        let total: Option<f64> = scores.iter().map(f).sum();
        total.map(|t| if t == 0.0 { 0.0 } else { (t / power).sqrt() })
    };
    let exact_keys = sum(&|s| s.exact_keys as f64) / sum(&|s| s.queries as f64);
    MapReport {
        head,
        error: relative(&|s| Some(s.error)).unwrap_or(f64::NAN),
        exact_alone: relative(&|s| s.alone),
        window_alone: relative(&|s| s.window_alone),
        window: scores.iter().map(|s| s.window).max().unwrap_or(0),
        uniform: relative(&|s| Some(s.uniform)).unwrap_or(f64::NAN),
        exact_keys,
    }
}
