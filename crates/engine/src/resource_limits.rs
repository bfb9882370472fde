//! The resource limits of a run, as the user writes them.

use std::path::PathBuf;

use tidemill_query::ScratchSpec;

/// The `[run]` section, as text that is parsed in the same place as the flags of the same names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceLimits {
    /// The memory budget (see [`memory_budget::parse_size`](tidemill_base::memory_budget::parse_size)).
    pub memory: Option<String>,
    /// Maximum number of malformed records that the run skips: `N` or `P%`.
    pub max_bad: Option<String>,
    /// Worker threads, at least 1.
    pub threads: Option<usize>,
    /// Priority among the runs on the machine: `high`, `normal` or `low`.
    pub priority: Option<String>,
    /// Folders for spill files. Empty if the section does not name any.
    pub spill_dirs: Vec<PathBuf>,
    /// On a cluster: number of workers that may end while they execute the same splits, before the run fails.
    pub split_attempts_max: Option<usize>,
    /// On a cluster: scratch storage for chunks that are too large to be sent between workers.
    pub scratch: ScratchSpec,
}
