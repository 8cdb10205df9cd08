//! A fitted model: encoders, feature map, sums. Models of one map merge.

use crate::encode::{Encoded, Encoder};
use crate::sigma::Curve;
use crate::states::{Sample, SumsState};
use crate::task::{Prior, Rule, Task};
use crate::{Error, Result};
use favor::diagnose::{Estimator, Outlook};
use favor::{FeatureMap, KeySums, Matrix, Moments};
use serde::{Deserialize, Serialize};

/// The column that is predicted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its Arrow type, as Arrow writes it; labels are given back in it.
    pub data_type: String,
}

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
pub struct About {
    /// What is predicted.
    pub task: Task,
    /// The column that is predicted; none for a density.
    pub target: Option<Target>,
    /// The column of weights.
    pub weight_column: Option<String>,
    /// How columns become vectors.
    pub encoder: Encoder,
    /// The factor of the vectors in the kernel.
    pub sigma: f64,
    /// How σ was chosen; none when it was given.
    pub curve: Option<Curve>,
    /// The classes, in order; none but for classification.
    pub classes: Vec<Class>,
    /// How likely the classes are held to be.
    pub prior: Prior,
    /// Rows seen.
    pub rows: u64,
    /// The sum of their weights.
    pub weight: f64,
    /// The most rows of the sample, and what decides them.
    pub(crate) sample_limit: usize,
    pub(crate) sample_seed: u64,
}

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) about: About,
    pub(crate) map: FeatureMap,
    /// Of the vectors.
    pub(crate) moments: Moments,
    /// One column a class; the weights and the weighted targets; or the weights.
    pub(crate) sums: KeySums,
    /// Of the vectors before they were moved and scaled.
    pub(crate) sample: Sample,
    pub(crate) rule: Rule,
    outlook: Option<Outlook>,
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
    pub(crate) fn new(
        about: About,
        map: FeatureMap,
        moments: Moments,
        sums: KeySums,
        sample: Sample,
    ) -> Result<Self> {
        let weights: Vec<f64> = about.classes.iter().map(|c| c.weight).collect();
        let (_, scales) = about.encoder.centres_and_scales();
        let rule = Rule {
            task: about.task,
            factors: about.prior.factors(&about.labels(), &weights)?,
            weights,
            log_norm: Rule::log_norm(about.sigma, &scales, about.weight),
        };
        let outlook = Outlook::new(&Estimator::from(&map), &moments)?;
        Ok(Self { about, map, moments, sums, sample, rule, outlook })
    }

    /// What the model is.
    pub fn about(&self) -> &About {
        &self.about
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
        let mut errors = match self.relative_errors(&rows)? {
            Some(errors) if !errors.is_empty() => errors,
            _ => return Ok(None),
        };
        errors.sort_by(f64::total_cmp);
        Ok(Some(errors[errors.len() / 2]))
    }

    /// The standardised vectors of the sample, and their weights.
    pub(crate) fn sample_rows(&self) -> (Matrix<f64>, Vec<f64>) {
        standardised_rows(&self.about.encoder, &self.sample)
    }

    pub(crate) fn predict(&self, encoded: Encoded<f32>) -> Result<Outputs> {
        let Encoded { rows, kept } = encoded;
        let sums = self.sums.apply_tiled(&self.map, rows.view())?;
        let relative_error = self.relative_errors(&rows)?;
        Ok(Outputs { values: self.rule.outputs(&sums), relative_error, kept })
    }

    /// `√(relative variance / M)` of the sum over the keys, for each row.
    fn relative_errors<T: favor::Element>(&self, rows: &Matrix<T>) -> Result<Option<Vec<f64>>> {
        let Some(outlook) = &self.outlook else { return Ok(None) };
        let log_features = (self.map.features() as f64).ln();
        let logs = outlook.log_relative_variances(rows.view())?;
        let error = |log: f64| (0.5 * (log - log_features)).exp().min(f64::MAX);
        Ok(Some(logs.into_iter().map(error).collect()))
    }

    /// The model of the rows of both: the other must have the same map and encoders, as made by
    /// fitting with the map of the first.
    pub fn merge(&self, other: &Self) -> Result<Self> {
        let (a, b) = (&self.about, &other.about);
        let differ = |what: &str| {
            let reason = format!("their {what} differ; fit the second with --map-of the first");
            Err(Error::Merge(reason))
        };
        if std::mem::discriminant(&a.task) != std::mem::discriminant(&b.task) {
            return differ("tasks");
        }
        if a.target != b.target {
            return differ("targets");
        }
        if a.encoder != b.encoder {
            return differ("columns or their encoding");
        }
        if self.map != other.map || a.task != b.task {
            return differ("feature maps");
        }
        if a.prior != b.prior {
            return differ("priors");
        }
        let mut about = a.clone();
        about.rows += b.rows;
        about.weight += b.weight;
        let mut parts = self.class_sums();
        for (class, sums) in other.class_sums() {
            parts.push((class, sums));
        }
        let (classes, sums) = match a.task {
            Task::Classify => combine(parts, about.target.as_ref(), &self.map)?,
            _ => {
                let mut sums = self.sums.clone();
                sums.merge(&other.sums)?;
                (vec![], sums)
            }
        };
        about.classes = classes;
        let mut moments = self.moments.clone();
        moments.merge(&other.moments)?;
        let mut sample = self.sample.clone();
        sample.absorb(other.sample.clone(), about.sample_limit);
        Self::new(about, self.map.clone(), moments, sums, sample)
    }

    fn class_sums(&self) -> Vec<(Class, KeySums)> {
        let column = |c: usize| {
            let sums = self.sums.sums();
            let column = Matrix::from_fn(sums.rows(), 1, |m, _| sums[(m, c)]);
            KeySums::from_parts(self.sums.log_scale().to_vec(), column)
        };
        let classes = self.about.classes.iter().enumerate();
        classes.filter_map(|(c, class)| Some((class.clone(), column(c).ok()?))).collect()
    }
}

impl About {
    /// The labels of the classes, in order, as texts.
    pub fn labels(&self) -> Vec<String> {
        self.classes.iter().map(|c| c.label.clone()).collect()
    }
}

/// Vectors of a sample, moved and scaled, and their weights.
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

/// One column a class, equal classes added up, in the order of their labels: that of numbers for
/// numbers, of the alphabet for texts.
pub(crate) fn combine(
    parts: Vec<(Class, KeySums)>,
    target: Option<&Target>,
    map: &FeatureMap,
) -> Result<(Vec<Class>, KeySums)> {
    let text = target.is_some_and(|t| t.data_type.contains("Utf8"));
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
        match sums.log_scale()[m] == f64::NEG_INFINITY {
            true => 0.0,
            false => sums.sums()[(m, 0)] * (sums.log_scale()[m] - log_scale[m]).exp(),
        }
    });
    let sums = KeySums::from_parts(log_scale, values)?;
    Ok((merged.into_iter().map(|(class, _)| class).collect(), sums))
}
