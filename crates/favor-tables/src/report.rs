//! Models and evaluations as text for a person.

use crate::choose::FeatureChoice;
use crate::encode::{ColumnKind, FOLDS, Missing};
use crate::evaluate::Evaluation;
use crate::head::TableHead;
use crate::judge::Judgement;
use crate::model::{Drift, Estimator, Model, ModelInfo};
use favor::FeatureSpec;
use favor::learn::{Curve, DesignSpec, HeadKind, Scaling, Search, Task};
use favor_io::numbers::{data_figures, percent};
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
            "{}{of} from {} columns, {} rows{}, {} head",
            info.task.name(),
            info.encoder.columns.len(),
            info.rows,
            match &info.weight {
                Some(name) => format!(" of weight {} by '{name}'", data_figures(info.total_weight)),
                None => String::new(),
            },
            info.head
        );
        let _ = writeln!(out, "\ncolumns");
        let mut number = 0;
        for column in info.encoder.columns.iter().take(LISTED) {
            let mark = if column.marked { ", missing values marked" } else { "" };
            let scaling = info.encoder.scalings()[number];
            let _ = writeln!(out, "  {}: {}{mark}", column.name, kind(&column.kind, scaling));
            number += column.width();
        }
        more(&mut out, info.encoder.columns.len());
        match info.encoder.missing {
            Missing::Error => {}
            Missing::Drop => out.push_str("  rows with missing values are left out\n"),
            Missing::Mean => out.push_str("  missing values are taken as the column's mean\n"),
            Missing::Mark => {}
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
            let (mean, deviation) = (data_figures(scaling.centre), data_figures(scaling.scale));
            let _ = writeln!(out, "\ntarget: mean {mean}, standard deviation {deviation}");
        }
        let dimension = info.encoder.width();
        match &self.estimator {
            Estimator::Nw(nw) => {
                let spec = nw.map.spec();
                let (family, seed) = (spec.family.title(), spec.seed);
                let _ = writeln!(
                    out,
                    "\n{} features of {family}, dimension {dimension}, seed {seed}",
                    spec.features
                );
                match &info.curve {
                    Some(curve) => out.push_str(&curve_text(curve, info.bandwidth, info.task)),
                    None => {
                        let _ =
                            writeln!(out, "bandwidth {} as given", data_figures(info.bandwidth));
                    }
                }
            }
            Estimator::Linear(linear) => {
                let spec = linear.design.spec();
                let beside = if spec.linear { " plus the columns themselves" } else { "" };
                let _ = writeln!(
                    out,
                    "\n{} {} features of the {} kernel of bandwidth {}{beside}, dimension {dimension}, \
                     seed {}",
                    linear.design.features(),
                    spec.basis.name(),
                    spec.shape.name(),
                    data_figures(info.bandwidth),
                    spec.seed
                );
                out.push_str(&linear_text(info));
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
            map: self.map().map(|map| map.spec()),
            design: self.design().map(|design| design.spec()),
            sample: self.sample_size(),
            relative_error: self.typical_relative_error().ok().flatten(),
        })
    }

    /// How likely a class is held to be before a row is seen.
    fn prior(&self, class: usize) -> f64 {
        match &self.estimator {
            Estimator::Nw(nw) => nw.prior(class),
            Estimator::Linear(linear) => linear.prior(&self.info.classes, class),
        }
    }
}

/// What was tried, what the folds say, and what matters.
fn linear_text(info: &ModelInfo) -> String {
    let mut out = String::new();
    let logistic = info.head == TableHead::Linear(HeadKind::Logistic);
    if let Some(choice) = &info.choice {
        out.push_str(&choice_text(choice));
    }
    let share = if info.task == Task::Classify { "R² of the indicators" } else { "R²" };
    if let Some(report) = &info.report {
        let _ = writeln!(
            out,
            "\npenalty {}{}, by {FOLDS}-fold cross-validation; {share} with the first features alone:",
            data_figures(report.penalty),
            if logistic { " of the ridge head that the logistic one begins with" } else { "" }
        );
        for point in &report.curve {
            let _ = writeln!(out, "  {:>6}  {:.4}", point.features, point.score);
        }
        if let Some(doubled) = report.doubled {
            let _ = writeln!(out, "  twice as many would give about {doubled:.4}");
        }
    }
    out.push_str(&importance_text(info));
    if let Some(judgement) = info.judgement.as_ref().filter(|j| j.rows > 0) {
        let _ = writeln!(
            out,
            "\non {} rows of the sample, each predicted by a {}head fitted without its fold:",
            judgement.rows,
            // A logistic head for each fold would take as many passes again.
            if logistic { "ridge " } else { "" }
        );
        out.push_str(&judgement.to_text());
    }
    out
}

