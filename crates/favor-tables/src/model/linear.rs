//! Heads that are linear in the features: Gram sums, and the solution read out of them.

use super::{Class, ModelInfo, Outputs};
use crate::choose::Trials;
use crate::encode::Encoded;
use crate::evaluate::Comparison;
use crate::head::TableHead;
use crate::judge::{self, NumberJudge};
use crate::states::Sample;
use crate::target::sort_labels;
use crate::{Error, Result};
use favor::learn::{
    DEFAULT_FOLDS, Design, GramSums, Head, HeadKind, RidgeOptions, Task, argmax,
    class_probabilities, exact_ridge,
};
use favor::{Matrix, Moments};

/// Rows of the sample that the exact kernel is computed over.
const COMPARED_KEYS: usize = 1024;

/// Rows of the sample between which values are exchanged.
const EXCHANGED: usize = 512;

/// Gram sums and the solution.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Linear {
    pub(crate) design: Design,
    pub(crate) sums: GramSums,
    pub(crate) head: Head,
    /// What the probability of each class is multiplied by; none where the prior is that of the data.
    factors: Option<Vec<f64>>,
}

/// Gram sums whose solution is still to be found.
pub(crate) struct LinearParts {
    pub(crate) design: Design,
    pub(crate) sums: GramSums,
    pub(crate) classes: Vec<Class>,
}

impl LinearParts {
    /// Solves for the head that the model wants. What the folds say goes into `info`.
    pub(crate) fn solved(
        self,
        info: &mut ModelInfo,
        moments: &Moments,
        sample: &Sample,
    ) -> Result<Linear> {
        info.classes = self.classes;
        let options = RidgeOptions::default();
        let fit = match info.head {
            TableHead::Linear(HeadKind::Gp) => self.sums.gp(&options)?,
            _ => self.sums.ridge(&options)?,
        };
        info.report = Some(fit.report);
        let linear = Linear::new(info, self.design, self.sums, fit.head)?;
        let trials = Trials::new(info, &info.labels(), moments, sample)?;
        info.judgement = Some(judge::of_sample(info, &linear, &trials)?);
        info.importances = linear.importances(info, &trials)?;
        Ok(linear)
    }
}

impl Linear {
    pub(crate) fn new(
        info: &ModelInfo,
        design: Design,
        sums: GramSums,
        head: Head,
    ) -> Result<Self> {
        let weights: Vec<f64> = info.classes.iter().map(|c| c.weight).collect();
        let prior = info.prior.numbers(&info.labels(), &weights)?;
        let total: f64 = weights.iter().sum();
        let factors = prior.map(|prior| {
            let parts = prior.iter().zip(&weights);
            parts.map(|(p, w)| if *w > 0.0 { p * total / w } else { 0.0 }).collect()
        });
        Ok(Self { design, sums, head, factors })
    }

    pub(crate) fn predict(&self, encoded: Encoded<f32>) -> Result<Outputs> {
        let Encoded { rows, kept } = encoded;
        if self.head.has_variance() {
            let (values, deviation) =
                self.head.predict_with_deviation(&self.design, rows.view())?;
            let deviation = Some(deviation.into_vec());
            return Ok(Outputs { values, relative_error: None, deviation, kept });
        }
        let mut values = self.head.predict(&self.design, rows.view())?;
        self.finish(&mut values);
        Ok(Outputs { values, relative_error: None, deviation: None, kept })
    }

    /// What a head gives for classes, as probabilities under the prior.
    pub(crate) fn finish(&self, values: &mut Matrix<f64>) {
        if !matches!(self.sums.outcome(), favor::learn::Outcome::Classes(_)) {
            return;
        }
        class_probabilities(values);
        let Some(factors) = &self.factors else { return };
        for i in 0..values.rows() {
            let row = values.row_mut(i);
            row.iter_mut().zip(factors).for_each(|(p, f)| *p *= f);
            let total: f64 = row.iter().sum();
            if total > 0.0 {
                row.iter_mut().for_each(|p| *p /= total);
            }
        }
    }

    /// With another head on the same features.
    pub(crate) fn with_head(
        self,
        info: &mut ModelInfo,
        head: Head,
        moments: &Moments,
        sample: &Sample,
    ) -> Result<Self> {
        let linear = Self { head, ..self };
        let trials = Trials::new(info, &info.labels(), moments, sample)?;
        info.importances = linear.importances(info, &trials)?;
        Ok(linear)
    }

