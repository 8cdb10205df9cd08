//! Fitting: a survey where texts or means need one, then two passes, moments and sums, with the
//! choice of σ on a sample in between.

use crate::aggregate::{Aggregate, Job};
use crate::encode::{Column, Encoder, Kind, Missing, is_text, to_texts};
use crate::engine;
use crate::model::{About, Class, Model, Target, class_part, combine};
use crate::progress::Progress;
use crate::report::figures;
use crate::sigma::{Scene, Search, search};
use crate::source::Table;
use crate::states::{
    MomentsState, Sample, Setup, State, SumsState, Survey, SurveyColumn, TargetUse, from_bytes,
    missing_target,
};
use crate::task::{Prior, Task};
use crate::{Error, Result};
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{AggregateUDF, Expr, cast, ident};
use favor::{Coupling, Family, FeatureMap, FeatureSpec, Kernel, KeySums, Moments};
use std::collections::HashSet;
use std::str::FromStr;
use std::sync::Arc;

/// The most labels of a target.
const MOST_CLASSES: usize = 1000;

/// What is to be predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// A label.
    Classify,
    /// A number.
    Regress,
    /// The density of the rows.
    Density,
}

/// The factor of the vectors in the kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sigma {
    /// The best of a grid.
    Auto(Search),
    /// A given one.
    Fixed(f64),
}

/// What to fit, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The task; told from the target's type when `None`.
    pub goal: Option<Goal>,
    /// The column to predict; none for a density.
    pub target: Option<String>,
    /// The column of weights.
    pub weight: Option<String>,
    /// The columns to predict from; all others when `None`.
    pub columns: Option<Vec<String>>,
    /// Columns to leave out.
    pub ignore: Vec<String>,
    /// The family of the features.
    pub family: Family,
    /// Their number.
    pub features: usize,
    /// How the draws depend on one another.
    pub coupling: Coupling,
    /// What decides draws and samples.
    pub seed: u64,
    /// The factor of the vectors in the kernel.
    pub sigma: Sigma,
    /// What to do with missing values.
    pub missing: Missing,
    /// The most categories of a text column.
    pub categories: usize,
    /// Whether numbers are brought to mean 0 and variance 1.
    pub standardise: bool,
    /// How likely the classes are held to be.
    pub prior: Prior,
    /// The most rows of the sample that σ is chosen on and that the model keeps.
    pub sample: usize,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            goal: None,
            target: None,
            weight: None,
            columns: None,
            ignore: vec![],
            family: Family::Balanced,
            features: 256,
            coupling: Coupling::default(),
            seed: 0,
            sigma: Sigma::Auto(Search::Validation),
            missing: Missing::Error,
            categories: 64,
            standardise: true,
            prior: Prior::Data,
            sample: 4096,
        }
    }
}

