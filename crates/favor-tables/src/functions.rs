//! The model in SQL: `favor_predict` as a scalar function, `favor_moments` and `favor_sums` as
//! aggregates, in any session of DataFusion.

use crate::aggregate::{Aggregate, Job};
use crate::model::Model;
use crate::predict::{Predictor, Wishes};
use crate::states::{MomentsState, Setup, SumsState, TargetUse, from_bytes};
use crate::task::Task;
use crate::{Error, Result};
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as EngineResult, ScalarValue};
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::prelude::SessionContext;
use favor::{KeySums, Moments};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

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

/// The scalar function of a model.
pub fn predict_function(prefix: &str, model: &Model) -> Result<ScalarUDF> {
    Ok(ScalarUDF::from(Predict::new(format!("{prefix}_predict"), model)?))
}

/// The aggregates of a model.
pub fn aggregates(prefix: &str, model: &Model) -> Result<Vec<AggregateUDF>> {
    let setup = Setup {
        encoder: model.about.encoder.clone(),
        target: TargetUse::None,
        target_name: model.about.target.as_ref().map_or(String::new(), |t| t.name.clone()),
        weight: model.about.weight_column.clone(),
        categories: usize::MAX,
        sample: 0,
        seed: 0,
        map: None,
    };
    let with_map = Setup {
        target: match model.about.task {
            Task::Regress { centre, scale } => TargetUse::Value { centre, scale },
            _ => TargetUse::None,
        },
        map: Some(model.map.clone()),
        ..setup.clone()
    };
    let named = |job, setup, end: &str| -> Result<AggregateUDF> {
        let aggregate = Aggregate::new(job, Arc::new(setup))?.named(format!("{prefix}_{end}"));
        Ok(AggregateUDF::from(aggregate))
    };
    Ok(vec![named(Job::Moments, setup, "moments")?, named(Job::Sums, with_map, "sums")?])
}

/// What `favor_moments` gave: the moments of the standardised vectors.
pub fn moments(bytes: &[u8]) -> Result<Moments> {
    Ok(from_bytes::<MomentsState>(bytes)?.rows)
}

/// What `favor_sums` gave: the sums (`None` over no rows), the number of rows and their weight.
pub fn sums(bytes: &[u8]) -> Result<(Option<KeySums>, u64, f64)> {
    let state: SumsState = from_bytes(bytes)?;
    Ok((state.sums, state.rows, state.weight))
}

/// The bytes of one of our predict functions, for a codec; `None` for any other function.
pub fn predict_to_bytes(function: &ScalarUDF) -> Option<Vec<u8>> {
    let inner: &dyn std::any::Any = function.inner().as_ref();
    inner.downcast_ref::<Predict>().map(|predict| predict.bytes.clone())
}

/// The predict function that [`predict_to_bytes`] was given, from its name and bytes.
pub fn predict_from_bytes(name: &str, bytes: &[u8]) -> Result<ScalarUDF> {
    Ok(ScalarUDF::from(Predict::new(name.into(), &Model::from_bytes(bytes)?)?))
}

#[derive(Debug)]
struct Predict {
    name: String,
    predictor: Predictor,
    bytes: Vec<u8>,
    signature: Signature,
}

impl Predict {
    fn new(name: String, model: &Model) -> Result<Self> {
        let predictor = Predictor::new(model, &Wishes::default())?;
        let signature = Signature::variadic_any(Volatility::Immutable);
        Ok(Self { name, predictor, bytes: model.to_bytes()?, signature })
    }
}

impl PartialEq for Predict {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.bytes) == (&other.name, &other.bytes)
    }
}

impl Eq for Predict {}

impl Hash for Predict {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.name, &self.bytes).hash(hasher);
    }
}

impl ScalarUDFImpl for Predict {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> EngineResult<DataType> {
        let names = self.predictor.model().about().encoder.names();
        if arguments.len() != names.len() {
            let (found, wanted) = (arguments.len(), names.join(", "));
            let reason = format!("{} was given {found} columns; it takes {wanted}", self.name);
            return Err(Error::Engine(reason).into());
        }
        Ok(self.predictor.field().data_type().clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        let scalars = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if scalars { 1 } else { args.number_rows };
        let columns: EngineResult<Vec<ArrayRef>> =
            args.args.into_iter().map(|a| a.into_array(rows)).collect();
        let predictions = self.predictor.predict(&columns?)?;
        match scalars {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&predictions, 0)?)),
            false => Ok(ColumnarValue::Array(predictions)),
        }
    }
}
