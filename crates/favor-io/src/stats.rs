//! Means and deviations of a few numbers.

/// The mean; NaN if there are no numbers.
///
/// ```
/// assert_eq!(favor_io::stats::mean(&[1.0, 2.0, 6.0]), 3.0);
/// ```
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean and the standard deviation of a sample, which is 0 for a single value.
///
/// ```
/// assert_eq!(favor_io::stats::mean_and_deviation(&[1.0, 3.0]), (2.0, 2.0_f64.sqrt()));
/// ```
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, (squares / (values.len() as f64 - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nothing_and_of_one() {
        assert!(mean(&[]).is_nan());
        assert_eq!(mean(&[5.0]), 5.0);
        assert_eq!(mean_and_deviation(&[5.0]), (5.0, 0.0));
    }
}
