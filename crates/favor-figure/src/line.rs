//! Drawing one series into a plot.

use super::axes::Area;
use super::legend::widths;
use super::scale::Axis;
use super::series::Series;
use super::style::Look;
use super::svg::{Svg, number};
use super::text::figures;

// More markers than this would hide the line.
const MOST_MARKERS: usize = 40;

/// The axes and the area that points are drawn with. The area starts at the origin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plane {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) area: Area,
}

impl Plane {
    /// The position of a point, if both axes can show it.
    fn point(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((near(self.area.x(self.x.at(x)?)), near(self.area.y(self.y.at(y)?))))
    }
}

// Points far outside the chosen limits keep coordinates that every viewer can handle.
fn near(coordinate: f64) -> f64 {
    coordinate.clamp(-1e5, 1e5)
}

/// Draws a series: its line with gaps, error bars and markers.
pub(super) fn draw(svg: &mut Svg, plane: &Plane, series: &Series, look: Look) {
    let (width, radius) = widths(series.emphasised);
    svg.open("g", &[("class", "series"), ("data-name", &series.name)]);
    let placed: Vec<Option<(f64, f64)>> = series.points.iter().map(|p| plane.point(*p)).collect();

    let path: String = placed
        .split(Option::is_none)
        .filter(|run| run.len() > 1)
        .map(|run| {
            let steps: Vec<String> = run
                .iter()
                .flatten()
                .map(|(x, y)| format!("{} {}", number(*x), number(*y)))
                .collect();
            format!("M{}", steps.join("L"))
        })
        .collect();
    if !path.is_empty() {
        stroke_round(svg, &path, look, width);
    }
    for (i, at) in placed.iter().enumerate() {
        let error = series.error.as_ref().and_then(|e| e.get(i)).copied().unwrap_or(0.0);
        if let Some((x, _)) = at
            && error > 0.0
        {
            error_bar(svg, plane, *x, series.points[i].1, error, look);
        }
    }
    let count = placed.iter().flatten().count();
    let every = count.div_ceil(MOST_MARKERS).max(1);
    let drawn = placed.iter().zip(&series.points).filter_map(|(at, point)| Some(((*at)?, point)));
    for ((x, y), point) in drawn.step_by(every).map(|(at, point)| (at, *point)) {
        let note = format!("{}: ({}, {})", series.name, figures(point.0), figures(point.1));
        look.draw_marker(svg, x, y, radius, &note);
    }
    svg.close("g");
}

fn stroke_round(svg: &mut Svg, path: &str, look: Look, width: f64) {
    let width = number(width);
    let mut attributes = vec![
        ("d", path),
        ("fill", "none"),
        ("stroke", look.colour),
        ("stroke-width", width.as_str()),
        ("stroke-linejoin", "round"),
    ];
    if !look.dashes.is_empty() {
        attributes.push(("stroke-dasharray", look.dashes));
    }
    svg.element("path", &attributes);
}

fn error_bar(svg: &mut Svg, plane: &Plane, x: f64, value: f64, error: f64, look: Look) {
    let area = plane.area;
    let high = plane.y.at(value + error).map_or(area.top, |f| near(area.y(f)));
    // On a logarithmic axis, an error bar that reaches zero extends to the end of the axis.
    let low = plane.y.at(value - error).map_or(area.bottom(), |f| near(area.y(f)));
    const CAP: f64 = 2.4;
    let [left, right, x] = [x - CAP, x + CAP, x].map(number);
    let [low, high] = [low, high].map(number);
    let path =
        format!("M{x} {low}L{x} {high}M{left} {low}L{right} {low}M{left} {high}L{right} {high}");
    svg.stroke(&path, look.colour, 0.9, "");
}
