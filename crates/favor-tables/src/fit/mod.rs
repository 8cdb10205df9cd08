//! Fitting: a survey where texts or means need one, then two passes, moments and sums, with the
//! choice of the bandwidth on a sample in between.

mod checks;
mod passes;
mod request;

pub use request::FitRequest;

use crate::bandwidth::{SampleReader, kernel, search};
use crate::encode::Encoder;
use crate::model::{Model, ModelInfo};
use crate::progress::Progress;
use crate::source::Table;
use crate::states::Sample;
use crate::target::Target;
use crate::{Error, Result, Setting};
use favor::learn::{Bandwidth, Task};
use favor::{FeatureMap, FeatureSpec, Moments};
use passes::Passes;
use std::sync::Arc;

/// Fits a model to a table.
pub async fn fit(table: &Table, request: &FitRequest, progress: &Arc<Progress>) -> Result<Model> {
    let task = checks::task(table, request)?;
    let columns = checks::columns(table, request, task)?;
    let target = match request.target.as_ref().filter(|_| task != Task::Density) {
        Some(name) => Some(Target::new(name, &table.data_type(name)?)),
        None => None,
    };
    let (weight, missing) = (request.weight.as_deref(), request.missing);
    let passes = Passes::new(table, task, target.as_ref(), weight, missing, progress)?;
    let encoder = Encoder { columns, fill: vec![], missing };
    let encoder = passes.survey(encoder, request.categories).await?;
    let sample_limit = request.sample.max(2);
    let (raw, sample) = passes.moments(&encoder, sample_limit, request.seed).await?;
    let label = target.as_ref().filter(|_| task == Task::Classify).map(|t| t.name.as_str());
    checks::contents(&encoder, &raw.vectors, &sample, label)?;
    let target_scaling = match (task, &target) {
        (Task::Regress, Some(target)) => Some(checks::target_scaling(&raw.target, &target.name)?),
        _ => None,
    };

    let encoder = if request.standardise { encoder.standardised(&raw.vectors) } else { encoder };
    let (centres, scales) = encoder.centres_and_scales();
    let moments = raw.vectors.standardised(&centres, &scales)?;
    let spec = FeatureSpec::new(request.family, request.features)
        .coupling(request.coupling)
        .seed(request.seed);
    let (bandwidth, curve) = match request.bandwidth {
        Bandwidth::Fixed(bandwidth) => (bandwidth, None),
        Bandwidth::Auto(how) => {
            progress.begin("bandwidth", None);
            let prior = &request.prior;
            let reader = SampleReader { task, encoder: &encoder, prior, target_scaling };
            let curve = search(&reader, spec, &moments, &sample, how)?;
            (curve.best().map_or(1.0, |t| t.bandwidth), Some(curve))
        }
    };
    let map = spec.kernel(kernel(bandwidth)?).fit(&moments, &moments)?;
    let info = ModelInfo {
        task,
        target: target.clone(),
        target_scaling,
        weight: request.weight.clone(),
        encoder,
        bandwidth,
        curve,
        classes: vec![],
        prior: request.prior.clone(),
        rows: 0,
        total_weight: 0.0,
        sample_limit,
        sample_seed: request.seed,
    };
    let model = summed(&passes, info, map, moments, sample).await?;
    checks::classes(&model.info)?;
    Ok(model)
}

/// Fits a model to a table with the encoders and the map of another, so that the two can be merged.
pub async fn fit_like(table: &Table, like: &Model, progress: &Arc<Progress>) -> Result<Model> {
    let info = like.info.clone();
    let ModelInfo { task, target, weight, encoder, .. } = &like.info;
    let (weight, missing) = (weight.as_deref(), encoder.missing);
    let passes = Passes::new(table, *task, target.as_ref(), weight, missing, progress)?;
    for column in &encoder.columns {
        table.data_type(&column.name)?;
    }
    let (raw, sample) = passes.moments(&encoder.raw(), info.sample_limit, info.sample_seed).await?;
    if raw.vectors.count() == 0 {
        return Err(checks::no_rows(missing));
    }
    let (centres, scales) = encoder.centres_and_scales();
    let moments = raw.vectors.standardised(&centres, &scales)?;
    summed(&passes, info, like.map.clone(), moments, sample).await
}

/// The model of the rows that a model has seen and of those of a table.
pub async fn update(table: &Table, model: &Model, progress: &Arc<Progress>) -> Result<Model> {
    model.merge(&fit_like(table, model, progress).await?)
}

/// The model of a table whose features are still to be summed.
async fn summed(
    passes: &Passes<'_>,
    mut info: ModelInfo,
    map: FeatureMap,
    moments: Moments,
    sample: Sample,
) -> Result<Model> {
    let sums = passes.sums(&mut info, &map, moments.count()).await?;
    if info.total_weight <= 0.0 {
        return Err(Error::request(Setting::Weight, "all weights are zero"));
    }
    Model::new(info, map, moments, sums, sample)
}
