//! What to compare, and at which sizes.

use crate::{Error, Result};
use favor::diagnose::MOST_FEATURES;
use favor::{Family, Kernel};

/// How arrays are inspected.
///
/// ```
/// use favor::{Family, Kernel};
/// use favor_inspect::InspectOptions;
/// let options = InspectOptions::new(Kernel::attention(64)).families(vec![Family::Sde]).seed(7);
/// assert_eq!(options.features, [64, 256]);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct InspectOptions {
    /// The kernel, with the factor that queries and keys are multiplied by.
    pub kernel: Kernel,
    /// The numbers of features to measure at.
    pub features: Vec<usize>,
    /// The families to compare.
    pub families: Vec<Family>,
    /// The seed of all draws and samples.
    pub seed: u64,
}

impl InspectOptions {
    /// 64 and 256 features of all [`compared`] families.
    pub fn new(kernel: Kernel) -> Self {
        Self { kernel, features: vec![64, 256], families: compared(), seed: 0 }
    }

    /// Sets the numbers of features to measure at.
    #[must_use]
    pub fn features(mut self, features: Vec<usize>) -> Self {
        self.features = features;
        self
    }

    /// Sets the families to compare.
    #[must_use]
    pub fn families(mut self, families: Vec<Family>) -> Self {
        self.families = families;
        self
    }

    /// Sets the seed of all draws and samples.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if let Some(m) = self.features.iter().find(|m| !(1..=MOST_FEATURES).contains(*m)) {
            let range = format!("a number of features lies between 1 and {MOST_FEATURES}");
            return Err(Error::invalid("features", format!("{m} is out of range; {range}")));
        }
        if self.features.is_empty() {
            return Err(Error::invalid("features", "give at least one number"));
        }
        if self.families.is_empty() {
            return Err(Error::invalid("families", "give at least one family"));
        }
        Ok(())
    }
}

/// The families compared by default, in the order of every table: all but the second form of the
/// trigonometric features.
pub fn compared() -> Vec<Family> {
    Family::ALL.into_iter().filter(|f| *f != Family::TrigPair).collect()
}
