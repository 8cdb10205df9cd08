//! How good predictions are. Without weights every row counts as 1.

use super::argmax;
use crate::draw::normal_quantile;
use crate::{Error, Matrix, Result};
use serde::{Deserialize, Serialize};

/// Probabilities below this count as this in a logarithm.
const LEAST: f64 = 1e-15;

/// The share of rows whose largest value is at their class.
///
/// ```
/// use favor::{Matrix, learn::metrics::accuracy};
/// let values = Matrix::new(vec![0.9, 0.1, 0.4, 0.6], 2, 2)?;
/// assert_eq!(accuracy(&values, &[0, 0], None)?, 0.5);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn accuracy(values: &Matrix<f64>, classes: &[usize], weights: Option<&[f64]>) -> Result<f64> {
    check_classes(values, classes)?;
    mean(classes.len(), weights, |i| f64::from(u8::from(argmax(values.row(i)) == classes[i])))
}

/// The mean of `−log p` of the classes that came.
pub fn log_loss(
    probabilities: &Matrix<f64>,
    classes: &[usize],
    weights: Option<&[f64]>,
) -> Result<f64> {
    check_classes(probabilities, classes)?;
    mean(classes.len(), weights, |i| -probabilities[(i, classes[i])].max(LEAST).ln())
}

/// The mean squared distance of the probabilities from what came, over all classes: for two classes twice
/// what counts one of them only.
pub fn brier(
    probabilities: &Matrix<f64>,
    classes: &[usize],
    weights: Option<&[f64]>,
) -> Result<f64> {
    check_classes(probabilities, classes)?;
    mean(classes.len(), weights, |i| {
        let came = |c: usize| f64::from(u8::from(c == classes[i]));
        probabilities.row(i).iter().enumerate().map(|(c, p)| (p - came(c)).powi(2)).sum()
    })
}

/// The area under the ROC curve: how often a positive row has a higher score than a negative one; ties
/// count half.
///
/// ```
/// use favor::learn::metrics::auc;
/// assert_eq!(auc(&[0.1, 0.4, 0.35, 0.8], &[false, false, true, true], None)?, 0.75);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn auc(scores: &[f64], positive: &[bool], weights: Option<&[f64]>) -> Result<f64> {
    check_count("rows", scores.len(), positive.len())?;
    check_weights(scores.len(), weights)?;
    if let Some(row) = scores.iter().position(|s| s.is_nan()) {
        return Err(Error::invalid("scores", format!("row {row} is NaN")));
    }
    let weight = |i: usize| weights.map_or(1.0, |w| w[i]);
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let (mut below, mut area, mut positives) = (0.0, 0.0, 0.0);
    for ties in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
        let of = |kind: bool| -> f64 {
            ties.iter().filter(|i| positive[**i] == kind).map(|i| weight(*i)).sum()
        };
        let (here, others) = (of(true), of(false));
        area += here * (below + 0.5 * others);
        below += others;
        positives += here;
    }
    if positives > 0.0 && below > 0.0 {
        return Ok(area / (positives * below));
    }
    Err(Error::invalid("classes", "the area under the ROC curve needs rows of both kinds"))
}

/// The mean over the classes of the [area](auc) of each against the rest; classes without rows are left out.
pub fn mean_auc(
    probabilities: &Matrix<f64>,
    classes: &[usize],
    weights: Option<&[f64]>,
) -> Result<f64> {
    check_classes(probabilities, classes)?;
    let present: Vec<usize> =
        (0..probabilities.columns()).filter(|c| classes.contains(c)).collect();
    let one = |&c: &usize| {
        let scores: Vec<f64> = (0..classes.len()).map(|i| probabilities[(i, c)]).collect();
        let came: Vec<bool> = classes.iter().map(|of| *of == c).collect();
        auc(&scores, &came, weights)
    };
    let areas = present.iter().map(one).collect::<Result<Vec<f64>>>()?;
    Ok(areas.iter().sum::<f64>() / areas.len().max(1) as f64)
}

/// How far probabilities are from frequencies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reliability {
    /// The mean distance over the bins, by weight: the expected calibration error.
    pub error: f64,
    /// In ascending order of the probability; those without rows are left out.
    pub bins: Vec<ReliabilityBin>,
}

