//! What every run of Tidemill shares, whatever it reads, computes or writes.
//!
//! - `error`: what can go wrong, told apart by who can mend it; `arrow_words`: what Arrow says, in SQL's
//!   words; `panics`: a panic of a worker is an error of the run.
//! - `settings`: how is a run carried out? `cancel`: should it stop? `progress`: how far is it?
//! - `cores`: which of the runs on this machine computes?
//! - `coverage`: what does a result rest on?
//! - `memory`: the memory budget, and the notation of sizes. `memory_account`: the byte counter of all live tables of
//!   a run, which makes the fullest table spill. `memory_watch`: the peak of the process's memory during a run. `compact`: columns that keep no more memory alive than they show.
//! - `durable`: folders and names that survive a power cut.
//! - `home`: where does a run keep its own files, and what is it called?
//! - `redact`: what of a text must not be shown or kept?
//! - `stack`: how deep may a thread call?
//! - `suggest`: what was meant by a name that there is not?
//! - `types`: column types in SQL's words; `calendar`: which date is a number of days?

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
pub use cores::{ComputeTurn, CoreSharing, Priority};
pub use coverage::Coverage;
pub use error::{BadRecord, BoxedHostError, Error, ErrorClass, Result};
pub use memory_account::MemoryAccount;
pub use progress::RunProgress;
pub use settings::{BadRecordLimit, RunSettings};
pub use state_folder::{RunId, RunStateFolder, StateFolder};
