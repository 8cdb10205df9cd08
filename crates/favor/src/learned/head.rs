//! Learning one head.

use super::adam::{Adam, cycle};
use super::gradient::add_gradient;
use super::measure::{Score, measure};
use super::numbers::{Coordinates, Numbers};
use super::options::LearnOptions;
use super::probes::{ProbeRows, probes};
use super::sequence::{Raw, Sequence};
use super::weights::{OFF, View, Weights};
use super::{HeadReport, Kept, LearnedHead, Recommended};
use crate::diagnose::Operations;
use crate::draw::Stream;
use crate::map::{Learned, LearnedFrom, Probes};
use crate::{Error, ExactKeys, FeatureMap, FeatureSpec, Matrix, Moments, Result, Side};
use rayon::prelude::*;
use std::sync::Arc;

/// Tokens per step, unless the number of sequences is given.
const STEP_TOKENS: usize = 1024;

/// The number of held-out tokens watched while learning, and the minimum number of sequences; all of them
/// are measured at the end.
const WATCHED_TOKENS: usize = 2048;
const WATCHED: usize = 8;

/// How often they are measured.
const LOOKS: usize = 12;

/// The fraction of the steps after which outputs count, and over which their weight rises to its full
/// value.
const OUTPUTS_FROM: f64 = 0.4;
const OUTPUTS_RISE: f64 = 0.1;

/// Queries by which keys are judged.
const PROBES: usize = 16;

/// The sequences of one head, split.
pub(super) struct HeadData {
    pub(super) train: Vec<Raw>,
    pub(super) held_out: Vec<Raw>,
    pub(super) causal: bool,
    pub(super) has_windows: bool,
    pub(super) source: String,
}

type R = f32;

/// A sequence of a step with its queries and its work buffers.
type Pick = (usize, Vec<usize>);
type Buffers = (Weights<R>, Numbers<R>);

/// What the maps of a head are learned from.
pub(super) struct Head<'a> {
    spec: FeatureSpec,
    options: &'a LearnOptions<'a>,
    causal: bool,
    has_windows: bool,
    source: String,
    moments: (Moments, Moments),
    /// Coordinates of queries and keys: they depend on the moments, not on the number of features.
    query: Coordinates,
    key: Coordinates,
    train: Vec<Sequence<R>>,
    held_out: Vec<Sequence<R>>,
    probes: Probes,
    probe_rows: Arc<ProbeRows<R>>,
    has_values: bool,
    /// Dimensions of the keys and of the values.
    sizes: (usize, usize),
    /// Whether the sequences of a step are distributed over threads.
    parallel: bool,
}

/// Learned numbers, and the number of steps to them.
pub(super) struct Found {
    numbers: Numbers<R>,
    steps: usize,
}

impl Found {
    pub(super) fn features(&self) -> usize {
        self.numbers.shape.features
    }
}

/// What is best with given exact keys: the start, what was learned from it, or the exact keys alone.
pub(super) struct Best<'f> {
    pub(super) kept: Kept,
    pub(super) found: &'f Found,
    pub(super) score: Score,
    /// The score of the start.
    pub(super) start: Score,
    /// The error of the exact keys alone, if there are any.
    pub(super) alone: Option<f64>,
}

