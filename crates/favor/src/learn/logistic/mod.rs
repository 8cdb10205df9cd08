//! Logistic regression: passes over the rows that each sum a gradient, from the ridge head as the start.
//!
//! The loss is `Σ w (−log p_c) + λ/2 ‖V‖²`, the intercepts are not penalised. Its second derivative is
//! `Σ w (diag(p) − ppᵀ) ⊗ φφᵀ`, which is bounded by a multiple of the Gram matrix (Böhning 1992) and, where
//! probabilities vary little, is nearly one. So the triangle of the Gram matrix that ridge regression has
//! made already is the metric of the descent (L-BFGS), and a pass sums no more than `Φᵀ(p − y)`.

mod pass;

pub use pass::LogisticPass;

use super::head::{Head, Link};
use super::solve::Training;
use super::{GramSums, Outcome, RidgeOptions};
use crate::linalg::Cholesky;
use crate::{Error, Matrix, Result};

/// Steps whose curvature is remembered.
const MEMORY: usize = 12;
/// The share of the expected decrease that a step must bring.
const SUFFICIENT: f64 = 1e-4;

/// How to fit.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LogisticOptions {
    /// The penalty λ; that of the ridge head, chosen by folds and put in the units of the logistic loss, when
    /// `None`.
    pub penalty: Option<f64>,
    /// The penalty of the ridge head, where it is known already.
    pub start: Option<f64>,
    /// The decrease of the mean loss that is not worth another pass.
    pub tolerance: f64,
    /// The most passes.
    pub passes: usize,
}

impl Default for LogisticOptions {
    fn default() -> Self {
        Self { penalty: None, start: None, tolerance: Self::TOLERANCE, passes: Self::PASSES }
    }
}

impl LogisticOptions {
    /// The tolerance, unless asked otherwise.
    pub const TOLERANCE: f64 = 1e-5;

    /// The most passes, unless asked otherwise.
    pub const PASSES: usize = 50;

    /// A given penalty; that of the ridge head when `None`.
    #[must_use]
    pub fn penalty(self, penalty: Option<f64>) -> Self {
        Self { penalty, ..self }
    }

    /// The penalty of the ridge head that was fitted to the same sums, if there is one.
    #[must_use]
    pub fn start(self, ridge_penalty: Option<f64>) -> Self {
        Self { start: ridge_penalty, ..self }
    }

    /// Another tolerance.
    #[must_use]
    pub fn tolerance(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }

    /// Another number of passes.
    #[must_use]
    pub fn passes(self, passes: usize) -> Self {
        Self { passes, ..self }
    }
}

/// A logistic regression on its way. Each [`pass`](Self::pass) goes over all rows, in any pieces and on any
/// number of workers, and [`step`](Self::step) takes its sums.
///
/// ```
/// use favor::learn::{DesignSpec, GramSums, Known, LogisticFit, LogisticOptions, Outcome};
/// use favor::{Matrix, Moments};
/// let rows = Matrix::from_fn(1000, 1, |i, _| (i as f64 * 0.37).sin());
/// let classes: Vec<usize> = (0..1000).map(|i| usize::from(rows[(i, 0)].abs() > 0.5)).collect();
/// let design = DesignSpec::new(32).fit(&Moments::of(rows.view())?, rows.view())?;
/// let mut sums = GramSums::new(&design, Outcome::Classes(2), 4)?;
/// sums.add(&design, rows.view(), Known::Classes(&classes), None, None)?;
///
/// let mut fit = LogisticFit::new(&sums, &LogisticOptions::default())?;
/// loop {
///     let mut pass = fit.pass();
///     pass.add(&design, rows.view(), &classes, None)?;
///     if fit.step(&pass)? {
///         break;
///     }
/// }
/// let probabilities = fit.head()?.predict(&design, rows.view())?;
/// assert!((0..1000).all(|i| probabilities[(i, classes[i])] > 0.5));
/// # Ok::<(), favor::Error>(())
/// ```
pub struct LogisticFit {
    options: LogisticOptions,
    outcome: Outcome,
    offset: usize,
    penalty: f64,
    weight: f64,
    means: Vec<f64>,
    /// Of the Gram matrix plus the penalty in its units.
    metric: Cholesky,
    /// What the metric is multiplied by to resemble the second derivative.
    curvature: f64,
    /// The best point so far and its loss, if it is known.
    at: Point,
    /// Where the next pass looks, from there along the direction.
    direction: Matrix<f64>,
    step: f64,
    memory: Vec<(Matrix<f64>, Matrix<f64>)>,
    passes: usize,
}