/// Rows with about the same probability.
///
/// ```
/// use favor::learn::metrics::reliability;
/// let found = reliability(&[0.9, 0.9, 0.2, 0.2], &[true, true, true, false], None, 10)?;
/// let sure = found.bins.last().unwrap();
/// assert_eq!((sure.frequency, sure.weight), (1.0, 2.0));
/// # Ok::<(), favor::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ReliabilityBin {
    /// The mean probability that was stated.
    pub probability: f64,
    /// How often it came true.
    pub frequency: f64,
    /// The weight of the rows.
    pub weight: f64,
}

/// Compares stated probabilities with what came, in bins of equal width.
///
/// ```
/// use favor::learn::metrics::reliability;
/// let found = reliability(&[0.9, 0.9, 0.9, 0.9], &[true, true, true, false], None, 10)?;
/// assert!((found.error - 0.15).abs() < 1e-12);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn reliability(
    stated: &[f64],
    came: &[bool],
    weights: Option<&[f64]>,
    bins: usize,
) -> Result<Reliability> {
    check_count("rows", stated.len(), came.len())?;
    check_weights(stated.len(), weights)?;
    let bins = bins.max(1);
    let mut sums = vec![ReliabilityBin::default(); bins];
    for (i, p) in stated.iter().enumerate() {
        let weight = weights.map_or(1.0, |w| w[i]);
        let bin = &mut sums[((p * bins as f64) as usize).min(bins - 1)];
        bin.probability += weight * p;
        bin.frequency += if came[i] { weight } else { 0.0 };
        bin.weight += weight;
    }
    let total: f64 = sums.iter().map(|b| b.weight).sum();
    sums.retain(|b| b.weight > 0.0);
    let error = sums.iter().map(|b| (b.probability - b.frequency).abs()).sum::<f64>() / total;
    for bin in &mut sums {
        bin.probability /= bin.weight;
        bin.frequency /= bin.weight;
    }
    Ok(Reliability { error, bins: sums })
}

/// For each row the largest probability and whether its class came: what [`reliability`] of several
/// classes looks at.
pub fn top_label(probabilities: &Matrix<f64>, classes: &[usize]) -> Result<(Vec<f64>, Vec<bool>)> {
    check_classes(probabilities, classes)?;
    let one = |i: usize| {
        let top = argmax(probabilities.row(i));
        (probabilities[(i, top)], top == classes[i])
    };
    Ok((0..classes.len()).map(one).unzip())
}

/// The root of the mean squared error.
pub fn rmse(values: &[f64], targets: &[f64], weights: Option<&[f64]>) -> Result<f64> {
    check_count("rows", values.len(), targets.len())?;
    Ok(mean(values.len(), weights, |i| (values[i] - targets[i]).powi(2))?.sqrt())
}

/// The share of the targets' variance that the values explain; 0 for constant targets.
pub fn r2(values: &[f64], targets: &[f64], weights: Option<&[f64]>) -> Result<f64> {
    check_count("rows", values.len(), targets.len())?;
    let centre = mean(targets.len(), weights, |i| targets[i])?;
    let spread = mean(targets.len(), weights, |i| (targets[i] - centre).powi(2))?;
    let error = mean(targets.len(), weights, |i| (targets[i] - values[i]).powi(2))?;
    Ok(if spread > 0.0 { 1.0 - error / spread } else { 0.0 })
}

/// How many standard deviations to each side of its mean hold this share of a normal distribution.
///
/// ```
/// let z = favor::learn::metrics::interval_factor(0.95)?;
/// assert!((z - 1.959964).abs() < 1e-6);
/// # Ok::<(), favor::Error>(())
/// ```
pub fn interval_factor(level: f64) -> Result<f64> {
    if level > 0.0 && level < 1.0 {
        return Ok(normal_quantile(0.5 + 0.5 * level));
    }
    Err(Error::invalid("level", format!("{level} does not lie between 0 and 1")))
}

