//! Fitting: two passes, one for a survey of the columns and the moments, one for the sums, with the choice of
//! the features on a sample in between. Where the survey says how columns are to be encoded, the moments take a
//! pass of their own; logistic heads need some passes more.

mod checks;
mod passes;
mod request;
mod survey;

pub use request::FitRequest;

use crate::bandwidth::{SampleReader, kernel, search};
use crate::choose::{FeatureChoice, Trials};
use crate::encode::{Encoder, Missing, NumberEncoding};
use crate::head::TableHead;
use crate::model::{Drift, Estimator, LinearParts, Model, ModelInfo, Nw};
use crate::progress::Progress;
use crate::source::Table;
use crate::states::{GramTarget, Sample};
use crate::target::{Target, sort_labels};
use crate::{Error, Result, Setting};
use favor::learn::{
    Bandwidth, Basis, Design, DesignSpec, HeadKind, LogisticFit, LogisticOptions, Task,
};
use favor::{Family, FeatureMap, FeatureSpec, Moments};
use passes::Passes;
use std::sync::Arc;

/// Fits a model to a table.
///
/// ```
/// use favor_tables::{FitRequest, fit};
/// # async fn example(table: &favor_tables::Table, progress: &std::sync::Arc<favor_tables::Progress>) -> favor_tables::Result<()> {
/// let model = fit(table, &FitRequest::of("label").features(512), progress).await?;
/// println!("{}", model.to_text());
/// # Ok(())
/// # }
/// ```
pub async fn fit(table: &Table, request: &FitRequest, progress: &Arc<Progress>) -> Result<Model> {
    let task = checks::task(table, request)?;
    let head = checks::head(request, task)?;
    let columns = checks::columns(table, request, task)?;
    let target = match request.target.as_ref().filter(|_| task != Task::Density) {
        Some(name) => Some(Target::new(name, &table.data_type(name)?)),
        None => None,
    };
    let usual = if task == Task::Density { Missing::Error } else { Missing::Mark };
    let missing = request.missing.unwrap_or(usual);
    let weight = request.weight.as_deref();
    let passes = Passes::new(table, task, target.as_ref(), weight, missing, progress)?;
    let labels = match task {
        Task::Classify => passes.labels().await?,
        _ => vec![],
    };
    checks::labels(&labels, target.as_ref())?;
    let encoder = Encoder::new(columns, missing);
    let sample_limit = request.sample.max(2);
    // Landmarks come from the sample.
    let sample_limit =
        if head == TableHead::Nw { sample_limit } else { sample_limit.max(request.features) };
    let (encoder, raw, sample) = passes.overview(encoder, request, &labels, sample_limit).await?;
    checks::contents(&encoder, &raw.vectors)?;
    let target_scaling = match (task, &target) {
        (Task::Regress, Some(target)) => Some(checks::target_scaling(&raw.target, &target.name)?),
        _ => None,
    };

    let numbers = request.numbers != NumberEncoding::Raw;
    let encoder = encoder.standardised(&raw.vectors, numbers);
    let (centres, scales) = encoder.centres_and_scales();
    let moments = raw.vectors.standardised(&centres, &scales)?;
    let mut info = ModelInfo {
        task,
        head,
        target: target.clone(),
        target_scaling,
        weight: request.weight.clone(),
        encoder,
        bandwidth: 1.0,
        curve: None,
        choice: None,
        report: None,
        judgement: None,
        importances: vec![],
        classes: vec![],
        prior: request.prior.clone(),
        rows: 0,
        total_weight: 0.0,
        sample_limit,
        sample_seed: request.seed,
    };
    let model = if head == TableHead::Nw {
        let map = nw_map(request, &mut info, &moments, &sample, progress)?;
        nw(&passes, info, map, moments, sample).await?
    } else {
        progress.begin("choice", None);
        let design = design(request, &mut info, &labels, &moments, &sample)?;
        linear(&passes, info, design, labels, moments, sample).await?
    };
    model.info.prior.check(&model.info.labels())?;
    Ok(model)
}

/// The features of a Nadaraya–Watson model.
fn nw_map(
    request: &FitRequest,
    info: &mut ModelInfo,
    moments: &Moments,
    sample: &Sample,
    progress: &Progress,
) -> Result<FeatureMap> {
    let family = match request.basis {
        None => Family::Balanced,
        Some(Basis::Random(family)) => family,
        Some(Basis::Nystrom) => {
            let reason = "nystrom features are for the other heads; give a family of random ones";
            return Err(Error::request(Setting::Family, reason));
        }
    };
    let spec =
        FeatureSpec::new(family, request.features).coupling(request.coupling).seed(request.seed);
    (info.bandwidth, info.curve) = match request.bandwidth {
        Bandwidth::Fixed(bandwidth) => (bandwidth, None),
        Bandwidth::Auto(how) => {
            progress.begin("bandwidth", None);
            let curve = search(&SampleReader::from(&*info), spec, moments, sample, how)?;
            (curve.best().map_or(1.0, |t| t.bandwidth), Some(curve))
        }
    };
    Ok(spec.kernel(kernel(info.bandwidth)?).fit(moments, moments)?)
}

