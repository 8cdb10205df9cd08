//! Exact or features, head by head, decided in advance and reported.

use super::head::{Head, HeadMethod};
use super::{AttentionOptions, ExactKeys, Method, Qkv, plan::Plan};
use crate::diagnose::{Estimator, Operations, attention_error, predict, relative_error};
use crate::engine::mode::visible;
use crate::engine::tensor::{Scalar, Strided};
use crate::reference::{Mask, exact_attention};
use crate::{FeatureMap, Float, Matrix, Result};
use rayon::prelude::*;

/// Number of queries and keys that a prediction looks at.
const SAMPLE: (usize, usize) = (4, 128);

/// Number of queries at which learned maps are measured, each with all of its keys.
const MEASURED: usize = 64;

/// How one head of one sequence is computed, and why.
///
/// ```
/// use favor::{Choice, ExactKeys};
/// let choice = Choice::ExactIsNeeded { predicted_error: 0.8 };
/// assert_eq!(choice.exact_keys(), ExactKeys::ALL);
/// assert_eq!(choice.to_string(), "exact (features would be 80 % off)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// By features: the predicted relative output error is within the tolerance.
    Features {
        /// The prediction.
        predicted_error: f64,
        /// The keys that are exact in it: those that a learned map was learned with, and none for any other
        /// map.
        exact: ExactKeys,
    },
    /// Exactly, because it is no more work at this length.
    ExactIsShort,
    /// Exactly, because features would be too inaccurate.
    ExactIsNeeded {
        /// The predicted relative output error of features.
        predicted_error: f64,
    },
}

impl Choice {
    /// Whether the head is computed exactly.
    pub fn is_exact(&self) -> bool {
        !matches!(self, Self::Features { .. })
    }

    /// All keys for an exact head, and for the others those that the prediction assumes, to pass to
    /// [`Method::Hybrid`].
    pub fn exact_keys(&self) -> ExactKeys {
        match *self {
            Self::Features { exact, .. } => exact,
            Self::ExactIsShort | Self::ExactIsNeeded { .. } => ExactKeys::ALL,
        }
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Features { predicted_error, .. } => {
                write!(f, "features (predicted error {:.1} %)", 100.0 * predicted_error)
            }
            Self::ExactIsShort => f.write_str("exact (no slower at this length)"),
            Self::ExactIsNeeded { predicted_error } => {
                write!(f, "exact (features would be {:.0} % off)", 100.0 * predicted_error)
            }
        }
    }
}

/// Decides for each head of each sequence, in the order `[batch, heads, sequences]`, whether features are
/// accurate enough: a head is exact if that is no more work, or if the predicted relative output error,
/// from a small sample, is above `tolerance`. Choose once and reuse the choices for similar inputs, such
/// as the steps of a training run.
///
/// No closed form predicts the error of a learned map. It is measured at some queries, with the exact keys
/// that the map was learned with, and causally if it was learned so.
///
/// ```
/// use favor::{AttentionOptions, Choice, Family, FeatureSpec, Kernel, Method, Moments, Qkv, Rows, Tensor};
/// use favor::{attention, choose_heads};
/// let x: Vec<f32> = (0..64 * 8).map(|i| (i as f32).sin()).collect();
/// let m = Moments::of(Rows::new(&x, 64, 8)?)?;
/// let maps = [FeatureSpec::new(Family::Balanced, 128).kernel(Kernel::attention(8)).fit(&m, &m)?];
/// let t = Tensor::new(&x, [1, 1, 64, 8])?;
/// let (inputs, options) = (Qkv::new(t, t, t), AttentionOptions::new());
/// let choices = choose_heads(&maps, inputs, &options, 0.5)?;
/// assert_eq!(choices, [Choice::ExactIsShort]); // 64 tokens are fewer than 128 features
///
/// let exact: Vec<_> = choices.iter().map(Choice::exact_keys).collect();
/// let out = attention(Method::Hybrid { maps: &maps, exact: &exact }, inputs, &options)?;
/// assert_eq!(out.len(), 64 * 8);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn choose_heads<T: Scalar>(
    maps: &[FeatureMap],
    inputs: Qkv<'_, T>,
    options: &AttentionOptions<'_>,
    tolerance: f64,
) -> Result<Vec<Choice>> {
    T::choose_heads(maps, inputs, options, tolerance)
}

