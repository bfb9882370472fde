//! Distributed execution: worker processes, on this or other machines, read a query's splits.
//!
//! ```text
//!   driver                                  workers, anywhere
//!     plan · list · cut                        plan again, over the same columns
//!       job  ───────────────────────────────►  once
//!       task: some splits  ─────────────────►  map ─ tables
//!       merge · finish  ◄──── a task result: groups and a report on each split
//! ```
//!
//! The driver plans once, from listings and samples. A [cluster job](cluster_job) contains the SQL, the
//! columns of its sources and the rows of the build sides. A [read task](task_messages) contains consecutive
//! splits, described by their files' names, versions and ranges. A worker plans the SQL again over the same
//! columns, and so gets the same map and the same tables; it refuses the job if it gets others.
//!
//! A task result contains chunks of a table, or rows (`docs/formats/task.md`). Results pass a gate in split
//! order. There the driver checks, as it does between threads, that each split began where the one before it
//! ended. Rows and order-sensitive states arrive in split order too, so the answer has the same bytes as that
//! of one machine.
//!
//! A worker writes a table that is too large to send to a scratch file, partitioned by ranges of its key
//! hashes. Once all splits are read, workers merge all tables range by range, and the driver receives the
//! answers.
//!
//! Rows whose output files workers may write go the same way. Workers partition them by output file and
//! [shuffle](row_shuffle) them to the workers that write the files; the driver commits the files.
//!
//! This module does not know how a task reaches a worker: a [`WorkerPool`] starts processes and delivers
//! tasks.
//!
//! - `cluster_job`: the message with which workers plan a job.
//! - `task_messages`: the messages of tasks and their results. `serialized_error`: errors in them.
//! - `driver`: the driver's side: what a cluster can run, how a job starts, how results are merged.
//! - `ordered_scheduler`, `sampled_scheduler`, `unordered_scheduler`: task schedulers for results in split
//!   order, for sampled splits, and for tasks in any order.
//! - `ordered_worker_rows`: the rows that workers send, in split order.
//! - `shuffle_files`: scratch files with groups or rows by partition. `table_reduction`: the merge of large
//!   tables.
//! - `row_shuffle`, `output_tasks`: rows on their way to the workers that write output files, and the tasks
//!   for that.
//! - `distributed_output`: an output that the query shares with the code that commits it.
//! - `task_executor`: the worker's side: the code that runs tasks.

mod cluster_job;
mod distributed_output;
mod driver;
mod ordered_scheduler;
mod ordered_worker_rows;
mod output_tasks;
mod row_shuffle;
mod sampled_scheduler;
mod serialized_error;
mod shuffle_files;
mod table_reduction;
mod task_executor;
mod task_messages;
mod unordered_scheduler;

pub(crate) use cluster_job::SampledReadOptions;
pub use distributed_output::DistributedOutput;
pub(crate) use driver::{
    ClusterRows, FoldOutput, aggregate_on_workers, check_cluster_support, explain_cluster_read,
    read_rows_on_workers, start_sampled_rows, start_sampled_tables,
};
pub(crate) use ordered_worker_rows::OrderedWorkerRows;
pub(crate) use row_shuffle::ShuffledRows;
pub(crate) use sampled_scheduler::{SampledScheduler, SampledTaskResult};
pub use serialized_error::SerializedError;
pub use task_executor::TaskExecutor;
pub(crate) use task_messages::TaskResult;
pub use unordered_scheduler::{EncodedTask, TaskSource, TaskStats, UnorderedScheduler};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::{Error, Result};
use tidemill_base::memory_budget::{self, MemorySize};
use tidemill_source::programs::companion_files::ProgramFile;
use tidemill_source::programs::filter_program::FilterProgram;

/// Returns the error for a query that a cluster cannot run.
pub(crate) fn cluster_unsupported_error(why: &str) -> Error {
    if why.contains("` is called as ") {
        // This mistake does not depend on where the query runs.
        return Error::usage(why);
    }
    Error::usage_with_hint(
        format!("the query cannot be run on a cluster: {why}"),
        "on one machine it can: leave `on` out",
    )
}

/// The worker processes that run a query's tasks.
///
/// Methods are called from one thread at a time.
pub trait WorkerPool: std::fmt::Debug + Send + Sync {
    /// Returns the numbers of machines, workers and threads, from which the driver derives the number of
    /// tasks. Waits until workers are available.
    ///
    /// # Errors
    /// Fails if no worker can be reached.
    fn worker_counts(&self) -> Result<WorkerCounts>;

    /// Starts a job, to which all tasks submitted from now on belong.
    ///
    /// # Errors
    /// Fails if no worker can be reached, or if one of the job's paths does not exist on a worker's machine.
    fn start_job(&self, job: SubmittedJob) -> Result<()>;

    /// Submits a task, which the first free worker runs. If that worker is slow, another worker may run a
    /// copy of the task at the same time, and is told how many copies started before. Each submitted task
    /// yields one outcome.
    ///
    /// # Errors
    /// Fails if no worker can be reached.
    fn submit_task(&self, task: SubmittedTask) -> Result<()>;

