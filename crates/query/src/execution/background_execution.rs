//! Runs a DataFusion plan on threads of its own, which send batches to a synchronous consumer.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::error::Result as PlanResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use futures::{FutureExt, StreamExt};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result, error_from_panic};
use tidemill_base::large_stack::RUN_STACK_BYTES;
use tidemill_base::panics;
use tidemill_sql::{IntoTidemillError, float_order, into_datafusion_error};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// A DataFusion plan that runs on threads of its own and sends its batches through a bounded channel.
pub(crate) struct BackgroundExecution {
    /// `None` marks the end. If the channel closes without it, the sender has failed.
    batches: Receiver<PlanResult<Option<RecordBatch>>>,
    /// The first item, received by `wait_for_first_batch` and not yet returned.
    first_batch: Option<Option<RecordBatch>>,
    /// Shut down without waiting for its threads: a blocked thread must not delay Ctrl-C.
    runtime: Option<tokio::runtime::Runtime>,
}

/// Poll interval of a waiting consumer for cancellation. A batch wakes it at once.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum wait for the threads of an abandoned plan to end and return their memory.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

impl BackgroundExecution {
    pub(crate) fn start(
        state: SessionState,
        plan: LogicalPlan,
        threads: usize,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        cancel.check()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("engine")
            .thread_stack_size(RUN_STACK_BYTES)
            .on_thread_start(panics::silence_thread_panics)
            .build()
            .map_err(|e| Error::Io { action: "start", path: "threads".into(), source: e })?;
        let (sender, batches) = mpsc::channel(2);
        runtime.spawn(async move {
            let fed = std::panic::AssertUnwindSafe(Self::send_batches(state, plan, &sender))
                .catch_unwind();
            let end = match fed.await {
                Ok(Ok(())) => Ok(None),
                Ok(Err(error)) => Err(error),
                Err(panic) => Err(into_datafusion_error(error_from_panic(panic.as_ref()))),
            };
            // A send that fails means that the consumer is gone and needs no end.
            let _ = sender.send(end).await;
        });
        Ok(BackgroundExecution { batches, first_batch: None, runtime: Some(runtime) })
    }

    async fn send_batches(
        state: SessionState,
        plan: LogicalPlan,
        sender: &Sender<PlanResult<Option<RecordBatch>>>,
    ) -> PlanResult<()> {
        let plan = float_order::rewrite_float_and_nested_extremes(plan)?;
        let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
        let mut stream = execute_stream(physical, state.task_ctx())?;
        while let Some(batch) = stream.next().await {
            let batch = Some(batch?);
            if sender.send(Ok(batch)).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Waits for the first batch or the end of the stream. The next call of [`next_batch`](Self::next_batch)
    /// returns it.
    ///
    /// # Errors
    /// Errors of the plan before its first row.
    pub(crate) fn wait_for_first_batch(&mut self, cancel: &CancelFlag) -> Result<()> {
        self.first_batch = Some(self.next_batch(cancel)?);
        Ok(())
    }

    /// Stops the plan, and waits up to [`SHUTDOWN_TIMEOUT`] until it has returned its memory.
    pub(crate) fn shut_down(mut self) {
        let runtime = self.runtime.take();
        // Dropping the receiver first ends the sender.
        drop(self);
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        }
    }

    pub(crate) fn next_batch(&mut self, cancel: &CancelFlag) -> Result<Option<RecordBatch>> {
        if let Some(first) = self.first_batch.take() {
            return Ok(first);
        }
        // Polling with a waker: the sender waits as a task, and its thread goes on with the plan.
        let waker = Waker::from(Arc::new(ThreadUnparker(thread::current())));
        loop {
            cancel.check()?;
            match self.batches.poll_recv(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some(batch)) => return batch.into_tidemill_error(),
                Poll::Ready(None) => {
                    return Err(Error::Internal("the query's threads are gone".into()));
                }
                Poll::Pending => thread::park_timeout(CANCEL_POLL_INTERVAL),
            }
        }
    }
}

/// A waker that unparks a thread.
struct ThreadUnparker(Thread);

impl Wake for ThreadUnparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for BackgroundExecution {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_base::RunSettings;

    use super::*;
    use crate::{Query, QueryPlan};

    #[test]
    fn runtime_shutdown_ends_endless_plans() {
        for sql in [
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n FROM t) SELECT count(*) FROM t",
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT n FROM t",
            "WITH RECURSIVE t AS (SELECT 1 AS n UNION SELECT 3 - n FROM t) SELECT count(*) FROM t AS a",
        ] {
            let settings = RunSettings { threads: 2, ..RunSettings::new(64 << 20) };
            let query = Query { sql: sql.into(), ..Query::default() };
            let plan = QueryPlan::new(&query, &settings).unwrap();
            let state = plan.context.state();
            let mut background =
                BackgroundExecution::start(state, plan.logical_plan.clone(), 2, &settings.cancel)
                    .unwrap();
            background.runtime.take().unwrap().shutdown_background();
            // The sender is dropped with its task, which ends at its next await.
            while background.batches.blocking_recv().is_some() {}
        }
    }
}
