//! Learning from arrays with the Gaussian kernel: a classifier, a regressor and a density whose fit is
//! one sum over the rows.
//!
//! All three are the Nadaraya–Watson estimator. With rows `u_i` of weight `w_i` and the kernel
//! `K(u,v) = exp(−‖u−v‖²/(2h²))` of bandwidth `h`, they are made of sums `Σ_i w_i K(u,u_i) c_i`: with
//! `c_i` the one-hot label, the targets, or 1. A [`FeatureMap`](crate::FeatureMap) turns these into
//! [`KeySums`](crate::KeySums), whose size does not depend on the number of rows, so that
//! rows can be added later and models of one map [merge](KernelClassifier::merge).
//!
//! 1. [`FitOptions`] says which features, how many, and the [`Bandwidth`]: a number, or the best of
//!    [`bandwidths`] on rows held out.
//! 2. [`KernelClassifier`], [`KernelRegressor`] and [`KernelDensity`] fit and predict;
//!    [`RandomFeatures`] gives the features themselves, for a model of another kind.
//! 3. Below them, for callers with sums of their own: [`Examples`] are rows whose targets are known,
//!    [`choose_bandwidth`] scores bandwidths on them, and a [`Readout`] turns sums into predictions.
//!
//! ```
//! use favor::Matrix;
//! use favor::learn::{FitOptions, KernelClassifier};
//!
//! // Two rings, and which of them a point is on.
//! let radius = |i: usize| 1.0 + (i % 2) as f64 + 0.1 * (3.0 * i as f64).sin();
//! let turn = |i: usize, l: usize| [(0.7 * i as f64).cos(), (0.7 * i as f64).sin()][l];
//! let rows = Matrix::from_fn(400, 2, |i, l| radius(i) * turn(i, l));
//! let rings: Vec<&str> = (0..400).map(|i| ["inner", "outer"][i % 2]).collect();
//!
//! let options = FitOptions::default().features(128).seed(7);
//! let model = KernelClassifier::fit(&options, rows.view(), &rings, None)?;
//! let found = model.predict(rows.view())?;
//! let right = found.iter().zip(&rings).filter(|(f, r)| f == r).count();
//! assert!(right > 380, "{right} of 400");
//! # Ok::<(), favor::Error>(())
//! ```

mod bandwidth;
mod classifier;
mod density;
mod examples;
mod features;
mod options;
mod readout;
mod regressor;
mod scaling;
mod summed;

pub use bandwidth::{Bandwidth, Curve, Search, Trial, bandwidths, choose_bandwidth, gaussian};
pub use classifier::KernelClassifier;
pub use density::KernelDensity;
pub use examples::{Examples, Scores, Targets};
pub use features::RandomFeatures;
pub use options::FitOptions;
pub use readout::{Readout, Task, argmax};
pub use regressor::KernelRegressor;
pub use scaling::Scaling;
