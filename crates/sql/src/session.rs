//! DataFusion sessions with Tidemill's rules, functions and memory limit.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder, SessionStateDefaults};
use datafusion::logical_expr::{LogicalPlan, ScalarUDF};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::executor::block_on;
use parking_lot::Mutex;
use tidemill_base::RunSettings;
use tidemill_base::error::Result;

use crate::arithmetic::{CheckedArithmeticRule, DivisionPlanner};
use crate::asof_joins::{self, AsofJoinRule};
use crate::bytea::BinaryListPlanner;
use crate::coercion::{CommonTypeRule, TimeOperandPlanner};
use crate::computed_keys::ComputedKeyRule;
use crate::empty_field_names::EmptyFieldNamePlanner;
use crate::filter_pushdown::FilterPushdownRule;
use crate::float_order::FloatOrderRule;
use crate::grouping_sets::{GroupingSetBarrierRule, GroupingSetColumnRule};
use crate::interval_multiplication::IntervalMultiplicationPlanner;
use crate::join_memory::JoinMemoryRule;
use crate::json_casts::json_cast_udf;
use crate::large_limits::LargeLimitRule;
use crate::limit_barriers::LimitBarrierRule;
use crate::literal_arithmetic::LiteralArithmeticPlanner;
use crate::local_times::LocalTimeRule;
use crate::nested_order::NestedOrderRule;
use crate::null_safe_joins::JoinKeyRule;
use crate::null_subquery_conditions::NullSubqueryConditionsRule;
use crate::numeric_conditions::NumericConditionPlanner;
use crate::opaque_casts::OpaqueCastRule;
use crate::projection_pushdown::ProjectionPushdownRule;
use crate::scan_statistics::JoinStatisticsRule;
use crate::short_circuit_evaluation::{CasePreservationRule, ShortCircuitPlanner};
use crate::similar_to::SimilarToRule;
use crate::sorted_unions::SortedUnionSanityRule;
use crate::subquery_sorts::SubquerySortRemovalRule;
use crate::text_subscripts::TextSubscriptPlanner;
use crate::unnest_keys::{UnnestKeysRule, UnnestSubqueryPlanner};
use crate::{
    date_functions, in_lists, instant_functions, percentiles, replacement_functions,
    timezone_function,
};
use tidemill_dialect::error_translation::IntoTidemillError;
use tidemill_dialect::translation::SERIES_FUNCTIONS;
use tidemill_dialect::type_planners::SqlTypePlanner;
use tidemill_operators::batch_positions::StableSort;
use tidemill_operators::expression_memory::ExpressionMemoryRule;
use tidemill_operators::fan_out_sorts::{FanOutSortRule, SortRunSettings};
use tidemill_operators::ordered_unions::OrderedUnionRule;
use tidemill_operators::spills::SpillSpace;
use tidemill_operators::windows::filter_clauses::WindowFilterRule;
use tidemill_operators::windows::hash_partitioned::HashPartitionedWindowsRule;
pub use tidemill_operators::windows::hash_partitioned::RunningAggregateFn;
use tidemill_operators::windows::running_totals::RunningTotalsRule;
use tidemill_operators::windows::whole_partitions::WholePartitionsRule;
use tidemill_operators::windows::{CopyTextBelowWindowsRule, SignedRankPlanner};
use tidemill_operators::{amplifying_functions, expression_memory, memory_pool};
use tidemill_planning::datafusion_names::{self, optimizer_rules, physical_rules, scalars};

/// Maximum number of rows of a batch.
pub const BATCH_ROWS: usize = 8192;

/// The way in which tables of a session are scanned; an extension of its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanMode {
    /// One partition for each split.
    PerSplit,
    /// A number of partitions that share the splits.
    Pooled(usize),
}

/// Makes ties of a session's one sort keep the order of the source. Batches reach the sort as they are read.
pub fn configure_stable_sort(context: &SessionContext, stable: StableSort) {
    let state = context.state_ref();
    let mut state = state.write();
    let config = state.config_mut();
    config.set_extension(Arc::new(stable));
    config.options_mut().optimizer.enable_round_robin_repartition = false;
}

/// Minimum memory of the plan above a finished table, in bytes.
const FINISH_PLAN_BYTES_MIN: usize = 16 << 20;

