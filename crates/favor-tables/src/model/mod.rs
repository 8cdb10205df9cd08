//! A fitted model: encoders, moments, a sample, and sums of features with what reads them. Models of
//! one map merge, and one can be taken out of another.

mod drift;
mod linear;
mod nw;

pub use drift::{Drift, Shift};
pub(crate) use linear::{Linear, LinearParts};
pub(crate) use nw::{Nw, Part, combine};

use crate::choose::FeatureChoice;
use crate::encode::{Encoded, Encoder};
use crate::head::TableHead;
use crate::judge::Judgement;
use crate::prior::Prior;
use crate::states::Sample;
use crate::target::Target;
use crate::{Error, Result};
use favor::diagnose::median;
use favor::learn::{Curve, Design, GramSums, HeadKind, RidgeReport, Scaling, Task, TwoSampleTest};
use favor::{FeatureMap, Matrix, Moments};
use serde::{Deserialize, Serialize};

/// A class.
///
/// ```
/// # fn example(model: &favor_tables::Model) -> favor_tables::Result<()> {
/// for class in &model.info().classes {
///     println!("{}: {} rows", class.label, class.rows);
/// }
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// # fn example(model: &favor_tables::Model) -> favor_tables::Result<()> {
/// let info = model.info();
/// println!("{} head, bandwidth {}, {} rows", info.head, info.bandwidth, info.rows);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// What is predicted.
    pub task: Task,
    /// What turns features into predictions.
    pub head: TableHead,
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
    /// How the bandwidth of a Nadaraya–Watson model was chosen; none when it was given.
    pub curve: Option<Curve>,
    /// What was tried on the sample before the features of another head were chosen.
    pub choice: Option<FeatureChoice>,
    /// What the folds say of the features and of the penalty; none for Nadaraya–Watson.
    pub report: Option<RidgeReport>,
    /// What rows of the sample say of heads that have not seen their fold.
    pub judgement: Option<Judgement>,
    /// How much each column matters, as shares: how far predictions of the sample are from those with another
    /// row's value in the column, in the mean square. Empty for Nadaraya–Watson.
    pub importances: Vec<f64>,
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
///
/// ```
/// # fn example(first: &favor_tables::Model, second: &favor_tables::Model, path: &std::path::Path) -> favor_tables::Result<()> {
/// let both = first.merge(second)?; // the second was fitted with the map of the first
/// both.save(path)?;
/// println!("{}", both.to_text());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) info: ModelInfo,
    /// Of the vectors.
    pub(crate) moments: Moments,
    /// Of the vectors before they were centred and scaled.
    pub(crate) sample: Sample,
    pub(crate) estimator: Estimator,
}

/// Sums of features and what reads predictions out of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Estimator {
    Nw(Box<Nw>),
    Linear(Box<Linear>),
}

/// Predictions for the rows of a batch.
pub(crate) struct Outputs {
    /// Probabilities of the classes, the number, or the log density.
    pub(crate) values: Matrix<f64>,
    /// The predicted relative error of the sum over the keys, for Nadaraya–Watson.
    pub(crate) relative_error: Option<Vec<f64>>,
    /// The standard deviation of a new observation, for a Gaussian process.
    pub(crate) deviation: Option<Vec<f64>>,
    /// Which rows of the batch; `None` when all.
    pub(crate) kept: Option<Vec<usize>>,
}

impl Model {
    /// Moments and sums are of one table: passes over it are queries of their own, whose parts may
    /// have been run more than once, so that both have seen the same rows is checked.
    pub(crate) fn new(
        info: ModelInfo,
        moments: Moments,
        sample: Sample,
        estimator: Estimator,
    ) -> Result<Self> {
        if moments.count() != info.rows {
            return Err(Error::Incomplete { first: moments.count(), second: info.rows });
        }
        Ok(Self { info, moments, sample, estimator })
    }

    /// What the model is.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The feature map of a Nadaraya–Watson model.
    pub fn map(&self) -> Option<&FeatureMap> {
        match &self.estimator {
            Estimator::Nw(nw) => Some(&nw.map),
            Estimator::Linear(_) => None,
        }
    }

    /// The features of any other model.
    pub fn design(&self) -> Option<&Design> {
        self.linear().map(|linear| &linear.design)
    }

    /// Their sums.
    pub fn gram(&self) -> Option<&GramSums> {
        self.linear().map(|linear| &linear.sums)
    }

    pub(crate) fn linear(&self) -> Option<&Linear> {
        match &self.estimator {
            Estimator::Nw(_) => None,
            Estimator::Linear(linear) => Some(linear),
        }
    }

