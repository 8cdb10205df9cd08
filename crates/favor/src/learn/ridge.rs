//! Ridge regression from sums: the penalty by folds, and what fewer features would have given.
//!
//! With the columns of the design centred, `A = ΦᵀΦ` and `b = Φᵀy`, the coefficients are
//! `(A + λI)⁻¹ b` and the intercept is not penalised. Fold k is predicted by the sums of the others, and
//! its squared error is `yᵀy − 2βᵀb + βᵀAβ` in its own sums: exact cross-validation without another pass.
//! One triangle `L Lᵀ = A + λI` serves every number of features, since that of the first m is its
//! leading block.

use super::solve::{FoldErrors, Training};
use super::{GramSums, Head};
use crate::{Error, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The fewest features of a curve.
const FIRST: usize = 32;

/// Errors that differ by less than this share are the same.
const SAME: f64 = 1e-4;

/// How the penalty λ is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub enum Penalty {
    /// The least squared error over the folds.
    #[default]
    Folds,
    /// The largest marginal likelihood of a Gaussian process with the same features.
    Evidence,
    /// A given one, in the units of `Σφφᵀ`: that of scikit-learn's `Ridge`.
    Fixed(f64),
}

/// How to fit.
///
/// ```
/// use favor::learn::{Penalty, RidgeOptions};
/// let options = RidgeOptions::default().penalty(Penalty::Fixed(0.1)).features(Some(256));
/// assert_eq!(options.features, Some(256));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct RidgeOptions {
    /// How the penalty is chosen.
    pub penalty: Penalty,
    /// Only the first so many features; all when `None`.
    pub features: Option<usize>,
}

impl RidgeOptions {
    /// Another way to choose the penalty.
    #[must_use]
    pub fn penalty(self, penalty: Penalty) -> Self {
        Self { penalty, ..self }
    }

    /// Only the first so many features; all when `None`.
    #[must_use]
    pub fn features(self, features: Option<usize>) -> Self {
        Self { features, ..self }
    }
}

/// How well a design does with its best penalty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FoldScore {
    /// The penalty λ.
    pub penalty: f64,
    /// The share of the targets' variance that the folds' predictions explain.
    pub score: f64,
}

/// A fitted head and how it was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct RidgeFit {
    /// What predicts.
    pub head: Head,
    /// How it was chosen.
    pub report: RidgeReport,
}

/// How a head was chosen. Scores are shares of the targets' variance that the folds' predictions
/// explain: R² for numbers.
///
/// ```
/// use favor::learn::{DesignSpec, GramSums, Known, Outcome, RidgeOptions, RidgeReport, Scaling};
/// use favor::{Matrix, Moments};
/// let rows = Matrix::from_fn(500, 1, |i, _| (i as f64 * 0.37).sin());
/// let y = Matrix::from_fn(500, 1, |i, _| (3.0 * rows[(i, 0)]).cos());
/// let design = DesignSpec::new(64).bandwidth(0.7).fit(&Moments::of(rows.view())?, rows.view())?;
/// let mut sums = GramSums::new(&design, Outcome::Numbers(vec![Scaling::IDENTITY]), 4)?;
/// sums.add(&design, rows.view(), Known::Numbers(y.view()), None, None)?;
/// let report: RidgeReport = sums.ridge(&RidgeOptions::default())?.report;
/// assert!(report.score.unwrap() > 0.99 && report.penalties.len() > 1);
/// assert!(!report.curve.is_empty());
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RidgeReport {
    /// The penalty λ.
    pub penalty: f64,
    /// The score over the folds with it; `None` if fewer than two folds have rows.
    pub score: Option<f64>,
    /// The same for each target.
    pub target_scores: Vec<f64>,
    /// The score of the first m features, m = 32, 64, … and all, each with its best penalty.
    pub curve: Vec<CurvePoint>,
    /// All penalties that were tried, in ascending order.
    pub penalties: Vec<PenaltyPoint>,
    /// The score that twice as many features would have, if the curve goes on as it goes.
    pub doubled: Option<f64>,
    /// The variance of what is not explained, for each target in its own units.
    pub noise: Vec<f64>,
}

/// The score of some leading features.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Their number.
    pub features: usize,
    /// Their best penalty.
    pub penalty: f64,
    /// The score over the folds.
    pub score: f64,
}

