//! The experiment as text.

use super::{QueryMoments, Reproduction};
use favor_io::numbers::{figures, fixed};
use favor_io::table::Table;
use std::fmt::Write;
use std::path::Path;

impl Reproduction {
    /// Sets, accuracies, ranking, findings, and the files that were written into `out`.
    pub fn to_text(&self, out: &Path) -> String {
        let mut text = String::new();
        let options = &self.options;
        let fitted = match options.moments {
            QueryMoments::Training => "the training part on both sides",
            QueryMoments::Queries => "the training part and the points to be classified",
        };
        let _ = writeln!(
            text,
            "Kernel classification: accuracy in percent, mean over {} draws of orthogonal ω; \
             bandwidth chosen on\nthe validation part for every set, family and M; parameters \
             fitted to {fitted}\n",
            options.seeds
        );
        text.push_str(&self.set_table().render("  "));
        for (m, features) in options.features.iter().enumerate() {
            let _ = writeln!(text, "\ntest accuracy with M = {features}");
            text.push_str(&self.accuracy_table(m).render("  "));
        }
        text.push_str("\nranking by the average over sets\n");
        text.push_str(&self.rank_table().render("  "));
        text.push_str(
            "  best: pairs of a set and M at which no family is more accurate; beaten: pairs at \
             which some\n  family is more accurate by over three standard errors of the difference\n\n",
        );
        for finding in &self.findings {
            let _ = write!(text, "{finding}");
        }
        if options.moments == QueryMoments::Training {
            text.push_str(
                "\nWith the same moments on both sides SADE equals GE and balanced equals SDE, \
                 and ADE equals GE up to a\nrotation of the draws: the difference between ADE \
                 and GE is chance.\n",
            );
        }
        text.push_str(
            "Errors are over draws alone. An accuracy p on n test rows has a sampling error of \
             √(p(1−p)/n) besides,\nwhich all families share and another division of the sets \
             (another seed) would show.\n",
        );
        let (csv, svg) = (out.join("uci.csv"), out.join("uci.svg"));
        let _ = writeln!(text, "\nwritten: {} and {}", csv.display(), svg.display());
        text
    }

    fn set_table(&self) -> Table {
        let mut table = Table::new("set");
        for name in ["training", "validation", "test", "columns", "classes"] {
            table.column("", name);
        }
        table.column("test accuracy", "most frequent class");
        table.column("test accuracy", "exact kernel");
        table.column("", "exact bandwidth");
        for set in &self.sets {
            let mut cells = vec![set.set.name().to_owned()];
            cells.extend(set.rows.iter().chain([&set.dim, &set.classes]).map(usize::to_string));
            cells.extend([percent(set.majority), percent(set.exact.accuracy)]);
            cells.push(figures(set.exact.bandwidth));
            table.row(cells);
        }
        table
    }

    fn accuracy_table(&self, place: usize) -> Table {
        let mut table = Table::new("family");
        self.sets.iter().for_each(|s| table.column("", s.set.name()));
        table.column("", "average");
        for &family in &self.options.families {
            let mut cells = vec![family.name().to_owned()];
            let means = self.sets.iter().map(|s| self.mean(s, family, place));
            let means = means.chain([self.average(family, place)]);
            cells.extend(means.map(|m| m.map_or("-".to_owned(), |m| percent(m.accuracy))));
            table.row(cells);
        }
        let mut cells = vec!["exact".to_owned()];
        cells.extend(self.sets.iter().map(|s| percent(s.exact.accuracy)));
        cells.push(percent(self.exact_average()));
        table.row(cells);
        table
    }

    fn rank_table(&self) -> Table {
        let mut table = Table::new("family");
        for features in &self.options.features {
            table.column("average accuracy at M", features.to_string());
        }
        table.column("", "all M");
        table.column("", "best");
        table.column("", "beaten");
        for rank in &self.ranking {
            let mut cells = vec![rank.family.name().to_owned()];
            cells.extend(rank.averages.iter().chain([&rank.overall]).map(|v| percent(*v)));
            cells.extend([rank.best, rank.beaten].map(|n| n.to_string()));
            table.row(cells);
        }
        table
    }
}

/// A share in percent, without the sign.
fn percent(share: f64) -> String {
    fixed(100.0 * share)
}
