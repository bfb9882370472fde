//! Hides the keys of rows whose lists are unnested, because such rows have no keys.
//!
//! DataFusion also treats the keys of an aggregation as keys of the rows that `unnest` makes of its lists:
//! `ORDER BY k, u` would sort by `k` alone, `GROUP BY k, u` would group by `k`, and `DISTINCT`
//! would keep each row. So, where there may be keys below an `unnest`, all columns beside the lists
//! pass through a function with no known properties, whether or not they are known as keys: DataFusion finds some keys
//! by name alone, after other rules have settled the names.
//!
//! The planner itself adds columns that depend on a key to a `GROUP BY`, before any rule runs: to `SELECT k,
//! count(DISTINCT u) FROM (SELECT k, unnest(…) AS u …) GROUP BY k`. The relation planner here therefore also hides
//! the keys of subqueries with an `unnest`.

use std::cell::Cell;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as PlanResult};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, Projection, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Unnest, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::TableFactor;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use tidemill_planning::plan_rewriting::invoke_unary_function;

/// A relation planner that hides the keys of subqueries and common table expressions with an `unnest`.
#[derive(Debug)]
pub(crate) struct UnnestSubqueryPlanner;

thread_local! {
    /// True while the next relation is being planned: planning it calls this planner again.
    static IS_PLANNING_RELATION: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for UnnestSubqueryPlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> PlanResult<RelationPlanning> {
        let may_have_lists =
            matches!(relation, TableFactor::Derived { .. } | TableFactor::Table { .. });
        if IS_PLANNING_RELATION.take() || !may_have_lists {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_PLANNING_RELATION.set(true);
        let planned = context.plan(relation);
        IS_PLANNING_RELATION.set(false);
        let mut plan = planned?;
        if !plan.schema().functional_dependencies().is_empty()
            && plan.exists_dyn(&mut |node| Ok(matches!(node, LogicalPlan::Unnest(_))))?
        {
            plan = hide_keys(plan, &[])?;
        }
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

/// An analyzer rule that hides the keys below an `unnest`. It runs before all rules that use keys.
#[derive(Debug)]
pub(crate) struct UnnestKeysRule;

impl AnalyzerRule for UnnestKeysRule {
    fn name(&self) -> &str {
        "rows_of_lists_have_no_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        let mut is_found = false;
        plan.apply_with_subqueries_dyn(&mut |node| {
            is_found |= matches!(node, LogicalPlan::Unnest(_));
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !is_found {
            return Ok(plan);
        }
        let mut has_changed = false;
        let rewritten = plan.transform_up_with_subqueries_dyn(&mut |node| match node {
            LogicalPlan::Unnest(unnest) => {
                let Unnest { input, schema, exec_columns, .. } = &unnest;
                if !has_keyed_rows(input)? {
                    return Ok(Transformed::no(LogicalPlan::Unnest(unnest)));
                }
                has_changed = true;
                let input = Arc::new(hide_keys(input.as_ref().clone(), exec_columns)?);
                let fields = schema.iter().map(|(of, field)| (of.cloned(), Arc::clone(field)));
                let metadata = schema.metadata().clone();
                let schema = DFSchema::new_with_metadata(fields.collect(), metadata)?;
                let schema = Arc::new(schema);
                Ok(Transformed::yes(LogicalPlan::Unnest(Unnest { input, schema, ..unnest })))
            }
            // The known properties of the nodes above derive from those below.
            other if has_changed => Ok(Transformed::yes(other.recompute_schema()?)),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.data)
    }
}

/// Returns whether a node below has rows with keys: groups, distinct rows, numbered rows.
fn has_keyed_rows(plan: &LogicalPlan) -> PlanResult<bool> {
    plan.exists_dyn(&mut |node| {
        Ok(matches!(
            node,
            LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) | LogicalPlan::Window(_)
        ))
    })
}

/// Projects a plan to the same columns without known keys. The columns of `lists` are never keys and stay unchanged.
///
/// # Errors
/// The errors of DataFusion's plan nodes.
pub fn hide_keys(plan: LogicalPlan, lists: &[Column]) -> PlanResult<LogicalPlan> {
    let schema = plan.schema();
    let columns = schema.iter().map(|(qualifier, field)| {
        let column = Column::from((qualifier, field));
        if lists.contains(&column) {
            return Expr::Column(column);
        }
        let signature = Signature::any(1, Volatility::Immutable);
        let function = Arc::new(ScalarUDF::from(HideKeyFunction { signature }));
        let key = vec![Expr::Column(column.clone())];
        Expr::ScalarFunction(ScalarFunction::new_udf(function, key))
            .alias_qualified(column.relation, column.name)
    });
    let columns = columns.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}

/// The function `repeated`, which returns its argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct HideKeyFunction {
    signature: Signature,
}

impl ScalarUDFImpl for HideKeyFunction {
    fn name(&self) -> &str {
        "repeated"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        Ok(arguments.first().cloned().unwrap_or(DataType::Null))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        invoke_unary_function(&args.args, |value| Ok(Arc::clone(value)))
    }
}
