//! Pictures of decision regions, as SVG.

use super::{ClassifyResult, Regions};
use std::fmt::Write;

const SIDE: f64 = 300.0;
/// Pale for the regions, full for the points; the palette of the figures.
const PALE: [&str; 3] = ["#cfe3f1", "#f8d9bf", "#c4e9dd"];
const FULL: [&str; 3] = ["#0072b2", "#d55e00", "#009e73"];

impl ClassifyResult {
    /// One picture, with some of the training points.
    pub(super) fn picture(&self, regions: &Regions, title: &str) -> String {
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIDE} {SIDE}\" \
             role=\"img\" aria-label=\"{title}\" style=\"width:100%;height:auto\">"
        );
        // Without smoothing, so that no seams show between the cells.
        out.push_str("<g shape-rendering=\"crispEdges\">");
        let cell = SIDE / regions.size as f64;
        for (r, row) in regions.classes.chunks(regions.size).enumerate() {
            for (start, end, class) in runs(row) {
                let _ = write!(
                    out,
                    "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" \
                     fill=\"{}\"/>",
                    start as f64 * cell,
                    r as f64 * cell,
                    (end - start) as f64 * cell,
                    cell,
                    PALE[class % PALE.len()]
                );
            }
        }
        out.push_str("</g>");
        for &(x, y, class) in &self.dots {
            let place = |v: f64| 0.5 * SIDE * (1.0 + v / regions.extent);
            let _ = write!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.2\" fill=\"{}\"/>",
                place(x),
                place(-y),
                FULL[class % FULL.len()]
            );
        }
        out + "</svg>"
    }
}

/// Runs of one class in a row: start, end, class.
fn runs(row: &[usize]) -> Vec<(usize, usize, usize)> {
    let mut out: Vec<(usize, usize, usize)> = Vec::new();
    for (c, &class) in row.iter().enumerate() {
        match out.last_mut() {
            Some((_, end, last)) if *last == class => *end = c + 1,
            _ => out.push((c, c + 1, class)),
        }
    }
    out
}