/// The scores of a penalty with all features.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PenaltyPoint {
    /// The penalty.
    pub penalty: f64,
    /// The score over the folds. `None` if it was not computed, or if rounding spoiled it.
    pub score: Option<f64>,
    /// The logarithm of the marginal likelihood, up to a constant, where it was computed.
    pub evidence: Option<f64>,
}

impl GramSums {
    /// Fits a ridge head.
    pub fn ridge(&self, options: &RidgeOptions) -> Result<RidgeFit> {
        self.fit(options, false)
    }

    /// The score over the folds with the best penalty, without a head: enough to compare designs. `None` if
    /// fewer than two folds have rows.
    pub fn score(&self) -> Result<Option<FoldScore>> {
        let size = self.columns(None)?;
        let sizes = sizes(self.offset() - 1, size);
        let last = sizes.len() - 1;
        let mut tried = Tried { points: vec![] };
        tried.search(self, &sizes, self.unit(size))?;
        let best = tried.best_score(last);
        let best = tried.points.iter().find(|p| Some(p.penalty) == best);
        Ok(best.and_then(|p| Some(FoldScore { penalty: p.penalty, score: p.score(last)? })))
    }

    /// Fits a Gaussian process with the same features: the mean is a ridge head's, and the head knows its
    /// variance. The noise, and the penalty unless it is given, have the largest marginal likelihood.
    ///
    /// ```
    /// use favor::learn::{DesignSpec, GramSums, Known, Outcome, RidgeOptions, Scaling};
    /// use favor::{Matrix, Moments};
    /// let rows = Matrix::from_fn(500, 1, |i, _| (i as f64 * 0.37).sin());
    /// let noise = |i: usize| 0.1 * (7.3 * i as f64 * i as f64).sin();
    /// let y = Matrix::from_fn(500, 1, |i, _| (3.0 * rows[(i, 0)]).cos() + noise(i));
    /// let design = DesignSpec::new(32).fit(&Moments::of(rows.view())?, rows.view())?;
    /// let mut sums = GramSums::new(&design, Outcome::Numbers(vec![Scaling::IDENTITY]), 4)?;
    /// sums.add(&design, rows.view(), Known::Numbers(y.view()), None, None)?;
    /// let head = sums.gp(&RidgeOptions::default())?.head;
    /// let (_, deviation) = head.predict_with_deviation(&design, rows.view())?;
    /// assert!((deviation[(0, 0)] - 0.1 / 2_f64.sqrt()).abs() < 0.01);
    /// # Ok::<(), favor::Error>(())
    /// ```
    pub fn gp(&self, options: &RidgeOptions) -> Result<RidgeFit> {
        let penalty = match options.penalty {
            Penalty::Folds => Penalty::Evidence,
            given => given,
        };
        self.fit(&options.penalty(penalty), true)
    }

    /// The heads of cross-validation: the k-th is fitted without fold k, so that the rows of fold k are new
    /// to it. With `variance` they know theirs, as [`gp`](Self::gp)'s does.
    pub fn cross_fit(
        &self,
        penalty: f64,
        features: Option<usize>,
        variance: bool,
    ) -> Result<Vec<Head>> {
        let size = self.columns(features)?;
        check_penalty(penalty)?;
        let one = |fold: usize| {
            let train = Training::new(&self.products(Some(fold), size), size)?;
            let (factor, penalty) = train.factor_from(penalty)?;
            train.head(self, &factor, penalty, variance)
        };
        (0..self.folds()).into_par_iter().map(one).collect()
    }

