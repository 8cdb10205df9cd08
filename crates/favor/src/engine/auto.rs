//! Exact or features, head by head, decided beforehand and reported.

use super::attention::{Gradients, Options, Plan, Task, features_head, features_head_backward};
use super::exact::exact_head;
use super::exact_backward::backward as exact_head_backward;
use super::number::Number;
use super::strided::Strided;
use super::tensor::Tensor;
use crate::diagnose::{Estimator, predict};
use crate::{Element, FeatureMap, Matrix, Result};
use rayon::prelude::*;

/// A feature of a row costs as much as this many exact kernel values. Both are one inner product and
/// one weighted sum; `cargo xtask bench` finds exact attention and features equally fast at L = 1.8 M
/// to 2.0 M (docs/benchmarks.md), where L/2 exact values stand against M features.
const VALUES_PER_FEATURE: f64 = 0.95;

/// The same where attention is causal, and exact attention leaves out half of the values: L = 2.9 M to
/// 3.6 M.
const VALUES_PER_CAUSAL_FEATURE: f64 = 1.7;

/// Queries and keys that a prediction looks at.
const SAMPLE: (usize, usize) = (4, 128);

/// How one head of one sequence is computed, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// By features: the predicted relative error of the output is within the tolerance.
    Features {
        /// The prediction.
        predicted_error: f64,
    },
    /// Exactly, because that is no more work at this length.
    ExactIsShort,
    /// Exactly, because features would be too far off.
    ExactIsNeeded {
        /// The predicted relative error of the output by features.
        predicted_error: f64,
    },
}

impl Choice {
    /// Whether the head is computed by features.
    pub fn by_features(&self) -> bool {
        matches!(self, Self::Features { .. })
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

/// Decides for each head of each sequence, in the order `[batch, heads, sequences]`, whether features
/// serve: exact where it is no more work, or where the predicted relative error of the output, from a
/// small sample, is above `tolerance`.
///
/// ```
/// use favor::{Choice, Family, FeatureSpec, Kernel, Moments, Options, Rows, Tensor, choose};
/// let x: Vec<f32> = (0..64 * 8).map(|i| (i as f32).sin()).collect();
/// let m = Moments::of(Rows::new(&x, 64, 8)?)?;
/// let map = [FeatureSpec::new(Family::Balanced, 128).kernel(Kernel::attention(8)).fit(&m, &m)?];
/// let t = Tensor::new(&x, [1, 1, 64, 8])?;
/// let choices = choose(&map, t, t, t, &Options::default(), 0.5)?;
/// assert_eq!(choices, [Choice::ExactIsShort]); // 64 tokens are fewer than 128 features
/// # Ok::<(), favor::Error>(())
/// ```
pub fn choose<T: Number>(
    maps: &[FeatureMap],
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    v: Tensor<'_, T>,
    options: &Options<'_>,
    tolerance: f64,
) -> Result<Vec<Choice>> {
    let plan = Plan::new(maps, q.shape(), k.shape(), v.shape(), options)?;
    plan.tasks()
        .par_iter()
        .map(|task| {
            let (q, k, v) = task.views(q, k, v);
            let mask = task.mask(options, &plan);
            one(task.map(maps, &plan), (q, k, v), mask, options.causal, tolerance)
        })
        .collect()
}

fn one<T: Number>(
    map: &FeatureMap,
    (q, k, v): (Strided<'_, T>, Strided<'_, T>, Strided<'_, T>),
    mask: Option<&[bool]>,
    causal: bool,
    tolerance: f64,
) -> Result<Choice> {
    let (l, s) = (q.rows as f64, k.rows as f64);
    let values_per_feature = if causal { VALUES_PER_CAUSAL_FEATURE } else { VALUES_PER_FEATURE };
    if l * s / (l + s) <= values_per_feature * map.features() as f64 {
        return Ok(Choice::ExactIsShort);
    }
    let keys = spaced(super::forward::visible(mask, 0, k.rows), SAMPLE.1);
    if keys.is_empty() {
        return Ok(Choice::ExactIsShort);
    }
    let queries = spaced((0..q.rows).collect(), SAMPLE.0);
    let (q, k, v) = (sample(q, &queries), sample(k, &keys), sample(v, &keys));
    let prediction = predict(&Estimator::from(map), q.view(), k.view(), Some(v.view()))?;
    // No prediction (a trigonometric map), or nothing to predict (outputs of zero): no objection.
    let error = prediction.and_then(|p| p.output_error(map.features() as f64));
    let predicted_error = error.unwrap_or(0.0);
    Ok(match predicted_error <= tolerance {
        true => Choice::Features { predicted_error },
        false => Choice::ExactIsNeeded { predicted_error },
    })
}

/// At most `most` of the given rows, evenly spaced.
fn spaced(rows: Vec<usize>, most: usize) -> Vec<usize> {
    let step = rows.len().div_ceil(most).max(1);
    rows.into_iter().step_by(step).collect()
}

fn sample<T: Number>(m: Strided<'_, T>, rows: &[usize]) -> Matrix<f64> {
    Matrix::from_fn(rows.len(), m.columns, |i, c| m.at(rows[i], c).widen().to_f64())
}

/// Attention with the choices of [`choose`]. Choose once and reuse the choices where inputs are
/// alike, as between the steps of a training run.
pub fn auto_attention<T: Number>(
    maps: &[FeatureMap],
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    v: Tensor<'_, T>,
    options: &Options<'_>,
    choices: &[Choice],
) -> Result<Vec<T>> {
    let plan = Plan::new(maps, q.shape(), k.shape(), v.shape(), options)?;
    check_choices(&plan, choices)?;
    let exact = |task: &Task, out: &mut [T]| {
        let (q, k, v) = task.views(q, k, v);
        let kernel = task.map(maps, &plan).kernel();
        exact_head(kernel, (q, k, v), task.mask(options, &plan), options.causal, out)
    };
    plan.run(v.shape()[3], options, |i, task, out| match choices[i].by_features() {
        true => features_head(maps, &plan, (q, k, v), options, task, out),
        false => exact(task, out),
    })
}

/// The gradients of [`auto_attention`], as [`attention_backward`](crate::attention_backward) gives
/// them. Maps and choices are constants.
#[allow(clippy::too_many_arguments)]
pub fn auto_attention_backward<T: Number>(
    maps: &[FeatureMap],
    q: Tensor<'_, T>,
    k: Tensor<'_, T>,
    v: Tensor<'_, T>,
    out: Tensor<'_, T>,
    out_gradient: Tensor<'_, T>,
    options: &Options<'_>,
    choices: &[Choice],
) -> Result<Gradients<T>> {
    let plan = Plan::new(maps, q.shape(), k.shape(), v.shape(), options)?;
    check_choices(&plan, choices)?;
    plan.gradients((q, k, v), (out, out_gradient), options, |i, task, head, gradients| {
        let map = task.map(maps, &plan);
        match choices[i].by_features() {
            true => features_head_backward(map, head, options, gradients),
            false => exact_head_backward(map.kernel(), head, options.causal, gradients),
        }
    })
}

fn check_choices(plan: &Plan, choices: &[Choice]) -> Result<()> {
    let count = plan.tasks().len();
    if choices.len() == count {
        return Ok(());
    }
    Err(crate::Error::invalid("choices", format!("{} choices for {count} heads", choices.len())))
}
