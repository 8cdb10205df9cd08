//! Models and evaluations as text for a person.

use crate::encode::{Kind, Missing};
use crate::evaluate::Evaluation;
use crate::model::{About, Model};
use crate::sigma::{Curve, Search};
use crate::task::{Prior, Task};
use favor::FeatureSpec;
use serde::Serialize;
use std::fmt::Write;

/// Columns and classes that are listed before the rest is only counted.
const LISTED: usize = 12;

impl Model {
    /// What the model is, in some lines.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let about = &self.about;
        let of = about.target.as_ref().map_or(String::new(), |t| format!(" of '{}'", t.name));
        let _ = writeln!(
            out,
            "{}{of} from {} columns, {} rows{}",
            about.task.name(),
            about.encoder.columns.len(),
            about.rows,
            match &about.weight_column {
                Some(name) => format!(" of weight {} by '{name}'", figures(about.weight)),
                None => String::new(),
            }
        );
        let _ = writeln!(out, "\ncolumns");
        for column in about.encoder.columns.iter().take(LISTED) {
            let _ = writeln!(out, "  {}: {}", column.name, kind(&column.kind));
        }
        more(&mut out, about.encoder.columns.len());
        match about.encoder.missing {
            Missing::Error => {}
            Missing::Drop => out.push_str("  rows with missing values are left out\n"),
            Missing::Mean => out.push_str("  missing values are taken as the column's mean\n"),
        }
        if !about.classes.is_empty() {
            let _ = writeln!(out, "\nclasses");
            for (c, class) in about.classes.iter().enumerate().take(LISTED) {
                let prior = self.prior(c);
                let _ = writeln!(out, "  {}: {} rows, prior {prior:.3}", class.label, class.rows);
            }
            more(&mut out, about.classes.len());
        }
        if let Task::Regress { centre, scale } = about.task {
            let (mean, deviation) = (figures(centre), figures(scale));
            let _ = writeln!(out, "\ntarget: mean {mean}, standard deviation {deviation}");
        }
        let spec = self.map.spec();
        let _ = writeln!(
            out,
            "\n{} features of {}, dimension {}, seed {}",
            spec.features,
            spec.family.title(),
            self.map.dim(),
            spec.seed
        );
        match &about.curve {
            Some(curve) => out.push_str(&curve_text(curve, about.sigma, about.task)),
            None => {
                let _ = writeln!(out, "σ = {} as given", figures(about.sigma));
            }
        }
        if let Ok(Some(error)) = self.typical_relative_error() {
            let _ =
                writeln!(out, "predicted relative error of the sums: {} (median)", percent(error));
            if error > 0.5 {
                out.push_str("  more features or a smaller σ would make them reliable\n");
            }
        }
        out
    }

    /// The same for programs.
    pub fn to_json(&self) -> String {
        to_json(&Card {
            about: &self.about,
            map: self.map.spec(),
            sample: self.sample_size(),
            relative_error: self.typical_relative_error().ok().flatten(),
        })
    }

    /// How likely a class is held to be before a row is seen.
    fn prior(&self, class: usize) -> f64 {
        let rule = &self.rule;
        let share = |c: usize| rule.weights[c] * rule.factors[c];
        let total: f64 = (0..rule.weights.len()).map(share).sum();
        match &self.about.prior {
            Prior::Data => rule.weights[class] / rule.weights.iter().sum::<f64>(),
            _ => share(class) / total,
        }
    }
}

#[derive(Serialize)]
struct Card<'a> {
    #[serde(flatten)]
    about: &'a About,
    map: &'a FeatureSpec,
    sample: usize,
    relative_error: Option<f64>,
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn more(out: &mut String, count: usize) {
    if count > LISTED {
        let _ = writeln!(out, "  … and {} more", count - LISTED);
    }
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Number { centre, scale } if (*centre, *scale) == (0.0, 1.0) => "number".into(),
        Kind::Number { centre, scale } => {
            format!("number, mean {}, standard deviation {}", figures(*centre), figures(*scale))
        }
        Kind::Boolean => "true or false".into(),
        Kind::Text { categories } => {
            let some: Vec<&str> = categories.iter().take(5).map(String::as_str).collect();
            let rest = if categories.len() > 5 { ", …" } else { "" };
            format!("text of {} categories: {}{rest}", categories.len(), some.join(", "))
        }
    }
}

fn curve_text(curve: &Curve, chosen: f64, task: Task) -> String {
    let how = match curve.search {
        Search::Validation => "every fourth held out".to_owned(),
        Search::CrossValidation { folds } => format!("{folds}-fold cross-validation"),
    };
    let mut out = format!(
        "σ = {}, the best of {} on {} rows, {how}:\n",
        figures(chosen),
        curve.trials.len(),
        curve.rows
    );
    let _ = writeln!(out, "  {:>7}  {:>16}  {:>12}", "σ", task.score_name(), "exact kernel");
    for trial in &curve.trials {
        let mark = if trial.sigma == chosen { " ←" } else { "" };
        let _ = writeln!(
            out,
            "  {:>7}  {:>16.3}  {:>12.3}{mark}",
            figures(trial.sigma),
            trial.score,
            trial.exact
        );
    }
    out
}

impl Evaluation {
    /// What was found, for programs.
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// What was found, in some lines.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{} {:.4} on {} rows", self.score_name, self.score, self.rows);
        if let Some(rmse) = self.rmse {
            let _ = writeln!(out, "root mean squared error {}", figures(rmse));
        }
        if self.left_out > 0 {
            let _ = writeln!(out, "{} rows with missing values left out", self.left_out);
        }
        if let Some(error) = self.relative_error {
            let _ =
                writeln!(out, "predicted relative error of the sums: {} (mean)", percent(error));
        }
        let c = &self.comparison;
        let _ = writeln!(out, "\non a sample of {} rows", c.rows);
        let _ = writeln!(out, "  {:.4}  the model", c.model);
        let _ =
            writeln!(out, "  {:.4}  the exact kernel over {} rows of the model", c.exact, c.keys);
        let _ = writeln!(out, "  {:.4}  features over the same {} rows", c.features, c.keys);
        let wrong: Vec<_> = self.confusion.iter().filter(|(t, f, _)| t != f).collect();
        if !wrong.is_empty() {
            let mut wrong = wrong;
            wrong.sort_by_key(|c| std::cmp::Reverse(c.2));
            let _ = writeln!(out, "\nmost frequent mistakes");
            for (truth, found, count) in wrong.into_iter().take(5) {
                let _ = writeln!(out, "  {count} of '{truth}' taken for '{found}'");
            }
        }
        out
    }
}

/// A number with three figures.
pub(crate) fn figures(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size @ 1e-3..1e7 => {
            let decimals = (2 - size.log10().floor() as i32).clamp(0, 5) as usize;
            format!("{value:.decimals$}")
        }
        _ => format!("{value:.2e}"),
    }
}

fn percent(value: f64) -> String {
    match 100.0 * value {
        v if v >= 999.5 => "> 1000 %".to_owned(),
        v if v >= 9.95 => format!("{v:.0} %"),
        v => format!("{v:.1} %"),
    }
}
