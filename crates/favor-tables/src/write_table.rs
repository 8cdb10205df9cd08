//! Batches into a file, whole or not at all.

use crate::{Error, Result};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv::Writer as CsvWriter;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use favor_io::AtomicFile;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::io::{BufWriter, Write};
use std::path::Path;

type Out = BufWriter<AtomicFile>;

enum Sink {
    Parquet(Box<ArrowWriter<Out>>),
    Csv(Box<CsvWriter<Out>>),
    Arrow(Box<FileWriter<Out>>),
}

impl Sink {
    fn new(path: &Path, out: Out, schema: &SchemaRef) -> Result<Self> {
        let extension =
            path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        let failed = |e: &dyn ToString| Error::output(path, e.to_string());
        match extension.as_str() {
            "parquet" => {
                let properties =
                    WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                let writer = ArrowWriter::try_new(out, schema.clone(), Some(properties));
                Ok(Self::Parquet(Box::new(writer.map_err(|e| failed(&e))?)))
            }
            "arrow" => {
                let writer = FileWriter::try_new(out, schema).map_err(|e| failed(&e))?;
                Ok(Self::Arrow(Box::new(writer)))
            }
            "csv" => Ok(Self::Csv(Box::new(CsvWriter::new(out)))),
            _ => Err(failed(&"the name must end in .parquet, .csv or .arrow")),
        }
    }

    fn write(&mut self, batch: &RecordBatch) -> std::result::Result<(), String> {
        match self {
            Self::Parquet(w) => w.write(batch).map_err(|e| e.to_string()),
            Self::Csv(w) => w.write(batch).map_err(|e| e.to_string()),
            Self::Arrow(w) => w.write(batch).map_err(|e| e.to_string()),
        }
    }

    fn finish(self) -> std::result::Result<Out, String> {
        match self {
            Self::Parquet(w) => w.into_inner().map_err(|e| e.to_string()),
            Self::Csv(w) => Ok(w.into_inner()),
            Self::Arrow(w) => w.into_inner().map_err(|e| e.to_string()),
        }
    }
}

/// Writes batches to a file that ends in .parquet, .csv or .arrow. Gives the number of rows.
///
/// ```
/// use favor_tables::{Predictions, write_table};
/// # async fn example((schema, batches): Predictions) -> favor_tables::Result<()> {
/// let rows = write_table(std::path::Path::new("out.parquet"), &schema, batches).await?;
/// println!("{rows} rows");
/// # Ok(())
/// # }
/// ```
pub async fn write_table<E: From<Error>>(
    path: &Path,
    schema: &SchemaRef,
    mut batches: BoxStream<'_, std::result::Result<RecordBatch, E>>,
) -> std::result::Result<usize, E> {
    let refused = |e: favor_io::OutputError| Error::output(path, e.reason);
    let file = AtomicFile::create(path).map_err(refused)?;
    let mut sink = Sink::new(path, BufWriter::new(file), schema)?;
    let mut rows = 0;
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        rows += batch.num_rows();
        sink.write(&batch).map_err(|e| Error::output(path, e))?;
    }
    // A table without rows still has a header.
    if rows == 0 {
        sink.write(&RecordBatch::new_empty(schema.clone())).map_err(|e| Error::output(path, e))?;
    }
    let buffer = sink.finish().map_err(|e| Error::output(path, e))?;
    let file = buffer.into_inner().map_err(|e| Error::output(path, e.error()))?;
    file.commit().map_err(refused)?;
    Ok(rows)
}

/// Writes batches as CSV to an open output. The inner result is that of the output.
///
/// ```
/// use favor_tables::{Predictions, write_csv};
/// # async fn example((_, batches): Predictions) -> Result<(), Box<dyn std::error::Error>> {
/// write_csv(std::io::stdout(), batches).await??;
/// # Ok(())
/// # }
/// ```
pub async fn write_csv<E>(
    out: impl Write + Send,
    mut batches: BoxStream<'_, std::result::Result<RecordBatch, E>>,
) -> std::result::Result<std::io::Result<()>, E> {
    let mut writer = CsvWriter::new(out);
    while let Some(batch) = batches.next().await {
        if let Err(error) = writer.write(&batch?) {
            return Ok(Err(broken(error)));
        }
    }
    let mut out = writer.into_inner();
    Ok(out.flush())
}

/// The error of the output below that of the format.
fn broken(error: datafusion::arrow::error::ArrowError) -> std::io::Error {
    use datafusion::arrow::error::ArrowError;
    match error {
        ArrowError::IoError(_, error) => error,
        other => {
            // The CSV writer hides the kind of the error; a reader that has gone is the usual one.
            let text = other.to_string();
            if text.contains("Broken pipe") || text.contains("os error 32") {
                std::io::ErrorKind::BrokenPipe.into()
            } else {
                std::io::Error::other(text)
            }
        }
    }
}
