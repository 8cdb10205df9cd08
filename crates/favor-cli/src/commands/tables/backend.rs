//! Where the work on a table is done: on this machine, or on a cluster.

use super::Data;
use crate::failure::Failure;
use favor_tables::datafusion::arrow::array::RecordBatch;
use favor_tables::datafusion::arrow::datatypes::SchemaRef;
use favor_tables::{
    Drift, Evaluation, FitRequest, Missing, Model, PredictOptions, Progress, Table, session,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use std::sync::Arc;

/// On which machines.
#[derive(Debug, clap::Args)]
pub(in crate::commands) struct Backend {
    /// Run on the cluster with this scheduler, as in df://HOST:50050; its executors must see the
    /// files under the same paths
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "threads")]
    cluster: Option<String>,
    /// Maximum number of pieces to split the table into: a few times the cluster's number of cores
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "N", default_value_t = 64, requires = "cluster")]
    partitions: usize,
}

/// The columns of predictions, and the batches as they come.
pub(super) type Predictions = (SchemaRef, BoxStream<'static, Result<RecordBatch, Failure>>);

/// What a failure on a cluster is, in a command that is told of it by `--cluster`.
#[cfg(feature = "cluster")]
fn failed(error: favor_cluster::Error) -> Failure {
    Failure::Cluster { error, scheduler: "--cluster" }
}

impl Backend {
    #[cfg(feature = "cluster")]
    fn cluster(&self) -> Result<Option<favor_cluster::Cluster>, Failure> {
        let Some(address) = &self.cluster else { return Ok(None) };
        let cluster = favor_cluster::Cluster::at(address).map_err(failed)?;
        Ok(Some(cluster.partitions(self.partitions)))
    }

    pub(super) async fn fit(
        &self,
        data: &Data,
        request: &FitRequest,
        progress: &Arc<Progress>,
    ) -> Result<Model, Failure> {
        #[cfg(feature = "cluster")]
        if let Some(cluster) = self.cluster()? {
            return cluster.fit(&data.source(), request, progress).await.map_err(failed);
        }
        let table = Table::open(&session(data.threads), &data.source()).await?;
        Ok(favor_tables::fit(&table, request, progress).await?)
    }

    pub(super) async fn fit_like(
        &self,
        data: &Data,
        like: &Model,
        progress: &Arc<Progress>,
    ) -> Result<Model, Failure> {
        #[cfg(feature = "cluster")]
        if let Some(cluster) = self.cluster()? {
            return cluster.fit_like(&data.source(), like, progress).await.map_err(failed);
        }
        let table = Table::open(&session(data.threads), &data.source()).await?;
        Ok(favor_tables::fit_like(&table, like, progress).await?)
    }

    pub(super) async fn update(
        &self,
        data: &Data,
        model: &Model,
        progress: &Arc<Progress>,
    ) -> Result<(Model, Drift), Failure> {
        #[cfg(feature = "cluster")]
        if let Some(cluster) = self.cluster()? {
            return cluster.update(&data.source(), model, progress).await.map_err(failed);
        }
        let table = Table::open(&session(data.threads), &data.source()).await?;
        Ok(favor_tables::update(&table, model, progress).await?)
    }

    pub(super) async fn subtract(
        &self,
        data: &Data,
        model: &Model,
        progress: &Arc<Progress>,
    ) -> Result<Model, Failure> {
        #[cfg(feature = "cluster")]
        if let Some(cluster) = self.cluster()? {
            return cluster.subtract(&data.source(), model, progress).await.map_err(failed);
        }
        let table = Table::open(&session(data.threads), &data.source()).await?;
        Ok(favor_tables::subtract(&table, model, progress).await?)
    }

    pub(super) async fn predict(
        &self,
        data: &Data,
        model: &Model,
        options: &PredictOptions,
        ordered: bool,
        progress: &Arc<Progress>,
    ) -> Result<Predictions, Failure> {
        #[cfg(feature = "cluster")]
        if let Some(cluster) = self.cluster()? {
            let source = data.source();
            let (schema, batches) = if ordered {
                cluster.predict_in_order(&source, model, options, progress).await
            } else {
                cluster.predict(&source, model, options, progress).await
            }
            .map_err(failed)?;
            return Ok((schema, batches.map(|batch| batch.map_err(failed)).boxed()));
        }
        // One reader keeps the order of the rows, asked for or not; all threads predict.
        let _ = ordered;
        let table = Table::open(&session(Some(1)), &data.source()).await?;
        let (schema, batches) = favor_tables::predict(&table, model, options, progress).await?;
        Ok((schema, batches.map(|batch| batch.map_err(Failure::from)).boxed()))
    }

    pub(super) async fn evaluate(
        &self,
        data: &Data,
        model: &Model,
        missing: Option<Missing>,
        progress: &Arc<Progress>,
    ) -> Result<Evaluation, Failure> {
        #[cfg(feature = "cluster")]
        if let Some(cluster) = self.cluster()? {
            let found = cluster.evaluate(&data.source(), model, missing, progress).await;
            return found.map_err(failed);
        }
        let table = Table::open(&session(data.threads), &data.source()).await?;
        Ok(favor_tables::evaluate(&table, model, missing, progress).await?)
    }
}
