//! Tidemill's engine: a job definition with a source, a map, mergeable tables and a sink,
//! run on one machine by every core.
//!
//! ```text
//!  Query ── plan ──┬─ map per split ── tables ── merge ── finish ──┐   (tables, table)
//!                  ├─ map per split, in input order ───────────────┼─► Results ── Sink
//!                  └─ DataFusion, as it is ────────────────────────┘
//! ```
//!
//! [`query::Plan`] is the way in: SQL over files, planned, explained and run. What comes out
//! is an iterator of Arrow record batches with a [`Coverage`].

pub mod cancel;
mod casts;
pub mod convert;
pub mod coverage;
pub mod error;
mod fit;
pub mod formats;
pub mod functions;
pub mod home;
pub mod job;
pub mod jobs;
pub mod memory;
mod names;
mod panics;
pub mod partial;
pub mod plan;
pub mod program;
pub mod progress;
mod prune;
pub mod query;
#[cfg(test)]
mod reference;
pub mod remote;
pub mod rowfiles;
mod rows;
pub mod running;
pub mod scan;
mod session;
mod sides;
pub mod sink;
pub mod source;
pub mod suggest;
mod syntax;
pub mod table;
mod tables;
pub mod types;

pub use cancel::Cancel;
pub use convert::{Conversion, Converted};
pub use coverage::Coverage;
pub use error::{BadRecord, Error, Kind, Result};
pub use home::{Home, RunDir, RunId};
pub use job::Job;
pub use progress::Progress;
pub use query::{Explain, Merge, NamedSource, Plan, Query, Results, Settings};