/// Minimum memory in bytes for each partition of a sort. With less, runs are too short and merges too narrow, so that
/// fewer threads sort more rows each.
const SORT_PARTITION_BYTES_MIN: usize = 32 << 20;

/// Physical rules that sessions leave out. They move conditions below joins by bare column names,
/// and so to the wrong one of two columns with the same name (DataFusion's issue 25296, fixed after 55.2). The rule for
/// logical plans has moved these conditions already, and no source of Tidemill accepts more of them.
const REMOVED_PHYSICAL_RULES: [&str; 2] =
    [physical_rules::FILTER_PUSHDOWN, physical_rules::FILTER_PUSHDOWN_POST];

/// Builds the runtime of a plan: memory pool and spill storage.
fn build_runtime(budget_bytes: usize, settings: &RunSettings) -> Result<Arc<RuntimeEnv>> {
    let space = SpillSpace::new(&settings.spill_dirs, &settings.progress);
    let disk = DiskManagerBuilder::default()
        .with_temp_file_factory(Arc::new(space))
        .with_max_temp_directory_size(u64::MAX);
    RuntimeEnvBuilder::new()
        .with_memory_pool(memory_pool::new_memory_pool(
            budget_bytes,
            settings.memory_bytes,
            &settings.progress,
        ))
        .with_disk_manager_builder(disk)
        .build_arc()
        .into_tidemill_error()
}

/// Fits partitions, batch sizes and reservations to the memory of all operators.
fn fit_config_to_memory(
    config: SessionConfig,
    budget_bytes: usize,
    threads: usize,
) -> Result<SessionConfig> {
    let partitions = (budget_bytes / SORT_PARTITION_BYTES_MIN).clamp(1, threads.max(1));
    let each = budget_bytes / partitions;
    // A merge reads four batches of each run: with little memory, small batches keep it wide.
    let batch_rows = match each >> 20 {
        0..64 => BATCH_ROWS / 8,
        64..256 => BATCH_ROWS / 2,
        _ => BATCH_ROWS,
    };
    let mut config = config.with_target_partitions(partitions).with_batch_size(batch_rows);
    let options = config.options_mut();
    // Nulls come last in both directions, so that a top list begins with values, as in DuckDB and ClickHouse.
    options.sql_parser.default_null_ordering = "nulls_last".to_owned();
    // `SubquerySortRemovalRule` removes the sorts that do not affect the result.
    options.sql_parser.enable_subquery_sort_elimination = false;
    // A sort in place counts its text once for each batch of the result.
    options.execution.sort_in_place_threshold_bytes = match each >> 20 {
        0..256 => 0,
        _ => 1 << 20,
    };
    options.execution.sort_spill_reservation_bytes = (each / 32).min(10 << 20);
    // A source has a partition for each thread, however little memory each has. One sort then reads them all;
    // a sort for each partition would have runs too short to merge.
    options.optimizer.repartition_sorts = partitions >= threads;
    // One spill for each batch that waits in a channel. With several batches per spill, two threads that
    // spill at once can leave a reader waiting for one spill while its batch is in the other, forever:
    // DataFusion's issue 24883, fixed after 55.2.
    options.execution.max_spill_file_size_bytes =
        ConfigNonZeroUsize::try_new(1).into_tidemill_error()?;
    // Above a join the rule loses the columns that it created from struct fields: "unknown column".
    options.optimizer.enable_leaf_expression_pushdown = false;
    // `IS TRUE` and similar conditions are not nullable in the logical plan, but may be in the physical one:
    // DataFusion then refuses to group by such a column above a join.
    options.execution.skip_physical_aggregate_schema_check = true;
    Ok(config)
}

/// A rule for logical plans.
pub type LogicalRule = Arc<dyn OptimizerRule + Send + Sync>;

/// A rule for physical plans.
type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Rules and functions that a crate with more aggregates adds to a session.
#[derive(Default)]
pub struct SessionExtensions<'a> {
    /// Rules that replace the DataFusion rules of the given names.
    pub replacement_rules: &'a [(&'a str, LogicalRule)],
    /// A rule that rewrites windows before the rules that prepare them for execution.
    pub window_rule: Option<LogicalRule>,
    /// Computes running aggregates in one loop.
    pub running_aggregate: Option<RunningAggregateFn>,
}

