//! The states as aggregate functions of the query engine.

use crate::Result;
use crate::progress::Progress;
use crate::states::{
    Arguments, GramJob, GramState, LogisticJob, LogisticState, MomentsJob, MomentsState, Sample,
    SampleJob, State, SumsJob, SumsState, Survey, SurveyJob,
};
use crate::wire::{self, Kind};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as QueryResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What an aggregate finds out, with all that it needs to know for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Job {
    Survey(SurveyJob),
    Moments(MomentsJob),
    Sample(SampleJob),
    Sums(SumsJob),
    Gram(GramJob),
    Logistic(LogisticJob),
}

impl Job {
    fn name(&self) -> &'static str {
        match self {
            Self::Survey(_) => "favor_survey",
            Self::Moments(_) => "favor_moments",
            Self::Sample(_) => "favor_sample",
            Self::Sums(_) => "favor_sums",
            Self::Gram(_) => "favor_gram",
            Self::Logistic(_) => "favor_logistic",
        }
    }

    /// Whether the target is an argument of the function.
    pub(crate) fn takes_target(&self) -> bool {
        match self {
            Self::Survey(job) => job.target.is_some(),
            Self::Gram(_) | Self::Logistic(_) => true,
            Self::Moments(job) => job.target.is_some(),
            Self::Sample(job) => job.target.is_some(),
            Self::Sums(job) => job.target.is_some(),
        }
    }
}

/// An aggregate function with all that its workers must know. It gives the bytes of its state.
#[derive(Debug)]
pub(crate) struct Aggregate {
    name: String,
    arguments: Arc<Arguments>,
    job: Job,
    bytes: Vec<u8>,
    signature: Signature,
    progress: Option<Arc<Progress>>,
}

impl Aggregate {
    pub(crate) fn new(arguments: Arguments, job: Job) -> Result<Self> {
        let bytes = wire::write(Kind::Aggregate, &(&arguments, &job))?;
        let signature = Signature::variadic_any(Volatility::Immutable);
        let (name, arguments) = (job.name().into(), Arc::new(arguments));
        Ok(Self { name, arguments, job, bytes, signature, progress: None })
    }

    /// Another name.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// Tells the rows it has seen.
    pub(crate) fn telling(self, progress: &Arc<Progress>) -> Self {
        Self { progress: Some(progress.clone()), ..self }
    }

    fn worker<S: State>(&self, job: &S::Job) -> Box<dyn Accumulator> {
        Box::new(Worker {
            state: S::new(&self.arguments, job),
            arguments: self.arguments.clone(),
            job: job.clone(),
            takes_target: self.job.takes_target(),
            progress: self.progress.clone(),
        })
    }
}

/// The bytes of one of our aggregate functions, for a codec; `None` for any other function.
///
/// ```
/// use favor_tables::{aggregate_from_bytes, aggregate_to_bytes, aggregates};
/// # fn example(model: &favor_tables::Model) -> favor_tables::Result<()> {
/// for function in aggregates("favor", model)? {
///     let bytes = aggregate_to_bytes(&function).unwrap();
///     assert_eq!(aggregate_from_bytes(function.name(), &bytes)?, function);
/// }
/// # Ok(())
/// # }
/// ```
pub fn aggregate_to_bytes(function: &AggregateUDF) -> Option<Vec<u8>> {
    let inner: &dyn std::any::Any = function.inner().as_ref();
    inner.downcast_ref::<Aggregate>().map(|aggregate| aggregate.bytes.clone())
}

/// The aggregate function that [`aggregate_to_bytes`] was given, under this name.
///
/// ```
/// use favor_tables::{aggregate_from_bytes, datafusion::logical_expr::AggregateUDF};
/// # fn example(bytes: &[u8]) -> favor_tables::Result<()> {
/// let function: AggregateUDF = aggregate_from_bytes("favor_sums", bytes)?;
/// # Ok(())
/// # }
/// ```
pub fn aggregate_from_bytes(name: &str, bytes: &[u8]) -> Result<AggregateUDF> {
    let (arguments, job) = wire::read(Kind::Aggregate, bytes)?;
    Ok(AggregateUDF::from(Aggregate::new(arguments, job)?.named(name.into())))
}

impl PartialEq for Aggregate {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.bytes) == (&other.name, &other.bytes)
    }
}

impl Eq for Aggregate {}

impl Hash for Aggregate {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.name, &self.bytes).hash(hasher);
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> QueryResult<DataType> {
        Ok(DataType::Binary)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> QueryResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[state]", args.name), DataType::Binary, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs) -> QueryResult<Box<dyn Accumulator>> {
        Ok(match &self.job {
            Job::Survey(job) => self.worker::<Survey>(job),
            Job::Moments(job) => self.worker::<MomentsState>(job),
            Job::Sample(job) => self.worker::<Sample>(job),
            Job::Sums(job) => self.worker::<SumsState>(job),
            Job::Gram(job) => self.worker::<GramState>(job),
            Job::Logistic(job) => self.worker::<LogisticState>(job),
        })
    }
}

#[derive(Debug)]
struct Worker<S: State> {
    arguments: Arc<Arguments>,
    job: S::Job,
    takes_target: bool,
    state: S,
    progress: Option<Arc<Progress>>,
}

impl<S: State> Accumulator for Worker<S> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> QueryResult<()> {
        let batch = self.arguments.batch(values, self.takes_target)?;
        self.state.update(&self.arguments, &self.job, &batch)?;
        if let Some(progress) = &self.progress {
            progress.add(values.first().map_or(0, |v| v.len()));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> QueryResult<()> {
        for state in states {
            for bytes in state.as_binary::<i32>().iter().flatten() {
                self.state.merge(&self.arguments, &self.job, S::from_bytes(bytes)?)?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> QueryResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> QueryResult<ScalarValue> {
        Ok(ScalarValue::Binary(Some(self.state.to_bytes()?)))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.state.size()
    }
}
