//! The frame of a plot: grid, axis lines, ticks and their labels.

use super::svg::{Anchor, Svg, Type};
use super::text;
use super::ticks::Ticks;

/// Size of the tick labels.
pub(super) const TICK_SIZE: f64 = 10.0;
/// Size of the axis names.
pub(super) const NAME_SIZE: f64 = 11.5;
/// Gap between the plot and the tick labels.
pub(super) const TICK_GAP: f64 = 7.0;

const GRID: &str = "#e8e8e8";
const FRAME: &str = "#444444";

/// The area in which data is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    /// The y coordinate on the page of a position along the vertical axis.
    pub(super) fn y(&self, fraction: f64) -> f64 {
        self.bottom() - fraction * self.height
    }

    /// The x coordinate on the page of a position along the horizontal axis.
    pub(super) fn x(&self, fraction: f64) -> f64 {
        self.left + fraction * self.width
    }
}

/// Vertical space for the labels of a horizontal axis.
pub(super) fn tick_room() -> f64 {
    TICK_GAP + TICK_SIZE
}

/// Width of the widest label of a vertical axis.
pub(super) fn widest(ticks: &Ticks) -> f64 {
    ticks.major.iter().map(|t| t.label.width(TICK_SIZE)).fold(0.0, f64::max)
}

/// The vertical axis with its grid.
pub(super) fn vertical(svg: &mut Svg, area: Area, ticks: &Ticks) {
    for tick in &ticks.major {
        let y = area.y(tick.at);
        svg.line((area.left, y), (area.right(), y), GRID, 0.8, "");
    }
    for at in &ticks.minor {
        let y = area.y(*at);
        svg.line((area.left - 2.2, y), (area.left, y), FRAME, 0.6, "");
    }
    for tick in &ticks.major {
        let y = area.y(tick.at);
        svg.line((area.left - 4.0, y), (area.left, y), FRAME, 0.9, "");
        let (x, y) = (area.left - TICK_GAP, y + 0.35 * TICK_SIZE);
        svg.label(x, y, Anchor::End, Type::new(TICK_SIZE), &tick.label);
    }
    svg.line((area.left, area.top), (area.left, area.bottom()), FRAME, 0.9, "");
}

/// The horizontal axis with its grid.
pub(super) fn horizontal(svg: &mut Svg, area: Area, ticks: &Ticks) {
    let bottom = area.bottom();
    for tick in &ticks.major {
        let x = area.x(tick.at);
        svg.line((x, area.top), (x, bottom), GRID, 0.8, "");
    }
    for at in &ticks.minor {
        let x = area.x(*at);
        svg.line((x, bottom), (x, bottom + 2.2), FRAME, 0.6, "");
    }
    for tick in &ticks.major {
        let x = area.x(tick.at);
        svg.line((x, bottom), (x, bottom + 4.0), FRAME, 0.9, "");
        let y = bottom + TICK_GAP + 0.8 * TICK_SIZE;
        svg.label(x, y, Anchor::Middle, Type::new(TICK_SIZE), &tick.label);
    }
    base(svg, area, bottom);
}

/// A dark line across the plot.
pub(super) fn base(svg: &mut Svg, area: Area, y: f64) {
    svg.line((area.left, y), (area.right(), y), FRAME, 0.9, "");
}

/// The name of the vertical axis, centred at a distance of `away` from the plot.
pub(super) fn vertical_name(svg: &mut Svg, area: Area, away: f64, name: &str) {
    let size = text::fitting(name, NAME_SIZE, 1.15 * area.height);
    let (x, y) = (area.left - away, area.top + 0.5 * area.height);
    svg.text(x, y, Anchor::Middle, Type::new(size).turned(-90.0), name);
}

/// The name of the horizontal axis on a line `away` below the plot.
pub(super) fn horizontal_name(svg: &mut Svg, area: Area, away: f64, name: &str) {
    let size = text::fitting(name, NAME_SIZE, 1.15 * area.width);
    let (x, y) = (area.left + 0.5 * area.width, area.bottom() + away);
    svg.text(x, y, Anchor::Middle, Type::new(size), name);
}

/// What an empty plot shows.
pub(super) fn no_data(svg: &mut Svg, area: Area) {
    base(svg, area, area.bottom());
    svg.line((area.left, area.top), (area.left, area.bottom()), FRAME, 0.9, "");
    let (x, y) = (area.left + 0.5 * area.width, area.top + 0.5 * area.height);
    svg.text(x, y, Anchor::Middle, Type::new(TICK_SIZE).colour("#777777"), "no data");
}