/// Opens a session without tables, for plans that may use `budget_bytes` of memory.
///
/// # Errors
/// The errors of DataFusion's runtime; [`Error::Internal`](tidemill_base::error::Error::Internal) if DataFusion lacks a
/// [recognised name](tidemill_planning::datafusion_names).
pub fn open_session(
    budget_bytes: usize,
    settings: &RunSettings,
    SessionExtensions {
        replacement_rules: others,
        window_rule: of_windows,
        running_aggregate: running_totals,
    }: SessionExtensions<'_>,
) -> Result<SessionContext> {
    datafusion_names::check_names()?;
    let config = SessionConfig::new()
        .with_information_schema(false)
        .with_extension(Arc::new(ScanMode::Pooled(settings.threads)))
        .with_extension(Arc::new(SortRunSettings(settings.clone())));
    let config = fit_config_to_memory(config, budget_bytes, settings.threads)?;
    let limits = LargeLimitRule { heap_bytes_max: budget_bytes / 16 };
    let portions = ExpressionMemoryRule {
        expression_bytes_max: settings.memory_bytes / expression_memory::EXPRESSION_MEMORY_DIVISOR,
    };
    let rules = Optimizer::new().rules.into_iter().map(|rule| {
        let other = others.iter().find(|(name, _)| *name == rule.name());
        match (rule.name(), other) {
            (_, Some((_, other))) => Arc::clone(other),
            (
                optimizer_rules::EXTRACT_EQUIJOIN_PREDICATE | optimizer_rules::ELIMINATE_CROSS_JOIN,
                _,
            ) => Arc::new(JoinKeyRule { datafusion_rule: rule }) as _,
            (optimizer_rules::PUSH_DOWN_FILTER, _) => {
                Arc::new(FilterPushdownRule { datafusion_rule: rule }) as _
            }
            _ => rule,
        }
    });
    let checked = PhysicalOptimizer::new().rules.into_iter();
    let checked = checked.filter(|rule| !REMOVED_PHYSICAL_RULES.contains(&rule.name()));
    let first: [PhysicalRule; 2] = [Arc::new(GroupingSetBarrierRule), Arc::new(JoinStatisticsRule)];
    let joins: PhysicalRule = Arc::new(JoinMemoryRule { build_bytes_max: budget_bytes / 2 });
    let checked = first.into_iter().chain(checked).flat_map(|rule| match rule.name() {
        physical_rules::SANITY_CHECK_PLAN => vec![Arc::new(SortedUnionSanityRule) as _],
        physical_rules::PROJECTION_PUSHDOWN => {
            vec![Arc::new(ProjectionPushdownRule { datafusion_rule: rule }) as _]
        }
        physical_rules::ENSURE_REQUIREMENTS => {
            vec![Arc::new(LimitBarrierRule { datafusion_rule: rule }) as _]
        }
        // Run after DataFusion has chosen the build side of each join.
        physical_rules::JOIN_SELECTION => vec![rule, Arc::clone(&joins)],
        _ => vec![rule],
    });
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(build_runtime(budget_bytes, settings)?)
        .with_expr_planners(vec![
            Arc::new(LiteralArithmeticPlanner),
            Arc::new(TimeOperandPlanner),
            Arc::new(DivisionPlanner),
            Arc::new(IntervalMultiplicationPlanner),
            Arc::new(TextSubscriptPlanner),
            Arc::new(EmptyFieldNamePlanner),
            Arc::new(BinaryListPlanner),
            Arc::new(SignedRankPlanner),
            Arc::new(NumericConditionPlanner),
        ])
        .with_relation_planners(vec![Arc::new(UnnestSubqueryPlanner)])
        .with_default_features()
        .with_scalar_functions(scalar_functions(settings.memory_bytes))
        .with_type_planner(Arc::new(SqlTypePlanner))
        .with_query_planner(Arc::new(ShortCircuitPlanner))
        .with_analyzer_rules(analyzer_rules())
        .with_optimizer_rules(rules.chain(of_windows).collect())
        .with_optimizer_rule(Arc::new(ComputedKeyRule))
        .with_optimizer_rule(Arc::new(CopyTextBelowWindowsRule))
        .with_physical_optimizer_rules(checked.collect())
        .with_physical_optimizer_rule(Arc::new(OrderedUnionRule))
        .with_physical_optimizer_rule(Arc::new(HashPartitionedWindowsRule {
            expression_bytes_max: portions.expression_bytes_max,
            running_aggregate: running_totals,
        }))
        .with_physical_optimizer_rule(Arc::new(WholePartitionsRule))
        .with_physical_optimizer_rule(Arc::new(RunningTotalsRule))
        .with_physical_optimizer_rule(Arc::new(limits))
        .with_physical_optimizer_rule(Arc::new(portions))
        .with_physical_optimizer_rule(Arc::new(FanOutSortRule))
        .build();
    let context = SessionContext::new_with_state(state);
    for (own, theirs) in SERIES_FUNCTIONS {
        // `state()` would copy the whole session.
        let state = context.state_ref();
        let maker = state.read().table_functions().get(theirs).map(|of| Arc::clone(of.function()));
        maker.into_iter().for_each(|maker| context.register_udtf(own, maker));
    }
    context.register_udaf(percentiles::exact_percentile_cont_udaf());
    for function in tidemill_functions::higher_order_functions() {
        context.register_higher_order_function(Arc::new(function));
    }
    Ok(context)
}

