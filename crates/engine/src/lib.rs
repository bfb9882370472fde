//! Tidemill's engine: a job definition with a source, a map, mergeable tables and a sink,
//! run on one machine by every core.

pub mod cancel;
pub mod error;
pub mod home;
pub mod job;
pub mod progress;
pub mod sink;
pub mod source;
pub mod suggest;

pub use cancel::Cancel;
pub use error::{BadRecord, Error, Kind, Result};
pub use home::{Home, RunDir, RunId};
pub use progress::Progress;
