//! Tidemill's engine: a job definition with a source, a map, mergeable tables and a sink,
//! run on one machine by every core.

pub mod cancel;
pub mod coverage;
pub mod error;
pub mod functions;
pub mod job;
pub mod plan;
pub mod progress;
pub mod sink;
pub mod source;
pub mod suggest;
pub mod table;

pub use cancel::Cancel;
pub use coverage::Coverage;
pub use error::{BadRecord, Error, Kind, Result};
pub use progress::Progress;
