//! How to fit.

use super::Bandwidth;
use crate::{Coupling, Error, Family, FeatureSpec, Result};

/// Which features, how many, and the bandwidth.
///
/// ```
/// use favor::learn::{FitOptions, Search};
/// let options = FitOptions::default().features(512).bandwidth(0.5);
/// let careful = options.bandwidth(Search::CrossValidation { folds: 5 });
/// assert_eq!(careful.features, 512);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FitOptions {
    /// The family of the features.
    pub family: Family,
    /// Their number.
    pub features: usize,
    /// How the draws depend on one another.
    pub coupling: Coupling,
    /// Decides draws and samples.
    pub seed: u64,
    /// The bandwidth of the kernel, in the units of the standardised coordinates.
    pub bandwidth: Bandwidth,
    /// Whether coordinates are brought to mean 0 and variance 1.
    pub standardise: bool,
    /// The most rows that a bandwidth is chosen on.
    pub sample: usize,
}

impl Default for FitOptions {
    /// 256 balanced features, the bandwidth chosen on rows held out of 4096, coordinates standardised.
    fn default() -> Self {
        Self {
            family: Family::Balanced,
            features: 256,
            coupling: Coupling::default(),
            seed: 0,
            bandwidth: Bandwidth::default(),
            standardise: true,
            sample: 4096,
        }
    }
}

impl FitOptions {
    /// Another family.
    #[must_use]
    pub fn family(self, family: Family) -> Self {
        Self { family, ..self }
    }

    /// Another number of features.
    #[must_use]
    pub fn features(self, features: usize) -> Self {
        Self { features, ..self }
    }

    /// Another coupling.
    #[must_use]
    pub fn coupling(self, coupling: Coupling) -> Self {
        Self { coupling, ..self }
    }

    /// Another seed.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// A given bandwidth, or another way to choose it.
    #[must_use]
    pub fn bandwidth(self, bandwidth: impl Into<Bandwidth>) -> Self {
        Self { bandwidth: bandwidth.into(), ..self }
    }

    /// Whether coordinates are brought to mean 0 and variance 1.
    #[must_use]
    pub fn standardise(self, standardise: bool) -> Self {
        Self { standardise, ..self }
    }

    /// The most rows that a bandwidth is chosen on.
    #[must_use]
    pub fn sample(self, sample: usize) -> Self {
        Self { sample, ..self }
    }

    /// An error unless something can be fitted with these options.
    ///
    /// ```
    /// use favor::learn::FitOptions;
    /// let refused = FitOptions::default().bandwidth(-1.0).check().unwrap_err();
    /// assert!(refused.to_string().contains("-1 is not a positive number"));
    /// ```
    pub fn check(&self) -> Result<()> {
        check_features(self.features)?;
        self.bandwidth.check()
    }

    pub(super) fn spec(&self) -> FeatureSpec {
        FeatureSpec::new(self.family, self.features).coupling(self.coupling).seed(self.seed)
    }
}

/// An error unless there is a feature.
pub(super) fn check_features(features: usize) -> Result<()> {
    if features > 0 {
        return Ok(());
    }
    Err(Error::invalid("features", "0; at least one is needed"))
}
