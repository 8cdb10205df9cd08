//! A bar chart, with bars side by side in each category.

use super::axes::{self, Area};
use super::legend::{Legend, Sample, bar};
use super::scale::{Axis, Scale};
use super::series::Reference;
use super::style::{Looks, REFERENCE_COLOUR, reference_dashes};
use super::svg::{Anchor, Svg, Type};
use super::text::{self, figures};
use super::ticks;

const MARGIN: f64 = 16.0;
const TITLE_SIZE: f64 = 15.0;
const CAPTION_SIZE: f64 = 11.0;
const NAME_ROOM: f64 = 20.0;
const PLOT_HEIGHT: f64 = 240.0;
// The longest category name before it is truncated.
const LONGEST_NAME: f64 = 150.0;
// Degrees by which names are rotated if they would touch.
const TURN: f64 = -35.0;

/// The bars of one series, one per category.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Group {
    /// The name in the legend.
    pub name: String,
    /// The index of the style; without it the next free one is used.
    pub style: Option<usize>,
    /// One value per category. A value that the axis cannot show leaves a gap.
    pub values: Vec<f64>,
}

/// A bar chart.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Bars {
    /// Shown above the chart; may be empty.
    pub title: String,
    /// Shown below the chart.
    pub caption: Option<String>,
    /// Name of the horizontal axis.
    pub x_label: String,
    /// Name of the vertical axis.
    pub y_label: String,
    /// The scale of the vertical axis.
    pub scale: Scale,
    /// Names of the categories.
    pub categories: Vec<String>,
    /// The series.
    pub groups: Vec<Group>,
    /// Horizontal reference lines.
    pub references: Vec<Reference>,
}

impl Bars {
    /// An empty chart.
    pub fn new(title: impl Into<String>, categories: Vec<String>) -> Self {
        Self { title: title.into(), categories, ..Self::default() }
    }

    /// Names the axes.
    #[must_use]
    pub fn labels(mut self, x: impl Into<String>, y: impl Into<String>) -> Self {
        (self.x_label, self.y_label) = (x.into(), y.into());
        self
    }

    /// Adds a caption.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = Some(caption.into());
        self
    }

    /// Sets the scale of the vertical axis.
    #[must_use]
    pub fn scale(mut self, scale: Scale) -> Self {
        self.scale = scale;
        self
    }

    /// Adds a series, in the style with the given index or the next free one.
    #[must_use]
    pub fn group(
        mut self,
        name: impl Into<String>,
        style: Option<usize>,
        values: Vec<f64>,
    ) -> Self {
        self.groups.push(Group { name: name.into(), style, values });
        self
    }

    /// Adds a horizontal reference line.
    #[must_use]
    pub fn reference(mut self, name: impl Into<String>, value: f64) -> Self {
        self.references.push(Reference::new(name, value));
        self
    }

    /// The chart as SVG.
    pub fn to_svg(&self) -> String {
        let looks = Looks::new(self.groups.iter().map(|g| (g.name.as_str(), g.style)));
        let drawn = self.groups.iter().flat_map(|g| g.values.iter().take(self.categories.len()));
        let references = self.references.iter().map(|r| r.value);
        let axis = Axis::for_bars(self.scale, drawn.copied().chain(references));
        let ticks = axis.map(|a| ticks::upward(&a, PLOT_HEIGHT, axes::TICK_SIZE));
        let ticks = ticks.unwrap_or_default();

        let names = Names::new(self);
        let name_room = if self.y_label.is_empty() { 0.0 } else { NAME_ROOM };
        let left = MARGIN + name_room + axes::widest(&ticks) + axes::TICK_GAP;
        let left = left.max(MARGIN + names.overhang());
        let area_width = names.slot * self.categories.len().max(1) as f64;
        let width = left + area_width + MARGIN + 4.0;
        let inner = width - 2.0 * MARGIN;

        let title = text::wrap(&self.title, TITLE_SIZE, inner);
        let caption = self.caption.as_deref().unwrap_or_default();
        let lines = text::wrap(caption, CAPTION_SIZE, inner);
        let legend = Legend::new(self.entries(&looks), inner);

        let top = MARGIN + title.len() as f64 * 1.3 * TITLE_SIZE + 10.0;
        let area = Area { left, top, width: area_width, height: PLOT_HEIGHT };
        let x_room = if self.x_label.is_empty() { 0.0 } else { NAME_ROOM };
        let legend_top = area.bottom() + names.height() + x_room + 8.0;
        let below_legend = legend_top + legend.height() + 4.0;
        let height = below_legend + lines.len() as f64 * 1.4 * CAPTION_SIZE + MARGIN;

        let mut svg = Svg::new(width, height, &self.title, caption);
        for (i, line) in title.iter().enumerate() {
            let y = MARGIN + (i as f64 * 1.3 + 0.8) * TITLE_SIZE;
            svg.text(0.5 * width, y, Anchor::Middle, Type::new(TITLE_SIZE).bold(), line);
        }
        match &axis {
            Some(axis) => {
                axes::vertical(&mut svg, area, &ticks);
                self.draw_bars(&mut svg, area, axis, &looks);
            }
            None => axes::no_data(&mut svg, area),
        }
        names.draw(&mut svg, area);
        if !self.y_label.is_empty() {
            let away = axes::TICK_GAP + axes::widest(&ticks) + 9.0;
            axes::vertical_name(&mut svg, area, away, &self.y_label);
        }
        if !self.x_label.is_empty() {
            axes::horizontal_name(&mut svg, area, names.height() + 15.0, &self.x_label);
        }
        legend.draw(&mut svg, 0.5 * width, legend_top);
        for (i, line) in lines.iter().enumerate() {
            let y = below_legend + (i as f64 * 1.4 + 1.3) * CAPTION_SIZE;
            let kind = Type::new(CAPTION_SIZE).colour("#555555");
            svg.text(MARGIN, y, Anchor::Start, kind, line);
        }
        svg.finish()
    }

    fn draw_bars(&self, svg: &mut Svg, area: Area, axis: &Axis, looks: &Looks) {
        let slot = area.width / self.categories.len().max(1) as f64;
        let wide = bar_width(slot, self.groups.len());
        let base = match self.scale {
            Scale::Linear => axis.fraction(0.0),
            Scale::Log10 => 0.0,
        };
        for (g, group) in self.groups.iter().enumerate() {
            svg.open("g", &[("class", "series"), ("data-name", &group.name)]);
            for (c, (value, category)) in group.values.iter().zip(&self.categories).enumerate() {
                let Some(at) = axis.at(*value) else { continue };
                let first = area.left + (c as f64 + 0.5) * slot;
                let x = first + (g as f64 - 0.5 * self.groups.len() as f64) * wide;
                let (from, to) = (area.y(base.max(at)), area.y(base.min(at)));
                let note = format!("{}, {category}: {}", group.name, figures(*value));
                // A hairline gap between neighbours.
                let size = (0.92 * wide, to - from);
                bar(svg, looks.of(&group.name), (x + 0.04 * wide, from), size, &note);
            }
            svg.close("g");
        }
        axes::base(svg, area, area.y(base));
        for (i, reference) in self.references.iter().enumerate() {
            if let Some(at) = axis.at(reference.value) {
                let (y, dashes) = (area.y(at), reference_dashes(i));
                svg.line((area.left, y), (area.right(), y), REFERENCE_COLOUR, 1.3, dashes);
            }
        }
    }

    fn entries(&self, looks: &Looks) -> Vec<(String, Sample)> {
        let bars = looks.names().map(|n| (n.to_owned(), Sample::Bar { look: looks.of(n) }));
        let references = self.references.iter().enumerate();
        let references = references
            .map(|(i, r)| (r.name.clone(), Sample::Reference { dashes: reference_dashes(i) }));
        bars.chain(references).collect()
    }
}