/// Returns the scalar functions of a session with `memory_bytes` in registration order: a later function takes over a
/// name from an earlier one. The list of the last session is cached, because it has hundreds of functions.
fn scalar_functions(memory_bytes: u64) -> Vec<Arc<ScalarUDF>> {
    static LAST: Mutex<Option<(u64, Vec<Arc<ScalarUDF>>)>> = Mutex::new(None);
    let mut last = LAST.lock();
    match last.as_ref() {
        Some((bytes, functions)) if *bytes == memory_bytes => functions.clone(),
        _ => {
            let functions = build_scalar_functions(memory_bytes);
            *last = Some((memory_bytes, functions.clone()));
            functions
        }
    }
}

/// Builds the list that [`scalar_functions`] returns.
fn build_scalar_functions(memory_bytes: u64) -> Vec<Arc<ScalarUDF>> {
    let mut all = ScalarFunctionList::default();
    SessionStateDefaults::default_scalar_functions().into_iter().for_each(|theirs| all.add(theirs));
    all.extend([asof_joins::asof_marker_udf(), timezone_function::timezone_udf()]);
    all.extend(json_cast_udf());
    all.extend(replacement_functions::replacement_functions());
    all.extend(tidemill_functions::scalar_functions());
    for name in TO_TIMESTAMP_FUNCTIONS.iter().chain([&scalars::TO_DATE]).copied() {
        let theirs = all.by_name.get(name).map(tidemill_functions::with_postgres_patterns);
        all.extend(theirs);
    }
    let lengths = tidemill_functions::with_signed_length_functions(all.by_name.values());
    all.extend(lengths);
    let costly = tidemill_functions::deduplicate_functions(all.by_name.values());
    all.extend(costly);
    let by_name = all.by_name.clone();
    all.extend(amplifying_functions::limit_amplifying_functions(by_name.values(), memory_bytes));
    all.extend([
        date_functions::date_trunc_udf(),
        date_functions::date_bin_udf(),
        date_functions::date_part_udf().as_ref().clone(),
    ]);
    all.extend([instant_functions::now_udf()]);
    all.extend(
        TO_TIMESTAMP_FUNCTIONS
            .into_iter()
            .filter_map(|name| by_name.get(name))
            .map(instant_functions::to_timestamp_udf),
    );
    all.functions
}

/// Scalar functions in registration order, indexed by name and alias.
#[derive(Default)]
struct ScalarFunctionList {
    functions: Vec<Arc<ScalarUDF>>,
    by_name: HashMap<String, Arc<ScalarUDF>>,
}

impl ScalarFunctionList {
    fn add(&mut self, function: Arc<ScalarUDF>) {
        for alias in function.aliases() {
            self.by_name.insert(alias.clone(), Arc::clone(&function));
        }
        self.by_name.insert(function.name().to_owned(), Arc::clone(&function));
        self.functions.push(function);
    }

    fn extend(&mut self, functions: impl IntoIterator<Item = ScalarUDF>) {
        functions.into_iter().for_each(|function| self.add(Arc::new(function)));
    }
}

