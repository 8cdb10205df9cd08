//! An executor: asks a scheduler for tasks, runs them, and serves their results to others.

use crate::address::Address;
use crate::codec::{Codec, version};
use crate::readiness::{Readiness, readiness};
use crate::task_runner::TaskRunner;
use crate::{Endpoint, Error, MESSAGE_BYTES, Result, stores};
use ballista_core::config::TaskSchedulingPolicy;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use futures::future::BoxFuture;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How to run an executor.
///
/// ```
/// let options = favor_cluster::ExecutorOptions::new("node-0:50050").bind("node-1:50051").cores(Some(8));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutorOptions {
    /// The scheduler, as in `node-1:50050`.
    pub scheduler: String,
    /// The address it listens on; port 0 takes a free one.
    pub bind: String,
    /// The name under which others reach it; by default the address that the scheduler sees.
    pub host: Option<String>,
    /// The number of concurrent tasks; all cores by default.
    pub cores: Option<usize>,
    /// Where task results are kept until their job ends; a temporary folder by default.
    pub work: Option<PathBuf>,
    /// How many seconds to wait for the scheduler.
    pub wait: u64,
    version: String,
}

impl ExecutorOptions {
    /// An executor for a scheduler, with all cores, reachable from this machine only.
    pub fn new(scheduler: impl Into<String>) -> Self {
        Self {
            scheduler: scheduler.into(),
            bind: "127.0.0.1:0".into(),
            host: None,
            cores: None,
            work: None,
            wait: 30,
            version: version(),
        }
    }

    /// The address it listens on.
    #[must_use]
    pub fn bind(self, address: impl Into<String>) -> Self {
        Self { bind: address.into(), ..self }
    }

    /// The name under which others reach it.
    #[must_use]
    pub fn host(self, host: Option<String>) -> Self {
        Self { host, ..self }
    }

    /// The number of concurrent tasks.
    #[must_use]
    pub fn cores(self, cores: Option<usize>) -> Self {
        Self { cores, ..self }
    }

    /// Where task results are kept until their job ends.
    #[must_use]
    pub fn work(self, folder: Option<PathBuf>) -> Self {
        Self { work: folder, ..self }
    }

    /// How many seconds to wait for the scheduler.
    #[must_use]
    pub fn wait(self, seconds: u64) -> Self {
        Self { wait: seconds, ..self }
    }

    /// The version of the functions that it claims to have (for tests).
    #[doc(hidden)]
    #[must_use]
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: version.into(), ..self }
    }
}

/// Runs an executor until it is asked to stop. `started` is called with its address once it has found the
/// scheduler.
pub async fn serve_executor(options: &ExecutorOptions, started: impl FnOnce(&str)) -> Result<()> {
    let scheduler = Address::parse(Endpoint::Scheduler, &options.scheduler)?;
    let bind = Address::parse(Endpoint::Bind, &options.bind)?;
    let address = Address { port: free_port(&bind)?, ..bind };
    let cores = match options.cores {
        Some(0) => return Err(Error::NoCores),
        Some(cores) => cores,
        None => std::thread::available_parallelism().map_or(1, |n| n.get()),
    };
    // Kept until the end: dropping it removes the folder.
    let (work, _temporary) = match &options.work {
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(|e| unusable(folder, &e))?;
            (folder.clone(), None)
        }
        None => {
            let folder = tempfile::Builder::new().prefix("favor-executor-").tempdir();
            let folder = folder.map_err(|e| unusable(&std::env::temp_dir(), &e))?;
            (folder.path().to_owned(), Some(folder))
        }
    };
    await_scheduler(&scheduler, options.wait).await?;

    let codec = Arc::new(Codec::of_version("executor", &options.version));
    let scratch = work.clone();
    let config = ExecutorProcessConfig {
        bind_host: address.host.clone(),
        external_host: options.host.clone(),
        port: address.port,
        scheduler_host: scheduler.host.clone(),
        scheduler_port: scheduler.port,
        vcores: cores,
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        work_dir: Some(work.display().to_string()),
        grpc_max_decoding_message_size: MESSAGE_BYTES,
        grpc_max_encoding_message_size: MESSAGE_BYTES,
        override_execution_engine: Some(Arc::new(TaskRunner::new(address.to_string()))),
        override_runtime_producer: Some(Arc::new(move |_| stores::runtime(Some(&scratch)))),
        override_logical_codec: Some(codec.clone()),
        override_physical_codec: Some(codec),
        ..ExecutorProcessConfig::default()
    };
    started(&address.to_string());
    run(Arc::new(config)).await
}

/// Boxed, so that Ballista's part is compiled here rather than in every program that runs an executor.
fn run(config: Arc<ExecutorProcessConfig>) -> BoxFuture<'static, Result<()>> {
    Box::pin(async {
        let ended = start_executor_process(config).await;
        ended.map_err(|e| Error::ballista("executor", e))
    })
}

/// The port to listen on; a free one if none is given. The scheduler must know it before the service
/// starts, so it is found by listening once.
fn free_port(bind: &Address) -> Result<u16> {
    let listener = TcpListener::bind(bind.to_string()).and_then(|l| l.local_addr());
    let found =
        listener.map_err(|e| Error::Listen { address: bind.to_string(), reason: e.to_string() })?;
    Ok(found.port())
}

fn unusable(folder: &std::path::Path, error: &std::io::Error) -> Error {
    Error::WorkFolder { folder: folder.display().to_string(), reason: error.to_string() }
}

async fn await_scheduler(scheduler: &Address, seconds: u64) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(seconds);
    loop {
        match readiness(scheduler).await {
            Readiness::Absent(why) if Instant::now() >= until => {
                let why = format!("{why}, for {seconds} s");
                return Err(Error::NoScheduler { address: scheduler.to_string(), why });
            }
            Readiness::Absent(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            _ => return Ok(()),
        }
    }
}
