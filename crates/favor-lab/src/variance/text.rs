//! The experiment as text.

use super::report::{curve, gaps};
use super::{Regime, Reproduction};
use favor::Family;
use favor_io::numbers::fixed;
use favor_io::table::Table;
use std::fmt::Write;
use std::path::Path;

impl Reproduction {
    /// Findings, gaps at each scale, and the files that were written into `out`.
    pub fn to_text(&self, out: &Path) -> String {
        let mut text = String::new();
        let options = &self.options;
        let _ = writeln!(
            text,
            "Relative variance of one feature, mean over all pairs of {} sets of {} vectors \
             per side, dimension 64 (natural logarithms; images are bytes / 255)\n",
            options.sets, options.rows
        );
        if let Some(missing) = &self.missing {
            let names: Vec<&str> = missing.regimes.iter().map(|r| r.name()).collect();
            let _ = writeln!(
                text,
                "left out: {}, because there is no {}\n",
                names.join(", "),
                missing.files.join(" and no ")
            );
        }
        let mut shown =
            vec![0, (options.scales.len() / 2).saturating_sub(1), options.scales.len() - 1];
        shown.dedup();
        for scale in shown.into_iter().filter_map(|i| options.scales.get(i)).copied() {
            let _ = writeln!(text, "log(Var/K²) at scale {scale}");
            text.push_str(&self.values_at(scale).render("  "));
            text.push('\n');
        }
        for (better, worse) in
            [(Family::Sde, Family::Ge), (Family::Ade, Family::Ge), (Family::Balanced, Family::Sde)]
        {
            let _ = writeln!(text, "how much lower {better} is than {worse}, at each scale");
            text.push_str(&self.gap_table(better, worse).render("  "));
            text.push('\n');
        }
        for finding in &self.findings {
            let _ = write!(text, "{finding}");
        }
        let csv = out.join("variance.csv");
        let svg = out.join("variance.svg");
        let _ = writeln!(text, "\nwritten: {} and {}", csv.display(), svg.display());
        text
    }

    fn present(&self) -> impl Iterator<Item = Regime> + '_ {
        let known = |r: &Regime| self.curves.iter().any(|c| c.regime == *r);
        Regime::ALL.into_iter().filter(known)
    }

    fn values_at(&self, scale: f64) -> Table {
        let mut table = Table::new("family");
        self.present().for_each(|r| table.column("", r.name()));
        for &family in &self.options.families {
            let mut cells = vec![family.name().to_owned()];
            for regime in self.present() {
                let found = curve(&self.curves, regime, family);
                let point = found.and_then(|c| c.points.iter().find(|p| p.scale == scale));
                cells.push(point.map_or("-".to_owned(), |p| fixed(p.log_relative_variance)));
            }
            table.row(cells);
        }
        table
    }

    fn gap_table(&self, better: Family, worse: Family) -> Table {
        let mut table = Table::new("scale");
        self.options.scales.iter().for_each(|s| table.column("", s.to_string()));
        for regime in self.present() {
            let mut cells = vec![regime.name().to_owned()];
            let gaps = gaps(&self.curves, regime, better, worse).unwrap_or_default();
            cells.extend(gaps.iter().map(|(_, gap)| fixed(*gap)));
            table.row(cells);
        }
        table
    }
}
