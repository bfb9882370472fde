//! The job log: what ran, what it cost, and what a change saved.
//!
//! - `error`: what can go wrong?
//! - `record`: what is kept of a run, and how is it a line?
//! - `log`: how do lines get into the log and back out, newest first?
//! - `recorder`: what did a run cost?
//! - `period`: which time is meant by `7d`?
//! - `report`: what does the log say: list, show, top, compare?

mod error;
mod log;
mod period;
mod record;
mod recorder;
mod report;

pub use error::{Error, Result};
pub use log::{Backwards, Damage, JobLog, Keep, LIMIT_BYTES, LOG_VARIABLE};
pub use period::Period;
pub use record::{Outcome, Record, Step};
pub use recorder::{About, Ending, Recorder};
pub use report::{Comparison, Figure, Filter, Group, Listing, Shown, Summary, Top, TopEntry};
pub use report::{compare, list, show, top};