fn bar_width(slot: f64, groups: usize) -> f64 {
    (0.8 * slot / groups.max(1) as f64).min(34.0)
}

/// The names of the categories below the axis.
struct Names {
    names: Vec<String>,
    slot: f64,
    turned: bool,
}

impl Names {
    fn new(chart: &Bars) -> Self {
        let count = chart.categories.len().max(1) as f64;
        // Bars of a readable width, in a picture that is neither tiny nor huge.
        let bars = chart.groups.len().max(1) as f64;
        let slot = (bars * 17.0 / 0.8).max(430.0 / count).min((1000.0 / count).max(bars * 4.0));
        let slot = slot.max(14.0);
        let names: Vec<String> = chart
            .categories
            .iter()
            .map(|n| text::shorten(n, axes::TICK_SIZE, LONGEST_NAME))
            .collect();
        let turned = names.iter().any(|n| text::width(n, axes::TICK_SIZE) > slot - 6.0);
        Self { names, slot, turned }
    }

    fn longest(&self) -> f64 {
        self.names.iter().map(|n| text::width(n, axes::TICK_SIZE)).fold(0.0, f64::max)
    }

    fn height(&self) -> f64 {
        if !self.turned {
            return axes::tick_room();
        }
        axes::tick_room() + self.longest() * (-TURN).to_radians().sin()
    }

    /// How far a rotated name may extend to the left of the plot.
    fn overhang(&self) -> f64 {
        if !self.turned {
            return 0.0;
        }
        let reach = |(i, name): (usize, &String)| {
            let wide = text::width(name, axes::TICK_SIZE) * TURN.to_radians().cos();
            wide - (i as f64 + 0.5) * self.slot
        };
        self.names.iter().enumerate().map(reach).fold(0.0, f64::max)
    }

    fn draw(&self, svg: &mut Svg, area: Area) {
        let y = area.bottom() + axes::TICK_GAP + 0.8 * axes::TICK_SIZE;
        let kind = Type::new(axes::TICK_SIZE);
        for (i, name) in self.names.iter().enumerate() {
            let x = area.left + (i as f64 + 0.5) * self.slot;
            if self.turned {
                svg.text(x + 4.0, y - 3.0, Anchor::End, kind.turned(TURN), name);
            } else {
                svg.text(x, y, Anchor::Middle, kind, name);
            }
        }
    }
}
