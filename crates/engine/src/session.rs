//! The DataFusion session of a query: our functions, our tables, our memory limit.

use std::path::Path;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::executor::block_on;

use crate::arithmetic::CheckedArithmetic;
use crate::coercion::{self, CommonTypes, SqlTypes};
use crate::distinct::{self, DistinctCounts};
use crate::error::Result;
use crate::estimates::Precisions;
use crate::floats::OneOrder;
use crate::scan::{BATCH_ROWS, ScanMode};
use crate::{functions, sums, times};

/// How many consumers a message about exhausted memory names.
const CONSUMERS_NAMED: std::num::NonZeroUsize = std::num::NonZeroUsize::MIN.saturating_add(4);

/// DataFusion's sort reserves 10 MB for the merge of what it spilled.
const FINISH_BYTES_MIN: usize = 16 << 20;

fn runtime(budget_bytes: usize, spill_folder: &Path) -> Result<Arc<RuntimeEnv>> {
    let pool = TrackConsumersPool::new(FairSpillPool::new(budget_bytes), CONSUMERS_NAMED);
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![spill_folder.to_path_buf()]));
    Ok(RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(disk)
        .build_arc()?)
}

/// A session without tables.
///
/// # Errors
/// As DataFusion's runtime.
pub fn open(budget_bytes: usize, threads: usize, spill_folder: &Path) -> Result<SessionContext> {
    open_with(budget_bytes, threads, spill_folder, false)
}

/// The same; `counts_as_before` plans distinct counts beside other aggregates as earlier releases did,
/// for their partial tables.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    budget_bytes: usize,
    threads: usize,
    spill_folder: &Path,
    counts_as_before: bool,
) -> Result<SessionContext> {
    let precisions = Arc::new(Precisions::default());
    let config = SessionConfig::new()
        .with_target_partitions(threads)
        .with_batch_size(BATCH_ROWS)
        .with_information_schema(false)
        .with_extension(Arc::new(ScanMode::Pooled(threads)))
        .with_extension(Arc::clone(&precisions));
    let rules = Optimizer::new().rules.into_iter().map(|rule| match rule.name() {
        distinct::REPLACED if !counts_as_before => Arc::new(DistinctCounts::default()) as _,
        _ => rule,
    });
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime(budget_bytes, spill_folder)?)
        .with_default_features()
        .with_type_planner(Arc::new(SqlTypes))
        .with_analyzer_rules(analyzer_rules())
        .with_optimizer_rules(rules.collect())
        .build();
    let context = SessionContext::new_with_state(state);
    for function in functions::all(&precisions) {
        context.register_udaf(function);
    }
    sums::all().for_each(|function| context.register_udaf(function));
    coercion::functions().for_each(|function| context.register_udf(function));
    context.register_udf(times::date_trunc());
    context.register_udf(times::date_bin());
    Ok(context)
}

/// DataFusion's rules, with ours before and after: the first settles types where its own choice loses
/// values, the last two need all types settled: what is cast to a float by then is compared as one.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules = Analyzer::new().rules;
    rules.insert(0, Arc::new(CommonTypes));
    rules.push(Arc::new(OneOrder));
    rules.push(Arc::new(CheckedArithmetic));
    rules
}

/// The same session for what is asked of a finished table, and for what is held in memory
/// beside the stream: one thread, so that rows keep their order and sums of floats come out
/// alike at each run.
///
/// # Errors
/// As DataFusion's runtime.
pub fn in_order(
    state: &SessionState,
    budget_bytes: usize,
    spill_folder: &Path,
) -> Result<SessionState> {
    let runtime = runtime(budget_bytes.max(FINISH_BYTES_MIN), spill_folder)?;
    let mut state =
        SessionStateBuilder::new_from_existing(state.clone()).with_runtime_env(runtime).build();
    state.config_mut().set_extension(Arc::new(ScanMode::Pooled(1)));
    let options = state.config_mut().options_mut();
    options.execution.target_partitions = 1;
    options.optimizer.enable_round_robin_repartition = false;
    Ok(state)
}

/// The same session, scanning its tables a partition per split on the asking thread.
pub fn per_split(state: &SessionState) -> SessionState {
    let mut state = state.clone();
    let config = state.config_mut();
    config.set_extension(Arc::new(ScanMode::PerSplit));
    // Partitions are splits here: none may be added, joined or dealt anew.
    let options = config.options_mut();
    options.execution.target_partitions = 1;
    options.optimizer.enable_round_robin_repartition = false;
    options.optimizer.repartition_file_scans = false;
    // What is joined to the splits stands on the left of its join already, and a filter made
    // of it would have each split wait for all others.
    options.optimizer.join_reordering = false;
    options.optimizer.enable_join_dynamic_filter_pushdown = false;
    state
}

/// The same session for joins of which no side may fit in memory: by sorting, which spills.
pub fn joining_by_sorting(state: &SessionState, budget_bytes: usize) -> SessionState {
    let mut state = state.clone();
    let options = state.config_mut().options_mut();
    options.optimizer.prefer_hash_join = false;
    // With one partition DataFusion holds a side whatever is preferred.
    options.execution.target_partitions = options.execution.target_partitions.max(2);
    // Both sides are sorted by every thread, and each sort keeps so much back for its merge:
    // an eighth of the budget for all of them.
    let sorts = 2 * options.execution.target_partitions.max(1);
    let kept = &mut options.execution.sort_spill_reservation_bytes;
    *kept = (*kept).min(budget_bytes / 8 / sorts);
    state
}

/// The physical plan of an optimised logical one.
///
/// # Errors
/// As DataFusion's planner.
pub fn physical(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(block_on(state.query_planner().create_physical_plan(plan, state))?)
}
