//! Types that every run of Tidemill shares, independent of its formats, computation and output.
//!
//! - `error`: the error type, its variants grouped by who can fix the problem. `arrow_errors`: Arrow's error
//!   messages in SQL terms. `panics`: panics of workers as errors of the run.
//! - `settings`: the settings of a run. `cancellation`: the flag that stops a run. `progress`: counters of
//!   the work done.
//! - `cores`: core tokens that the runs of one machine share by priority.
//! - `coverage`: the account of the input on which a result rests. `unknown_keys`, `type_mismatches`: its
//!   counts of left-out keys and of values that became NULL; `placed_counts`: counts with a first occurrence.
//! - `memory_budget`: the memory budget and the notation of sizes. `memory_account`: the byte counter of all
//!   live tables of a run, which makes the fullest table spill. `memory_watch`: the peak of the process's
//!   memory during a run. `batch_compaction`: copies of batches without the buffers that no row uses.
//! - `durability`: folders and names that survive a power cut.
//! - `state_folder`: the folder of Tidemill's own files, and run identifiers.
//! - `redaction`: removal of credentials from text that is shown or kept.
//! - `large_stack`: threads for deep recursion.
//! - `suggestions`: the nearest valid name to a misspelt one.
//! - `column_types`: column types in SQL terms. `calendar`: dates of day numbers. `hex`: hexadecimal digits.

pub mod arrow_errors;
pub mod batch_compaction;
pub mod calendar;
pub mod cancellation;
pub mod column_types;
pub mod cores;
pub mod coverage;
pub mod durability;
pub mod error;
pub mod hex;
pub mod large_stack;
pub mod memory_account;
pub mod memory_budget;
pub mod memory_watch;
pub mod panics;
mod placed_counts;
pub mod progress;
pub mod redaction;
pub mod settings;
pub mod state_folder;
pub mod suggestions;
pub mod type_mismatches;
pub mod unknown_keys;

pub use cancellation::CancelFlag;
pub use cores::{ComputeTurn, CoreSharing, RunPriority};
pub use coverage::Coverage;
pub use error::{BadRecord, BoxedHostError, Error, ErrorClass, Result};
pub use memory_account::MemoryAccount;
pub use progress::RunProgress;
pub use settings::{BadRecordLimit, RunSettings};
pub use state_folder::{RunId, RunStateFolder, StateFolder};