impl<'a> Head<'a> {
    pub(super) fn new(
        spec: FeatureSpec,
        data: HeadData,
        options: &'a LearnOptions<'a>,
        parallel: bool,
    ) -> Result<Self> {
        let HeadData { train, held_out, causal, has_windows, source } = data;
        let dim = train.first().map_or(0, |raw| raw.queries.columns());
        let (mut queries, mut keys) = (Moments::new(dim), Moments::new(dim));
        for raw in &train {
            queries.merge(&Moments::of(raw.queries.view())?)?;
            keys.merge(&Moments::of(raw.keys.view())?)?;
        }
        let start = spec.fit(&queries, &keys)?;
        let query = Coordinates::new(&start, Side::Query, &queries)?;
        let key = Coordinates::new(&start, Side::Key, &keys)?;
        let kernel = spec.kernel;
        let probes = probes(some_queries(&train, dim, options.seed), &some_keys(&train), kernel);
        let values = train.iter().find_map(|raw| raw.values.as_ref()).map(Matrix::columns);
        let packed = |all: Vec<Raw>| -> Vec<Sequence<R>> {
            all.into_iter().map(|raw| Sequence::new(raw, kernel, &query, &key)).collect()
        };
        Ok(Self {
            train: packed(train),
            held_out: packed(held_out),
            probe_rows: Arc::new(ProbeRows::new(&probes, kernel, &query)),
            sizes: (dim, values.unwrap_or(dim)),
            has_values: values.is_some(),
            moments: (queries, keys),
            spec,
            options,
            causal,
            has_windows,
            source,
            query,
            key,
            probes,
            parallel,
        })
    }

    /// The numbers of the closed form with this many features.
    pub(super) fn start(&self, features: usize) -> Result<Found> {
        let spec = FeatureSpec { features, ..self.spec };
        let map = spec.fit(&self.moments.0, &self.moments.1)?;
        let numbers = Numbers::of_start(
            &Coordinates::new(&map, Side::Query, &self.moments.0)?,
            &Coordinates::new(&map, Side::Key, &self.moments.1)?,
        );
        let start = Found { numbers, steps: 0 };
        if !self.score(&start, ExactKeys::NONE).error().is_finite() {
            let reason = "the error of the closed form is not finite: queries, keys or values are too large \
                          for 32 bits, or all exact outputs are zero; scale them, or give other values";
            return Err(Error::invalid("calibration", reason));
        }
        Ok(start)
    }

    /// The numbers with the lowest objective on watched sequences, including the start.
    pub(super) fn learn(
        &self,
        start: &Found,
        exact: ExactKeys,
        done: &(dyn Fn(usize, f64) + Sync),
    ) -> Result<Found> {
        let LearnOptions { steps, rate, pull, outputs, seed, .. } = *self.options;
        let batch = self.options.batch.unwrap_or_else(|| together(&self.train, STEP_TOKENS).max(4));
        let (start, view) = (&start.numbers, self.view(exact));
        let mut numbers = start.clone();
        let mut best = (Found { numbers: start.clone(), steps: 0 }, self.watch(start, view));
        let mut adam = Adam::new(numbers.values.len());
        let mut order = Order::new(self.train.len(), seed);
        let mut stream = Stream::new(seed, 2 << 32);
        let mut buffers: Vec<Buffers> =
            (0..batch).map(|_| (self.weights(start), Numbers::zeros(start.shape))).collect();
        let look = steps.div_ceil(LOOKS).max(1);
        for step in 0..steps {
            self.options.check_cancelled()?;
            let picks: Vec<Pick> = (0..batch)
                .map(|_| {
                    let which = order.next();
                    (which, self.pick_queries(&self.train[which], &mut stream))
                })
                .collect();
            // The divergence finds the slots; then the output error is reduced.
            let late = (step as f64 / steps as f64 - OUTPUTS_FROM) / OUTPUTS_RISE;
            let outputs_now = outputs * late.clamp(0.0, 1.0);
            let one = |((which, queries), (weights, gradient)): (&Pick, &mut Buffers)| {
                gradient.values.fill(0.0);
                add_gradient(
                    weights,
                    &numbers,
                    &self.train[*which],
                    view,
                    queries,
                    outputs_now,
                    gradient,
                );
            };
            if self.parallel {
                picks.par_iter().zip(buffers.par_iter_mut()).for_each(one);
            } else {
                picks.iter().zip(buffers.iter_mut()).for_each(one);
            }
            let mut total = vec![0.0_f32; numbers.values.len()];
            let share = 1.0 / batch as f32;
            for (_, gradient) in &buffers {
                total.iter_mut().zip(&gradient.values).for_each(|(t, g)| *t += share * g);
            }
            let rate = rate * cycle(step, steps);
            adam.step(&mut numbers.values, &total, &start.values, rate, pull);
            if (step + 1) % look == 0 || step + 1 == steps {
                let found = self.watch(&numbers, view);
                if found < best.1 {
                    best = (Found { numbers: numbers.clone(), steps: step + 1 }, found);
                }
                done(step + 1, found);
            }
        }
        Ok(best.0)
    }

