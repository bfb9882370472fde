//! What a run may take, as people write it.

use std::path::PathBuf;

use tidemill_query::ScratchSpec;

/// The `[run]` section, as text that is read where the flags of the same names are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceLimits {
    /// The memory budget (see [`memory::parse_size`](tidemill_base::memory::parse_size)).
    pub memory: Option<String>,
    /// How many malformed records are let pass: `N` or `P%`.
    pub max_bad: Option<String>,
    /// Worker threads, at least 1.
    pub threads: Option<usize>,
    /// Which runs on the machine go first: `high`, `normal` or `low`.
    pub priority: Option<String>,
    /// Folders that take what does not fit memory; none where that is not said.
    pub spill_dirs: Vec<PathBuf>,
    /// On a cluster: splits that so many workers ended over fail the run.
    pub split_attempts_max: Option<usize>,
    /// On a cluster: how what is too large to be sent goes between workers.
    pub scratch: ScratchSpec,
}
