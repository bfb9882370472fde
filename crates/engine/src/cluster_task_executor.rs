//! Who does tasks for somebody else: of a query, or of a conversion to a folder.

use std::path::PathBuf;

use tidemill_base::RunSettings;
use tidemill_base::error::Result;
use tidemill_remote::StorageOptions;

use crate::convert::cluster_conversion;

/// A job as one process does its tasks.
pub struct ClusterTaskExecutor(ExecutorKind);

enum ExecutorKind {
    Query(Box<tidemill_query::TaskExecutor>),
    Conversion(Box<cluster_conversion::ConversionTaskExecutor>),
}

impl ClusterTaskExecutor {
    /// Takes a job; what is elsewhere is reached by `storage`, beyond what the environment says. Of the files that come
    /// with the job, each is on this machine at a path.
    ///
    /// # Errors
    /// Where the job is of another release, or is planned otherwise here.
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

    /// Does a task; what comes of it, its error included, is a message to whoever dealt it.
    pub fn run_task(&self, task: &[u8]) -> Vec<u8> {
        self.run_task_copy(task, 0)
    }

    /// The same, where `copy` others were told to do the same content, and may do it at the same time.
    pub fn run_task_copy(&self, task: &[u8], copy: usize) -> Vec<u8> {
        match &self.0 {
            ExecutorKind::Query(worker) => worker.run_task(task, copy),
            ExecutorKind::Conversion(worker) => worker.run_task(task, copy),
        }
    }
}
