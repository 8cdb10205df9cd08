//! The linear algebra of heads: sums in, coefficients, squared errors and evidence out.

use super::gram::{Centred, Products};
use super::head::{Head, Link, Variance};
use super::{GramSums, Outcome};
use crate::linalg::{Cholesky, leading_product};
use crate::{Error, Matrix, Result};
use rayon::prelude::*;

/// Rounding in a squared error, as a share of the targets' squares: less than nothing by more is no error.
const ROUNDING: f64 = 1e-6;

/// Sums to learn from, centred.
pub(super) struct Training {
    means: Vec<f64>,
    target_means: Vec<f64>,
    centred: Centred,
}

impl Training {
    /// Of the first `size` columns after the intercept's.
    pub(super) fn new(products: &Products, size: usize) -> Result<Self> {
        if products.weight() <= 0.0 {
            return Err(Error::invalid("rows", "there are none of positive weight to learn from"));
        }
        let (mut means, target_means) = products.means();
        means.truncate(size);
        let centred = products.centred(&means, &target_means);
        Ok(Self { means, target_means, centred })
    }

    pub(super) fn factor(&self, penalty: f64) -> Result<Cholesky> {
        Cholesky::new(&self.centred.gram, penalty).ok_or_else(|| {
            let reason = format!("{penalty} is too small for features that depend on one another");
            Error::invalid("penalty", reason)
        })
    }

    /// The same by a penalty that was chosen from other sums: rounding in these may need a larger one, which
    /// is found in half decades.
    pub(super) fn factor_from(&self, penalty: f64) -> Result<(Cholesky, f64)> {
        let larger = (0..16).map(|k| penalty * 10_f64.powf(0.5 * f64::from(k)));
        let found = larger.map(|p| Some((Cholesky::new(&self.centred.gram, p)?, p)));
        match found.flatten().next() {
            Some(found) => Ok(found),
            None => Ok((self.factor(penalty)?, penalty)),
        }
    }

    /// The means of the columns, and their centred products with the targets.
    pub(super) fn into_parts(self) -> (Vec<f64>, Matrix<f64>) {
        (self.means, self.centred.cross)
    }

    /// Rows beyond the one that the mean takes.
    fn freedom(&self) -> f64 {
        (self.centred.weight - 1.0).max(f64::MIN_POSITIVE)
    }

    /// For each target what a Gaussian process leaves unexplained: `yᵀy − bᵀ(A + λ)⁻¹b`.
    fn residuals(&self, factor: &Cholesky) -> Vec<f64> {
        let z = factor.forward(&self.centred.cross);
        let explained = |t: usize| (0..z.rows()).map(|i| z[(i, t)] * z[(i, t)]).sum::<f64>();
        let squares = &self.centred.squares;
        let left = |(t, square): (usize, &f64)| (square - explained(t)).max(1e-15 * square.abs());
        squares.iter().enumerate().map(left).collect()
    }

    /// The logarithm of the marginal likelihood, up to a constant, with the noise that makes it largest.
    pub(super) fn evidence(&self, factor: &Cholesky, penalty: f64) -> f64 {
        let size = self.means.len() as f64;
        let volume = factor.log_determinant() - size * penalty.ln();
        let freedom = self.freedom();
        // A constant target says nothing of the penalty.
        let known = self.residuals(factor).into_iter().filter(|q| *q > 0.0);
        known.map(|q| -0.5 * (freedom * (q / freedom).ln() + volume)).sum()
    }

    /// The variance of the noise of each target, in its own units.
    pub(super) fn noise(&self, sums: &GramSums, factor: &Cholesky) -> Vec<f64> {
        let scale = |t: usize| match sums.outcome() {
            Outcome::Classes(_) => 1.0,
            Outcome::Numbers(scalings) => scalings[t].scale.powi(2),
        };
        let residuals = self.residuals(factor);
        residuals.iter().enumerate().map(|(t, q)| q / self.freedom() * scale(t)).collect()
    }

    pub(super) fn head(
        &self,
        sums: &GramSums,
        factor: &Cholesky,
        penalty: f64,
        variance: bool,
    ) -> Result<Head> {
        let coefficients = factor.solve(&self.centred.cross);
        if !coefficients.as_slice().iter().all(|v| v.is_finite()) {
            let reason = format!("{penalty} is too small for features that depend on one another");
            return Err(Error::invalid("penalty", reason));
        }
        let variance = variance.then(|| Variance {
            noise: self.residuals(factor).iter().map(|q| q / self.freedom()).collect(),
            weight: self.centred.weight,
            means: self.means.clone(),
            factor: factor.inverse_factor(),
        });
        Head::new(
            sums.outcome().clone(),
            sums.offset(),
            intercepts(&self.means, &self.target_means, &coefficients),
            coefficients,
            Link::Identity,
            penalty,
            variance,
        )
    }
}