    /// Returns the outcome of a task, or `None` if no task ends within `wait`.
    ///
    /// # Errors
    /// Fails if no worker can be reached any more.
    fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>>;

    /// Ends the job and cancels its remaining tasks.
    fn end_job(&self);
}

/// Numbers of machines, workers and threads that read a query's splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCounts {
    /// Number of machines.
    pub machines: usize,
    /// Number of worker processes.
    pub workers: usize,
    /// Number of threads of all processes together.
    pub threads: usize,
    /// True if all workers run on the driver's machine and see its files.
    #[serde(default)]
    pub is_here: bool,
}

/// Options of the scratch storage through which workers exchange tables that are too large to send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScratchSpec {
    /// A folder that all machines see, or `s3://bucket/prefix`. Default: the spill folder if all workers run
    /// on one machine; otherwise none, and all tables pass through the driver.
    pub url: Option<String>,
    /// Maximum size of a table that is sent to the driver; a larger one goes through scratch storage.
    /// Default: 4 MiB.
    pub inline_bytes_max: Option<u64>,
}

impl ScratchSpec {
    /// Parses the values of the user's options: the location, and a size as text.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid size.
    pub fn from_options(url: Option<String>, above: Option<&str>) -> Result<ScratchSpec> {
        let bytes = |text: &str| match memory_budget::parse_size(text) {
            Some(MemorySize::Bytes(bytes)) => Ok(bytes),
            _ => Err(Error::usage_with_hint(
                format!("scratch_above: `{text}` is not a number of bytes"),
                "write bytes (`8e6`) or a unit (`512k`, `4MiB`)",
            )),
        };
        let part_bytes_max = above.map(bytes).transpose()?;
        Ok(ScratchSpec { url, inline_bytes_max: part_bytes_max })
    }

    /// Returns these options, with the values of `other` where this one has none.
    #[must_use]
    pub fn with_defaults(self, other: ScratchSpec) -> ScratchSpec {
        ScratchSpec {
            url: self.url.or(other.url),
            inline_bytes_max: self.inline_bytes_max.or(other.inline_bytes_max),
        }
    }
}

/// Processor time and wall time of a task on its worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskTime {
    /// Processor time.
    pub cpu: Duration,
    /// Wall time.
    pub wall: Duration,
}

/// A job as the driver submits it to a [`WorkerPool`].
#[derive(Clone, Default)]
pub struct SubmittedJob {
    /// The encoded job, from which workers create a [`TaskExecutor`].
    pub encoded_job: Vec<u8>,
    /// Credentials of object stores. They must not appear in a log or on a disk.
    pub secrets: BTreeMap<String, String>,
    /// Local files that all machines must see: a selection of those that the splits belong to, and lock
    /// files.
    pub shared_paths: Vec<String>,
    /// Files that filter programs open by name. They are sent with the job, so other machines need not see
    /// them.
    pub shipped_files: Vec<ShippedFile>,
}

/// A local file that is sent to workers with a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShippedFile {
    /// The name under which a program opens it. A [`TaskExecutor`] gets the local path for this name.
    pub name: String,
    /// Its path on this machine.
    pub path: PathBuf,
    /// Its name in messages.
    pub shown: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Time of its last modification, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// True if the file is executable.
    pub is_executable: bool,
}

impl ShippedFile {
    /// Returns the files that a program opens by name; fetches remote ones first.
    ///
    /// # Errors
    /// Fails as [`ProgramFiles::prepare_files`](tidemill_source::programs::companion_files::ProgramFiles::prepare_files).
    pub fn collect_from_program(
        program: Option<&FilterProgram>,
        cancel: &CancelFlag,
    ) -> Result<Vec<ShippedFile>> {
        let Some(files) = program.and_then(FilterProgram::accompanying_files) else {
            return Ok(Vec::new());
        };
        let handed = |file: ProgramFile| ShippedFile {
            name: file.name,
            path: file.path,
            shown: file.display_name,
            bytes: file.identity.size,
            modified_ns: i64::try_from(file.identity.modified_ns).unwrap_or(0),
            is_executable: file.is_executable,
        };
        Ok(files.prepare_files(cancel)?.into_iter().map(handed).collect())
    }
}

/// A task as the driver submits it to a [`WorkerPool`].
#[derive(Debug, Clone)]
pub struct SubmittedTask {
    /// Its number within the job.
    pub number: usize,
    /// Number of earlier attempts.
    pub attempt: usize,
    /// Its expected cost, as a number of stored bytes.
    pub cost_bytes: u64,
    /// Its name in progress displays and logs: `flights 3 of 40`.
    pub display_name: String,
    /// The message for a [`TaskExecutor`].
    pub encoded_task: Vec<u8>,
}

/// The outcome of a task: its result, or the reason why its worker is gone.
#[derive(Debug)]
pub struct TaskOutcome {
    /// The task's number within the job.
    pub number: usize,
    /// The attempt that ended.
    pub attempt: usize,
    /// Machine and process of the worker, for display.
    pub worker_name: Option<String>,
    /// The result message of a [`TaskExecutor`]; or, in words, why the worker is gone, and the task with it.
    pub result: Result<Vec<u8>, String>,
}
