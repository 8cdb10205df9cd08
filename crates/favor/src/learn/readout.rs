//! How sums over the rows become predictions: the Nadaraya–Watson estimator.

use super::Scaling;
use crate::{Float, LogScaled, Matrix};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// What is predicted.
///
/// ```
/// use favor::learn::Task;
/// assert_eq!((Task::Regress.name(), Task::Regress.score_name()), ("regression", "R²"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Task {
    /// The class of a row: `argmax_c Σ_i w_i K(u,u_i) [class_i = c]`.
    Classify,
    /// Numbers: the mean of the targets, weighted by the kernel.
    Regress,
    /// The logarithm of the density of the rows.
    Density,
}

impl Task {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Classify => "classification",
            Self::Regress => "regression",
            Self::Density => "density",
        }
    }

    /// The word for how well it is done; higher is better.
    pub fn score_name(self) -> &'static str {
        match self {
            Self::Classify => "accuracy",
            Self::Regress => "R²",
            Self::Density => "mean log density",
        }
    }
}

/// What sums over the rows are turned into predictions with.
///
/// ```
/// use favor::{LogScaled, Matrix, learn::Readout};
/// // Two classes of equal weight; a row whose kernel sums with them are 3e⁹ and 1e⁹.
/// let readout = Readout::classes(vec![50.0, 50.0], None);
/// let sums = LogScaled { log_scale: vec![9.0], values: Matrix::new(vec![3.0, 1.0], 1, 2)? };
/// assert_eq!(readout.outputs(&sums).row(0), &[0.75, 0.25]);
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Readout {
    /// Of one sum per class its share.
    Classes {
        /// The weight of each class, for rows that no feature reaches.
        weights: Vec<f64>,
        /// What the sum of each class is multiplied by: prior over share.
        factors: Vec<f64>,
    },
    /// Of the sum of the weights and one sum per scaled target the targets.
    Numbers(Vec<Scaling>),
    /// Of the sum of the weights the logarithm of the density.
    Density {
        /// What is added to the logarithm of the sum.
        log_norm: f64,
    },
}

impl Readout {
    /// For classes with these weights. `prior` says how likely the classes are held to be, up to a
    /// common factor; as frequent as their weights when `None`.
    pub fn classes(weights: Vec<f64>, prior: Option<&[f64]>) -> Self {
        let total: f64 = weights.iter().sum();
        let weights = if total > 0.0 { weights } else { vec![1.0; weights.len()] };
        let factor = |(c, &weight): (usize, &f64)| match prior {
            None => 1.0,
            Some(prior) if weight > 0.0 => prior[c] * total / weight,
            Some(_) => 0.0,
        };
        let factors = weights.iter().enumerate().map(factor).collect();
        Self::Classes { weights, factors }
    }

    /// For a density over coordinates that were divided by `scales`, of rows with this total weight.
    pub fn density(bandwidth: f64, scales: &[f64], weight: f64) -> Self {
        let each = -bandwidth.ln() - 0.5 * (2.0 * PI).ln();
        let log_norm = scales.iter().map(|s| each - s.ln()).sum::<f64>() - weight.ln();
        Self::Density { log_norm }
    }

    /// What is predicted.
    pub fn task(&self) -> Task {
        match self {
            Self::Classes { .. } => Task::Classify,
            Self::Numbers(_) => Task::Regress,
            Self::Density { .. } => Task::Density,
        }
    }

    /// How many numbers it makes of a row: one per class, one per target, or one.
    pub fn width(&self) -> usize {
        match self {
            Self::Classes { weights, .. } => weights.len(),
            Self::Numbers(scalings) => scalings.len(),
            Self::Density { .. } => 1,
        }
    }

    /// One row per query: the probabilities of the classes, the targets, or the logarithm of the
    /// density.
    pub fn outputs<T: Float>(&self, sums: &LogScaled<T>) -> Matrix<f64> {
        let count = sums.values.rows();
        match self {
            Self::Classes { weights, factors } => {
                let mut out = Matrix::zeros(count, factors.len());
                for i in 0..count {
                    let row = out.row_mut(i);
                    let pairs = sums.values.row(i).iter().zip(factors);
                    // Features of either sign may give a sum below zero, which no class has.
                    row.iter_mut().zip(pairs).for_each(|(o, (v, f))| *o = v.to_f64().max(0.0) * f);
                    if row.iter().sum::<f64>() <= 0.0 {
                        let pairs = weights.iter().zip(factors);
                        row.iter_mut().zip(pairs).for_each(|(o, (w, f))| *o = w * f);
                    }
                    let total: f64 = row.iter().sum();
                    row.iter_mut().for_each(|o| *o /= total);
                }
                out
            }
            Self::Numbers(scalings) => Matrix::from_fn(count, scalings.len(), |i, c| {
                let row = sums.values.row(i);
                let (weight, target) = (row[0].to_f64(), row[c + 1].to_f64());
                let scaling = scalings[c];
                if weight > 0.0 { scaling.undo(target / weight) } else { scaling.centre }
            }),
            Self::Density { log_norm } => Matrix::from_fn(count, 1, |i, _| {
                let value = sums.values.row(i)[0].to_f64().max(f64::MIN_POSITIVE);
                value.ln() + sums.log_scale[i] + log_norm
            }),
        }
    }
}

/// The first index of the largest entry.
///
/// ```
/// assert_eq!(favor::learn::argmax(&[0.2, 0.5, 0.5]), 1);
/// ```
pub fn argmax(row: &[f64]) -> usize {
    let mut best = 0;
    for (k, v) in row.iter().enumerate() {
        if *v > row[best] {
            best = k;
        }
    }
    best
}
