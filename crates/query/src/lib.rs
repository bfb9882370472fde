//! Plans, explains and runs SQL over sources.
//!
//! - `plan`: `QueryPlan`, which plans and runs a query.
//! - `statements`: query definitions, explanations, `DESCRIBE`, `SUMMARIZE`, `EXPLAIN ANALYZE`, words for
//!   completion, and SQL without secrets.
//! - `planning`: the choice between the table path, the row path and the engine path; build sides, dictionary
//!   keys, pruning, row samples and source statistics.
//! - `execution`: a source as a DataFusion table, the per-record steps of each split, the runners of the table
//!   path and of the row path, and the result with its coverage.
//! - `tasks`: execution by workers on other machines. `turbo`: answers from a part of the input.
//!   `cluster`: the forecast of a run's time on a cluster.

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