    /// How much each column matters: the mean squared change of a prediction when the column has the value of
    /// another row, as a share of that of all columns (Sobol's total index, by Jansen's estimator). Unlike a slope,
    /// it looks at no values that the column does not have, between which the head is free to do anything.
    fn importances(&self, info: &ModelInfo, trials: &Trials<'_>) -> Result<Vec<f64>> {
        let count = trials.rows.rows().min(EXCHANGED);
        if count == 0 {
            return Ok(vec![]);
        }
        let rows = trials.rows.view().slice(0, count).to_f64(1.0);
        let before = self.head.predict(&self.design, rows.view())?;
        let mut start = 0;
        let mut change = |width: usize| -> Result<f64> {
            let (own, mut changed) = (start..start + width, rows.clone());
            start = own.end;
            for i in 0..count {
                // The sample is in no order: half its rows away is as good as at random.
                let other = &rows.row((i + count / 2) % count)[own.clone()];
                changed.row_mut(i)[own.clone()].copy_from_slice(other);
            }
            let after = self.head.predict(&self.design, changed.view())?;
            let square = |i: usize| -> f64 {
                let pairs = before.row(i).iter().zip(after.row(i));
                trials.weights[i] * pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>()
            };
            Ok((0..count).map(square).sum())
        };
        let changes: Vec<f64> =
            info.encoder.columns.iter().map(|c| change(c.width())).collect::<Result<_>>()?;
        let total: f64 = changes.iter().sum();
        Ok(changes.iter().map(|c| if total > 0.0 { c / total } else { 0.0 }).collect())
    }

    /// How likely a class is held to be before a row is seen.
    pub(crate) fn prior(&self, classes: &[Class], class: usize) -> f64 {
        let share = |c: usize| classes[c].weight * self.factors.as_ref().map_or(1.0, |f| f[c]);
        share(class) / (0..classes.len()).map(share).sum::<f64>()
    }

    /// The sums of the rows of both, or of those of the first that are not in the second.
    pub(crate) fn joined(
        &self,
        own: &ModelInfo,
        other: &Self,
        new: &ModelInfo,
        sign: f64,
    ) -> Result<LinearParts> {
        let mut labels: Vec<String> = own.labels();
        labels.extend(new.labels());
        sort_labels(&mut labels, own.target.as_ref());
        let mut sums = self.with_labels(own, &labels)?;
        let more = other.with_labels(new, &labels)?;
        if sign > 0.0 {
            sums.merge(&more)?;
        } else {
            sums.subtract(&more).map_err(|_| Error::TooMany)?;
        }
        let mut classes = vec![];
        for label in labels {
            let of = |info: &ModelInfo| {
                let class = info.classes.iter().find(|c| c.label == label);
                class.map_or((0, 0.0), |c| (c.rows, c.weight))
            };
            let (a, b) = (of(own), of(new));
            let rows = if sign > 0.0 { Some(a.0 + b.0) } else { a.0.checked_sub(b.0) };
            let rows = rows.ok_or(Error::TooMany)?;
            classes.push(Class { label, rows, weight: (a.1 + sign * b.1).max(0.0) });
        }
        Ok(LinearParts { design: self.design.clone(), sums, classes })
    }

    /// The sums with one target per label.
    fn with_labels(&self, info: &ModelInfo, labels: &[String]) -> Result<GramSums> {
        if info.task != Task::Classify || info.labels() == labels {
            return Ok(self.sums.clone());
        }
        let place = |class: &Class| labels.iter().position(|l| *l == class.label).unwrap_or(0);
        let places: Vec<usize> = info.classes.iter().map(place).collect();
        Ok(self.sums.with_classes(labels.len(), &places)?)
    }
}

impl Linear {
    /// Scores on rows that the model is to be judged by: the model, and heads over the rows that the
    /// model has kept, by its features and by the exact kernel.
    pub(crate) fn compare(&self, model: &super::Model, sample: &Sample) -> Result<Comparison> {
        let info = &model.info;
        let kept = model.sample.first(COMPARED_KEYS);
        let keys = Trials::new(info, &info.labels(), &model.moments, &kept)?;
        let (rows, known) = (keys.rows.view(), keys.truth.known()?);
        let mut sums = GramSums::new(&self.design, keys.outcome.clone(), DEFAULT_FOLDS)?;
        sums.add(&self.design, rows, known, Some(&keys.weights), Some(&keys.folds))?;
        let fit = sums.ridge(&RidgeOptions::default())?;
        let (queries, weights) = super::standardised_rows(&info.encoder, sample);
        let score = |mut values: Matrix<f64>| {
            self.finish(&mut values);
            sample_score(info, sample, &values, &weights)
        };
        let penalty = fit.head.penalty();
        let (weights_of_keys, at) = (Some(&keys.weights[..]), queries.view());
        let exact =
            exact_ridge(&self.design, rows, known, &keys.outcome, weights_of_keys, penalty, at)?;
        Ok(Comparison {
            rows: queries.rows(),
            keys: keys.rows.rows(),
            model: score(self.head.predict(&self.design, queries.view())?),
            exact: score(exact),
            features: score(fit.head.predict(&self.design, queries.view())?),
        })
    }
}

/// The accuracy or R² of predictions for a sample.
fn sample_score(info: &ModelInfo, sample: &Sample, values: &Matrix<f64>, weights: &[f64]) -> f64 {
    let labels = info.labels();
    let (mut right, mut numbers) = (0.0, NumberJudge::default());
    for (i, ((_, label), item)) in sample.items.iter().enumerate() {
        if info.task == Task::Classify {
            let found = labels.get(argmax(values.row(i)));
            right += if found == Some(label) { weights[i] } else { 0.0 };
        } else {
            numbers.add(values[(i, 0)], None, item.value, weights[i]);
        }
    }
    match info.task {
        Task::Classify => right / weights.iter().sum::<f64>(),
        _ => numbers.finish().r2.unwrap_or(f64::NAN),
    }
}
