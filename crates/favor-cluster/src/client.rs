//! The client: work on tables, done by the executors.

use crate::address::Address;
use crate::codec::Codec;
use crate::message::marked;
use crate::readiness::{Readiness, readiness};
use crate::{Endpoint, Error, MESSAGE_BYTES, Result, stores};
use ballista_core::config::BALLISTA_CLIENT_GRPC_HTTP2_KEEPALIVE_INTERVAL_SECONDS;
use ballista_core::extension::{SessionConfigExt, SessionStateExt};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use favor_tables::{
    Drift, Evaluation, FitRequest, Missing, Model, PredictOptions, Progress, Source, Table,
    evaluate_on_workers, fit, fit_like, predict_on_workers, predicted_columns, subtract, update,
};
use futures::stream::{BoxStream, unfold};
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A scheduler that has not answered for a little longer than this is gone.
const KEEPALIVE_SECONDS: usize = 10;

/// How often the scheduler is polled during work, and how long it may be unreachable or without
/// executors: long enough for a rolling restart.
const WATCH: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster, known by the address of its scheduler. Its methods do what the `favor_tables` functions
/// of the same names do on one machine.
///
/// Work fails if the scheduler has been unreachable or without executors for too long. Errors are
/// those of the process where they occurred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    scheduler: Address,
    partitions: usize,
}

impl Cluster {
    /// The cluster of a scheduler, as in `df://scheduler:50050`. Nothing is sent yet.
    pub fn at(scheduler: &str) -> Result<Self> {
        Ok(Self { scheduler: Address::parse(Endpoint::Scheduler, scheduler)?, partitions: 64 })
    }

    /// The maximum number of pieces that tables are read in: a few times the number of cores. 64 by
    /// default.
    #[must_use]
    pub fn partitions(self, partitions: usize) -> Self {
        Self { partitions, ..self }
    }

    /// Fits a model to a table.
    pub async fn fit(
        &self,
        source: &Source,
        request: &FitRequest,
        progress: &Arc<Progress>,
    ) -> Result<Model> {
        let table = self.open(source).await?;
        self.watched(fit(&table, request, progress)).await
    }

    /// Fits a model to a table with the encoders and the map of another.
    pub async fn fit_like(
        &self,
        source: &Source,
        like: &Model,
        progress: &Arc<Progress>,
    ) -> Result<Model> {
        let table = self.open(source).await?;
        self.watched(fit_like(&table, like, progress)).await
    }

    /// The model updated with the rows of a table, and how these differ from the rows it has seen.
    pub async fn update(
        &self,
        source: &Source,
        model: &Model,
        progress: &Arc<Progress>,
    ) -> Result<(Model, Drift)> {
        let table = self.open(source).await?;
        self.watched(update(&table, model, progress)).await
    }

    /// The model without the rows of a table.
    pub async fn subtract(
        &self,
        source: &Source,
        model: &Model,
        progress: &Arc<Progress>,
    ) -> Result<Model> {
        let table = self.open(source).await?;
        self.watched(subtract(&table, model, progress)).await
    }

    /// Predictions for the rows of a table, in any order. Keep some columns to identify the rows.
    pub async fn predict(
        &self,
        source: &Source,
        model: &Model,
        options: &PredictOptions,
        progress: &Arc<Progress>,
    ) -> Result<(SchemaRef, BoxStream<'static, Result<RecordBatch>>)> {
        if options.keep.is_empty() {
            return Err(Error::Unordered);
        }
        let table = self.open(source).await?;
        let made = predict_on_workers(&table, model, options, progress);
        let (schema, batches) = self.watched(made).await?;
        Ok((schema, self.watched_batches(batches)))
    }

    /// The same in the order of the rows: each file is one task, and several run at a time. A query
    /// is one task, whose predictions are held until it ends.
    pub async fn predict_in_order(
        &self,
        source: &Source,
        model: &Model,
        options: &PredictOptions,
        progress: &Arc<Progress>,
    ) -> Result<(SchemaRef, BoxStream<'static, Result<RecordBatch>>)> {
        let one = Self { partitions: 1, ..self.clone() };
        let parts = source.parts(&self.session().await?).await.map_err(explained)?;
        let mut tables = vec![];
        for part in &parts {
            tables.push(one.open(part).await?);
        }
        let first = tables.first().ok_or(Error::Unordered)?;
        let schema = predicted_columns(first, model, options).map_err(explained)?;
        let (model, options, progress) =
            (Arc::new(model.clone()), options.clone(), progress.clone());
        let results = futures::stream::iter(tables).map(move |table| {
            let (model, options, progress, one) =
                (model.clone(), options.clone(), progress.clone(), one.clone());
            async move {
                let work = async {
                    let (_, batches) =
                        predict_on_workers(&table, &model, &options, &progress).await?;
                    batches.try_collect::<Vec<RecordBatch>>().await
                };
                one.watched(work).await
            }
        });
        let batches = results.buffered(self.partitions.max(1)).map(|part| match part {
            Ok(batches) => futures::stream::iter(batches.into_iter().map(Ok)).boxed(),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        });
        Ok((schema, batches.flatten().boxed()))
    }

