//! `favor cluster`.

use crate::failure::{Failure, Outcome};
use crate::terminal;
use favor_cluster::{ExecutorOptions, SchedulerOptions, serve_executor, serve_scheduler};
use std::path::PathBuf;

const EXAMPLES: &str = "Example, each line in its own terminal:
  favor cluster scheduler
  favor cluster executor --scheduler 127.0.0.1:50050
  favor cluster executor --scheduler 127.0.0.1:50050
  favor fit shells.parquet --target rings --regress --cluster df://127.0.0.1:50050";

/// Run the processes of a cluster: one scheduler and any number of executors.
///
/// favor's functions are built into them. Commands such as favor fit and favor predict use the
/// cluster when --cluster is given.
///
/// There is no authentication: listen only on networks where everyone is trusted.
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

/// Accept jobs from clients and distribute them to executors.
#[derive(Debug, clap::Args)]
struct Scheduler {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    bind: String,
    /// Reassign an executor's tasks after this many seconds of silence
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(6..))]
    executor_timeout: u64,
}

/// Fetch tasks from a scheduler and run them.
#[derive(Debug, clap::Args)]
struct Executor {
    /// Address of the scheduler
    #[arg(long, value_name = "HOST:PORT")]
    scheduler: String,
    /// Address where other executors and clients fetch results; port 0 picks a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    bind: String,
    /// Host name under which others reach this executor [default: the address that the scheduler
    /// sees]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Tasks to run at a time [default: all cores]
    #[arg(long, value_name = "N")]
    cores: Option<usize>,
    /// Folder that keeps task results until their job ends [default: a temporary folder]
    #[arg(long, value_name = "FOLDER")]
    work: Option<PathBuf>,
    /// How long to wait for the scheduler to answer
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