/// The columns that matter most, with their shares.
fn importance_text(info: &ModelInfo) -> String {
    let names = info.encoder.columns.iter().map(|c| c.name.as_str());
    let mut shares: Vec<(f64, &str)> = info.importances.iter().copied().zip(names).collect();
    if shares.iter().all(|(share, _)| *share <= 0.0) {
        return String::new();
    }
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut out =
        "\nimportance: change of the predictions when a column takes another row's value, as shares:\n".to_owned();
    for (share, name) in shares.iter().take(LISTED.min(8)) {
        let _ = writeln!(out, "  {:>5.1} %  {name}", 100.0 * share);
    }
    out
}

/// The best bandwidth of each kind of features, the best kind first, and which of them was chosen.
fn choice_text(choice: &FeatureChoice) -> String {
    let mut out = format!(
        "the best of {} on a sample of {} rows, {} features each, by cross-validation:\n",
        choice.candidates.len(),
        choice.rows,
        choice.features
    );
    for c in choice.kinds() {
        let _ = writeln!(
            out,
            "  {:>9}  {:<9}  bandwidth {:>6}{}  R² {:.4}{}",
            c.basis.name(),
            c.shape.name(),
            data_figures(c.bandwidth),
            if c.learned_metric { ", learned metric" } else { "" },
            c.score,
            if Some(c) == choice.best() { " ←" } else { "" }
        );
    }
    out
}

impl Judgement {
    /// One line for each figure.
    fn to_text(&self) -> String {
        let score = |name: &str, value: Option<f64>| {
            value.map_or(String::new(), |value| format!("  {name} {value:.4}\n"))
        };
        score("accuracy", self.accuracy) + &score("R²", self.r2) + &self.details()
    }

    /// The same without the score that an evaluation begins with.
    fn details(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                let _ = writeln!(out, "  {name} {value:.4}");
            }
        };
        line("log-loss", self.log_loss);
        line("Brier score", self.brier);
        line("AUC", self.auc);
        line("calibration error", self.calibration_error);
        if let Some(rmse) = self.rmse {
            let _ = writeln!(out, "  root mean squared error {}", data_figures(rmse));
        }
        if !self.coverage.is_empty() {
            let each = |(p, share): &(f64, f64)| format!("{p:.0} %: {:.1} %", 100.0 * share);
            let all: Vec<String> = self.coverage.iter().map(each).collect();
            let _ = writeln!(out, "  intervals cover {}", all.join(", "));
        }
        out
    }
}

impl Drift {
    /// What has moved, in some lines; nothing where nothing has.
    pub fn to_text(&self) -> String {
        if self.shifts.is_empty() {
            return String::new();
        }
        let mut out = "the new rows differ from those before:\n".to_owned();
        for shift in self.shifts.iter().take(5) {
            let _ = writeln!(
                out,
                "  {}: mean {:+.2} standard deviations, spread × {:.2}",
                shift.name, shift.shift, shift.spread
            );
        }
        if self.shifts.len() > 5 {
            let _ = writeln!(out, "  … and {} more", self.shifts.len() - 5);
        }
        out
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    #[serde(flatten)]
    info: &'a ModelInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<&'a FeatureSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    design: Option<&'a DesignSpec>,
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

fn kind(kind: &ColumnKind, scaling: Scaling) -> String {
    let some = |texts: &[String]| {
        let first: Vec<&str> = texts.iter().take(5).map(String::as_str).collect();
        let rest = if texts.len() > 5 { ", …" } else { "" };
        format!("{}{rest}", first.join(", "))
    };
    match kind {
        ColumnKind::Number if scaling == Scaling::IDENTITY => "number".into(),
        ColumnKind::Number => {
            let (mean, deviation) = (data_figures(scaling.centre), data_figures(scaling.scale));
            format!("number, mean {mean}, standard deviation {deviation}")
        }
        ColumnKind::Rank { knots } => {
            let (low, high) = (knots.first().map(|k| k.0), knots.last().map(|k| k.0));
            let (low, high) = (data_figures(low.unwrap_or(0.0)), data_figures(high.unwrap_or(0.0)));
            format!("number by rank, heavy tails, {low} to {high} in the sample")
        }
        ColumnKind::Boolean => "true or false".into(),
        ColumnKind::Text { categories } => {
            format!("text of {} categories: {}", categories.len(), some(categories))
        }
        ColumnKind::TargetMeans { values, .. } => {
            format!("text of {} values as means of the target: {}", values.len(), some(values))
        }
        ColumnKind::Time { clock } => {
            let day = if *clock { ", the week and the day" } else { " and the week" };
            format!("time as trend and cycles of the year{day}")
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
        data_figures(chosen),
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
            data_figures(trial.bandwidth),
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
        if let Some(judgement) = &self.judgement {
            out.push_str(&judgement.details());
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
                let _ = writeln!(out, "  {count} of '{truth}' predicted as '{found}'");
            }
        }
        out
    }
}
