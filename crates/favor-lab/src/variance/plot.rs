//! The experiment as a figure of six panels.

use super::{Curve, Regime, Reproduction};
use crate::families::series;
use favor::Family;
use favor_figure::{Figure, Panel};

impl Reproduction {
    /// One panel per kind of data.
    pub fn to_svg(&self) -> String {
        let mut figure = Figure::new("Relative variance of random features").columns(3);
        for regime in Regime::ALL {
            let curves: Vec<_> = self.curves.iter().filter(|c| c.regime == regime).collect();
            if curves.is_empty() {
                continue;
            }
            let mut panel = Panel::new(regime.name(), "scale", "mean log (Var / K²)");
            if let Some((low, high)) = limits(&curves) {
                panel = panel.y_limits(low, high);
            }
            for curve in curves {
                let points =
                    curve.points.iter().map(|p| (p.scale, p.log_relative_variance)).collect();
                panel = panel.series(series(curve.family, points));
            }
            figure = figure.panel(panel);
        }
        let options = &self.options;
        figure
            .caption(format!(
                "Natural logarithm of the relative variance of one feature of exp(xᵀy), from the \
                 closed forms: mean over all pairs of vectors and {} pairs of sets of {} vectors \
                 of dimension 64. Lower is better; every step of 1 is a factor e in the number of \
                 features. Curves that leave a panel go on rising.",
                options.sets, options.rows
            ))
            .to_svg()
    }
}

/// The ends of the vertical axis: some families rise so fast that they would press all others
/// together, so the axis ends a little above GE, which the paper compares with.
fn limits(curves: &[&Curve]) -> Option<(f64, f64)> {
    let values = |c: &Curve| c.points.iter().map(|p| p.log_relative_variance).collect::<Vec<_>>();
    let all: Vec<f64> = curves.iter().flat_map(|c| values(c)).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let ge = curves.iter().find(|c| c.family == Family::Ge)?;
    let ge = values(ge).into_iter().fold(f64::NEG_INFINITY, f64::max);
    let room = 0.06 * (ge - low);
    Some((low - room, high.min(ge + 0.2 * (ge - low)) + room))
}
