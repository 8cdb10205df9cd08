//! The learning of one head.

use super::adam::{Adam, cycle};
use super::gradient::add_gradient;
use super::measure::{Score, measure};
use super::numbers::{Coordinates, Numbers};
use super::options::LearnOptions;
use super::probes::{ProbeRows, probes};
use super::sequence::{Raw, Sequence};
use super::weights::{View, Weights};
use super::{HeadReport, Kept, LearnedHead};
use crate::diagnose::Operations;
use crate::draw::Stream;
use crate::map::{Learned, LearnedFrom, Projection};
use crate::{ExactKeys, FeatureMap, FeatureSpec, Matrix, Moments, Result, Side};
use rayon::prelude::*;
use std::sync::Arc;

/// Held-out sequences that are looked at while learning; all of them are at the end.
const WATCHED: usize = 8;

/// How often they are looked at.
const LOOKS: usize = 12;

/// Queries by which keys are judged.
const PROBES: usize = 16;

/// A logarithm by which features are lowered to switch them off: they then vanish beside any exact key.
const OFF: f64 = 1000.0;

/// The sequences of one head, split.
pub(super) struct HeadData {
    pub(super) train: Vec<Raw>,
    pub(super) held_out: Vec<Raw>,
    pub(super) causal: bool,
}

type R = f32;

/// What a head is learned with.
struct Head<'a> {
    options: &'a LearnOptions<'a>,
    view: View,
    train: Vec<Sequence<R>>,
    held_out: Vec<Sequence<R>>,
    probes: Option<Arc<ProbeRows<R>>>,
    /// Whether the sequences of a step are shared out among threads.
    parallel: bool,
}

pub(super) fn learn_head(
    spec: FeatureSpec,
    data: HeadData,
    options: &LearnOptions<'_>,
    parallel: bool,
    done: &(dyn Fn(usize, f64) + Sync),
) -> Result<LearnedHead> {
    let HeadData { train, held_out, causal } = data;
    let (mut queries, mut keys) = (Moments::new(dim(&train)), Moments::new(dim(&train)));
    for raw in &train {
        queries.merge(&Moments::of(raw.queries.view())?)?;
        keys.merge(&Moments::of(raw.keys.view())?)?;
    }
    let start_map = spec.fit(&queries, &keys)?;
    let query = Coordinates::new(&start_map, Side::Query, &queries)?;
    let key = Coordinates::new(&start_map, Side::Key, &keys)?;
    let kernel = spec.kernel;
    let judged = probes(some_queries(&train, options.seed), &some_keys(&train), kernel);
    let values = held_out.iter().find_map(|raw| raw.values.as_ref()).map(Matrix::columns);
    let operations = Operations {
        features: spec.features,
        dim: dim(&train),
        values: values.unwrap_or(dim(&train)),
    };
    let counts = (train.len(), held_out.len());
    let packed = |all: Vec<Raw>| -> Vec<Sequence<R>> {
        all.into_iter().map(|raw| Sequence::new(raw, kernel, &query, &key)).collect()
    };
    let head = Head {
        options,
        view: View { exact: options.exact, causal },
        train: packed(train),
        held_out: packed(held_out),
        probes: Some(Arc::new(ProbeRows::new(&judged, kernel, &query))),
        parallel,
    };
    let start = Numbers::<R>::of_start(&query, &key);
    let (best, steps) = head.descend(&start, done)?;
    let (before, after) = (head.score(&start, head.view), head.score(&best, head.view));
    let alone = if options.exact.is_none() { f64::INFINITY } else { before.alone() };
    let kept = Kept::best(before.error(), after.error(), alone);
    let chosen = if kept == Kept::Learned { &best } else { &start };
    let (mut query_side, key_side) = chosen.sides(&query, &key);
    if kept == Kept::ExactAlone {
        query_side.constants.iter_mut().for_each(|c| *c -= OFF);
    }
    let from = LearnedFrom {
        sequences: counts.0,
        held_out: counts.1,
        steps: if kept == Kept::Learned { steps } else { 0 },
        exact: options.exact,
        causal,
        seed: options.seed,
        kl_before: before.divergence(),
        kl_after: if kept == Kept::Learned { after.divergence() } else { before.divergence() },
    };
    let window = operations.window(before.exact_keys(), causal);
    let window_view = View { exact: ExactKeys::NONE.near(window), causal };
    let window_alone = head.score(&start, window_view).alone();
    let after_error = match kept {
        Kept::Learned => after.error(),
        Kept::Start => before.error(),
        Kept::ExactAlone => before.alone(),
    };
    let report = HeadReport {
        before: before.error(),
        after: after_error,
        exact_alone: (!options.exact.is_none()).then(|| before.alone()),
        window_alone,
        window,
        uniform: before.uniform(),
        kl_before: from.kl_before,
        kl_after: from.kl_after,
        exact_keys: after.exact_keys(),
        kept,
    };
    let (query, key) = (query_side, key_side);
    Ok(LearnedHead { map: assemble(spec, query, key, judged, from)?, report })
}

fn assemble(
    spec: FeatureSpec,
    query: Projection,
    key: Projection,
    probes: crate::map::Probes,
    from: LearnedFrom,
) -> Result<FeatureMap> {
    FeatureMap::from_learned(spec, Learned { query, key, probes, from })
}

