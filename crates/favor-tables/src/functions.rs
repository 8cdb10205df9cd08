//! The functions of a model in SQL, in any session of DataFusion, and what its aggregates give.

use crate::aggregate::{Aggregate, Job};
use crate::head::TableHead;
use crate::model::{Class, Estimator, LinearParts, Model};
use crate::states::{
    Arguments, GramJob, GramState, GramTarget, MomentsJob, MomentsState, Sample, State, SumsJob,
    SumsState,
};
use crate::udf_predict::{Part, part_function, predict_function};
use crate::{Error, Result};
use datafusion::logical_expr::AggregateUDF;
use datafusion::prelude::SessionContext;
use favor::learn::{HeadKind, Task};
use favor::{KeySums, Moments};

/// Registers the functions of a model in a session, with names that begin with `prefix`.
///
/// - `favor_predict(columns…)` gives the label, the number or the log density of each row;
/// - `favor_proba(columns…)` gives a struct with the probability of each class;
/// - `favor_interval(columns…)` gives a struct with `lower` and `upper`, the 95 % interval of a
///   Gaussian process;
/// - `favor_moments(columns…)` and `favor_sums(columns…)` or `favor_gram(columns…, target)` give the
///   bytes of the moments and of the sums of all rows, or of each group; [`moments`], [`sums`] and
///   [`Model::of_group`] read them.
///
/// The columns come in the model's order, as [`Encoder::names`](crate::Encoder::names) gives them.
/// For a regression the target follows in `favor_sums`, in `favor_gram` it always does, and the weight
/// follows where the model has one.
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
    if model.info.task == Task::Classify {
        session.register_udf(part_function(prefix, Part::Probabilities, model)?);
    }
    if model.info.head == TableHead::Linear(HeadKind::Gp) {
        session.register_udf(part_function(prefix, Part::Interval, model)?);
    }
    for function in aggregates(prefix, model)? {
        session.register_udaf(function);
    }
    Ok(())
}

/// The aggregates of a model: `{prefix}_moments`, and `{prefix}_sums` or `{prefix}_gram`.
///
/// ```
/// # fn example(model: &favor_tables::Model) -> favor_tables::Result<()> {
/// let session = favor_tables::session(None);
/// for function in favor_tables::aggregates("favor", model)? {
///     session.register_udaf(function);
/// }
/// # Ok(())
/// # }
/// ```
pub fn aggregates(prefix: &str, model: &Model) -> Result<Vec<AggregateUDF>> {
    let info = &model.info;
    let arguments =
        Arguments { encoder: info.encoder.clone(), fitted: true, weight: info.weight.clone() };
    let name = info.target.as_ref().map(|t| t.name.clone());
    let named = |job, end: &str| -> Result<AggregateUDF> {
        let aggregate = Aggregate::new(arguments.clone(), job)?;
        Ok(AggregateUDF::from(aggregate.named(format!("{prefix}_{end}"))))
    };
    let sums = match &model.estimator {
        Estimator::Nw(nw) => {
            let target = name.zip(info.target_scaling);
            named(Job::Sums(SumsJob { map: nw.map.clone(), target }), "sums")?
        }
        Estimator::Linear(linear) => {
            let target = match info.target_scaling {
                Some(scaling) => GramTarget::Number(scaling),
                None => GramTarget::Labels(info.labels()),
            };
            let name = name.unwrap_or_default();
            let job = GramJob::new(&linear.design, name, target, info.rows);
            named(Job::Gram(job), "gram")?
        }
    };
    Ok(vec![named(Job::Moments(MomentsJob { target: None }), "moments")?, sums])
}

/// What `favor_moments` gave: the moments of the standardised vectors.
///
/// ```
/// # fn example(bytes: &[u8]) -> favor_tables::Result<()> {
/// println!("{} rows", favor_tables::moments(bytes)?.count());
/// # Ok(())
/// # }
/// ```
pub fn moments(bytes: &[u8]) -> Result<Moments> {
    Ok(MomentsState::from_bytes(bytes)?.vectors)
}

/// What `favor_sums` gave: the sums (`None` over no rows), the number of rows of positive weight, and
/// their weight.
///
/// ```
/// # fn example(bytes: &[u8]) -> favor_tables::Result<()> {
/// let (sums, rows, weight) = favor_tables::sums(bytes)?;
/// println!("{rows} rows of weight {weight}");
/// # Ok(())
/// # }
/// ```
pub fn sums(bytes: &[u8]) -> Result<(Option<KeySums>, u64, f64)> {
    let state = SumsState::from_bytes(bytes)?;
    Ok((state.sums, state.rows, state.weight))
}

impl Model {
    /// The model of a group of rows, with the features of this one: from what `favor_gram` and
    /// `favor_moments` gave for the group. It keeps no sample.
    pub fn of_group(&self, gram: &[u8], moments: &[u8]) -> Result<Self> {
        let logistic = TableHead::Linear(HeadKind::Logistic);
        let Some(design) = self.design().filter(|_| self.info.head != logistic) else {
            return Err(Error::Merge { what: "heads" });
        };
        let (state, moments) = (GramState::from_bytes(gram)?, self::moments(moments)?);
        let sums = state.sums.ok_or_else(|| Error::query("the group has no rows"))?;
        let class = |(label, (rows, weight))| Class { label, rows, weight };
        let classes = self.info.labels().into_iter().zip(state.classes).map(class).collect();
        let mut info = self.info.clone();
        (info.rows, info.total_weight) = (sums.rows(), sums.weight());
        let parts = LinearParts { design: design.clone(), sums, classes };
        let sample = Sample::default();
        let linear = parts.solved(&mut info, &moments, &sample)?;
        Self::new(info, moments, sample, Estimator::Linear(Box::new(linear)))
    }
}
