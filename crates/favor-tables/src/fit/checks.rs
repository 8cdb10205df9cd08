//! What a request and a table must have for a fit: settled before it, or refused.

use super::FitRequest;
use crate::encode::{Column, ColumnKind, Encoder, Missing, is_text, settled};
use crate::head::TableHead;
use crate::source::Table;
use crate::target::Target;
use crate::{Error, Remedy, Result, Setting};
use datafusion::arrow::datatypes::DataType;
use favor::Moments;
use favor::learn::{Bandwidth, KernelShape, Scaling, Search, Task};
use favor_io::numbers::data_figures;
use std::collections::HashSet;

/// The most labels of a target.
pub(super) const MOST_CLASSES: usize = 1000;

/// The task that was asked for, or the one that the target's type speaks for.
pub(super) fn task(table: &Table, request: &FitRequest) -> Result<Task> {
    if !(request.features > 0 && request.features <= 1 << 20) {
        let reason = format!("{} features; give 1 to 1048576", request.features);
        return Err(Error::request(Setting::Features, reason));
    }
    if request.task == Some(Task::Density) {
        return Ok(Task::Density);
    }
    let Some(target) = &request.target else {
        let reason = "name the column to predict, or ask for a density";
        return Err(Error::request(Setting::Target, reason));
    };
    match (request.task, table.data_type(target)?) {
        (Some(Task::Regress), t) if !(t.is_numeric() || t == DataType::Boolean) => {
            Err(Error::column(target, format!("is of type {t}; a regression needs a number")))
        }
        (Some(task), _) => Ok(task),
        (None, t) if t.is_floating() => Ok(Task::Regress),
        (None, t) if t.is_numeric() => {
            Err(Error::mendable(target, format!("is of type {t}"), Remedy::NameTask))
        }
        (None, _) => Ok(Task::Classify),
    }
}

/// The head that was asked for, or the usual one.
pub(super) fn head(request: &FitRequest, task: Task) -> Result<TableHead> {
    let head = request.head.unwrap_or(TableHead::usual(task));
    if !head.does(task) {
        let can: Vec<&str> =
            TableHead::all().filter(|h| h.does(task)).map(TableHead::name).collect();
        let reason = format!("{head} does no {}; give {}", task.name(), can.join(" or "));
        return Err(Error::request(Setting::Head, reason));
    }
    let plain = request.kernel.is_none_or(|k| k == KernelShape::Gaussian);
    if head == TableHead::Nw && (!plain || request.learned_metric) {
        let reason = "nw has the Gaussian kernel with one bandwidth; give another head";
        return Err(Error::request(Setting::Head, reason));
    }
    if head != TableHead::Nw
        && matches!(request.bandwidth, Bandwidth::Auto(Search::CrossValidation { .. }))
    {
        let reason =
            "only nw is cross-validated in parts of your choice; other heads have four folds";
        return Err(Error::request(Setting::Folds, reason));
    }
    Ok(head)
}

/// That there is something to choose between.
pub(super) fn labels(labels: &[String], target: Option<&Target>) -> Result<()> {
    if let ([one], Some(target)) = (labels, target) {
        let reason = format!("is the target and has one label, '{one}'; two are needed");
        return Err(Error::column(&target.name, reason));
    }
    Ok(())
}

/// The columns to predict from.
pub(super) fn columns(table: &Table, request: &FitRequest, task: Task) -> Result<Vec<Column>> {
    for name in request.ignore.iter().chain(request.weight.as_ref()) {
        table.data_type(name)?;
    }
    let special: HashSet<&String> =
        request.ignore.iter().chain(&request.weight).chain(&request.target).collect();
    let names: Vec<String> = match &request.columns {
        Some(names) => {
            if let Some(name) = names.iter().find(|n| special.contains(n)) {
                let reason = "cannot be predicted from and be target, weight or ignored too";
                return Err(Error::column(name, reason));
            }
            names.clone()
        }
        None => {
            let names = table.columns().into_iter().map(|c| c.0);
            names.filter(|n| !special.contains(n)).collect()
        }
    };
    if names.is_empty() {
        return Err(Error::request(Setting::Columns, "no column is left to predict from"));
    }
    let column = |name: &String| {
        let data_type = table.data_type(name)?;
        if task == Task::Density && (is_text(&data_type) || data_type == DataType::Boolean) {
            let reason = format!("is of type {data_type}; a density needs numbers");
            return Err(Error::mendable(name, reason, Remedy::Ignore));
        }
        Column::new(name, &data_type)
    };
    names.iter().map(column).collect()
}

pub(super) fn no_rows(missing: Missing) -> Error {
    let why = if missing == Missing::Drop { " without missing values" } else { "" };
    Error::request(Setting::Data, format!("the table has no rows{why}"))
}

/// That there are rows and that every column says something.
pub(super) fn contents(encoder: &Encoder, moments: &Moments) -> Result<()> {
    if moments.count() == 0 {
        return Err(no_rows(encoder.missing));
    }
    let covariance = moments.covariance();
    let mut l = 0;
    for column in &encoder.columns {
        let mean = moments.mean().get(l).copied().unwrap_or(0.0);
        let constant = |n: usize| is_constant(moments.mean()[n], covariance[(n, n)]);
        let value = match &column.kind {
            ColumnKind::Text { categories } if categories.len() < 2 && !column.marked => {
                Some(categories.first().map_or("null".into(), |c| format!("'{c}'")))
            }
            ColumnKind::Text { .. } => None,
            _ => (l..l + column.width()).all(constant).then(|| data_figures(mean)),
        };
        if let Some(value) = value {
            let reason = format!("is constant ({value})");
            return Err(Error::mendable(&column.name, reason, Remedy::Ignore));
        }
        l += column.width();
    }
    Ok(())
}

/// How a number is scaled that is predicted.
pub(super) fn target_scaling(moments: &Moments, target: &str) -> Result<Scaling> {
    let (centre, variance) = (moments.mean()[0], moments.covariance()[(0, 0)]);
    if is_constant(centre, variance) {
        let reason = format!("is the target and is constant ({})", data_figures(centre));
        return Err(Error::column(target, reason));
    }
    Ok(settled(Scaling { centre, scale: variance.sqrt() }))
}

/// Of a constant column rounding may leave a little.
fn is_constant(mean: f64, variance: f64) -> bool {
    variance.sqrt() <= 1e-13 * mean.abs()
}