/// Fits a model to a table.
pub async fn fit(table: &Table, request: &Request, progress: &Arc<Progress>) -> Result<Model> {
    let goal = goal(table, request)?;
    let columns = columns(table, request, goal)?;
    let target = request.target.as_ref().filter(|_| goal != Goal::Density);
    let target = match target {
        Some(name) => {
            // One type for all texts: which of them a reader gives must not show in the model.
            let data_type = match table.data_type(name)? {
                text if is_text(&text) => DataType::Utf8,
                other => other,
            };
            Some(Target { name: name.clone(), data_type: data_type.to_string() })
        }
        None => None,
    };
    let encoder = Encoder { columns, fill: vec![], missing: request.missing };
    let pass = Pass::new(table, goal, target.as_ref(), request.weight.as_deref(), request.missing)?;
    let setup = Setup {
        encoder,
        target: pass.target_use,
        target_name: target.as_ref().map_or(String::new(), |t| t.name.clone()),
        weight: request.weight.clone(),
        categories: request.categories,
        sample: request.sample.max(2),
        seed: request.seed,
        map: None,
    };
    let setup = surveyed(&pass, setup, progress).await?;
    let (raw, sample) = first_pass(&pass, &setup, progress).await?;
    check_contents(&setup.encoder, &raw.rows, &sample, goal)?;

    let encoder = match request.standardise {
        true => setup.encoder.standardised(&raw.rows),
        false => setup.encoder.clone(),
    };
    let (centres, scales) = encoder.centres_and_scales();
    let moments = raw.rows.standardised(&centres, &scales)?;
    let task = match goal {
        Goal::Classify => Task::Classify,
        Goal::Regress => regression(&raw.target, &setup.target_name)?,
        Goal::Density => Task::Density,
    };
    let spec = FeatureSpec::new(request.family, request.features)
        .coupling(request.coupling)
        .seed(request.seed);
    let scene = Scene { task, prior: &request.prior, spec, encoder: &encoder, moments: &moments };
    let (sigma, curve) = match request.sigma {
        Sigma::Fixed(sigma) => (sigma, None),
        Sigma::Auto(how) => {
            progress.begin("sigma", None);
            let curve = search(&scene, &sample, how)?;
            (curve.best().map_or(1.0, |t| t.sigma), Some(curve))
        }
    };
    let map = spec.kernel(Kernel::gaussian().scaled(sigma)?).fit(&moments, &moments)?;
    let about = About {
        task,
        target,
        weight_column: request.weight.clone(),
        encoder,
        sigma,
        curve,
        classes: vec![],
        prior: request.prior.clone(),
        rows: 0,
        weight: 0.0,
        sample_limit: setup.sample,
        sample_seed: request.seed,
    };
    let model = second_pass(&pass, about, map, moments, sample, progress).await?;
    check_classes(&model.about)?;
    Ok(model)
}

/// That there is something to choose between.
fn check_classes(about: &About) -> Result<()> {
    match (about.task, &about.target, &about.classes[..]) {
        (Task::Classify, Some(target), [one]) => {
            let reason =
                format!("is the target and has one label, '{}'; two are needed", one.label);
            Err(Error::column(&target.name, reason))
        }
        _ => about.prior.check(&about.labels()),
    }
}

/// Fits a model to a table with the encoders and the map of another, so that the two can be merged.
pub async fn fit_like(table: &Table, like: &Model, progress: &Arc<Progress>) -> Result<Model> {
    let about = like.about.clone();
    let goal = match about.task {
        Task::Classify => Goal::Classify,
        Task::Regress { .. } => Goal::Regress,
        Task::Density => Goal::Density,
    };
    let weight = about.weight_column.clone();
    let missing = about.encoder.missing;
    let pass = Pass::new(table, goal, about.target.as_ref(), weight.as_deref(), missing)?;
    for column in &about.encoder.columns {
        table.data_type(&column.name)?;
    }
    let setup = Setup {
        encoder: about.encoder.raw(),
        target: pass.target_use,
        target_name: about.target.as_ref().map_or(String::new(), |t| t.name.clone()),
        weight,
        categories: usize::MAX,
        sample: about.sample_limit,
        seed: about.sample_seed,
        map: None,
    };
    let (raw, sample) = first_pass(&pass, &setup, progress).await?;
    if raw.rows.count() == 0 {
        return Err(no_rows(missing));
    }
    let (centres, scales) = about.encoder.centres_and_scales();
    let moments = raw.rows.standardised(&centres, &scales)?;
    second_pass(&pass, about, like.map.clone(), moments, sample, progress).await
}

/// The model of the rows that a model has seen and of those of a table.
pub async fn update(table: &Table, model: &Model, progress: &Arc<Progress>) -> Result<Model> {
    model.merge(&fit_like(table, model, progress).await?)
}