/// Intercepts in the first row, then the coefficients of the centred columns.
struct Point {
    numbers: Matrix<f64>,
    gradient: Matrix<f64>,
    loss: f64,
}

impl LogisticFit {
    /// Begins with the sums of all rows.
    pub fn new(sums: &GramSums, options: &LogisticOptions) -> Result<Self> {
        let Outcome::Classes(classes) = *sums.outcome() else {
            return Err(Error::invalid("targets", "a logistic regression needs classes"));
        };
        let size = sums.width() - 1;
        let train = Training::new(&sums.products(None, size), size)?;
        let weight = sums.weight();
        // A class that no row has gets the probability of one row among all.
        let floor = 1.0 / (weight + classes as f64);
        let shares: Vec<f64> = sums.target_mean().iter().map(|p| p.max(floor)).collect();
        let curvature = shares.iter().map(|p| p * (1.0 - p)).sum::<f64>() / classes as f64;
        let curvature = curvature.max(floor);
        let penalty = match options.penalty {
            Some(penalty) if penalty.is_finite() && penalty > 0.0 => penalty,
            Some(penalty) => {
                let reason = format!("{penalty} is not a positive number");
                return Err(Error::invalid("penalty", reason));
            }
            // The logit of a class changes by its probability's change over the curvature.
            None => {
                let ridge = match options.start {
                    Some(ridge) => ridge,
                    None => sums.ridge(&RidgeOptions::default())?.report.penalty,
                };
                curvature * ridge
            }
        };
        let metric = train.factor(penalty / curvature)?;
        let (means, cross) = train.into_parts();
        let mut numbers = Matrix::zeros(size + 1, classes);
        numbers.row_mut(0).iter_mut().zip(&shares).for_each(|(a, p)| *a = p.ln());
        let gradient =
            Matrix::from_fn(
                size + 1,
                classes,
                |i, c| if i == 0 { 0.0 } else { -cross[(i - 1, c)] },
            );
        // The loss of the shares alone, by which the first step is judged.
        let entropy: f64 = sums.target_mean().iter().zip(&shares).map(|(p, q)| -p * q.ln()).sum();
        let at = Point { numbers, gradient, loss: weight * entropy };
        let mut fit = Self {
            options: *options,
            outcome: sums.outcome().clone(),
            offset: sums.offset(),
            penalty,
            weight,
            means,
            metric,
            curvature,
            direction: Matrix::zeros(size + 1, classes),
            at,
            step: 1.0,
            memory: vec![],
            passes: 0,
        };
        fit.direction = fit.descent();
        Ok(fit)
    }

    /// The sums of the next pass, over no rows yet.
    pub fn pass(&self) -> LogisticPass {
        let (intercepts, coefficients) = self.uncentred(&self.candidate());
        LogisticPass::new(self.offset, intercepts, coefficients)
    }

    /// Takes the sums of a pass over all rows. True if the fit is done.
    pub fn step(&mut self, pass: &LogisticPass) -> Result<bool> {
        let candidate = self.candidate();
        let (intercepts, coefficients) = self.uncentred(&candidate);
        if !pass.is_at(&intercepts, &coefficients) {
            return Err(Error::invalid("pass", "it is not of this step"));
        }
        if (pass.weight() - self.weight).abs() > 1e-6 * self.weight {
            let reason = format!(
                "it has rows of weight {} where the sums have {}; every row is needed",
                pass.weight(),
                self.weight
            );
            return Err(Error::invalid("pass", reason));
        }
        self.passes += 1;
        let new = self.evaluated(candidate, pass);
        let slope = inner(&self.at.gradient, &self.direction);
        let rounding = 1e-13 * self.at.loss.abs();
        let enough = self.at.loss + SUFFICIENT * self.step * slope + rounding;
        let out_of_passes = self.passes >= self.options.passes;
        if !(new.loss.is_finite() && new.loss <= enough) {
            self.step *= 0.5;
            return Ok(out_of_passes || self.step < 1e-10);
        }
        let gained = self.at.loss - new.loss;
        let moved = difference(&new.numbers, &self.at.numbers);
        let gradient_change = difference(&new.gradient, &self.at.gradient);
        if inner(&moved, &gradient_change) > 0.0 {
            self.memory.push((moved, gradient_change));
            if self.memory.len() > MEMORY {
                self.memory.remove(0);
            }
        }
        self.at = new;
        self.direction = self.descent();
        self.step = 1.0;
        // Half the slope is what a step with the right curvature would gain.
        let expected = -0.5 * inner(&self.at.gradient, &self.direction);
        let worth = self.options.tolerance * self.weight;
        Ok(out_of_passes || (expected < worth && gained < worth.max(rounding)))
    }

