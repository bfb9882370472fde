//! Plans, explains and runs SQL over sources.
//!
//! - `query_definition`: the SQL of a query with its sources and settings. `metadata_statements`: statements
//!   that answer `DESCRIBE`, `SUMMARIZE` and `EXPLAIN`.
//! - `plan`: planning and running a query. `explanation`: the description of a plan. `explain_analyze`: the
//!   plan with the measurements of a run.
//! - `execution_path`: the choice between the table path, the row path and the engine path. `build_sides`:
//!   join inputs held in memory beside the source that is read in splits. `dictionary_keys`: text group keys
//!   read as dictionary codes.
//! - `scan`, `row_sampling`: a source as a DataFusion table, and samples of its rows. `pruning`: files, row
//!   groups, blocks and fields that need no reading. `source_statistics`: row counts and value ranges for the
//!   join planner.
//! - `map`: the per-record steps of each split. `table_runner`, `ordered_rows`: the runners of the table path
//!   and of the row path. `background_execution`: DataFusion plans on threads of their own.
//! - `finished_table`, `buffered_answers`: the finished aggregate table as input of the plan above the
//!   aggregation. `stand_in_tables`: tables that replace a part of a plan. `row_calculation`: projections
//!   above a limit.
//! - `results`, `result_columns`: the result with its coverage, and its column names.
//! - `partial_table_merge`: the merge of partial tables into one result.
//! - `tasks`: execution by workers on other machines. `turbo`: answers from a part of the input.
//!   `cluster`: the forecast of a run's time on a cluster.
//! - `unresolved_tables`: table names that are neither sources nor files.
//! - `sql_redaction`: SQL without secrets. `completion_words`: keywords and function names for completion.

mod cluster;
mod execution;
mod plan;
mod planning;
pub mod statements;
mod tasks;
#[cfg(test)]
mod tests;
mod turbo;

pub use cluster::{
    Bottleneck, ClusterForecast, ClusterSpec, PhaseSeconds, QueryMeasurement, ReadScope,
    ScenarioForecast,
};
pub use execution::partial_table_merge::{PartialTableMerge, RepeatedRunPolicy};
pub use execution::result_columns::conform_batch_to_schema;
pub use execution::results::Results;
pub use plan::QueryPlan;
pub use planning::unresolved_tables::UnresolvedTable;
pub use statements::explanation::{PlanExplanation, SourceExplanation};
pub use statements::query_definition::{NamedSource, Query};
pub use tasks::{
    DistributedOutput, EncodedTask, ScratchSpec, SerializedError, ShippedFile, SubmittedJob,
    SubmittedTask, TaskExecutor, TaskOutcome, TaskSource, TaskStats, TaskTime, UnorderedScheduler,
    WorkerCounts, WorkerPool,
};
pub use tidemill_dialect::parameters::QueryParameter;
pub use tidemill_dialect::statement::schema_from_sql;
pub use turbo::partial_coverage::late_seconds;
pub use turbo::sampled_execution::{InterimResult, InterimResultObserver};
pub use turbo::{OPTION_NAMES as TURBO_OPTIONS, TurboSettings};
