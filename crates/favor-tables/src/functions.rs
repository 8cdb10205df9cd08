//! The functions of a model in SQL, in any session of DataFusion, and what its aggregates give.

use crate::Result;
use crate::aggregate::{Aggregate, Job};
use crate::model::Model;
use crate::states::{Arguments, MomentsJob, MomentsState, State, SumsJob, SumsState};
use crate::udf_predict::predict_function;
use datafusion::logical_expr::AggregateUDF;
use datafusion::prelude::SessionContext;
use favor::{KeySums, Moments};

/// Registers the functions of a model in a session, with names that begin with `prefix`.
///
/// - `favor_predict(columns…)` gives the label, the number or the log density of each row;
/// - `favor_moments(columns…)` and `favor_sums(columns…)` give the bytes of the moments and of the
///   feature sums of all rows, or of each group; [`moments`] and [`sums`] read them.
///
/// The columns come in the model's order, as [`Encoder::names`](crate::Encoder::names) gives them.
/// For a regression the target follows in `favor_sums`, and the weight where the model has one.
///
/// ```
/// # async fn example(model: &favor_tables::Model) -> Result<(), Box<dyn std::error::Error>> {
/// let session = favor_tables::session(None);
/// favor_tables::register(&session, "favor", model)?;
/// let frame = session.sql("select favor_predict(length, width) from 'shells.parquet'").await?;
/// # Ok(())
/// # }
/// ```
pub fn register(session: &SessionContext, prefix: &str, model: &Model) -> Result<()> {
    session.register_udf(predict_function(prefix, model)?);
    for function in aggregates(prefix, model)? {
        session.register_udaf(function);
    }
    Ok(())
}

/// The aggregates of a model: `{prefix}_moments` and `{prefix}_sums`.
pub fn aggregates(prefix: &str, model: &Model) -> Result<Vec<AggregateUDF>> {
    let info = &model.info;
    let arguments = Arguments { encoder: info.encoder.clone(), weight: info.weight.clone() };
    let target = info.target.as_ref().map(|t| t.name.clone()).zip(info.target_scaling);
    let named = |job, end: &str| -> Result<AggregateUDF> {
        let aggregate = Aggregate::new(arguments.clone(), job)?;
        Ok(AggregateUDF::from(aggregate.named(format!("{prefix}_{end}"))))
    };
    Ok(vec![
        named(Job::Moments(MomentsJob { target: None }), "moments")?,
        named(Job::Sums(SumsJob { map: model.map.clone(), target }), "sums")?,
    ])
}

/// What `favor_moments` gave: the moments of the standardised vectors.
pub fn moments(bytes: &[u8]) -> Result<Moments> {
    Ok(MomentsState::from_bytes(bytes)?.vectors)
}

/// What `favor_sums` gave: the sums (`None` over no rows), the number of rows of positive weight, and
/// their weight.
pub fn sums(bytes: &[u8]) -> Result<(Option<KeySums>, u64, f64)> {
    let state = SumsState::from_bytes(bytes)?;
    Ok((state.sums, state.rows, state.weight))
}
