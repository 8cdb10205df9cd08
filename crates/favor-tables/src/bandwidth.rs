//! The sample of a table as arrays: what a bandwidth is chosen on and features are compared with the
//! exact kernel on.

use crate::encode::Encoder;
use crate::model::{Model, ModelInfo, standardised_rows};
use crate::prior::Prior;
use crate::states::Sample;
use crate::{Error, Result, Setting};
use favor::learn::{Curve, Examples, Scaling, Search, Targets, Task, choose_bandwidth, gaussian};
use favor::{FeatureSpec, Kernel, Matrix, Moments};

/// What must be known of a model to read a sample as examples.
pub(crate) struct SampleReader<'a> {
    pub(crate) task: Task,
    pub(crate) encoder: &'a Encoder,
    pub(crate) prior: &'a Prior,
    pub(crate) target_scaling: Option<Scaling>,
}

impl<'a> From<&'a ModelInfo> for SampleReader<'a> {
    fn from(info: &'a ModelInfo) -> Self {
        let ModelInfo { task, encoder, prior, target_scaling, .. } = info;
        Self { task: *task, encoder, prior, target_scaling: *target_scaling }
    }
}

/// A sample as arrays, with the labels that its classes are.
pub(crate) struct SampleTable {
    pub(crate) examples: Examples,
    pub(crate) labels: Vec<String>,
}

impl SampleReader<'_> {
    /// The classes are those of `known`, and any others that the sample has.
    pub(crate) fn read(&self, sample: &Sample, known: Vec<String>) -> Result<SampleTable> {
        let (rows, weights) = standardised_rows(self.encoder, sample);
        let mut labels = known;
        let targets = match self.task {
            Task::Classify => {
                let mut class_of = |label: &String| {
                    labels.iter().position(|l| l == label).unwrap_or_else(|| {
                        labels.push(label.clone());
                        labels.len() - 1
                    })
                };
                let of: Vec<usize> = sample.items.keys().map(|(_, l)| class_of(l)).collect();
                let mut shares = vec![0.0; labels.len()];
                of.iter().zip(&weights).for_each(|(&c, w)| shares[c] += w);
                let prior = self.prior.numbers(&labels, &shares)?;
                Targets::Classes { of, count: labels.len(), prior }
            }
            Task::Regress => {
                let values = sample.items.values().map(|item| item.value).collect();
                let scalings = vec![self.target_scaling.unwrap_or(Scaling::IDENTITY)];
                Targets::Numbers { values: Matrix::new(values, rows.rows(), 1)?, scalings }
            }
            Task::Density => Targets::Density { scales: self.encoder.centres_and_scales().1 },
        };
        Ok(SampleTable { examples: Examples::new(rows, weights, targets)?, labels })
    }
}

/// Scores every bandwidth of the grid on a sample.
pub(crate) fn search(
    reader: &SampleReader<'_>,
    spec: FeatureSpec,
    moments: &Moments,
    sample: &Sample,
    search: Search,
) -> Result<Curve> {
    let table = reader.read(sample, vec![])?;
    choose_bandwidth(spec, moments, &table.examples, search).map_err(of_setting)
}

/// The kernel of a bandwidth.
pub(crate) fn kernel(bandwidth: f64) -> Result<Kernel> {
    gaussian(bandwidth).map_err(of_setting)
}

/// An error of the numerics that is one of a setting.
pub(crate) fn of_setting(error: favor::Error) -> Error {
    match error {
        favor::Error::Invalid { what, reason } if what == "folds" => {
            Error::request(Setting::Folds, reason)
        }
        favor::Error::Invalid { what, reason } if what == "bandwidth" => {
            Error::request(Setting::Bandwidth, reason)
        }
        other => other.into(),
    }
}

impl Model {
    /// The rows that the model has kept, and those of another sample.
    pub(crate) fn samples(&self, other: &Sample) -> Result<(SampleTable, SampleTable)> {
        let reader = SampleReader::from(&self.info);
        let keys = reader.read(&self.sample, self.info.labels())?;
        // The prior is that of the keys; labels that only the other sample has are none of its.
        let data = SampleReader { prior: &Prior::Data, ..reader };
        let queries = data.read(other, keys.labels.clone())?;
        Ok((keys, queries))
    }
}