    /// Passes so far.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// The penalty λ.
    pub fn penalty(&self) -> f64 {
        self.penalty
    }

    /// The mean loss over the rows at the best point so far, without the penalty.
    pub fn mean_loss(&self) -> f64 {
        (self.at.loss - self.penalised(&self.at.numbers)) / self.weight
    }

    /// The best head so far. Its predictions are probabilities.
    pub fn head(&self) -> Result<Head> {
        let (intercepts, coefficients) = self.uncentred(&self.at.numbers);
        let (outcome, penalty) = (self.outcome.clone(), self.penalty);
        Head::new(outcome, self.offset, intercepts, coefficients, Link::Softmax, penalty, None)
    }

    fn candidate(&self) -> Matrix<f64> {
        let Point { numbers, .. } = &self.at;
        Matrix::from_fn(numbers.rows(), numbers.columns(), |i, c| {
            numbers[(i, c)] + self.step * self.direction[(i, c)]
        })
    }

    fn penalised(&self, numbers: &Matrix<f64>) -> f64 {
        let squares: f64 =
            (1..numbers.rows()).map(|i| numbers.row(i).iter().map(|v| v * v).sum::<f64>()).sum();
        0.5 * self.penalty * squares
    }

    fn evaluated(&self, numbers: Matrix<f64>, pass: &LogisticPass) -> Point {
        let sums = pass.gradient();
        let gradient = Matrix::from_fn(numbers.rows(), numbers.columns(), |i, c| match i {
            0 => sums[(0, c)],
            _ => {
                let centred = sums[(i, c)] - self.means[i - 1] * sums[(0, c)];
                centred + self.penalty * numbers[(i, c)]
            }
        });
        let loss = pass.loss() + self.penalised(&numbers);
        Point { numbers, gradient, loss }
    }

    /// Coefficients of the columns as they come.
    fn uncentred(&self, numbers: &Matrix<f64>) -> (Vec<f64>, Matrix<f64>) {
        let (rows, classes) = numbers.shape();
        let coefficients = Matrix::from_fn(rows - 1, classes, |i, c| numbers[(i + 1, c)]);
        let moved =
            |c: usize| (0..rows - 1).map(|i| self.means[i] * numbers[(i + 1, c)]).sum::<f64>();
        ((0..classes).map(|c| numbers[(0, c)] - moved(c)).collect(), coefficients)
    }

    /// The direction of descent from the best point: the two loops of L-BFGS around the metric.
    fn descent(&self) -> Matrix<f64> {
        let mut q = self.at.gradient.clone();
        let mut factors = vec![];
        for (s, y) in self.memory.iter().rev() {
            let factor = inner(s, &q) / inner(s, y);
            add(&mut q, y, -factor);
            factors.push(factor);
        }
        let scale = self
            .memory
            .last()
            .map_or(1.0, |(s, y)| inner(s, y) / inner(y, &self.unmetric(y)).max(f64::MIN_POSITIVE));
        let mut r = self.unmetric(&q);
        r.as_mut_slice().iter_mut().for_each(|v| *v *= scale);
        for ((s, y), factor) in self.memory.iter().zip(factors.iter().rev()) {
            let other = inner(y, &r) / inner(s, y);
            add(&mut r, s, factor - other);
        }
        r.as_mut_slice().iter_mut().for_each(|v| *v = -*v);
        r
    }

    /// The inverse of the metric times a gradient.
    fn unmetric(&self, gradient: &Matrix<f64>) -> Matrix<f64> {
        let (rows, classes) = gradient.shape();
        let below = Matrix::from_fn(rows - 1, classes, |i, c| gradient[(i + 1, c)]);
        let solved = self.metric.solve(&below);
        Matrix::from_fn(rows, classes, |i, c| match i {
            0 => gradient[(0, c)] / (self.curvature * self.weight),
            _ => solved[(i - 1, c)] / self.curvature,
        })
    }
}

fn inner(a: &Matrix<f64>, b: &Matrix<f64>) -> f64 {
    crate::linalg::dot(a.as_slice(), b.as_slice())
}

fn difference(a: &Matrix<f64>, b: &Matrix<f64>) -> Matrix<f64> {
    let mut out = a.clone();
    add(&mut out, b, -1.0);
    out
}

fn add(to: &mut Matrix<f64>, what: &Matrix<f64>, factor: f64) {
    to.as_mut_slice().iter_mut().zip(what.as_slice()).for_each(|(t, w)| *t += factor * w);
}
