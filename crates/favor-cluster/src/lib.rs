//! Kernel models on tables that one machine cannot hold: the functions of `favor-tables` on a
//! [Ballista](https://datafusion.apache.org/ballista/) cluster.
//!
//! A cluster is a [scheduler](serve_scheduler) and any number of [executors](serve_executor). A
//! client [connects](connect) and gets a session of the query engine whose tables are read by the
//! executors. [`fit`](favor_tables::fit()) and
//! [`engine_predictions`](favor_tables::engine_predictions) run there as they do on one machine: the
//! aggregates and the predict function carry all that a worker needs as bytes ([`Codec`]), with the
//! version of their code, so that processes of different builds refuse each other's functions.
//!
//! ```no_run
//! use favor_tables::{Progress, Request, Source, Table, fit};
//! # async fn example() -> favor_tables::Result<()> {
//! let session = favor_cluster::connect("df://scheduler:50050", 64).await?;
//! let table = Table::open(&session, &Source::Files(vec!["/shared/shells".into()])).await?;
//! let request = Request { target: Some("rings".into()), ..Request::default() };
//! let model = fit(&table, &request, &Default::default()).await;
//! let model = model.map_err(favor_cluster::explain).and_then(favor_cluster::complete)?;
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
mod codec;
mod engine;
mod executor;
mod message;
mod readiness;
mod scheduler;
mod stores;

pub use client::{complete, connect, explain, watched};
pub use codec::{Codec, VERSION};
pub use executor::{ExecutorOptions, serve_executor};
pub use scheduler::{SchedulerOptions, serve_scheduler};

/// The most bytes of a message between processes: plans carry feature maps and models.
const MESSAGE_BYTES: u32 = 1 << 30;

/// Prints warnings of the cluster's processes on standard error, and what `RUST_LOG` asks for.
pub fn log_to_standard_error() {
    let filter = env_logger::Env::default().default_filter_or("error,favor_cluster=info");
    // Only a second call could fail, and the first one's logger serves.
    let _ = env_logger::Builder::from_env(filter).format_target(false).try_init();
}
