//! Kernel methods for [linfa](https://docs.rs/linfa), in time linear in the number of records: ridge
//! regression, Gaussian processes and logistic regression on kernel features, kernel means, density
//! estimation, and random features to feed a linear model.
//!
//! Everything follows linfa: `params()`, setters, `fit`, and a fitted model that predicts. The models
//! are those of [`favor::learn`].
//!
//! ```
//! use favor_linfa::KernelRegressor;
//! use linfa::prelude::*;
//! use ndarray::Array;
//!
//! let x = Array::from_shape_fn((200, 1), |(i, _)| i as f64 / 200.0);
//! let y = x.column(0).mapv(|v| (6.0 * v).sin());
//! let data = Dataset::new(x, y);
//! let model = KernelRegressor::params().features(64).bandwidth(0.125).fit(&data)?;
//! let found = model.predict(&data);
//! assert!((found[50] - 1.5_f64.sin()).abs() < 0.2);
//! # Ok::<(), favor_linfa::Error>(())
//! ```
//!
//! linfa's `predict` and `transform` cannot return an error: if records do not match the model (other
//! columns, a NaN), they panic. `try_predict` and `try_transform` return the error instead.

mod arrays;
mod classifier;
mod density;
mod error;
mod features;
mod heads;
mod params;
mod regressor;

pub use classifier::{KernelClassifier, KernelClassifierParams, KernelClassifierValidParams};
pub use density::{KernelDensity, KernelDensityParams, KernelDensityValidParams};
pub use error::{Error, Result};
pub use features::{RandomFeatures, RandomFeaturesParams, RandomFeaturesValidParams};
pub use heads::{
    KernelRidge, KernelRidgeParams, KernelRidgeValidParams, RidgeClassifier, RidgeClassifierParams,
    RidgeClassifierValidParams,
};
pub use regressor::{KernelRegressor, KernelRegressorParams, KernelRegressorValidParams};

// What parameters are made of.
pub use favor::learn::{Bandwidth, Basis, KernelShape, Search};
pub use favor::{Coupling, Family};