/// `ȳ − φ̄ᵀβ`.
fn intercepts(means: &[f64], targets: &[f64], coefficients: &Matrix<f64>) -> Vec<f64> {
    let moved = |t: usize| (0..means.len()).map(|i| means[i] * coefficients[(i, t)]).sum::<f64>();
    targets.iter().enumerate().map(|(t, mean)| mean - moved(t)).collect()
}

/// The squared errors of the folds, each predicted from the others with one penalty, for some leading
/// numbers of columns.
#[derive(Debug, Clone)]
pub(super) struct FoldErrors {
    folds: Vec<FoldError>,
}

/// The squared errors of one fold.
#[derive(Debug, Clone)]
struct FoldError {
    /// Of each number of columns the error per target; `None` where rounding spoiled it.
    errors: Vec<Option<Vec<f64>>>,
    /// The error of predicting the mean.
    baseline: Vec<f64>,
}

impl FoldErrors {
    /// For each penalty; `None` for all if fewer than two folds have rows.
    pub(super) fn of(
        sums: &GramSums,
        sizes: &[usize],
        penalties: &[f64],
    ) -> Result<Vec<Option<Self>>> {
        let filled: Vec<usize> = (0..sums.folds()).filter(|&k| sums.fold_rows()[k] > 0).collect();
        if filled.len() < 2 {
            return Ok(vec![None; penalties.len()]);
        }
        let size = sizes.last().copied().unwrap_or(0);
        let one = |fold: usize| {
            let train = Training::new(&sums.products(Some(fold), size), size)?;
            let held = sums.fold_products(fold, size).centred(&train.means, &train.target_means);
            let each = penalties.par_iter().map(|penalty| FoldError {
                errors: train.errors(&held, sizes, *penalty),
                baseline: held.squares.clone(),
            });
            Ok(each.collect::<Vec<FoldError>>())
        };
        let found = filled.into_par_iter().map(one).collect::<Result<Vec<Vec<FoldError>>>>()?;
        let of = |k: usize| Self { folds: found.iter().map(|fold| fold[k].clone()).collect() };
        Ok((0..penalties.len()).map(|k| Some(of(k))).collect())
    }

    /// The explained share of all targets together, for one of the sizes; 0 if they are constant. `None`
    /// where it was not computed.
    pub(super) fn score(&self, size: usize) -> Option<f64> {
        Some(1.0 - self.shares(size)?.iter().sum::<f64>())
    }

    /// What each fold contributes to the share that is not explained.
    pub(super) fn shares(&self, size: usize) -> Option<Vec<f64>> {
        let baseline: f64 = self.folds.iter().flat_map(|f| &f.baseline).sum();
        let share = |fold: &FoldError| {
            let error: f64 = fold.errors.get(size)?.as_ref()?.iter().sum();
            // Constant targets are explained by nothing.
            Some(if baseline > 0.0 { error / baseline } else { 1.0 / self.folds.len() as f64 })
        };
        self.folds.iter().map(share).collect()
    }

    /// The explained share of each target, for one of the sizes.
    pub(super) fn target_scores(&self, size: usize) -> Vec<f64> {
        let errors: Option<Vec<&Vec<f64>>> =
            self.folds.iter().map(|f| f.errors.get(size)?.as_ref()).collect();
        let Some(errors) = errors else { return vec![] };
        let targets = self.folds.first().map_or(0, |f| f.baseline.len());
        let error = |t: usize| errors.iter().map(|e| e[t]).sum::<f64>();
        let baseline = |t: usize| self.folds.iter().map(|f| f.baseline[t]).sum::<f64>();
        (0..targets).map(|t| explained(error(t), baseline(t))).collect()
    }
}

fn explained(error: f64, baseline: f64) -> f64 {
    if baseline > 0.0 { 1.0 - error / baseline } else { 0.0 }
}

impl Training {
    /// The squared errors of heads of some leading columns on sums that were held out, centred as these are.
    fn errors(&self, held: &Centred, sizes: &[usize], penalty: f64) -> Vec<Option<Vec<f64>>> {
        let Ok(factor) = self.factor(penalty) else { return vec![None; sizes.len()] };
        let z = factor.forward(&self.centred.cross);
        let error = |size: &usize| {
            let beta = factor.backward(&z, *size);
            let gram_beta = leading_product(&held.gram, &beta);
            let one = |(t, square): (usize, &f64)| {
                let sum: f64 = (0..*size)
                    .map(|i| beta[(i, t)] * (gram_beta[(i, t)] - 2.0 * held.cross[(i, t)]))
                    .sum();
                let error = square + sum;
                // A target that is constant here has a square of nothing, but for rounding.
                let least = -ROUNDING * (square + ROUNDING * held.weight);
                (error.is_finite() && error >= least).then_some(error.max(0.0))
            };
            held.squares.iter().enumerate().map(one).collect::<Option<Vec<f64>>>()
        };
        sizes.iter().map(error).collect()
    }
}
