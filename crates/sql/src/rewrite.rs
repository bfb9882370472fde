//! What the rules have in common that rewrite plans: types that meet ([`coercion`](crate::coercion)),
//! operators that are checked ([`arithmetic`](crate::arithmetic)), floats in one order
//! ([`floats`](crate::floats)), conditions on subqueries ([`subqueries`](crate::subqueries)).

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan, Operator};
use tidemill_base::error::Error;

use crate::messages::external;

/// The columns that a step's expressions are of.
///
/// # Errors
/// As DataFusion's schemas.
pub(crate) fn schema_below(plan: &LogicalPlan) -> PlanResult<DFSchema> {
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
pub(crate) fn each_expression(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> PlanResult<Transformed<Expr>>,
) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = schema_below(&plan)?;
    let names = NamePreserver::new(&plan);
    let plan = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| rewrite(expr, &schema))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })?;
    // A step below may have another type now.
    plan.map_data(LogicalPlan::recompute_schema)
}

/// Whether an operator compares its operands.
pub(crate) fn is_comparison(operator: Operator) -> bool {
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
pub(crate) fn with_types(
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
pub(crate) fn of_one(
    args: &[ColumnarValue],
    calculate: impl Fn(&ArrayRef) -> PlanResult<ArrayRef>,
) -> PlanResult<ColumnarValue> {
    match args {
        [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(calculate(array)?)),
        [ColumnarValue::Scalar(value)] => {
            let found = calculate(&value.to_array()?)?;
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?))
        }
        _ => Err(external(Error::Internal("a conversion of more than one value".into()))),
    }
}
