//! Parameters that are checked before use.

/// The two types of parameters of a model, with setters for its options and how these are checked.
macro_rules! parameter_types {
    (
        $params:ident, $valid:ident<$($generic:ident),+>, $model:ident, $options:ty,
        { $($(#[$doc:meta])* $setter:ident($($argument:ident: $type:ty)?);)* }
    ) => {
        #[doc = concat!("How to fit a [`", stringify!($model), "`]; checked before it is used.")]
        #[derive(Debug, Clone, PartialEq)]
        pub struct $params<$($generic),+>($valid<$($generic),+>);

        #[doc = concat!("Checked parameters of a [`", stringify!($model), "`].")]
        #[derive(Debug, Clone, PartialEq)]
        pub struct $valid<$($generic),+> {
            options: $options,
            types: std::marker::PhantomData<($($generic,)+)>,
        }

        impl<$($generic),+> $valid<$($generic),+> {
            /// The options.
            pub fn options(&self) -> &$options {
                &self.options
            }
        }

        impl<$($generic),+> $params<$($generic),+> {
            fn new(options: $options) -> Self {
                Self($valid { options, types: std::marker::PhantomData })
            }

            $(
                $(#[$doc])*
                #[must_use]
                pub fn $setter(self $(, $argument: $type)?) -> Self {
                    Self::new(self.0.options.$setter($($argument)?))
                }
            )*
        }

        impl<$($generic),+> linfa::ParamGuard for $params<$($generic),+> {
            type Checked = $valid<$($generic),+>;
            type Error = $crate::Error;

            fn check_ref(&self) -> $crate::Result<&Self::Checked> {
                self.0.options.check()?;
                Ok(&self.0)
            }

            fn check(self) -> $crate::Result<Self::Checked> {
                self.check_ref()?;
                Ok(self.0)
            }
        }
    };
}

/// The parameters of a kernel mean or of random features.
macro_rules! parameters {
    ($params:ident, $valid:ident<$($generic:ident),+>, $model:ident) => {
        $crate::params::parameter_types! {
            $params, $valid<$($generic),+>, $model, favor::learn::FitOptions,
            {
                /// The number of features. More features are more accurate.
                features(features: usize);
                /// The family of the features.
                family(family: favor::Family);
                /// How the draws depend on one another.
                coupling(coupling: favor::Coupling);
                /// The seed of draws and samples.
                seed(seed: u64);
                /// A given bandwidth, or how to choose it.
                bandwidth(bandwidth: impl Into<favor::learn::Bandwidth>);
                /// Whether columns are standardised to mean 0 and variance 1.
                standardise(standardise: bool);
                /// The maximum number of records used to choose a bandwidth.
                sample(sample: usize);
            }
        }

        impl<$($generic),+> $model<$($generic),+> {
            /// 256 balanced features, the bandwidth chosen on held-out records, columns standardised.
            pub fn params() -> $params<$($generic),+> {
                $params::new(favor::learn::FitOptions::default())
            }
        }
    };
}

/// The parameters of a head on kernel features.
macro_rules! head_parameters {
    ($params:ident, $valid:ident<$($generic:ident),+>, $model:ident) => {
        $crate::params::parameter_types! {
            $params, $valid<$($generic),+>, $model, favor::learn::HeadOptions,
            {
                /// The number of features. More features are more accurate.
                features(features: usize);
                /// Where the features come from.
                basis(basis: impl Into<favor::learn::Basis>);
                /// Bases to compare by the folds.
                bases(bases: Vec<favor::learn::Basis>);
                /// Landmarks, waves and balanced features, compared by the folds.
                auto();
                /// The shape of the kernel.
                shape(shape: favor::learn::KernelShape);
                /// Shapes of the kernel to compare by the folds.
                shapes(shapes: Vec<favor::learn::KernelShape>);
                /// Whether a bandwidth per column is learned, and kept where the folds approve.
                metric(metric: bool);
                /// Whether columns are standardised to mean 0 and variance 1.
                standardise(standardise: bool);
                /// Whether the columns themselves come before the features.
                linear(linear: bool);
                /// The number of folds.
                folds(folds: usize);
                /// The maximum number of different records that designs are compared on.
                sample(sample: usize);
                /// The seed of draws and samples.
                seed(seed: u64);
                /// The decrease of the mean loss that is not worth another pass of a logistic head.
                tolerance(tolerance: f64);
                /// The most passes of a logistic head.
                passes(passes: usize);
            }
        }

        impl<$($generic),+> $params<$($generic),+> {
            /// A given bandwidth; chosen by the folds when `None`.
            #[must_use]
            pub fn bandwidth(self, bandwidth: impl Into<Option<f64>>) -> Self {
                Self::new(self.0.options.bandwidth(bandwidth.into()))
            }

            /// A given penalty; chosen by the folds, or the evidence of a Gaussian process, when `None`.
            #[must_use]
            pub fn penalty(self, penalty: impl Into<Option<f64>>) -> Self {
                Self::new(self.0.options.penalty(penalty.into()))
            }
        }
    };
}

pub(crate) use {head_parameters, parameter_types, parameters};
