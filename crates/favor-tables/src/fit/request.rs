//! What to fit, and how.

use crate::encode::{Missing, NumberEncoding};
use crate::head::TableHead;
use crate::prior::Prior;
use favor::Coupling;
use favor::learn::{Bandwidth, Basis, KernelShape, Task};
use favor_io::setters;

/// What to fit, and how.
///
/// ```
/// use favor_tables::{FitRequest, Missing, Task};
/// let request = FitRequest::of("rings").task(Some(Task::Regress)).ignore(["id"]).features(512);
/// let shells = FitRequest::density().missing(Some(Missing::Drop)).bandwidth(0.4);
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
    pub head: Option<TableHead>,
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

setters! { FitRequest {
    task: Option<Task>,
    target: Option<String>,
    weight: Option<String>,
    columns: Option<Vec<String>>,
    head: Option<TableHead>,
    basis: Option<Basis>,
    kernel: Option<KernelShape>,
    linear: bool,
    learned_metric: bool,
    features: usize,
    coupling: Coupling,
    seed: u64,
    missing: Option<Missing>,
    categories: usize,
    numbers: NumberEncoding,
    prior: Prior,
    sample: usize,
} }

impl FitRequest {
    /// Predicts a column.
    pub fn of(target: impl Into<String>) -> Self {
        Self { target: Some(target.into()), ..Self::default() }
    }

    /// Predicts the density of the rows.
    pub fn density() -> Self {
        Self { task: Some(Task::Density), ..Self::default() }
    }

    /// Columns to leave out.
    #[must_use]
    pub fn ignore<N: Into<String>>(self, columns: impl IntoIterator<Item = N>) -> Self {
        Self { ignore: columns.into_iter().map(Into::into).collect(), ..self }
    }

    /// A given bandwidth, or how to choose it.
    #[must_use]
    pub fn bandwidth(self, bandwidth: impl Into<Bandwidth>) -> Self {
        Self { bandwidth: bandwidth.into(), ..self }
    }
}
