//! Tests that DataFusion has every name of `tidemill_planning::datafusion_names`, and that the rules of `sql` and
//! `operators` act on the operators that they recognize.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::datasource::MemTable;
use datafusion::error::Result as PlanResult;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, UnboundedMemoryPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, Literal, TryCastExpr,
};
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr,
};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use parking_lot::Mutex;
use regex::Regex;
use tidemill_planning::plan_sql;

use crate::grouping_sets::GroupingSetBarrierRule;
use crate::join_memory::JoinMemoryRule;
use crate::large_limits::LargeLimitRule;
use crate::limit_barriers::LimitBarrierRule;
use crate::projection_pushdown::ProjectionPushdownRule;
use crate::scan_statistics::{JoinStatisticsRule, ScanWithStatistics};
use crate::sorted_unions::SortedUnionSanityRule;
use datafusion::DATAFUSION_VERSION;
use std::collections::HashSet;
use tidemill_operators::expression_memory::ExpressionMemoryRule;
use tidemill_operators::fan_out_sorts::FanOutSortRule;
use tidemill_operators::memory_pool::{MemoryConsumerKind, operator_description};
use tidemill_operators::ordered_unions::OrderedUnionRule;
use tidemill_operators::windows::running_totals::RunningTotalsRule;
use tidemill_operators::windows::whole_partitions::WholePartitionsRule;
use tidemill_planning::datafusion_names::*;

/// A pool that grants every request, and records the name of each consumer and whether it can spill.
#[derive(Debug, Default)]
struct ConsumerRegistry {
    pool: UnboundedMemoryPool,
    registered_consumers: Mutex<BTreeSet<(String, bool)>>,
}

impl fmt::Display for ConsumerRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a registry of consumers")
    }
}

