//! Helpers of the rules in crates `sql`, `operators` and `tables` that rewrite plans: the columns of an
//! expression's input, rewrites of all expressions or nodes of a plan, schemas with other types.

use std::sync::Arc;

use crate::{DynLogicalPlan, DynTreeNode};
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DFSchemaRef, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan, Operator};
use tidemill_base::error::Error;

use crate::error_carrier::into_datafusion_error;

/// Returns the columns that a plan node's expressions refer to.
///
/// # Errors
/// The errors of DataFusion's schemas.
pub fn expression_input_schema(plan: &LogicalPlan) -> PlanResult<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        let table = scan.source.schema();
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &table)?);
    }
    Ok(schema)
}

/// Rewrites each expression of a plan node; the names of its columns stay the same.
///
/// # Errors
/// The errors of `rewrite` and of DataFusion's schemas.
pub fn rewrite_node_expressions(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = expression_input_schema(&plan)?;
    // An input may have changed types.
    rewrite_expressions_keeping_schema(plan, &schema, rewrite)?
        .map_data(LogicalPlan::recompute_schema)
}

/// Rewrites the expressions of a plan node without recomputing its schema.
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

/// Rewrites the expressions of all nodes of a plan, bottom-up; the names of columns stay the same.
///
/// # Errors
/// The errors of `rewrite` and of DataFusion's schemas.
pub fn rewrite_all_expressions(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<LogicalPlan> {
    rewrite_all_nodes(plan, rewrite, |plan, _| Ok(Transformed::no(plan)))
}

/// Rewrites expressions like [`rewrite_all_expressions`], then passes each node to `change` with the columns that its
/// expressions refer to.
///
/// Until something has changed, each node still has the inputs it was built for, and schemas stay: rebuilding a schema of
/// thousands of columns costs the square of their number.
///
/// # Errors
/// The errors of `rewrite` and `change`, and of DataFusion's schemas.
pub fn rewrite_all_nodes(
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

/// Returns whether an operator is a comparison.
pub fn is_comparison_operator(operator: Operator) -> bool {
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

/// Returns a schema with other column types.
///
/// # Errors
/// The errors of DataFusion's schemas.
pub fn schema_with_types(
    schema: &DFSchema,
    types: impl IntoIterator<Item = DataType>,
) -> PlanResult<DFSchemaRef> {
    let fields = schema.iter().zip(types).map(|((qualifier, field), to)| {
        (qualifier.cloned(), Arc::new(field.as_ref().clone().with_data_type(to)))
    });
    let metadata = schema.metadata().clone();
    Ok(Arc::new(DFSchema::new_with_metadata(fields.collect(), metadata)?))
}

/// Applies a function of one array to the single argument of a call; such calls come from plans, not from SQL.
///
/// # Errors
/// The errors of `calculate`, and an internal error for another number of arguments.
pub fn invoke_unary_function(
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
