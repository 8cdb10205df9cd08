//! `favor predict`.

use super::place::Place;
use super::{Data, run};
use crate::failure::{Failure, Outcome};
use crate::terminal;
use favor_tables::datafusion::arrow::array::RecordBatch;
use favor_tables::datafusion::arrow::datatypes::SchemaRef;
use favor_tables::{
    Error, Missing, Model, Result, Table, Wishes, engine_predictions, predictions, session,
    write_csv, write_file,
};
use futures::stream::BoxStream;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "Examples:
  favor predict model.favor new.csv
  favor predict model.favor 'new/*.parquet' --out predictions.parquet --proba --keep id
  favor predict model.favor --sql \"select * from 'new.parquet' limit 10\"";

/// Predict for the rows of a table, in their order; on a cluster in any order.
///
/// Writes the column prediction (log_density for a density), with --proba one column a class, and
/// relative_error: the error of the sum over the model's rows that its features are expected to
/// have at this row. Above about 0.5 a prediction is not reliable.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model, as written by favor fit
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    place: Place,
    /// The file to write: .parquet, .csv or .arrow; CSV on standard output by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the probability of each class too
    #[arg(long)]
    proba: bool,
    /// Columns of the table to carry over, with commas
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    keep: Vec<String>,
    /// What to do with missing values: error, drop (predict nothing) or mean; as the model does by
    /// default
    #[arg(long, value_name = "HOW")]
    missing: Option<Missing>,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        let model = Model::load(&self.model)?;
        let source = self.data.source();
        let wishes = Wishes { probabilities: self.proba, keep: self.keep, missing: self.missing };
        let (place, out) = (&self.place, self.out.as_deref());
        let written = run(self.data.threads, async |progress| {
            if place.is_cluster() {
                if wishes.keep.is_empty() {
                    let reason = "predictions come in no fixed order; give --keep with columns that \
                                  tell the rows apart";
                    return Err(Error::Request { what: "--cluster", reason: reason.into() }.into());
                }
                // The executors predict; what comes back is predictions.
                let table = Table::open(&place.session(&self.data).await?, &source).await?;
                let work = async {
                    let made = engine_predictions(&table, &model, &wishes, &progress).await;
                    let (schema, batches) = made.map_err(|e| place.explain(e))?;
                    write(out, &schema, batches, |e| place.explain(e)).await
                };
                return place.watched(work).await;
            }
            // One reader keeps the order of the rows; all threads predict.
            let table = Table::open(&session(Some(1)), &source).await?;
            let (schema, batches) = predictions(&table, &model, &wishes, &progress).await?;
            write(out, &schema, batches, |e| e).await
        })?;
        match (written, &self.out) {
            (Some(rows), Some(path)) => {
                terminal::print(&format!("wrote {rows} predictions to {}\n", path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Writes predictions to a file and gives their number, or to standard output.
async fn write(
    out: Option<&Path>,
    schema: &SchemaRef,
    batches: BoxStream<'_, Result<RecordBatch>>,
    explain: impl Fn(Error) -> Error,
) -> std::result::Result<Option<usize>, Failure> {
    match out {
        Some(path) => Ok(Some(write_file(path, schema, batches).await.map_err(explain)?)),
        None => {
            let written = write_csv(std::io::stdout(), batches).await.map_err(explain)?;
            written.map_err(Failure::Print)?;
            Ok(None)
        }
    }
}
