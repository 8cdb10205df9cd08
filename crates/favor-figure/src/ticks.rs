//! The ticks of an axis and their labels.

use super::scale::{Axis, Scale};
use super::text::{Label, signed};

/// A tick with a label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Position along the axis, from 0 to 1.
    pub(super) at: f64,
    pub(super) label: Label,
}

/// The ticks of an axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Ticks {
    pub(super) major: Vec<Tick>,
    /// Positions of minor ticks without labels.
    pub(super) minor: Vec<f64>,
}

/// Ticks of a horizontal axis of this length.
pub(super) fn across(axis: &Axis, length: f64, size: f64) -> Ticks {
    choose(axis, length, 28.0, |label| label.width(size))
}

/// Ticks of a vertical axis of this length.
pub(super) fn upward(axis: &Axis, length: f64, size: f64) -> Ticks {
    choose(axis, length, 24.0, |_| size)
}

/// Ticks at these values, as far as the axis shows them.
pub(super) fn chosen(axis: &Axis, values: &[f64]) -> Ticks {
    let shown = values.iter().filter_map(|v| Some((axis.at(*v)?, *v)));
    let major = shown
        .filter(|(at, _)| (0.0..=1.0).contains(at))
        .map(|(at, v)| Tick { at, label: Label::plain(signed(&v.to_string())) })
        .collect();
    Ticks { major, minor: Vec::new() }
}

/// As many ticks as fit: at most one every `spacing`, and each label needs its `extent` and a gap.
fn choose(axis: &Axis, length: f64, spacing: f64, extent: impl Fn(&Label) -> f64) -> Ticks {
    let most = ((length / spacing) as usize).clamp(3, 10);
    let fits = |ticks: &Ticks| {
        ticks.major.windows(2).all(|pair| {
            let needed = 0.5 * (extent(&pair[0].label) + extent(&pair[1].label)) + 7.0;
            (pair[1].at - pair[0].at) * length >= needed
        })
    };
    let tried = (2..=most).rev().map(|count| with_at_most(axis, count));
    let mut last = Ticks::default();
    for ticks in tried {
        if fits(&ticks) {
            return ticks;
        }
        last = ticks;
    }
    // If labels are too long for any choice, one is better than several on top of each other.
    last.major.truncate(1);
    last
}

fn with_at_most(axis: &Axis, count: usize) -> Ticks {
    match axis.scale {
        Scale::Linear => linear(axis, axis.low, axis.high, count),
        Scale::Log10 => logarithmic(axis, count),
    }
}

/// Multiples of 1, 2 or 5 times a power of ten, between two values.
fn linear(axis: &Axis, low: f64, high: f64, count: usize) -> Ticks {
    let rough = (high - low) / count as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough);
    // A little tolerance keeps ticks that rounding pushed just outside the range.
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    if !(step > 0.0 && step.is_finite() && last - first <= 64.0) {
        return Ticks::default();
    }
    let values: Vec<f64> = (0..=(last - first).max(0.0) as u32)
        .map(|k| (first + f64::from(k)) * step)
        .filter(|v| *v >= low - 1e-9 * step && *v <= high + 1e-9 * step)
        .collect();
    let largest = low.abs().max(high.abs());
    let major = values
        .iter()
        .filter_map(|v| Some(Tick { at: axis.at(*v)?, label: decimal(*v, step, largest) }))
        .collect();
    Ticks { major, minor: Vec::new() }
}

/// A multiple of `step`, with only the decimals that the step needs.
fn decimal(value: f64, step: f64, largest: f64) -> Label {
    // Rounding may leave a tiny residue instead of zero.
    if value.abs() < 1e-6 * step {
        return Label::plain("0");
    }
    let finest = (step.log10() + 1e-9).floor() as i32;
    if largest < 1e6 && finest >= -5 {
        let decimals = (-finest).max(0) as usize;
        return Label::plain(signed(&format!("{value:.decimals$}")));
    }
    let exponent = (largest.log10() + 1e-9).floor() as i32;
    // Scaled through the logarithm: a power of ten alone may overflow.
    let scaled = value.signum() * 10_f64.powf(value.abs().log10() - f64::from(exponent));
    let decimals = (exponent - finest).clamp(0, 12) as usize;
    Label::power(format!("{}×10", signed(&format!("{scaled:.decimals$}"))), exponent)
}

