//! `ASOF JOIN`: to each record the last one of another source up to its time, of the same keys.
//!
//! The parser takes the condition apart ([`dialects`](crate::dialects)): the one comparison by `<`, `<=`, `>` or
//! `>=` is marked by a function, and the planner makes an ordinary join of it. Here that join becomes a sort: the
//! rows of both sides below one another, by keys and time, each of the left taking what last came from the right
//! (`last_value … IGNORE NULLS`). That is n log n in the rows of both sides together, and it spills as windows do;
//! a join that compares each row with each would be their product.
//!
//! Of several rows of the right side at the time that is taken, the one is taken whose columns, in their
//! order, are the greatest: the same one in every run.

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

/// The function around the comparison of times.
pub(crate) const NEAREST: &str = "tidemill_asof";

/// The function as DataFusion registers it; it is nowhere evaluated.
pub(crate) fn nearest() -> ScalarUDF {
    ScalarUDF::from(Nearest { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Nearest {
    signature: Signature,
}

impl ScalarUDFImpl for Nearest {
    fn name(&self) -> &str {
        NEAREST
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        plan_err!("`{NEAREST}` stands in the condition of an ASOF JOIN alone")
    }
}

/// The rule. It comes before types are settled.
#[derive(Debug)]
pub(crate) struct AsOfJoins;

impl AnalyzerRule for AsOfJoins {
    fn name(&self) -> &str {
        "asof_joins"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        let is_asof = |node: &LogicalPlan| match node {
            LogicalPlan::Join(join) => join.filter.as_ref().is_some_and(is_marked),
            _ => false,
        };
        if !plan.exists_dyn(&mut |node| Ok(is_asof(node)))? {
            return Ok(plan);
        }
        let rewritten = plan.transform_up_with_subqueries_dyn(&mut |node| match node {
            LogicalPlan::Join(join) if join.filter.as_ref().is_some_and(is_marked) => {
                Ok(Transformed::yes(sorted(join)?))
            }
            other => Ok(Transformed::yes(other.recompute_schema()?)),
        })?;
        Ok(rewritten.data)
    }
}

fn is_marked(expr: &Expr) -> bool {
    expr.exists_dyn(&mut |expr| Ok(marked(expr).is_some())).unwrap_or(false)
}

/// What is marked.
fn marked(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == NEAREST => call.args.first(),
        _ => None,
    }
}

/// The comparisons of a join, the left side's expressions first.
struct Condition {
    keys: Vec<(Expr, Expr)>,
    times: (Expr, Expr),
    /// `>=` or `>`: the right side's last row up to a time; otherwise its first from a time on.
    is_before: bool,
    /// Whether equal times meet.
    is_inclusive: bool,
}

const FORM: &str = "an ASOF JOIN is ON equal keys, if any, and one comparison of times: \
                    ON a.id = b.id AND a.ts >= b.ts";

impl Condition {
    fn of(join: &Join) -> PlanResult<Self> {
        let mut keys = join.on.clone();
        let mut nearest = None;
        let filters = join.filter.clone().map(split_conjunction_owned).unwrap_or_default();
        for filter in filters {
            let (compared, is_nearest) = match marked(&filter) {
                Some(inner) => (inner.clone(), true),
                None => (filter, false),
            };
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = compared else {
                return plan_err!("{FORM}; `{compared}` is neither");
            };
            let sides = (
                side_of(&left, join.left.schema(), join.right.schema()),
                side_of(&right, join.left.schema(), join.right.schema()),
            );
            let (left, op, right) = match sides {
                (Some(Side::Left), Some(Side::Right)) => (*left, op, *right),
                (Some(Side::Right), Some(Side::Left)) => match op.swap() {
                    Some(op) => (*right, op, *left),
                    None => return plan_err!("{FORM}"),
                },
                _ => return plan_err!("{FORM}; `{left} {op} {right}` compares no two sides"),
            };
            match (is_nearest, op) {
                (false, Operator::Eq) => keys.push((left, right)),
                (true, Operator::GtEq | Operator::Gt | Operator::LtEq | Operator::Lt)
                    if nearest.is_none() =>
                {
                    nearest = Some(((left, right), op));
                }
                _ => return plan_err!("{FORM}; `{left} {op} {right}` is neither"),
            }
        }
        match nearest {
            Some((times, op)) => Ok(Condition {
                keys,
                times,
                is_before: matches!(op, Operator::GtEq | Operator::Gt),
                is_inclusive: matches!(op, Operator::GtEq | Operator::LtEq),
            }),
            None => plan_err!("{FORM}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Which side's columns an expression is of.
fn side_of(expr: &Expr, left: &DFSchema, right: &DFSchema) -> Option<Side> {
    let columns = expr.column_refs();
    if columns.is_empty() {
        return None;
    }
    let all_of = |schema: &DFSchema| columns.iter().all(|column| schema.has_column(column));
    match (all_of(left), all_of(right)) {
        (true, _) => Some(Side::Left),
        (_, true) => Some(Side::Right),
        _ => None,
    }
}

/// The type that two expressions are compared as.
fn met(left: &Expr, of_left: &DFSchema, right: &Expr, of_right: &DFSchema) -> PlanResult<DataType> {
    let (left_type, right_type) = (left.get_type(of_left)?, right.get_type(of_right)?);
    match comparison_coercion(&left_type, &right_type) {
        Some(of) => Ok(of),
        None => {
            plan_err!("`{left}` and `{right}` cannot be compared: {left_type} and {right_type}")
        }
    }
}

/// The columns of the rows of both sides, in this order: keys, time, side, the left side's, the right side's as
/// one.
fn key(at: usize) -> String {
    format!("key {at}")
}

fn of_left(at: usize) -> String {
    format!("left {at}")
}

fn of_right(at: usize) -> String {
    format!("right {at}")
}

const TIME: &str = "time";
const SIDE: &str = "side";
const RIGHT: &str = "right";
const FOUND: &str = "found";

/// A column of the rows of both sides.
fn own(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// An ASOF join as a sort of both sides.
fn sorted(join: Join) -> PlanResult<LogicalPlan> {
    let is_left = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left => true,
        other => return plan_err!("an ASOF JOIN is inner or LEFT, and not {other}"),
    };
    let condition = Condition::of(&join)?;
    let (left, right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    let (left_schema, right_schema) = (Arc::clone(left.schema()), Arc::clone(right.schema()));
    // Of equal times the right side's rows come first where they are to be found.
    let (left_side, right_side) = if condition.is_inclusive { (1i8, 0i8) } else { (0, 1) };

    let mut keys = Vec::new();
    for (left, right) in &condition.keys {
        keys.push(met(left, &left_schema, right, &right_schema)?);
    }
    let time = met(&condition.times.0, &left_schema, &condition.times.1, &right_schema)?;

    let packed = right_schema.columns().into_iter().enumerate();
    let packed = packed.flat_map(|(at, column)| [lit(of_right(at)), Expr::Column(column)]);
    let packed = Expr::ScalarFunction(ScalarFunction::new_udf(named_struct(), packed.collect()));
    let packed_type = packed.get_type(&right_schema)?;

    let mut of_the_left: Vec<Expr> = Vec::new();
    let mut of_the_right: Vec<Expr> = Vec::new();
    for (at, ((left, right), of)) in condition.keys.iter().zip(&keys).enumerate() {
        of_the_left.push(cast(left.clone(), of.clone()).alias(key(at)));
        of_the_right.push(cast(right.clone(), of.clone()).alias(key(at)));
    }
    of_the_left.push(cast(condition.times.0.clone(), time.clone()).alias(TIME));
    of_the_right.push(cast(condition.times.1.clone(), time.clone()).alias(TIME));
    of_the_left.push(lit(left_side).alias(SIDE));
    of_the_right.push(lit(right_side).alias(SIDE));
    for (at, (qualifier, field)) in left_schema.iter().enumerate() {
        let column = Expr::Column(Column::from((qualifier, field)));
        of_the_left.push(column.alias(of_left(at)));
        let nothing = Literal(ScalarValue::try_from(field.data_type())?, None);
        of_the_right.push(nothing.alias(of_left(at)));
    }
    of_the_left.push(Literal(ScalarValue::try_from(&packed_type)?, None).alias(RIGHT));
    of_the_right.push(packed.alias(RIGHT));

    // What has no key or no time is nobody's.
    let known =
        (0..keys.len()).map(key).chain([TIME.to_owned()]).map(|name| own(&name).is_not_null());
    let right = LogicalPlanBuilder::from(right).project(of_the_right)?;
    let right = match conjunction(known) {
        Some(known) => right.filter(known)?,
        None => right,
    };
    let both = LogicalPlanBuilder::from(left).project(of_the_left)?.union(right.build()?)?;

    let mut order = vec![own(TIME).sort(condition.is_before, true), own(SIDE).sort(true, true)];
    for (at, (_, field)) in right_schema.iter().enumerate() {
        if !field.data_type().is_nested() {
            order.push(part(at).sort(true, true));
        }
    }
    let frame = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::CurrentRow,
    );
    let definition = WindowFunctionDefinition::WindowUDF(last_value_udwf());
    let last = Expr::from(WindowFunction::new(definition, vec![own(RIGHT)]))
        .partition_by((0..keys.len()).map(|at| own(&key(at))).collect())
        .order_by(order)
        .window_frame(frame)
        .null_treatment(NullTreatment::IgnoreNulls)
        .build()?;
    let name = last.schema_name().to_string();
    let mut kept = own(SIDE).eq(lit(left_side));
    if !is_left {
        kept = kept.and(own(FOUND).is_not_null());
    }
    let mut columns: Vec<Expr> =
        (0..left_schema.fields().len()).map(|at| own(&of_left(at))).collect();
    columns.push(own(SIDE));
    columns.push(Expr::Column(Column::new_unqualified(name)).alias(FOUND));
    let rows = both.window([last])?.project(columns)?.filter(kept)?;

    let mut columns = Vec::new();
    for (at, (qualifier, field)) in left_schema.iter().enumerate() {
        columns.push(own(&of_left(at)).alias_qualified(qualifier.cloned(), field.name()));
    }
    for (at, (qualifier, field)) in right_schema.iter().enumerate() {
        let call = vec![own(FOUND), lit(of_right(at))];
        let value = Expr::ScalarFunction(ScalarFunction::new_udf(get_field(), call));
        columns.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    let made = rows.project(columns)?.build()?;
    match made.schema().fields().len() == join.schema.fields().len() {
        true => Ok(made),
        false => internal_err!("an ASOF JOIN lost columns"),
    }
}

/// A column of the right side in the rows of both.
fn part(at: usize) -> Expr {
    let call = vec![own(RIGHT), lit(of_right(at))];
    Expr::ScalarFunction(ScalarFunction::new_udf(get_field(), call))
}
