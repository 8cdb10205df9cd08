//! A budget spent over the heads of a layer, as a table for people, as a page and as JSON.

use super::{calibration, source, told};
use crate::Result;
use crate::page::{escape, figure, page, section};
use favor::learned::{Budget, HeadPlan, LayerPlan, LearnOptions, LearnProgress, plan_heads};
use favor::{FeatureMap, FeatureSpec, Kernel};
use favor_figure::{Figure, Panel, Scale, Series};
use favor_io::SequenceArrays;
use favor_io::numbers::percent;
use favor_io::progress::Listener;
use favor_io::table::Table;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// How the heads of a layer are computed within a budget, and what other budgets would give.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Where the arrays came from, if it is known.
    pub sources: Option<String>,
    /// What the heads may cost.
    pub budget: Budget,
    /// The heads, and the front of error against cost.
    pub layer: LayerPlan,
}

/// Learns maps of several sizes for each head and spends the budget where it lowers the error most.
///
/// ```
/// use favor::learned::{Budget, LearnOptions};
/// use favor::{ExactKeys, Family, FeatureSpec, draw::Stream};
/// use favor_io::{SequenceArrays, Sequences, progress};
/// use favor_lab::learning::plan;
/// let mut noise = Stream::new(1, 0);
/// let mut array = || Sequences::new((0..4 * 32 * 4).map(|_| noise.normal()).collect(), &[4, 1, 32, 4]);
/// let arrays = SequenceArrays::new(array()?, array()?, Some(array()?))?;
/// let spec = FeatureSpec::new(Family::Balanced, 8);
/// let options = LearnOptions::new().exact(ExactKeys::NONE.near(4)).steps(20);
/// let found = plan(&arrays, spec, false, &options, Budget::Error(0.3), &progress::silent)?;
/// assert!(found.layer.heads[0].point.error <= 0.3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(
    arrays: &SequenceArrays,
    spec: FeatureSpec,
    causal: bool,
    options: &LearnOptions<'_>,
    budget: Budget,
    listener: &Listener<'_>,
) -> Result<Plan> {
    let spec = spec.kernel(Kernel::attention(arrays.dim()));
    let progress = |p: LearnProgress| told(listener, p);
    let options = options.progress(Some(&progress));
    let source = source(arrays);
    let data = calibration(arrays, causal)?.source(&source);
    let layer = plan_heads(spec, data, &options, budget)?;
    Ok(Plan { sources: arrays.sources(), budget, layer })
}

impl Plan {
    /// The maps, one per head.
    pub fn maps(&self) -> Vec<FeatureMap> {
        self.layer.heads.iter().map(|head| head.map.clone()).collect()
    }

    /// A table with one line per head, the front, and where the maps are.
    pub fn to_text(&self, maps: &Path) -> String {
        let mut out = String::new();
        if let Some(sources) = &self.sources {
            let _ = writeln!(out, "{sources}");
        }
        let _ = writeln!(out, "{}:\n", self.aim());
        let mut table = Table::new("head");
        COLUMNS.into_iter().for_each(|name| table.column("", name));
        self.rows().into_iter().for_each(|row| table.row(row));
        out.push_str(&table.render("  "));
        let _ = writeln!(out, "\nWhat other budgets would give:\n");
        let mut table = Table::new("operations");
        table.column("", "error");
        // From the cheapest to exact attention, a few between.
        let front = &self.layer.front;
        let step = front.len().div_ceil(10).max(1);
        let last = front.len().saturating_sub(1);
        for (n, point) in front.iter().enumerate() {
            if n % step == 0 || n == last {
                table.row(vec![format!("{:.0}", point.operations), percent(point.error)]);
            }
        }
        out.push_str(&table.render("  "));
        let _ = writeln!(out, "\nThe maps are in {}, each with its exact keys.", maps.display());
        out
    }

