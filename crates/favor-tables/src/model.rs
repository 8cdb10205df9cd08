//! A fitted model: encoders, feature map, sums. Models of one map merge.

use crate::encode::{Encoded, Encoder};
use crate::prior::Prior;
use crate::states::{Sample, SumsState};
use crate::target::Target;
use crate::{Error, Result};
use favor::diagnose::median;
use favor::diagnose::{Estimator, RowErrorModel};
use favor::learn::{Curve, Readout, Scaling, Task};
use favor::{FeatureMap, KeySums, Matrix, Moments};
use serde::{Deserialize, Serialize};

/// A class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Its label, as text.
    pub label: String,
    /// Rows of it.
    pub rows: u64,
    /// The sum of their weights.
    pub weight: f64,
}

/// All of a model but its arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// What is predicted.
    pub task: Task,
    /// The column that is predicted; none for a density.
    pub target: Option<Target>,
    /// For a regression how the target is scaled in the sums.
    pub target_scaling: Option<Scaling>,
    /// The column of weights.
    pub weight: Option<String>,
    /// How columns become vectors.
    pub encoder: Encoder,
    /// The bandwidth of the kernel.
    pub bandwidth: f64,
    /// How the bandwidth was chosen; none when it was given.
    pub curve: Option<Curve>,
    /// The classes, in order; none but for classification.
    pub classes: Vec<Class>,
    /// How likely the classes are held to be.
    pub prior: Prior,
    /// Rows seen that have a positive weight.
    pub rows: u64,
    /// The sum of their weights.
    pub total_weight: f64,
    /// The most rows of the sample, and what decides them.
    pub(crate) sample_limit: usize,
    pub(crate) sample_seed: u64,
}

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) info: ModelInfo,
    pub(crate) map: FeatureMap,
    /// Of the vectors.
    pub(crate) moments: Moments,
    /// One column per class; the weights and the weighted targets; or the weights.
    pub(crate) sums: KeySums,
    /// Of the vectors before they were centred and scaled.
    pub(crate) sample: Sample,
    pub(crate) readout: Readout,
    /// What predicts the errors of the sums; `None` for families without the closed form.
    errors: Option<RowErrorModel>,
}

/// Predictions for the rows of a batch.
pub(crate) struct Outputs {
    /// Probabilities of the classes, the number, or the log density.
    pub(crate) values: Matrix<f64>,
    /// The predicted relative error of the sum over the keys.
    pub(crate) relative_error: Option<Vec<f64>>,
    /// Which rows of the batch; `None` when all.
    pub(crate) kept: Option<Vec<usize>>,
}

impl Model {
    /// Moments and sums are of one table: passes over it are queries of their own, whose parts may
    /// have been run more than once, so that both have seen the same rows is checked.
    pub(crate) fn new(
        info: ModelInfo,
        map: FeatureMap,
        moments: Moments,
        sums: KeySums,
        sample: Sample,
    ) -> Result<Self> {
        if moments.count() != info.rows {
            return Err(Error::Incomplete { first: moments.count(), second: info.rows });
        }
        let readout = match info.task {
            Task::Classify => {
                let weights: Vec<f64> = info.classes.iter().map(|c| c.weight).collect();
                let prior = info.prior.numbers(&info.labels(), &weights)?;
                Readout::classes(weights, prior.as_deref())
            }
            Task::Regress => {
                Readout::Numbers(vec![info.target_scaling.unwrap_or(Scaling::IDENTITY)])
            }
            Task::Density => {
                let (_, scales) = info.encoder.centres_and_scales();
                Readout::density(info.bandwidth, &scales, info.total_weight)
            }
        };
        let errors = RowErrorModel::new(&Estimator::of(&map)?, &moments)?;
        Ok(Self { info, map, moments, sums, sample, readout, errors })
    }

    /// What the model is.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The feature map.
    pub fn map(&self) -> &FeatureMap {
        &self.map
    }

    /// The moments of the standardised vectors.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Rows that the model keeps as they were, to compare with the exact kernel.
    pub fn sample_size(&self) -> usize {
        self.sample.items.len()
    }

    /// The relative error of the sum over all keys that is expected at the rows of the sample: the
    /// median. `None` for families without the closed form.
    pub fn typical_relative_error(&self) -> Result<Option<f64>> {
        let (rows, _) = self.sample_rows();
        let errors = self.relative_errors(&rows)?.filter(|errors| !errors.is_empty());
        Ok(errors.map(median))
    }

    /// The standardised vectors of the sample, and their weights.
    pub(crate) fn sample_rows(&self) -> (Matrix<f64>, Vec<f64>) {
        standardised_rows(&self.info.encoder, &self.sample)
    }

    pub(crate) fn predict(&self, encoded: Encoded<f32>) -> Result<Outputs> {
        let Encoded { rows, kept } = encoded;
        let sums = self.sums.apply(&self.map, rows.view())?;
        let relative_error = self.relative_errors(&rows)?;
        Ok(Outputs { values: self.readout.outputs(&sums), relative_error, kept })
    }