impl MemoryPool for ConsumerRegistry {
    fn name(&self) -> &str {
        "registry"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        // Drop the partition number in brackets.
        let name = consumer.name().split('[').next().unwrap_or_default().to_owned();
        self.registered_consumers.lock().insert((name, consumer.can_spill()));
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> PlanResult<()> {
        self.pool.try_grow(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Infinite
    }
}

/// A change of DataFusion's default configuration for a test.
type ConfigChange = fn(&mut ConfigOptions);

fn set_one_partition(options: &mut ConfigOptions) {
    options.execution.target_partitions = 1;
}

fn set_two_partitions(options: &mut ConfigOptions) {
    options.execution.target_partitions = 2;
}

fn set_sort_merge_joins(options: &mut ConfigOptions) {
    options.execution.target_partitions = 2;
    options.optimizer.prefer_hash_join = false;
}

/// Opens a session of bare DataFusion with the table `t`: 40 rows of a number `n` and a text `s`, in two partitions.
fn bare_session(configure: ConfigChange, registry: &Arc<ConsumerRegistry>) -> SessionContext {
    let mut config = SessionConfig::new();
    configure(config.options_mut());
    let pool: Arc<dyn MemoryPool> = Arc::clone(registry) as _;
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
    let context = SessionContext::new_with_config_rt(config, runtime);
    let batch = |numbers: std::ops::Range<i64>| {
        let texts = StringArray::from_iter_values(numbers.clone().map(|n| format!("text {n}")));
        let numbers = Int64Array::from_iter_values(numbers);
        RecordBatch::try_from_iter([
            ("n", Arc::new(numbers) as ArrayRef),
            ("s", Arc::new(texts) as ArrayRef),
        ])
        .unwrap()
    };
    let partitions = vec![vec![batch(0..10), batch(10..20)], vec![batch(20..40)]];
    let table = MemTable::try_new(partitions[0][0].schema(), partitions).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    context
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// Returns bare DataFusion's physical plan of a query.
fn bare_plan(configure: ConfigChange, sql: &str) -> Arc<dyn ExecutionPlan> {
    let context = bare_session(configure, &Arc::default());
    runtime().block_on(async {
        let rows = plan_sql(&context, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.create_physical_plan().await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    })
}

/// Returns bare DataFusion's physical plan of a query, before any physical rule.
fn unoptimized_plan(configure: ConfigChange, sql: &str) -> Arc<dyn ExecutionPlan> {
    let context = bare_session(configure, &Arc::default());
    let state = SessionStateBuilder::new_from_existing(context.state())
        .with_physical_optimizer_rules(Vec::new())
        .build();
    let context = SessionContext::new_with_state(state);
    runtime()
        .block_on(async { plan_sql(&context, sql).unwrap().create_physical_plan().await.unwrap() })
}

#[test]
fn datafusion_has_every_name() {
    assert_eq!(missing_names(&required_names()), Vec::<String>::new());
    check_names().unwrap();
}

#[test]
fn missing_name_is_reported_with_its_kind() {
    let mut required = required_names();
    for names in &mut required {
        names.names = vec![names.names[0], "renamed"];
    }
    let expected = required.iter().map(|names| format!("{} `renamed`", names.kind));
    assert_eq!(missing_names(&required), expected.collect::<Vec<_>>());
    let message =
        refuse_missing_names(&["table function `renamed`".into(), "physical rule `x`".into()]);
    let message = message.unwrap_err().to_string();
    let begin = format!(
        "DataFusion {DATAFUSION_VERSION} has no table function `renamed`, physical rule `x`; "
    );
    assert!(message.contains(&begin), "{message}");
}

#[test]
fn duplicate_column_error_contains_recognized_text() {
    let context = bare_session(set_two_partitions, &Arc::default());
    for sql in ["SELECT n, CAST(n AS TEXT) FROM t", "SELECT sum(n), sum(CAST(n AS DOUBLE)) FROM t"]
    {
        let refusal = plan_sql(&context, sql).unwrap_err().to_string();
        assert!(refusal.contains(DUPLICATE_NAMES_MESSAGE), "{sql}: {refusal}");
    }
}

/// For each query, checks its memory consumers: their registered names, their kinds to the pool, and their names in
/// messages.
#[test]
fn memory_consumers_register_recognized_names() {
    use MemoryConsumerKind::{
        ChannelBuffer, GroupTable, PartitionMerge, Sort, SpilledRunMerge, Unspillable,
    };
    const JOIN: &str = "a join that holds one of its sides";
    const MERGE: &str = "the merge of a sort";
    const AGGREGATION: &str = "an aggregation that keeps its values";
    const LIMIT: &str = "`ORDER BY … LIMIT`";
    const REPARTITION: (&str, MemoryConsumerKind, &str) =
        ("RepartitionExec", ChannelBuffer, "a step of");
    type Expected<'a> = &'a [(&'a str, MemoryConsumerKind, &'a str)];
    let cases: [(&str, ConfigChange, Expected<'_>); 12] = [
        (
            "SELECT n FROM t ORDER BY n",
            set_two_partitions,
            &[
                ("ExternalSorter", Sort, MERGE),
                ("ExternalSorterMerge", SpilledRunMerge, MERGE),
                ("SortPreservingMergeExec", PartitionMerge, MERGE),
            ],
        ),
        (
            "SELECT n FROM t ORDER BY n LIMIT 3",
            set_two_partitions,
            &[("TopK", Unspillable, LIMIT), ("SortPreservingMergeExec", PartitionMerge, MERGE)],
        ),
        (
            "SELECT n, count(*) FROM t GROUP BY n",
            set_two_partitions,
            &[
                ("PartialHashAggregateStream", GroupTable, AGGREGATION),
                REPARTITION,
                ("FinalHashAggregateStream", GroupTable, AGGREGATION),
            ],
        ),
        (
            "SELECT sum(n) FROM t",
            set_two_partitions,
            &[("AggregateStream", Unspillable, AGGREGATION)],
        ),
        (
            "SELECT a.s FROM t a JOIN t b ON a.n = b.n",
            set_two_partitions,
            &[("HashJoinInput", Unspillable, JOIN)],
        ),
        (
            "SELECT a.s FROM t a JOIN t b ON a.n = b.n",
            set_sort_merge_joins,
            &[
                ("ExternalSorter", Sort, MERGE),
                ("ExternalSorterMerge", SpilledRunMerge, MERGE),
                REPARTITION,
                ("SMJStream", Unspillable, "a join of rows of which very many are equal"),
            ],
        ),
        (
            "SELECT a.s, b.n FROM t a, t b",
            set_two_partitions,
            &[("CrossJoinExec", Unspillable, JOIN)],
        ),
        (
            "SELECT a.s, b.n FROM t a JOIN t b ON a.n < b.n",
            set_two_partitions,
            &[("NestedLoopJoinLoad", Unspillable, JOIN)],
        ),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) \
             SELECT * FROM r",
            set_one_partition,
            &[("RecursiveQuery", Unspillable, "a recursive query")],
        ),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT n + 1 FROM r WHERE n < 3) \
             SELECT * FROM r",
            set_one_partition,
            &[
                ("RecursiveQuery", Unspillable, "a recursive query"),
                ("RecursiveQueryHashTable", Unspillable, "a recursive query"),
            ],
        ),
        (
            "SELECT n, count(*) FROM t GROUP BY ROLLUP (n)",
            set_one_partition,
            &[
                ("FinalHashAggregateStream", GroupTable, AGGREGATION),
                ("GroupedHashAggregateStream", GroupTable, AGGREGATION),
            ],
        ),
        (
            "SELECT n, count(*) FROM (SELECT n FROM t ORDER BY n LIMIT 30) GROUP BY n",
            set_one_partition,
            &[
                ("TopK", Unspillable, LIMIT),
                ("SortPreservingMergeExec", PartitionMerge, MERGE),
                ("GroupedHashAggregateStream", Unspillable, AGGREGATION),
            ],
        ),
    ];
    let mut wrong = Vec::new();
    for (sql, configure, expected) in cases {
        let registry = Arc::<ConsumerRegistry>::default();
        let context = bare_session(configure, &registry);
        runtime().block_on(async {
            let plan = plan_sql(&context, sql).unwrap().create_physical_plan().await.unwrap();
            collect(plan, context.task_ctx()).await.unwrap();
        });
        let seen = registry.registered_consumers.lock().clone();
        let names: BTreeSet<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
        if names != expected.iter().map(|(name, ..)| *name).collect() {
            wrong.push(format!("{sql}\nregisters {seen:?}"));
            continue;
        }
        for (name, can_spill) in &seen {
            let (_, kind, said) = expected.iter().find(|(known, ..)| known == name).unwrap();
            let consumer = MemoryConsumer::new(format!("{name}[0]")).with_can_spill(*can_spill);
            let found = MemoryConsumerKind::from_consumer(&consumer);
            if found != *kind || !operator_description(name).0.starts_with(said) {
                wrong.push(format!(
                    "{sql}\n{name} is taken for {found:?}, {}",
                    operator_description(name).0
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns true if a plan has an operator that satisfies `is_it`.
fn has_step(
    plan: &Arc<dyn ExecutionPlan>,
    is_it: impl Fn(&Arc<dyn ExecutionPlan>) -> bool,
) -> bool {
    plan.exists(|step| Ok(is_it(step))).unwrap()
}

/// Returns the number of operators with a name in a plan.
fn count_steps(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let mut count = 0;
    plan.apply(|step| {
        count += usize::from(step.name() == name);
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    count
}

fn apply_rule(
    rule: &dyn PhysicalOptimizerRule,
    plan: Arc<dyn ExecutionPlan>,
    configure: ConfigChange,
) -> Arc<dyn ExecutionPlan> {
    let mut options = ConfigOptions::default();
    configure(&mut options);
    rule.optimize(plan, &options).unwrap()
}

/// A stream for plans that are never executed.
#[derive(Debug)]
struct UnreadStream(Arc<Schema>);

impl PartitionStream for UnreadStream {
    fn schema(&self) -> &Arc<Schema> {
        &self.0
    }

    fn execute(
        &self,
        _: Arc<datafusion::execution::TaskContext>,
    ) -> datafusion::execution::SendableRecordBatchStream {
        unreachable!("a plan that is not run")
    }
}

/// Replaces the leaves of a plan by [`ScanWithStatistics`] scans of 40 rows, in two partitions that share
/// their splits.
fn with_estimated_scans(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let plan = plan.transform_up(|step| {
        if !step.children().is_empty() {
            return Ok(Transformed::no(step));
        }
        let schema = step.schema();
        let partition: Arc<dyn PartitionStream> = Arc::new(UnreadStream(Arc::clone(&schema)));
        let partitions = vec![Arc::clone(&partition), partition];
        let scan =
            StreamingTableExec::try_new(Arc::clone(&schema), partitions, None, [], false, None)?;
        let known = move || {
            let mut known = Statistics::new_unknown(&schema);
            known.num_rows = Precision::Inexact(40);
            known
        };
        Ok(Transformed::yes(Arc::new(ScanWithStatistics::new(scan, Arc::new(known), true)) as _))
    });
    plan.data().unwrap()
}

/// Returns true if [`JoinStatisticsRule`] makes the scans of a plan report their number of rows.
fn reports_scan_rows_to_joins(plan: Arc<dyn ExecutionPlan>) -> bool {
    let plan = apply_rule(&JoinStatisticsRule, with_estimated_scans(plan), set_two_partitions);
    has_step(&plan, |step| {
        let known = StatisticsContext::new().compute(step.as_ref(), &StatisticsArgs::new());
        step.is::<ScanWithStatistics>() && known.unwrap().num_rows.get_value() == Some(&40)
    })
}

/// An operator that a rule of ours recognizes.
struct RecognizedOperator {
    name: &'static str,
    is_it: fn(&Arc<dyn ExecutionPlan>) -> bool,
    /// Returns a plan of bare DataFusion that has the operator.
    plan: fn() -> Arc<dyn ExecutionPlan>,
    /// Returns true if our rule acts on that plan.
    acts: fn(Arc<dyn ExecutionPlan>) -> bool,
}

macro_rules! recognised {
    ($($operator:ident: $plan:expr, $acts:expr;)*) => {
        &[$(RecognizedOperator {
            name: stringify!($operator),
            is_it: |step| step.is::<$operator>(),
            plan: || $plan,
            acts: $acts,
        }),*]
    };
}

const EXPRESSION_MEMORY_RULE: ExpressionMemoryRule =
    ExpressionMemoryRule { expression_bytes_max: 1 << 20 };

const OPERATORS: &[RecognizedOperator] = recognised! {
    SortExec: bare_plan(set_two_partitions, "SELECT sum(n) OVER (PARTITION BY s ORDER BY n) FROM t"),
    |plan| {
        count_steps(&apply_rule(&FanOutSortRule, plan, set_two_partitions), "FanOutSort") == 1
    };
    // A large limit is sorted as a whole, without a heap.
    SortExec: bare_plan(set_one_partition, "SELECT n FROM t ORDER BY n LIMIT 30"), |plan| {
        let plan = apply_rule(&LargeLimitRule { heap_bytes_max: 0 }, plan, set_one_partition);
        !has_step(&plan, |step| step.is::<SortExec>() && step.fetch().is_some())
    };
    SortPreservingMergeExec: bare_plan(set_two_partitions, "SELECT n FROM t ORDER BY n"), |plan| {
        count_steps(&apply_rule(&FanOutSortRule, plan, set_two_partitions), "FanOutSort") == 2
    };
    UnionExec: bare_plan(set_two_partitions, "SELECT n FROM t UNION ALL SELECT n FROM t"),
    |_| accepts_merge_of_sorted_branches();
    CoalescePartitionsExec: bare_plan(
        set_one_partition,
        "SELECT sum(n) FROM (SELECT n FROM t UNION ALL SELECT n FROM t)",
    ), |plan| {
        count_steps(&apply_rule(&OrderedUnionRule, plan, set_one_partition), "InOrder") == 1
    };
    GlobalLimitExec: unoptimized_plan(set_two_partitions, SORTED_LIMIT), keeps_sort_above_limit;
    LocalLimitExec: unoptimized_plan(set_two_partitions, SORTED_LIMIT), keeps_sort_above_limit;
    UnnestExec: unoptimized_plan(set_two_partitions, "SELECT unnest(make_array(n)) FROM t LIMIT 3"),
    |plan| {
        let rule = LimitBarrierRule { datafusion_rule: Arc::new(EnsureRequirements::new()) };
        let plan = apply_rule(&rule, with_estimated_scans(plan), set_two_partitions);
        let partitions = |step: &Arc<dyn ExecutionPlan>| step.output_partitioning().partition_count();
        has_step(&plan, |step| step.is::<ScanWithStatistics>() && partitions(step) == 1)
    };
    ProjectionExec: bare_plan(set_two_partitions, "SELECT upper(s) FROM t"), |plan| {
        count_steps(&apply_rule(&EXPRESSION_MEMORY_RULE, plan, set_two_partitions), "Charge") == 1
    };
    FilterExec: bare_plan(set_two_partitions, "SELECT n FROM t WHERE repeat(s, n) <> s"), |plan| {
        let plan = apply_rule(&EXPRESSION_MEMORY_RULE, plan, set_two_partitions);
        has_step(&plan, |step| step.is::<FilterExec>() && step.children()[0].name() == "Portions")
    };
    AggregateExec: bare_plan(set_one_partition, "SELECT max(repeat(s, n)) FROM t"), |plan| {
        let plan = apply_rule(&EXPRESSION_MEMORY_RULE, plan, set_one_partition);
        has_step(&plan, |step| step.is::<AggregateExec>() && step.children()[0].name() == "Portions")
    };
    AggregateExec: bare_plan(set_one_partition, "SELECT n, count(*) FROM t GROUP BY ROLLUP (n)"),
    |plan| {
        count_steps(&apply_rule(&GroupingSetBarrierRule, plan, set_one_partition), "Unknown") == 1
    };
    WindowAggExec: bare_plan(set_two_partitions, "SELECT count(*) OVER () FROM t"), |plan| {
        count_steps(&apply_rule(&WholePartitionsRule, plan, set_two_partitions), "WholePartitions") == 1
    };
    BoundedWindowAggExec: bare_plan(set_two_partitions, "SELECT sum(n) OVER (ORDER BY n) FROM t"),
    |plan| {
        count_steps(&apply_rule(&RunningTotalsRule, plan, set_two_partitions), "RunningTotals") == 1
    };
    HashJoinExec: bare_plan(set_two_partitions, "SELECT a.s FROM t a JOIN t b ON a.n = b.n"), |plan| {
        let plan = apply_rule(&JoinMemoryRule { build_bytes_max: 0 }, plan, set_two_partitions);
        has_step(&plan, |step| step.is::<SortMergeJoinExec>())
    };
    HashJoinExec: bare_plan(set_two_partitions, "SELECT a.s FROM t a JOIN t b ON a.n = b.n"),
    reports_scan_rows_to_joins;
    CrossJoinExec: bare_plan(set_two_partitions, "SELECT a.s, b.n FROM t a, t b"), reports_scan_rows_to_joins;
    NestedLoopJoinExec: bare_plan(set_two_partitions, "SELECT a.s, b.n FROM t a JOIN t b ON a.n < b.n"),
    reports_scan_rows_to_joins;
    // Projections stay above a join with a condition.
    SortMergeJoinExec: bare_plan(
        set_sort_merge_joins,
        "SELECT a.s FROM t a LEFT JOIN t b ON a.n = b.n AND a.n + b.n > 3",
    ), |plan| {
        let rule = ProjectionPushdownRule { datafusion_rule: Arc::new(ProjectionPushdown::new()) };
        Arc::ptr_eq(&plan, &apply_rule(&rule, Arc::clone(&plan), set_sort_merge_joins))
    };
};

/// A query with a sort above a limit that takes rows in source order.
const SORTED_LIMIT: &str = "SELECT n FROM (SELECT n FROM t LIMIT 3 OFFSET 1) ORDER BY n";

/// Returns true if [`LimitBarrierRule`] keeps the sort of a plan above its limit.
fn keeps_sort_above_limit(plan: Arc<dyn ExecutionPlan>) -> bool {
    let rule = LimitBarrierRule { datafusion_rule: Arc::new(EnsureRequirements::new()) };
    let plan = apply_rule(&rule, plan, set_two_partitions);
    let is_limit = |step: &Arc<dyn ExecutionPlan>| step.is::<GlobalLimitExec>();
    let is_sort = |step: &Arc<dyn ExecutionPlan>| step.is::<SortExec>();
    has_step(&plan, is_sort)
        && has_step(&plan, is_limit)
        && !has_step(&plan, |step| is_limit(step) && has_step(step, is_sort))
}

#[test]
fn partitions_below_a_limit_without_order_run_at_once() {
    let rule = LimitBarrierRule { datafusion_rule: Arc::new(EnsureRequirements::new()) };
    let in_order = |sql: &str| {
        let plan = apply_rule(&rule, unoptimized_plan(set_two_partitions, sql), set_two_partitions);
        count_steps(&plan, "InOrder")
    };
    let limited = |from: &str| format!("SELECT count(s) FROM (SELECT {from} LIMIT 30) AS l");
    for unordered in [
        "a.s FROM t a JOIN t b ON a.n = b.n",
        "s FROM t GROUP BY s",
        "upper(c) AS s FROM (SELECT min(s) OVER (PARTITION BY n) AS c FROM t)",
    ] {
        assert_eq!(in_order(&limited(unordered)), 0, "{unordered}");
    }
    assert_eq!(in_order(&limited("s FROM t")), 1);
}

/// Returns true if [`SortedUnionSanityRule`] accepts a merge of sorted branches, in each of which both
/// columns are the same.
fn accepts_merge_of_sorted_branches() -> bool {
    let branch = || bare_plan(set_one_partition, "SELECT n AS x, n AS y FROM t ORDER BY n");
    let union = UnionExec::try_new(vec![branch(), branch()]).unwrap();
    let by = |index: usize, name: &str| {
        PhysicalSortExpr::new_default(Arc::new(Column::new(name, index)) as _)
    };
    let order = LexOrdering::new([by(0, "x"), by(1, "y")]).unwrap();
    let merge: Arc<dyn ExecutionPlan> = Arc::new(SortPreservingMergeExec::new(order, union));
    let plan = apply_rule(&SortedUnionSanityRule, merge, set_two_partitions);
    plan.children()[0].is::<UnionExec>()
}

/// Operators that a rule of another crate recognizes, each with the test that fails if the rule does not act
/// on it.
const OPERATORS_TESTED_IN_QUERY: [(&str, &str); 3] = [
    ("OutputRequirementExec", "query: hash_partitioned_step_is_planned_where_no_order_is_needed"),
    ("StreamingTableExec", "query: map_steps_return_the_rows_of_the_plan"),
    ("CooperativeExec", "query: map_steps_return_the_rows_of_the_plan"),
];

#[test]
fn each_recognized_operator_is_planned_and_changed_by_our_rule() {
    let mut wrong = Vec::new();
    for RecognizedOperator { name, is_it, plan, acts } in OPERATORS {
        let plan = plan();
        let shown = displayable(plan.as_ref()).indent(true).to_string();
        if !has_step(&plan, is_it) {
            wrong.push(format!("no {name} in\n{shown}"));
        } else if !acts(plan) {
            wrong.push(format!("our rule leaves {name} as it is in\n{shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sql_expressions_become_the_physical_expressions_we_look_for() {
    fn is<T: PhysicalExpr + 'static>(expr: &Arc<dyn PhysicalExpr>) -> bool {
        expr.is::<T>()
    }
    type Is = fn(&Arc<dyn PhysicalExpr>) -> bool;
    let cases: [(&str, Is); 7] = [
        ("n", is::<Column>),
        ("'text'", is::<Literal>),
        ("upper(s)", is::<ScalarFunctionExpr>),
        ("s || 'text'", is::<BinaryExpr>),
        ("CAST(n AS TEXT)", is::<CastExpr>),
        ("TRY_CAST(n AS TEXT)", is::<TryCastExpr>),
        ("CASE WHEN n > 1 THEN s ELSE 'text' END", is::<CaseExpr>),
    ];
    for (sql, is_it) in cases {
        let plan =
            bare_plan(set_one_partition, &format!("SELECT {sql} AS x, n FROM t WHERE n > 0"));
        let found = plan.exists(|step| {
            let columns = step.downcast_ref::<ProjectionExec>();
            Ok(columns.is_some_and(|step| is_it(&step.expr()[0].expr)))
        });
        assert!(found.unwrap(), "{sql}: {plan:?}");
    }
    type IsCall = fn(&dyn std::any::Any) -> bool;
    fn is_function(call: &dyn std::any::Any) -> bool {
        let call = call.downcast_ref::<StandardWindowExpr>();
        call.is_some_and(|call| call.get_standard_func_expr().as_any().is::<WindowUDFExpr>())
    }
    let calls: [(&str, IsCall); 3] = [
        ("sum(n) OVER (ORDER BY n)", |call| call.is::<PlainAggregateWindowExpr>()),
        ("sum(n) OVER (ORDER BY n ROWS 1 PRECEDING)", |call| {
            call.is::<SlidingAggregateWindowExpr>()
        }),
        ("rank() OVER (ORDER BY n)", is_function),
    ];
    for (sql, is_it) in calls {
        let plan = bare_plan(set_one_partition, &format!("SELECT {sql} FROM t"));
        let found = plan.exists(|step| {
            let step = step.downcast_ref::<BoundedWindowAggExec>();
            Ok(step.is_some_and(|step| is_it(step.window_expr()[0].as_any())))
        });
        assert!(found.unwrap(), "{sql}: {plan:?}");
    }
}

/// Returns the paths and texts of the source files of the crates that handle plans, without their tests.
fn source_files() -> Vec<(PathBuf, String)> {
    fn read(folder: &Path, tests: &Regex, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("tests") {
                    read(&path, tests, found);
                }
            } else if !path.to_string_lossy().ends_with("tests.rs")
                && path.extension().is_some_and(|of| of == "rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                let own = tests.split(&text).next().unwrap_or_default().to_owned();
                found.push((path, own));
            }
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tests = Regex::new(r"(?m)^#\[cfg\(test\)\]\n(?:pub\(crate\) )?mod ").unwrap();
    let mut found = Vec::new();
    for name in ["operators", "sql", "tables", "query"] {
        read(&crates.join(name).join("src"), &tests, &mut found);
    }
    found
}

#[test]
fn each_operator_in_a_downcast_has_a_test() {
    let looked_for = Regex::new(r"\b(?:downcast_ref|is)::<(\w+Exec)>").unwrap();
    let known: BTreeSet<&str> = OPERATORS.iter().map(|operator| operator.name).collect();
    let in_query: BTreeSet<&str> =
        OPERATORS_TESTED_IN_QUERY.iter().map(|(name, _)| *name).collect();
    let mut found = BTreeSet::new();
    for (path, text) in source_files() {
        for operator in looked_for.captures_iter(&text) {
            let name = &operator[1];
            let is_known = known.contains(name) || in_query.contains(name);
            assert!(is_known, "{}: `{name}` needs a row in OPERATORS", path.display());
            found.insert(name.to_owned());
        }
    }
    let gone: Vec<_> = known.union(&in_query).filter(|name| !found.contains(**name)).collect();
    assert!(gone.is_empty(), "nobody looks for {gone:?} any more");
}

/// Files that use the names of functions as written in SQL, or the names of our own states.
const FILES_WITH_OTHER_NAMES: [&str; 3] = [
    "/tables/src/merging/merge.rs",
    "/tables/src/aggregates/summary.rs",
    "/tables/src/state/sums.rs",
];

#[test]
fn function_names_are_written_only_in_this_module() {
    let functions: HashSet<String> =
        required_names().iter().flat_map(|of| (of.list_known_names)()).collect();
    // Matches `x.name() == "sum"` and `matches!(x.name(), "sum" | …)`.
    let compared = Regex::new(r#"\bname\(\)\s*[=!]=\s*"(\w+)"|name\(\),\s*"(\w+)""#).unwrap();
    // Matches an arm of a `match`, or an item of a list on its own line.
    let listed = Regex::new(r#"(?m)^\s*\(?"(\w+)"(?:,$| [|=i]|, \[)"#).unwrap();
    let mut wrong = Vec::new();
    for (path, text) in source_files() {
        let shown = path.display().to_string();
        if FILES_WITH_OTHER_NAMES.iter().any(|other| shown.contains(other)) {
            continue;
        }
        for found in compared.captures_iter(&text).chain(listed.captures_iter(&text)) {
            let name = found.iter().skip(1).flatten().next().unwrap().as_str();
            if functions.contains(name) {
                wrong.push(format!("{shown}: {}", found[0].trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\nbelong in datafusion_names.rs", wrong.join("\n"));
}
