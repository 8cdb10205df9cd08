//! What was learned as one page.

use super::text::COLUMNS;
use super::{Learning, front, picture};
use crate::Result;
use crate::page::{escape, figure, page, section};
use favor_io::SequenceArrays;
use favor_io::numbers::{figures, percent};
use favor_io::progress::{Counter, Listener};
use std::fmt::Write;

impl Learning {
    /// The whole page, with measurements of its own on what was held out. It ends with
    /// `to_measure`: the command or code with which readers can measure the maps on their own data.
    pub fn to_html(
        &self,
        arrays: &SequenceArrays,
        to_measure: &str,
        listener: &Listener<'_>,
    ) -> Result<String> {
        let counter = Counter::new(listener, front::steps(self));
        let mut out = String::new();
        self.head(&mut out);
        self.method_section(&mut out);
        self.table_section(&mut out);
        self.picture_section(&mut out, arrays)?;
        self.front_section(&mut out, arrays, &counter)?;
        self.last_section(&mut out, to_measure);
        Ok(page("Learned feature maps", &out))
    }

    fn head(&self, out: &mut String) {
        out.push_str("<h1>Attention by learned features</h1>\n");
        out.push_str(
            "<p class=\"lead\">Attention compares every token with every other one. Features replace \
             that by a few sums, in time that grows with the length and not with its square. Here they \
             were learned from queries and keys of these heads, and measured on sequences that \
             learning did not see.</p>\n<ul class=\"facts\">\n",
        );
        let mut fact = |figure: String, text: String| {
            let _ = writeln!(out, "<li><b>{figure}</b>{text}</li>");
        };
        let before = percent(self.mean(|r| r.before));
        let after = percent(self.mean(|r| r.after));
        fact(after, format!("error of the {}; before learning {before}", self.noun()));
        if let Some(alone) = self.mean_of_some(|r| r.window_alone) {
            let window = self.window_in_words();
            let text = format!("with an exact window of {window} alone, at the same cost");
            fact(percent(alone), text);
        }
        let uniform = percent(self.mean(|r| r.uniform));
        fact(uniform, "with the plain mean of the values, which knows nothing".to_owned());
        let keys = format!("{:.1}", self.mean(|r| r.exact_keys));
        fact(keys, "exact keys per query; features carry all others".to_owned());
        out.push_str("</ul>\n");
    }