fn logarithmic(axis: &Axis, count: usize) -> Ticks {
    let (low, high) = (axis.low, axis.high);
    let powers = (high.floor() - low.ceil() + 1.0).max(0.0) as usize;
    if high - low < 2.0 {
        let minor = multiples(axis, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let some = multiples(axis, &[1, 2, 5]);
        if (2..=count).contains(&some.len()) {
            return Ticks {
                major: some.into_iter().map(|(m, e)| small_tick(axis, m, e)).collect(),
                minor: minor.into_iter().map(|(m, e)| place(axis, m, e)).collect(),
            };
        }
        if powers < 2 {
            // Less than a factor of two or so: steps of equal size read better.
            return linear(axis, 10_f64.powf(low), 10_f64.powf(high), count);
        }
    }
    let stride = (0..10)
        .flat_map(|k| [1, 2, 5].map(|m| m * 10_i64.pow(k)))
        .find(|stride| powers <= count * *stride as usize)
        .unwrap_or(1);
    let (first, last) =
        ((low / stride as f64).ceil() as i64, (high / stride as f64).floor() as i64);
    let exponents: Vec<i32> = (first..=last).map(|k| (k * stride) as i32).collect();
    // Plain numbers, as long as they are all short.
    let plain = exponents.iter().all(|e| (-2..=3).contains(e));
    let major = exponents
        .iter()
        .map(|&e| {
            let label = if plain { plain_power(1, e) } else { Label::power("10", e) };
            Tick { at: axis.fraction(f64::from(e)), label }
        })
        .collect();
    let minor = if stride == 1 && high - low <= 8.0 {
        let all = multiples(axis, &[2, 3, 4, 5, 6, 7, 8, 9]);
        all.into_iter().map(|(m, e)| place(axis, m, e)).collect()
    } else if powers <= 40 {
        (low.ceil() as i32..=high.floor() as i32).map(|e| axis.fraction(f64::from(e))).collect()
    } else {
        Vec::new()
    };
    Ticks { major, minor }
}

/// The visible numbers m × 10^e with `m` among those given, in order.
fn multiples(axis: &Axis, mantissas: &[i32]) -> Vec<(i32, i32)> {
    (axis.low.floor() as i32..=axis.high.floor() as i32)
        .flat_map(|e| mantissas.iter().map(move |&m| (m, e)))
        .filter(|&(m, e)| (-1e-9..=1.0 + 1e-9).contains(&place(axis, m, e)))
        .collect()
}

fn place(axis: &Axis, mantissa: i32, exponent: i32) -> f64 {
    axis.fraction(f64::from(mantissa).log10() + f64::from(exponent))
}

fn small_tick(axis: &Axis, mantissa: i32, exponent: i32) -> Tick {
    let label = if (-4..=4).contains(&exponent) {
        plain_power(mantissa, exponent)
    } else if mantissa == 1 {
        Label::power("10", exponent)
    } else {
        Label::power(format!("{mantissa}×10"), exponent)
    };
    Tick { at: place(axis, mantissa, exponent), label }
}

fn plain_power(mantissa: i32, exponent: i32) -> Label {
    let decimals = (-exponent).max(0) as usize;
    Label::plain(format!("{:.decimals$}", f64::from(mantissa) * 10_f64.powi(exponent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, low: f64, high: f64) -> Vec<String> {
        let axis = Axis::between(scale, (low, high)).unwrap();
        let ticks = across(&axis, 200.0, 10.0);
        assert!(ticks.major.iter().all(|t| (-1e-6..=1.0 + 1e-6).contains(&t.at)));
        let text = |l: &Label| match &l.exponent {
            Some(e) => format!("{}^{e}", l.base),
            None => l.base.clone(),
        };
        ticks.major.iter().map(|t| text(&t.label)).collect()
    }

    #[test]
    fn linear_marks_are_round() {
        assert_eq!(labels(Scale::Linear, 0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(Scale::Linear, -1.5, 1.2), ["−1.5", "−1.0", "−0.5", "0", "0.5", "1.0"]);
        assert_eq!(labels(Scale::Linear, 0.0, 4e7)[1], "1×10^7");
        assert_eq!(labels(Scale::Linear, 0.0, 3e-8)[1], "1×10^−8");
    }

    #[test]
    fn logarithmic_marks_are_powers() {
        assert_eq!(labels(Scale::Log10, 0.1, 100.0), ["0.1", "1", "10", "100"]);
        assert_eq!(labels(Scale::Log10, 1e-4, 1.0)[0], "10^−4");
        assert_eq!(labels(Scale::Log10, 0.1, 5.0), ["0.1", "0.2", "0.5", "1", "2", "5"]);
        let wide = labels(Scale::Log10, 1e-30, 1e30);
        assert!(wide.contains(&"10^0".to_owned()) && (3..=8).contains(&wide.len()), "{wide:?}");
        assert!(labels(Scale::Log10, 3.1, 4.2).len() >= 2);
    }

    #[test]
    fn strange_ranges_have_few_marks() {
        for scale in [Scale::Linear, Scale::Log10] {
            for (low, high) in [
                (1e-300, 1e300),
                (1e299, 1e300),
                (1.0, 1.000_000_1),
                (1e15, 1e15 + 1e7),
                (5e-324, 1e-280),
            ] {
                let Some(axis) = Axis::between(scale, (low, high)) else { continue };
                let ticks = across(&axis, 200.0, 10.0);
                assert!(
                    ticks.major.len() < 12 && ticks.minor.len() < 100,
                    "{scale:?} {low} {high}"
                );
                assert!(ticks.major.iter().all(|t| t.at.is_finite()));
            }
        }
    }
}
