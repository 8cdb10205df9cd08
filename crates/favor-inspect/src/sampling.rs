//! Which rows the expensive figures are computed on.

use crate::MOST_PAIRS;
use favor::Matrix;
use favor::diagnose::{PREDICTED, sample_rows};
use favor_io::Head;

/// Maximum queries and keys for the measured kernel error.
const KERNEL: (usize, usize) = (256, 256);
/// Maximum queries for the measured output error, which uses all keys.
const OUTPUT: usize = 2048;

/// Samples of one head. The same seed gives the same rows, so keys and values stay together.
pub(super) struct Samples {
    /// For the variance over pairs.
    pub(super) pairs: (Matrix<f64>, Matrix<f64>),
    pub(super) predicted: (Matrix<f64>, Matrix<f64>),
    pub(super) predicted_values: Option<Matrix<f64>>,
    pub(super) kernel: (Matrix<f64>, Matrix<f64>),
    pub(super) output: Matrix<f64>,
}

impl Samples {
    pub(super) fn new(input: &Head, seed: u64) -> Self {
        let (x, y) = (input.queries.view(), input.keys.view());
        let (most_x, most_y) = pair_limits(x.rows(), y.rows());
        let both = |(a, b): (usize, usize)| (sample_rows(x, a, seed), sample_rows(y, b, seed));
        Self {
            pairs: both((most_x, most_y)),
            predicted: both(PREDICTED),
            predicted_values: input
                .values
                .as_ref()
                .map(|v| sample_rows(v.view(), PREDICTED.1, seed)),
            kernel: both(KERNEL),
            output: sample_rows(x, OUTPUT, seed),
        }
    }
}

/// How many queries and keys to use so that there are at most [`MOST_PAIRS`] pairs: a short side is
/// used whole.
fn pair_limits(queries: usize, keys: usize) -> (usize, usize) {
    if queries.saturating_mul(keys) <= MOST_PAIRS {
        return (queries, keys);
    }
    let even = MOST_PAIRS.isqrt();
    match (queries <= even, keys <= even) {
        (true, _) => (queries, MOST_PAIRS / queries.max(1)),
        (_, true) => (MOST_PAIRS / keys.max(1), keys),
        _ => (even, even),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_few_enough() {
        for (queries, keys) in [(1, 1), (2048, 2048), (5000, 5000), (3, 10_000_000), (1 << 23, 7)] {
            let (a, b) = pair_limits(queries, keys);
            assert!(a * b <= MOST_PAIRS && a <= queries && b <= keys);
            assert!(a * b > MOST_PAIRS / 2 || (a, b) == (queries, keys));
        }
    }
}
