//! What to fit, and how.

use crate::encode::Missing;
use crate::prior::Prior;
use favor::learn::{Bandwidth, Task};
use favor::{Coupling, Family};

/// What to fit, and how.
///
/// ```
/// use favor_tables::{FitRequest, Missing, Task};
/// let request = FitRequest::of("rings").task(Task::Regress).ignore(["id"]).features(512);
/// let shells = FitRequest::density().missing(Missing::Drop).bandwidth(0.4);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FitRequest {
    /// What is predicted; told from the target's type when `None`.
    pub task: Option<Task>,
    /// The column to predict; none for a density.
    pub target: Option<String>,
    /// The column of weights.
    pub weight: Option<String>,
    /// The columns to predict from; all others when `None`.
    pub columns: Option<Vec<String>>,
    /// Columns to leave out.
    pub ignore: Vec<String>,
    /// The family of the features.
    pub family: Family,
    /// Their number.
    pub features: usize,
    /// How the draws depend on one another.
    pub coupling: Coupling,
    /// Decides draws and samples.
    pub seed: u64,
    /// The bandwidth of the kernel.
    pub bandwidth: Bandwidth,
    /// What to do with missing values.
    pub missing: Missing,
    /// The most categories of a text column.
    pub categories: usize,
    /// Whether numbers are brought to mean 0 and variance 1.
    pub standardise: bool,
    /// How likely the classes are held to be.
    pub prior: Prior,
    /// The most rows of the sample that a bandwidth is chosen on and that the model keeps.
    pub sample: usize,
}

impl Default for FitRequest {
    /// 256 balanced features, the bandwidth by validation; neither task nor target.
    fn default() -> Self {
        Self {
            task: None,
            target: None,
            weight: None,
            columns: None,
            ignore: vec![],
            family: Family::Balanced,
            features: 256,
            coupling: Coupling::default(),
            seed: 0,
            bandwidth: Bandwidth::default(),
            missing: Missing::Error,
            categories: 64,
            standardise: true,
            prior: Prior::Data,
            sample: 4096,
        }
    }
}

fn owned<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Vec<String> {
    names.into_iter().map(Into::into).collect()
}

impl FitRequest {
    /// Predicts a column.
    pub fn of(target: impl Into<String>) -> Self {
        Self { target: Some(target.into()), ..Self::default() }
    }

    /// Predicts the density of the rows.
    pub fn density() -> Self {
        Self { task: Some(Task::Density), ..Self::default() }
    }

    /// What is predicted.
    pub fn task(self, task: Task) -> Self {
        Self { task: Some(task), ..self }
    }

    /// The column to predict.
    pub fn target(self, column: impl Into<String>) -> Self {
        Self { target: Some(column.into()), ..self }
    }

    /// The column of weights.
    pub fn weight(self, column: impl Into<String>) -> Self {
        Self { weight: Some(column.into()), ..self }
    }

    /// The columns to predict from.
    pub fn columns<N: Into<String>>(self, columns: impl IntoIterator<Item = N>) -> Self {
        Self { columns: Some(owned(columns)), ..self }
    }

    /// Columns to leave out.
    pub fn ignore<N: Into<String>>(self, columns: impl IntoIterator<Item = N>) -> Self {
        Self { ignore: owned(columns), ..self }
    }

    /// The family of the features.
    pub fn family(self, family: Family) -> Self {
        Self { family, ..self }
    }

    /// The number of features.
    pub fn features(self, features: usize) -> Self {
        Self { features, ..self }
    }

    /// How the draws depend on one another.
    pub fn coupling(self, coupling: Coupling) -> Self {
        Self { coupling, ..self }
    }

    /// Decides draws and samples.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// A given bandwidth, or how to choose it.
    pub fn bandwidth(self, bandwidth: impl Into<Bandwidth>) -> Self {
        Self { bandwidth: bandwidth.into(), ..self }
    }

    /// What to do with missing values.
    pub fn missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    /// The most categories of a text column.
    pub fn categories(self, categories: usize) -> Self {
        Self { categories, ..self }
    }

    /// Whether numbers are brought to mean 0 and variance 1.
    pub fn standardise(self, standardise: bool) -> Self {
        Self { standardise, ..self }
    }

    /// How likely the classes are held to be.
    pub fn prior(self, prior: Prior) -> Self {
        Self { prior, ..self }
    }

    /// The most rows of the sample that a bandwidth is chosen on and that the model keeps.
    pub fn sample(self, sample: usize) -> Self {
        Self { sample, ..self }
    }
}