/// DataFusion's functions that convert numbers, and texts in chrono formats, to timestamps.
const TO_TIMESTAMP_FUNCTIONS: [&str; 5] = [
    scalars::TO_TIMESTAMP,
    scalars::TO_TIMESTAMP_SECONDS,
    scalars::TO_TIMESTAMP_MILLIS,
    scalars::TO_TIMESTAMP_MICROS,
    scalars::TO_TIMESTAMP_NANOS,
];

/// Returns DataFusion's analyzer rules, with additional rules before and after. The first ones settle types where
/// DataFusion's choice loses values. The others need settled types: a value cast to a float by then is compared as one.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules = Analyzer::new().rules;
    rules.insert(0, Arc::new(SubquerySortRemovalRule));
    rules.insert(1, Arc::new(AsofJoinRule));
    rules.insert(2, Arc::new(UnnestKeysRule));
    rules.insert(3, Arc::new(GroupingSetColumnRule));
    rules.insert(4, Arc::new(SimilarToRule));
    rules.insert(5, Arc::new(CommonTypeRule));
    rules.push(Arc::new(NullSubqueryConditionsRule));
    rules.push(Arc::new(in_lists::ConstantListRule));
    rules.push(Arc::new(OpaqueCastRule));
    rules.push(Arc::new(LocalTimeRule));
    rules.push(Arc::new(CheckedArithmeticRule));
    rules.push(Arc::new(FloatOrderRule));
    rules.push(Arc::new(NestedOrderRule));
    rules.push(Arc::new(CasePreservationRule));
    rules.push(Arc::new(WindowFilterRule));
    rules
}

/// Returns a session state whose plans keep their sources even if none of their rows can count. A
/// condition that is never true stays in its place: DataFusion would push it below an aggregate that
/// returns a row for empty input.
pub fn with_sources_kept(state: &SessionState) -> SessionState {
    const EMPTYING: [&str; 3] = [
        optimizer_rules::ELIMINATE_FILTER,
        optimizer_rules::PROPAGATE_EMPTY_RELATION,
        optimizer_rules::PUSH_DOWN_FILTER,
    ];
    let rules = state.optimizers().iter().filter(|rule| !EMPTYING.contains(&rule.name())).cloned();
    SessionStateBuilder::new_from_existing(state.clone())
        .with_optimizer_rules(rules.collect())
        .build()
}

/// Returns a session state for queries of a finished table, and for data held in memory
/// beside the stream. It uses one thread, so that rows keep their order and sums of floats are
/// the same in each run.
///
/// # Errors
/// The errors of DataFusion's runtime.
pub fn single_threaded_state(
    state: &SessionState,
    budget_bytes: usize,
    settings: &RunSettings,
) -> Result<SessionState> {
    let budget_bytes = budget_bytes.max(FINISH_PLAN_BYTES_MIN);
    let runtime = build_runtime(budget_bytes, settings)?;
    let mut state =
        SessionStateBuilder::new_from_existing(state.clone()).with_runtime_env(runtime).build();
    let config = std::mem::take(state.config_mut());
    *state.config_mut() = fit_config_to_memory(config, budget_bytes, 1)?;
    state.config_mut().set_extension(Arc::new(ScanMode::Pooled(1)));
    let options = state.config_mut().options_mut();
    options.optimizer.enable_round_robin_repartition = false;
    Ok(state)
}

/// Returns a session state that scans its tables with one partition per split, on the calling thread.
pub fn split_scan_state(state: &SessionState) -> SessionState {
    let mut state = state.clone();
    let config = state.config_mut();
    // These plans contain no sort.
    *config = std::mem::take(config).with_batch_size(BATCH_ROWS);
    config.set_extension(Arc::new(ScanMode::PerSplit));
    // Partitions are splits here: none may be added, joined or repartitioned.
    let options = config.options_mut();
    options.execution.target_partitions = 1;
    options.optimizer.enable_round_robin_repartition = false;
    options.optimizer.repartition_file_scans = false;
    // The build side of a join with the splits stands on the left already, and a dynamic filter made
    // of it would make each split wait for all others.
    options.optimizer.join_reordering = false;
    options.optimizer.enable_join_dynamic_filter_pushdown = false;
    state
}

