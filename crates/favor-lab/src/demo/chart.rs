//! The figures of the page.

use super::{Demo, FamilyCurve, Timing};
use crate::families;
use favor_figure::{Figure, Panel, Scale, Series};

impl Demo {
    /// Error of the product against the number of features, and time against the number of points.
    pub(super) fn product_figure(&self) -> String {
        let mut errors = Panel::new("Error of K(X, Y)·C", "features M", "relative error");
        errors = errors.x_scale(Scale::Log10).y_scale(Scale::Log10);
        for curve in &self.product.errors {
            errors = errors.series(series(curve));
        }
        let seconds = |times: &[Timing]| -> Vec<(f64, f64)> {
            times.iter().map(|t| (t.points as f64, t.seconds)).collect()
        };
        let approximate =
            format!("{}, M = {}", self.product.timed.title(), self.options.shown_features);
        let times = Panel::new("Time", "points on either side", "seconds")
            .x_scale(Scale::Log10)
            .y_scale(Scale::Log10)
            .series(Series::new("exact", seconds(&self.product.exact)))
            .series(Series::new(approximate, seconds(&self.product.features)).emphasised());
        figure().panel(errors).panel(times).to_svg()
    }

    /// Accuracy against the number of features.
    pub(super) fn accuracy_figure(&self) -> String {
        let mut panel = Panel::new("Accuracy on new points", "features M", "accuracy");
        panel = panel.x_scale(Scale::Log10);
        for curve in &self.classify.accuracy {
            panel = panel.series(series(curve));
        }
        panel = panel.reference("exact kernel", self.classify.exact);
        figure().columns(1).plot_size(560.0, 250.0).panel(panel).to_svg()
    }

    /// Error of attention against the number of features, and prediction against measurement.
    pub(super) fn attention_figure(&self) -> String {
        let mut errors = Panel::new("Error of the output", "features M", "relative error");
        errors = errors.x_scale(Scale::Log10).y_scale(Scale::Log10);
        let worst = 3.0 * self.attention.uniform;
        let all = self.attention.errors.iter().flat_map(|c| &c.points).map(|p| p.value);
        let best = all.fold(self.attention.uniform, f64::min);
        // Families that fail altogether would press the others together.
        errors = errors.y_limits(0.8 * best, worst);
        for curve in &self.attention.errors {
            errors = errors.series(series(curve));
        }
        errors = errors.reference("plain mean of the values", self.attention.uniform);
        let mut both = Panel::new("Predicted and measured", "predicted error", "measured error");
        both = both.x_scale(Scale::Log10).y_scale(Scale::Log10);
        let mut ends: Vec<f64> = Vec::new();
        for (predicted, measured) in self.attention.predicted.iter().zip(&self.attention.errors) {
            let points: Vec<(f64, f64)> = predicted
                .points
                .iter()
                .filter(|p| p.value < 2.0)
                .filter_map(|p| Some((p.value, measured.at(p.features)?)))
                .collect();
            ends.extend(points.iter().flat_map(|p| [p.0, p.1]));
            both = both.series(families::series(predicted.family, points));
        }
        let (low, high) =
            ends.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &v| (low.min(v), high.max(v)));
        let diagonal = vec![(low, low), (high, high)];
        both = both.series(Series::new("prediction exact", diagonal));
        figure().panel(errors).panel(both).to_svg()
    }
}

fn figure() -> Figure {
    Figure::new("").columns(2).plot_size(330.0, 250.0)
}

/// A family's curve in the family's look.
fn series(curve: &FamilyCurve) -> Series {
    let points = curve.points.iter().map(|p| (p.features as f64, p.value)).collect();
    families::series(curve.family, points)
}
