//! Where the work on a table is done: on this machine, or on a cluster.

use super::Data;
use crate::failure::Failure;
use favor_tables::datafusion::prelude::SessionContext;
use favor_tables::{Error, Model, session};

/// On which machines.
#[derive(Debug, clap::Args)]
pub(in crate::commands) struct Place {
    /// The scheduler of a cluster that is to do the work, as in df://HOST:50050; its executors must
    /// see the files under the same paths
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "threads")]
    cluster: Option<String>,
    /// In how many pieces a cluster reads the table at most: a few times the number of its cores
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "N", default_value_t = 64, requires = "cluster")]
    partitions: usize,
}

#[cfg(feature = "cluster")]
impl Place {
    /// Whether the work is done elsewhere.
    pub(super) fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// A session there.
    pub(super) async fn session(&self, data: &Data) -> Result<SessionContext, Error> {
        match &self.cluster {
            Some(address) => favor_cluster::connect(address, self.partitions).await,
            None => Ok(session(data.threads)),
        }
    }

    /// Does the work, or gives up when the place is lost.
    pub(super) async fn watched<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match &self.cluster {
            Some(address) => favor_cluster::watched(address, work).await,
            None => work.await,
        }
    }

    /// An error as a person should read it.
    pub(super) fn explain(&self, error: Error) -> Error {
        match &self.cluster {
            Some(_) => favor_cluster::explain(error),
            None => error,
        }
    }

    /// A model of all rows, or an error.
    pub(super) fn complete(&self, model: Model) -> Result<Model, Error> {
        match &self.cluster {
            Some(_) => favor_cluster::complete(model),
            None => Ok(model),
        }
    }
}

#[cfg(not(feature = "cluster"))]
impl Place {
    pub(super) fn is_cluster(&self) -> bool {
        false
    }

    pub(super) async fn session(&self, data: &Data) -> Result<SessionContext, Error> {
        Ok(session(data.threads))
    }

    pub(super) async fn watched<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        work.await
    }

    pub(super) fn explain(&self, error: Error) -> Error {
        error
    }

    pub(super) fn complete(&self, model: Model) -> Result<Model, Error> {
        Ok(model)
    }
}
