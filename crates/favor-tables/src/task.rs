//! What is predicted, and how sums over the keys become predictions.

use crate::{Error, Result};
use favor::{Element, LogScaled, Matrix};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// What is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// The class of a row: `argmax_c Σ_i K(σu, σu_i) [label_i = c]`.
    Classify,
    /// A number: the mean of the targets, weighted by the kernel (Nadaraya–Watson).
    Regress {
        /// Mean of the targets, subtracted in the sums.
        centre: f64,
        /// Standard deviation of the targets, divided by in the sums.
        scale: f64,
    },
    /// The logarithm of the density, by a Gaussian kernel of width 1/σ.
    Density,
}

impl Task {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Classify => "classification",
            Self::Regress { .. } => "regression",
            Self::Density => "density",
        }
    }

    /// The word for how well it is done: higher is better.
    pub fn score_name(&self) -> &'static str {
        match self {
            Self::Classify => "accuracy",
            Self::Regress { .. } => "R²",
            Self::Density => "mean log density",
        }
    }
}

/// How likely the classes are held to be before a row is seen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Prior {
    /// As frequent as in the table.
    #[default]
    Data,
    /// All the same.
    Uniform,
    /// Given for each label.
    Given(Vec<(String, f64)>),
}

impl std::str::FromStr for Prior {
    type Err = String;

    /// `data`, `uniform`, or `label=probability,…`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "data" => return Ok(Self::Data),
            "uniform" => return Ok(Self::Uniform),
            _ => {}
        }
        let part = |part: &str| {
            let (label, p) = part.rsplit_once('=')?;
            let p: f64 = p.trim().parse().ok()?;
            (p.is_finite() && p > 0.0).then(|| (label.trim().to_owned(), p))
        };
        let parts: Option<Vec<_>> = text.split(',').map(part).collect();
        parts.map(Self::Given).ok_or_else(|| {
            "give data, uniform, or a positive number for each label as in yes=0.3,no=0.7".into()
        })
    }
}

impl Prior {
    /// That every label that a number is given for is there.
    pub(crate) fn check(&self, labels: &[String]) -> Result<()> {
        if let Self::Given(parts) = self
            && let Some((label, _)) = parts.iter().find(|(l, _)| !labels.contains(l))
        {
            let reason = format!("'{label}' is none of the labels {}", labels.join(", "));
            return Err(Error::request("--prior", reason));
        }
        Ok(())
    }

    /// What the sums of each class are multiplied by, given the weights of the classes.
    pub(crate) fn factors(&self, labels: &[String], weights: &[f64]) -> Result<Vec<f64>> {
        let given = |label: &String| match self {
            Self::Given(parts) => {
                parts.iter().find(|(l, _)| l == label).map(|(_, p)| *p).ok_or_else(|| {
                    let reason = format!("no number is given for the label '{label}'");
                    Error::request("--prior", reason)
                })
            }
            _ => Ok(1.0),
        };
        let total: f64 = weights.iter().sum();
        labels
            .iter()
            .zip(weights)
            .map(|(label, weight)| match (self, *weight > 0.0) {
                (Self::Data, _) => Ok(1.0),
                (_, true) => Ok(given(label)? * total / weight),
                (_, false) => Ok(0.0),
            })
            .collect()
    }
}

/// What the sums are turned into predictions with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    pub(crate) task: Task,
    /// One factor a class.
    pub(crate) factors: Vec<f64>,
    /// The weight of each class, for rows that no feature reaches.
    pub(crate) weights: Vec<f64>,
    /// What is added to the logarithm of a density.
    pub(crate) log_norm: f64,
}

impl Rule {
    /// The logarithm of the kernel's normalisation, for vectors of these scales.
    pub(crate) fn log_norm(sigma: f64, scales: &[f64], weight: f64) -> f64 {
        let each = sigma.ln() - 0.5 * (2.0 * PI).ln();
        scales.iter().map(|s| each - s.ln()).sum::<f64>() - weight.ln()
    }

    /// One row a query: probabilities of the classes, the number, or the logarithm of the density.
    pub(crate) fn outputs<T: Element>(&self, sums: &LogScaled<T>) -> Matrix<f64> {
        let count = sums.values.rows();
        match self.task {
            Task::Classify => {
                let classes = self.factors.len();
                let mut out = Matrix::zeros(count, classes);
                for i in 0..count {
                    let row = out.row_mut(i);
                    let pairs = sums.values.row(i).iter().zip(&self.factors);
                    // Features of either sign may give a sum below zero, which no class has.
                    row.iter_mut().zip(pairs).for_each(|(o, (v, f))| *o = v.to_f64().max(0.0) * f);
                    if row.iter().sum::<f64>() <= 0.0 {
                        let pairs = self.weights.iter().zip(&self.factors);
                        row.iter_mut().zip(pairs).for_each(|(o, (w, f))| *o = w * f);
                    }
                    let total: f64 = row.iter().sum();
                    row.iter_mut().for_each(|o| *o /= total);
                }
                out
            }
            Task::Regress { centre, scale } => Matrix::from_fn(count, 1, |i, _| {
                let row = sums.values.row(i);
                let (below, above) = (row[0].to_f64(), row[1].to_f64());
                if below > 0.0 { centre + scale * above / below } else { centre }
            }),
            Task::Density => Matrix::from_fn(count, 1, |i, _| {
                let value = sums.values.row(i)[0].to_f64().max(f64::MIN_POSITIVE);
                value.ln() + sums.log_scale[i] + self.log_norm
            }),
        }
    }

    /// How well outputs meet what is true: accuracy, R² or mean log density. The truth is the index
    /// of a class or a number.
    pub(crate) fn score(&self, outputs: &Matrix<f64>, truth: &[f64], weights: &[f64]) -> f64 {
        let total: f64 = weights.iter().sum();
        let mean = |value: &dyn Fn(usize) -> f64| {
            (0..outputs.rows()).map(|i| weights[i] * value(i)).sum::<f64>() / total
        };
        match self.task {
            Task::Classify => {
                mean(&|i| f64::from(u8::from(largest(outputs.row(i)) as f64 == truth[i])))
            }
            Task::Regress { .. } => {
                let centre = mean(&|i| truth[i]);
                let spread = mean(&|i| (truth[i] - centre).powi(2));
                1.0 - mean(&|i| (truth[i] - outputs[(i, 0)]).powi(2))
                    / spread.max(f64::MIN_POSITIVE)
            }
            Task::Density => mean(&|i| outputs[(i, 0)]),
        }
    }
}

/// The first index of the largest entry.
pub(crate) fn largest(row: &[f64]) -> usize {
    let mut best = 0;
    for (k, v) in row.iter().enumerate() {
        if *v > row[best] {
            best = k;
        }
    }
    best
}
