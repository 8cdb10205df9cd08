//! Exact or features, head by head, decided in advance and reported.

use super::head::Head;
use super::{AttentionOptions, ExactKeys, Method, Qkv, plan::Plan};
use crate::diagnose::{Estimator, attention_error, break_even, predict};
use crate::engine::mode::visible;
use crate::engine::tensor::{Scalar, Strided};
use crate::{FeatureMap, Float, Matrix, Result};
use rayon::prelude::*;

/// Number of queries and keys that a prediction looks at.
const SAMPLE: (usize, usize) = (4, 128);

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

    /// All keys for an exact head, none for the others, to pass to [`Method::Hybrid`].
    pub fn exact_keys(&self) -> ExactKeys {
        if self.is_exact() { ExactKeys::ALL } else { ExactKeys::NONE }
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Features { predicted_error } => {
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
    let method = Method::Features(maps);
    let plan = Plan::new(&method, &inputs, options)?;
    let heads = plan.heads(&inputs, options).enumerate();
    heads
        .map(|(place, head)| choose(plan.map(maps, place), head, options.causal, tolerance))
        .collect()
}

fn choose<T: Scalar>(
    map: &FeatureMap,
    head: Head<'_, T>,
    causal: bool,
    tolerance: f64,
) -> Result<Choice> {
    let Head { q, k, v, mask, .. } = head;
    if break_even(q.rows, k.rows, causal) <= map.features() as f64 {
        return Ok(Choice::ExactIsShort);
    }
    let keys = spaced(visible(mask, 0, k.rows), SAMPLE.1);
    if keys.is_empty() {
        return Ok(Choice::ExactIsShort);
    }
    let queries = spaced((0..q.rows).collect(), SAMPLE.0);
    let (q, k, v) = (sample(q, &queries), sample(k, &keys), sample(v, &keys));
    let prediction = match map.learned() {
        Some(_) => None,
        None => predict(&Estimator::of(map)?, q.view(), k.view(), Some(v.view()))?,
    };
    let predicted_error = match prediction {
        // Zero outputs have no relative error: use features.
        Some(prediction) => prediction.output_error(map.features() as f64).unwrap_or(0.0),
        // Learned and trigonometric maps have no closed form.
        None => attention_error(map, q.view(), k.view(), v.view())?,
    };
    Ok(if predicted_error <= tolerance {
        Choice::Features { predicted_error }
    } else {
        Choice::ExactIsNeeded { predicted_error }
    })
}

/// At most `most` of the given rows, evenly spaced.
fn spaced(rows: Vec<usize>, most: usize) -> Vec<usize> {
    let step = rows.len().div_ceil(most).max(1);
    rows.into_iter().step_by(step).collect()
}

fn sample<T: Scalar>(m: Strided<'_, T>, rows: &[usize]) -> Matrix<f64> {
    Matrix::from_fn(rows.len(), m.columns, |i, c| m.at(rows[i], c).widen().to_f64())
}