    /// The objective.
    fn objective(&self, score: &Score) -> f64 {
        let outputs = if self.has_values { self.options.outputs } else { 0.0 };
        (1.0 - outputs) * score.divergence() + outputs * score.error().powi(2)
    }

    /// Measures numbers on all held-out sequences.
    pub(super) fn score(&self, found: &Found, exact: ExactKeys) -> Score {
        self.measure(&found.numbers, &self.held_out, self.view(exact))
    }

    /// The same with features switched off, for the exact keys alone.
    pub(super) fn score_alone(&self, found: &Found, exact: ExactKeys) -> Score {
        let view = View { switched_off: true, ..self.view(exact) };
        self.measure(&found.numbers, &self.held_out, view)
    }

    /// What has the lowest error on held-out sequences; of two equal ones, the simpler.
    pub(super) fn best<'f>(
        &self,
        start: &'f Found,
        learned: &'f Found,
        exact: ExactKeys,
    ) -> Best<'f> {
        let score = self.score(start, exact);
        let mut best = Best { kept: Kept::Start, found: start, score, start: score, alone: None };
        let score = self.score(learned, exact);
        if score.error() < best.score.error() {
            best = Best { kept: Kept::Learned, found: learned, score, ..best };
        }
        // Keys that no sequence is long enough for were not measured.
        if best.score.exact_keys() == 0.0 {
            return best;
        }
        // If the exact keys depend on the map, each of the two has its own.
        let founds = [start, learned];
        for &found in if exact.depend_on_map() { &founds[..] } else { &founds[..1] } {
            let score = self.score_alone(found, exact);
            let is_less = best.alone.is_none_or(|alone| score.error() < alone);
            if is_less && score.error() <= best.score.error() {
                best = Best { kept: Kept::ExactAlone, found, score, ..best };
            }
            if is_less {
                best.alone = Some(score.error());
            }
        }
        best
    }

    /// The map with these numbers, or with its features switched off.
    pub(super) fn map(
        &self,
        found: &Found,
        exact: ExactKeys,
        switched_off: bool,
        (kl_before, kl_after): (f64, f64),
    ) -> Result<FeatureMap> {
        let (mut query, key) = found.numbers.sides(&self.query, &self.key);
        if switched_off {
            query.constants.iter_mut().for_each(|c| *c -= OFF);
        }
        let from = LearnedFrom {
            source: self.source.clone(),
            sequences: self.train.len(),
            tokens: self.train.iter().map(|s| s.key_places.len()).sum(),
            held_out: self.held_out.len(),
            steps: found.steps,
            exact,
            causal: self.causal,
            seed: self.options.seed,
            kl_before,
            kl_after,
        };
        let spec = FeatureSpec { features: found.features(), ..self.spec };
        let probes = self.probes.clone();
        FeatureMap::from_learned(spec, Learned { query, key, probes, from })
    }

    /// The cost of attention with this many features.
    pub(super) fn operations(&self, features: usize) -> Operations {
        Operations { features, dim: self.sizes.0, values: self.sizes.1 }
    }

    /// The longest held-out sequence.
    pub(super) fn length(&self) -> usize {
        self.held_out.iter().map(|s| s.key_places.len()).max().unwrap_or(0)
    }

    /// Queries and keys of a held-out sequence, on average.
    fn lengths(&self) -> (usize, usize) {
        let count = self.held_out.len().max(1);
        let queries: usize = self.held_out.iter().map(|s| s.query_places.len()).sum();
        let keys: usize = self.held_out.iter().map(|s| s.key_places.len()).sum();
        (queries.div_ceil(count), keys.div_ceil(count))
    }

    /// Whether queries have a place among the keys, so that a window makes sense.
    pub(super) fn has_windows(&self) -> bool {
        self.has_windows
    }

    fn view(&self, exact: ExactKeys) -> View {
        View { exact, causal: self.causal, switched_off: false }
    }

    fn weights(&self, numbers: &Numbers<R>) -> Weights<R> {
        Weights::new(numbers.shape, Some(self.probe_rows.clone()))
    }

    fn pick_queries(&self, sequence: &Sequence<R>, stream: &mut Stream) -> Vec<usize> {
        let (count, most) = (sequence.query_places.len(), self.options.queries);
        let mut all: Vec<usize> = (0..count).collect();
        if count > most {
            stream.choose(&mut all, most);
            all.sort_unstable();
        }
        all
    }

    /// The objective on the watched sequences.
    fn watch(&self, numbers: &Numbers<R>, view: View) -> f64 {
        let watched = together(&self.held_out, WATCHED_TOKENS).max(WATCHED);
        let watched = &self.held_out[..self.held_out.len().min(watched)];
        self.objective(&self.measure(numbers, watched, view))
    }

    fn measure(&self, numbers: &Numbers<R>, sequences: &[Sequence<R>], view: View) -> Score {
        let most = self.options.queries;
        let one = |weights: &mut Weights<R>, sequence: &Sequence<R>| {
            let count = sequence.query_places.len();
            let step = count.div_ceil(most);
            let queries: Vec<usize> = (0..count).step_by(step).collect();
            measure(weights, numbers, sequence, view, &queries)
        };
        let scores: Vec<Score> = if self.parallel {
            let new = || self.weights(numbers);
            sequences.par_iter().map_init(new, one).collect()
        } else {
            let mut weights = self.weights(numbers);
            sequences.iter().map(|s| one(&mut weights, s)).collect()
        };
        scores.iter().fold(Score::default(), |mut sum, score| {
            sum.add(score);
            sum
        })
    }
}

