//! Line charts and bar charts as SVG.
//!
//! A picture is one string without scripts, fonts, links or ids, so it can be written to a file or
//! embedded in a page next to others.
//!
//! ```
//! use favor_figure::{Figure, Panel, Scale, Series};
//! let panel = Panel::new("normal", "scale", "relative variance")
//!     .y_scale(Scale::Log10)
//!     .series(Series::new("positive", vec![(0.1, 0.02), (1.0, 3.0)]));
//! let svg = Figure::new("Variance").panel(panel).to_svg();
//! assert!(svg.starts_with("<svg"));
//! ```

mod axes;
mod bars;
mod chart;
mod legend;
mod line;
mod panel;
mod scale;
mod series;
mod style;
mod svg;
mod text;
mod ticks;

pub use bars::{Bars, Group};
pub use chart::Figure;
pub use panel::Panel;
pub use scale::Scale;
pub use series::{Reference, Series};
pub use svg::escape;
