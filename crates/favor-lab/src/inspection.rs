//! An inspection as a figure.

use crate::families::series;
use favor_figure::{Bars, Figure, Panel};
use favor_inspect::Inspection;

const LABEL: &str = "mean log (Var / K²) of one feature";

/// Bars, one per family, for a single head; for several a line per family over the heads.
pub fn to_svg(found: &Inspection) -> String {
    let caption = format!(
        "Natural logarithm of the relative variance of one random feature, mean over pairs of a \
         query and a key; lower is better, and every step of 1 is a factor e in the number of \
         features. {}.",
        capitalised(&found.scaling)
    );
    if let [head] = found.heads.as_slice() {
        let names = head.families.iter().map(|f| f.name.title().to_owned()).collect();
        let values = head.families.iter().map(|f| f.mean_log_relative_variance).collect();
        return Bars::new("Relative variance of the random features", names)
            .labels("", LABEL)
            .group("one feature, mean over pairs", Some(0), values)
            .caption(caption)
            .to_svg();
    }
    let mut panel = Panel::new("", "head", LABEL);
    let families = found.heads.first().map_or(0, |h| h.families.len());
    for f in 0..families {
        let family = found.heads[0].families[f].name;
        let points =
            found.heads.iter().map(|h| (h.head as f64, h.families[f].mean_log_relative_variance));
        panel = panel.series(series(family, points.collect()));
    }
    Figure::new("Relative variance of the random features, head by head")
        .columns(1)
        .plot_size(620.0, 330.0)
        .panel(panel)
        .caption(caption)
        .to_svg()
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |c| c.to_uppercase().collect::<String>() + letters.as_str())
}
