//! The job log: what ran, what it cost, and what a change saved.
//!
//! - `error`: what can go wrong?
//! - `record`: what is kept of a run, and how is it a line?
//! - `log`: how do lines get into the log and back out, newest first?
//! - `recorder`: what did a run cost?
//! - `period`: which time is meant by `7d`?
//! - `report`: what does the log say: list, show, top, compare?

mod error;
mod job_log;
mod run_record;
mod run_recorder;
mod run_reports;
mod time_period;

pub use error::{Error, Result};
pub use job_log::{
    DamagedRecords, JOB_LOG_ENV_VAR, JobLog, LOG_BYTES_MAX_DEFAULT, LogRetention, ReverseLogReader,
};
pub use run_record::{RunOutcome, RunRecord, RunStep};
pub use run_recorder::{RunDescription, RunEnding, RunRecorder};
pub use run_reports::{
    ComparedFigure, ListedRun, RunComparison, RunFilter, RunGroup, RunListing, RunSummary,
    TopCpuEntry, TopCpuReport,
};
pub use run_reports::{compare_runs, list_runs, show_run, top_cpu_consumers};
pub use time_period::TimePeriod;
