//! Where a table comes from: files, globs, folders, or a query.

use crate::query::{self, Reading};
use crate::{Error, Result, Setting, bucket};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::options::ArrowReadOptions;
use datafusion::prelude::{
    CsvReadOptions, DataFrame, ParquetReadOptions, SessionConfig, SessionContext,
};
use std::path::{Path, PathBuf};

/// Rows of a CSV file that its types are told from.
const TYPED_ROWS: usize = 10_000;

/// A table to read.
///
/// ```
/// use favor_tables::Source;
/// let files = Source::Files(vec!["logs/*.parquet".into()]);
/// let query = Source::Sql("select a, b from 'x.parquet' where a > 0".into());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Files, globs, folders, or addresses of an object store; all of one format.
    Files(Vec<String>),
    /// A query, in which files can be tables: `select * from 'x.parquet' where …`.
    Sql(String),
}

impl Source {
    /// Whether a file of this name is taken for a table.
    ///
    /// ```
    /// use favor_tables::Source;
    /// assert!(Source::is_table("rows.parquet") && !Source::is_table("model.favor"));
    /// ```
    pub fn is_table(name: &str) -> bool {
        format_of(name).is_some()
    }

    /// One source per file, in order; a query is one.
    pub async fn parts(&self, session: &SessionContext) -> Result<Vec<Self>> {
        match self {
            Self::Sql(_) => Ok(vec![self.clone()]),
            Self::Files(paths) => {
                let files = resolve(&bucket::expand(session, paths).await?)?;
                Ok(files.into_iter().map(|file| Self::Files(vec![file])).collect())
            }
        }
    }
}

/// A session of the query engine with this many workers, all cores by default.
///
/// ```
/// let session = favor_tables::session(Some(2)); // two workers
/// ```
pub fn session(threads: Option<usize>) -> SessionContext {
    let mut config = SessionConfig::new();
    if let Some(threads) = threads {
        config = config.with_target_partitions(threads.max(1));
    }
    SessionContext::new_with_config(config).enable_url_table()
}

/// A table that can be read in batches, and what is needed to explain its errors.
///
/// ```
/// use favor_tables::{Source, Table, session};
/// # async fn example() -> favor_tables::Result<()> {
/// let table = Table::open(&session(None), &Source::Files(vec!["rows.csv".into()])).await?;
/// for (name, data_type) in table.columns() {
///     println!("{name}: {data_type}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Table {
    /// The rows.
    pub frame: DataFrame,
    csv: Vec<PathBuf>,
}

impl From<DataFrame> for Table {
    fn from(frame: DataFrame) -> Self {
        Self { frame, csv: vec![] }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Csv,
    Parquet,
    Arrow,
}

impl Table {
    /// Opens a source. Nothing but headers is read yet.
    pub async fn open(session: &SessionContext, source: &Source) -> Result<Self> {
        match source {
            Source::Files(paths) => Self::open_files(session, paths).await,
            Source::Sql(query) => {
                let read_only = SQLOptions::new()
                    .with_allow_ddl(false)
                    .with_allow_dml(false)
                    .with_allow_statements(false);
                match query::sql(session, query, read_only).await {
                    Ok(frame) => Ok(frame.into()),
                    Err(error) => {
                        Err(Error::request(Setting::Query, Error::from(error).to_string()))
                    }
                }
            }
        }
    }

    async fn open_files(session: &SessionContext, paths: &[String]) -> Result<Self> {
        let files = resolve(&bucket::expand(session, paths).await?)?;
        let format = common_format(&files)?;
        let extension = extension(&files[0]);
        let dotted = format!(".{extension}");
        let how = match format {
            Format::Csv => {
                let options = CsvReadOptions::new()
                    .file_extension(&dotted)
                    .schema_infer_max_records(TYPED_ROWS)
                    .delimiter(if extension == "tsv" { b'\t' } else { b',' });
                Reading::Csv(options)
            }
            Format::Parquet => {
                let options = ParquetReadOptions::default().file_extension(&dotted);
                Reading::Parquet(options)
            }
            Format::Arrow => {
                let options = ArrowReadOptions { file_extension: &dotted, ..Default::default() };
                Reading::Arrow(options)
            }
        };
        let csv = match format {
            Format::Csv => files.iter().filter(|f| !is_address(f)).map(PathBuf::from).collect(),
            _ => vec![],
        };
        match query::read(session, files.clone(), how).await {
            Ok(frame) => Ok(Self { frame, csv }),
            Err(error) => Err(explain_csv(&csv, None)
                .unwrap_or_else(|| Error::source(&files[0], Error::from(error).to_string()))),
        }
    }

    /// All rows.
    pub async fn collect(&self) -> Result<Vec<RecordBatch>> {
        query::collect(self.frame.clone()).await.map_err(|e| self.explain(e))
    }

    /// The same rows after a step of the query engine.
    pub(crate) fn with(&self, frame: DataFrame) -> Self {
        Self { frame, csv: self.csv.clone() }
    }

    /// Names and types of the columns.
    pub fn columns(&self) -> Vec<(String, DataType)> {
        let fields = self.frame.schema().fields().iter();
        fields.map(|f| (f.name().clone(), f.data_type().clone())).collect()
    }

    /// The type of a column, or an error that names those that there are.
    pub(crate) fn data_type(&self, name: &str) -> Result<DataType> {
        let columns = self.columns();
        match columns.iter().find(|(n, _)| n == name) {
            Some((_, data_type)) => Ok(data_type.clone()),
            None => {
                let names: Vec<&str> = columns.iter().map(|c| c.0.as_str()).collect();
                let first = names[..names.len().min(20)].join(", ");
                let mut reason = format!("is not in the table; it has {first}");
                if let Some(meant) = favor::nearest(name, &names) {
                    reason.push_str(&format!("; did you mean '{meant}'?"));
                }
                Err(Error::column(name, reason))
            }
        }
    }

