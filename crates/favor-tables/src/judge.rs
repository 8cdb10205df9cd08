//! How good predictions are, row by row in flat memory; and what rows of the sample say of heads that
//! have not seen their fold.

use crate::Result;
use crate::choose::{Trials, Truth};
use crate::head::TableHead;
use crate::model::{Linear, ModelInfo};
use crate::normal::normal_quantile;
use favor::learn::metrics::ReliabilityBin;
use favor::learn::{HeadKind, Task, argmax};
use serde::{Deserialize, Serialize};

/// The intervals whose coverage is measured, in percent.
pub(crate) const INTERVALS: [f64; 3] = [50.0, 80.0, 95.0];

/// Probabilities that are judged together.
const BINS: usize = 15;

/// How good predictions are; what does not apply is missing.
///
/// ```
/// # fn example(model: &favor_tables::Model) {
/// if let Some(accuracy) = model.info().judgement.as_ref().and_then(|found| found.accuracy) {
///     println!("accuracy {accuracy:.3}");
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Judgement {
    /// Rows that were judged.
    pub rows: u64,
    /// Classes: the share of right ones.
    pub accuracy: Option<f64>,
    /// Classes: the mean negative logarithm of the probability of the right one.
    pub log_loss: Option<f64>,
    /// Classes: the mean squared error of the probabilities, summed over the classes.
    pub brier: Option<f64>,
    /// Two classes: the area under the receiver operating characteristic.
    pub auc: Option<f64>,
    /// Classes: the mean distance of probabilities from frequencies.
    pub calibration_error: Option<f64>,
    /// Classes: probabilities and frequencies.
    pub reliability: Vec<ReliabilityBin>,
    /// Numbers: the root of the mean squared error.
    pub rmse: Option<f64>,
    /// Numbers: the explained share of the variance.
    pub r2: Option<f64>,
    /// Gaussian processes: intervals in percent, and the share of targets inside of them.
    pub coverage: Vec<(f64, f64)>,
}

/// Judges predictions of classes as they come.
#[derive(Debug, Default)]
pub(crate) struct ClassJudge {
    rows: u64,
    weight: f64,
    right: f64,
    log_loss: f64,
    brier: f64,
    /// Sums of weight, probability and truth.
    bins: Vec<[f64; 3]>,
    /// Of two classes: the weight of either by the probability of the second.
    scores: Vec<[f64; 2]>,
}

/// Where a probability stands among those of 32-bit numbers, 11 bits after the first.
fn rank(p: f64) -> usize {
    (p.clamp(0.0, 1.0) as f32).to_bits() as usize >> 12
}

impl ClassJudge {
    pub(crate) fn add(&mut self, probabilities: &[f64], class: usize, weight: f64) {
        let first = argmax(probabilities);
        self.rows += 1;
        self.weight += weight;
        self.right += if first == class { weight } else { 0.0 };
        // As usual, no probability is nearer to 0 than rounding of 64-bit numbers lets it be.
        self.log_loss -= weight * probabilities[class].max(f64::EPSILON).ln();
        let square = |(c, p): (usize, &f64)| (p - f64::from(u8::from(c == class))).powi(2);
        self.brier += weight * probabilities.iter().enumerate().map(square).sum::<f64>();
        let (p, came) = match probabilities {
            [_, p] => (*p, class == 1),
            _ => (probabilities[first], first == class),
        };
        self.bins.resize(BINS, [0.0; 3]);
        let bin = &mut self.bins[((p * BINS as f64) as usize).min(BINS - 1)];
        let came = f64::from(u8::from(came));
        bin.iter_mut().zip([1.0, p, came]).for_each(|(b, v)| *b += weight * v);
        if probabilities.len() == 2 {
            self.scores.resize(rank(1.0) + 1, [0.0; 2]);
            self.scores[rank(p)][class] += weight;
        }
    }

    /// The probability that a row of the second class has a higher one than a row of the first.
    fn auc(&self) -> Option<f64> {
        let total: [f64; 2] = [0, 1].map(|c| self.scores.iter().map(|s| s[c]).sum());
        let (mut below, mut area) = (0.0, 0.0);
        for [first, second] in &self.scores {
            area += second * (below + 0.5 * first);
            below += first;
        }
        (total[0] > 0.0 && total[1] > 0.0).then(|| area / (total[0] * total[1]))
    }

    pub(crate) fn finish(&self) -> Judgement {
        let mean = |sum: f64| (self.weight > 0.0).then(|| sum / self.weight);
        let filled = self.bins.iter().filter(|b| b[0] > 0.0);
        let reliability: Vec<ReliabilityBin> = filled
            .map(|b| ReliabilityBin {
                weight: b[0],
                probability: b[1] / b[0],
                frequency: b[2] / b[0],
            })
            .collect();
        let off = |r: &ReliabilityBin| r.weight * (r.probability - r.frequency).abs();
        Judgement {
            rows: self.rows,
            accuracy: mean(self.right),
            log_loss: mean(self.log_loss),
            brier: mean(self.brier),
            auc: self.auc(),
            calibration_error: mean(reliability.iter().map(off).sum()),
            reliability,
            ..Judgement::default()
        }
    }
}

/// Judges predictions of numbers as they come.
#[derive(Debug, Default)]
pub(crate) struct NumberJudge {
    rows: u64,
    weight: f64,
    squares: f64,
    /// The running mean of the truth and the sum of squares around it.
    centre: f64,
    scatter: f64,
    inside: [f64; 3],
    has_deviations: bool,
}