/// Returns a session state for joins of large sources: joins sort sides that do not fit in memory, and spill them.
/// With `all_sorted`, all joins sort.
pub fn large_join_state(state: &SessionState, all_sorted: bool) -> SessionState {
    let mut state = state.clone();
    let options = state.config_mut().options_mut();
    options.optimizer.prefer_hash_join = !all_sorted;
    // With one partition DataFusion uses a hash join in spite of the preference.
    options.execution.target_partitions = options.execution.target_partitions.max(2);
    state
}

/// Creates the physical plan of an optimized logical plan.
///
/// # Errors
/// The errors of DataFusion's planner.
pub fn create_physical_plan(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    block_on(state.query_planner().create_physical_plan(plan, state)).into_tidemill_error()
}

#[cfg(test)]
mod tests {
    use arrow::util::display::{ArrayFormatter, FormatOptions};
    use datafusion::logical_expr::{ScalarUDF, Volatility};

    use super::*;

    fn answer(context: &SessionContext, call: &str) -> Result<String> {
        let statement = tidemill_dialect::statement::parse_select(&format!("SELECT {call}"))?;
        let plan = crate::statement_planning::statement_to_plan(&context.state(), statement)
            .into_tidemill_error()?;
        let frame = block_on(context.execute_logical_plan(plan)).into_tidemill_error()?;
        let batches = block_on(frame.collect()).into_tidemill_error()?;
        let options = FormatOptions::new().with_null("NULL");
        let shown =
            ArrayFormatter::try_new(batches[0].column(0), &options).into_tidemill_error()?;
        Ok(shown.value(0).to_string())
    }

    fn context() -> SessionContext {
        open_session(64 << 20, &RunSettings::new(64 << 20), SessionExtensions::default()).unwrap()
    }