impl Head<'_> {
    /// The numbers of the least divergence on watched sequences, and the step that they are from.
    fn descend(
        &self,
        start: &Numbers<R>,
        done: &(dyn Fn(usize, f64) + Sync),
    ) -> Result<(Numbers<R>, usize)> {
        let LearnOptions { steps, batch, rate, seed, recipe, .. } = *self.options;
        let mut numbers = start.clone();
        if recipe[1] > 0.0 {
            numbers.parts_mut().key_rho.fill(0.0);
        }
        let start = &numbers.clone();
        let mut best = (start.clone(), 0, self.watch(start));
        let mut adam = Adam::new(numbers.values.len());
        let mut order = Order::new(self.train.len(), seed);
        let mut stream = Stream::new(seed, 2 << 32);
        let mut buffers: Vec<(Weights<R>, Numbers<R>)> =
            (0..batch).map(|_| (self.weights(start), Numbers::zeros(start.shape))).collect();
        let pull = self.options.pull.unwrap_or_else(|| self.default_pull());
        let look = steps.div_ceil(LOOKS).max(1);
        for step in 0..steps {
            self.options.check_cancelled()?;
            let picks: Vec<(usize, Vec<usize>)> = (0..batch)
                .map(|_| {
                    let which = order.next();
                    (which, self.pick_queries(&self.train[which], &mut stream))
                })
                .collect();
            let one = |((which, queries), (weights, gradient)): (
                &(usize, Vec<usize>),
                &mut (Weights<R>, Numbers<R>),
            )| {
                gradient.values.fill(0.0);
                let sequence = &self.train[*which];
                add_gradient(weights, &numbers, sequence, self.view, queries, gradient);
            };
            if self.parallel {
                picks.par_iter().zip(buffers.par_iter_mut()).for_each(one);
            } else {
                picks.iter().zip(buffers.iter_mut()).for_each(one);
            }
            let mut total = vec![0.0_f32; numbers.values.len()];
            for (_, gradient) in &buffers {
                let share = 1.0 / batch as f32;
                total.iter_mut().zip(&gradient.values).for_each(|(t, g)| *t += share * g);
            }
            if recipe[0] > 0.0 {
                let mut g = Numbers { shape: numbers.shape, values: std::mem::take(&mut total) };
                let parts = g.parts_mut();
                parts.query_rho.fill(0.0);
                parts.key_rho.fill(0.0);
                total = g.values;
            }
            let rate = rate * cycle(step, steps);
            adam.step(&mut numbers.values, &total, &start.values, rate, pull);
            if (step + 1) % look == 0 || step + 1 == steps {
                let found = self.watch(&numbers);
                if found < best.2 {
                    best = (numbers.clone(), step + 1, found);
                }
                done(step + 1, found);
            }
        }
        Ok((best.0, best.1))
    }

    /// Few tokens per number that is learned: pull harder.
    fn default_pull(&self) -> f64 {
        0.0
    }

    fn weights(&self, numbers: &Numbers<R>) -> Weights<R> {
        Weights::new(numbers.shape, self.probes.clone())
    }

    fn pick_queries(&self, sequence: &Sequence<R>, stream: &mut Stream) -> Vec<usize> {
        let (count, most) = (sequence.query_places.len(), self.options.queries);
        let mut all: Vec<usize> = (0..count).collect();
        if count > most {
            for i in 0..most {
                let j = i + stream.index(count - i);
                all.swap(i, j);
            }
            all.truncate(most);
            all.sort_unstable();
        }
        all
    }

    /// The divergence on the sequences that are watched.
    fn watch(&self, numbers: &Numbers<R>) -> f64 {
        let watched = &self.held_out[..self.held_out.len().min(WATCHED)];
        self.measure(numbers, watched, self.view).divergence()
    }

    fn score(&self, numbers: &Numbers<R>, view: View) -> Score {
        self.measure(numbers, &self.held_out, view)
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

impl Kept {
    /// What has the least error on held-out sequences; what is simpler, if it is no worse.
    fn best(start: f64, learned: f64, alone: f64) -> Self {
        if alone <= learned && alone <= start {
            Self::ExactAlone
        } else if start <= learned {
            Self::Start
        } else {
            Self::Learned
        }
    }
}

/// Sequences in a random order, and again in another when all were had.
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
            for i in (1..self.count).rev() {
                let j = self.stream.index(i + 1);
                self.left.swap(i, j);
            }
        }
        self.left.pop().unwrap_or(0)
    }
}

fn dim(sequences: &[Raw]) -> usize {
    sequences.first().map_or(0, |raw| raw.queries.columns())
}

/// A few queries of different sequences.
fn some_queries(sequences: &[Raw], seed: u64) -> Matrix<f64> {
    let mut stream = Stream::new(seed, 4 << 32);
    let picks: Vec<&[f64]> = (0..PROBES)
        .filter_map(|p| {
            let raw = sequences.get(p * sequences.len() / PROBES)?;
            let rows = raw.queries.rows();
            (rows > 0).then(|| raw.queries.row(stream.index(rows)))
        })
        .collect();
    Matrix::from_fn(picks.len(), dim(sequences), |i, l| picks[i][l])
}

/// The keys of a few sequences.
fn some_keys(sequences: &[Raw]) -> Vec<&Matrix<f64>> {
    sequences.iter().step_by(sequences.len().div_ceil(PROBES)).map(|raw| &raw.keys).collect()
}