/// The task that was asked for, or the one that the target's type speaks for.
fn goal(table: &Table, request: &Request) -> Result<Goal> {
    if !(request.features > 0 && request.features <= 1 << 20) {
        let reason = format!("{} features; give 1 to 1048576", request.features);
        return Err(Error::request("--features", reason));
    }
    let goal = match (request.goal, &request.target) {
        (Some(Goal::Density), _) => return Ok(Goal::Density),
        (None, None) | (Some(_), None) => {
            let reason = "name the column to predict, or give --density";
            return Err(Error::request("--target", reason));
        }
        (goal, Some(target)) => (goal, table.data_type(target)?),
    };
    let name = request.target.as_deref().unwrap_or_default();
    match goal {
        (Some(Goal::Regress), t) if !(t.is_numeric() || t == DataType::Boolean) => {
            Err(Error::column(name, format!("is of type {t}; --regress needs a number")))
        }
        (Some(goal), _) => Ok(goal),
        (None, t) if t.is_floating() => Ok(Goal::Regress),
        (None, t) if t.is_numeric() => {
            Err(Error::column(name, format!("is of type {t}: give --classify or --regress")))
        }
        (None, _) => Ok(Goal::Classify),
    }
}

fn columns(table: &Table, request: &Request, goal: Goal) -> Result<Vec<Column>> {
    for name in request.ignore.iter().chain(request.weight.as_ref()) {
        table.data_type(name)?;
    }
    let special: HashSet<&String> =
        request.ignore.iter().chain(&request.weight).chain(&request.target).collect();
    let names: Vec<String> = match &request.columns {
        Some(names) => {
            if let Some(name) = names.iter().find(|n| special.contains(n)) {
                return Err(Error::column(name, "cannot be in --columns and elsewhere too"));
            }
            names.clone()
        }
        None => {
            let names = table.columns().into_iter().map(|c| c.0);
            names.filter(|n| !special.contains(n)).collect()
        }
    };
    if names.is_empty() {
        return Err(Error::request("columns", "no column is left to predict from"));
    }
    let column = |name: &String| {
        let data_type = table.data_type(name)?;
        if goal == Goal::Density && (is_text(&data_type) || data_type == DataType::Boolean) {
            let reason = format!(
                "is of type {data_type}; a density needs numbers: leave it out with --ignore"
            );
            return Err(Error::column(name, reason));
        }
        Column::new(name, &data_type)
    };
    names.iter().map(column).collect()
}

/// A table with what the passes need to know of its columns.
struct Pass {
    table: Table,
    target: Option<Expr>,
    target_name: String,
    target_use: TargetUse,
    weight: Option<String>,
}

impl Pass {
    fn new(
        table: &Table,
        goal: Goal,
        target: Option<&Target>,
        weight: Option<&str>,
        missing: Missing,
    ) -> Result<Self> {
        if let Some(weight) = weight {
            table.data_type(weight)?;
        }
        let weight = weight.map(str::to_owned);
        let target_use = match goal {
            Goal::Classify => TargetUse::Label,
            Goal::Regress => TargetUse::Value { centre: 0.0, scale: 1.0 },
            Goal::Density => TargetUse::None,
        };
        let Some(target) = target else {
            return Ok(Self {
                table: table.clone(),
                target: None,
                target_name: String::new(),
                target_use,
                weight,
            });
        };
        let found = table.data_type(&target.name)?;
        let wanted = DataType::from_str(&target.data_type).unwrap_or_else(|_| found.clone());
        let plain = ident(&target.name);
        let table = match missing {
            Missing::Drop => table.with(table.frame.clone().filter(plain.clone().is_not_null())?),
            _ => table.clone(),
        };
        // Labels of another type than the model's would be other texts.
        let expression = if found == wanted { plain } else { cast(plain, wanted) };
        let target_name = target.name.clone();
        Ok(Self { table, target: Some(expression), target_name, target_use, weight })
    }

