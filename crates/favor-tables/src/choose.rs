//! Which features a head gets: family, kernel and bandwidth, by the folds of the head on the sample.

use crate::bandwidth::of_setting;
use crate::model::{ModelInfo, standardised_rows};
use crate::states::Sample;
use crate::{Error, Result};
use favor::learn::{
    Basis, DEFAULT_FOLDS, Design, DesignSpec, GramSums, Head, KernelShape, Known, Outcome,
    RidgeOptions, head_bandwidths, learned_bandwidths,
};
use favor::{Family, Matrix, Moments, Rows};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Features of the trials: enough to rank bandwidths, few enough to be quick.
const TRIAL_FEATURES: usize = 256;

/// Features of a fit whose slopes make a metric, which needs more of them, and the most rounds of it.
const METRIC_FEATURES: usize = 1024;
const METRIC_ROUNDS: usize = 4;

/// Features that were tried on the sample.
///
/// ```
/// # fn example(choice: &favor_tables::FeatureChoice) {
/// for trial in &choice.candidates {
///     println!("bandwidth {:.3}: R² {:.4}", trial.bandwidth, trial.score);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FeatureTrial {
    /// Where the features come from.
    pub basis: Basis,
    /// Which kernel they stand for.
    pub shape: KernelShape,
    /// Its bandwidth.
    pub bandwidth: f64,
    /// Whether each number of the vectors has a bandwidth of its own, by how much it matters.
    pub learned_metric: bool,
    /// The score over the folds: R², for classes of their indicators.
    pub score: f64,
}

impl FeatureTrial {
    /// Before anything is known of it.
    fn new(basis: Basis, shape: KernelShape) -> Self {
        Self { basis, shape, bandwidth: 1.0, learned_metric: false, score: f64::NAN }
    }
}

/// What was tried before features were chosen.
///
/// ```
/// # fn example(model: &favor_tables::Model) {
/// if let Some(best) = model.info().choice.as_ref().and_then(|choice| choice.best()) {
///     println!("bandwidth {:.3}: R² {:.4}", best.bandwidth, best.score);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FeatureChoice {
    /// Rows of the sample.
    pub rows: usize,
    /// Features of each trial.
    pub features: usize,
    /// All that was tried, in order.
    pub candidates: Vec<FeatureTrial>,
}

impl FeatureChoice {
    /// The candidate with the highest score, the first of equal ones.
    pub fn best(&self) -> Option<&FeatureTrial> {
        self.kinds().first().copied()
    }

    /// The best of each kind of features, by score.
    pub(crate) fn kinds(&self) -> Vec<&FeatureTrial> {
        let mut best: Vec<&FeatureTrial> = vec![];
        for candidate in &self.candidates {
            let kind = |c: &FeatureTrial| (c.basis, c.shape, c.learned_metric);
            match best.iter_mut().find(|c| kind(c) == kind(candidate)) {
                Some(own) if own.score < candidate.score => *own = candidate,
                Some(_) => {}
                None => best.push(candidate),
            }
        }
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        best
    }
}

/// Features and a head on them, fitted to the sample.
struct Fitted {
    design: Design,
    head: Head,
    score: f64,
}

/// The sample as a head sees it.
pub(crate) struct Trials<'a> {
    pub(crate) moments: &'a Moments,
    pub(crate) rows: Matrix<f64>,
    pub(crate) weights: Vec<f64>,
    pub(crate) folds: Vec<u8>,
    pub(crate) outcome: Outcome,
    pub(crate) truth: Truth,
}

/// What is known of the rows of the sample.
pub(crate) enum Truth {
    Classes(Vec<usize>),
    Numbers(Vec<f64>),
}

impl Truth {
    pub(crate) fn known(&self) -> Result<Known<'_>> {
        Ok(match self {
            Self::Classes(classes) => Known::Classes(classes),
            Self::Numbers(values) => Known::Numbers(Rows::new(values, values.len(), 1)?),
        })
    }
}