/// Learns the map of a head with the exact keys of the options.
pub(super) fn learn_head(
    head: &Head<'_>,
    done: &(dyn Fn(usize, f64) + Sync),
) -> Result<LearnedHead> {
    let (exact, features) = (head.options.exact, head.spec.features);
    let start = head.start(features)?;
    let learned = head.learn(&start, exact, done)?;
    let Best { kept, found, score, start: before, alone } = head.best(&start, &learned, exact);
    let divergences = (before.divergence(), score.divergence());
    let operations = head.operations(features);
    let window = operations.window(score.exact_keys(), head.causal);
    let window_alone = || head.score_alone(&start, ExactKeys::NONE.near(window)).error();
    let window_alone = head.has_windows.then(window_alone);
    let (queries, keys) = head.lengths();
    let exact_pays = operations.exact_is_no_slower(score.exact_keys(), queries, keys, head.causal);
    let recommended = match window_alone {
        _ if exact_pays => Recommended::Exact,
        Some(alone) if alone <= score.error() => Recommended::Window,
        // Features that are switched off only cost, unless they find the exact keys.
        _ if kept == Kept::ExactAlone && !exact.depend_on_map() => Recommended::Window,
        _ => Recommended::Map,
    };
    let report = HeadReport {
        before: before.error(),
        after: score.error(),
        exact_alone: alone,
        window_alone,
        window,
        uniform: before.uniform(),
        kl_before: divergences.0,
        kl_after: divergences.1,
        exact_keys: score.exact_keys(),
        kept,
        recommended,
    };
    let map = head.map(found, exact, kept == Kept::ExactAlone, divergences)?;
    Ok(LearnedHead { map, report })
}

