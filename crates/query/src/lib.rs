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
