//! The client's side: a session whose tables are read by the executors.

use crate::address::Address;
use crate::codec::Codec;
use crate::message::marked;
use crate::readiness::{Readiness, readiness};
use crate::{MESSAGE_BYTES, stores};
use ballista_core::config::BALLISTA_CLIENT_GRPC_HTTP2_KEEPALIVE_INTERVAL_SECONDS;
use ballista_core::extension::{SessionConfigExt, SessionStateExt};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use favor_tables::{Error, Model, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A scheduler that has not answered for so long, and a little longer, is gone.
const KEEPALIVE_SECONDS: usize = 10;

/// How often the scheduler is asked during work, and how long it may be away or without executors:
/// long enough for a rolling restart.
const WATCH: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(90);

/// A session on the cluster of the scheduler at an address, as in `df://scheduler:50050`, that reads
/// tables in at most so many pieces. Asks the scheduler whether it has executors.
pub async fn connect(address: &str, partitions: usize) -> Result<SessionContext> {
    let address = Address::parse("--cluster", address)?;
    let refused = |reason| Err(Error::Request { what: "--cluster", reason });
    match readiness(&address).await {
        Readiness::Ready => {}
        Readiness::Empty => {
            let reason = format!(
                "the scheduler at {address} has no executors; start some with: favor cluster \
                 executor --scheduler {address}"
            );
            return refused(reason);
        }
        Readiness::Absent(why) => {
            let reason = format!(
                "no scheduler answers at {address} ({why}); start one with: favor cluster \
                 scheduler --bind {address}"
            );
            return refused(reason);
        }
    }
    // The static planner: under the adaptive one a job was seen to wait for ever after an executor
    // was lost together with the finished part of a stage.
    let config = SessionConfig::new_with_ballista()
        .with_target_partitions(partitions.max(1))
        .with_ballista_adaptive_query_planner(false)
        .with_ballista_grpc_client_max_message_size(MESSAGE_BYTES as usize)
        .set_usize(BALLISTA_CLIENT_GRPC_HTTP2_KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_SECONDS)
        .with_ballista_logical_extension_codec(Arc::new(Codec::new("client")));
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_runtime_env(stores::runtime(None)?)
        .build()
        .upgrade_for_ballista(format!("http://{address}"))?;
    Ok(SessionContext::new_with_state(state).enable_url_table())
}

/// Does work on a cluster, and gives up when its scheduler has been away or without executors for too
/// long: a job that is submitted then would wait for ever.
pub async fn watched<T, E: From<Error>>(
    address: &str,
    work: impl Future<Output = std::result::Result<T, E>>,
) -> std::result::Result<T, E> {
    let address = Address::parse("--cluster", address)?;
    tokio::select! {
        result = work => result,
        error = loss(&address) => Err(error.into()),
    }
}

/// Ends when the cluster is lost.
async fn loss(address: &Address) -> Error {
    let mut since = None;
    loop {
        tokio::time::sleep(WATCH).await;
        let why = match readiness(address).await {
            Readiness::Ready => {
                since = None;
                continue;
            }
            Readiness::Empty => "has no executors any more".to_owned(),
            Readiness::Absent(why) => format!("does not answer any more ({why})"),
        };
        if since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            return Error::Engine(format!(
                "the cluster was lost: the scheduler at {address} {why}"
            ));
        }
    }
}

/// The error that a process of the cluster had, out of what the others made of it.
pub fn explain(error: Error) -> Error {
    match error {
        Error::Engine(text) => Error::Engine(match (marked(&text), text.split_once(" failed: ")) {
            (Some(message), _) => message,
            (None, Some((_, reason))) => format!("the cluster gave up: {reason}"),
            (None, None) => format!("cluster: {text}"),
        }),
        Error::Source { place, reason } => {
            Error::Source { place, reason: marked(&reason).unwrap_or(reason) }
        }
        other => other,
    }
}

/// That both passes of a fit have seen the same rows. They are queries of their own, whose parts
/// may have been run more than once, so this is checked and not believed.
pub fn complete(model: Model) -> Result<Model> {
    let (first, second) = (model.moments().count(), model.about().rows);
    match first == second {
        true => Ok(model),
        false => Err(Error::Engine(format!(
            "the first pass saw {first} rows and the second {second}: files changed or were lost in \
             between; fit again"
        ))),
    }
}
