//! Models and evaluations as text for a person.

use crate::encode::{ColumnKind, Missing};
use crate::evaluate::Evaluation;
use crate::model::{Model, ModelInfo};
use favor::FeatureSpec;
use favor::learn::{Curve, Readout, Search, Task};
use serde::Serialize;
use std::fmt::Write;

/// Columns and classes that are listed before the rest is only counted.
const LISTED: usize = 12;

impl Model {
    /// What the model is, in some lines.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let info = &self.info;
        let of = info.target.as_ref().map_or(String::new(), |t| format!(" of '{}'", t.name));
        let _ = writeln!(
            out,
            "{}{of} from {} columns, {} rows{}",
            info.task.name(),
            info.encoder.columns.len(),
            info.rows,
            match &info.weight {
                Some(name) => format!(" of weight {} by '{name}'", figures(info.total_weight)),
                None => String::new(),
            }
        );
        let _ = writeln!(out, "\ncolumns");
        for column in info.encoder.columns.iter().take(LISTED) {
            let _ = writeln!(out, "  {}: {}", column.name, kind(&column.kind));
        }
        more(&mut out, info.encoder.columns.len());
        match info.encoder.missing {
            Missing::Error => {}
            Missing::Drop => out.push_str("  rows with missing values are left out\n"),
            Missing::Mean => out.push_str("  missing values are taken as the column's mean\n"),
        }
        if !info.classes.is_empty() {
            let _ = writeln!(out, "\nclasses");
            for (c, class) in info.classes.iter().enumerate().take(LISTED) {
                let prior = self.prior(c);
                let _ = writeln!(out, "  {}: {} rows, prior {prior:.3}", class.label, class.rows);
            }
            more(&mut out, info.classes.len());
        }
        if let Some(scaling) = info.target_scaling {
            let (mean, deviation) = (figures(scaling.centre), figures(scaling.scale));
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
        match &info.curve {
            Some(curve) => out.push_str(&curve_text(curve, info.bandwidth, info.task)),
            None => {
                let _ = writeln!(out, "bandwidth {} as given", figures(info.bandwidth));
            }
        }
        if let Ok(Some(error)) = self.typical_relative_error() {
            let _ =
                writeln!(out, "predicted relative error of the sums: {} (median)", percent(error));
            if error > 0.5 {
                out.push_str("  more features or a larger bandwidth would make them reliable\n");
            }
        }
        out
    }

    /// The same for programs.
    pub fn to_json(&self) -> String {
        to_json(&Summary {
            info: &self.info,
            map: self.map.spec(),
            sample: self.sample_size(),
            relative_error: self.typical_relative_error().ok().flatten(),
        })
    }

    /// How likely a class is held to be before a row is seen.
    fn prior(&self, class: usize) -> f64 {
        let Readout::Classes { weights, factors } = &self.readout else { return 1.0 };
        let share = |c: usize| weights[c] * factors[c];
        share(class) / (0..weights.len()).map(share).sum::<f64>()
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    info: &'a ModelInfo,
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

fn kind(kind: &ColumnKind) -> String {
    match kind {
        ColumnKind::Number { centre, scale } if (*centre, *scale) == (0.0, 1.0) => "number".into(),
        ColumnKind::Number { centre, scale } => {
            format!("number, mean {}, standard deviation {}", figures(*centre), figures(*scale))
        }
        ColumnKind::Boolean => "true or false".into(),
        ColumnKind::Text { categories } => {
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
        "bandwidth {}, the best of {} on {} rows, {how}:\n",
        figures(chosen),
        curve.trials.len(),
        curve.rows
    );
    let _ =
        writeln!(out, "  {:>9}  {:>16}  {:>12}", "bandwidth", task.score_name(), "exact kernel");
    for trial in &curve.trials {
        let mark = if trial.bandwidth == chosen { " ←" } else { "" };
        let _ = writeln!(
            out,
            "  {:>9}  {:>16.3}  {:>12.3}{mark}",
            figures(trial.bandwidth),
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