    /// The columns, the target if it is an argument, and the weight.
    fn arguments(&self, setup: &Setup) -> Vec<Expr> {
        let mut out: Vec<Expr> = setup.encoder.columns.iter().map(|c| ident(&c.name)).collect();
        out.extend(self.target.clone().filter(|_| setup.target != TargetUse::None));
        out.extend(self.weight.as_deref().map(ident));
        out
    }

    fn call(&self, job: Job, setup: &Arc<Setup>, progress: Option<&Arc<Progress>>) -> Result<Expr> {
        let mut aggregate = Aggregate::new(job, setup.clone())?;
        if let Some(progress) = progress {
            aggregate = aggregate.telling(progress);
        }
        Ok(AggregateUDF::from(aggregate).call(self.arguments(setup)))
    }

    /// The bytes of aggregates over the whole table.
    async fn aggregate(&self, calls: Vec<Expr>) -> Result<Vec<Vec<u8>>> {
        let count = calls.len();
        let frame = self.table.frame.clone().aggregate(vec![], calls);
        let batches = engine::collect(frame.map_err(|e| self.table.explain(e))?).await;
        let batches = batches.map_err(|e| self.table.explain(e))?;
        let found = batches.iter().find(|b| b.num_rows() > 0);
        let found = found.ok_or_else(|| Error::Engine("an aggregate gave no row".into()))?;
        Ok((0..count).map(|c| found.column(c).as_binary::<i32>().value(0).to_vec()).collect())
    }
}

/// Finds categories and means, where there are texts or means are wanted.
async fn surveyed(pass: &Pass, setup: Setup, progress: &Arc<Progress>) -> Result<Setup> {
    let texts = setup.encoder.columns.iter().any(|c| matches!(c.kind, Kind::Text { .. }));
    let mut setup = setup;
    if !texts && setup.encoder.missing != Missing::Mean {
        setup.encoder.fill = vec![0.0; setup.encoder.columns.len()];
        return Ok(setup);
    }
    progress.begin("survey", None);
    let shared = Arc::new(Setup { target: TargetUse::None, ..setup.clone() });
    let bytes = pass.aggregate(vec![pass.call(Job::Survey, &shared, Some(progress))?]).await?;
    let survey: Survey = from_bytes(&bytes[0])?;
    for (column, found) in setup.encoder.columns.iter_mut().zip(survey.columns) {
        match (&mut column.kind, found) {
            (Kind::Text { categories }, SurveyColumn::Text(weights)) => {
                let total: f64 = weights.values().sum();
                setup.encoder.fill.extend(weights.values().map(|w| w / total));
                *categories = weights.into_keys().collect();
            }
            (_, SurveyColumn::Number { sum, weight }) => {
                setup.encoder.fill.push(if weight > 0.0 { sum / weight } else { 0.0 });
            }
            _ => return Err(Error::Engine("a survey of another table".into())),
        }
    }
    Ok(setup)
}

async fn first_pass(
    pass: &Pass,
    setup: &Setup,
    progress: &Arc<Progress>,
) -> Result<(MomentsState, Sample)> {
    progress.begin("moments", None);
    let setup = Arc::new(setup.clone());
    let calls = vec![
        pass.call(Job::Moments, &setup, Some(progress))?,
        pass.call(Job::Sample, &setup, None)?,
    ];
    let bytes = pass.aggregate(calls).await?;
    Ok((from_bytes(&bytes[0])?, from_bytes(&bytes[1])?))
}

fn no_rows(missing: Missing) -> Error {
    let why = if missing == Missing::Drop { " without missing values" } else { "" };
    Error::request("data", format!("the table has no rows{why}"))
}

