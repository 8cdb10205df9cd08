//! `favor cluster`.

use crate::failure::{Failure, Outcome};
use crate::terminal;
use favor_cluster::{ExecutorOptions, SchedulerOptions, serve_executor, serve_scheduler};
use std::path::PathBuf;

const EXAMPLES: &str = "Example, each line in a terminal of its own:
  favor cluster scheduler
  favor cluster executor --scheduler 127.0.0.1:50050
  favor cluster executor --scheduler 127.0.0.1:50050
  favor fit shells.parquet --target rings --regress --cluster df://127.0.0.1:50050";

/// Run the processes of a cluster: one scheduler and any number of executors.
///
/// They have the functions of favor built in and work for favor fit, predict, evaluate and update with
/// --cluster.
/// There is no password: let them listen only where everyone is trusted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    process: Process,
}

#[derive(Debug, clap::Subcommand)]
enum Process {
    Scheduler(Scheduler),
    Executor(Executor),
}

/// Take work from clients and hand it to executors.
#[derive(Debug, clap::Args)]
struct Scheduler {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    bind: String,
    /// Give the tasks of an executor to others after so many seconds without a word from it
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(6..))]
    executor_timeout: u64,
}

/// Ask a scheduler for work and do it.
#[derive(Debug, clap::Args)]
struct Executor {
    /// The scheduler
    #[arg(long, value_name = "HOST:PORT")]
    scheduler: String,
    /// Where to listen for those who fetch results: other executors and clients; port 0 takes a
    /// free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    bind: String,
    /// The name under which others reach this executor; the address that the scheduler sees by
    /// default
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Tasks at a time; all cores by default
    #[arg(long, value_name = "N")]
    cores: Option<usize>,
    /// The folder for results of tasks until their job ends; a temporary one by default
    #[arg(long, value_name = "FOLDER")]
    work: Option<PathBuf>,
    /// How long to wait for the scheduler
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
}

impl Arguments {
    pub(crate) fn run(self) -> Outcome {
        favor_cluster::log_to_standard_error();
        let runtime = favor_tables::runtime(None)?;
        // Whoever reads this may have gone; the process goes on all the same.
        let say = |what: &str, address: &str| {
            let _ = terminal::print(&format!("{what} at {address}\n"));
        };
        let ended = match self.process {
            Process::Scheduler(s) => {
                let options =
                    SchedulerOptions::default().bind(s.bind).executor_timeout(s.executor_timeout);
                runtime.block_on(serve_scheduler(&options, |at| say("scheduler", at)))
            }
            Process::Executor(e) => {
                let options = ExecutorOptions::new(e.scheduler).bind(e.bind).wait(e.wait);
                let options = options.host(e.host).cores(e.cores).work(e.work);
                runtime.block_on(serve_executor(&options, |at| say("executor", at)))
            }
        };
        ended.map_err(|error| Failure::Cluster { error, scheduler: "--scheduler" })
    }
}
