//! The measurements of maps as text and JSON.

use super::{MapInspection, MapReport};
use favor_io::numbers::percent;
use favor_io::stats::mean;
use favor_io::table::Table;
use std::fmt::Write;

impl MapInspection {
    /// A human-readable table.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if let Some(sources) = &self.sources {
            let _ = writeln!(out, "{sources}");
        }
        let kind = if self.causal { "causal" } else { "bidirectional" };
        let what = if self.has_values { "output" } else { "weights" };
        let differ = "differ per head".to_owned();
        let features =
            self.features.map_or(format!("features {differ}"), |m| format!("{m} features"));
        let exact = self.exact.map_or(differ, |exact| exact.to_string());
        let _ = writeln!(
            out,
            "{} heads, {} sequence{} of {} tokens, {kind}; {features}, exact keys: {exact}",
            self.heads.len(),
            self.sequences,
            if self.sequences == 1 { "" } else { "s" },
            self.tokens,
        );
        for origin in &self.learned {
            let _ = writeln!(out, "{}", origin.to_text());
        }
        let _ = writeln!(out, "Error of the {what}, relative to exact attention:\n");
        let mut table = Table::new("head");
        for (group, name) in [
            ("", "features and exact keys"),
            ("alone", "exact keys"),
            ("alone", "window"),
            ("alone", "mean of values"),
            ("", "exact keys per query"),
        ] {
            table.column(group, name);
        }
        let optional = |v: Option<f64>| v.map_or("—".to_owned(), percent);
        let row = |name: String, r: &MapReport| {
            let alone = [optional(r.exact_alone), optional(r.window_alone), percent(r.uniform)];
            let [keys, window, uniform] = alone;
            vec![name, percent(r.error), keys, window, uniform, format!("{:.1}", r.exact_keys)]
        };
        self.heads.iter().for_each(|r| table.row(row(r.head.to_string(), r)));
        table.row(row("mean".to_owned(), &self.mean()));
        out.push_str(&table.render("  "));
        if self.heads.iter().any(|r| r.window_alone.is_none()) {
            return out;
        }
        let widest = self.heads.iter().map(|r| r.window).max().unwrap_or(0);
        let _ = writeln!(
            out,
            "\nThe window alone takes as many operations as features and exact keys together: {}{widest} \
             keys{}.",
            if self.causal { "" } else { "±" },
            if self.causal { " back" } else { "" }
        );
        out
    }

    /// The means over the heads, as one more head.
    pub fn mean(&self) -> MapReport {
        let of =
            |f: &dyn Fn(&MapReport) -> f64| mean(&self.heads.iter().map(f).collect::<Vec<_>>());
        let some = |f: &dyn Fn(&MapReport) -> Option<f64>| {
            let all: Option<Vec<f64>> = self.heads.iter().map(f).collect();
            all.map(|all| mean(&all))
        };
        MapReport {
            head: 0,
            error: of(&|r| r.error),
            exact_alone: some(&|r| r.exact_alone),
            window_alone: some(&|r| r.window_alone),
            window: self.heads.iter().map(|r| r.window).max().unwrap_or(0),
            uniform: of(&|r| r.uniform),
            exact_keys: of(&|r| r.exact_keys),
        }
    }

    /// JSON at full precision. Undefined values are `null`.
    pub fn to_json(&self) -> String {
        // JSON can represent everything in here; numbers that are not finite become null.
        serde_json::to_string_pretty(self).unwrap_or_else(|_| "null".to_owned()) + "\n"
    }
}
