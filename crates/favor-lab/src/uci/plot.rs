//! The experiment as a figure: one panel per set and one for the average.

use super::report::Mean;
use super::{QueryMoments, Reproduction, SetResult};
use crate::families::style;
use favor_figure::{Figure, Panel, Scale, Series};

/// Neighbouring series stand this much apart, as a factor of M, so that bars do not cover others.
const APART: f64 = 1.035;

impl Reproduction {
    /// Accuracy against the number of features.
    pub fn to_svg(&self) -> String {
        let mut figure = Figure::new("Kernel classification with random features").columns(3);
        for set in &self.sets {
            figure = figure.panel(self.panel(set.set.name(), Some(set), set.exact.accuracy));
        }
        if self.sets.len() > 1 {
            let name = format!("average of {}", self.sets.len());
            figure = figure.panel(self.panel(&name, None, self.exact_average()));
        }
        let fitted = match self.options.moments {
            QueryMoments::Training => "the training part",
            QueryMoments::Queries => "the training part and the points to be classified",
        };
        figure
            .caption(format!(
                "Accuracy on the test part against the number of features M: mean over {} draws of \
                 orthogonal ω, with bars of two standard errors of that mean. One division of each \
                 set into 90 % training, 5 % validation and 5 % test; bandwidth chosen on validation \
                 for every set, family and M; parameters fitted to {fitted}. Points stand a little \
                 apart sideways. Where there is no line of the exact kernel, it lies outside of \
                 the panel.",
                self.options.seeds
            ))
            .to_svg()
    }

    /// The panel of one set, or of the average.
    fn panel(&self, name: &str, set: Option<&SetResult>, exact: f64) -> Panel {
        let marks = self.options.features.iter().map(|m| *m as f64).collect();
        let title = format!("{name} (exact kernel {:.1} %)", 100.0 * exact);
        let mut panel = Panel::new(title, "M", "test accuracy (%)")
            .x_scale(Scale::Log10)
            .x_marks(marks)
            .reference("exact kernel", 100.0 * exact);
        let count = self.options.families.len();
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for (f, &family) in self.options.families.iter().enumerate() {
            let means: Vec<(usize, Mean)> = (0..self.options.features.len())
                .filter_map(|m| {
                    let mean = match set {
                        Some(set) => self.mean(set, family, m),
                        None => self.average(family, m),
                    };
                    Some((self.options.features[m], mean?))
                })
                .collect();
            for (_, mean) in &means {
                low = low.min(100.0 * mean.accuracy - 200.0 * mean.error);
                high = high.max(100.0 * mean.accuracy + 200.0 * mean.error);
            }
            let aside = APART.powf(f as f64 - 0.5 * (count as f64 - 1.0));
            let points = means.iter().map(|(m, v)| (*m as f64 * aside, 100.0 * v.accuracy));
            let errors = means.iter().map(|(_, v)| 200.0 * v.error);
            let series = Series::new(family.title(), points.collect());
            panel = panel.series(series.error(errors.collect()).style(style(family)));
        }
        // An exact kernel far above would press the curves together; its title says where it is.
        let near = (100.0 * exact).clamp(low, high + 0.6 * (high - low)) == 100.0 * exact;
        let high = if near { high.max(100.0 * exact) } else { high };
        let room = 0.06 * (high - low);
        panel.y_limits(low - room, high + room)
    }
}