    fn noun(&self) -> &'static str {
        if self.has_values { "output" } else { "weights" }
    }

    fn method_section(&self, out: &mut String) {
        let sources = match &self.sources {
            Some(sources) => {
                format!(" The arrays are <span class=\"files\">{}</span>.", escape(sources))
            }
            None => String::new(),
        };
        let sentence = format!("{}.{sources}", self.what());
        section(out, "What was learned, and on what", "One map per head", &sentence);
        let _ = writeln!(
            out,
            "<p>Each of the {} features is a <em>slot</em>: it pools the values with weights of its own \
             over the keys, and a query mixes the slots. The closed form (family {}) chooses slots by the means \
             and covariances of queries and keys; learning starts there and descends the divergence \
             between exact weights and its own. Keys that are exact ({}) are attended to as they are, and \
             features carry all others, in one normalisation.</p>",
            self.spec.features,
            self.spec.family.name(),
            self.exact()
        );
    }

    fn exact(&self) -> String {
        let from = self.from();
        from.map_or_else(|| "none".to_owned(), |from| from.exact.to_string())
    }

    fn table_section(&self, out: &mut String) {
        section(
            out,
            "Held-out sequences",
            "Head by head",
            "Errors are relative to exact attention. <em>Before</em> is the closed form with the same \
             exact keys, <em>after</em> what was kept. Without features: the exact keys alone, an exact \
             window that takes as many operations, and the plain mean of the values. The divergence is \
             the loss that learning descends. The least error of each head is marked. <em>Recommended</em> \
             is what measured best for its cost: the map with its exact keys, the window, or exact \
             attention where it takes no longer at this length.",
        );
        out.push_str("<div class=\"wide\"><table>\n<tr><th rowspan=\"2\">head</th>");
        let mut at = 0;
        while at < COLUMNS.len() {
            let (group, name) = COLUMNS[at];
            let span = COLUMNS[at..].iter().take_while(|(g, _)| !group.is_empty() && *g == group);
            let span = span.count();
            let _ = match span {
                0 => write!(out, "<th rowspan=\"2\">{name}</th>"),
                _ => write!(out, "<th class=\"group\" colspan=\"{span}\">{group}</th>"),
            };
            at += span.max(1);
        }
        out.push_str("</tr>\n<tr>");
        for (_, name) in COLUMNS.iter().filter(|(group, _)| !group.is_empty()) {
            let _ = write!(out, "<th>{name}</th>");
        }
        out.push_str("</tr>\n");
        let rows = self.rows();
        for (h, row) in rows.iter().enumerate() {
            let best = self.heads.get(h).map(|head| {
                let r = &head.report;
                let errors = [Some(r.before), Some(r.after), r.exact_alone, r.window_alone];
                errors.into_iter().flatten().fold(f64::INFINITY, f64::min)
            });
            let class = if best.is_none() { " class=\"reference\"" } else { "" };
            let _ = write!(out, "<tr{class}>");
            for (c, cell) in row.iter().enumerate() {
                // What reads the same is marked the same.
                let marked = (1..=4).contains(&c) && best.is_some_and(|b| percent(b) == *cell);
                let class = if marked { " class=\"best\"" } else { "" };
                let _ = write!(out, "<td{class}>{cell}</td>");
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table></div>\n");
    }

    fn picture_section(&self, out: &mut String, arrays: &SequenceArrays) -> Result<()> {
        let pictures = picture::pictures(self, arrays)?;
        let tokens = pictures.first().map_or(0, picture::Picture::tokens);
        let sentence = format!(
            "The weights of the first {tokens} tokens of {}: a row per query, a column per key. Colours go \
             with the square root of a weight, so that small ones show; the few weights beyond the last \
             number have the last colour. In the third picture orange is too much and blue too little.",
            self.shown_in_words()
        );
        section(out, "Exact and approximate", "Where attention goes", &sentence);
        pictures.iter().for_each(|picture| out.push_str(&picture.to_html()));
        Ok(())
    }

    fn front_section(
        &self,
        out: &mut String,
        arrays: &SequenceArrays,
        counter: &Counter<'_>,
    ) -> Result<()> {
        let Some(front) = front::measure(self, arrays, counter)? else { return Ok(()) };
        section(
            out,
            "Error against cost",
            "What else the operations could buy",
            "Lower and further left is better. A token costs 2M(d + v) multiply-adds for M features, and \
             d + v for an exact key, with M more to take its estimate back.",
        );
        let caption = format!(
            "Error of the {} on the first {} tokens of {}, mean over the heads. Maps were learned with these \
             exact keys: {}; the other points use the same maps, and the first of their line has no window. \
             Nothing was learned from these tokens, but they had a say in what was kept. Closed forms are \
             fitted to all sequences. What is far worse than the plain mean is cut off.",
            self.noun(),
            front.tokens,
            self.shown_in_words(),
            self.exact()
        );
        figure(out, &front.to_svg(), &caption);
        Ok(())
    }

    fn last_section(&self, out: &mut String, to_measure: &str) {
        let warning = self.warning().map_or_else(String::new, |w| w + " ");
        let _ = writeln!(
            out,
            "<h2>What next</h2>\n<p>{warning}Before you rely on the maps, measure them on data they have not \
             seen:</p>\n<pre>{}</pre>",
            escape(to_measure)
        );
        let from = self.from();
        let seed = from.map_or(0, |from| from.seed);
        let _ = writeln!(
            out,
            "<footer>Seed {seed}. Mean divergence on held-out sequences: {} \
             before, {} after. The same data, options and seed give the same maps.</footer>",
            figures(self.mean(|r| r.kl_before)),
            figures(self.mean(|r| r.kl_after))
        );
    }
}
