//! How a run is carried out: the same for the command line, a job file and Python.

use std::path::PathBuf;
use std::str::FromStr;

use crate::cancellation::CancelFlag;
use crate::cores::CoreSharing;
use crate::error::{Error, Result};
use crate::memory_account::MemoryAccount;
use crate::progress::RunProgress;

/// How many malformed records a run may skip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BadRecordLimit {
    /// So many. Default: 0.
    Count(u64),
    /// So many of a hundred records, judged at the end of the run.
    Percent(f64),
    /// As many as there are, for a look: they are shown beside a result that is incomplete without them.
    Unlimited,
}

impl Default for BadRecordLimit {
    fn default() -> Self {
        BadRecordLimit::Count(0)
    }
}

impl std::fmt::Display for BadRecordLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadRecordLimit::Count(count) => write!(f, "{count}"),
            BadRecordLimit::Percent(percent) => write!(f, "{percent}%"),
            BadRecordLimit::Unlimited => f.write_str("any"),
        }
    }
}

impl FromStr for BadRecordLimit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = match text.trim().strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse()
                .ok()
                .filter(|percent| (0.0..=100.0).contains(percent))
                .map(BadRecordLimit::Percent),
            None => text.trim().parse().ok().map(BadRecordLimit::Count),
        };
        parsed.ok_or_else(|| {
            Error::usage(format!(
                "`{text}` is not a number of malformed records: write a count (`100`) or a share \
                 (`1%`)"
            ))
        })
    }
}

/// How a query is run: the same for the command line, a job file and Python.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// The whole run's memory in bytes, tables and sorts included. Beyond it they spill.
    pub memory_bytes: u64,
    /// Threads that read and map. Default: the machine's cores.
    pub threads: usize,
    /// The run's turns among others on this machine. Default: none, it computes whenever it can.
    pub cores: Option<CoreSharing>,
    /// How many malformed records are skipped before the run fails. Default: none.
    pub max_bad: BadRecordLimit,
    /// Where copies of malformed records go; none are kept where absent.
    pub rejected_folder: Option<PathBuf>,
    /// The folders that tables and sorts spill to, in turn. Default: the system's temporary folder. Minimum: one.
    pub spill_dirs: Vec<PathBuf>,
    /// Stops the run.
    pub cancel: CancelFlag,
    /// Ends reading, if an answer may rest on a part of the input: what was read is enough.
    pub stop_reading: CancelFlag,
    /// What a display reads.
    pub progress: RunProgress,
}

impl RunSettings {
    /// The defaults with a memory budget, in bytes.
    pub fn new(memory_bytes: u64) -> Self {
        RunSettings {
            memory_bytes,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            cores: None,
            max_bad: BadRecordLimit::default(),
            rejected_folder: None,
            spill_dirs: vec![std::env::temp_dir()],
            cancel: CancelFlag::new(),
            stop_reading: CancelFlag::new(),
            progress: RunProgress::new(),
        }
    }

    /// A share of the budget, in bytes.
    pub fn memory_share_bytes(&self, numerator: u64, denominator: u64) -> usize {
        let bytes = u128::from(self.memory_bytes) * u128::from(numerator) / u128::from(denominator);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Returns a memory account for all tables of a run, limited to five eighths of the budget. The rest is for
    /// readers, for copies made by spills and merges, and for the plan that finishes the tables.
    pub fn new_table_account(&self) -> MemoryAccount {
        MemoryAccount::new(self.memory_share_bytes(5, 8))
    }
}
