//! What a line chart shows: series of points and horizontal reference lines.

/// A named series of points, joined by a line.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Series {
    /// The name in the legend. Series with the same name share a style and a legend entry.
    pub name: String,
    /// The points, in the order in which they are joined. A point that is not finite, or not
    /// positive on a logarithmic axis, leaves a gap.
    pub points: Vec<(f64, f64)>,
    /// Half the height of the error bar of each point.
    pub error: Option<Vec<f64>>,
    /// The index of the style: colour, dashes and marker. Without it the next free one is used.
    pub style: Option<usize>,
    /// Drawn thicker and above the others.
    pub emphasised: bool,
}

impl Series {
    /// A series without error bars in the next free style.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, ..Self::default() }
    }

    /// Adds error bars of the given half-heights.
    #[must_use]
    pub fn error(mut self, half_heights: Vec<f64>) -> Self {
        self.error = Some(half_heights);
        self
    }

    /// Sets the style.
    #[must_use]
    pub fn style(mut self, style: usize) -> Self {
        self.style = Some(style);
        self
    }

    /// Draws the series thicker and above the others.
    #[must_use]
    pub fn emphasised(mut self) -> Self {
        self.emphasised = true;
        self
    }
}

/// A horizontal reference line.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Reference {
    /// The name in the legend.
    pub name: String,
    /// The height of the line.
    pub value: f64,
}

impl Reference {
    /// A line at `value`.
    pub fn new(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value }
    }
}
