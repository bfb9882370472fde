//! ROLLUP, CUBE and GROUPING SETS over computed keys: `GROUP BY ROLLUP (upper(k), day)`.
//!
//! Rules that settle types rewrite expressions, and DataFusion then no longer finds those of a grouping set
//! by their names. So a projection below the aggregation computes the keys, and its sets contain only
//! columns.
//!
//! A grouping set replaces the keys that it omits by NULL. A key that has one value in all input rows, or
//! that always equals another key, loses this property in the output. DataFusion keeps it and omits sorts. So
//! the aggregation's input hides its properties ([`GroupingSetBarrierRule`]).

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{Column, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use tidemill_base::error::Error;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::datafusion_names::aggregates;

/// Computes the keys of grouping sets in a projection below the aggregation.
#[derive(Debug)]
pub(crate) struct GroupingSetColumnRule;

impl AnalyzerRule for GroupingSetColumnRule {
    fn name(&self) -> &str {
        "grouping_sets_of_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        let mut has_changed = false;
        plan.transform_up_with_subqueries_dyn(&mut |plan| match plan {
            LogicalPlan::Aggregate(step) => {
                let step = compute_keys_below(step)?;
                has_changed |= step.transformed;
                Ok(step)
            }
            // The schema of an operator derives from those of its inputs.
            plan if has_changed => Ok(Transformed::yes(plan.recompute_schema()?)),
            plan => Ok(Transformed::no(plan)),
        })
        .data()
    }
}

fn compute_keys_below(step: Aggregate) -> PlanResult<Transformed<LogicalPlan>> {
    let computed = |key: &Expr| !matches!(key, Expr::Column(_));
    let mut keys: Vec<Expr> = Vec::new();
    for set in step.group_expr.iter().filter(|key| matches!(key, Expr::GroupingSet(_))) {
        let Expr::GroupingSet(set) = set else { continue };
        for key in set.distinct_expr().into_iter().filter(|key| computed(key)) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
    }
    if keys.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(step)));
    }
    let below = step.input.schema();
    let own = below.iter().map(|field| Expr::Column(Column::from(field)));
    // The computed keys get new names: that of `CAST(a.x AS INT)` is `a.x`, and rules that compare names
    // would confuse the two.
    let taken = |name: &String| below.has_column_with_unqualified_name(name);
    let names: Vec<String> = (0_u32..)
        .map(|index| format!("__set_key_{index}"))
        .filter(|name| !taken(name))
        .take(keys.len())
        .collect();
    let named = keys.iter().zip(&names).map(|(key, name)| key.clone().alias(name));
    let columns = own.chain(named).collect();
    let input = LogicalPlan::Projection(Projection::try_new(columns, Arc::clone(&step.input))?);
    let of_column = |key: Expr| match keys.iter().position(|known| *known == key) {
        Some(place) => Expr::Column(Column::new_unqualified(&names[place])),
        None => key,
    };
    let all = |keys: Vec<Expr>| keys.into_iter().map(of_column).collect::<Vec<_>>();
    let groups = step.group_expr.into_iter().map(|key| match key {
        Expr::GroupingSet(GroupingSet::Rollup(keys)) => {
            Expr::GroupingSet(GroupingSet::Rollup(all(keys)))
        }
        Expr::GroupingSet(GroupingSet::Cube(keys)) => {
            Expr::GroupingSet(GroupingSet::Cube(all(keys)))
        }
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => {
            Expr::GroupingSet(GroupingSet::GroupingSets(sets.into_iter().map(all).collect()))
        }
        key => of_column(key),
    });
    // `grouping` names the keys as the sets do.
    let calls = step.aggr_expr.into_iter().map(|call| match call {
        Expr::AggregateFunction(mut call) if call.func.name() == aggregates::GROUPING => {
            call.params.args = all(call.params.args);
            Expr::AggregateFunction(call)
        }
        call => call,
    });
    let groups = groups.collect();
    let made = Aggregate::try_new(Arc::new(input), groups, calls.collect())?;
    // The internal grouping id is not an output column; queries ask for it with `grouping`.
    let is_inner = |name: &str| name == Aggregate::INTERNAL_GROUPING_ID;
    let shown = made.schema.iter().zip(step.schema.iter());
    let shown = shown.filter(|((_, field), _)| !is_inner(field.name()));
    let shown = shown.map(|((from, field), (qualifier, name))| {
        let column = Expr::Column(Column::new(from.cloned(), field.name()));
        match (from, field.name()) == (qualifier, name.name()) {
            true => column,
            false => column.alias_qualified(qualifier.cloned(), name.name()),
        }
    });
    let shown = shown.collect();
    let made = Arc::new(LogicalPlan::Aggregate(made));
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(shown, made)?)))
}

/// Hides the properties of the input of an aggregation with grouping sets.
#[derive(Debug)]
pub(crate) struct GroupingSetBarrierRule;

impl PhysicalOptimizerRule for GroupingSetBarrierRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up_dyn(&mut |plan| {
            let has_sets = plan
                .downcast_ref::<AggregateExec>()
                .is_some_and(|step| step.group_expr().has_grouping_set());
            let children = plan.children();
            let (true, [input]) = (has_sets, children.as_slice()) else {
                return Ok(Transformed::no(plan));
            };
            // The order that an aggregate requires, as in `list(x ORDER BY y)`, is no property of keys.
            let wanted = plan.required_input_ordering().pop().flatten();
            let wanted = wanted.map(|wanted| LexOrdering::from(wanted.into_single()));
            let unknown = Arc::new(PropertyBarrier::new(Arc::clone(input), wanted));
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Arc::clone(&plan).replace_children(vec![unknown], options).map(Transformed::yes)
        })
        .data()
    }

    fn name(&self) -> &str {
        "nothing_known_below_grouping_sets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// An operator that passes rows on, and hides all properties of its input except the required order.
#[derive(Debug)]
struct PropertyBarrier {
    input: Arc<dyn ExecutionPlan>,
    required_order: Option<LexOrdering>,
    properties: Arc<PlanProperties>,
}

impl PropertyBarrier {
    fn new(input: Arc<dyn ExecutionPlan>, wanted: Option<LexOrdering>) -> Self {
        let partitions = input.output_partitioning().partition_count();
        // A later rule inserts the sort below this operator.
        let is_kept = |order: &LexOrdering| {
            input.equivalence_properties().ordering_satisfy(order.clone()).unwrap_or(false)
        };
        let properties = input.properties().as_ref().clone();
        let properties = properties
            .with_eq_properties(match wanted.clone().filter(is_kept) {
                Some(order) => EquivalenceProperties::new_with_orderings(input.schema(), [order]),
                None => EquivalenceProperties::new(input.schema()),
            })
            .with_partitioning(Partitioning::UnknownPartitioning(partitions));
        Self { input, required_order: wanted, properties: Arc::new(properties) }
    }
}

impl DisplayAs for PropertyBarrier {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unknown")
    }
}

impl ExecutionPlan for PropertyBarrier {
    fn name(&self) -> &str {
        "Unknown"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(input, self.required_order.clone()))),
            _ => {
                Err(into_datafusion_error(Error::Internal("a step of other than one input".into())))
            }
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