/// That there are rows, that every column says something, and that there are not too many labels.
fn check_contents(encoder: &Encoder, moments: &Moments, sample: &Sample, goal: Goal) -> Result<()> {
    if moments.count() == 0 {
        return Err(no_rows(encoder.missing));
    }
    let covariance = moments.covariance();
    let mut l = 0;
    for column in &encoder.columns {
        let mean = moments.mean().get(l).copied().unwrap_or(0.0);
        // Of a constant column rounding may leave a little.
        let constant = match &column.kind {
            Kind::Text { categories } => categories.len() < 2,
            _ => covariance[(l, l)].sqrt() <= 1e-13 * mean.abs(),
        };
        if constant {
            let value = match &column.kind {
                Kind::Text { categories } => {
                    categories.first().map_or("null".into(), |c| format!("'{c}'"))
                }
                _ => figures(mean),
            };
            let reason = format!("is constant ({value}); leave it out with --ignore");
            return Err(Error::column(&column.name, reason));
        }
        l += column.width();
    }
    if goal == Goal::Classify {
        let labels: HashSet<&String> = sample.items.keys().map(|(_, label)| label).collect();
        if labels.len() > MOST_CLASSES {
            let reason = format!("more than {MOST_CLASSES} different labels; is --regress meant?");
            return Err(Error::request("--target", reason));
        }
    }
    Ok(())
}

fn regression(target: &Moments, name: &str) -> Result<Task> {
    let (centre, scale) = (target.mean()[0], target.covariance()[(0, 0)].sqrt());
    if scale <= 1e-13 * centre.abs() {
        let reason = format!("is the target and is constant ({})", figures(centre));
        return Err(Error::column(name, reason));
    }
    Ok(Task::Regress { centre, scale })
}

async fn second_pass(
    pass: &Pass,
    mut about: About,
    map: FeatureMap,
    moments: Moments,
    sample: Sample,
    progress: &Arc<Progress>,
) -> Result<Model> {
    progress.begin("sums", Some(moments.count()));
    let setup = Setup {
        encoder: about.encoder.clone(),
        target: match about.task {
            Task::Regress { centre, scale } => TargetUse::Value { centre, scale },
            _ => TargetUse::None,
        },
        target_name: pass.target_name.clone(),
        weight: about.weight_column.clone(),
        categories: usize::MAX,
        sample: 0,
        seed: 0,
        map: Some(map.clone()),
    };
    let call = pass.call(Job::Sums, &Arc::new(setup.clone()), Some(progress))?;
    let sums = match about.task {
        Task::Classify => {
            let parts = class_sums(pass, call).await?;
            about.rows = parts.iter().map(|p| p.0.rows).sum();
            about.weight = parts.iter().map(|p| p.0.weight).sum();
            let (classes, sums) = combine(parts, about.target.as_ref(), &map)?;
            about.classes = classes;
            sums
        }
        _ => {
            let bytes = pass.aggregate(vec![call]).await?;
            let mut total = SumsState::new(&setup);
            total.merge(&setup, from_bytes(&bytes[0])?)?;
            (about.rows, about.weight) = (total.rows, total.weight);
            total.sums.ok_or_else(|| no_rows(about.encoder.missing))?
        }
    };
    if about.weight <= 0.0 {
        return Err(Error::request("--weight", "all weights are zero"));
    }
    Model::new(about, map, moments, sums, sample)
}

/// The sums of each class: one group of rows a label.
async fn class_sums(pass: &Pass, call: Expr) -> Result<Vec<(Class, KeySums)>> {
    let Some(target) = pass.target.clone() else {
        return Err(Error::request("--target", "name the column to predict"));
    };
    let frame = pass.table.frame.clone().aggregate(vec![target], vec![call]);
    let batches = engine::collect(frame.map_err(|e| pass.table.explain(e))?).await;
    let mut parts = vec![];
    for batch in batches.map_err(|e| pass.table.explain(e))? {
        let labels = to_texts(batch.column(0))?;
        let states = batch.column(1).as_binary::<i32>();
        for i in 0..batch.num_rows() {
            if labels.is_null(i) {
                return Err(missing_target(&pass.target_name, "null"));
            }
            parts.extend(class_part(labels.value(i).to_owned(), from_bytes(states.value(i))?));
        }
    }
    Ok(parts)
}