    /// The number of features.
    pub fn features(&self) -> usize {
        match &self.estimator {
            Estimator::Nw(nw) => nw.map.features(),
            Estimator::Linear(linear) => linear.design.features(),
        }
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
    /// median. `None` for families without the closed form, and for all heads but Nadaraya–Watson.
    pub fn typical_relative_error(&self) -> Result<Option<f64>> {
        let Estimator::Nw(nw) = &self.estimator else { return Ok(None) };
        let (rows, _) = self.sample_rows();
        let errors = nw.relative_errors(&rows)?.filter(|errors| !errors.is_empty());
        Ok(errors.map(median))
    }

    /// The standardised vectors of the sample, and their weights.
    pub(crate) fn sample_rows(&self) -> (Matrix<f64>, Vec<f64>) {
        standardised_rows(&self.info.encoder, &self.sample)
    }

    pub(crate) fn predict(&self, encoded: Encoded<f32>) -> Result<Outputs> {
        match &self.estimator {
            Estimator::Nw(nw) => nw.predict(encoded),
            Estimator::Linear(linear) => linear.predict(encoded),
        }
    }

    /// The model of the rows of both: the other must have the same map and encoders, as made by
    /// fitting with the map of the first.
    pub fn merge(&self, other: &Self) -> Result<Self> {
        self.check_same(other)?;
        let mut moments = self.moments.clone();
        moments.merge(&other.moments)?;
        let mut sample = self.sample.clone();
        sample.absorb(other.sample.clone(), self.info.sample_limit);
        self.joined(other, 1.0, moments, sample)
    }

    /// The model of the rows of this one that are not among those of the other, which must have been
    /// fitted with the map of this one. That they were among them is not known; that there are not
    /// more of them is checked.
    pub fn subtract(&self, other: &Self) -> Result<Self> {
        self.check_same(other)?;
        if other.info.rows >= self.info.rows {
            return Err(Error::TooMany);
        }
        let moments = without(&self.moments, &other.moments)?;
        let mut sample = self.sample.clone();
        sample.remove(&other.sample);
        self.joined(other, -1.0, moments, sample)
    }

    /// Whether the rows of another model, fitted with the map of this one, have the distribution of the
    /// rows of this one: the distance of their mean features and how likely it is by chance.
    pub fn compare(&self, other: &Self) -> Result<TwoSampleTest> {
        match (self.linear(), other.linear()) {
            (Some(own), Some(new)) if own.design == new.design => {
                Ok(own.sums.compare(&new.sums, self.info.sample_seed)?)
            }
            _ => Err(Error::Merge { what: "feature maps" }),
        }
    }

    /// That the sums of another model can be added to those of this one or taken from them.
    fn check_same(&self, other: &Self) -> Result<()> {
        let (a, b) = (&self.info, &other.info);
        let maps = match (&self.estimator, &other.estimator) {
            (Estimator::Nw(own), Estimator::Nw(new)) => own.map == new.map,
            (Estimator::Linear(own), Estimator::Linear(new)) => own.design == new.design,
            _ => true,
        };
        let differences = [
            (a.task != b.task, "tasks"),
            (a.head != b.head, "heads"),
            (a.target != b.target, "targets"),
            (a.encoder != b.encoder, "columns or their encoding"),
            (!maps || a.target_scaling != b.target_scaling, "feature maps"),
            (a.prior != b.prior, "priors"),
        ];
        if let Some((_, what)) = differences.into_iter().find(|(differ, _)| *differ) {
            return Err(Error::Merge { what });
        }
        if a.head == TableHead::Linear(HeadKind::Logistic) {
            return Err(Error::NotMergeable);
        }
        Ok(())
    }

    /// The rows of both, or those of this one that are not in the other.
    fn joined(&self, other: &Self, sign: f64, moments: Moments, sample: Sample) -> Result<Self> {
        let (a, b) = (&self.info, &other.info);
        let mut info = a.clone();
        info.rows = if sign > 0.0 { a.rows + b.rows } else { a.rows - b.rows };
        info.total_weight += sign * b.total_weight;
        if info.total_weight <= 0.0 {
            return Err(Error::TooMany);
        }
        let estimator = match (&self.estimator, &other.estimator) {
            (Estimator::Nw(own), Estimator::Nw(new)) => {
                let sums = own.joined(a, new, b, sign, &mut info)?;
                Estimator::Nw(Box::new(Nw::new(&info, own.map.clone(), &moments, sums)?))
            }
            (Estimator::Linear(own), Estimator::Linear(new)) => {
                let parts = own.joined(a, new, b, sign)?;
                Estimator::Linear(Box::new(parts.solved(&mut info, &moments, &sample)?))
            }
            _ => return Err(Error::Merge { what: "heads" }),
        };
        Self::new(info, moments, sample, estimator)
    }
}

/// The moments of the vectors that are in the first and not in the second.
fn without(all: &Moments, part: &Moments) -> Result<Moments> {
    let (count, weight) = match all.count().checked_sub(part.count()) {
        Some(count) if all.weight() > part.weight() => (count, all.weight() - part.weight()),
        _ => return Err(Error::TooMany),
    };
    let means = all.mean().iter().zip(part.mean());
    let mean: Vec<f64> =
        means.map(|(a, b)| (all.weight() * a - part.weight() * b) / weight).collect();
    // What merging adds, taken away; rounding must not leave a negative variance.
    let factor = weight * part.weight() / all.weight();
    let off: Vec<f64> = mean.iter().zip(part.mean()).map(|(a, b)| a - b).collect();
    let scatter = Matrix::from_fn(mean.len(), mean.len(), |i, j| {
        let rest = all.scatter()[(i, j)] - part.scatter()[(i, j)] - factor * off[i] * off[j];
        if i == j { rest.max(0.0) } else { rest }
    });
    Ok(Moments::from_scatter(count, weight, mean, scatter)?)
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
