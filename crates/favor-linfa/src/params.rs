//! Parameters that are checked before use, the same for every model.

use crate::{Error, Result};
use favor::learn::{Bandwidth, FitOptions, Search};

/// An error unless a model can be fitted with these options.
pub(crate) fn check(options: &FitOptions) -> Result<()> {
    if options.features == 0 {
        return Err(Error::parameter("features", "at least one is needed"));
    }
    match options.bandwidth {
        Bandwidth::Fixed(h) if !(h.is_finite() && h > 0.0) => {
            Err(Error::parameter("bandwidth", format!("{h} is not a positive number")))
        }
        Bandwidth::Auto(Search::CrossValidation { folds }) if folds < 2 => {
            Err(Error::parameter("folds", format!("{folds} parts; give 2 or more")))
        }
        _ => Ok(()),
    }
}

/// The two types of parameters of a model, and how they are set and checked.
macro_rules! parameters {
    ($params:ident, $valid:ident<$($generic:ident),+>, $model:ident) => {
        #[doc = concat!("How to fit a [`", stringify!($model), "`]; checked before it is used.")]
        #[derive(Debug, Clone, PartialEq)]
        pub struct $params<$($generic),+>($valid<$($generic),+>);

        #[doc = concat!("Checked parameters of a [`", stringify!($model), "`].")]
        #[derive(Debug, Clone, PartialEq)]
        pub struct $valid<$($generic),+> {
            options: favor::learn::FitOptions,
            types: std::marker::PhantomData<($($generic,)+)>,
        }

        impl<$($generic),+> $valid<$($generic),+> {
            /// The options.
            pub fn options(&self) -> &favor::learn::FitOptions {
                &self.options
            }
        }

        impl<$($generic),+> $model<$($generic),+> {
            /// 256 balanced features, the bandwidth chosen on held-out records, columns standardised.
            pub fn params() -> $params<$($generic),+> {
                let options = favor::learn::FitOptions::default();
                $params($valid { options, types: std::marker::PhantomData })
            }
        }

        impl<$($generic),+> $params<$($generic),+> {
            fn with(
                mut self,
                set: impl FnOnce(favor::learn::FitOptions) -> favor::learn::FitOptions,
            ) -> Self {
                self.0.options = set(self.0.options);
                self
            }

            /// The number of features. More features are more accurate.
            pub fn features(self, features: usize) -> Self {
                self.with(|options| options.features(features))
            }

            /// The family of the features.
            pub fn family(self, family: favor::Family) -> Self {
                self.with(|options| options.family(family))
            }

            /// How the draws depend on one another.
            pub fn coupling(self, coupling: favor::Coupling) -> Self {
                self.with(|options| options.coupling(coupling))
            }

            /// The seed of draws and samples.
            pub fn seed(self, seed: u64) -> Self {
                self.with(|options| options.seed(seed))
            }

            /// A given bandwidth, or how to choose it.
            pub fn bandwidth(self, bandwidth: impl Into<favor::learn::Bandwidth>) -> Self {
                self.with(|options| options.bandwidth(bandwidth))
            }

            /// Whether columns are standardised to mean 0 and variance 1.
            pub fn standardise(self, standardise: bool) -> Self {
                self.with(|options| options.standardise(standardise))
            }

            /// The maximum number of records used to choose a bandwidth.
            pub fn sample(self, sample: usize) -> Self {
                self.with(|options| options.sample(sample))
            }
        }

        impl<$($generic),+> linfa::ParamGuard for $params<$($generic),+> {
            type Checked = $valid<$($generic),+>;
            type Error = $crate::Error;

            fn check_ref(&self) -> $crate::Result<&Self::Checked> {
                $crate::params::check(&self.0.options)?;
                Ok(&self.0)
            }

            fn check(self) -> $crate::Result<Self::Checked> {
                self.check_ref()?;
                Ok(self.0)
            }
        }
    };
}

pub(crate) use parameters;
