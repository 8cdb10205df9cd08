//! Numbers for tables and sentences: few digits, and a dash for undefined values.

/// A number with three significant digits.
pub fn figures(value: f64) -> String {
    three_figures(value, 1e4, 4, 1)
}

/// The same written out up to ten million, for numbers that come from data.
pub fn data_figures(value: f64) -> String {
    three_figures(value, 1e7, 5, 2)
}

/// Written out below `end` with at most these decimals, else with an exponent and this many.
fn three_figures(value: f64, end: f64, most_decimals: i32, with_exponent: usize) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "-".to_owned();
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    if (1e-3..end).contains(&size) {
        let decimals = (2 - size.log10().floor() as i32).clamp(0, most_decimals) as usize;
        return format!("{value:.decimals$}");
    }
    format!("{value:.with_exponent$e}")
}

/// A number with three significant digits, or a dash.
pub fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), figures)
}

/// A number with two decimals.
pub fn fixed(value: f64) -> String {
    if value.abs() < 1e6 { format!("{value:.2}") } else { format!("{value:.1e}") }
}

/// A number of features, rounded up.
pub fn count(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "-".to_owned(),
        v if v < 99_999.5 => format!("{}", v.ceil()),
        v if v < 1e100 => format!("{v:.0e}"),
        _ => "> 1e100".to_owned(),
    }
}

/// The same, or a dash.
pub fn optional_count(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), count)
}

/// A share in percent.
pub fn percent(value: f64) -> String {
    match 100.0 * value {
        v if !v.is_finite() => "-".to_owned(),
        v if v >= 999.5 => "> 1000 %".to_owned(),
        v if v.abs() >= 9.95 => format!("{v:.0} %"),
        v if v.abs() >= 0.95 => format!("{v:.1} %"),
        v => format!("{v:.2} %"),
    }
}

/// A duration in a suitable unit.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "-".to_owned(),
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// An amount of memory.
pub fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(figures(0.12345), "0.123");
        assert_eq!(figures(-12.345), "-12.3");
        assert_eq!(figures(123_456.0), "1.2e5");
        assert_eq!(figures(f64::NAN), "-");
        assert_eq!(data_figures(123_456.0), "123456");
        assert_eq!(data_figures(0.001_234), "0.00123");
        assert_eq!(data_figures(1.234e9), "1.23e9");
        assert_eq!(count(12.1), "13");
        assert_eq!(count(1.26e9), "1e9");
        assert_eq!(percent(0.1234), "12 %");
        assert_eq!(percent(0.012), "1.2 %");
        assert_eq!(percent(123.0), "> 1000 %");
    }

    #[test]
    fn units_suit_the_size() {
        assert_eq!(duration(12.34e-6), "12.3 µs");
        assert_eq!(duration(0.01234), "12.34 ms");
        assert_eq!(duration(1.5), "1.50 s");
        assert_eq!(duration(f64::NAN), "-");
        assert_eq!(mebibytes(3 << 19), "1.5 MiB");
    }
}
