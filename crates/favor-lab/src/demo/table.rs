//! The figures of all families side by side, for the page and the terminal.

use super::{Demo, curve};
use favor::Family;
use favor_io::numbers::percent;
use favor_io::table::Table;

/// One family's figures at the shown number of features.
pub(super) struct Line {
    pub(super) family: Family,
    pub(super) cells: Vec<String>,
    pub(super) best: Vec<bool>,
}

impl Demo {
    /// Column names.
    pub(super) fn columns(&self) -> Vec<String> {
        let m = self.options.shown_features;
        vec![
            format!("error of the kernel product, M = {m}"),
            format!("accuracy of the classifier, M = {m}"),
            format!("error of attention, M = {m}"),
            "features that beat the plain mean twofold".to_owned(),
        ]
    }

    /// One line per family. The best entries of each column are marked.
    pub(super) fn lines(&self) -> Vec<Line> {
        let m = self.options.shown_features;
        let figures: Vec<(Family, [Option<f64>; 4])> = self
            .options
            .families
            .iter()
            .map(|&family| {
                let at = |curves| curve::of(curves, family).and_then(|c| c.at(m));
                let attention = curve::of(&self.attention.errors, family);
                let enough = 0.5 * self.attention.uniform;
                let half = attention.and_then(|c| c.first(|e| e <= enough));
                let figures = [
                    at(&self.product.errors),
                    at(&self.classify.accuracy).map(|a| -a),
                    at(&self.attention.errors),
                    half.map(|m| m as f64),
                ];
                (family, figures)
            })
            .collect();
        let least = |column: usize| {
            let values = figures.iter().filter_map(|(_, f)| f[column]);
            values.fold(f64::INFINITY, f64::min)
        };
        let least = [least(0), least(1), least(2), least(3)];
        let most = self.options.features.last().copied().unwrap_or(0);
        let text = |value: Option<f64>| value.map_or("-".to_owned(), percent);
        let cells = |f: &[Option<f64>; 4]| {
            let half = f[3].map_or_else(|| format!("more than {most}"), |m| m.to_string());
            vec![text(f[0]), text(f[1].map(|a| -a)), text(f[2]), half]
        };
        // What reads the same is marked the same.
        let best = cells(&least.map(|v| Some(v).filter(|v| v.is_finite())));
        figures
            .iter()
            .map(|(family, f)| {
                let cells = cells(f);
                let best =
                    (0..4).map(|c| f[c].is_some() && cells[c] == best[c]).collect::<Vec<bool>>();
                Line { family: *family, cells, best }
            })
            .collect()
    }

    /// The same as text.
    pub(super) fn text_table(&self) -> String {
        let m = self.options.shown_features;
        let mut table = Table::new("family");
        let group = format!("with {m} features");
        table.column(&group, "product error");
        table.column(&group, "accuracy");
        table.column(&group, "attention error");
        for line in self.lines() {
            let mut cells = vec![line.family.name().to_owned()];
            cells.extend(line.cells.into_iter().take(3));
            table.row(cells);
        }
        let exact = ["exact", "0 %", &percent(self.classify.exact), "0 %"];
        table.row(exact.map(str::to_owned).to_vec());
        let uniform = percent(self.attention.uniform);
        table.row(["plain mean", "", "", &uniform].map(str::to_owned).to_vec());
        table.render("  ")
    }
}