/// How many of these sequences have this many keys together, on average.
fn together(sequences: &[Sequence<R>], keys: usize) -> usize {
    let all: usize = sequences.iter().map(|s| s.key_places.len()).sum();
    (keys * sequences.len()).div_ceil(all.max(1))
}

/// Sequences in random order, reshuffled after each round.
struct Order {
    count: usize,
    left: Vec<usize>,
    stream: Stream,
}

impl Order {
    fn new(count: usize, seed: u64) -> Self {
        Self { count, left: vec![], stream: Stream::new(seed, 3 << 32) }
    }

    fn next(&mut self) -> usize {
        if self.left.is_empty() {
            self.left = (0..self.count).collect();
            self.stream.shuffle(&mut self.left);
        }
        self.left.pop().unwrap_or(0)
    }
}

/// A few queries of different sequences.
fn some_queries(sequences: &[Raw], dim: usize, seed: u64) -> Matrix<f64> {
    let mut stream = Stream::new(seed, 4 << 32);
    let picks: Vec<&[f64]> = (0..PROBES)
        .filter_map(|p| {
            let raw = sequences.get(p * sequences.len() / PROBES)?;
            let rows = raw.queries.rows();
            (rows > 0).then(|| raw.queries.row(stream.index(rows)))
        })
        .collect();
    Matrix::from_fn(picks.len(), dim, |i, l| picks[i][l])
}

/// The keys of a few sequences.
fn some_keys(sequences: &[Raw]) -> Vec<&Matrix<f64>> {
    sequences.iter().step_by(sequences.len().div_ceil(PROBES)).map(|raw| &raw.keys).collect()
}

#[cfg(test)]
mod tests {
    use super::super::weights::PAIRS;
    use super::*;
    use crate::{Family, Kernel};

    /// Pairs that learning looks at, and those that the report looks at.
    fn pairs(length: usize, queries: usize, exact: ExactKeys) -> (usize, usize) {
        let mut noise = Stream::new(1, 0);
        let mut sequence = || {
            let mut rows = || Matrix::from_fn(length, 3, |_, _| noise.normal());
            let (queries, keys, values) = (rows(), rows(), rows());
            let places: Vec<usize> = (0..length).collect();
            let (query_places, key_places) = (places.clone(), places);
            Raw { queries, keys, values: Some(values), query_places, key_places }
        };
        let data = HeadData {
            train: (0..3).map(|_| sequence()).collect(),
            held_out: (0..2).map(|_| sequence()).collect(),
            causal: true,
            has_windows: true,
            source: String::new(),
        };
        let options = LearnOptions::new().steps(24).batch(Some(2)).queries(queries).exact(exact);
        let spec = FeatureSpec::new(Family::Balanced, 4).kernel(Kernel::attention(3));
        let head = Head::new(spec, data, &options, false).unwrap();
        let start = head.start(4).unwrap();
        let count = |job: &dyn Fn()| {
            let before = PAIRS.get();
            job();
            PAIRS.get() - before
        };
        let learned = count(&|| drop(head.learn(&start, exact, &|_, _| ()).unwrap()));
        (learned, count(&|| drop(learn_head(&head, &|_, _| ()).unwrap())) - learned)
    }

    /// With a fixed number of queries, time grows with the length: there are as many queries per sequence and step,
    /// each with all keys, and held-out sequences are measured at as many.
    #[test]
    fn long_sequences_cost_linear() {
        for exact in [ExactKeys::NONE, ExactKeys::NONE.near(3).routed(2, 4).global(4)] {
            let (short, long) = (pairs(64, 16, exact), pairs(512, 16, exact));
            // Two sequences in each of 24 steps; two watched ones at the start and twelve times after.
            assert_eq!(short.0, (24 * 2 + 13 * 2) * 16 * 64);
            assert_eq!((long.0, long.1), (8 * short.0, 8 * short.1));
        }
        // Shorter ones are seen whole.
        assert_eq!(pairs(8, 16, ExactKeys::NONE).0, (24 * 2 + 13 * 2) * 8 * 8);
    }
}
