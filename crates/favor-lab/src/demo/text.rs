//! The demonstration in a few lines for the terminal.

use super::{Demo, FamilyCurve, curve};
use favor::Family;
use favor_io::numbers::percent;
use std::fmt::Write;
use std::path::Path;

impl Demo {
    /// A short summary, and where the page is.
    pub fn to_text(&self, page: &Path) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "1. kernel product   {}", self.product_sentence());
        let _ = writeln!(out, "2. classification   {}", self.classify_sentence());
        let _ = writeln!(out, "3. attention        {}\n", self.attention_sentence());
        out.push_str(&self.text_table());
        let _ = writeln!(
            out,
            "\nsynthetic data, seed {}, {:.0} s; the page is {}",
            self.options.seed,
            self.seconds,
            page.display()
        );
        out
    }

    pub(super) fn product_sentence(&self) -> String {
        let m = self.options.shown_features;
        let error = |family| {
            let found = curve::of(&self.product.errors, family).and_then(|c| c.at(m));
            found.map_or("-".to_owned(), percent)
        };
        let time = self.product.speedup().map_or_else(String::new, |(points, ratio)| {
            if ratio > 1.0 {
                format!("; at {points} points they are {ratio:.0} times faster than exact")
            } else {
                format!("; at {points} points exact is still faster")
            }
        });
        format!(
            "{m} features of the balanced family give the product with an error of {}{} (SDE {}, \
             GE {}, FAVOR+ {}){time}.",
            error(Family::Balanced),
            best_other(&self.product.errors, m, &|e| e),
            error(Family::Sde),
            error(Family::Ge),
            error(Family::Pos)
        )
    }

    pub(super) fn classify_sentence(&self) -> String {
        let m = self.options.shown_features;
        let accuracy = |family| {
            let found = curve::of(&self.classify.accuracy, family).and_then(|c| c.at(m));
            found.map_or("-".to_owned(), percent)
        };
        format!(
            "The exact kernel is right on {} of new points; with {m} features the balanced family \
             is right on {}{}, SDE on {}, FAVOR+ on {}.",
            percent(self.classify.exact),
            accuracy(Family::Balanced),
            best_other(&self.classify.accuracy, m, &|a| -a),
            accuracy(Family::Sde),
            accuracy(Family::Pos)
        )
    }

    pub(super) fn attention_sentence(&self) -> String {
        let m = self.options.shown_features;
        let error = |family| {
            let found = curve::of(&self.attention.errors, family).and_then(|c| c.at(m));
            found.map_or("-".to_owned(), percent)
        };
        format!(
            "With {m} features the output has an error of {} (balanced{}), {} (SDE), {} (GE), \
             {} (FAVOR+); the plain mean of the values, which knows nothing, has {}.",
            error(Family::Balanced),
            best_other(&self.attention.errors, m, &|e| e),
            error(Family::Sde),
            error(Family::Ge),
            error(Family::Pos),
            percent(self.attention.uniform)
        )
    }
}

/// Names the best family where it is clearly not the balanced one.
fn best_other(curves: &[FamilyCurve], features: usize, cost: &dyn Fn(f64) -> f64) -> String {
    let at = |c: &FamilyCurve| c.at(features).map_or(f64::INFINITY, cost);
    let Some(best) = curves.iter().min_by(|a, b| at(a).total_cmp(&at(b))) else {
        return String::new();
    };
    let Some(ours) = curve::of(curves, Family::Balanced) else { return String::new() };
    let clearly = at(best) < at(ours) - 0.02 * at(ours).abs();
    match (clearly, best.at(features)) {
        (true, Some(value)) => {
            format!(", the best being {} with {}", best.family.title(), percent(value))
        }
        _ => String::new(),
    }
}
