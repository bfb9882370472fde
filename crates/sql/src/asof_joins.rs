//! `ASOF JOIN`: joins each record with the last record of another source up to its time, with equal keys.
//!
//! The [translation](tidemill_dialect::translation) splits the condition: it wraps the one comparison by `<`,
//! `<=`, `>` or `>=` in a marker function, and the planner makes an ordinary join. This rule turns that join into a
//! window function over the union of both sides, sorted by keys and time: each left row takes the last right
//! row before it (`last_value … IGNORE NULLS`). That takes n log n time in the rows of both sides together,
//! and it spills as windows do; a join that compares each row with each other row would take time in the
//! product of both.
//!
//! If several right rows have the matched time, the row with the greatest columns, compared in their order,
//! is taken. So every run returns the same row.

use std::sync::Arc;
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{
    Column, DFSchema, JoinType, Result as PlanResult, ScalarValue, internal_err, plan_err,
};
use datafusion::functions::core::{get_field, named_struct};
use datafusion::functions_window::nth_value::last_value_udwf;
use datafusion::logical_expr::expr::{NullTreatment, ScalarFunction, WindowFunction};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprFunctionExt, ExprSchemable, Join, LogicalPlan,
    LogicalPlanBuilder, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, cast,
    lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::Expr::Literal;
use tidemill_dialect::marker_functions::ASOF_MARKER_FUNCTION;

