//! The subcommands on tables: what they share.

mod backend;
pub(super) mod compare;
pub(super) mod evaluate;
pub(super) mod fit;
pub(super) mod info;
pub(super) mod merge;
pub(super) mod predict;
pub(super) mod project;
pub(super) mod subtract;
pub(super) mod update;

use crate::failure::Failure;
use crate::terminal;
use favor_tables::{Progress, Source, Stage};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where the rows come from.
#[derive(Debug, clap::Args)]
pub(super) struct Data {
    /// Files, globs or folders of .csv, .tsv, .parquet or .arrow files, all of one format
    #[arg(value_name = "DATA", required_unless_present = "sql")]
    data: Vec<String>,
    /// SQL query to read instead of files; files can be its tables, as in
    /// "select a, b, y from 'x.parquet' where a > 0"
    #[arg(long, value_name = "QUERY", conflicts_with = "data")]
    sql: Option<String>,
    /// Number of threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
}

impl Data {
    pub(super) fn source(&self) -> Source {
        match &self.sql {
            Some(query) => Source::Sql(query.clone()),
            None => Source::Files(self.data.clone()),
        }
    }

    /// The file of a model, if that is what was given in place of a table.
    fn model(&self) -> Option<&Path> {
        let [path] = &self.data[..] else { return None };
        let file = Path::new(path);
        (file.is_file() && !Source::is_table(path)).then_some(file)
    }
}

/// Runs asynchronous work while a bar on standard error shows rows and rows per second.
pub(super) fn run<T: Send>(
    threads: Option<usize>,
    work: impl AsyncFnOnce(Arc<Progress>) -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let runtime = favor_tables::runtime(threads)?;
    let progress = Arc::new(Progress::default());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let shown = progress.clone();
        let bar = scope.spawn(|| show(shown, &done));
        let result = runtime.block_on(work(progress));
        done.store(true, Ordering::Relaxed);
        bar.thread().unpark();
        result
    })
}

/// Draws the bar until the work is done. It is hidden when standard error is no terminal.
fn show(progress: Arc<Progress>, done: &AtomicBool) {
    let bar = ProgressBar::with_draw_target(None, terminal::progress_target());
    let style = |template| ProgressStyle::with_template(template).ok();
    let (known, unknown, elsewhere) = (
        style("{prefix} [{bar:30}] {human_pos}/{human_len} rows {msg} {eta} left"),
        style("{prefix} {spinner} {human_pos} rows {msg}"),
        // Of rows that a cluster reads nothing is heard.
        style("{prefix} {spinner} {elapsed}"),
    );
    let mut current = (Stage::default(), false);
    let mut began = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let (stage, rows) = progress.now();
        if stage != current.0 {
            began = Instant::now();
        }
        let now = (stage, rows > 0);
        if now != current {
            bar.set_prefix(now.0.name);
            bar.set_length(now.0.total.unwrap_or(0));
            let style = match (now.1, now.0.total) {
                (false, _) => &elsewhere,
                (true, Some(_)) => &known,
                (true, None) => &unknown,
            };
            if let Some(style) = style {
                bar.set_style(style.clone().progress_chars("=> "));
            }
            current = now;
        }
        bar.set_position(rows);
        let rate = rows as f64 / began.elapsed().as_secs_f64().max(1e-3);
        bar.set_message(format!("{} rows/s", short(rate)));
        std::thread::park_timeout(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}

fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e3 => format!("{:.0} k", v / 1e3),
        v => format!("{v:.0}"),
    }
}
