//! The job log: runs with their cost and result, and reports about them.
//!
//! - `error`: the error type
//! - `run_record`: the record of a run and its line in the log
//! - `job_log`: appending lines to the log, and reading them newest first
//! - `run_recorder`: measuring the cost of a run
//! - `time_period`: parsing periods such as `7d`
//! - `run_reports`: the reports list, show, top and compare

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
