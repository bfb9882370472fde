//! SQL over sources: planned, explained, run.
//!
//! - `question`: what is asked? `about`: and what about a query, but its rows? `plan`: how is it run? `explain`
//!   says it.
//! - `route`, `build_sides`: which way does a query go, and which sources are held beside the one that is read in
//!   splits?
//! - `scan`, `sampled`, `prune`, `known`: how does a source look to DataFusion, what need not be read, and what is known of it
//!   before?
//! - `tables`, `rows`: who reads which split, and in which order is it taken? `background`, `finished`: how are
//!   plans of DataFusion's run, and what do they read of a finished table?
//! - `stand_ins`: which tables take the place of a part of a plan? `row_calculation`: what is evaluated above a limit?
//! - `results`, `columns`: what comes out, and what is it called?
//! - `merge`: how do partial tables become one answer?
//! - `turbo`: what does a part of the input tell of all of it? `cluster`: and what would all of it take on many machines?
//! - `unknown`: which tables has nobody said anything of?
//! - `secrets`: SQL as it may be kept. `words`: which words does it know?

mod background_execution;
mod buffered_answers;
mod build_sides;
mod cluster;
pub mod completion_words;
mod dictionary_keys;
mod execution_path;
mod explain_analyze;
mod explanation;
mod finished_table;
mod map;
mod metadata_statements;
mod ordered_rows;
mod partial_table_merge;
mod plan;
mod pruning;
mod query_definition;
mod result_columns;
mod results;
mod row_calculation;
mod row_sampling;
mod scan;
mod source_statistics;
mod sql_redaction;
mod stand_in_tables;
mod table_runner;
mod tasks;
#[cfg(test)]
mod tests;
mod turbo;
mod unresolved_tables;

pub use cluster::{
    Bottleneck, ClusterForecast, ClusterSpec, PhaseSeconds, QueryMeasurement, ReadScope,
    ScenarioForecast,
};
pub use explanation::{PlanExplanation, SourceExplanation};
pub use partial_table_merge::{PartialTableMerge, RepeatedRunPolicy};
pub use plan::QueryPlan;
pub use query_definition::{NamedSource, Query};
pub use result_columns::conform_batch_to_schema;
pub use results::Results;
pub use tasks::{
    DistributedOutput, EncodedTask, ScratchSpec, SerializedError, ShippedFile, SubmittedJob,
    SubmittedTask, TaskExecutor, TaskOutcome, TaskSource, TaskStats, TaskTime, UnorderedScheduler,
    WorkerCounts, WorkerPool,
};
pub use tidemill_sql::parameters::QueryParameter;
pub use tidemill_sql::statement::schema_from_sql;
pub use turbo::partial_coverage::late_seconds;
pub use turbo::sampled_execution::{InterimResult, InterimResultObserver};
pub use turbo::{OPTION_NAMES as TURBO_OPTIONS, TurboSettings};
pub use unresolved_tables::UnresolvedTable;
