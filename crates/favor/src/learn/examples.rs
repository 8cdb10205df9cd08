//! Rows whose targets are known, to choose a bandwidth on and to score predictions with.

use super::{Readout, Scaling, argmax};
use crate::{Error, FeatureMap, KeySums, Matrix, Result};

/// What is known of rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// The class of each row.
    Classes {
        /// The index of the class.
        of: Vec<usize>,
        /// How many classes there are.
        count: usize,
        /// How likely the classes are held to be; as frequent as in the rows when `None`.
        prior: Option<Vec<f64>>,
    },
    /// The numbers of each row.
    Numbers {
        /// One row per row, one column per target.
        values: Matrix<f64>,
        /// How each target is scaled in the sums.
        scalings: Vec<Scaling>,
    },
    /// Nothing: their density is estimated.
    Density {
        /// What the coordinates were divided by.
        scales: Vec<f64>,
    },
}

/// Rows with their weights and what is known of them.
///
/// ```
/// use favor::learn::{Examples, Targets, gaussian};
/// use favor::{Family, FeatureSpec, Matrix, Moments};
///
/// let rows = Matrix::from_fn(200, 1, |i, _| (0.37 * i as f64).sin());
/// let of = (0..200).map(|i| usize::from(rows[(i, 0)] > 0.2)).collect();
/// let moments = Moments::of(rows.view())?;
/// let targets = Targets::Classes { of, count: 2, prior: None };
/// let all = Examples::new(rows, vec![1.0; 200], targets)?;
/// let (seen, held_out) = (all.part(&[0, 1, 2, 3, 4, 5]), all.part(&[6, 7, 8, 9]));
/// let spec = FeatureSpec::new(Family::Balanced, 256).kernel(gaussian(0.5)?);
/// let scores = seen.scores(&spec.fit(&moments, &moments)?, 0.5, &held_out)?;
/// assert_eq!(scores.exact, 1.0); // all four classes right
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Examples {
    rows: Matrix<f64>,
    weights: Vec<f64>,
    targets: Targets,
}

/// Scores of the same predictions by features and by the exact kernel; higher is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// By features.
    pub features: f64,
    /// By the exact kernel.
    pub exact: f64,
}

impl Examples {
    /// Puts rows, weights and targets together.
    pub fn new(rows: Matrix<f64>, weights: Vec<f64>, targets: Targets) -> Result<Self> {
        let count = match &targets {
            Targets::Classes { of, .. } => of.len(),
            Targets::Numbers { values, .. } => values.rows(),
            Targets::Density { .. } => rows.rows(),
        };
        if count != rows.rows() || weights.len() != rows.rows() {
            let reason =
                format!("{} rows, {} weights and {count} targets", rows.rows(), weights.len());
            return Err(Error::invalid("examples", reason));
        }
        let (valid, wanted) = match &targets {
            Targets::Classes { of, count, prior } => {
                let known = prior.as_ref().is_none_or(|p| p.len() == *count);
                (known && of.iter().all(|c| c < count), "classes within their count")
            }
            Targets::Numbers { values, scalings } => {
                (values.columns() == scalings.len(), "one scaling per target")
            }
            Targets::Density { scales } => {
                (scales.len() == rows.columns(), "one scale per coordinate")
            }
        };
        if !valid {
            return Err(Error::invalid("targets", format!("{wanted} are needed")));
        }
        Ok(Self { rows, weights, targets })
    }

    /// The rows.
    pub fn rows(&self) -> &Matrix<f64> {
        &self.rows
    }

    /// Some of the rows. Panics if one is out of range, as indexing does.
    pub fn part(&self, chosen: &[usize]) -> Self {
        let of_rows =
            |m: &Matrix<f64>| Matrix::from_fn(chosen.len(), m.columns(), |i, l| m[(chosen[i], l)]);
        let targets = match &self.targets {
            Targets::Classes { of, count, prior } => Targets::Classes {
                of: chosen.iter().map(|&i| of[i]).collect(),
                count: *count,
                prior: prior.clone(),
            },
            Targets::Numbers { values, scalings } => {
                Targets::Numbers { values: of_rows(values), scalings: scalings.clone() }
            }
            density => density.clone(),
        };
        let weights = chosen.iter().map(|&i| self.weights[i]).collect();
        Self { rows: of_rows(&self.rows), weights, targets }
    }

    /// What is summed over these rows, one row per row: the weight in the column of the class; the
    /// weight and the weighted targets; or the weight.
    pub fn values(&self) -> Matrix<f64> {
        let (count, weights) = (self.rows.rows(), &self.weights);
        match &self.targets {
            Targets::Classes { of, count: classes, .. } => {
                Matrix::from_fn(count, *classes, |i, c| if of[i] == c { weights[i] } else { 0.0 })
            }
            Targets::Numbers { values, scalings } => {
                Matrix::from_fn(count, 1 + scalings.len(), |i, c| match c {
                    0 => weights[i],
                    _ => weights[i] * scalings[c - 1].apply(values[(i, c - 1)]),
                })
            }
            Targets::Density { .. } => Matrix::from_fn(count, 1, |i, _| weights[i]),
        }
    }

    /// The readout of sums over these rows.
    pub fn readout(&self, bandwidth: f64) -> Readout {
        match &self.targets {
            Targets::Classes { of, count, prior } => {
                let mut weights = vec![0.0; *count];
                of.iter().zip(&self.weights).for_each(|(&c, w)| weights[c] += w);
                Readout::classes(weights, prior.as_deref())
            }
            Targets::Numbers { scalings, .. } => Readout::Numbers(scalings.clone()),
            Targets::Density { scales } => {
                Readout::density(bandwidth, scales, self.weights.iter().sum())
            }
        }
    }

    /// How well outputs of a [`Readout`] for these rows meet what is known of them: the accuracy, the
    /// mean R² of the targets, or the mean logarithm of the density.
    pub fn score(&self, outputs: &Matrix<f64>) -> f64 {
        let total: f64 = self.weights.iter().sum();
        let mean = |value: &dyn Fn(usize) -> f64| {
            (0..outputs.rows()).map(|i| self.weights[i] * value(i)).sum::<f64>() / total
        };
        match &self.targets {
            Targets::Classes { of, .. } => {
                mean(&|i| if argmax(outputs.row(i)) == of[i] { 1.0 } else { 0.0 })
            }
            Targets::Numbers { values, .. } => {
                let explained = |c: usize| {
                    let centre = mean(&|i| values[(i, c)]);
                    let spread = mean(&|i| (values[(i, c)] - centre).powi(2));
                    let error = mean(&|i| (values[(i, c)] - outputs[(i, c)]).powi(2));
                    1.0 - error / spread.max(f64::MIN_POSITIVE)
                };
                (0..values.columns()).map(explained).sum::<f64>() / values.columns() as f64
            }
            Targets::Density { .. } => mean(&|i| outputs[(i, 0)]),
        }
    }

    /// The scores at `queries` of sums over these rows, by a map for this bandwidth and by the exact
    /// kernel.
    pub fn scores(&self, map: &FeatureMap, bandwidth: f64, queries: &Self) -> Result<Scores> {
        let (readout, values) = (self.readout(bandwidth), self.values());
        let mut sums = KeySums::new(map, values.columns());
        sums.add(map, self.rows.view(), values.view())?;
        let features = sums.apply(map, queries.rows.view())?;
        let exact = map.kernel().product(queries.rows.view(), self.rows.view(), values.view())?;
        Ok(Scores {
            features: queries.score(&readout.outputs(&features)),
            exact: queries.score(&readout.outputs(&exact)),
        })
    }
}
