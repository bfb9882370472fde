//! Execution of a driver's tasks in a worker process: tasks of a query, or of a conversion to a folder.

use std::path::PathBuf;

use tidemill_base::RunSettings;
use tidemill_base::error::Result;
use tidemill_remote::StorageOptions;

use crate::convert::cluster_conversion;

/// A cluster job whose tasks one worker process executes.
pub struct ClusterTaskExecutor(ExecutorKind);

enum ExecutorKind {
    Query(Box<tidemill_query::TaskExecutor>),
    Conversion(Box<cluster_conversion::ConversionTaskExecutor>),
}

impl ClusterTaskExecutor {
    /// Prepares the execution of a job. `storage` overrides the environment's settings for remote data.
    /// `files` gives the local path of each file that is shipped with the job.
    ///
    /// # Errors
    /// Returns an error if the job comes from another release, or if this process plans it differently.
    pub fn new(
        job: &[u8],
        settings: &RunSettings,
        storage: &StorageOptions,
        files: &[(String, PathBuf)],
    ) -> Result<Self> {
        if job.starts_with(cluster_conversion::CONVERSION_MESSAGE_MAGIC) {
            let worker =
                cluster_conversion::ConversionTaskExecutor::new(job, settings, storage, files)?;
            return Ok(ClusterTaskExecutor(ExecutorKind::Conversion(Box::new(worker))));
        }
        let worker = tidemill_query::TaskExecutor::new(job, settings, storage, files)?;
        Ok(ClusterTaskExecutor(ExecutorKind::Query(Box::new(worker))))
    }

    /// Executes a task, and returns the message for the driver: the result, or the error.
    pub fn run_task(&self, task: &[u8]) -> Vec<u8> {
        self.run_task_copy(task, 0)
    }

    /// Executes a task as [`run_task`](Self::run_task) does, as the copy with index `copy`. That many other
    /// workers were given the same task, and may execute it at the same time.
    pub fn run_task_copy(&self, task: &[u8], copy: usize) -> Vec<u8> {
        match &self.0 {
            ExecutorKind::Query(worker) => worker.run_task(task, copy),
            ExecutorKind::Conversion(worker) => worker.run_task(task, copy),
        }
    }
}