    /// What an error of reading the rows comes from: for CSV files the line.
    pub(crate) fn explain(&self, error: impl Into<Error>) -> Error {
        match error.into() {
            query @ Error::Query { .. } => explain_csv(&self.csv, Some(self)).unwrap_or(query),
            other => other,
        }
    }
}

/// The files that paths, globs and folders stand for, in order.
fn resolve(paths: &[String]) -> Result<Vec<String>> {
    let mut files = vec![];
    for path in paths {
        if is_address(path) {
            files.push(path.clone());
            continue;
        }
        let found = expand(path)?;
        for file in &found {
            let size = std::fs::metadata(file).map_err(|e| Error::source(file, e.to_string()))?;
            if size.len() == 0 {
                return Err(Error::source(file, "the file is empty"));
            }
        }
        files.extend(found);
    }
    if files.is_empty() {
        return Err(Error::request(Setting::Data, "give a file, a folder, a glob or a query"));
    }
    Ok(files)
}

pub(crate) fn is_address(path: &str) -> bool {
    path.contains("://")
}

fn expand(path: &str) -> Result<Vec<String>> {
    let bad = |reason: String| Error::source(path, reason);
    let place = Path::new(path);
    if place.is_dir() {
        let entries = std::fs::read_dir(place).map_err(|e| bad(e.to_string()))?;
        let names = entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.is_file());
        let mut files: Vec<String> = names.map(|p| p.display().to_string()).collect();
        files.retain(|f| format_of(f).is_some());
        files.sort();
        if files.is_empty() {
            return Err(bad("the folder has no .csv, .tsv, .parquet or .arrow file".into()));
        }
        return Ok(files);
    }
    if place.exists() {
        return Ok(vec![path.to_owned()]);
    }
    if !path.contains(['*', '?', '[']) {
        return Err(bad("there is no such file".into()));
    }
    let found = glob::glob(path).map_err(|e| bad(e.to_string()))?;
    let mut files: Vec<String> = found
        .filter_map(|p| p.ok())
        .filter(|p| p.is_file())
        .map(|p| p.display().to_string())
        .collect();
    files.sort();
    if files.is_empty() { Err(bad("no file matches".into())) } else { Ok(files) }
}

fn extension(file: &str) -> String {
    let file = file.trim_end_matches(['*', '/']);
    file.rsplit_once('.').map_or("", |(_, e)| e).to_owned()
}

pub(crate) fn format_of(file: &str) -> Option<Format> {
    match extension(file).to_ascii_lowercase().as_str() {
        "csv" | "tsv" => Some(Format::Csv),
        "parquet" => Some(Format::Parquet),
        "arrow" | "ipc" | "feather" => Some(Format::Arrow),
        _ => None,
    }
}

fn common_format(files: &[String]) -> Result<Format> {
    let mut common = None;
    for file in files {
        let Some(format) = format_of(file) else {
            return Err(Error::source(file, "the name must end in .csv, .tsv, .parquet or .arrow"));
        };
        if common.is_some_and(|c| c != (format, extension(file))) {
            let reason = format!("is of another format than {}; give one format", files[0]);
            return Err(Error::source(file, reason));
        }
        common = Some((format, extension(file)));
    }
    common.map(|c| c.0).ok_or_else(|| Error::request(Setting::Data, "no files"))
}

/// The first line of CSV files that has another number of fields than the header, or a field that
/// is not of its column's type. The query engine reads files in pieces and cannot count lines.
fn explain_csv(files: &[PathBuf], table: Option<&Table>) -> Option<Error> {
    let numeric = |name: &str| {
        let data_type = table.and_then(|t| t.data_type(name).ok());
        data_type.filter(|t| t.is_numeric() || *t == DataType::Boolean)
    };
    for file in files {
        let delimiter = if extension(&file.display().to_string()) == "tsv" { b'\t' } else { b',' };
        let mut reader = csv::ReaderBuilder::new();
        let mut reader = reader.flexible(true).delimiter(delimiter).from_path(file).ok()?;
        let header = reader.headers().ok()?.clone();
        let types: Vec<Option<DataType>> = header.iter().map(numeric).collect();
        for record in reader.records() {
            let place = file.display().to_string();
            let record = match record {
                Ok(record) => record,
                Err(error) => return Some(Error::source(place, error.to_string())),
            };
            let line = record.position().map_or(0, csv::Position::line);
            if record.len() != header.len() {
                let (found, wanted) = (record.len(), header.len());
                let reason =
                    format!("line {line} has {found} fields where the header has {wanted}");
                return Some(Error::source(place, reason));
            }
            for ((field, name), data_type) in record.iter().zip(&header).zip(&types) {
                let Some(data_type) = data_type else { continue };
                if !(field.is_empty() || parses(field, data_type)) {
                    let reason = format!(
                        "line {line}: '{field}' in column '{name}', whose first rows are {data_type}"
                    );
                    return Some(Error::source(place, reason));
                }
            }
        }
    }
    None
}

fn parses(field: &str, data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean => matches!(field.to_ascii_lowercase().as_str(), "true" | "false"),
        t if t.is_integer() => field.parse::<i64>().is_ok(),
        _ => field.parse::<f64>().is_ok(),
    }
}
