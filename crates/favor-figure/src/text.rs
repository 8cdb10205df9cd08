//! Texts of a picture: how wide they are, and how they break into lines.
//!
//! The reader's font is unknown, so widths are generous estimates.

/// Size of an exponent relative to its base.
pub(super) const SUPERSCRIPT: f64 = 0.72;

/// A text that may end in a superscript exponent.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Label {
    pub(super) base: String,
    pub(super) exponent: Option<String>,
}

impl Label {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self { base: text.into(), exponent: None }
    }

    pub(super) fn power(base: impl Into<String>, exponent: i32) -> Self {
        Self { base: base.into(), exponent: Some(signed(&exponent.to_string())) }
    }

    pub(super) fn width(&self, size: f64) -> f64 {
        let exponent = self.exponent.as_deref().unwrap_or_default();
        width(&self.base, size) + width(exponent, SUPERSCRIPT * size)
    }
}

/// A number with a minus sign instead of a hyphen.
pub(super) fn signed(text: &str) -> String {
    text.replace('-', "\u{2212}")
}

/// A number with four significant digits, for tooltips.
pub(super) fn figures(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() {
        return signed(&value.to_string());
    }
    if !(1e-3..1e5).contains(&magnitude) {
        return signed(&format!("{value:.3e}"));
    }
    let decimals = (3 - magnitude.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.decimals$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    signed(text)
}

/// The width of a text in units of its size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let units: f64 = text.chars().map(advance).sum();
    1.04 * size * units
}

fn advance(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' => 0.24,
        ' ' | 'f' | 't' | 'I' | '.' | ',' | ':' | ';' | '!' | '/' | '\\' | '(' | ')' | '['
        | ']' => 0.28,
        'r' | '-' | '"' | '`' | '{' | '}' => 0.34,
        'c' | 'k' | 's' | 'v' | 'x' | 'y' | 'z' | 'J' => 0.5,
        'm' | 'M' => 0.84,
        'w' | 'C' | 'D' | 'H' | 'N' | 'R' | 'U' => 0.73,
        'G' | 'O' | 'Q' => 0.78,
        'W' => 0.95,
        '%' => 0.89,
        '@' => 1.02,
        'A'..='Z' | '&' => 0.67,
        '\u{2e80}'.. => 1.0,
        '\u{300}'..='\u{36f}' => 0.0,
        c if c.is_ascii() => 0.56,
        _ => 0.62,
    }
}

/// Breaks a text into lines of at most `limit`; a single word that is too long is shortened.
pub(super) fn wrap(text: &str, size: f64, limit: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        if let Some(line) = lines.last_mut() {
            let longer = format!("{line} {word}");
            if width(&longer, size) <= limit {
                *line = longer;
                continue;
            }
        }
        lines.push(shorten(word, size, limit));
    }
    lines
}

/// Truncates a text that is wider than `limit`, with an ellipsis.
pub(super) fn shorten(text: &str, size: f64, limit: f64) -> String {
    if width(text, size) <= limit {
        return text.to_owned();
    }
    let room = limit - width("…", size);
    let mut used = 0.0;
    let kept = text.chars().take_while(|c| {
        used += 1.04 * size * advance(*c);
        used <= room
    });
    let kept: String = kept.collect();
    format!("{}…", kept.trim_end())
}

/// The largest size up to `size` at which the text fits, but not below six tenths of it.
pub(super) fn fitting(text: &str, size: f64, limit: f64) -> f64 {
    let wide = width(text, size);
    if wide <= limit { size } else { (size * limit / wide).max(0.6 * size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_limit() {
        let text = "a caption of several words that has to be broken into a few lines";
        let lines = wrap(text, 10.0, 100.0);
        assert!(lines.len() > 2);
        assert!(lines.iter().all(|l| width(l, 10.0) <= 100.0));
        assert_eq!(lines.join(" "), text);
        assert!(width(&shorten(&"m".repeat(99), 10.0, 50.0), 10.0) <= 50.0);
    }

    #[test]
    fn figures_are_few() {
        assert_eq!(figures(0.0), "0");
        assert_eq!(figures(1234.56), "1235");
        assert_eq!(figures(100.0), "100");
        assert_eq!(figures(-0.5), "\u{2212}0.5");
        assert_eq!(figures(1e9), "1.000e9");
    }
}