pub(crate) fn choose_all<T: Scalar>(
    maps: &[FeatureMap],
    inputs: Qkv<'_, T>,
    options: &AttentionOptions<'_>,
    tolerance: f64,
) -> Result<Vec<Choice>> {
    let exact: Vec<ExactKeys> = maps.iter().map(learned_keys).collect();
    let method = Method::Hybrid { maps, exact: &exact };
    let plan = Plan::new(&method, &inputs, options)?;
    let heads = plan.heads(&inputs, options).enumerate();
    heads
        .map(|(place, head)| {
            let map = plan.map(maps, place);
            let causal =
                map.learned().is_some_and(|from| from.causal) && head.q.rows == head.k.rows;
            choose(map, head, &options.causal(options.causal || causal), tolerance)
        })
        .collect()
}

/// The exact keys that a map was learned with. Features alone are measured of a map whose head was planned to
/// be exact.
fn learned_keys(map: &FeatureMap) -> ExactKeys {
    map.learned().map(|from| from.exact).filter(|exact| !exact.is_all()).unwrap_or(ExactKeys::NONE)
}

fn choose<T: Scalar>(
    map: &FeatureMap,
    head: Head<'_, T>,
    options: &AttentionOptions<'_>,
    tolerance: f64,
) -> Result<Choice> {
    let Head { q, k, v, mask, .. } = head;
    let keys = visible(mask, 0, k.rows);
    let exact = learned_keys(map);
    let operations = Operations { features: map.features(), dim: q.columns, values: v.columns };
    let per_query = exact.per_query(k.rows, options.causal) as f64;
    if operations.exact_is_no_slower(per_query, q.rows, k.rows, options.causal) || keys.is_empty() {
        return Ok(Choice::ExactIsShort);
    }
    let predicted_error = if map.learned().is_some() {
        measured_error(map, exact, head, &keys, options)?
    } else {
        let keys = spaced(keys, SAMPLE.1);
        let queries = spaced((0..q.rows).collect(), SAMPLE.0);
        let (q, k, v) = (sample(q, &queries), sample(k, &keys), sample(v, &keys));
        match predict(&Estimator::of(map)?, q.view(), k.view(), Some(v.view()))? {
            // Zero outputs have no relative error: use features.
            Some(prediction) => prediction.output_error(map.features() as f64).unwrap_or(0.0),
            // Trigonometric maps have no closed form.
            None => attention_error(map, q.view(), k.view(), v.view())?,
        }
    };
    Ok(if predicted_error <= tolerance {
        Choice::Features { predicted_error, exact }
    } else {
        Choice::ExactIsNeeded { predicted_error }
    })
}

/// The relative error of the head's output with these exact keys, at some of its queries.
fn measured_error<T: Scalar>(
    map: &FeatureMap,
    exact: ExactKeys,
    head: Head<'_, T>,
    keys: &[usize],
    options: &AttentionOptions<'_>,
) -> Result<f64> {
    let Head { q, k, v, .. } = head;
    let mut all = vec![T::default(); q.rows * v.columns];
    HeadMethod::new(map, exact).forward(head, options, &mut all)?;
    // If there are as many queries as keys, they share their padding.
    let queries = if q.rows == k.rows { keys.to_vec() } else { (0..q.rows).collect() };
    let queries = spaced(queries, MEASURED);
    let out = Matrix::from_fn(queries.len(), v.columns, |n, c| {
        all[queries[n] * v.columns + c].widen().to_f64()
    });
    let (q, k, v) = (sample(q, &queries), sample(k, keys), sample(v, keys));
    let mut wanted = Matrix::zeros(queries.len(), v.columns());
    for (n, &i) in queries.iter().enumerate() {
        let seen = if options.causal { keys.partition_point(|j| *j <= i) } else { keys.len() };
        let (query, k, v) = (q.view().slice(n, n + 1), k.view(), v.view());
        let (k, v) = (k.slice(0, seen), v.slice(0, seen));
        let row = exact_attention(map.kernel(), query, k, v, Mask::none())?;
        wanted.row_mut(n).copy_from_slice(row.as_slice());
    }
    Ok(relative_error(&out, &wanted))
}

/// At most `most` of the given rows, evenly spaced.
fn spaced(rows: Vec<usize>, most: usize) -> Vec<usize> {
    let step = rows.len().div_ceil(most).max(1);
    rows.into_iter().step_by(step).collect()
}

fn sample<T: Scalar>(m: Strided<'_, T>, rows: &[usize]) -> Matrix<f64> {
    Matrix::from_fn(rows.len(), m.columns, |i, c| m.at(rows[i], c).widen().to_f64())
}
