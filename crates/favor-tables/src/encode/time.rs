//! Dates and times: a trend, and where in the year, the week and the day they are.

use super::slot::{Absent, Slot};
use crate::Result;
use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use favor::Float;

const DAY: f64 = 86_400e6;

/// Lengths in days and offsets from the beginning of 1970, a Thursday: years begin in January, weeks
/// on Monday.
const CYCLES: [(&str, f64, f64); 3] =
    [("year", 365.2425, 0.0), ("week", 7.0, 3.0), ("day", 1.0, 0.0)];

fn cycles(clock: bool) -> &'static [(&'static str, f64, f64)] {
    &CYCLES[..if clock { 3 } else { 2 }]
}

/// How many numbers a time becomes.
pub(super) fn width(clock: bool) -> usize {
    1 + 2 * cycles(clock).len()
}

/// Their names.
pub(super) fn names(name: &str, clock: bool) -> Vec<String> {
    let mut names = vec![format!("{name} trend")];
    for (cycle, ..) in cycles(clock) {
        names.extend(["sin", "cos"].map(|f| format!("{name} {f} of {cycle}")));
    }
    names
}

/// Days since the beginning of 1970, in universal time; null where there is none.
pub(crate) fn to_days(array: &ArrayRef) -> Result<Vec<Option<f64>>> {
    let micros = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
    let micros = micros.as_primitive::<TimestampMicrosecondType>();
    Ok(micros.iter().map(|t| t.map(|t| t as f64 / DAY)).collect())
}

/// The numbers of a time.
pub(crate) fn parts(days: f64, clock: bool) -> Vec<f64> {
    let mut parts = vec![days];
    for (_, length, offset) in cycles(clock) {
        let turn = ((days + offset) / length).rem_euclid(1.0) * std::f64::consts::TAU;
        parts.extend([turn.sin(), turn.cos()]);
    }
    parts
}

impl<T: Float> Slot<'_, T> {
    pub(super) fn times(
        &mut self,
        array: &ArrayRef,
        clock: bool,
        absent: &mut Absent,
    ) -> Result<()> {
        for (i, days) in to_days(array)?.into_iter().enumerate() {
            match days {
                Some(days) => {
                    let parts = parts(days, clock);
                    parts.into_iter().enumerate().for_each(|(n, part)| self.put(i, n, part));
                }
                None => self.miss(i, "null", absent)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mondays_are_alike_and_so_are_noons() {
        // 2 January 2023 and 1 July 2024 were Mondays.
        let (a, b) = (parts(19_359.5, true), parts(19_905.5, true));
        assert_eq!((a.len(), width(true), width(false)), (7, 7, 5));
        for n in [3, 4, 5, 6] {
            assert!((a[n] - b[n]).abs() < 1e-9, "{n}: {} and {}", a[n], b[n]);
        }
        // Half a week is across: Monday and Thursday noon.
        assert!((a[3] + parts(19_359.5 + 3.5, true)[3]).abs() < 1e-9);
        // Half a year apart.
        assert!((a[2] + b[2]).abs() < 0.05, "{} and {}", a[2], b[2]);
        // Noon is across from midnight.
        assert!((a[6] + 1.0).abs() < 1e-9);
        assert_eq!(names("t", false).len(), 5);
    }
}
