//! The legend below a picture: one entry per name, in as many rows as needed.

use super::style::{Look, REFERENCE_COLOUR};
use super::svg::{Anchor, Svg, Type, number};
use super::text;

const SIZE: f64 = 11.0;
const ROW: f64 = 18.0;
const SAMPLE: f64 = 28.0;
const GAP: f64 = 6.0;
const BETWEEN: f64 = 20.0;

/// The symbol before a name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sample {
    Line { look: Look, emphasised: bool },
    Bar { look: Look },
    Reference { dashes: &'static str },
}

/// A legend laid out for a given width.
#[derive(Debug)]
pub(super) struct Legend {
    entries: Vec<(String, Sample)>,
    columns: usize,
    column_width: f64,
}

impl Legend {
    pub(super) fn new(entries: Vec<(String, Sample)>, width: f64) -> Self {
        let room = width - SAMPLE - GAP;
        let entries: Vec<(String, Sample)> =
            entries.into_iter().map(|(n, s)| (text::shorten(&n, SIZE, room), s)).collect();
        let widest = entries.iter().map(|(n, _)| text::width(n, SIZE)).fold(0.0, f64::max);
        let column_width = SAMPLE + GAP + widest;
        let most = ((width + BETWEEN) / (column_width + BETWEEN)) as usize;
        let most = most.clamp(1, entries.len().max(1));
        // Rows of about equal length look better than a short last one.
        let rows = entries.len().div_ceil(most).max(1);
        let columns = entries.len().div_ceil(rows).max(1);
        Self { entries, columns, column_width }
    }

    pub(super) fn height(&self) -> f64 {
        self.entries.len().div_ceil(self.columns) as f64 * ROW
    }

    /// Draws the legend centred on `middle`, from `top` downwards.
    pub(super) fn draw(&self, svg: &mut Svg, middle: f64, top: f64) {
        if self.entries.is_empty() {
            return;
        }
        let columns = self.columns as f64;
        let left = middle - 0.5 * (columns * (self.column_width + BETWEEN) - BETWEEN);
        svg.open("g", &[("class", "legend")]);
        for (i, (name, sample)) in self.entries.iter().enumerate() {
            let x = left + (i % self.columns) as f64 * (self.column_width + BETWEEN);
            let y = top + ((i / self.columns) as f64 + 0.5) * ROW;
            svg.open("g", &[("class", "entry")]);
            sample.draw(svg, x, y);
            let at = (x + SAMPLE + GAP, y + 0.35 * SIZE);
            svg.text(at.0, at.1, Anchor::Start, Type::new(SIZE), name);
            svg.close("g");
        }
        svg.close("g");
    }
}

impl Sample {
    fn draw(&self, svg: &mut Svg, x: f64, y: f64) {
        match self {
            Self::Line { look, emphasised } => {
                let (width, radius) = widths(*emphasised);
                svg.line((x, y), (x + SAMPLE, y), look.colour, width, look.dashes);
                look.draw_marker(svg, x + 0.5 * SAMPLE, y, radius, "");
            }
            Self::Bar { look } => {
                bar(svg, *look, (x + 0.5 * SAMPLE - 4.0, y - 6.0), (16.0, 12.0), "");
            }
            Self::Reference { dashes } => {
                svg.line((x, y), (x + SAMPLE, y), REFERENCE_COLOUR, 1.3, dashes);
            }
        }
    }
}

/// Width of a line and radius of its markers.
pub(super) fn widths(emphasised: bool) -> (f64, f64) {
    if emphasised { (2.6, 3.9) } else { (1.4, 3.1) }
}

/// A bar, pale with an outline if its colour is used a second time.
pub(super) fn bar(svg: &mut Svg, look: Look, corner: (f64, f64), size: (f64, f64), note: &str) {
    let (x, y) = (number(corner.0), number(corner.1));
    let (width, height) = (number(size.0), number(size.1));
    let filling = look.filling();
    let attributes = [
        ("x", x.as_str()),
        ("y", &y),
        ("width", &width),
        ("height", &height),
        ("fill", &filling),
        ("stroke", look.colour),
        ("stroke-width", if look.hollow { "1" } else { "0" }),
    ];
    svg.noted("rect", &attributes, note);
}
