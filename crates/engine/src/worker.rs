//! Who does tasks for somebody else: of a query, or of a conversion to a folder.

use std::path::PathBuf;

use tidemill_base::RunSettings;
use tidemill_base::error::Result;
use tidemill_remote::StorageOptions;

use crate::convert::elsewhere;

/// A job as one process does its tasks.
pub struct Worker(Job);

enum Job {
    Query(Box<tidemill_query::TaskExecutor>),
    Conversion(Box<elsewhere::Worker>),
}

impl Worker {
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
        if job.starts_with(elsewhere::MAGIC) {
            let worker = elsewhere::Worker::new(job, settings, storage, files)?;
            return Ok(Worker(Job::Conversion(Box::new(worker))));
        }
        let worker = tidemill_query::TaskExecutor::new(job, settings, storage, files)?;
        Ok(Worker(Job::Query(Box::new(worker))))
    }

    /// Does a task; what comes of it, its error included, is a message to whoever dealt it.
    pub fn run(&self, task: &[u8]) -> Vec<u8> {
        self.run_copy(task, 0)
    }

    /// The same, where `copy` others were told to do the same content, and may do it at the same time.
    pub fn run_copy(&self, task: &[u8], copy: usize) -> Vec<u8> {
        match &self.0 {
            Job::Query(worker) => worker.run_task(task, copy),
            Job::Conversion(worker) => worker.run(task, copy),
        }
    }
}
