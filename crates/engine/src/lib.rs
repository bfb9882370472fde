//! Tidemill's engine as programs see it: a job definition with a source, a map, mergeable tables and a
//! sink, run on one machine by every core.
//!
//! ```text
//!  Query ── plan ──┬─ map per split ── tables ── merge ── finish ──┐
//!                  ├─ map per split, in input order ───────────────┼─► Results ── Sink
//!                  └─ DataFusion, as it is ────────────────────────┘
//! ```
//!
//! [`query::Plan`] is the way in: SQL over files, planned, explained and run. What comes out
//! is an iterator of Arrow record batches with a [`Coverage`].

mod answer_columns;
pub mod convert;
mod copy;
pub mod explanation;
pub mod hashing {
    //! What a value's hash is in a sketch, whether SQL or a program adds it.
    pub use tidemill_tables::is_hashable;
    pub use tidemill_tables::value_encoding::{hash_decimal_text, hash_nanoseconds, hash_values};
}
pub mod ids;
pub mod job;
mod kept;
mod limits;
pub mod on;
pub mod posted;
pub mod program_files;
#[cfg(test)]
mod reference;
pub mod rowfiles;
pub mod running;
pub mod spans;
pub mod standing;
mod worker;

pub use tidemill_base::{
    cancellation, column_types, coverage, error, hex, memory_budget, progress, redaction, settings,
    state_folder, suggestions,
};
pub use tidemill_jobs as jobs;
pub use tidemill_query as query;
pub use tidemill_remote as remote;
pub use tidemill_sink::{self as sink, coverage_file};
pub use tidemill_sketch as sketch;
pub use tidemill_source::{self as source, filter_program, formats};

pub use convert::{Conversion, Converted, Elsewhere};
pub use copy::CopyQuery;
pub use job::Job;
pub use kept::Kept;
pub use query::{
    ClusterForecast, ClusterSpec, InterimResult, InterimResultObserver, NamedSource,
    PartialTableMerge, PlanExplanation, Query, QueryPlan, RepeatedRunPolicy, Results,
    TurboSettings,
};
pub use tidemill_base::cores::Priority;
pub use tidemill_base::{
    BadRecord, CancelFlag, Coverage, Error, ErrorClass, Result, RunId, RunProgress, RunSettings,
    RunStateFolder, StateFolder,
};
pub use worker::Worker;
