//! A figure of several panels with one legend.

use super::axes::{self, Area};
use super::legend::{Legend, Sample};
use super::panel::{Panel, Plan};
use super::style::{Looks, reference_dashes};
use super::svg::{Anchor, Svg, Type};
use super::text;

const MARGIN: f64 = 16.0;
const BETWEEN: f64 = 20.0;
const TITLE_SIZE: f64 = 15.0;
const PANEL_TITLE_SIZE: f64 = 12.0;
const CAPTION_SIZE: f64 = 11.0;
// Gap between the tick labels and the axis name.
const NAME_ROOM: f64 = 17.0;

/// Panels in rows and columns, with one legend below them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// Shown above everything; may be empty.
    pub title: String,
    /// Shown below everything.
    pub caption: Option<String>,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// The number of panels per row.
    pub columns: usize,
    /// Width and height of each plot, without its labels.
    pub plot_size: (f64, f64),
}

impl Figure {
    /// A figure without panels, with room for three per row.
    pub fn new(title: impl Into<String>) -> Self {
        let (caption, panels) = (None, Vec::new());
        Self { title: title.into(), caption, panels, columns: 3, plot_size: (240.0, 175.0) }
    }

    /// Adds a caption.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = Some(caption.into());
        self
    }

    /// Adds a panel.
    #[must_use]
    pub fn panel(mut self, panel: Panel) -> Self {
        self.panels.push(panel);
        self
    }

    /// Sets the number of panels per row.
    #[must_use]
    pub fn columns(mut self, columns: usize) -> Self {
        self.columns = columns;
        self
    }

    /// Sets the size of each plot.
    #[must_use]
    pub fn plot_size(mut self, width: f64, height: f64) -> Self {
        self.plot_size = (width, height);
        self
    }

    /// The figure as SVG.
    pub fn to_svg(&self) -> String {
        let series = self.panels.iter().flat_map(|p| &p.series);
        let looks = Looks::new(series.map(|s| (s.name.as_str(), s.style)));
        let mut references: Vec<&str> = Vec::new();
        for reference in self.panels.iter().flat_map(|p| &p.references) {
            if !references.contains(&reference.name.as_str()) {
                references.push(&reference.name);
            }
        }
        let grid = Grid::new(self);
        let inner = grid.width() - 2.0 * MARGIN;
        let legend = Legend::new(self.entries(&looks, &references), inner);
        let title = text::wrap(&self.title, TITLE_SIZE, inner);
        let caption = self.caption.as_deref().unwrap_or_default();
        let lines = text::wrap(caption, CAPTION_SIZE, inner);

        let below_title = MARGIN + title.len() as f64 * 1.3 * TITLE_SIZE + 2.0;
        let below_panels = below_title + grid.height();
        let legend_top = below_panels + 10.0;
        let below_legend = legend_top + legend.height() + 4.0;
        let height = below_legend + lines.len() as f64 * 1.4 * CAPTION_SIZE + MARGIN;

        let mut svg = Svg::new(grid.width(), height, &self.title, caption);
        let middle = 0.5 * grid.width();
        for (i, line) in title.iter().enumerate() {
            let y = MARGIN + (i as f64 * 1.3 + 0.8) * TITLE_SIZE;
            svg.text(middle, y, Anchor::Middle, Type::new(TITLE_SIZE).bold(), line);
        }
        for (i, panel) in self.panels.iter().enumerate() {
            svg.open("g", &[("class", "panel")]);
            let area = grid.area(i, below_title);
            grid.draw_names(&mut svg, i, panel, area);
            panel.draw(&mut svg, area, &grid.plans[i], &looks, &references);
            svg.close("g");
        }
        legend.draw(&mut svg, middle, legend_top);
        for (i, line) in lines.iter().enumerate() {
            let y = below_legend + (i as f64 * 1.4 + 1.3) * CAPTION_SIZE;
            let kind = Type::new(CAPTION_SIZE).colour("#555555");
            svg.text(MARGIN, y, Anchor::Start, kind, line);
        }
        svg.finish()
    }

    fn entries(&self, looks: &Looks, references: &[&str]) -> Vec<(String, Sample)> {
        let all = || self.panels.iter().flat_map(|p| &p.series);
        let lines = looks.names().map(|name| {
            let emphasised = all().any(|s| s.name == name && s.emphasised);
            (name.to_owned(), Sample::Line { look: looks.of(name), emphasised })
        });
        let references = references.iter().enumerate().map(|(i, name)| {
            ((*name).to_owned(), Sample::Reference { dashes: reference_dashes(i) })
        });
        lines.chain(references).collect()
    }
}