/// Returns the marker function for registration in DataFusion. It is never evaluated.
pub(crate) fn asof_marker_udf() -> ScalarUDF {
    ScalarUDF::from(AsofMarkerFunction { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsofMarkerFunction {
    signature: Signature,
}

impl ScalarUDFImpl for AsofMarkerFunction {
    fn name(&self) -> &str {
        ASOF_MARKER_FUNCTION
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        plan_err!("`{ASOF_MARKER_FUNCTION}` stands in the condition of an ASOF JOIN alone")
    }
}

/// Rewrites ASOF joins. This rule runs before types are settled.
#[derive(Debug)]
pub(crate) struct AsofJoinRule;

impl AnalyzerRule for AsofJoinRule {
    fn name(&self) -> &str {
        "asof_joins"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        let is_asof = |node: &LogicalPlan| match node {
            LogicalPlan::Join(join) => join.filter.as_ref().is_some_and(has_marker),
            _ => false,
        };
        if !plan.exists_dyn(&mut |node| Ok(is_asof(node)))? {
            return Ok(plan);
        }
        let rewritten = plan.transform_up_with_subqueries_dyn(&mut |node| match node {
            LogicalPlan::Join(join) if join.filter.as_ref().is_some_and(has_marker) => {
                Ok(Transformed::yes(rewrite_as_window(join)?))
            }
            other => Ok(Transformed::yes(other.recompute_schema()?)),
        })?;
        Ok(rewritten.data)
    }
}

fn has_marker(expr: &Expr) -> bool {
    expr.exists_dyn(&mut |expr| Ok(marked_comparison(expr).is_some())).unwrap_or(false)
}

/// Returns the comparison within the marker function.
fn marked_comparison(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == ASOF_MARKER_FUNCTION => call.args.first(),
        _ => None,
    }
}

/// The comparisons of an ASOF join, with the left side's expressions first.
struct AsofCondition {
    key_pairs: Vec<(Expr, Expr)>,
    time_pair: (Expr, Expr),
    /// True for `>=` and `>`, which match the last right row up to a time; false for `<=` and `<`, which
    /// match the first right row from a time on.
    is_backward: bool,
    /// True if equal times match.
    matches_equal_times: bool,
}

const ASOF_JOIN_SYNTAX: &str = "an ASOF JOIN is ON equal keys, if any, and one comparison of times: \
                    ON a.id = b.id AND a.ts >= b.ts";

impl AsofCondition {
    fn from_join(join: &Join) -> PlanResult<Self> {
        let mut keys = join.on.clone();
        let mut nearest = None;
        let filters = join.filter.clone().map(split_conjunction_owned).unwrap_or_default();
        for filter in filters {
            let (compared, is_nearest) = match marked_comparison(&filter) {
                Some(inner) => (inner.clone(), true),
                None => (filter, false),
            };
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = compared else {
                return plan_err!("{ASOF_JOIN_SYNTAX}; `{compared}` is neither");
            };
            let sides = (
                referenced_side(&left, join.left.schema(), join.right.schema()),
                referenced_side(&right, join.left.schema(), join.right.schema()),
            );
            let (left, op, right) = match sides {
                (Some(AsofJoinSide::Left), Some(AsofJoinSide::Right)) => (*left, op, *right),
                (Some(AsofJoinSide::Right), Some(AsofJoinSide::Left)) => match op.swap() {
                    Some(op) => (*right, op, *left),
                    None => return plan_err!("{ASOF_JOIN_SYNTAX}"),
                },
                _ => {
                    return plan_err!(
                        "{ASOF_JOIN_SYNTAX}; `{left} {op} {right}` compares no two sides"
                    );
                }
            };
            match (is_nearest, op) {
                (false, Operator::Eq) => keys.push((left, right)),
                (true, Operator::GtEq | Operator::Gt | Operator::LtEq | Operator::Lt)
                    if nearest.is_none() =>
                {
                    nearest = Some(((left, right), op));
                }
                _ => return plan_err!("{ASOF_JOIN_SYNTAX}; `{left} {op} {right}` is neither"),
            }
        }
        match nearest {
            Some((times, op)) => Ok(AsofCondition {
                key_pairs: keys,
                time_pair: times,
                is_backward: matches!(op, Operator::GtEq | Operator::Gt),
                matches_equal_times: matches!(op, Operator::GtEq | Operator::LtEq),
            }),
            None => plan_err!("{ASOF_JOIN_SYNTAX}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AsofJoinSide {
    Left,
    Right,
}

/// Returns the side whose columns an expression uses.
fn referenced_side(expr: &Expr, left: &DFSchema, right: &DFSchema) -> Option<AsofJoinSide> {
    let columns = expr.column_refs();
    if columns.is_empty() {
        return None;
    }
    let all_of = |schema: &DFSchema| columns.iter().all(|column| schema.has_column(column));
    match (all_of(left), all_of(right)) {
        (true, _) => Some(AsofJoinSide::Left),
        (_, true) => Some(AsofJoinSide::Right),
        _ => None,
    }
}

/// Returns the type as which two expressions are compared.
fn common_comparison_type(
    left: &Expr,
    of_left: &DFSchema,
    right: &Expr,
    of_right: &DFSchema,
) -> PlanResult<DataType> {
    let (left_type, right_type) = (left.get_type(of_left)?, right.get_type(of_right)?);
    match comparison_coercion(&left_type, &right_type) {
        Some(of) => Ok(of),
        None => {
            plan_err!("`{left}` and `{right}` cannot be compared: {left_type} and {right_type}")
        }
    }
}

// The union of both sides has these columns in this order: keys, time, side, the columns of the left side,
// and the row of the right side as one struct.
fn key_column_name(at: usize) -> String {
    format!("key {at}")
}

fn left_column_name(at: usize) -> String {
    format!("left {at}")
}

fn right_field_name(at: usize) -> String {
    format!("right {at}")
}

const TIME_COLUMN: &str = "time";
const SIDE_COLUMN: &str = "side";
const RIGHT_ROW_COLUMN: &str = "right";
const MATCHED_ROW_COLUMN: &str = "found";

/// Returns a column of the union of both sides.
fn unqualified_column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// Rewrites an ASOF join as a window function over the union of both sides.
fn rewrite_as_window(join: Join) -> PlanResult<LogicalPlan> {
    let is_left = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left => true,
        other => return plan_err!("an ASOF JOIN is inner or LEFT, and not {other}"),
    };
    let condition = AsofCondition::from_join(&join)?;
    let (left, right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    let (left_schema, right_schema) = (Arc::clone(left.schema()), Arc::clone(right.schema()));
    // If equal times match, the right rows sort before the left rows of the same time.
    let (left_side, right_side) = if condition.matches_equal_times { (1i8, 0i8) } else { (0, 1) };

    let mut keys = Vec::new();
    for (left, right) in &condition.key_pairs {
        keys.push(common_comparison_type(left, &left_schema, right, &right_schema)?);
    }
    let time = common_comparison_type(
        &condition.time_pair.0,
        &left_schema,
        &condition.time_pair.1,
        &right_schema,
    )?;

    let packed = right_schema.columns().into_iter().enumerate();
    let packed = packed.flat_map(|(at, column)| [lit(right_field_name(at)), Expr::Column(column)]);
    let packed = Expr::ScalarFunction(ScalarFunction::new_udf(named_struct(), packed.collect()));
    let packed_type = packed.get_type(&right_schema)?;

    let mut of_the_left: Vec<Expr> = Vec::new();
    let mut of_the_right: Vec<Expr> = Vec::new();
    for (at, ((left, right), of)) in condition.key_pairs.iter().zip(&keys).enumerate() {
        of_the_left.push(cast(left.clone(), of.clone()).alias(key_column_name(at)));
        of_the_right.push(cast(right.clone(), of.clone()).alias(key_column_name(at)));
    }
    of_the_left.push(cast(condition.time_pair.0.clone(), time.clone()).alias(TIME_COLUMN));
    of_the_right.push(cast(condition.time_pair.1.clone(), time.clone()).alias(TIME_COLUMN));
    of_the_left.push(lit(left_side).alias(SIDE_COLUMN));
    of_the_right.push(lit(right_side).alias(SIDE_COLUMN));
    for (at, (qualifier, field)) in left_schema.iter().enumerate() {
        let column = Expr::Column(Column::from((qualifier, field)));
        of_the_left.push(column.alias(left_column_name(at)));
        let nothing = Literal(ScalarValue::try_from(field.data_type())?, None);
        of_the_right.push(nothing.alias(left_column_name(at)));
    }
    of_the_left.push(Literal(ScalarValue::try_from(&packed_type)?, None).alias(RIGHT_ROW_COLUMN));
    of_the_right.push(packed.alias(RIGHT_ROW_COLUMN));

    // A right row without a key or a time matches no row.
    let known = (0..keys.len())
        .map(key_column_name)
        .chain([TIME_COLUMN.to_owned()])
        .map(|name| unqualified_column(&name).is_not_null());
    let right = LogicalPlanBuilder::from(right).project(of_the_right)?;
    let right = match conjunction(known) {
        Some(known) => right.filter(known)?,
        None => right,
    };
    let both = LogicalPlanBuilder::from(left).project(of_the_left)?.union(right.build()?)?;

    let mut order = vec![
        unqualified_column(TIME_COLUMN).sort(condition.is_backward, true),
        unqualified_column(SIDE_COLUMN).sort(true, true),
    ];
    for (at, (_, field)) in right_schema.iter().enumerate() {
        if !field.data_type().is_nested() {
            order.push(right_field_expr(at).sort(true, true));
        }
    }
    let frame = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::CurrentRow,
    );
    let definition = WindowFunctionDefinition::WindowUDF(last_value_udwf());
    let last =
        Expr::from(WindowFunction::new(definition, vec![unqualified_column(RIGHT_ROW_COLUMN)]))
            .partition_by(
                (0..keys.len()).map(|at| unqualified_column(&key_column_name(at))).collect(),
            )
            .order_by(order)
            .window_frame(frame)
            .null_treatment(NullTreatment::IgnoreNulls)
            .build()?;
    let name = last.schema_name().to_string();
    let mut kept = unqualified_column(SIDE_COLUMN).eq(lit(left_side));
    if !is_left {
        kept = kept.and(unqualified_column(MATCHED_ROW_COLUMN).is_not_null());
    }
    let mut columns: Vec<Expr> = (0..left_schema.fields().len())
        .map(|at| unqualified_column(&left_column_name(at)))
        .collect();
    columns.push(unqualified_column(SIDE_COLUMN));
    columns.push(Expr::Column(Column::new_unqualified(name)).alias(MATCHED_ROW_COLUMN));
    let rows = both.window([last])?.project(columns)?.filter(kept)?;

    let mut columns = Vec::new();
    for (at, (qualifier, field)) in left_schema.iter().enumerate() {
        columns.push(
            unqualified_column(&left_column_name(at))
                .alias_qualified(qualifier.cloned(), field.name()),
        );
    }
    for (at, (qualifier, field)) in right_schema.iter().enumerate() {
        let call = vec![unqualified_column(MATCHED_ROW_COLUMN), lit(right_field_name(at))];
        let value = Expr::ScalarFunction(ScalarFunction::new_udf(get_field(), call));
        columns.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    let made = rows.project(columns)?.build()?;
    match made.schema().fields().len() == join.schema.fields().len() {
        true => Ok(made),
        false => internal_err!("an ASOF JOIN lost columns"),
    }
}

/// Returns a column of the right row within the union of both sides.
fn right_field_expr(at: usize) -> Expr {
    let call = vec![unqualified_column(RIGHT_ROW_COLUMN), lit(right_field_name(at))];
    Expr::ScalarFunction(ScalarFunction::new_udf(get_field(), call))
}
