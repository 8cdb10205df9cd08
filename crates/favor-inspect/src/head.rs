//! One head: what all families share, and the report of each.

use crate::closed::{self, Closed};
use crate::sampling::Samples;
use crate::{DRAWS, Error, FamilyReport, HeadInspection, InspectOptions, PairSample, Result};
use crate::{advice, measured};
use favor::diagnose::{Estimator, uniform_error};
use favor::reference::{Mask, exact_attention};
use favor::{Family, Kernel, Matrix, Moments};
use favor_io::Head;

/// One head, with everything its families share.
pub(super) struct PreparedHead<'a> {
    pub(super) index: usize,
    pub(super) input: &'a Head,
    pub(super) kernel: Kernel,
    pub(super) moments: (Moments, Moments),
    pub(super) samples: Samples,
    /// Exact attention of the sampled queries, if there are values.
    pub(super) exact: Option<Matrix<f64>>,
    uniform: Option<f64>,
}

impl<'a> PreparedHead<'a> {
    pub(super) fn new(index: usize, input: &'a Head, options: &InspectOptions) -> Result<Self> {
        let kernel = options.kernel;
        let place = |reason| Error::Library { place: format!("head {index}"), reason };
        let moments = |m: &Matrix<f64>| Moments::of(m.view()).map_err(place);
        let moments = (moments(&input.queries)?, moments(&input.keys)?);
        let samples = Samples::new(input, options.seed);
        let exact = input.values.as_ref().map(|values| {
            let (queries, keys) = (samples.output.view(), input.keys.view());
            let exact = exact_attention(kernel, queries, keys, values.view(), Mask::none())?;
            let uniform = uniform_error(&exact, values.view())?;
            Ok((exact, uniform))
        });
        let (exact, uniform) = exact.transpose().map_err(place)?.unzip();
        Ok(Self { index, input, kernel, moments, samples, exact, uniform })
    }

    /// An error of one family, with its location.
    pub(super) fn error(&self, family: Family, reason: favor::Error) -> Error {
        Error::Library { place: format!("head {}: {family}", self.index), reason }
    }

    /// Everything about one family.
    pub(super) fn family(&self, family: Family, options: &InspectOptions) -> Result<FamilyReport> {
        let estimator = closed::estimator(self, family)?;
        let place = |e| self.error(family, e);
        let closed = Closed::new(self, &estimator).map_err(place)?;
        let measured: favor::Result<Vec<_>> = options
            .features
            .iter()
            .map(|&m| measured::measure(self, family, m, closed.output_error(m), options))
            .collect();
        Ok(FamilyReport {
            name: family,
            objective: closed.objective,
            mean_log_relative_variance: closed.mean_log_relative_variance,
            features_needed: closed.features_needed,
            features_needed_row_sum: closed.row_sum_need(),
            features_needed_output: closed.output_need(),
            measured: measured.map_err(place)?,
        })
    }

    /// The whole head.
    pub(super) fn report(
        &self,
        families: Vec<FamilyReport>,
        options: &InspectOptions,
    ) -> HeadInspection {
        let (queries, keys) = (self.input.queries.rows(), self.input.keys.rows());
        let used = (self.samples.pairs.0.rows(), self.samples.pairs.1.rows());
        let floor = Estimator::new(Family::Trig, self.kernel, None)
            .map_or(f64::NAN, |e| e.objective_floor(&self.moments.0, &self.moments.1));
        HeadInspection {
            head: self.index,
            queries,
            keys,
            dim: self.input.queries.columns(),
            alpha: self.kernel.alpha(),
            scale: self.kernel.scale(),
            pairs: PairSample { queries: used.0, keys: used.1, all: used == (queries, keys) },
            floor,
            uniform_error: self.uniform,
            recommendation: advice::recommendation(&families, queries, keys),
            warnings: advice::warnings(&families, self.uniform),
            families,
            seed: options.seed,
            draws: DRAWS,
        }
    }
}
