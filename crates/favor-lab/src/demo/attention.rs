//! Job 3: attention.

use super::curve::{self, FamilyCurve};
use super::{CurvePoint, DemoOptions, data};
use crate::Result;
use favor::diagnose::{Estimator, PREDICTED, predict, relative_error, sample_rows, uniform_error};
use favor::reference::{Mask, exact_attention, feature_attention};
use favor::{Kernel, Moments};
use favor_io::progress::Counter;
use rayon::prelude::*;
use serde::Serialize;

const DIM: usize = 32;

/// What attention gave.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttentionResult {
    /// Queries, keys and values.
    pub tokens: usize,
    /// Dimension of the head.
    pub dim: usize,
    /// The relative error of the output.
    pub errors: Vec<FamilyCurve>,
    /// What the closed form predicts for it; empty where it has none.
    pub predicted: Vec<FamilyCurve>,
    /// The error of the plain mean of the values.
    pub uniform: f64,
}

pub(super) fn run(options: &DemoOptions, counter: &Counter<'_>) -> Result<AttentionResult> {
    let tokens = data::tokens(options.seed, options.tokens, DIM);
    let (q, k, v) = (tokens.queries.view(), tokens.keys.view(), tokens.values.view());
    let kernel = Kernel::attention(DIM);
    let exact = exact_attention(kernel, q, k, v, Mask::none())?;
    let moments = (Moments::of(q)?, Moments::of(k)?);
    let errors = curve::measure(options, kernel, (&moments.0, &moments.1), counter, |map| {
        Ok(relative_error(&feature_attention(map, q, k, v, Mask::none())?, &exact))
    })?;
    // The same seed takes the same rows of keys and values.
    let queries = sample_rows(q, PREDICTED.0, options.seed);
    let (keys, values) =
        (sample_rows(k, PREDICTED.1, options.seed), sample_rows(v, PREDICTED.1, options.seed));
    let predicted: favor::Result<Vec<FamilyCurve>> = options
        .families
        .par_iter()
        .map(|&family| {
            let estimator = Estimator::fit(family, kernel, &moments.0, &moments.1)?;
            let values = Some(values.view());
            let found = predict(&estimator, queries.view(), keys.view(), values)?;
            let points = options.features.iter().filter_map(|&features| {
                let value = found.as_ref()?.output_error(features as f64)?;
                Some(CurvePoint { features, value })
            });
            Ok(FamilyCurve { family, points: points.collect() })
        })
        .collect();
    let uniform = uniform_error(&exact, v)?;
    let predicted = predicted?;
    Ok(AttentionResult { tokens: options.tokens, dim: DIM, errors, predicted, uniform })
}