impl NumberJudge {
    pub(crate) fn add(&mut self, value: f64, deviation: Option<f64>, truth: f64, weight: f64) {
        self.rows += 1;
        self.weight += weight;
        self.squares += weight * (value - truth).powi(2);
        let step = truth - self.centre;
        self.centre += step * weight / self.weight.max(f64::MIN_POSITIVE);
        self.scatter += weight * step * (truth - self.centre);
        let Some(deviation) = deviation else { return };
        self.has_deviations = true;
        for (inside, percent) in self.inside.iter_mut().zip(INTERVALS) {
            if (value - truth).abs() <= deviation * interval(percent) {
                *inside += weight;
            }
        }
    }

    pub(crate) fn finish(&self) -> Judgement {
        let some = self.weight > 0.0;
        let coverage = INTERVALS.into_iter().zip(self.inside.map(|i| i / self.weight));
        Judgement {
            rows: self.rows,
            rmse: some.then(|| (self.squares / self.weight).sqrt()),
            r2: some.then(|| 1.0 - self.squares / self.scatter.max(f64::MIN_POSITIVE)),
            coverage: coverage.filter(|_| self.has_deviations).collect(),
            ..Judgement::default()
        }
    }
}

/// How many deviations an interval of so many percent goes to either side.
pub(crate) fn interval(percent: f64) -> f64 {
    normal_quantile(0.5 + percent / 200.0)
}

/// Judges the head on rows of the sample, each by a head that has not seen its fold.
pub(crate) fn of_sample(
    info: &ModelInfo,
    linear: &Linear,
    trials: &Trials<'_>,
) -> Result<Judgement> {
    let variance = info.head == TableHead::Linear(HeadKind::Gp);
    let heads = linear.sums.cross_fit(linear.head.penalty(), None, variance)?;
    let (mut classes, mut numbers) = (ClassJudge::default(), NumberJudge::default());
    for (fold, head) in heads.iter().enumerate() {
        let chosen: Vec<usize> =
            (0..trials.rows.rows()).filter(|i| usize::from(trials.folds[*i]) == fold).collect();
        if chosen.is_empty() {
            continue;
        }
        let rows = favor::Matrix::from_fn(chosen.len(), trials.rows.columns(), |i, l| {
            trials.rows[(chosen[i], l)] as f32
        });
        let (mut values, deviations) = if head.has_variance() {
            let (values, deviations) = head.predict_with_deviation(&linear.design, rows.view())?;
            (values, Some(deviations))
        } else {
            (head.predict(&linear.design, rows.view())?, None)
        };
        linear.finish(&mut values);
        for (r, &i) in chosen.iter().enumerate() {
            let weight = trials.weights[i];
            match &trials.truth {
                Truth::Classes(of) => classes.add(values.row(r), of[i], weight),
                Truth::Numbers(of) => {
                    let deviation = deviations.as_ref().map(|d| d[(r, 0)]);
                    numbers.add(values[(r, 0)], deviation, of[i], weight);
                }
            }
        }
    }
    Ok(if info.task == Task::Classify { classes.finish() } else { numbers.finish() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_and_losses_are_those_of_their_definitions() {
        let p = [0.1, 0.4, 0.35, 0.8, 0.4];
        let class = [0, 0, 1, 1, 1];
        let mut judge = ClassJudge::default();
        for (p, c) in p.iter().zip(class) {
            judge.add(&[1.0 - p, *p], c, 1.0);
        }
        let found = judge.finish();
        // Pairs of a row of either class: six, of which 4 in order and one equal.
        assert!((found.auc.unwrap() - 4.5 / 6.0).abs() < 1e-12);
        assert_eq!(found.accuracy, Some(3.0 / 5.0));
        let logs = 0.9_f64.ln() + 0.6_f64.ln() + 0.35_f64.ln() + 0.8_f64.ln() + 0.4_f64.ln();
        assert!((found.log_loss.unwrap() + logs / 5.0).abs() < 1e-12);
        let squares = 2.0 * (0.01 + 0.16 + 0.4225 + 0.04 + 0.36);
        assert!((found.brier.unwrap() - squares / 5.0).abs() < 1e-12);
    }

    #[test]
    fn perfect_probabilities_are_calibrated() {
        let mut judge = ClassJudge::default();
        for i in 0..1000 {
            let p = f64::from(i % 10) / 10.0 + 0.05;
            let class = usize::from(f64::from(i / 10 % 20) / 20.0 + 0.025 < p);
            judge.add(&[1.0 - p, p], class, 2.0);
        }
        let found = judge.finish();
        assert!(found.calibration_error.unwrap() < 0.02, "{found:?}");
        let total: f64 = found.reliability.iter().map(|r| r.weight).sum();
        assert!((total - 2000.0).abs() < 1e-9);
    }

    #[test]
    fn intervals_cover_what_they_should() {
        let mut judge = NumberJudge::default();
        for i in 0..10_000 {
            let truth = 5.0 + 2.0 * normal_quantile((f64::from(i) + 0.5) / 10_000.0);
            judge.add(5.0, Some(2.0), truth, 1.0);
        }
        let found = judge.finish();
        for (percent, share) in found.coverage {
            assert!((100.0 * share - percent).abs() < 0.05, "{percent}: {share}");
        }
        assert!((found.rmse.unwrap() - 2.0).abs() < 0.01 && found.r2.unwrap().abs() < 1e-9);
    }
}
