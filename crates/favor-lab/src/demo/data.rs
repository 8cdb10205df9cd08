//! Synthetic data, all from the seed.

use favor::Matrix;
use favor::draw::Stream;
use std::f64::consts::TAU;

/// Points in clusters of different sizes and shapes, away from the origin, as measurements are.
pub(super) fn clusters(seed: u64, purpose: u64, count: usize, dim: usize) -> Matrix<f64> {
    const CLUSTERS: usize = 6;
    // The clusters are the same for every purpose; the points differ.
    let mut stream = Stream::new(seed, 100);
    let centres = Matrix::from_fn(CLUSTERS, dim, |_, _| 1.0 + 1.2 * stream.normal());
    let widths = Matrix::from_fn(CLUSTERS, dim, |_, _| 0.3 + 0.9 * stream.uniform());
    let mut stream = Stream::new(seed, purpose);
    let mut out = Matrix::zeros(count, dim);
    for i in 0..count {
        let cluster = stream.index(CLUSTERS);
        for (c, value) in out.row_mut(i).iter_mut().enumerate() {
            *value = centres[(cluster, c)] + widths[(cluster, c)] * stream.normal();
        }
    }
    out
}

/// Points in the plane on three arms of a spiral, with the number of their arm.
pub(super) fn spiral(seed: u64, purpose: u64, count: usize) -> (Matrix<f64>, Vec<usize>) {
    let mut stream = Stream::new(seed, purpose);
    let mut points = Matrix::zeros(count, 2);
    let mut arms = Vec::with_capacity(count);
    for i in 0..count {
        let arm = i % super::classify::CLASSES;
        let along = stream.uniform();
        let radius = 0.25 + 2.2 * along;
        let angle = TAU * (arm as f64 / super::classify::CLASSES as f64 + 0.62 * along);
        let noise = 0.16;
        points[(i, 0)] = radius * angle.cos() + noise * stream.normal();
        points[(i, 1)] = radius * angle.sin() + noise * stream.normal();
        arms.push(arm);
    }
    (points, arms)
}

/// Queries, keys and values of one head.
pub(super) struct Tokens {
    pub(super) queries: Matrix<f64>,
    pub(super) keys: Matrix<f64>,
    pub(super) values: Matrix<f64>,
}

/// A head as models have them: a few directions carry most of the variance, queries and keys have
/// means of their own, and tokens of one topic attend to each other.
pub(super) fn tokens(seed: u64, count: usize, dim: usize) -> Tokens {
    const LATENT: usize = 8;
    const TOPICS: usize = 16;
    let mut stream = Stream::new(seed, 300);
    let topics = Matrix::from_fn(TOPICS, LATENT, |_, _| stream.normal());
    // Directions of falling strength.
    let strength = |l: usize| 0.42 / (1.0 + 0.3 * l as f64);
    let shared = Matrix::from_fn(LATENT, dim, |l, _| strength(l) * stream.normal());
    let own = |stream: &mut Stream, mix: f64| {
        Matrix::from_fn(LATENT, dim, |l, c| shared[(l, c)] + mix * strength(l) * stream.normal())
    };
    let (to_query, to_key) = (own(&mut stream, 0.5), own(&mut stream, 0.5));
    let to_value = Matrix::from_fn(LATENT, dim, |_, _| stream.normal());
    let mut mean = |size: f64| (0..dim).map(|_| size * stream.normal()).collect::<Vec<f64>>();
    let (query_mean, key_mean, value_mean) = (mean(0.7), mean(0.7), mean(0.3));
    let mut latent = Matrix::zeros(count, LATENT);
    let mut stream = Stream::new(seed, 301);
    for i in 0..count {
        let topic = stream.index(TOPICS);
        for (l, value) in latent.row_mut(i).iter_mut().enumerate() {
            *value = topics[(topic, l)] + 0.5 * stream.normal();
        }
    }
    let mut side = |weights: &Matrix<f64>, mean: &[f64], noise: f64| {
        let mut out = Matrix::zeros(count, dim);
        for i in 0..count {
            for (c, value) in out.row_mut(i).iter_mut().enumerate() {
                let signal: f64 =
                    latent.row(i).iter().enumerate().map(|(l, z)| z * weights[(l, c)]).sum();
                *value = mean[c] + signal + noise * stream.normal();
            }
        }
        out
    };
    let queries = side(&to_query, &query_mean, 0.3);
    let keys = side(&to_key, &key_mean, 0.3);
    let values = side(&to_value, &value_mean, 0.5);
    Tokens { queries, keys, values }
}
