//! Kernel classification, regression and density on tables: the Gaussian kernel by random features,
//! so that time is linear in the rows and a model is a few sums, whatever the size of the table.
//!
//! A table comes from files or a query ([`Source`], [`Table`]), is read in batches on all cores, and
//! need not fit into memory. [`fit`](fit()) makes two passes over it, one for the [`Moments`] that
//! the feature map is fitted to and one for the sums of the features, and chooses σ on a sample in
//! between. The [`Model`] is one file; models with one map [merge](Model::merge), so that parts of a
//! table can be fitted apart and rows added later ([`update`]). [`predictions`] come with the
//! predicted relative error of their sums; [`evaluate`](evaluate()) puts the exact kernel beside
//! them.
//!
//! ```
//! use favor_tables::{Goal, Progress, Request, Source, Table, Wishes, fit, session};
//! use std::sync::Arc;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("rings.csv").display().to_string();
//! # let row = |i: usize| {
//! #     let (angle, ring) = (0.7 * i as f64, i % 2);
//! #     let radius = 1.0 + ring as f64 + 0.1 * (3.0 * i as f64).sin();
//! #     format!("{},{},{}\n", radius * angle.cos(), radius * angle.sin(), ["inner", "outer"][ring])
//! # };
//! # std::fs::write(&path, format!("x,y,ring\n{}", (0..400).map(row).collect::<String>()))?;
//!
//! let progress = Arc::new(Progress::default());
//! let request = Request { target: Some("ring".into()), ..Request::default() };
//! let model = favor_tables::runtime(None)?.block_on(async {
//!     let table = Table::open(&session(None), &Source::Files(vec![path])).await?;
//!     let model = fit(&table, &request, &progress).await?;
//!     let found = favor_tables::evaluate(&table, &model, &Wishes::default(), &progress).await?;
//!     assert!(found.score > 0.95);
//!     Ok::<_, favor_tables::Error>(model)
//! })?;
//! assert_eq!(model.about().labels(), ["inner", "outer"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Moments`]: favor::Moments

mod aggregate;
mod bucket;
mod encode;
mod engine;
mod error;
mod evaluate;
mod file;
mod fit;
mod functions;
mod model;
mod predict;
mod progress;
mod report;
mod rows;
mod sigma;
mod source;
mod states;
mod task;
mod write;

#[cfg(feature = "linfa")]
pub mod estimator;

pub use aggregate::{aggregate_from_bytes, aggregate_to_bytes};
pub use encode::{Column, Encoder, Kind, Missing};
pub use error::{Error, Result};
pub use evaluate::{Comparison, Evaluation, evaluate};
pub use fit::{Goal, Request, Sigma, fit, fit_like, update};
pub use functions::{
    aggregates, moments, predict_from_bytes, predict_function, predict_to_bytes, register, sums,
};
pub use model::{About, Class, Model, Target};
pub use predict::{Predictor, Wishes, predictions};
pub use progress::{Progress, Stage};
pub use rows::{engine_predictions, rows_from_bytes, rows_function, rows_to_bytes};
pub use sigma::{Curve, Search, Trial, grid};
pub use source::{Source, Table, session};
pub use task::{Prior, Task};
pub use write::{write_csv, write_file};

// What the arguments and results of this crate are made of.
pub use datafusion;
pub use favor::{Coupling, Family};

/// A runtime with this many threads, all cores by default, for the asynchronous functions.
pub fn runtime(threads: Option<usize>) -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads.max(1));
    }
    builder.enable_all().build().map_err(|e| Error::Engine(format!("no threads: {e}")))
}
