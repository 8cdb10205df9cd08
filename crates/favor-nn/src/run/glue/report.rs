//! The scores of the grid as tables.

use super::{Cell, Found, How, Variant};
use crate::run::grid;
use crate::task::Glue;
use favor_io::stats::mean;
use std::fmt::Write;

/// The scores of the grid.
#[derive(Debug, Clone, PartialEq)]
pub struct GlueReport {
    /// Result and seconds of each cell.
    pub cells: Vec<(Cell, Found, f64)>,
}

impl GlueReport {
    /// One row per cell.
    pub fn to_csv(&self) -> String {
        let mut out = "task,metric,attention,features,seed,score,replaced,seconds\n".to_owned();
        for (cell, found, seconds) in &self.cells {
            let Cell { task, variant, features, seed, how } = cell;
            let (name, metric, score) = (cell.column(), task.metric().title(), found.score);
            let replaced = found.replaced.map_or(String::new(), |r| format!("{r:.5}"));
            let variant = match how {
                How::Search { rate, epochs } => format!("search-{rate}-{epochs}"),
                _ => variant.to_string(),
            };
            let _ = writeln!(
                out,
                "{name},{metric},{variant},{features},{seed},{score:.5},{replaced},{seconds:.0}"
            );
        }
        out
    }

    /// A table of means and spreads over seeds, in per cent: one row per attention, one column per task; in
    /// brackets before any weight was trained.
    pub fn to_markdown(&self) -> String {
        let judged = || self.cells.iter().filter(|(c, ..)| !matches!(c.how, How::Search { .. }));
        // A task, and whether models were converted for it; what is done without training comes first.
        let column = |c: &Cell| (c.task, c.how == How::Convert);
        let mut columns: Vec<(Glue, bool)> = judged().map(|(c, ..)| column(c)).collect();
        columns.sort();
        columns.dedup();
        let mut rows: Vec<(Variant, usize)> = Vec::new();
        for (cell, ..) in judged() {
            if !rows.contains(&(cell.variant, cell.features)) {
                rows.push((cell.variant, cell.features));
            }
        }
        let title = |(task, converted): &(Glue, bool)| {
            let how = if *converted { "" } else { " drop-in" };
            format!("{}{how} ({})", task.title(), task.metric().title())
        };
        let heads: Vec<String> = columns.iter().map(title).collect();
        let mut out = format!("| attention | M | {} |\n", heads.join(" | "));
        let _ = writeln!(out, "|---|---|{}", "---|".repeat(columns.len()));
        for (variant, features) in rows {
            let one = |own: &(Glue, bool)| {
                let same =
                    |c: &Cell| (column(c), c.variant, c.features) == (*own, variant, features);
                let found: Vec<Found> =
                    judged().filter(|(c, ..)| same(c)).map(|(_, found, _)| *found).collect();
                let scores: Vec<f64> = found.iter().map(|f| f.score).collect();
                let replaced: Vec<f64> = found.iter().filter_map(|f| f.replaced).collect();
                let mut text = grid::spread(&scores);
                if !replaced.is_empty() {
                    let _ = write!(text, " ({:.1})", 100.0 * mean(&replaced));
                }
                text
            };
            let cells: Vec<String> = columns.iter().map(one).collect();
            let size = grid::size_title(features);
            let _ = writeln!(out, "| {} | {size} | {} |", variant.title(), cells.join(" | "));
        }
        out
    }
}
