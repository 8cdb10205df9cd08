//! What was learned as a table for people, and as JSON.

use super::Learning;
use favor::learned::{HeadReport, LearnedHead, Recommended};
use favor_io::numbers::{figures, percent};
use favor_io::table::Table;
use serde::Serialize;
use std::fmt::Write;

impl Learning {
    /// A table with one line per head.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if let Some(sources) = &self.sources {
            let _ = writeln!(out, "{sources}");
        }
        let _ = writeln!(out, "{}\n{}\n", self.what(), self.measured());
        let mut table = Table::new("head");
        for (group, name) in COLUMNS {
            table.column(group, name);
        }
        self.rows().into_iter().for_each(|row| table.row(row.to_vec()));
        out.push_str(&table.render("  "));
        out
    }

    /// What was learned on what, in a sentence.
    pub(super) fn what(&self) -> String {
        let Some(from) = self.from() else { return String::new() };
        let kind = if from.causal { "causal" } else { "bidirectional" };
        let unit = match self.sequences {
            1 => format!("pieces of {} tokens of one sequence", self.held_out_tokens()),
            _ => format!("sequences of {} tokens", self.tokens),
        };
        format!(
            "{} heads of dimension {}, {kind}; {} features, exact keys: {}; learned from {} {unit}, {} \
             held out",
            self.heads.len(),
            self.dim,
            self.spec.features,
            from.exact,
            from.sequences,
            from.held_out
        )
    }

    /// What the errors of the table are, in a sentence.
    pub(super) fn measured(&self) -> String {
        let what = if self.has_values { "output" } else { "weights" };
        format!("Error of the {what} on held-out sequences, relative to exact attention:")
    }

    /// The cells of the table: a row per head, and their means.
    pub(super) fn rows(&self) -> Vec<[String; 11]> {
        let optional = |v: Option<f64>| v.map_or("—".to_owned(), percent);
        let heads = self.heads.iter().enumerate().map(|(h, LearnedHead { report: r, .. })| {
            [
                h.to_string(),
                percent(r.before),
                percent(r.after),
                optional(r.exact_alone),
                optional(r.window_alone),
                percent(r.uniform),
                figures(r.kl_before),
                figures(r.kl_after),
                format!("{:.1}", r.exact_keys),
                r.kept.name().replace('_', " "),
                r.recommended.name().to_owned(),
            ]
        });
        let mean = [
            "mean".to_owned(),
            percent(self.mean(|r| r.before)),
            percent(self.mean(|r| r.after)),
            optional(self.mean_of_some(|r| r.exact_alone)),
            optional(self.mean_of_some(|r| r.window_alone)),
            percent(self.mean(|r| r.uniform)),
            figures(self.mean(|r| r.kl_before)),
            figures(self.mean(|r| r.kl_after)),
            format!("{:.1}", self.mean(|r| r.exact_keys)),
            String::new(),
            String::new(),
        ];
        heads.chain([mean]).collect()
    }

    /// The widest of the windows that cost as much.
    fn window(&self) -> usize {
        self.reports().map(|r| r.window).max().unwrap_or(0)
    }

    /// What to do instead of using the maps, where something simpler is as good.
    pub fn warning(&self) -> Option<String> {
        if self.reports().all(|r| r.recommended == Recommended::Exact) {
            let length = self.held_out_tokens();
            return Some(format!(
                "At the {length} tokens that were held out, exact attention takes no longer: learn from \
                 longer sequences, or with fewer features and exact keys."
            ));
        }
        let (after, alone) = (self.mean(|r| r.after), self.mean_of_some(|r| r.window_alone)?);
        (alone <= after).then(|| {
            format!(
                "An exact window of {} alone costs as much and is off by {} against {}: use that, or \
                 learn from more sequences or with more exact keys.",
                self.window_in_words(),
                percent(alone),
                percent(after)
            )
        })
    }

    /// The window that costs as much.
    pub(super) fn window_in_words(&self) -> String {
        let window = self.window();
        match self.from().map(|from| from.causal) {
            Some(true) => format!("{window} keys back"),
            _ => format!("±{window} keys"),
        }
    }

    /// Tokens of a held-out sequence: a single one is cut into pieces.
    fn held_out_tokens(&self) -> usize {
        match (self.sequences, self.from()) {
            (1, Some(from)) => self.tokens / (from.sequences + from.held_out).max(1),
            _ => self.tokens,
        }
    }

    /// JSON at full precision. What is not defined is `null`.
    pub fn to_json(&self) -> String {
        let heads = self.heads.iter().enumerate();
        let heads = heads.map(|(head, learned)| Object { head, report: &learned.report }).collect();
        // Nothing in here that JSON cannot hold; numbers that are not finite become null.
        let text = serde_json::to_string_pretty(&Heads { heads });
        text.unwrap_or_else(|_| "null".to_owned()) + "\n"
    }
}

/// Groups and names of the columns after the first.
pub(super) const COLUMNS: [(&str, &str); 10] = [
    ("with exact keys", "before"),
    ("with exact keys", "after"),
    ("alone", "exact keys"),
    ("alone", "window"),
    ("alone", "mean of values"),
    ("divergence", "before"),
    ("divergence", "after"),
    ("", "exact keys per query"),
    ("", "kept"),
    ("", "recommended"),
];

#[derive(Serialize)]
struct Heads<'a> {
    heads: Vec<Object<'a>>,
}

/// A head as JSON.
#[derive(Serialize)]
struct Object<'a> {
    head: usize,
    #[serde(flatten)]
    report: &'a HeadReport,
}