    #[test]
    fn random_functions_are_all_listed() {
        let state = context().state();
        let functions = state.scalar_functions().values();
        let is_volatile =
            |function: &&Arc<ScalarUDF>| function.signature().volatility == Volatility::Volatile;
        let mut names: Vec<&str> = functions.filter(is_volatile).map(|it| it.name()).collect();
        names.sort_unstable();
        names.dedup();
        // Volatile to DataFusion, but constant for a row.
        let others = ["error", "file_row_index", "input_file_name"];
        let mut expected =
            [&tidemill_planning::datafusion_names::RANDOM_FUNCTIONS[..], &others].concat();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn documented_examples_match_query_results() {
        let context = context();
        let said = regex::Regex::new(r"`([a-z0-9_]+\([^`]*\))` is `([^`]*)`").unwrap();
        let mut wrong = Vec::new();
        let mut count = 0;
        for function in tidemill_functions::scalar_functions() {
            let Some(told) = function.documentation() else { continue };
            for example in said.captures_iter(&told.description) {
                let found = answer(&context, &example[1]).unwrap_or_else(|error| error.to_string());
                if found != example[2] {
                    wrong.push(format!("{} is {found}, and not {}", &example[1], &example[2]));
                }
                count += 1;
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(count > 50, "{count} examples");
    }

    /// Tests formats that one function shares with another, and arguments that are columns.
    #[test]
    fn time_functions_format_and_parse_in_queries() {
        let context = context();
        let mut wrong = Vec::new();
        for (call, expected) in [
            ("to_timestamp('05 Jan 2026', 'DD Mon YYYY')", "2026-01-05T00:00:00"),
            ("to_timestamp('05/01/2026', '%d/%m/%Y')", "2026-01-05T00:00:00"),
            ("to_date('05.01.2026', 'DD.MM.YYYY')", "2026-01-05"),
            ("to_date('05.01.2026', '%d.%m.%Y')", "2026-01-05"),
            ("to_timestamp_micros('2026-01-05', 'YYYY-MM-DD')", "2026-01-05T00:00:00"),
            ("to_timestamp(1.5)", "1970-01-01T00:00:01.500Z"),
            (
                "to_timestamp(x) FROM (VALUES (CAST(1.5 AS DECIMAL(3, 1)))) AS t (x)",
                "1970-01-01T00:00:01.500Z",
            ),
            ("to_timestamp_millis(x) FROM (VALUES (1500)) AS t (x)", "1970-01-01T00:00:01.500Z"),
            (
                "to_timestamp(x, '%d.%m.%Y %H:%M%z') FROM (VALUES ('05.01.2026 08:05+0100')) AS t (x)",
                "2026-01-05T07:05:00Z",
            ),
            (
                "typeof(to_timestamp(x, '%s')) FROM (VALUES ('1')) AS t (x)",
                "TIMESTAMP WITH TIME ZONE",
            ),
            // A computed format may contain any code.
            (
                "strptime(x, '%Y ' || '%z') FROM (VALUES ('2026 +0100')) AS t (x)",
                "2025-12-31T23:00:00",
            ),
            ("to_char(TIMESTAMP '2026-01-05 08:05:09', '%H:%M')", "08:05"),
            ("strftime(x, '%d') FROM (VALUES ('2026-01-05'), (NULL)) AS t (x)", "05"),
            ("strftime('%d' || '.', x) FROM (VALUES ('2026-01-05'), (NULL)) AS t (x)", "05."),
            (
                "strptime(x, ['%d.%m.%Y', '%Y-%m-%d']) FROM (VALUES ('2026-01-05')) AS t (x)",
                "2026-01-05T00:00:00",
            ),
            (
                "strptime(x, '%d.%m.%Y %z') < now() FROM (VALUES ('05.01.2020 +0100')) AS t (x)",
                "true",
            ),
            (
                "date_diff(day, x, DATE '2026-02-01') FROM (VALUES (DATE '2026-01-05')) AS t (x)",
                "27",
            ),
            ("date_sub('month', x, now()) > 5 FROM (VALUES (DATE '2020-01-05')) AS t (x)", "true"),
            (
                "time_bucket('5 minutes', x) FROM (VALUES (TIMESTAMP '2026-01-05 08:09:10')) AS t (x)",
                "2026-01-05T08:05:00",
            ),
            (
                "time_bucket(INTERVAL '1 day', TIMESTAMP '2026-01-05 23:30:00' AT TIME ZONE 'Europe/Berlin')",
                "2026-01-05T00:00:00+01:00",
            ),
            ("from_unixtime(x, 'yyyy') FROM (VALUES (1767600309)) AS t (x)", "2026"),
            (
                "from_unixtime(x, 'Europe/Berlin') FROM (VALUES (1767600309)) AS t (x)",
                "2026-01-05T09:05:09+01:00",
            ),
            ("epoch_ms(x) FROM (VALUES (TIMESTAMP '1970-01-01 00:00:01')) AS t (x)", "1000"),
            (
                "epoch(b - a) FROM (VALUES (TIMESTAMP '2026-01-05 00:00:00', TIMESTAMP '2026-01-06 00:00:00')) AS t (a, b)",
                "86400.0",
            ),
            (
                "typeof(b - a) FROM (VALUES (DATE '2026-01-05', DATE '2026-01-06')) AS t (a, b)",
                "BIGINT",
            ),
            ("CASE WHEN x > 1 THEN error('too many') ELSE x END FROM (VALUES (1)) AS t (x)", "1"),
            (
                "CASE WHEN x > 0 THEN error('too many') ELSE x END FROM (VALUES (1)) AS t (x)",
                "too many",
            ),
            ("epoch(1)", "there is no `epoch(BIGINT)`\nhint: it is called as epoch(x)"),
            (
                "strftime(TIMESTAMP '2026-01-05 08:05:09', '%Q')",
                "the format `%Q` has `%Q` at character 1, which is no code\nhint: codes are %Y %m %d %H %M %S %f %y %b %B %a %A %j %p %I %z %Z and others of C; %% is a percent sign",
            ),
            (
                "strptime(x, '%Y') FROM (VALUES ('soon')) AS t (x)",
                "`soon` does not fit the format `%Y`: a year is expected at character 1, where `soon` stands\nhint: try_strptime(text, format) is NULL for what is none of the format",
            ),
            ("hash(x, NULL) = hash(1, NULL) FROM (VALUES (1)) AS t (x)", "true"),
            ("sum(hash(x)) > 0 FROM (VALUES ('a'), (NULL)) AS t (x)", "true"),
            ("width_bucket(x, 0, 1, 4) FROM (VALUES (0.3)) AS t (x)", "2"),
            ("to_char(x, '990.99') FROM (VALUES (1.5)) AS t (x)", "   1.50"),
        ] {
            let found = answer(&context, call).unwrap_or_else(|error| error.to_string());
            if found != expected {
                wrong.push(format!("{call}\nis {found}, and not {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
