//! Calls of the query engine as boxed futures: its code is then compiled here once, and not again
//! in every program that awaits one of our functions.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::options::ArrowReadOptions;
use datafusion::prelude::{CsvReadOptions, DataFrame, ParquetReadOptions, SessionContext};
use futures::future::BoxFuture;

pub(crate) fn collect(frame: DataFrame) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    Box::pin(frame.collect())
}

pub(crate) fn stream(frame: DataFrame) -> BoxFuture<'static, Result<SendableRecordBatchStream>> {
    Box::pin(frame.execute_stream())
}

pub(crate) fn sql<'a>(
    session: &'a SessionContext,
    query: &'a str,
    options: SQLOptions,
) -> BoxFuture<'a, Result<DataFrame>> {
    Box::pin(session.sql_with_options(query, options))
}

/// How files are read.
pub(crate) enum Reading<'a> {
    Csv(CsvReadOptions<'a>),
    Parquet(ParquetReadOptions<'a>),
    Arrow(ArrowReadOptions<'a>),
}

pub(crate) fn read<'a>(
    session: &'a SessionContext,
    files: Vec<String>,
    how: Reading<'a>,
) -> BoxFuture<'a, Result<DataFrame>> {
    match how {
        Reading::Csv(options) => Box::pin(session.read_csv(files, options)),
        Reading::Parquet(options) => Box::pin(session.read_parquet(files, options)),
        Reading::Arrow(options) => Box::pin(session.read_arrow(files, options)),
    }
}
