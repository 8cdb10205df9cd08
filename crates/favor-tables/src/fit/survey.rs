//! What a survey of the columns makes of an encoder.

use super::FitRequest;
use crate::encode::{ColumnKind, Encoder, FOLDS, Missing, NumberEncoding, rank_knots};
use crate::states::{Found, Survey, Tally};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The most different values of a text column that becomes means of the target.
pub(super) const MOST_VALUES: usize = 65_536;

/// A mean is drawn to that of all rows as by so many rows.
const SMOOTHING: f64 = 20.0;

/// The fourth moment of standardised numbers above which tails are heavy: that of the exponential
/// distribution. The normal one has 3.
const HEAVY: f64 = 9.0;

/// Whether anything of a table must be known before its columns can be encoded.
pub(super) fn is_needed(encoder: &Encoder, request: &FitRequest) -> bool {
    let texts = encoder.columns.iter().any(|c| matches!(c.kind, ColumnKind::Text { .. }));
    let numbers = matches!(request.numbers, NumberEncoding::Rank | NumberEncoding::Auto);
    texts || numbers || encoder.missing.fills()
}

/// Whether the columns are certain to be encoded otherwise after a survey.
pub(super) fn changes(encoder: &Encoder, request: &FitRequest) -> bool {
    let ranks = request.numbers == NumberEncoding::Rank;
    let changes = |kind: &ColumnKind| match kind {
        ColumnKind::Text { .. } => true,
        kind => ranks && *kind == ColumnKind::Number,
    };
    encoder.columns.iter().any(|c| changes(&c.kind))
}

/// An encoder after a survey.
pub(super) struct Surveyed {
    pub(super) encoder: Encoder,
    /// Whether there are missing values for which something else stands.
    pub(super) fills: bool,
}

/// The encoder with all that the survey found.
pub(super) fn finish(
    mut encoder: Encoder,
    survey: Survey,
    request: &FitRequest,
    targets: Option<usize>,
) -> Result<Surveyed> {
    let fills = encoder.missing.fills() && survey.columns.iter().any(|c| c.missing > 0);
    let mut fill = vec![];
    let mut number = 0;
    let missing = encoder.missing;
    for (column, found) in encoder.columns.iter_mut().zip(survey.columns) {
        let sample = |number: usize| -> Vec<(f64, f64)> {
            let rows = survey.spread.values().map(|(row, weight)| (row[number], *weight));
            rows.filter(|(value, _)| value.is_finite()).collect()
        };
        match (&mut column.kind, found.found) {
            (kind @ ColumnKind::Text { .. }, Found::Texts(texts)) => {
                if texts.len() <= request.categories {
                    let weight = |tally: &Tally| tally.without(None)[0];
                    let total: f64 = texts.values().map(weight).sum();
                    fill.extend(texts.values().map(|t| weight(t) / total));
                    *kind = ColumnKind::Text { categories: texts.into_keys().collect() };
                } else if let Some(targets) = targets {
                    let (means, overall) = target_means(&texts, targets);
                    fill.extend(overall);
                    let values = texts.into_keys().collect();
                    *kind = ColumnKind::TargetMeans { values, targets, means };
                }
            }
            (kind, Found::Numbers { sums, weight }) => {
                let mean = |s: &f64| if weight > 0.0 { s / weight } else { 0.0 };
                let mut means: Vec<f64> = sums.iter().map(mean).collect();
                if matches!(kind, ColumnKind::Number | ColumnKind::Boolean) {
                    let sample = sample(number);
                    number += 1;
                    let ranked = match request.numbers {
                        NumberEncoding::Rank => true,
                        NumberEncoding::Auto => is_heavy(&sample),
                        _ => false,
                    };
                    if ranked && *kind == ColumnKind::Number && !sample.is_empty() {
                        *kind = ColumnKind::Rank { knots: rank_knots(sample) };
                        means = vec![0.0];
                    }
                }
                fill.extend(means);
            }
            _ => return Err(Error::query("a survey of another table")),
        }
        column.marked = missing == Missing::Mark && found.missing > 0;
        fill.extend(column.marked.then_some(1.0));
    }
    encoder.fill = fill;
    Ok(Surveyed { encoder: encoder.unscaled(), fills })
}

fn is_heavy(sample: &[(f64, f64)]) -> bool {
    let total: f64 = sample.iter().map(|s| s.1).sum();
    let mean = |power: i32, centre: f64| {
        sample.iter().map(|(v, w)| w * (v - centre).powi(power)).sum::<f64>() / total
    };
    let centre = mean(1, 0.0);
    let variance = mean(2, centre);
    variance > 0.0 && mean(4, centre) > HEAVY * variance * variance
}

/// For each value, for each fold the mean without it, then that over all folds; and the mean over all
/// rows. Means of few rows are drawn to that of all.
fn target_means(texts: &BTreeMap<String, Tally>, targets: usize) -> (Vec<f64>, Vec<f64>) {
    let parts: Vec<Option<usize>> = (0..FOLDS).map(Some).chain([None]).collect();
    let mut overall = vec![vec![0.0; 1 + targets]; parts.len()];
    for tally in texts.values() {
        for (total, part) in overall.iter_mut().zip(&parts) {
            total.iter_mut().zip(tally.without(*part)).for_each(|(t, s)| *t += s);
        }
    }
    let mean = |sums: &[f64], t: usize| if sums[0] > 0.0 { sums[1 + t] / sums[0] } else { 0.0 };
    let mut means = vec![];
    for tally in texts.values() {
        for (all, part) in overall.iter().zip(&parts) {
            let own = tally.without(*part);
            for t in 0..targets {
                means.push((own[1 + t] + SMOOTHING * mean(all, t)) / (own[0] + SMOOTHING));
            }
        }
    }
    let last = &overall[FOLDS];
    (means, (0..targets).map(|t| mean(last, t)).collect())
}
