//! A query's splits read elsewhere: by other processes, on other machines.
//!
//! ```text
//!   driver                                  workers, anywhere
//!     plan · list · cut                        plan again, over the same columns
//!       job  ───────────────────────────────►  once
//!       task: some splits  ─────────────────►  map ─ tables
//!       merge · finish  ◄──── a part: groups and what was read of each split
//! ```
//!
//! Who asks plans once, from listings and samples. A [job](job) is the SQL, the columns of its sources and the rows of
//! what is joined; a [task](task) is some splits that follow one another, by their files' names, versions and ranges. A
//! worker plans the SQL again over those columns, and so finds the same map and the same tables; it is refused if it finds
//! others. What it gives is a part of the table, or rows (`docs/formats/task.md`), which passes a gate in the order of the
//! splits: whether each began where the one before it ended is checked between workers as it is between threads, and
//! rows and states that depend on order come in it, so that the answer is the same bytes as that of one machine.
//!
//! A table that is too large to be sent goes to a scratch file, put apart by ranges of its keys' hashes. When all splits
//! have been read, workers merge range by range what all tables have of it, and what the driver is given are answers.
//!
//! Rows whose files workers may write go the same way: put apart by the files that they are for, and [laid down](laid) for
//! those who write these; the driver makes them appear.
//!
//! How a task reaches a worker is somebody else's: whoever can start processes is [`Workers`].

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
    ClusterRows, FoldOutput, check_cluster_support, explain_cluster_read, fold_tables_on_workers,
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
use tidemill_source::filter_program::FilterProgram;
use tidemill_source::program_files::ProgramFile;

/// That a query is not run by workers elsewhere.
pub(crate) fn cluster_unsupported_error(why: &str) -> Error {
    if why.contains("` is called as ") {
        // It is a mistake wherever it is asked.
        return Error::usage(why);
    }
    Error::usage_with_hint(
        format!("the query cannot be run on a cluster: {why}"),
        "on one machine it can: leave `on` out",
    )
}

/// Processes that read splits for a query.
///
/// Methods are called from one thread at a time.
pub trait WorkerPool: std::fmt::Debug + Send + Sync {
    /// How many there are; tasks are cut for so many.
    ///
    /// # Errors
    /// Where none can be reached.
    fn worker_counts(&self) -> Result<WorkerCounts>;

    /// Says what all tasks that follow are of.
    ///
    /// # Errors
    /// Where no worker can be reached, or one of the paths is not on the machine of one.
    fn start_job(&self, job: SubmittedJob) -> Result<()>;

    /// Hands in a task, to be done by whichever worker is free first. One whose worker is slow may be done by another
    /// beside it, which is told how many were before: of each that was handed in, one end is told.
    ///
    /// # Errors
    /// Where no worker can be reached.
    fn submit_task(&self, task: SubmittedTask) -> Result<()>;

    /// What has become of a task; none where nothing has after so long.
    ///
    /// # Errors
    /// Where no worker can be reached any more.
    fn next_outcome(&self, wait: Duration) -> Result<Option<TaskOutcome>>;

    /// Ends all tasks of the job: no more of them is waited for.
    fn end_job(&self);
}

/// How many read a query's splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCounts {
    /// Machines.
    pub machines: usize,
    /// Processes.
    pub workers: usize,
    /// Threads of all processes.
    pub threads: usize,
    /// Whether all of them are on the machine of whoever asks, and see its files.
    #[serde(default)]
    pub is_here: bool,
}

/// How tables that are too large to be sent go from worker to worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScratchSpec {
    /// A folder that all machines see, or `s3://bucket/prefix`. Default: the folder for what does not fit memory, where
    /// all workers are on one machine, and else none: then all tables pass whoever asks.
    pub url: Option<String>,
    /// What is larger goes by way of it, in bytes. Default: 4 MiB.
    pub inline_bytes_max: Option<u64>,
}

impl ScratchSpec {
    /// As people write it.
    ///
    /// # Errors
    /// [`Error::Usage`] for a size that is none.
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

    /// The same with what another says that this does not.
    #[must_use]
    pub fn with_defaults(self, other: ScratchSpec) -> ScratchSpec {
        ScratchSpec {
            url: self.url.or(other.url),
            inline_bytes_max: self.inline_bytes_max.or(other.inline_bytes_max),
        }
    }
}

/// What a task took where it was done.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskTime {
    /// Processor time.
    pub cpu: Duration,
    /// Time from its beginning to its end.
    pub wall: Duration,
}

/// A job on its way to workers.
#[derive(Clone, Default)]
pub struct SubmittedJob {
    /// What a [`Worker`] is made of.
    pub encoded_job: Vec<u8>,
    /// How stores are reached: secrets, which are to be in no log and on no disk.
    pub secrets: BTreeMap<String, String>,
    /// Files that are read from a disk, the first and the last of each folder, and some more: all machines have to see them.
    pub shared_paths: Vec<String>,
    /// Files that programs find by name, which come with the job: no machine but this one has to see them.
    pub shipped_files: Vec<ShippedFile>,
}

/// A file on its way to workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShippedFile {
    /// What a program calls it, by which a [`Worker`] is told where it is.
    pub name: String,
    /// Where it is on this machine.
    pub path: PathBuf,
    /// What messages call it.
    pub shown: String,
    /// Its size.
    pub bytes: u64,
    /// When it was last written to, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Whether it may be run.
    pub is_executable: bool,
}

impl ShippedFile {
    /// What a program finds by name; what is elsewhere is fetched.
    ///
    /// # Errors
    /// As [`ProgramFiles::files`](tidemill_source::program_files::ProgramFiles::files).
    pub fn collect_from_program(
        program: Option<&FilterProgram>,
        cancel: &CancelFlag,
    ) -> Result<Vec<ShippedFile>> {
        let Some(files) = program.and_then(FilterProgram::files) else { return Ok(Vec::new()) };
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

/// A task on its way to a worker.
#[derive(Debug, Clone)]
pub struct SubmittedTask {
    /// Its place among the job's tasks.
    pub number: usize,
    /// How often it was handed in before.
    pub attempt: usize,
    /// What is expected of its cost: its bytes as stored.
    pub cost_bytes: u64,
    /// What it is called where people see it: `flights 3 of 40`.
    pub display_name: String,
    /// What a [`Worker`] takes.
    pub encoded_task: Vec<u8>,
}

/// What became of a task.
#[derive(Debug)]
pub struct TaskOutcome {
    /// Its place among the job's tasks.
    pub number: usize,
    /// Which of its attempts.
    pub attempt: usize,
    /// Whose it was: its machine and process, for people.
    pub worker_name: Option<String>,
    /// What a [`Worker`] gave; or, in words, why the worker is gone, and the task with it.
    pub result: Result<Vec<u8>, String>,
}
