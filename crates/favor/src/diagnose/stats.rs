//! Summaries of measured figures.

/// The median; the mean of the two middle values for an even count, NaN for none.
///
/// ```
/// use favor::diagnose::median;
/// assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
/// assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
/// ```
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => 0.5 * (values[n / 2 - 1] + values[n / 2]),
    }
}
