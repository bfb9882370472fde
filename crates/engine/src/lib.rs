//! Tidemill's engine as programs see it: a job definition with a source, a map, mergeable tables and a
//! sink, run on one machine by every core.
//!
//! ```text
//!  Query ── plan ──┬─ map per split ── tables ── merge ── finish ──┐
//!                  ├─ map per split, in input order ───────────────┼─► Results ── Sink
//!                  └─ DataFusion, as it is ────────────────────────┘
//! ```
//!
//! [`query::QueryPlan`] is the entry point: it plans, explains and runs SQL over files. Its result is an
//! iterator of Arrow record batches with a [`Coverage`].

pub mod convert;
mod copy_query;
pub mod explanation;
mod uniform_result_schema;
pub mod hashing {
    //! Hashes of values in sketches. SQL and programs that add the same value get the same hash.
    pub use tidemill_tables::is_hashable;
    pub use tidemill_tables::value_encoding::{hash_decimal_text, hash_nanoseconds, hash_values};
}
mod cluster_task_executor;
#[cfg(test)]
mod function_reference;
pub mod id_set_operations;
pub mod job;
pub mod master_lifecycle;
pub mod posted_query;
pub mod program_files;
pub mod ray_workers;
mod resource_limits;
mod result_cache;
pub mod rowfile_reader;
pub mod run_handle;
pub mod tracing_output;

pub use tidemill_base::{
    cancellation, column_types, coverage, error, hex, memory_budget, progress, redaction, settings,
    state_folder, suggestions,
};
pub use tidemill_jobs as jobs;
pub use tidemill_query as query;
pub use tidemill_remote as remote;
pub use tidemill_sink::{self as sink, commit::coverage_file};
pub use tidemill_sketch as sketch;
pub use tidemill_source::{self as source, formats, programs::filter_program};

pub use cluster_task_executor::ClusterTaskExecutor;
pub use convert::{Conversion, ConversionReport, ConversionWorkers};
pub use copy_query::CopyQuery;
pub use job::Job;
pub use query::{
    ClusterForecast, ClusterSpec, InterimResult, InterimResultObserver, NamedSource,
    PartialTableMerge, PlanExplanation, Query, QueryPlan, RepeatedRunPolicy, Results,
    TurboSettings,
};
pub use result_cache::ResultCache;
pub use tidemill_base::cores::RunPriority;
pub use tidemill_base::{
    BadRecord, CancelFlag, Coverage, Error, ErrorClass, Result, RunId, RunProgress, RunSettings,
    RunStateFolder, StateFolder,
};