    fn fit(&self, options: &RidgeOptions, variance: bool) -> Result<RidgeFit> {
        let size = self.columns(options.features)?;
        if self.outcome().width() == 0 {
            return Err(Error::invalid("targets", "there are none to predict"));
        }
        let train = Training::new(&self.products(None, size), size)?;
        let sizes = sizes(self.offset() - 1, size);
        let last = sizes.len() - 1;
        let unit = self.unit(size);
        let mut tried = Tried { points: vec![] };
        let penalty = match options.penalty {
            Penalty::Fixed(penalty) => {
                check_penalty(penalty)?;
                tried.by_folds(self, &sizes, &[penalty])?;
                penalty
            }
            Penalty::Folds => {
                tried.search(self, &sizes, unit)?;
                tried.best_score(last).unwrap_or(unit)
            }
            Penalty::Evidence => {
                tried.by_evidence(&train, &GRID.map(|k| at_step(unit, k)));
                for step in [0.5, 0.25] {
                    let best = tried.best(|p| p.evidence).unwrap_or(unit);
                    tried.by_evidence(&train, &around(best, step));
                }
                let best = tried.best(|p| p.evidence).unwrap_or(unit);
                tried.by_folds(self, &sizes, &[best])?;
                best
            }
        };
        let (factor, penalty) = match options.penalty {
            Penalty::Fixed(_) => (train.factor(penalty)?, penalty),
            Penalty::Folds | Penalty::Evidence => train.factor_from(penalty)?,
        };
        let head = train.head(self, &factor, penalty, variance)?;
        let report = tried.report(&sizes, self.offset() - 1, penalty, train.noise(self, &factor));
        Ok(RidgeFit { head, report })
    }

    /// Columns of the design without the first, for so many features.
    fn columns(&self, features: Option<usize>) -> Result<usize> {
        let all = self.features();
        match features.unwrap_or(all) {
            m if m == 0 || m > all => {
                Err(Error::invalid("features", format!("{m} where there are {all}")))
            }
            m => Ok(self.offset() - 1 + m),
        }
    }
}

/// An error unless the penalty is a number of at least zero.
pub(super) fn check_penalty(penalty: f64) -> Result<()> {
    if penalty.is_finite() && penalty >= 0.0 {
        return Ok(());
    }
    Err(Error::invalid("penalty", format!("{penalty} is not a number ≥ 0")))
}

/// Penalties from 10⁻⁸ to 10⁴ times the mean squared norm of the features, in half decades: one per decade.
const GRID: [i32; 13] = [-16, -14, -12, -10, -8, -6, -4, -2, 0, 2, 4, 6, 8];

/// The penalty so many half decades above a unit.
fn at_step(unit: f64, step: i32) -> f64 {
    unit * 10_f64.powf(0.5 * f64::from(step))
}

/// Penalties so many decades below and above.
fn around(penalty: f64, decades: f64) -> [f64; 2] {
    [penalty * 10_f64.powf(-decades), penalty * 10_f64.powf(decades)]
}

/// Columns of the designs of a curve: `before` of the linear part, and 32, 64, … or all features.
fn sizes(before: usize, size: usize) -> Vec<usize> {
    let doubling = std::iter::successors(Some(FIRST), |m| Some(2 * m));
    doubling.map(|m| before + m).take_while(|s| *s < size).chain([size]).collect()
}

/// A penalty and what was found out about it.
struct Point {
    penalty: f64,
    errors: Option<FoldErrors>,
    evidence: Option<f64>,
}

impl Point {
    /// The score with one of the numbers of columns.
    fn score(&self, size: usize) -> Option<f64> {
        self.errors.as_ref()?.score(size)
    }
}

struct Tried {
    points: Vec<Point>,
}

impl Tried {
    fn at(&mut self, penalty: f64) -> &mut Point {
        let place = self.points.partition_point(|p| p.penalty < penalty);
        if self.points.get(place).is_none_or(|p| p.penalty != penalty) {
            self.points.insert(place, Point { penalty, errors: None, evidence: None });
        }
        &mut self.points[place]
    }

    fn by_folds(&mut self, sums: &GramSums, sizes: &[usize], penalties: &[f64]) -> Result<()> {
        for (penalty, errors) in penalties.iter().zip(FoldErrors::of(sums, sizes, penalties)?) {
            self.at(*penalty).errors = errors;
        }
        Ok(())
    }

    /// Looks for the best penalty of each number of columns: a decade at a time from that of the number
    /// before, which costs an eighth; of all columns also to half a decade. The least number begins with the
    /// whole grid.
    fn search(&mut self, sums: &GramSums, sizes: &[usize], unit: f64) -> Result<()> {
        let mut best: Option<i32> = None;
        for s in 0..sizes.len() {
            let mut known: Vec<i32> = vec![];
            let mut next: Vec<i32> = best.map_or(GRID.to_vec(), |b| vec![b - 2, b, b + 2]);
            loop {
                next.retain(|k| (GRID[0]..=GRID[GRID.len() - 1]).contains(k) && !known.contains(k));
                if next.is_empty() {
                    break;
                }
                let penalties: Vec<f64> = next.iter().map(|k| at_step(unit, *k)).collect();
                self.by_folds(sums, &sizes[..=s], &penalties)?;
                known.append(&mut next);
                let found = self.best_score(s);
                best = known.iter().copied().find(|k| Some(at_step(unit, *k)) == found);
                // Where rounding spoiled what was tried, anything may do.
                next = best.map_or(GRID.to_vec(), |b| vec![b - 2, b + 2]);
            }
        }
        match best {
            Some(best) => {
                self.by_folds(sums, sizes, &[best - 1, best + 1].map(|k| at_step(unit, k)))
            }
            None => Ok(()),
        }
    }

