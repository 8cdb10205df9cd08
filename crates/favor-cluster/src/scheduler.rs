//! The scheduler: takes plans from clients, splits them into tasks, and hands these to executors.

use crate::address::Address;
use crate::codec::{Codec, version};
use crate::{Endpoint, Error, MESSAGE_BYTES, Result, stores};
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::utils::{default_config_producer, default_session_builder};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use ballista_scheduler::scheduler_server::SchedulerServer;
use datafusion::execution::SessionStateBuilder;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::net::TcpListener;

/// How to run a scheduler.
///
/// ```
/// let options = favor_cluster::SchedulerOptions::default().bind("0.0.0.0:50050");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerOptions {
    /// The address it listens on, as in `127.0.0.1:50050`; port 0 takes a free one.
    pub bind: String,
    /// After this many seconds without a word from an executor, its tasks are given to others.
    pub executor_timeout: u64,
    version: String,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self { bind: "127.0.0.1:50050".into(), executor_timeout: 30, version: version() }
    }
}

impl SchedulerOptions {
    /// The address it listens on.
    #[must_use]
    pub fn bind(self, address: impl Into<String>) -> Self {
        Self { bind: address.into(), ..self }
    }

    /// After this many seconds without a word from an executor, its tasks are given to others.
    #[must_use]
    pub fn executor_timeout(self, seconds: u64) -> Self {
        Self { executor_timeout: seconds, ..self }
    }

    /// The version of the functions that it claims to have (for tests).
    #[doc(hidden)]
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: version.into(), ..self }
    }
}

/// Runs a scheduler. `started` is called with its address once it listens.
pub async fn serve_scheduler(options: &SchedulerOptions, started: impl FnOnce(&str)) -> Result<()> {
    let address = Address::parse(Endpoint::Bind, &options.bind)?;
    let refused =
        |e: std::io::Error| Error::Listen { address: address.to_string(), reason: e.to_string() };
    let listener = TcpListener::bind(address.to_string()).await.map_err(refused)?;
    let port = listener.local_addr().map_err(refused)?.port();
    let address = Address { port, ..address };

    let codec = Arc::new(Codec::of_version("scheduler", &options.version));
    let config = SchedulerConfig {
        external_host: address.host.clone(),
        bind_host: address.host.clone(),
        bind_port: port,
        // Executors poll: they need no port for incoming work.
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        executor_timeout_seconds: options.executor_timeout,
        expire_dead_executor_interval_seconds: (options.executor_timeout / 5).clamp(1, 15),
        no_executors_grace_period_seconds: options.executor_timeout,
        grpc_server_max_decoding_message_size: MESSAGE_BYTES,
        grpc_server_max_encoding_message_size: MESSAGE_BYTES,
        grpc_client_max_message_size: MESSAGE_BYTES,
        override_logical_codec: Some(codec.clone()),
        override_physical_codec: Some(codec),
        ..SchedulerConfig::default()
    };
    let scheduler = scheduler(config).await?;
    started(&address.to_string());
    run(listener, scheduler).await
}

type Scheduler = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// Boxed, like what follows, so that Ballista's part is compiled here rather than in every program
/// that runs a scheduler.
fn scheduler(config: SchedulerConfig) -> BoxFuture<'static, Result<Scheduler>> {
    let cluster = BallistaCluster::new_memory(
        config.scheduler_id.clone(),
        Arc::new(|config| {
            let state = default_session_builder(config)?;
            let id = state.session_id().to_owned();
            Ok(SessionStateBuilder::new_from_existing(state)
                .with_session_id(id)
                .with_runtime_env(stores::runtime(None)?)
                .build())
        }),
        Arc::new(default_config_producer),
    );
    Box::pin(async {
        let made = create_scheduler(cluster, Arc::new(config)).await;
        made.map_err(|e| Error::ballista("scheduler", e))
    })
}

fn run(listener: TcpListener, scheduler: Scheduler) -> BoxFuture<'static, Result<()>> {
    Box::pin(async {
        let ended = start_grpc_service_with_listener(listener, scheduler).await;
        ended.map_err(|e| Error::ballista("scheduler", e))
    })
}
