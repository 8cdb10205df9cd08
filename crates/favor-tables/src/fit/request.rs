//! What to fit, and how.

use crate::encode::{Missing, NumberEncoding};
use crate::head::HeadKind;
use crate::prior::Prior;
use favor::learn::{Bandwidth, Basis, KernelShape, Task};
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
    /// What turns features into predictions: ridge when `None`, Nadaraya–Watson for a density.
    pub head: Option<HeadKind>,
    /// Where the features come from; chosen by the folds when `None`, balanced for Nadaraya–Watson.
    pub basis: Option<Basis>,
    /// Which kernel they stand for; chosen by the folds when `None`. Nadaraya–Watson has the Gaussian.
    pub kernel: Option<KernelShape>,
    /// Whether the vectors themselves stand beside the features, as a linear part.
    pub linear: bool,
    /// Whether each number of the vectors gets a bandwidth of its own, where the folds approve.
    pub learned_metric: bool,
    /// Their number.
    pub features: usize,
    /// How the draws depend on one another.
    pub coupling: Coupling,
    /// Decides draws and samples.
    pub seed: u64,
    /// The bandwidth of the kernel.
    pub bandwidth: Bandwidth,
    /// What to do with missing values; marked when `None`, refused for a density.
    pub missing: Option<Missing>,
    /// The most categories of a text column; one with more becomes means of the target.
    pub categories: usize,
    /// How numbers are encoded.
    pub numbers: NumberEncoding,
    /// How likely the classes are held to be.
    pub prior: Prior,
    /// The most rows of the sample that a bandwidth is chosen on and that the model keeps.
    pub sample: usize,
}

impl Default for FitRequest {
    /// 256 features of the family, kernel and bandwidth that suit a sample best; neither task nor
    /// target.
    fn default() -> Self {
        Self {
            task: None,
            target: None,
            weight: None,
            columns: None,
            ignore: vec![],
            head: None,
            basis: None,
            kernel: None,
            linear: true,
            learned_metric: false,
            features: 256,
            coupling: Coupling::default(),
            seed: 0,
            bandwidth: Bandwidth::default(),
            missing: None,
            categories: 64,
            numbers: NumberEncoding::default(),
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
    pub fn task(self, task: impl Into<Option<Task>>) -> Self {
        Self { task: task.into(), ..self }
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

    /// What turns features into predictions.
    pub fn head(self, head: impl Into<Option<HeadKind>>) -> Self {
        Self { head: head.into(), ..self }
    }

    /// The family of the features.
    pub fn family(self, family: Family) -> Self {
        self.basis(Basis::Random(family))
    }

    /// Where the features come from.
    pub fn basis(self, basis: impl Into<Option<Basis>>) -> Self {
        Self { basis: basis.into(), ..self }
    }

    /// Which kernel they stand for.
    pub fn kernel(self, kernel: impl Into<Option<KernelShape>>) -> Self {
        Self { kernel: kernel.into(), ..self }
    }

    /// Whether the vectors themselves stand beside the features, as a linear part.
    pub fn linear(self, linear: bool) -> Self {
        Self { linear, ..self }
    }

    /// Whether each number of the vectors gets a bandwidth of its own, where the folds approve.
    pub fn learned_metric(self, learned_metric: bool) -> Self {
        Self { learned_metric, ..self }
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
    pub fn missing(self, missing: impl Into<Option<Missing>>) -> Self {
        Self { missing: missing.into(), ..self }
    }

    /// The most categories of a text column; one with more becomes means of the target.
    pub fn categories(self, categories: usize) -> Self {
        Self { categories, ..self }
    }

    /// How numbers are encoded.
    pub fn numbers(self, numbers: NumberEncoding) -> Self {
        Self { numbers, ..self }
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
