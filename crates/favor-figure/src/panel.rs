//! One plot of a figure.

use super::axes::{self, Area};
use super::line::{self, Plane};
use super::scale::{Axis, Scale};
use super::series::{Reference, Series};
use super::style::{Looks, REFERENCE_COLOUR, reference_dashes};
use super::svg::{Svg, number};
use super::ticks::{self, Ticks};

/// One plot: axes, series and reference lines.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Panel {
    /// Shown above the plot.
    pub title: String,
    /// Name of the horizontal axis.
    pub x_label: String,
    /// Name of the vertical axis.
    pub y_label: String,
    /// The scale of the horizontal axis.
    pub x_scale: Scale,
    /// The scale of the vertical axis.
    pub y_scale: Scale,
    /// Limits of the vertical axis; without them it shows all values.
    pub y_limits: Option<(f64, f64)>,
    /// Positions of the horizontal ticks; by default round numbers.
    pub x_marks: Option<Vec<f64>>,
    /// The series.
    pub series: Vec<Series>,
    /// Horizontal reference lines.
    pub references: Vec<Reference>,
}

impl Panel {
    /// An empty panel with linear axes.
    pub fn new(
        title: impl Into<String>,
        x_label: impl Into<String>,
        y_label: impl Into<String>,
    ) -> Self {
        let (title, x_label, y_label) = (title.into(), x_label.into(), y_label.into());
        Self { title, x_label, y_label, ..Self::default() }
    }

    /// Sets the scale of the horizontal axis.
    #[must_use]
    pub fn x_scale(mut self, scale: Scale) -> Self {
        self.x_scale = scale;
        self
    }

    /// Sets the scale of the vertical axis.
    #[must_use]
    pub fn y_scale(mut self, scale: Scale) -> Self {
        self.y_scale = scale;
        self
    }

    /// Sets the limits of the vertical axis. What lies outside is clipped.
    #[must_use]
    pub fn y_limits(mut self, low: f64, high: f64) -> Self {
        self.y_limits = Some((low, high));
        self
    }

    /// Puts the horizontal ticks at the given values.
    #[must_use]
    pub fn x_marks(mut self, values: Vec<f64>) -> Self {
        self.x_marks = Some(values);
        self
    }

    /// Adds a series.
    #[must_use]
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a horizontal reference line.
    #[must_use]
    pub fn reference(mut self, name: impl Into<String>, value: f64) -> Self {
        self.references.push(Reference::new(name, value));
        self
    }

    /// Chooses axes and ticks for a plot of the given size.
    pub(super) fn plan(&self, width: f64, height: f64) -> Plan {
        let axes = self.x_axis().zip(self.y_axis());
        let (x_ticks, y_ticks) = match &axes {
            Some((x, y)) => (
                match &self.x_marks {
                    Some(values) => ticks::chosen(x, values),
                    None => ticks::across(x, width, axes::TICK_SIZE),
                },
                ticks::upward(y, height, axes::TICK_SIZE),
            ),
            None => (Ticks::default(), Ticks::default()),
        };
        Plan { axes, x_ticks, y_ticks }
    }

    fn x_axis(&self) -> Option<Axis> {
        Axis::covering(self.x_scale, self.drawable().map(|(_, _, point)| point.0))
    }

    fn y_axis(&self) -> Option<Axis> {
        if let Some(axis) = self.y_limits.and_then(|l| Axis::between(self.y_scale, l)) {
            return Some(axis);
        }
        let ends = self.drawable().flat_map(|(series, i, (_, y))| {
            let error = series.error.as_ref().and_then(|e| e.get(i)).copied().unwrap_or(0.0);
            // On a logarithmic axis, an error bar that nearly reaches zero must not stretch the
            // axis.
            let low = match self.y_scale {
                Scale::Linear => y - error,
                Scale::Log10 => (y - error).max(0.3 * y),
            };
            [y, low, y + error]
        });
        let references = self.references.iter().map(|r| r.value);
        Axis::covering(self.y_scale, ends.chain(references))
    }

    /// Points that both axes can show.
    fn drawable(&self) -> impl Iterator<Item = (&Series, usize, (f64, f64))> {
        self.series.iter().flat_map(move |series| {
            series.points.iter().enumerate().filter_map(move |(i, &(x, y))| {
                self.x_scale.place(x)?;
                self.y_scale.place(y)?;
                Some((series, i, (x, y)))
            })
        })
    }

    /// Draws the plot without its title and axis names.
    pub(super) fn draw(
        &self,
        svg: &mut Svg,
        area: Area,
        plan: &Plan,
        looks: &Looks,
        references: &[&str],
    ) {
        let Some((x, y)) = plan.axes else {
            axes::no_data(svg, area);
            return;
        };
        axes::vertical(svg, area, &plan.y_ticks);
        axes::horizontal(svg, area, &plan.x_ticks);
        // A nested picture clips what lies outside without needing an id.
        let [left, top, width, height] = [area.left, area.top, area.width, area.height].map(number);
        svg.open("svg", &[("x", &left), ("y", &top), ("width", &width), ("height", &height)]);
        let plane = Plane { x, y, area: Area { left: 0.0, top: 0.0, ..area } };
        for reference in &self.references {
            if let Some(at) = y.at(reference.value) {
                let height = plane.area.y(at).clamp(-1e5, 1e5);
                let place = references.iter().position(|n| *n == reference.name).unwrap_or(0);
                let dashes = reference_dashes(place);
                svg.line((0.0, height), (area.width, height), REFERENCE_COLOUR, 1.3, dashes);
            }
        }
        for emphasised in [false, true] {
            for series in self.series.iter().filter(|s| s.emphasised == emphasised) {
                line::draw(svg, &plane, series, looks.of(&series.name));
            }
        }
        svg.close("svg");
    }
}

/// Axes and ticks of a panel. There are no axes if no point can be drawn.
#[derive(Debug)]
pub(super) struct Plan {
    axes: Option<(Axis, Axis)>,
    x_ticks: Ticks,
    y_ticks: Ticks,
}

impl Plan {
    /// Width of the labels of the vertical axis.
    pub(super) fn label_width(&self) -> f64 {
        axes::widest(&self.y_ticks)
    }
}
