//! The inspection as text.

use crate::report::{FamilyReport, HeadInspection, Inspection};
use favor::diagnose::median;
use favor_io::numbers::{count, figures, fixed, optional, optional_count};
use favor_io::table::Table;
use std::fmt::Write;

impl Inspection {
    /// A table per head, a summary over the heads, and what the columns mean.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if let Some(sources) = &self.sources {
            let _ = writeln!(out, "{sources}");
        }
        if let Some(head) = self.heads.first() {
            let _ = writeln!(out, "kernel  {}; {}", kernel(head.alpha), self.scaling);
            let _ = writeln!(
                out,
                "measured errors are means over {} draws (seed {})",
                head.draws, head.seed
            );
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(out, "hint    {hint}");
        }
        for head in &self.heads {
            self.head(&mut out, head);
        }
        if self.heads.len() > 1 {
            self.summary(&mut out);
        }
        out.push_str(&self.legend());
        out
    }

    fn head(&self, out: &mut String, head: &HeadInspection) {
        let title =
            if self.has_head_axis { format!("head {}: ", head.head) } else { String::new() };
        let _ = writeln!(
            out,
            "\n{title}{} queries, {} keys, dimension {}; floor of the objective {}",
            head.queries,
            head.keys,
            head.dim,
            fixed(head.floor)
        );
        if !head.pairs.all {
            let _ = writeln!(
                out,
                "variances over a sample of {} queries and {} keys (seed {}); parameters fitted \
                 on all rows",
                head.pairs.queries, head.pairs.keys, head.seed
            );
        }
        let rows: Vec<Row> = head.families.iter().map(Row::of).collect();
        out.push_str(&self.table("family", &rows).render("  "));
        if let Some(uniform) = head.uniform_error {
            let _ = writeln!(
                out,
                "  output error of the plain mean of the values (uniform baseline): {}",
                figures(uniform)
            );
        }
        if let Some(recommendation) = &head.recommendation {
            let _ = writeln!(out, "  recommendation: {}", recommendation.text);
        }
        for warning in &head.warnings {
            let _ = writeln!(out, "  warning: {warning}");
        }
    }

    fn summary(&self, out: &mut String) {
        let _ = writeln!(out, "\nmedian over the {} heads", self.heads.len());
        let families = self.heads.first().map_or(0, |h| h.families.len());
        let rows: Vec<Row> = (0..families)
            .map(|f| Row::median(self.heads.iter().map(|h| Row::of(&h.families[f])).collect()))
            .collect();
        out.push_str(&self.table("family", &rows).render("  "));
        let uniform: Vec<f64> = self.heads.iter().filter_map(|h| h.uniform_error).collect();
        if !uniform.is_empty() {
            let text = figures(median(uniform));
            let _ = writeln!(out, "  output error of the uniform baseline: {text}");
        }
        self.count_useful(out);
    }

    /// On how many heads the best family beats the uniform baseline clearly.
    fn count_useful(&self, out: &mut String) {
        for (at, features) in self.features.iter().enumerate() {
            let useful = self.heads.iter().filter(|head| {
                let errors = head.families.iter().filter_map(|f| f.measured[at].attention_error);
                let best = errors.fold(f64::INFINITY, f64::min);
                head.uniform_error.is_some_and(|u| best < 0.5 * u)
            });
            if self.has_values {
                let _ = writeln!(
                    out,
                    "  {features} features of the best family halve the error of the uniform \
                     baseline on {} of {} heads",
                    useful.count(),
                    self.heads.len()
                );
            }
        }
    }

    fn table(&self, first: &str, rows: &[Row]) -> Table {
        let mut table = Table::new(first);
        table.column("", "objective");
        table.column("", "log Var/K²");
        table.column("features for 10 % error", "pair");
        table.column("features for 10 % error", "row sum");
        if self.has_values {
            table.column("features for 10 % error", "output");
        }
        for m in &self.features {
            let group = format!("measured, M = {m}");
            table.column(&group, "kernel");
            if self.has_values {
                table.column(&group, "output");
            }
            table.column(&group, "ESS");
        }
        for row in rows {
            let mut cells = vec![row.name.to_owned(), fixed(row.objective), fixed(row.variance)];
            cells.push(count(row.pair));
            cells.push(optional_count(row.row_sum));
            if self.has_values {
                cells.push(optional_count(row.output));
            }
            for (kernel, attention, effective) in &row.measured {
                cells.push(optional(*kernel));
                if self.has_values {
                    cells.push(optional(*attention));
                }
                cells.push(optional(*effective));
            }
            table.row(cells);
        }
        table
    }

    fn legend(&self) -> String {
        let mut text = String::from(
            "\nobjective: mean over pairs of log E[f₁²f₂²]; log Var/K²: mean over pairs of the \
             logarithm of one feature's relative variance (lower is better)\n\
             features for 10 % error: from the closed forms, of a typical pair, of the median row \
             sum",
        );
        if self.has_values {
            text.push_str(
                ", of the attention output (to first order: too many where a few queries are hard)",
            );
        }
        text.push_str(
            "\nkernel: median relative error of K(x,y); ESS: how many of the M features carry a \
             row (near 1: the estimate is worthless)",
        );
        if self.has_values {
            text.push_str("; output: relative error of attention");
        }
        text + "\n"
    }
}

fn kernel(alpha: f64) -> String {
    match alpha {
        0.0 => "exp(xᵀy), softmax (alpha 0)".to_owned(),
        -0.5 => "exp(-‖x-y‖²/2), Gaussian (alpha -1/2)".to_owned(),
        _ => format!("exp(alpha‖x‖² + xᵀy + alpha‖y‖²), alpha {alpha}"),
    }
}

/// The figures of one line.
struct Row {
    name: &'static str,
    objective: f64,
    variance: f64,
    pair: f64,
    row_sum: Option<f64>,
    output: Option<f64>,
    measured: Vec<(Option<f64>, Option<f64>, Option<f64>)>,
}

impl Row {
    fn of(family: &FamilyReport) -> Self {
        let measured = family
            .measured
            .iter()
            .map(|m| (m.kernel_error, m.attention_error, m.effective_sample_size))
            .collect();
        Self {
            name: family.name.name(),
            objective: family.objective,
            variance: family.mean_log_relative_variance,
            pair: family.features_needed,
            row_sum: family.features_needed_row_sum,
            output: family.features_needed_output,
            measured,
        }
    }

    /// The medians of one family's rows.
    fn median(rows: Vec<Self>) -> Self {
        let of = |get: &dyn Fn(&Self) -> f64| median(rows.iter().map(get));
        let maybe = |get: &dyn Fn(&Self) -> Option<f64>| {
            let all: Option<Vec<f64>> = rows.iter().map(get).collect();
            all.map(median)
        };
        let first = &rows[0];
        let measured = (0..first.measured.len())
            .map(|i| {
                (
                    maybe(&|r| r.measured[i].0),
                    maybe(&|r| r.measured[i].1),
                    maybe(&|r| r.measured[i].2),
                )
            })
            .collect();
        Self {
            name: first.name,
            objective: of(&|r| r.objective),
            variance: of(&|r| r.variance),
            pair: of(&|r| r.pair),
            row_sum: maybe(&|r| r.row_sum),
            output: maybe(&|r| r.output),
            measured,
        }
    }
}
