//! How rows that come later differ from those that a model has seen.

use super::Model;
use serde::Serialize;

/// How one number of the vectors has moved.
///
/// ```
/// # fn example(drift: &favor_tables::Drift) {
/// for shift in &drift.shifts {
///     println!("{} moved by {:.2} standard deviations", shift.name, shift.shift);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shift {
    /// The column, with the part of it where a column becomes several numbers.
    pub name: String,
    /// The new mean less the old one, in old standard deviations.
    pub shift: f64,
    /// The new standard deviation as a multiple of the old one.
    pub spread: f64,
}

/// How rows that come later differ from those that a model has seen.
///
/// ```
/// # fn example(older: &favor_tables::Model, newer: &favor_tables::Model) {
/// let drift = older.drift(newer);
/// println!("{} of the numbers have moved", drift.shifts.len());
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drift {
    /// The new rows.
    pub rows: u64,
    /// What has moved beyond chance and by more than a tenth of a deviation, the farthest first.
    pub shifts: Vec<Shift>,
}

impl Model {
    /// How the rows of a model, fitted with the map of this one, differ from the rows of this one:
    /// means and deviations of each number of the vectors.
    pub fn drift(&self, newer: &Self) -> Drift {
        let (old, new) = (&self.moments, &newer.moments);
        let names = self.info.encoder.number_names();
        let (old_spread, new_spread) = (old.covariance(), new.covariance());
        let mut shifts = vec![];
        for (l, name) in names.into_iter().enumerate().take(old.dim().min(new.dim())) {
            let (before, after) = (old_spread[(l, l)].sqrt(), new_spread[(l, l)].sqrt());
            if before <= 0.0 {
                continue;
            }
            let shift = (new.mean()[l] - old.mean()[l]) / before;
            let spread = after / before;
            // Four standard errors of a difference of means.
            let error = (1.0 / old.count() as f64 + spread.powi(2) / new.count() as f64).sqrt();
            if shift.abs() > f64::max(0.1, 4.0 * error) {
                shifts.push(Shift { name, shift, spread });
            }
        }
        shifts.sort_by(|a, b| b.shift.abs().total_cmp(&a.shift.abs()));
        Drift { rows: newer.info.rows, shifts }
    }
}
