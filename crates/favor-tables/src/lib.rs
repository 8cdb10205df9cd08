//! Kernel classification, regression and density on tables by kernel features,
//! so that time is linear in the rows and a model is a few sums, whatever the size of the table.
//!
//! A table comes from files or a query ([`Source`], [`Table`]), is read in batches on all cores, and
//! need not fit into memory. [`fit`](fit()) makes two passes over it, one for the [`Moments`] of
//! the columns and one for the sums of the features, and chooses features, kernel and bandwidth on a
//! sample in between. The [`Model`] is one file; models with one map [merge](Model::merge), so that
//! parts of a table can be fitted apart and rows added later ([`update`]). [`predict`](predict())
//! gives predictions, with error bars where the head has them; [`evaluate`](evaluate())
//! compares them with the exact kernel. The estimators themselves are those of [`favor::learn`].
//!
//! ```
//! use favor_tables::{FitRequest, Progress, Source, Table, fit, session};
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
//! let request = FitRequest::of("ring");
//! let model = favor_tables::runtime(None)?.block_on(async {
//!     let table = Table::open(&session(None), &Source::Files(vec![path])).await?;
//!     let model = fit(&table, &request, &progress).await?;
//!     let found = favor_tables::evaluate(&table, &model, None, &progress).await?;
//!     assert!(found.score > 0.95);
//!     Ok::<_, favor_tables::Error>(model)
//! })?;
//! assert_eq!(model.info().labels(), ["inner", "outer"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Moments`]: favor::Moments

mod aggregate;
mod bandwidth;
mod bucket;
mod choose;
mod encode;
mod error;
mod evaluate;
mod file;
mod fit;
mod functions;
mod head;
mod judge;
mod model;
mod normal;
mod plot;
mod predict;
mod predictions;
mod prior;
mod progress;
mod query;
mod report;
mod source;
mod states;
mod target;
mod udf_predict;
mod wire;
mod write_table;

pub use aggregate::{aggregate_from_bytes, aggregate_to_bytes};
pub use choose::{FeatureChoice, FeatureTrial};
pub use encode::{Column, ColumnKind, Encoder, Missing, NumberEncoding};
pub use error::{Cause, Error, Remedy, Result, Setting};
pub use evaluate::{Comparison, Evaluation, evaluate, evaluate_on_workers};
pub use fit::{FitRequest, fit, fit_like, subtract, update};
pub use functions::{aggregates, moments, register, sums};
pub use head::TableHead;
pub use judge::Judgement;
pub use model::{Class, Drift, Model, ModelInfo, Shift};
pub use predict::{PredictOptions, Predictor};
pub use predictions::{Predictions, predict, predict_on_workers, predicted_columns};
pub use prior::Prior;
pub use progress::{Progress, Stage};
pub use source::{Source, Table, session};
pub use target::Target;
pub use udf_predict::{
    predict_columns_function, predict_function, scalar_from_bytes, scalar_to_bytes,
};
pub use wire::WIRE_VERSION;
pub use write_table::{write_csv, write_table};

// What the arguments and results of this crate are made of.
pub use datafusion;
pub use favor::learn::metrics::ReliabilityBin;
pub use favor::learn::{
    Bandwidth, Basis, Curve, Design, GramSums, HeadKind, KernelShape, RidgeReport, Scaling, Search,
    Task, Trial, TwoSampleTest,
};
pub use favor::{Coupling, Family};

/// A runtime with this many threads, all cores by default, for the asynchronous functions.
///
/// ```
/// assert_eq!(favor_tables::runtime(Some(2))?.block_on(async { 1 + 1 }), 2);
/// # Ok::<(), favor_tables::Error>(())
/// ```
pub fn runtime(threads: Option<usize>) -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads.max(1));
    }
    let no_threads = |e: std::io::Error| Error::Query {
        reason: format!("no threads: {e}"),
        source: Some(Cause::new(e)),
    };
    builder.enable_all().build().map_err(no_threads)
}
