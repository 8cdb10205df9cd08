//! From values to positions along an axis.

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Equal steps for equal differences.
    #[default]
    Linear,
    /// Equal steps for equal ratios; it shows only positive values.
    Log10,
}

// Beyond this the difference of two values may overflow.
const LARGEST: f64 = 1e300;
// A range smaller than this fraction of its values is treated as a single value.
const SMALLEST_SPAN: f64 = 1e-9;

impl Scale {
    /// The value in units of the axis, if the axis can show it.
    pub(super) fn place(self, value: f64) -> Option<f64> {
        match self {
            Self::Linear => (value.abs() <= LARGEST).then_some(value),
            Self::Log10 => (value > 0.0 && value.is_finite()).then(|| value.log10()),
        }
    }
}

/// The visible part of an axis, in units of the axis: decades on a logarithmic one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Axis {
    /// An axis that shows all values, with a small margin at both ends.
    ///
    /// `None` if the axis can show no value.
    pub(super) fn covering(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Self> {
        let (low, high) = range(scale, values)?;
        let room = 0.05 * (high - low);
        Some(Self { scale, low: low - room, high: high + room })
    }

    /// An axis for bars: from zero on a linear one, from below the smallest on a logarithmic one.
    pub(super) fn for_bars(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Self> {
        match scale {
            Scale::Linear => {
                let (low, high) = range(scale, values.chain([0.0]))?;
                let room = 0.06 * (high - low);
                let low = if low < 0.0 { low - room } else { 0.0 };
                let high = if high > 0.0 { high + room } else { 0.0 };
                Some(Self { scale, low, high })
            }
            Scale::Log10 => {
                let (low, high) = range(scale, values)?;
                let room = (0.1 * (high - low)).max(0.15);
                Some(Self { scale, low: low - room, high: high + 0.6 * room })
            }
        }
    }

    /// An axis between two values, if it can show both and they differ.
    pub(super) fn between(scale: Scale, limits: (f64, f64)) -> Option<Self> {
        let (a, b) = (scale.place(limits.0)?, scale.place(limits.1)?);
        let (low, high) = (a.min(b), a.max(b));
        (high - low > SMALLEST_SPAN * low.abs().max(high.abs())).then_some(Self {
            scale,
            low,
            high,
        })
    }

    /// The position of a value: 0 at the low end, 1 at the high end, and beyond that outside.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        self.scale.place(value).map(|place| self.fraction(place))
    }

    /// The same for a value in units of the axis.
    pub(super) fn fraction(&self, place: f64) -> f64 {
        (place - self.low) / (self.high - self.low)
    }
}

/// The smallest and largest position, moved apart if they are too close to draw.
fn range(scale: Scale, values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let places = values.filter_map(|v| scale.place(v));
    let (low, high) = places.fold(None, |range: Option<(f64, f64)>, v| match range {
        Some((low, high)) => Some((low.min(v), high.max(v))),
        None => Some((v, v)),
    })?;
    let size = low.abs().max(high.abs());
    // Numbers near the smallest representable one have too few digits for ticks between them.
    let too_close = high - low <= SMALLEST_SPAN * size || high - low < 1e-290;
    if !too_close {
        return Some((low, high));
    }
    let middle = low + 0.5 * (high - low);
    let apart = match scale {
        Scale::Linear if size < 1e-280 => 1.0,
        Scale::Linear => 0.2 * size,
        Scale::Log10 => 0.5,
    };
    Some((middle - apart, middle + apart))
}