    /// Evaluates a model on a table that has the target.
    pub async fn evaluate(
        &self,
        source: &Source,
        model: &Model,
        missing: Option<Missing>,
        progress: &Arc<Progress>,
    ) -> Result<Evaluation> {
        let table = self.open(source).await?;
        self.watched(evaluate_on_workers(&table, model, missing, progress)).await
    }

    /// A session of the query engine whose tables the executors read, for other work. It first asks
    /// the scheduler whether it has executors.
    pub async fn session(&self) -> Result<SessionContext> {
        let address = self.scheduler.to_string();
        match readiness(&self.scheduler).await {
            Readiness::Ready => {}
            Readiness::Empty => return Err(Error::NoExecutors { address }),
            Readiness::Absent(why) => return Err(Error::NoScheduler { address, why }),
        }
        // The static planner: with the adaptive one, we saw a job wait forever after an executor was
        // lost together with the finished part of a stage.
        let config = SessionConfig::new_with_ballista()
            .with_target_partitions(self.partitions.max(1))
            .with_ballista_adaptive_query_planner(false)
            .with_ballista_grpc_client_max_message_size(MESSAGE_BYTES as usize)
            .set_usize(BALLISTA_CLIENT_GRPC_HTTP2_KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_SECONDS)
            .with_ballista_logical_extension_codec(Arc::new(Codec::new("client")));
        let runtime = stores::runtime(None).map_err(favor_tables::Error::from)?;
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .with_runtime_env(runtime)
            .build()
            .upgrade_for_ballista(format!("http://{address}"))
            .map_err(favor_tables::Error::from)?;
        Ok(SessionContext::new_with_state(state).enable_url_table())
    }

    async fn open(&self, source: &Source) -> Result<Table> {
        let session = self.session().await?;
        Table::open(&session, source).await.map_err(explained)
    }

    /// Does work, and gives up if the scheduler has been unreachable or without executors for too
    /// long: a job submitted then would wait forever.
    async fn watched<T>(&self, work: impl Future<Output = favor_tables::Result<T>>) -> Result<T> {
        tokio::select! {
            result = work => result.map_err(explained),
            error = loss(&self.scheduler) => Err(error),
        }
    }

    /// The same for batches as they arrive.
    fn watched_batches(
        &self,
        batches: BoxStream<'static, favor_tables::Result<RecordBatch>>,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let scheduler = self.scheduler.clone();
        let lost = Box::pin(async move { loss(&scheduler).await });
        let next = async |state: Option<_>| {
            let (mut batches, mut lost): (BoxStream<'static, _>, _) = state?;
            tokio::select! {
                batch = batches.next() => match batch? {
                    Ok(batch) => Some((Ok(batch), Some((batches, lost)))),
                    Err(error) => Some((Err(explained(error)), None)),
                },
                error = &mut lost => Some((Err(error), None)),
            }
        };
        unfold(Some((batches, lost)), next).boxed()
    }
}

/// Ends when the cluster is lost.
async fn loss(scheduler: &Address) -> Error {
    let mut absence = Absence::default();
    loop {
        tokio::time::sleep(WATCH).await;
        let why = match readiness(scheduler).await {
            Readiness::Ready => None,
            Readiness::Empty => Some("has no executors any more".to_owned()),
            Readiness::Absent(why) => Some(format!("does not answer any more ({why})")),
        };
        let lasts = absence.lasts(why.is_some(), Instant::now());
        if let Some(why) = why.filter(|_| lasts >= PATIENCE) {
            return Error::Lost { address: scheduler.to_string(), why };
        }
    }
}

/// Since when a cluster has been unreachable without interruption.
#[derive(Debug, Default)]
struct Absence {
    since: Option<Instant>,
}

impl Absence {
    /// How long it has been unreachable, given whether it is now.
    fn lasts(&mut self, away: bool, now: Instant) -> Duration {
        self.since = away.then(|| self.since.unwrap_or(now));
        self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// Recovers the error of a process of the cluster from the wrappers around it.
fn explained(error: favor_tables::Error) -> Error {
    use favor_tables::Error::{Query, Source};
    match error {
        Query { reason, source } => match (marked(&reason), reason.split_once(" failed: ")) {
            (Some(message), _) => message.into(),
            (None, Some((_, reason))) => Error::GaveUp { reason: reason.to_owned() },
            (None, None) => Error::Ballista { what: "cluster", reason, source },
        },
        Source { place, reason } => {
            let inner = marked(&reason).map(|message| Error::from(message).to_string());
            Source { place, reason: inner.unwrap_or(reason) }.into()
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scheduler that comes back in time may disappear again.
    #[test]
    fn absences_are_counted_one_by_one() {
        let (start, mut absence) = (Instant::now(), Absence::default());
        let mut at = |seconds: u64, away: bool| {
            absence.lasts(away, start + Duration::from_secs(seconds)).as_secs()
        };
        let away = [(0, false), (5, true), (65, true), (70, false), (75, true), (100, true)];
        assert_eq!(away.map(|(seconds, away)| at(seconds, away)), [0, 0, 60, 0, 0, 25]);
    }
}
