//! The demonstration as one page.

use super::{Demo, curve};
use crate::page::{escape, figure, page, section};
use favor::Family;
use favor_io::numbers::percent;
use std::fmt::Write;

impl Demo {
    /// The whole page. It ends with `commands`, one per line, by which readers look at data of their own.
    pub fn to_html(&self, commands: &str) -> String {
        let mut body = String::new();
        self.head(&mut body);
        self.product_section(&mut body);
        self.classify_section(&mut body);
        self.attention_section(&mut body);
        self.table_section(&mut body);
        self.last_section(&mut body, commands);
        page("Kernels in linear time", &body)
    }

    fn head(&self, out: &mut String) {
        let m = self.options.shown_features;
        out.push_str("<h1>Kernels in linear time, and what it costs</h1>\n");
        out.push_str(
            "<p class=\"lead\">A kernel compares every vector with every other one, so its cost \
             grows with the square of their number. Random features replace it by a product of \
             two thin matrices. Here are three jobs, done exactly and with features, so that you \
             can see the error that you pay with.</p>\n<ul class=\"facts\">\n",
        );
        let mut fact = |figure: &str, text: String| {
            let _ = writeln!(out, "<li><b>{figure}</b>{text}</li>");
        };
        if let Some((points, ratio)) = self.product.speedup() {
            let text = format!("faster than exact at {points} points, with {m} features");
            fact(&format!("{ratio:.1}×"), text);
        }
        let at = |curves| {
            let found = curve::of(curves, Family::Balanced).and_then(|c| c.at(m));
            found.map_or("-".to_owned(), percent)
        };
        fact(&at(&self.product.errors), format!("error of the kernel product with {m} features"));
        let exact = percent(self.classify.exact);
        fact(&at(&self.classify.accuracy), format!("of points classified right; exact: {exact}"));
        let uniform = percent(self.attention.uniform);
        let text = format!("error of attention; the plain mean of the values has {uniform}");
        fact(&at(&self.attention.errors), text);
        out.push_str("</ul>\n");
    }

    fn product_section(&self, out: &mut String) {
        let p = &self.product;
        section(out, "Job 1", "A kernel product", &self.product_sentence());
        figure(
            out,
            &self.product_figure(),
            &format!(
                "Gaussian kernel of {} points against {} others of dimension {}, times two \
                 columns: the relative error of the result, mean of {} draws. Right: the time of \
                 one product in single precision; the features include fitting and drawing.",
                p.points, p.points, p.dim, self.options.draws
            ),
        );
    }

    fn classify_section(&self, out: &mut String) {
        let c = &self.classify;
        section(out, "Job 2", "A kernel classifier", &self.classify_sentence());
        out.push_str("<figure><div class=\"three\">\n");
        for regions in &c.regions {
            let (title, note) = match regions.family {
                None => ("Exact kernel".to_owned(), format!("{} training points", c.training)),
                Some(family) => {
                    let m = self.options.shown_features;
                    let same = percent(regions.agreement);
                    (
                        family.title().to_owned(),
                        format!("{m} features; agrees with exact on {same}"),
                    )
                }
            };
            let picture = c.picture(regions, &title);
            let _ = writeln!(
                out,
                "<div><div class=\"card\">{picture}</div><p><b>{title}</b><br>{note}</p></div>"
            );
        }
        out.push_str("</div></figure>\n");
        figure(
            out,
            &self.accuracy_figure(),
            &format!(
                "Each point gets the class with the most kernel mass around it. Accuracy on {} \
                 new points, mean of {} draws.",
                c.tested, self.options.draws
            ),
        );
    }

    fn attention_section(&self, out: &mut String) {
        let a = &self.attention;
        section(out, "Job 3", "Attention", &self.attention_sentence());
        figure(
            out,
            &self.attention_figure(),
            &format!(
                "One head of dimension {} and {} tokens; queries and keys have means of their own \
                 and a few strong directions, as in trained models. Left: families above the \
                 dashed line are worse than no attention at all; some leave the panel. Right: the \
                 error that the closed form predicts before any feature is drawn. It is cautious: it \
                 is the mean over all possible draws, to first order and for independent features, \
                 and rare bad draws and a few hard queries weigh most in it.",
                a.dim, a.tokens
            ),
        );
    }

    fn table_section(&self, out: &mut String) {
        out.push_str("<h2>All families side by side</h2>\n");
        out.push_str("<p>The best figures of each column are marked.</p>\n");
        out.push_str("<div class=\"wide\"><table>\n<tr><th>family</th>");
        self.columns().iter().for_each(|name| {
            let _ = write!(out, "<th>{name}</th>");
        });
        out.push_str("</tr>\n");
        for line in self.lines() {
            let _ = write!(out, "<tr><td>{}</td>", line.family.title());
            for (cell, best) in line.cells.iter().zip(line.best) {
                let class = if best { " class=\"best\"" } else { "" };
                let _ = write!(out, "<td{class}>{cell}</td>");
            }
            out.push_str("</tr>\n");
        }
        let _ = writeln!(
            out,
            "<tr class=\"reference\"><td>exact</td><td>0 %</td><td>{}</td><td>0 %</td>\
             <td></td></tr>\n<tr class=\"reference\"><td>plain mean of the values</td><td></td>\
             <td></td><td>{}</td><td></td></tr>\n</table></div>",
            percent(self.classify.exact),
            percent(self.attention.uniform)
        );
    }

    fn last_section(&self, out: &mut String, commands: &str) {
        let _ = writeln!(
            out,
            "<h2>How to go on</h2>\n<p>These data are synthetic. Whether features are accurate \
             enough on yours depends on how spread your vectors are, and the library can tell you \
             before you build on it:</p>\n<pre>{}</pre>",
            commands.lines().map(escape).collect::<Vec<_>>().join("\n")
        );
        let _ = writeln!(
            out,
            "<footer>Made with seed {} in {:.0} seconds. Every figure on this page \
             was computed in that run; the same seed gives the same errors, and times depend on \
             the machine.</footer>",
            self.options.seed, self.seconds
        );
    }
}
