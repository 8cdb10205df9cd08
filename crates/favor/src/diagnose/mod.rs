//! How good features will be, before they are computed: closed-form variances, the number of
//! features that an accuracy needs, and a recommendation. Also measures how good they are.
//!
//! All variances are those of **one feature**: divide by M for the mean of M independent ones.
//! Families that use two features per draw (Hyperbolic, sine and cosine) count both, so that all
//! figures compare at equal M.

mod break_even;
mod estimator;
mod measure;
mod operations;
mod pair_means;
mod predict;
mod recommend;
mod row_error;
mod stats;

pub use break_even::break_even;
pub use estimator::Estimator;
pub use measure::{
    attention_error, effective_sample_sizes, kernel_error, relative_error, uniform_error,
};
pub use operations::Operations;
pub use pair_means::PairMeans;
pub use predict::{PREDICTED, Prediction, predict};
pub use recommend::{Advice, Candidate, MOST_FEATURES, recommend};
pub use row_error::RowErrorModel;
pub use stats::median;

use crate::draw::Stream;
use crate::{Float, Matrix, Rows};

/// The number of features needed for a relative error if one feature has this logarithmic relative
/// variance: `e^v / error²`, at least 1.
///
/// ```
/// // Relative variance 1, error 10 %: a hundred features.
/// assert!((favor::diagnose::features_needed(0.0, 0.1) - 100.0).abs() < 1e-9);
/// ```
pub fn features_needed(log_relative_variance: f64, error: f64) -> f64 {
    let needed = (log_relative_variance - 2.0 * error.ln()).exp();
    needed.clamp(1.0, f64::MAX)
}

/// At most `most` rows of a set, drawn without replacement; all of them, in order, if there are no
/// more. The same seed gives the same rows.
///
/// ```
/// use favor::{Matrix, diagnose::sample_rows};
/// let all = Matrix::from_fn(1000, 2, |i, _| i as f64);
/// let some = sample_rows(all.view(), 10, 7);
/// assert_eq!(some.shape(), (10, 2));
/// assert_eq!(some, sample_rows(all.view(), 10, 7));
/// ```
pub fn sample_rows<T: Float>(rows: Rows<'_, T>, most: usize, seed: u64) -> Matrix<T> {
    let mut chosen: Vec<usize> = (0..rows.rows()).collect();
    if rows.rows() > most {
        Stream::new(seed, 1 << 32).choose(&mut chosen, most);
        chosen.sort_unstable();
    }
    let mut out = Matrix::zeros(chosen.len(), rows.columns());
    for (i, &j) in chosen.iter().enumerate() {
        out.row_mut(i).copy_from_slice(rows.row(j));
    }
    out
}