    /// `√(relative variance / M)` of the sum over the keys, for each row.
    fn relative_errors<T: favor::Float>(&self, rows: &Matrix<T>) -> Result<Option<Vec<f64>>> {
        let Some(model) = &self.errors else { return Ok(None) };
        let log_features = (self.map.features() as f64).ln();
        let logs = model.log_relative_variances(rows.view())?;
        let error = |log: f64| (0.5 * (log - log_features)).exp().min(f64::MAX);
        Ok(Some(logs.into_iter().map(error).collect()))
    }

    /// The model of the rows of both: the other must have the same map and encoders, as made by
    /// fitting with the map of the first.
    pub fn merge(&self, other: &Self) -> Result<Self> {
        let (a, b) = (&self.info, &other.info);
        let differences = [
            (a.task != b.task, "tasks"),
            (a.target != b.target, "targets"),
            (a.encoder != b.encoder, "columns or their encoding"),
            (self.map != other.map || a.target_scaling != b.target_scaling, "feature maps"),
            (a.prior != b.prior, "priors"),
        ];
        if let Some((_, what)) = differences.into_iter().find(|(differ, _)| *differ) {
            return Err(Error::Merge { what });
        }
        let mut info = a.clone();
        info.rows += b.rows;
        info.total_weight += b.total_weight;
        let sums = if a.task == Task::Classify {
            let parts = self.class_sums().into_iter().chain(other.class_sums()).collect();
            let (classes, sums) = combine(parts, info.target.as_ref(), &self.map)?;
            info.classes = classes;
            sums
        } else {
            let mut sums = self.sums.clone();
            sums.merge(&other.sums)?;
            sums
        };
        let mut moments = self.moments.clone();
        moments.merge(&other.moments)?;
        let mut sample = self.sample.clone();
        sample.absorb(other.sample.clone(), info.sample_limit);
        Self::new(info, self.map.clone(), moments, sums, sample)
    }

    fn class_sums(&self) -> Vec<(Class, KeySums)> {
        let column = |c: usize| {
            let sums = self.sums.sums();
            let column = Matrix::from_fn(sums.rows(), 1, |m, _| sums[(m, c)]);
            KeySums::from_parts(self.sums.log_scale().to_vec(), column)
        };
        let classes = self.info.classes.iter().enumerate();
        classes.filter_map(|(c, class)| Some((class.clone(), column(c).ok()?))).collect()
    }
}

impl ModelInfo {
    /// The labels of the classes, in order, as texts.
    pub fn labels(&self) -> Vec<String> {
        self.classes.iter().map(|c| c.label.clone()).collect()
    }
}

/// Vectors of a sample, centred and scaled, and their weights.
pub(crate) fn standardised_rows(encoder: &Encoder, sample: &Sample) -> (Matrix<f64>, Vec<f64>) {
    let (centres, scales) = encoder.centres_and_scales();
    let items: Vec<_> = sample.items.values().collect();
    let entry = |i: usize, l: usize| (items[i].row[l] - centres[l]) / scales[l];
    let rows = Matrix::from_fn(items.len(), centres.len(), entry);
    (rows, items.iter().map(|item| item.weight).collect())
}

/// The sums of a class as a part of a model.
pub(crate) fn class_part(label: String, state: SumsState) -> Option<(Class, KeySums)> {
    Some((Class { label, rows: state.rows, weight: state.weight }, state.sums?))
}

/// One column per class, equal classes added up, in the order of their labels: that of numbers for
/// numbers, of the alphabet for texts.
pub(crate) fn combine(
    parts: Vec<(Class, KeySums)>,
    target: Option<&Target>,
    map: &FeatureMap,
) -> Result<(Vec<Class>, KeySums)> {
    let text = target.is_some_and(Target::is_text);
    let mut merged: Vec<(Class, KeySums)> = vec![];
    for (class, sums) in parts {
        match merged.iter_mut().find(|(c, _)| c.label == class.label) {
            Some((own, total)) => {
                own.rows += class.rows;
                own.weight += class.weight;
                total.merge(&sums)?;
            }
            None => merged.push((class, sums)),
        }
    }
    let number = |class: &Class| class.label.parse::<f64>().ok().filter(|_| !text);
    merged.sort_by(|(a, _), (b, _)| match (number(a), number(b)) {
        (Some(x), Some(y)) => x.total_cmp(&y),
        _ => a.label.cmp(&b.label),
    });
    let mut log_scale = vec![f64::NEG_INFINITY; map.features()];
    for (_, sums) in &merged {
        log_scale.iter_mut().zip(sums.log_scale()).for_each(|(l, s)| *l = l.max(*s));
    }
    let values = Matrix::from_fn(map.features(), merged.len(), |m, c| {
        let sums = &merged[c].1;
        if sums.log_scale()[m] == f64::NEG_INFINITY {
            0.0
        } else {
            sums.sums()[(m, 0)] * (sums.log_scale()[m] - log_scale[m]).exp()
        }
    });
    let sums = KeySums::from_parts(log_scale, values)?;
    Ok((merged.into_iter().map(|(class, _)| class).collect(), sums))
}