    fn by_evidence(&mut self, train: &Training, penalties: &[f64]) {
        let evidence = |p: &f64| train.factor(*p).ok().map(|factor| train.evidence(&factor, *p));
        let found: Vec<Option<f64>> = penalties.par_iter().map(evidence).collect();
        for (penalty, evidence) in penalties.iter().zip(found) {
            self.at(*penalty).evidence = evidence;
        }
    }

    /// The penalty of the largest value; of equal ones the largest, which is the safest.
    fn best(&self, value: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
        let known = self.points.iter().filter_map(|p| Some((p.penalty, value(p)?)));
        known.reduce(|best, p| if p.1 >= best.1 { p } else { best }).map(|(penalty, _)| penalty)
    }

    /// The penalty of the best score. Of those that leave as good as the same unexplained it is the largest,
    /// whose solution rounding changes least.
    fn best_score(&self, size: usize) -> Option<f64> {
        let top = self.points.iter().filter_map(|p| p.score(size)).reduce(f64::max)?;
        let enough = top - SAME * (1.0 - top).max(0.0);
        let good = |p: &&Point| p.score(size).is_some_and(|s| s >= enough);
        self.points.iter().rev().find(good).map(|p| p.penalty)
    }

    fn report(&self, sizes: &[usize], before: usize, penalty: f64, noise: Vec<f64>) -> RidgeReport {
        let chosen = self.points.iter().find(|p| p.penalty == penalty);
        let errors = chosen.and_then(|p| p.errors.as_ref());
        let curve: Vec<CurvePoint> = sizes
            .iter()
            .enumerate()
            .filter_map(|(s, size)| {
                let penalty = self.best_score(s)?;
                let score = self.points.iter().find(|p| p.penalty == penalty)?.score(s)?;
                Some(CurvePoint { features: size - before, penalty, score })
            })
            .collect();
        let last = sizes.len() - 1;
        let point = |p: &Point| {
            let (penalty, score, evidence) = (p.penalty, p.score(last), p.evidence);
            PenaltyPoint { penalty, score, evidence }
        };
        RidgeReport {
            penalty,
            score: errors.and_then(|e| e.score(last)),
            target_scores: errors.map_or(vec![], |e| e.target_scores(last)),
            doubled: doubled(&curve),
            curve,
            penalties: self.points.iter().map(point).collect(),
            noise,
        }
    }
}

/// The score after one more doubling, if each doubling goes on to gain as much less than the one before.
fn doubled(curve: &[CurvePoint]) -> Option<f64> {
    let [.., a, b, c] = curve else { return None };
    if c.features != 2 * b.features || b.features != 2 * a.features {
        return None;
    }
    let (before, last) = (b.score - a.score, c.score - b.score);
    let ratio = if before > 0.0 && last > 0.0 { (last / before).min(1.0) } else { 0.0 };
    Some((c.score + ratio * last).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_on_as_it_went() {
        let point = |features, score| CurvePoint { features, penalty: 1.0, score };
        let curve = [point(32, 0.4), point(64, 0.6), point(128, 0.7)];
        assert!((doubled(&curve).unwrap() - 0.75).abs() < 1e-12);
        // No gain promised where there was none, or where numbers did not double.
        assert_eq!(doubled(&[point(32, 0.4), point(64, 0.6), point(128, 0.5)]), Some(0.5));
        assert_eq!(doubled(&[point(32, 0.4), point(64, 0.6), point(100, 0.7)]), None);
        assert_eq!(doubled(&curve[1..]), None);
        assert_eq!(sizes(3, 203), [35, 67, 131, 203]);
        assert_eq!(sizes(0, 20), [20]);
        assert_eq!(sizes(0, 64), [32, 64]);
    }
}
