//! What the rules have in common that rewrite plans: types that meet ([`coercion`](crate::coercion)),
//! operators that are checked ([`arithmetic`](crate::arithmetic)), floats in one order
//! ([`floats`](crate::floats)), conditions on subqueries ([`subqueries`](crate::subqueries)).

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DFSchemaRef, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan, Operator};
use tidemill_base::error::Error;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use crate::error_translation::into_datafusion_error;

/// The columns that a step's expressions are of.
///
/// # Errors
/// As DataFusion's schemas.
pub(crate) fn expression_input_schema(plan: &LogicalPlan) -> PlanResult<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        let table = scan.source.schema();
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &table)?);
    }
    Ok(schema)
}

/// The plan's step with each of its expressions rewritten, columns being called as before.
///
/// # Errors
/// As `rewrite`, and as DataFusion's schemas.
pub(crate) fn rewrite_node_expressions(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = expression_input_schema(&plan)?;
    // A step below may have another type now.
    rewrite_expressions_keeping_schema(plan, &schema, rewrite)?
        .map_data(LogicalPlan::recompute_schema)
}

/// The step with its expressions rewritten, and its schema as it was.
fn rewrite_expressions_keeping_schema(
    plan: LogicalPlan,
    below: &DFSchema,
    rewrite: &dyn Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    plan.map_expressions_dyn(&mut |expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up_dyn(&mut |expr| rewrite(expr, below))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })
}

/// The plan with the expressions of each of its steps rewritten, from below, columns being called as before.
///
/// # Errors
/// As `rewrite`, and as DataFusion's schemas.
pub(crate) fn rewrite_all_expressions(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<LogicalPlan> {
    rewrite_all_nodes(plan, rewrite, |plan, _| Ok(Transformed::no(plan)))
}

/// The same, where each step is then given to `change`, with the columns that its expressions are of.
///
/// Until something has changed, no step is below another that it was not made for, and schemas stay: to make that of
/// thousands of columns anew takes the square of them.
///
/// # Errors
/// As `rewrite` and `change`, and as DataFusion's schemas.
pub(crate) fn rewrite_all_nodes(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
    change: impl Fn(LogicalPlan, &DFSchema) -> PlanResult<Transformed<LogicalPlan>>,
) -> PlanResult<LogicalPlan> {
    let mut has_changed = false;
    let plan = plan.transform_up_with_subqueries_dyn(&mut |plan| {
        let schema = expression_input_schema(&plan)?;
        let mut plan = rewrite_expressions_keeping_schema(plan, &schema, rewrite)?;
        has_changed |= plan.transformed;
        if has_changed {
            plan = plan.map_data(LogicalPlan::recompute_schema)?;
        }
        let plan = plan.transform_data(|plan| change(plan, &schema))?;
        has_changed |= plan.transformed;
        Ok(plan)
    })?;
    Ok(plan.data)
}

/// Whether an operator compares its operands.
pub(crate) fn is_comparison_operator(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// The same columns, of other types.
///
/// # Errors
/// As DataFusion's schemas.
pub(crate) fn schema_with_types(
    schema: &DFSchema,
    types: impl IntoIterator<Item = DataType>,
) -> PlanResult<DFSchemaRef> {
    let fields = schema.iter().zip(types).map(|((qualifier, field), to)| {
        (qualifier.cloned(), Arc::new(field.as_ref().clone().with_data_type(to)))
    });
    let metadata = schema.metadata().clone();
    Ok(Arc::new(DFSchema::new_with_metadata(fields.collect(), metadata)?))
}

/// A function of one array's values, called by a plan and not by SQL.
///
/// # Errors
/// As `calculate`.
pub(crate) fn invoke_unary_function(
    args: &[ColumnarValue],
    calculate: impl Fn(&ArrayRef) -> PlanResult<ArrayRef>,
) -> PlanResult<ColumnarValue> {
    match args {
        [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(calculate(array)?)),
        [ColumnarValue::Scalar(value)] => {
            let found = calculate(&value.to_array()?)?;
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?))
        }
        _ => Err(into_datafusion_error(Error::Internal(
            "a conversion of more than one value".into(),
        ))),
    }
}
