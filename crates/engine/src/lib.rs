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

mod amplify;
mod approximate;
mod arithmetic;
mod beside;
pub mod cancel;
mod casts;
mod coercion;
mod compact;
pub mod convert;
pub mod coverage;
pub mod coverage_file;
mod digits;
mod distinct;
pub mod error;
mod estimates;
mod filtered;
mod filters;
mod fit;
mod floats;
pub mod formats;
mod frames;
pub mod functions;
mod grouping_sets;
pub mod home;
mod in_place;
pub mod job;
pub mod jobs;
mod large_limits;
pub mod memory;
mod names;
mod null_safe;
mod panics;
pub mod partial;
pub mod plan;
mod pool;
mod portions;
pub mod program;
pub mod progress;
mod projections;
mod prune;
pub mod query;
#[cfg(test)]
mod reference;
pub mod remote;
mod replaced;
mod rewrite;
pub mod rowfiles;
mod rows;
pub mod running;
mod running_totals;
pub mod scan;
mod session;
mod sides;
pub mod sink;
mod sliding;
mod sorted_unions;
pub mod source;
mod spans;
mod spills;
mod subqueries;
pub mod suggest;
mod sums;
mod syntax;
pub mod table;
mod tables;
mod times;
pub mod types;
mod unknown_functions;
mod whole_partitions;
mod wide_sums;
mod windows;

pub use cancel::Cancel;
pub use convert::{Conversion, Converted};
pub use coverage::Coverage;
pub use error::{BadRecord, Error, Kind, Result};
pub use home::{Home, RunDir, RunId};
pub use job::Job;
pub use progress::Progress;
pub use query::{Explain, Merge, NamedSource, Plan, Query, Repeats, Results, Settings};