/// The features of any other head: what is not given is chosen on the sample.
fn design(
    request: &FitRequest,
    info: &mut ModelInfo,
    labels: &[String],
    moments: &Moments,
    sample: &Sample,
) -> Result<Design> {
    let trials = Trials::new(info, labels, moments, sample)?;
    let spec = DesignSpec::new(request.features)
        .coupling(request.coupling)
        .seed(request.seed)
        .standardise(false)
        .linear(request.linear);
    let given = match request.bandwidth {
        Bandwidth::Fixed(bandwidth) => Some(bandwidth),
        Bandwidth::Auto(_) => None,
    };
    let (mut spec, mut choice): (DesignSpec, FeatureChoice) =
        trials.choose(&spec, request.basis, request.kernel, given)?;
    info.bandwidth = given.or(choice.best().map(|c| c.bandwidth)).unwrap_or(1.0);
    if request.learned_metric {
        spec = trials.learn_metric(spec, &mut choice)?;
    }
    info.choice = (!choice.candidates.is_empty()).then_some(choice);
    Ok(spec.fit(moments, trials.rows.view())?)
}

/// Fits a model to a table with the encoders and the map of another, so that the two can be merged.
///
/// ```
/// use favor_tables::{Model, fit_like};
/// # async fn example(table: &favor_tables::Table, first: &Model, progress: &std::sync::Arc<favor_tables::Progress>) -> favor_tables::Result<()> {
/// let second = fit_like(table, first, progress).await?;
/// let both = first.merge(&second)?;
/// # Ok(())
/// # }
/// ```
pub async fn fit_like(table: &Table, like: &Model, progress: &Arc<Progress>) -> Result<Model> {
    let mut info = like.info.clone();
    info.classes.clear();
    let ModelInfo { task, target, weight, encoder, .. } = &like.info;
    let (weight, missing) = (weight.as_deref(), encoder.missing);
    let passes = Passes::new(table, *task, target.as_ref(), weight, missing, progress)?;
    for column in &encoder.columns {
        table.data_type(&column.name)?;
    }
    let (raw, sample) =
        passes.moments(&encoder.unscaled(), info.sample_limit, info.sample_seed).await?;
    if raw.vectors.count() == 0 {
        return Err(checks::no_rows(missing));
    }
    let (centres, scales) = encoder.centres_and_scales();
    let moments = raw.vectors.standardised(&centres, &scales)?;
    match &like.estimator {
        Estimator::Nw(own) => nw(&passes, info, own.map.clone(), moments, sample).await,
        Estimator::Linear(own) => {
            let mut labels = like.info.labels();
            if *task == Task::Classify {
                labels.extend(passes.labels().await?);
                sort_labels(&mut labels, target.as_ref());
            }
            linear(&passes, info, own.design.clone(), labels, moments, sample).await
        }
    }
}

/// The model of the rows that a model has seen and of those of a table, and how these differ.
///
/// ```
/// # async fn example(table: &favor_tables::Table, model: &favor_tables::Model, progress: &std::sync::Arc<favor_tables::Progress>) -> favor_tables::Result<()> {
/// let (updated, drift) = favor_tables::update(table, model, progress).await?;
/// println!("{} new rows", drift.rows);
/// # Ok(())
/// # }
/// ```
pub async fn update(
    table: &Table,
    model: &Model,
    progress: &Arc<Progress>,
) -> Result<(Model, Drift)> {
    let newer = fit_like(table, model, progress).await?;
    Ok((model.merge(&newer)?, model.drift(&newer)))
}

/// The model of the rows that a model has seen without those of a table.
///
/// ```
/// # async fn example(table: &favor_tables::Table, model: &favor_tables::Model, progress: &std::sync::Arc<favor_tables::Progress>) -> favor_tables::Result<()> {
/// let rest = favor_tables::subtract(table, model, progress).await?;
/// println!("{} rows are left", rest.info().rows);
/// # Ok(())
/// # }
/// ```
pub async fn subtract(table: &Table, model: &Model, progress: &Arc<Progress>) -> Result<Model> {
    model.subtract(&fit_like(table, model, progress).await?)
}

/// The Nadaraya–Watson model of a table whose features are still to be summed.
async fn nw(
    passes: &Passes<'_>,
    mut info: ModelInfo,
    map: FeatureMap,
    moments: Moments,
    sample: Sample,
) -> Result<Model> {
    let sums = passes.sums(&mut info, &map, moments.count()).await?;
    weighty(&info)?;
    let estimator = Nw::new(&info, map, &moments, sums)?;
    Model::new(info, moments, sample, Estimator::Nw(Box::new(estimator)))
}

/// The model of a table, for any other head.
async fn linear(
    passes: &Passes<'_>,
    mut info: ModelInfo,
    design: Design,
    labels: Vec<String>,
    moments: Moments,
    sample: Sample,
) -> Result<Model> {
    let target = match info.target_scaling {
        Some(scaling) => GramTarget::Number(scaling),
        None => GramTarget::Labels(labels.clone()),
    };
    let (sums, classes) = passes.gram(&mut info, &design, target, moments.count()).await?;
    weighty(&info)?;
    let head = info.head;
    let mut solved = LinearParts { design, sums, classes }.solved(&mut info, &moments, &sample)?;
    if head == TableHead::Linear(HeadKind::Logistic) {
        let start = info.report.as_ref().map(|report| report.penalty);
        let mut fit = LogisticFit::new(&solved.sums, &LogisticOptions::default().start(start))?;
        loop {
            let pass = passes.logistic(&info, &solved.design, fit.pass(), &labels).await?;
            if fit.step(&pass)? {
                break;
            }
        }
        solved = solved.with_head(&mut info, fit.head()?, &moments, &sample)?;
    }
    Model::new(info, moments, sample, Estimator::Linear(Box::new(solved)))
}

fn weighty(info: &ModelInfo) -> Result<()> {
    if info.total_weight <= 0.0 {
        return Err(Error::request(Setting::Weight, "all weights are zero"));
    }
    Ok(())
}
