//! Learning from arrays with a kernel, in one pass of sums that merge.
//!
//! **Heads.** A [`Design`] turns rows into features whose inner products estimate a kernel: random ones, or
//! those of landmarks. [`GramSums`] sums their products with each other and with the targets over the rows,
//! by folds; sums of different rows add and subtract. From the sums alone come
//!
//! - [`GramSums::ridge`]: ridge regression, of numbers or of one-hot classes, with the penalty chosen by exact
//!   cross-validation, and the score of every smaller number of features;
//! - [`GramSums::gp`]: the same as a Gaussian process, with the variance of its predictions;
//! - the start and the preconditioner of [`LogisticFit`], which needs a few more passes.
//!
//! **Kernel means.** [`KernelClassifier`], [`KernelRegressor`] and [`KernelDensity`] are the Nadaraya–Watson
//! estimator. With rows `u_i` of weight `w_i` and the kernel
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
mod compare;
mod density;
mod design;
mod exact;
mod examples;
mod features;
mod fold;
mod gram;
mod head;
mod importance;
mod logistic;
mod model;
mod options;
mod outcome;
mod pca;
mod readout;
mod regressor;
mod ridge;
mod sampling;
mod scaling;
mod shape;
mod solve;
mod summed;
mod tune;

pub mod metrics;

pub use bandwidth::{Bandwidth, Curve, Search, Trial, bandwidths, choose_bandwidth, gaussian};
pub use classifier::KernelClassifier;
pub use compare::TwoSampleTest;
pub use density::KernelDensity;
pub use design::{Basis, Design, DesignSpec};
pub use exact::exact_ridge;
pub use examples::{Examples, Scores, Targets};
pub use features::RandomFeatures;
pub use fold::{DEFAULT_FOLDS, fold_of};
pub use gram::GramSums;
pub use head::{Head, Link, class_probabilities};
pub use importance::learned_bandwidths;
pub use logistic::{LogisticFit, LogisticOptions, LogisticPass};
pub use model::{HeadKind, HeadModel, HeadOptions};
pub use options::FitOptions;
pub use outcome::{Known, Outcome};
pub use pca::KernelPca;
pub use readout::{Readout, Task, argmax};
pub use regressor::KernelRegressor;
pub use ridge::{
    CurvePoint, FoldScore, Penalty, PenaltyPoint, RidgeFit, RidgeOptions, RidgeReport,
};
pub use scaling::Scaling;
pub use shape::KernelShape;
pub use tune::{DesignTrial, Sample, head_bandwidths};
