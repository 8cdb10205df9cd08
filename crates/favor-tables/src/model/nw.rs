//! Nadaraya–Watson: sums of features over the rows, and what reads predictions out of them.

use super::{Class, Outputs};
use crate::encode::Encoded;
use crate::model::ModelInfo;
use crate::states::SumsState;
use crate::target::{Target, sort_labels};
use crate::{Error, Result};
use favor::diagnose::{Estimator, RowErrorModel};
use favor::learn::{Readout, Scaling, Task};
use favor::{FeatureMap, KeySums, Matrix, Moments};

/// Sums over the rows and what reads them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Nw {
    pub(crate) map: FeatureMap,
    /// One column per class; the weights and the weighted targets; or the weights.
    pub(crate) sums: KeySums,
    pub(crate) readout: Readout,
    /// What predicts the errors of the sums; `None` for families without the closed form.
    errors: Option<RowErrorModel>,
}

impl Nw {
    pub(crate) fn new(
        info: &ModelInfo,
        map: FeatureMap,
        moments: &Moments,
        sums: KeySums,
    ) -> Result<Self> {
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
        let errors = RowErrorModel::new(&Estimator::of(&map)?, moments)?;
        Ok(Self { map, sums, readout, errors })
    }

    pub(crate) fn predict(&self, encoded: Encoded<f32>) -> Result<Outputs> {
        let Encoded { rows, kept } = encoded;
        let sums = self.sums.apply(&self.map, rows.view())?;
        let relative_error = self.relative_errors(&rows)?;
        Ok(Outputs { values: self.readout.outputs(&sums), relative_error, deviation: None, kept })
    }

    /// `√(relative variance / M)` of the sum over the keys, for each row.
    pub(crate) fn relative_errors<T: favor::Float>(
        &self,
        rows: &Matrix<T>,
    ) -> Result<Option<Vec<f64>>> {
        let Some(model) = &self.errors else { return Ok(None) };
        let log_features = (self.map.features() as f64).ln();
        let logs = model.log_relative_variances(rows.view())?;
        let error = |log: f64| (0.5 * (log - log_features)).exp().min(f64::MAX);
        Ok(Some(logs.into_iter().map(error).collect()))
    }

    /// How likely a class is held to be before a row is seen.
    pub(crate) fn prior(&self, class: usize) -> f64 {
        let Readout::Classes { weights, factors } = &self.readout else { return 1.0 };
        let share = |c: usize| weights[c] * factors[c];
        share(class) / (0..weights.len()).map(share).sum::<f64>()
    }

    /// The sums of the rows of both, or of those of the first that are not in the second. Classes and
    /// counts are already in `info`, and what they were before in `own` and `new`.
    pub(crate) fn joined(
        &self,
        own: &ModelInfo,
        other: &Self,
        new: &ModelInfo,
        sign: f64,
        info: &mut ModelInfo,
    ) -> Result<KeySums> {
        let signed = |sums: &KeySums| {
            let mut values = sums.sums().clone();
            values.as_mut_slice().iter_mut().for_each(|v| *v *= sign);
            KeySums::from_parts(sums.log_scale().to_vec(), values)
        };
        if info.task != Task::Classify {
            let mut sums = self.sums.clone();
            sums.merge(&signed(&other.sums)?)?;
            return Ok(sums);
        }
        let mut parts = self.class_sums(own, &self.sums, 1.0);
        parts.extend(self.class_sums(new, &signed(&other.sums)?, sign));
        let (classes, sums) = combine(parts, info.target.as_ref(), &self.map)?;
        info.classes = classes;
        Ok(sums)
    }

    fn class_sums(&self, info: &ModelInfo, sums: &KeySums, sign: f64) -> Vec<Part> {
        let column = |c: usize| {
            let values = sums.sums();
            let column = Matrix::from_fn(values.rows(), 1, |m, _| values[(m, c)]);
            KeySums::from_parts(sums.log_scale().to_vec(), column)
        };
        let classes = info.classes.iter().enumerate();
        let part = |(c, class): (usize, &Class)| {
            let (label, weight) = (class.label.clone(), sign * class.weight);
            Some(Part {
                label,
                rows: sign as i64 * class.rows as i64,
                weight,
                sums: column(c).ok()?,
            })
        };
        classes.filter_map(part).collect()
    }
}

/// The sums of a class as a part of a model; what is taken away has negative counts.
pub(crate) struct Part {
    pub(crate) label: String,
    pub(crate) rows: i64,
    pub(crate) weight: f64,
    sums: KeySums,
}

impl Part {
    /// What a worker found of a label, if anything.
    pub(crate) fn new(label: String, state: SumsState) -> Option<Self> {
        Some(Self { label, rows: state.rows as i64, weight: state.weight, sums: state.sums? })
    }
}

/// One column per class, equal classes added up, in the order of their labels.
pub(crate) fn combine(
    parts: Vec<Part>,
    target: Option<&Target>,
    map: &FeatureMap,
) -> Result<(Vec<Class>, KeySums)> {
    let mut labels: Vec<String> = parts.iter().map(|p| p.label.clone()).collect();
    sort_labels(&mut labels, target);
    let mut merged: Vec<(Class, KeySums)> = vec![];
    for label in labels {
        let mut of = parts.iter().filter(|p| p.label == label);
        let Some(first) = of.next() else { continue };
        let (mut rows, mut weight, mut sums) = (first.rows, first.weight, first.sums.clone());
        for part in of {
            rows += part.rows;
            weight += part.weight;
            sums.merge(&part.sums)?;
        }
        let rows = u64::try_from(rows).map_err(|_| Error::TooMany)?;
        if rows > 0 {
            merged.push((Class { label, rows, weight }, sums));
        }
    }
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
