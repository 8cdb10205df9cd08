//! The closed-form part: objective, variance over pairs, features needed.

use crate::Result;
use crate::head::PreparedHead;
use favor::diagnose::{Estimator, Prediction, features_needed, predict};

/// The error for which needs are computed.
pub(super) const WANTED: f64 = 0.1;

/// What the closed forms say about one family.
pub(super) struct Closed {
    pub(super) objective: f64,
    pub(super) mean_log_relative_variance: f64,
    pub(super) features_needed: f64,
    pub(super) prediction: Option<Prediction>,
}

impl Closed {
    pub(super) fn new(head: &PreparedHead<'_>, estimator: &Estimator) -> favor::Result<Self> {
        let (x, y) = (&head.samples.pairs.0, &head.samples.pairs.1);
        let means = estimator.pair_means(x.view(), y.view())?;
        let (moments_x, moments_y) = &head.moments;
        let objective = match estimator.objective(moments_x, moments_y)? {
            Some(objective) => objective,
            None => estimator.objective_floor(moments_x, moments_y) + means.excess,
        };
        let values = head.samples.predicted_values.as_ref().map(|v| v.view());
        let (queries, keys) = &head.samples.predicted;
        let mean = means.log_relative_variance;
        Ok(Self {
            objective,
            mean_log_relative_variance: mean,
            features_needed: features_needed(mean, WANTED),
            prediction: predict(estimator, queries.view(), keys.view(), values)?,
        })
    }

    pub(super) fn row_sum_need(&self) -> Option<f64> {
        let prediction = self.prediction.as_ref()?;
        Some(features_needed(prediction.typical_row_sum(), WANTED))
    }

    pub(super) fn output_need(&self) -> Option<f64> {
        self.prediction.as_ref()?.features_for_output(WANTED)
    }

    /// The predicted relative error of the output with `features` features.
    pub(super) fn output_error(&self, features: usize) -> Option<f64> {
        self.prediction.as_ref()?.output_error(features as f64).filter(|e| e.is_finite())
    }
}

/// The estimator of a family on all rows of a head.
pub(super) fn estimator(head: &PreparedHead<'_>, family: favor::Family) -> Result<Estimator> {
    Estimator::fit(family, head.kernel, &head.moments.0, &head.moments.1)
        .map_err(|e| head.error(family, e))
}