/// The share of targets inside the interval of this level around each mean.
pub fn coverage(
    means: &[f64],
    deviations: &[f64],
    targets: &[f64],
    weights: Option<&[f64]>,
    level: f64,
) -> Result<f64> {
    check_count("rows", means.len(), targets.len())?;
    check_count("rows", deviations.len(), targets.len())?;
    let factor = interval_factor(level)?;
    mean(targets.len(), weights, |i| {
        f64::from(u8::from((targets[i] - means[i]).abs() <= factor * deviations[i]))
    })
}

fn mean(count: usize, weights: Option<&[f64]>, value: impl Fn(usize) -> f64) -> Result<f64> {
    check_weights(count, weights)?;
    let weight = |i: usize| weights.map_or(1.0, |w| w[i]);
    let total: f64 = (0..count).map(weight).sum();
    if total > 0.0 {
        return Ok((0..count).map(|i| weight(i) * value(i)).sum::<f64>() / total);
    }
    Err(Error::invalid("rows", "there are none of positive weight to score"))
}

fn check_weights(count: usize, weights: Option<&[f64]>) -> Result<()> {
    weights.map_or(Ok(()), |w| check_count("weights", w.len(), count))
}

fn check_count(what: &'static str, found: usize, wanted: usize) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::invalid(what, format!("{found} where {wanted} are needed")))
}

fn check_classes(values: &Matrix<f64>, classes: &[usize]) -> Result<()> {
    check_count("classes", classes.len(), values.rows())?;
    match classes.iter().find(|c| **c >= values.columns()) {
        Some(c) => {
            Err(Error::invalid("classes", format!("{c} where there are {}", values.columns())))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Stream;

    /// By its definition: over all pairs.
    #[test]
    fn areas_are_shares_of_pairs() {
        let mut stream = Stream::new(1, 9);
        let scores: Vec<f64> = (0..200).map(|_| (8.0 * stream.uniform()).round()).collect();
        let positive: Vec<bool> = (0..200).map(|_| stream.uniform() < 0.3).collect();
        let weights: Vec<f64> = (0..200).map(|_| stream.uniform()).collect();
        let (mut won, mut all) = (0.0, 0.0);
        for i in (0..200).filter(|i| positive[*i]) {
            for j in (0..200).filter(|j| !positive[*j]) {
                let pair = weights[i] * weights[j];
                all += pair;
                won += match scores[i].total_cmp(&scores[j]) {
                    std::cmp::Ordering::Greater => pair,
                    std::cmp::Ordering::Equal => 0.5 * pair,
                    std::cmp::Ordering::Less => 0.0,
                };
            }
        }
        let found = auc(&scores, &positive, Some(&weights)).unwrap();
        assert!((found - won / all).abs() < 1e-12);
        assert!(auc(&scores, &[true; 200], None).is_err());
        assert!(auc(&[f64::NAN; 200], &positive, None).is_err());
    }

    #[test]
    fn scores_follow_their_definitions() {
        let p = Matrix::new(vec![0.7, 0.2, 0.1, 0.1, 0.3, 0.6], 2, 3).unwrap();
        let classes = [0, 1];
        assert_eq!(accuracy(&p, &classes, Some(&[3.0, 1.0])).unwrap(), 0.75);
        let loss = -(0.7_f64.ln() + 0.3_f64.ln()) / 2.0;
        assert!((log_loss(&p, &classes, None).unwrap() - loss).abs() < 1e-15);
        let expected = (0.09 + 0.04 + 0.01 + 0.01 + 0.49 + 0.36) / 2.0;
        assert!((brier(&p, &classes, None).unwrap() - expected).abs() < 1e-15);
        assert_eq!(top_label(&p, &classes).unwrap(), (vec![0.7, 0.6], vec![true, false]));
        assert!(log_loss(&p, &[0, 3], None).is_err());
        assert!(accuracy(&p, &classes, Some(&[0.0, 0.0])).is_err());
        assert_eq!(r2(&[1.0, 2.0], &[1.0, 3.0], None).unwrap(), 0.5);
        assert_eq!(rmse(&[1.0, 2.0], &[1.0, 4.0], None).unwrap(), 2.0_f64.sqrt());
        // Two of four lie within 1.96 deviations.
        let found = coverage(&[0.0; 4], &[1.0; 4], &[1.9, -1.9, 2.0, -9.0], None, 0.95);
        assert_eq!(found.unwrap(), 0.5);
    }
}
