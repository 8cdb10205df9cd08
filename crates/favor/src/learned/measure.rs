//! Measures numbers on sequences: divergence of the weights and error of the outputs.

use super::numbers::Numbers;
use super::sequence::Sequence;
use super::weights::{TILE, View, Weights, product};
use crate::simd::Real;

/// Sums over queries.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Score {
    queries: f64,
    divergence: f64,
    seen: f64,
    exact_keys: f64,
    /// Squares: of exact outputs, and of the distances from them.
    power: f64,
    error: f64,
    uniform: f64,
}

impl Score {
    /// The mean divergence of the weights.
    pub(super) fn divergence(&self) -> f64 {
        self.divergence / self.queries
    }

    /// Keys that a query sees.
    pub(super) fn seen(&self) -> f64 {
        self.seen / self.queries
    }

    /// Exact keys per query.
    pub(super) fn exact_keys(&self) -> f64 {
        self.exact_keys / self.queries
    }

    /// The relative error of the outputs.
    pub(super) fn error(&self) -> f64 {
        relative(self.error, self.power)
    }

    /// The same for the plain mean of the values.
    pub(super) fn uniform(&self) -> f64 {
        relative(self.uniform, self.power)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.queries += other.queries;
        self.divergence += other.divergence;
        self.seen += other.seen;
        self.exact_keys += other.exact_keys;
        self.power += other.power;
        self.error += other.error;
        self.uniform += other.uniform;
    }
}

fn relative(error: f64, power: f64) -> f64 {
    if error == 0.0 { 0.0 } else { (error / power).sqrt() }
}

/// Measures numbers on the given queries of a sequence. Without values, outputs are those of white-noise
/// values: errors then compare the weights themselves.
pub(super) fn measure<R: Real>(
    weights: &mut Weights<R>,
    numbers: &Numbers<R>,
    sequence: &Sequence<R>,
    view: View,
    queries: &[usize],
) -> Score {
    weights.load(numbers, sequence, view);
    let (width, stride) = (weights.width, weights.stride);
    let keys = sequence.key_places.len();
    let mut score = Score::default();
    for queries in queries.chunks(TILE) {
        weights.tile(numbers, sequence, view, queries);
        // Weights that sum to one: exact, of the map, uniform.
        let mut kinds: [Vec<R>; 3] = std::array::from_fn(|_| vec![R::ZERO; queries.len() * width]);
        for (r, row) in weights.rows.iter().enumerate() {
            let range = r * stride..r * stride + keys;
            let (e, k) = (&weights.exact[range.clone()], &weights.estimates[range]);
            let [exact, mapped, uniform] =
                kinds.each_mut().map(|kind| &mut kind[r * width..r * width + keys]);
            for j in 0..row.seen {
                exact[j] = e[j] * row.whole;
                mapped[j] = k[j] * row.far;
                uniform[j] = R::from_f64(1.0 / row.seen as f64);
            }
            for j in row.exact_keys() {
                mapped[j] = e[j] * row.near;
            }
            let mut divergence = row.log_ratio;
            let mut is_exact = vec![false; keys];
            row.exact_keys().for_each(|j| is_exact[j] = true);
            for j in (0..row.seen).filter(|&j| !is_exact[j] && e[j].to_f64() > 0.0) {
                let log = (e[j].to_f64() / k[j].to_f64().max(1e-37)).ln() - row.log_unit;
                divergence += exact[j].to_f64() * log;
            }
            score.queries += 1.0;
            score.divergence += divergence.max(0.0);
            score.seen += row.seen as f64;
            score.exact_keys += row.exact_count() as f64;
        }
        let outputs: Vec<Vec<R>> = kinds
            .into_iter()
            .map(|kind| match &sequence.values {
                None => kind,
                Some(values) => {
                    let mut out = vec![R::ZERO; queries.len() * values.width];
                    let (left, right) =
                        ((&kind[..], (width, 1)), (&values.numbers[..], values.width));
                    let shape = (queries.len(), values.width, keys);
                    product(weights.kernels, shape, left, right, (&mut out, values.width, false));
                    out
                }
            })
            .collect();
        let distance = |out: &[R]| -> f64 {
            let pairs = out.iter().zip(&outputs[0]);
            pairs.map(|(a, b)| (a.to_f64() - b.to_f64()).powi(2)).sum()
        };
        score.power += outputs[0].iter().map(|v| v.to_f64().powi(2)).sum::<f64>();
        score.error += distance(&outputs[1]);
        score.uniform += distance(&outputs[2]);
    }
    score
}