impl<'a> Trials<'a> {
    /// The sample of a table whose classes have these labels.
    pub(crate) fn new(
        info: &ModelInfo,
        labels: &[String],
        moments: &'a Moments,
        sample: &Sample,
    ) -> Result<Self> {
        let (rows, weights) = standardised_rows(&info.encoder, sample);
        let folds = sample.items.values().map(|item| item.fold).collect();
        let (outcome, truth) = match info.target_scaling {
            Some(scaling) => {
                let values = sample.items.values().map(|item| item.value).collect();
                (Outcome::Numbers(vec![scaling]), Truth::Numbers(values))
            }
            None => {
                let class = |label: &String| labels.iter().position(|l| l == label);
                let of: Option<Vec<usize>> = sample.items.keys().map(|(_, l)| class(l)).collect();
                let of = of.ok_or_else(|| Error::query("a sample of other labels"))?;
                (Outcome::Classes(labels.len()), Truth::Classes(of))
            }
        };
        Ok(Self { moments, rows, weights, folds, outcome, truth })
    }

    /// Scores candidates, several at once, by a ridge head on the features of `trial`. Those whose score cannot
    /// be told are left out: a file cannot hold NaN.
    fn scored(
        &self,
        candidates: Vec<FeatureTrial>,
        trial: &(dyn Fn(&FeatureTrial) -> DesignSpec + Sync),
    ) -> Result<Vec<FeatureTrial>> {
        let one = |mut candidate: FeatureTrial| {
            let (_, sums) = self.summed(&trial(&candidate))?;
            let found = sums.score()?.filter(|found| found.score.is_finite());
            Ok(found.map(|found| {
                candidate.score = found.score;
                candidate
            }))
        };
        let found = candidates.into_par_iter().map(one).collect::<Result<Vec<_>>>()?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The features of a spec and their sums over the sample.
    fn summed(&self, spec: &DesignSpec) -> Result<(Design, GramSums)> {
        let design = spec.fit(self.moments, self.rows.view()).map_err(of_setting)?;
        let mut sums = GramSums::new(&design, self.outcome.clone(), DEFAULT_FOLDS)?;
        let (rows, known) = (self.rows.view(), self.truth.known()?);
        sums.add(&design, rows, known, Some(&self.weights), Some(&self.folds))?;
        Ok((design, sums))
    }

    /// The design with a bandwidth for each number of the vectors, inverse to the slope of the fitted
    /// function along it, where the folds find it better than one bandwidth. Slopes are those of the best
    /// design so far, so that a round begins where the one before ended.
    pub(crate) fn learn_metric(
        &self,
        spec: DesignSpec,
        choice: &mut FeatureChoice,
    ) -> Result<DesignSpec> {
        let (basis, shape) = (spec.basis, spec.shape);
        let width = spec.bandwidth_of(0);
        let mut best = self.fitted(spec.clone().features(METRIC_FEATURES.min(spec.features)))?;
        let mut widening = 1.0;
        for _ in 0..METRIC_ROUNDS {
            let slopes = best.head.slopes(&best.design, self.rows.view(), Some(&self.weights))?;
            let stretched =
                learned_bandwidths(&best.design.spec().clone().bandwidth(width), &slopes);
            let mut better = None;
            for factor in [1.0, 0.6, 1.7].map(|f| f * widening) {
                let scaled = stretched.bandwidths.iter().map(|b| factor * b).collect();
                let trial = self.fitted(stretched.clone().bandwidths(scaled))?;
                let score = trial.score;
                if score.is_finite() {
                    choice.candidates.push(FeatureTrial {
                        bandwidth: factor * width,
                        learned_metric: true,
                        score,
                        ..FeatureTrial::new(basis, shape)
                    });
                }
                if score > best.score {
                    (best, better) = (trial, Some(factor));
                }
            }
            match better {
                Some(factor) => widening = factor,
                None => break,
            }
        }
        Ok(best.design.spec().clone().features(spec.features))
    }

    /// A ridge head on features of a spec, with its score over the folds.
    fn fitted(&self, spec: DesignSpec) -> Result<Fitted> {
        let (design, sums) = self.summed(&spec)?;
        let fit = sums.ridge(&RidgeOptions::default())?;
        let score = fit.report.score.unwrap_or(f64::NEG_INFINITY);
        Ok(Fitted { design, head: fit.head, score })
    }

    /// The best of families, kernels and bandwidths; what is given is not chosen. `spec` has the rest.
    pub(crate) fn choose(
        &self,
        spec: &DesignSpec,
        basis: Option<Basis>,
        shape: Option<KernelShape>,
        bandwidth: Option<f64>,
    ) -> Result<(DesignSpec, FeatureChoice)> {
        let features = TRIAL_FEATURES.min(spec.features);
        let mut choice = FeatureChoice { rows: self.rows.rows(), features, candidates: vec![] };
        let with =
            |c: &FeatureTrial| spec.clone().basis(c.basis).shape(c.shape).bandwidth(c.bandwidth);
        // A linear part of many columns would cost more than the features that are compared.
        let linear = spec.linear && 4 * self.moments.dim() <= features;
        let trial = |c: &FeatureTrial| with(c).features(features).linear(linear);
        let kinds = kinds(basis, shape);
        if let ([(basis, shape)], Some(bandwidth)) = (&kinds[..], bandwidth) {
            let only = FeatureTrial { bandwidth, ..FeatureTrial::new(*basis, *shape) };
            return Ok((with(&only), choice));
        }
        let variance = self.moments.covariance();
        let total: f64 = (0..self.moments.dim()).map(|l| variance[(l, l)]).sum();
        // Encoded columns differ in variance: the root of their total is what √d is to standardised ones.
        let unit = total.max(f64::MIN_POSITIVE).sqrt();
        let mut best: Option<f64> = None;
        for (basis, shape) in kinds {
            let widths = match (bandwidth, best) {
                (Some(bandwidth), _) => vec![bandwidth],
                // The whole grid, then once more between the best and its neighbours.
                (None, None) => head_bandwidths(1).iter().map(|g| rounded(g * unit)).collect(),
                // Near what was best so far.
                (None, Some(near)) => [1.0, 0.6, 1.7].map(|f| rounded(f * near)).to_vec(),
            };
            let candidate =
                |bandwidth| FeatureTrial { bandwidth, ..FeatureTrial::new(basis, shape) };
            let score =
                |widths: Vec<f64>| self.scored(widths.into_iter().map(candidate).collect(), &trial);
            let mut tried = score(widths)?;
            if bandwidth.is_none() {
                tried.extend(score(between(&tried))?);
            }
            choice.candidates.extend(tried);
            best = choice.best().map(|c| c.bandwidth);
        }
        let chosen = choice.best().map(with);
        Ok((chosen.unwrap_or_else(|| spec.clone()), choice))
    }
}

/// Three figures are enough, and what rounding did to the moments is not seen.
fn rounded(bandwidth: f64) -> f64 {
    let unit = 10_f64.powi(bandwidth.log10().floor() as i32 - 2);
    (bandwidth / unit).round() * unit
}

/// Two more bandwidths: between the best and its neighbours, or beyond it at an end.
fn between(tried: &[FeatureTrial]) -> Vec<f64> {
    let mut widths: Vec<f64> = tried.iter().map(|c| c.bandwidth).collect();
    widths.sort_by(f64::total_cmp);
    let best = tried.iter().rev().max_by(|a, b| a.score.total_cmp(&b.score));
    let Some(best) = best.map(|c| c.bandwidth) else { return vec![] };
    let at = widths.iter().position(|w| *w == best).unwrap_or(0);
    let below = at.checked_sub(1).map_or(0.6 * best, |k| widths[k]);
    let above = widths.get(at + 1).map_or(1.7 * best, |w| *w);
    [below, above].map(|other| rounded((other * best).sqrt())).to_vec()
}

/// The families and kernels to try. Kernels other than the Gaussian have no positive features.
fn kinds(basis: Option<Basis>, shape: Option<KernelShape>) -> Vec<(Basis, KernelShape)> {
    let (trig, balanced) = (Basis::Random(Family::Trig), Basis::Random(Family::Balanced));
    let all = [
        (Basis::Nystrom, KernelShape::Gaussian),
        (Basis::Nystrom, KernelShape::Laplace),
        (Basis::Nystrom, KernelShape::Matern32),
        (Basis::Nystrom, KernelShape::Matern52),
        (trig, KernelShape::Gaussian),
        (trig, KernelShape::Laplace),
        (trig, KernelShape::Matern32),
        (trig, KernelShape::Matern52),
        (balanced, KernelShape::Gaussian),
    ];
    let usual = [all[0], all[1], all[4], all[8]];
    match (basis, shape) {
        (None, None) => usual.to_vec(),
        (Some(basis), Some(shape)) => vec![(basis, shape)],
        (None, Some(shape)) => all.into_iter().filter(|(_, s)| *s == shape).collect(),
        (Some(basis), None) => {
            let of: Vec<_> = usual.into_iter().filter(|(b, _)| *b == basis).collect();
            if of.is_empty() { vec![(basis, KernelShape::Gaussian)] } else { of }
        }
    }
}
