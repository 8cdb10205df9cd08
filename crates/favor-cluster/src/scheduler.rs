//! The scheduler: takes plans from clients, cuts them into tasks, and hands these to executors.

use crate::address::Address;
use crate::codec::{Codec, VERSION};
use crate::{MESSAGE_BYTES, stores};
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::utils::{default_config_producer, default_session_builder};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use datafusion::execution::SessionStateBuilder;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use favor_tables::{Error, Result};
use std::sync::Arc;
use tokio::net::TcpListener;

/// How a scheduler is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Where it listens, as in `127.0.0.1:50050`; port 0 takes a free one.
    pub bind: String,
    /// After so many seconds without a word from an executor its tasks are given to others.
    pub executor_timeout: u64,
    /// The version of the functions that it claims to have.
    pub version: String,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self { bind: "127.0.0.1:50050".into(), executor_timeout: 30, version: VERSION.into() }
    }
}

/// Runs a scheduler. `started` is told its address once it listens.
pub async fn serve_scheduler(options: &SchedulerOptions, started: impl FnOnce(&str)) -> Result<()> {
    let address = Address::parse("--bind", &options.bind)?;
    let refused = |reason: String| Error::Request { what: "--bind", reason };
    let listener = TcpListener::bind(address.to_string()).await;
    let listener = listener.map_err(|e| refused(format!("cannot listen at {address}: {e}")))?;
    let port = listener.local_addr().map_err(|e| refused(e.to_string()))?.port();
    let address = Address { port, ..address };

    let codec = Arc::new(Codec::of_version("scheduler", &options.version));
    let config = SchedulerConfig {
        external_host: address.host.clone(),
        bind_host: address.host.clone(),
        bind_port: port,
        // Executors ask: they need no port for orders.
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
    let failed = |e: ballista_core::error::BallistaError| Error::Engine(format!("scheduler: {e}"));
    let scheduler =
        create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config)).await;
    let scheduler = scheduler.map_err(failed)?;
    started(&address.to_string());
    start_grpc_service_with_listener(listener, scheduler).await.map_err(failed)
}