    /// A page of its own: what each head gets, and error against cost for all budgets. It ends with
    /// `to_measure`, the command or code with which readers can measure the maps on their own data.
    pub fn to_html(&self, to_measure: &str) -> String {
        let mut out = String::from("<h1>Attention within a budget</h1>\n");
        let sources = self.sources.as_deref().map(escape).unwrap_or_default();
        let _ = writeln!(
            out,
            "<p class=\"lead\">{}. <span class=\"files\">{sources}</span></p>",
            self.aim()
        );
        section(
            &mut out,
            "Held-out sequences",
            "Head by head",
            "The cheapest or the most accurate of maps of several sizes with several kinds of exact keys. Heads \
             without features have exact keys alone.",
        );
        out.push_str("<div class=\"wide\"><table>\n<tr><th>head</th>");
        for name in COLUMNS {
            let _ = write!(out, "<th>{name}</th>");
        }
        out.push_str("</tr>\n");
        for row in self.rows() {
            let cells: String =
                row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            let _ = writeln!(out, "<tr>{cells}</tr>");
        }
        out.push_str("</table></div>\n");
        section(
            &mut out,
            "Error against cost",
            "What other budgets would give",
            "Lower and further left is better. Operations are multiply-adds per token and head; the error is the \
             root mean square over the heads.",
        );
        let front = &self.layer.front;
        let points = front.iter().map(|p| (p.operations, p.error)).collect();
        let count = self.layer.heads.len() as f64;
        let mean =
            |of: &dyn Fn(&HeadPlan) -> f64| self.layer.heads.iter().map(of).sum::<f64>() / count;
        let spent = (mean(&|h| h.point.operations), mean(&|h| h.point.error.powi(2)).sqrt());
        let panel = Panel::new("", "multiply-adds per token", "error of the output")
            .x_scale(Scale::Log10)
            .series(Series::new("what budgets can give", points))
            .series(Series::new("this budget", vec![spent]).emphasised());
        let svg = Figure::new("").columns(1).plot_size(620.0, 330.0).panel(panel).to_svg();
        let caption =
            "Errors on held-out sequences. The last point is exact attention for all heads.";
        figure(&mut out, &svg, caption);
        let _ = writeln!(
            out,
            "<h2>What next</h2>\n<p>Before you rely on the maps, measure them on data they have not seen:</p>\n\
             <pre>{}</pre>",
            escape(to_measure)
        );
        page("Attention within a budget", &out)
    }

    /// What was asked for.
    fn aim(&self) -> String {
        match self.budget {
            Budget::Error(most) => format!("As cheap as errors of at most {} allow", percent(most)),
            Budget::Operations(most) => {
                format!("At most {most} operations per token and head on average")
            }
        }
    }

    /// A row of cells per head.
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |(h, head): (usize, &HeadPlan)| {
            let Line { features, keys, error, operations, .. } = Line::of(head);
            let operations = format!("{operations:.0}");
            vec![h.to_string(), features.to_string(), keys, percent(error), operations]
        };
        self.layer.heads.iter().enumerate().map(row).collect()
    }

    /// JSON at full precision.
    pub fn to_json(&self) -> String {
        let report = Report {
            heads: self.layer.heads.iter().map(Line::of).collect(),
            front: self.layer.front.iter().map(|p| (p.operations, p.error)).collect(),
        };
        // Nothing in here that JSON cannot hold.
        serde_json::to_string_pretty(&report).unwrap_or_else(|_| "null".to_owned()) + "\n"
    }
}

/// The columns after the first.
const COLUMNS: [&str; 4] = ["features", "exact keys", "error", "operations"];

#[derive(Serialize)]
struct Report {
    heads: Vec<Line>,
    /// Operations per token and head, and the error.
    front: Vec<(f64, f64)>,
}

#[derive(Serialize)]
struct Line {
    /// 0 where the exact keys are alone.
    features: usize,
    /// Per query, on average.
    exact_keys: f64,
    /// Which these are, in words.
    keys: String,
    error: f64,
    operations: f64,
}

impl Line {
    fn of(head: &HeadPlan) -> Self {
        Self {
            features: if head.has_features { head.map.features() } else { 0 },
            exact_keys: head.exact_keys,
            keys: if head.exact.is_all() { "all".into() } else { head.exact.to_string() },
            error: head.point.error,
            operations: head.point.operations,
        }
    }
}
