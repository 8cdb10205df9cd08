//! The states as aggregate functions of the query engine.

use crate::progress::Progress;
use crate::states::{MomentsState, Sample, Setup, State, SumsState, Survey};
use crate::states::{from_bytes, to_bytes};
use crate::{Error, Result};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as EngineResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Which state an aggregate keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Job {
    Survey,
    Moments,
    Sample,
    Sums,
}

impl Job {
    const ALL: [Self; 4] = [Self::Survey, Self::Moments, Self::Sample, Self::Sums];

    fn name(self) -> &'static str {
        match self {
            Self::Survey => "favor_survey",
            Self::Moments => "favor_moments",
            Self::Sample => "favor_sample",
            Self::Sums => "favor_sums",
        }
    }
}

/// An aggregate function with all that its workers must know. It gives the bytes of its state.
#[derive(Debug)]
pub(crate) struct Aggregate {
    job: Job,
    name: String,
    setup: Arc<Setup>,
    bytes: Vec<u8>,
    signature: Signature,
    progress: Option<Arc<Progress>>,
}

impl Aggregate {
    pub(crate) fn new(job: Job, setup: Arc<Setup>) -> Result<Self> {
        let (bytes, signature) =
            (setup.to_bytes()?, Signature::variadic_any(Volatility::Immutable));
        Ok(Self { job, name: job.name().into(), setup, bytes, signature, progress: None })
    }

    /// Another name.
    pub(crate) fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// Tells the rows it has seen.
    pub(crate) fn telling(self, progress: &Arc<Progress>) -> Self {
        Self { progress: Some(progress.clone()), ..self }
    }

    fn worker<S: State>(&self) -> Box<dyn Accumulator> {
        let (setup, progress) = (self.setup.clone(), self.progress.clone());
        Box::new(Worker { state: S::new(&setup), setup, progress })
    }
}

/// The bytes of one of our aggregate functions, for a codec; `None` for any other function.
pub fn aggregate_to_bytes(function: &AggregateUDF) -> Option<Vec<u8>> {
    let inner: &dyn std::any::Any = function.inner().as_ref();
    inner.downcast_ref::<Aggregate>().map(|aggregate| aggregate.bytes.clone())
}

/// The aggregate function that [`aggregate_to_bytes`] was given, from its name and bytes.
pub fn aggregate_from_bytes(name: &str, bytes: &[u8]) -> Result<AggregateUDF> {
    let job = Job::ALL.into_iter().find(|job| name.ends_with(&job.name()["favor".len()..]));
    let job = job.ok_or_else(|| Error::Engine(format!("there is no aggregate '{name}'")))?;
    let aggregate = Aggregate::new(job, Arc::new(Setup::from_bytes(bytes)?))?;
    Ok(AggregateUDF::from(aggregate.named(name.into())))
}

impl PartialEq for Aggregate {
    fn eq(&self, other: &Self) -> bool {
        (self.job, &self.name, &self.bytes) == (other.job, &other.name, &other.bytes)
    }
}

impl Eq for Aggregate {}

impl Hash for Aggregate {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.job, &self.name, &self.bytes).hash(hasher);
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> EngineResult<DataType> {
        Ok(DataType::Binary)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> EngineResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[state]", args.name), DataType::Binary, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs) -> EngineResult<Box<dyn Accumulator>> {
        Ok(match self.job {
            Job::Survey => self.worker::<Survey>(),
            Job::Moments => self.worker::<MomentsState>(),
            Job::Sample => self.worker::<Sample>(),
            Job::Sums => self.worker::<SumsState>(),
        })
    }
}

#[derive(Debug)]
struct Worker<S> {
    setup: Arc<Setup>,
    state: S,
    progress: Option<Arc<Progress>>,
}

impl<S: State> Accumulator for Worker<S> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> EngineResult<()> {
        let batch = self.setup.batch(values)?;
        self.state.update(&self.setup, &batch)?;
        if let Some(progress) = &self.progress {
            progress.add(values.first().map_or(0, |v| v.len()));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> EngineResult<()> {
        for state in states {
            for bytes in state.as_binary::<i32>().iter().flatten() {
                self.state.merge(&self.setup, from_bytes(bytes)?)?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> EngineResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> EngineResult<ScalarValue> {
        Ok(ScalarValue::Binary(Some(to_bytes(&self.state)?)))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.state.size()
    }
}
