//! The settings of a run, the same for the command line, a job file and Python.

use std::path::PathBuf;
use std::str::FromStr;

use crate::cancellation::CancelFlag;
use crate::cores::CoreSharing;
use crate::error::{Error, Result};
use crate::memory_account::MemoryAccount;
use crate::progress::RunProgress;

/// The maximum number of malformed records that a run may skip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BadRecordLimit {
    /// A number of records. Default: 0.
    Count(u64),
    /// A percentage of all records, checked at the end of the run.
    Percent(f64),
    /// No limit, for a first look: the records are shown beside a result that is incomplete without them.
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

/// The settings of a query's run, the same for the command line, a job file and Python.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// Memory budget of the whole run in bytes, including tables and sorts, which spill beyond it.
    pub memory_bytes: u64,
    /// Number of threads that read and map. Default: the machine's cores.
    pub threads: usize,
    /// The run's share in the cores of this machine. Default: none; the run computes whenever it can.
    pub cores: Option<CoreSharing>,
    /// Maximum number of malformed records before the run fails. Default: 0.
    pub max_bad: BadRecordLimit,
    /// The folder for copies of malformed records; `None` keeps no copies.
    pub rejected_folder: Option<PathBuf>,
    /// The folders that tables and sorts spill to, in turn. Default: the system's temporary folder. Minimum:
    /// one.
    pub spill_dirs: Vec<PathBuf>,
    /// The flag that cancels the run.
    pub cancel: CancelFlag,
    /// The flag that ends reading early and keeps the input read so far, if the answer may rest on a part of
    /// it.
    pub stop_reading: CancelFlag,
    /// The counters that a display reads.
    pub progress: RunProgress,
}

impl RunSettings {
    /// Returns the default settings with a memory budget, in bytes.
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

    /// Returns a share of the memory budget, in bytes.
    pub fn memory_share_bytes(&self, numerator: u64, denominator: u64) -> usize {
        let bytes = u128::from(self.memory_bytes) * u128::from(numerator) / u128::from(denominator);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Creates a memory account for all tables of a run, limited to five eighths of the budget. The rest is
    /// for readers, for copies made by spills and merges, and for the finish plan.
    pub fn new_table_account(&self) -> MemoryAccount {
        MemoryAccount::new(self.memory_share_bytes(5, 8))
    }
}