/// Where the panels are.
struct Grid {
    plot: (f64, f64),
    columns: usize,
    plans: Vec<Plan>,
    titles: Vec<Vec<String>>,
    /// Whether a panel shows the name of its horizontal and vertical axis.
    names: Vec<(bool, bool)>,
    /// Width of the labels of the vertical axes in each column.
    labels: Vec<f64>,
    /// Space to the left of each column.
    lefts: Vec<f64>,
    /// Space above and below each row.
    rows: Vec<(f64, f64)>,
}

impl Grid {
    fn new(figure: &Figure) -> Self {
        let panels = &figure.panels;
        let columns = figure.columns.clamp(1, panels.len().max(1));
        let sane = |size: f64| if size.is_finite() { size.clamp(80.0, 4000.0) } else { 200.0 };
        let plot = (sane(figure.plot_size.0), sane(figure.plot_size.1));
        let plans: Vec<Plan> = panels.iter().map(|p| p.plan(plot.0, plot.1)).collect();
        let titles: Vec<Vec<String>> =
            panels.iter().map(|p| text::wrap(&p.title, PANEL_TITLE_SIZE, plot.0 + 16.0)).collect();
        // A name that the neighbour below or to the left already shows is not repeated.
        let names: Vec<(bool, bool)> = (0..panels.len())
            .map(|i| {
                let below = panels.get(i + columns).map(|p| &p.x_label);
                let before = (i % columns > 0).then(|| &panels[i - 1].y_label);
                let (x, y) = (&panels[i].x_label, &panels[i].y_label);
                (!x.is_empty() && below != Some(x), !y.is_empty() && before != Some(y))
            })
            .collect();
        let mut labels = vec![0.0_f64; columns];
        let mut named = vec![false; columns];
        let mut rows = vec![(0.0_f64, 0.0_f64); panels.len().div_ceil(columns)];
        for i in 0..panels.len() {
            let (x, y) = names[i];
            labels[i % columns] = labels[i % columns].max(plans[i].label_width());
            named[i % columns] |= y;
            let above = titles[i].len() as f64 * 1.25 * PANEL_TITLE_SIZE + 14.0;
            let below = axes::tick_room() + if x { NAME_ROOM } else { 0.0 };
            let row = &mut rows[i / columns];
            *row = (row.0.max(above), row.1.max(below));
        }
        let lefts = labels
            .iter()
            .zip(named)
            .map(|(wide, named)| axes::TICK_GAP + wide + if named { NAME_ROOM } else { 0.0 })
            .collect();
        Self { plot, columns, plans, titles, names, labels, lefts, rows }
    }

    fn width(&self) -> f64 {
        let plots = self.columns as f64 * self.plot.0 + (self.columns - 1) as f64 * BETWEEN;
        2.0 * MARGIN + plots + self.lefts.iter().sum::<f64>()
    }

    fn height(&self) -> f64 {
        self.rows.iter().map(|(above, below)| above + self.plot.1 + below).sum()
    }

    fn area(&self, panel: usize, top: f64) -> Area {
        let (row, column) = (panel / self.columns, panel % self.columns);
        let before: f64 = self.lefts[..column].iter().sum();
        let left = MARGIN + before + self.lefts[column] + column as f64 * (self.plot.0 + BETWEEN);
        let over: f64 = self.rows[..row].iter().map(|(a, b)| a + self.plot.1 + b).sum();
        let top = top + over + self.rows[row].0;
        Area { left, top, width: self.plot.0, height: self.plot.1 }
    }

    fn draw_names(&self, svg: &mut Svg, i: usize, panel: &Panel, area: Area) {
        let lines = &self.titles[i];
        for (k, line) in lines.iter().enumerate() {
            let up = (lines.len() - 1 - k) as f64 * 1.25 * PANEL_TITLE_SIZE;
            let (x, y) = (area.left + 0.5 * area.width, area.top - 8.0 - up);
            svg.text(x, y, Anchor::Middle, Type::new(PANEL_TITLE_SIZE).bold(), line);
        }
        let (x, y) = self.names[i];
        if x {
            axes::horizontal_name(svg, area, axes::tick_room() + 13.0, &panel.x_label);
        }
        if y {
            // The same for all panels of a column, so that their names line up.
            let away = axes::TICK_GAP + self.labels[i % self.columns] + 8.0;
            axes::vertical_name(svg, area, away, &panel.y_label);
        }
    }
}
