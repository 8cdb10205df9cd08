//! What a request and a table must have for a fit: settled before it, or refused.

use super::FitRequest;
use crate::encode::{Column, ColumnKind, Encoder, Missing, is_text};
use crate::model::ModelInfo;
use crate::report::figures;
use crate::source::Table;
use crate::states::Sample;
use crate::{Error, Remedy, Result, Setting};
use datafusion::arrow::datatypes::DataType;
use favor::Moments;
use favor::learn::{Scaling, Task};
use std::collections::HashSet;

/// The most labels of a target.
const MOST_CLASSES: usize = 1000;

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

/// That there are rows, that every column says something, and that there are not too many labels.
pub(super) fn contents(
    encoder: &Encoder,
    moments: &Moments,
    sample: &Sample,
    label: Option<&str>,
) -> Result<()> {
    if moments.count() == 0 {
        return Err(no_rows(encoder.missing));
    }
    let covariance = moments.covariance();
    let mut l = 0;
    for column in &encoder.columns {
        let mean = moments.mean().get(l).copied().unwrap_or(0.0);
        let value = match &column.kind {
            ColumnKind::Text { categories } if categories.len() < 2 => {
                Some(categories.first().map_or("null".into(), |c| format!("'{c}'")))
            }
            ColumnKind::Text { .. } => None,
            _ => is_constant(mean, covariance[(l, l)]).then(|| figures(mean)),
        };
        if let Some(value) = value {
            let reason = format!("is constant ({value})");
            return Err(Error::mendable(&column.name, reason, Remedy::Ignore));
        }
        l += column.width();
    }
    if let Some(target) = label {
        let labels: HashSet<&String> = sample.items.keys().map(|(_, label)| label).collect();
        if labels.len() > MOST_CLASSES {
            let reason = format!("is the target and has more than {MOST_CLASSES} different labels");
            return Err(Error::mendable(target, reason, Remedy::Regress));
        }
    }
    Ok(())
}

/// How a number is scaled that is predicted.
pub(super) fn target_scaling(moments: &Moments, target: &str) -> Result<Scaling> {
    let (centre, variance) = (moments.mean()[0], moments.covariance()[(0, 0)]);
    if is_constant(centre, variance) {
        let reason = format!("is the target and is constant ({})", figures(centre));
        return Err(Error::column(target, reason));
    }
    Ok(Scaling { centre, scale: variance.sqrt() })
}

/// Of a constant column rounding may leave a little.
fn is_constant(mean: f64, variance: f64) -> bool {
    variance.sqrt() <= 1e-13 * mean.abs()
}

/// That there is something to choose between.
pub(super) fn classes(info: &ModelInfo) -> Result<()> {
    if let (Task::Classify, Some(target), [one]) = (info.task, &info.target, &info.classes[..]) {
        let reason = format!("is the target and has one label, '{}'; two are needed", one.label);
        return Err(Error::column(&target.name, reason));
    }
    info.prior.check(&info.labels())
}
