//! How an executor runs a task: like Ballista, but with a log line when a task starts and ends, and
//! with errors that are readable when they arrive at the client.

use crate::message::{Message, mark};
use ballista_core::JobId;
use ballista_core::error::BallistaError;
use ballista_core::serde::protobuf::{
    RuntimeStatsReport, ShuffleWritePartition, TaskColumnStats, WindowStateReport,
};
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::prelude::SessionConfig;
use favor_tables::Error;
use std::sync::Arc;
use std::time::Instant;

/// Runs the tasks of an executor.
pub(crate) struct TaskRunner {
    address: String,
    inner: DefaultExecutionEngine,
}

impl TaskRunner {
    pub(crate) fn new(address: String) -> Self {
        // No connection pool: our jobs fetch a few states, once.
        Self { address, inner: DefaultExecutionEngine::new() }
    }
}

impl ExecutionEngine for TaskRunner {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        partitions: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let name = format!("task {task_id} of stage {stage_id} of job {job_id}");
        let inner = self.inner.create_query_stage_exec(
            job_id, stage_id, task_id, partitions, plan, work_dir, config,
        )?;
        Ok(Arc::new(LoggedTask { name, address: self.address.clone(), inner }))
    }
}

#[derive(Debug)]
struct LoggedTask {
    name: String,
    address: String,
    inner: Arc<dyn QueryStageExecutor>,
}

impl std::fmt::Display for LoggedTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl QueryStageExecutor for LoggedTask {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        log::info!("{} begins", self.name);
        let began = Instant::now();
        let result = self.inner.execute_query_stage(task_id, context).await;
        match &result {
            Ok(_) => log::info!("{} done in {:.1} s", self.name, began.elapsed().as_secs_f64()),
            Err(error) => log::info!("{} failed: {}", self.name, error.strip_backtrace()),
        }
        result.map_err(|error| readable(error, &self.address))
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.inner.collect_plan_metrics()
    }

    fn collect_runtime_stats_reports(&self) -> Vec<RuntimeStatsReport> {
        self.inner.collect_runtime_stats_reports()
    }

    fn collect_window_state_reports(&self) -> Result<Vec<WindowStateReport>> {
        self.inner.collect_window_state_reports()
    }

    fn collect_column_stats(&self) -> Vec<TaskColumnStats> {
        self.inner.collect_column_stats()
    }
}

/// An error as one marked line, except where the scheduler must know its kind to run tasks again.
fn readable(error: DataFusionError, address: &str) -> DataFusionError {
    let own = |inner: &(dyn std::error::Error + Send + Sync + 'static)| {
        inner.downcast_ref::<Error>().map(Message::from)
    };
    let message = match root(&error) {
        DataFusionError::IoError(_) => return error,
        DataFusionError::External(inner) if inner.is::<BallistaError>() => return error,
        DataFusionError::External(inner) if inner.is::<Error>() => own(inner.as_ref()),
        _ => None,
    };
    let message = message.unwrap_or_else(|| {
        let text = root(&error).strip_backtrace();
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Message::Line(format!("executor {address}: {line}"))
    });
    DataFusionError::Execution(mark(&message))
}

/// The root cause of an error, under the wrappers of DataFusion and Ballista.
fn root(error: &DataFusionError) -> &DataFusionError {
    let found = error.find_root();
    match found {
        DataFusionError::External(inner) => match inner.downcast_ref::<BallistaError>() {
            Some(BallistaError::DataFusionError(inner)) => root(inner),
            _ => found,
        },
        _ => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::marked;

    /// As the writer of a stage wraps errors of its input.
    fn wrapped(error: DataFusionError) -> DataFusionError {
        let inner = BallistaError::DataFusionError(Box::new(error));
        DataFusionError::Shared(Arc::new(inner.into_datafusion()))
    }

    #[test]
    fn messages_are_marked_and_kinds_are_kept() {
        let ours = Error::Column {
            column: "a".into(),
            reason: "is odd".into(),
            remedy: Some(favor_tables::Remedy::DropMissing),
        };
        let text = readable(wrapped(ours.clone().into()), "node:1").to_string();
        assert_eq!(marked(&text), Some(Message::from(&ours)));
        let theirs = DataFusionError::Execution("no\nway".into());
        let text = readable(wrapped(theirs), "node:1").to_string();
        let line = "executor node:1: Execution error: no way".to_string();
        assert_eq!(marked(&text), Some(Message::Line(line)));

        let broken = || std::io::Error::other("disk");
        let lost = BallistaError::FetchFailed("x".into(), 0, 0, "gone".into());
        for error in [
            wrapped(DataFusionError::IoError(broken())),
            wrapped(BallistaError::IoError(broken()).into_datafusion()),
            wrapped(lost.into_datafusion()),
            BallistaError::Cancelled.into_datafusion(),
        ] {
            let before = format!("{error:?}");
            assert_eq!(format!("{:?}", readable(error, "node:1")), before);
        }
    }
}
