//! The inspection as a figure.

use super::Inspection;
use crate::families::style;
use favor::Family;
use favor_figure::{Bars, Figure, Panel, Series};

const LABEL: &str = "mean log (Var / K²) of one feature";

impl Inspection {
    /// Bars, one a family, for one head; a line a family over the heads for several.
    pub fn to_svg(&self) -> String {
        let caption = format!(
            "Natural logarithm of the relative variance of one random feature, mean over pairs of \
             a query and a key; lower is better, and every step of 1 is a factor e in the number \
             of features. {}.",
            capitalised(&self.scaling)
        );
        match self.heads.as_slice() {
            [head] => {
                let names = head.families.iter().map(|f| f.name.title().to_owned()).collect();
                let values = head.families.iter().map(|f| f.mean_log_relative_variance).collect();
                Bars::new("Relative variance of the random features", names)
                    .labels("", LABEL)
                    .group("one feature, mean over pairs", Some(0), values)
                    .caption(caption)
                    .to_svg()
            }
            _ => {
                let mut panel = Panel::new("", "head", LABEL);
                let families = self.heads.first().map_or(0, |h| h.families.len());
                for f in 0..families {
                    let family = self.heads[0].families[f].name;
                    let points = self
                        .heads
                        .iter()
                        .map(|h| (h.head as f64, h.families[f].mean_log_relative_variance));
                    let series = Series::new(family.title(), points.collect());
                    let series = series.style(style(family));
                    let balanced = family == Family::Balanced;
                    panel = panel.series(if balanced { series.emphasised() } else { series });
                }
                Figure::new("Relative variance of the random features, head by head")
                    .columns(1)
                    .plot_size(620.0, 330.0)
                    .panel(panel)
                    .caption(caption)
                    .to_svg()
            }
        }
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |c| c.to_uppercase().collect::<String>() + letters.as_str())
}
