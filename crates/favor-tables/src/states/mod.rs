//! What one worker knows of its share of a table: states that take batches and merge, and whose
//! bytes can travel. One file per state.

mod arguments;
mod gram;
mod logistic;
mod moments;
mod sample;
mod sums;
mod survey;

pub(crate) use arguments::{Arguments, Batch, missing_target};
pub(crate) use gram::{GramJob, GramState, GramTarget};
pub(crate) use logistic::{LogisticJob, LogisticState};
pub(crate) use moments::{MomentsJob, MomentsState};
pub(crate) use sample::{Item, Sample, SampleJob};
pub(crate) use sums::{SumsJob, SumsState};
pub(crate) use survey::{Found, Survey, SurveyJob, SurveyTarget, Tally};

use crate::Result;
use crate::wire::{self, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a worker keeps: fed by batches, merged with that of other workers.
pub(crate) trait State:
    Serialize + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static
{
    /// What its bytes say they are.
    const KIND: Kind;
    /// What a worker must know besides its arguments.
    type Job: std::fmt::Debug + Clone + Send + Sync;

    fn new(arguments: &Arguments, job: &Self::Job) -> Self;
    fn update(&mut self, arguments: &Arguments, job: &Self::Job, batch: &Batch<'_>) -> Result<()>;
    fn merge(&mut self, arguments: &Arguments, job: &Self::Job, other: Self) -> Result<()>;
    /// About how many bytes it takes.
    fn size(&self) -> usize;

    fn to_bytes(&self) -> Result<Vec<u8>> {
        wire::write(Self::KIND, self)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        wire::read(Self::KIND, bytes)
    }
}
