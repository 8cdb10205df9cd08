//! Scores of answers.

/// How answers are scored. The best is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The fraction of right answers.
    Accuracy,
    /// The harmonic mean of precision and recall of class 1.
    F1,
    /// Matthews' correlation of two classes.
    Matthews,
    /// Spearman's correlation of numbers.
    Spearman,
}

impl Metric {
    /// The name in text.
    pub fn title(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1 => "F1",
            Self::Matthews => "MCC",
            Self::Spearman => "Spearman",
        }
    }

    /// The score of answers, numbers or those of classes, beside the right ones. A score that is not
    /// defined, such as a correlation with answers that are all alike, is 0.
    ///
    /// ```
    /// use favor_nn::task::Metric;
    /// assert_eq!(Metric::Accuracy.score(&[1.0, 0.0], &[1.0, 1.0]), 0.5);
    /// assert!((Metric::Spearman.score(&[0.1, 0.2, 9.0], &[1.0, 2.0, 3.0]) - 1.0).abs() < 1e-12);
    /// ```
    pub fn score(self, answers: &[f64], right: &[f64]) -> f64 {
        let pairs = || answers.iter().zip(right);
        let count = |a: f64, r: f64| pairs().filter(|(x, y)| **x == a && **y == r).count() as f64;
        let found = match self {
            Self::Accuracy => pairs().filter(|(a, r)| a == r).count() as f64 / answers.len() as f64,
            Self::F1 => {
                2.0 * count(1.0, 1.0) / (2.0 * count(1.0, 1.0) + count(1.0, 0.0) + count(0.0, 1.0))
            }
            Self::Matthews => {
                let (tp, tn) = (count(1.0, 1.0), count(0.0, 0.0));
                let (fp, fn_) = (count(1.0, 0.0), count(0.0, 1.0));
                let scale = (tp + fp) * (tp + fn_) * (tn + fp) * (tn + fn_);
                (tp * tn - fp * fn_) / scale.sqrt()
            }
            Self::Spearman => correlation(&ranks(answers), &ranks(right)),
        };
        if found.is_finite() { found } else { 0.0 }
    }
}

/// The ranks of numbers; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    for group in order.chunk_by(|a, b| values[*a] == values[*b]) {
        // The place of the group's first in the order, by binary search.
        let start = order.partition_point(|i| values[*i].total_cmp(&values[group[0]]).is_lt());
        let mean = start as f64 + (group.len() - 1) as f64 / 2.0;
        group.iter().for_each(|i| ranks[*i] = mean);
    }
    ranks
}

/// Pearson's correlation.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    product(a, ma, b, mb) / (product(a, ma, a, ma) * product(b, mb, b, mb)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of scikit-learn and SciPy for the same answers.
    #[test]
    fn agrees_with_scikit_learn() {
        let answers = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0];
        let right = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0];
        let close = |metric: Metric, value: f64| {
            let found = metric.score(&answers, &right);
            assert!((found - value).abs() < 1e-12, "{} {found} {value}", metric.title());
        };
        close(Metric::Accuracy, 0.7);
        close(Metric::F1, 8.0 / 11.0);
        close(Metric::Matthews, 10.0 / 600.0_f64.sqrt());
        let (a, b) = ([3.0, 1.0, 2.0, 2.0, 5.0], [10.0, 0.0, 5.0, 6.0, 6.0]);
        // Ranks 3, 0, 1.5, 1.5, 4 and 4, 0, 1, 2.5, 2.5 (from zero).
        let found = Metric::Spearman.score(&a, &b);
        assert!((found - 7.25 / 9.5).abs() < 1e-12, "{found}");
    }

    #[test]
    fn undefined_scores_are_zero() {
        assert_eq!(Metric::Matthews.score(&[1.0, 1.0], &[1.0, 0.0]), 0.0);
        assert_eq!(Metric::F1.score(&[0.0, 0.0], &[0.0, 0.0]), 0.0);
        assert_eq!(Metric::Spearman.score(&[2.0, 2.0], &[1.0, 0.0]), 0.0);
    }
}
