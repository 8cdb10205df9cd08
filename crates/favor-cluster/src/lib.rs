//! Kernel models on tables too large for one machine: the functions of `favor-tables` on a
//! [Ballista](https://datafusion.apache.org/ballista/) cluster.
//!
//! A cluster is a [scheduler](serve_scheduler) and any number of [executors](serve_executor). A client
//! has a [`Cluster`], which fits, predicts and evaluates as `favor-tables` does on one machine: the
//! aggregates and the predict functions carry everything a worker needs as bytes ([`Codec`]), with the
//! version of their code, so processes of different builds refuse each other's functions.
//!
//! ```no_run
//! use favor_cluster::Cluster;
//! use favor_tables::{FitRequest, Source};
//! # async fn example() -> favor_cluster::Result<()> {
//! let cluster = Cluster::at("df://scheduler:50050")?.partitions(128);
//! let shells = Source::Files(vec!["/shared/shells".into()]);
//! let model = cluster.fit(&shells, &FitRequest::of("rings"), &Default::default()).await?;
//! let found = cluster.evaluate(&shells, &model, None, &Default::default()).await?;
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
mod codec;
mod error;
mod executor;
mod message;
mod readiness;
mod scheduler;
mod stores;
mod task_runner;

pub use client::Cluster;
pub use codec::{Codec, version};
pub use error::{Endpoint, Error, Result};
pub use executor::{ExecutorOptions, serve_executor};
pub use scheduler::{SchedulerOptions, serve_scheduler};

/// The maximum size in bytes of a message between processes: plans carry feature maps and models.
const MESSAGE_BYTES: u32 = 1 << 30;

/// Logs warnings of the cluster's processes to standard error, and whatever `RUST_LOG` asks for.
pub fn log_to_standard_error() {
    let filter = env_logger::Env::default().default_filter_or("error,favor_cluster=info");
    // Only a second call can fail, and then there already is a logger.
    let _ = env_logger::Builder::from_env(filter).format_target(false).try_init();
}
