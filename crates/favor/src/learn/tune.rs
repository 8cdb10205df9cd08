//! The bandwidth of a head, and the choice among designs: by the folds of the head itself, on a sample.

use super::bandwidth::LEAST_ROWS;
use super::{Basis, DesignSpec, GramSums, Known, Outcome};
use crate::{Error, Moments, Result, Rows};
use serde::{Deserialize, Serialize};

/// The most features that bandwidths are compared with.
const FEATURES: usize = 512;

/// A sample of rows with what is known of them, to choose a design on. The order of the rows has nothing to
/// do with them.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Sample<'a> {
    /// The rows as they come.
    pub rows: Rows<'a, f64>,
    /// Of each row.
    pub known: Known<'a>,
    /// What is predicted.
    pub outcome: &'a Outcome,
    /// Of each row, if they are not all 1.
    pub weights: Option<&'a [f64]>,
    /// How many folds score.
    pub folds: usize,
}

/// A design that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DesignTrial {
    /// The design.
    pub spec: DesignSpec,
    /// The factor of its bandwidths, or the bandwidth if there is one for all columns.
    pub bandwidth: f64,
    /// The score of a ridge head over the folds of the sample; the least number if there is none.
    pub score: f64,
    /// The penalty of that score.
    pub penalty: f64,
}

/// The bandwidths that are compared for rows of `dim` columns: eight from `√d/5` to `√d/0.15`, in ascending
/// order. Standardised rows are `√(2d)` apart.
///
/// ```
/// let widths = favor::learn::head_bandwidths(4);
/// assert!((widths[0] - 0.4).abs() < 1e-12 && widths.len() == 8);
/// ```
pub fn head_bandwidths(dim: usize) -> Vec<f64> {
    let root = (dim.max(1) as f64).sqrt();
    let (low, high) = (0.2_f64.ln(), (1.0 / 0.15_f64).ln());
    (0..8).map(|k| root * (low + (high - low) * f64::from(k) / 7.0).exp()).collect()
}

impl<'a> Sample<'a> {
    /// Rows of equal weight, scored by so many folds.
    pub fn new(rows: Rows<'a, f64>, known: Known<'a>, outcome: &'a Outcome, folds: usize) -> Self {
        Self { rows, known, outcome, weights: None, folds }
    }

    /// One weight per row.
    #[must_use]
    pub fn weights(self, weights: Option<&'a [f64]>) -> Self {
        Self { weights, ..self }
    }

    /// The score of a ridge head with this design over the folds of the sample, with at most 512 features.
    pub fn score(&self, spec: &DesignSpec, moments: &Moments) -> Result<DesignTrial> {
        let least = LEAST_ROWS.max(self.folds);
        if self.rows.rows() < least {
            let count = self.rows.rows();
            let reason = format!("{count} rows are too few to choose it on; give a number");
            return Err(Error::invalid("bandwidth", reason));
        }
        let small = spec.clone().features(spec.features.min(FEATURES));
        let design = small.fit(moments, self.rows)?;
        let mut sums = GramSums::new(&design, self.outcome.clone(), self.folds)?;
        sums.add(&design, self.rows, self.known, self.weights, None)?;
        let found = sums.score()?;
        Ok(DesignTrial {
            bandwidth: spec.bandwidth_of(0),
            spec: spec.clone(),
            score: found.as_ref().map_or(f64::MIN, |f| f.score),
            penalty: found.map_or(1.0, |f| f.penalty),
        })
    }

    /// Scores the bandwidths of [`head_bandwidths`] and, around the best, two between it and its neighbours.
    /// In ascending order. Bandwidths per column are multiplied; their geometric mean is what is compared.
    pub fn bandwidth_trials(
        &self,
        spec: &DesignSpec,
        moments: &Moments,
    ) -> Result<Vec<DesignTrial>> {
        let widths = head_bandwidths(moments.dim());
        let logs: f64 = spec.bandwidths.iter().map(|h| h.ln()).sum();
        let centre = (logs / spec.bandwidths.len() as f64).exp();
        let at = |width: f64| {
            let bandwidths = spec.bandwidths.iter().map(|h| h / centre * width).collect();
            let trial = self.score(&spec.clone().bandwidths(bandwidths), moments)?;
            Ok::<_, Error>(DesignTrial { bandwidth: width, ..trial })
        };
        let tried = |widths: &[f64]| {
            // A basis may overflow where others do not: then it has no score there.
            let trials = widths.iter().map(|w| match at(*w) {
                Err(Error::Overflow { .. }) => Ok(None),
                other => other.map(Some),
            });
            trials.filter_map(Result::transpose).collect::<Result<Vec<DesignTrial>>>()
        };
        let mut trials = tried(&widths)?;
        let Some(best) = best(&trials).map(|t| t.bandwidth) else {
            let reason = "the features overflow with every bandwidth; use trig or nystrom features";
            return Err(Error::invalid("bandwidth", reason));
        };
        let half = (widths[1] / widths[0]).sqrt();
        trials.extend(tried(&[best / half, best * half])?);
        trials.sort_by(|a, b| a.bandwidth.total_cmp(&b.bandwidth));
        Ok(trials)
    }

    /// The best of several designs, each with its best bandwidth, and all that was tried.
    ///
    /// ```
    /// use favor::learn::{Basis, DesignSpec, Known, Outcome, Sample, Scaling, KernelShape};
    /// use favor::{Family, Matrix, Moments};
    /// let rows = Matrix::from_fn(600, 2, |i, l| ((i * (3 + l)) as f64 * 0.71).sin());
    /// let y = Matrix::from_fn(600, 1, |i, _| (4.0 * rows[(i, 0)]).sin() * rows[(i, 1)]);
    /// let outcome = Outcome::Numbers(vec![Scaling::IDENTITY]);
    /// let known = Known::Numbers(y.view());
    /// let sample = Sample::new(rows.view(), known, &outcome, 4);
    /// let specs = [DesignSpec::new(64), DesignSpec::new(64).basis(Family::Trig)];
    /// let (best, trials) = sample.choose(&specs, &Moments::of(rows.view())?)?;
    /// assert!(best.score > 0.9 && trials.len() == 20);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn choose(
        &self,
        specs: &[DesignSpec],
        moments: &Moments,
    ) -> Result<(DesignTrial, Vec<DesignTrial>)> {
        let mut trials = vec![];
        for spec in specs {
            match self.bandwidth_trials(spec, moments) {
                Ok(found) => trials.extend(found),
                // Others may do where one overflows.
                Err(Error::Invalid { .. }) if specs.len() > 1 && spec.basis != Basis::Nystrom => {}
                Err(error) => return Err(error),
            }
        }
        match best(&trials) {
            Some(best) => Ok((best.clone(), trials.clone())),
            None => Err(Error::invalid("designs", "there are none to choose from")),
        }
    }
}

/// The trial of the highest score; of several the widest, whose features are the most reliable.
fn best(trials: &[DesignTrial]) -> Option<&DesignTrial> {
    trials.iter().reduce(|best, t| if t.score >= best.score { t } else { best })
}
