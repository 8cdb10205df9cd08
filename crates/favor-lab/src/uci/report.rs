//! What the experiment found, and its table as CSV.

use super::ranking::{self, Rank};
use super::{Set, UciOptions, findings};
use crate::finding::Finding;
use favor::Family;
use std::fmt::Write;

/// The whole experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduction {
    /// What was run.
    pub options: UciOptions,
    /// One result per set.
    pub sets: Vec<SetResult>,
    /// The families, the one of the best average first.
    pub ranking: Vec<Rank>,
    /// The paper's findings next to ours.
    pub findings: Vec<Finding>,
}

/// What one set gave.
#[derive(Debug, Clone, PartialEq)]
pub struct SetResult {
    /// The set.
    pub set: Set,
    /// Rows for training, validation and test.
    pub rows: [usize; 3],
    /// Columns after words became zeros and ones.
    pub dim: usize,
    /// The number of classes.
    pub classes: usize,
    /// The accuracy on the test part of always naming the most frequent class.
    pub majority: f64,
    /// The exact kernel.
    pub exact: Exact,
    /// One curve per family.
    pub curves: Vec<Curve>,
}

/// The exact kernel on one set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exact {
    /// The bandwidth that validation chose.
    pub bandwidth: f64,
    /// The accuracy on the test part, from 0 to 1.
    pub accuracy: f64,
    /// The accuracy on the validation part.
    pub validation: f64,
}

/// One family on one set.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The family.
    pub family: Family,
    /// One point per number of features.
    pub points: Vec<Point>,
}

/// Means over the draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The number of features.
    pub features: usize,
    /// The bandwidth that validation chose.
    pub bandwidth: f64,
    /// The accuracy on the test part, from 0 to 1.
    pub accuracy: f64,
    /// Its standard deviation over the draws.
    pub deviation: f64,
    /// The accuracy on the validation part.
    pub validation: f64,
}

/// A mean accuracy and its standard error over the draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mean {
    pub(super) accuracy: f64,
    pub(super) error: f64,
}

impl Mean {
    /// Whether this is larger by more than chance makes likely: three standard errors of the
    /// difference.
    pub(super) fn clearly_above(&self, other: &Self) -> bool {
        self.accuracy - other.accuracy > 3.0 * self.error.hypot(other.error)
    }
}

impl Reproduction {
    pub(super) fn new(options: UciOptions, sets: Vec<SetResult>) -> Self {
        let mut found = Self { options, sets, ranking: vec![], findings: vec![] };
        found.ranking = ranking::rank(&found);
        found.findings = findings::compare(&found);
        found
    }

    /// The mean of a family on a set at the number of features of this place.
    pub(super) fn mean(&self, set: &SetResult, family: Family, place: usize) -> Option<Mean> {
        let curve = set.curves.iter().find(|c| c.family == family)?;
        let point = curve.points.get(place)?;
        let error = point.deviation / (self.options.seeds as f64).sqrt();
        Some(Mean { accuracy: point.accuracy, error })
    }

    /// The mean over all sets.
    pub(super) fn average(&self, family: Family, place: usize) -> Option<Mean> {
        let means: Option<Vec<Mean>> =
            self.sets.iter().map(|s| self.mean(s, family, place)).collect();
        let (means, count) = (means?, self.sets.len() as f64);
        let squares: f64 = means.iter().map(|m| m.error * m.error).sum();
        let accuracy = means.iter().map(|m| m.accuracy).sum::<f64>() / count;
        Some(Mean { accuracy, error: squares.sqrt() / count })
    }

    /// The mean accuracy of the exact kernel over all sets.
    pub(super) fn exact_average(&self) -> f64 {
        self.sets.iter().map(|s| s.exact.accuracy).sum::<f64>() / self.sets.len() as f64
    }

    /// One line per set, family and number of features; the exact kernel has no number.
    pub fn to_csv(&self) -> String {
        let mut out = String::from(
            "set,family,features,bandwidth,test_accuracy,test_accuracy_sd,test_accuracy_se,\
             validation_accuracy,seeds,training_rows,validation_rows,test_rows,columns,classes\n",
        );
        for set in &self.sets {
            let [training, validation, test] = set.rows;
            let tail = format!("{training},{validation},{test},{},{}", set.dim, set.classes);
            let Exact { bandwidth, accuracy, validation } = set.exact;
            let name = set.set.name();
            let _ = writeln!(out, "{name},exact,,{bandwidth},{accuracy},,,{validation},,{tail}");
            for curve in &set.curves {
                for p in &curve.points {
                    let _ = writeln!(
                        out,
                        "{name},{},{},{},{},{},{},{},{},{tail}",
                        curve.family,
                        p.features,
                        p.bandwidth,
                        p.accuracy,
                        p.deviation,
                        p.deviation / (self.options.seeds as f64).sqrt(),
                        p.validation,
                        self.options.seeds
                    );
                }
            }
        }
        out
    }
}
