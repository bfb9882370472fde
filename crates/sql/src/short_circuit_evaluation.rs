//! Short-circuit evaluation: conditions keep fallible expressions from rows for which they would fail.
//!
//! `n <> 0 AND 10 / n > 3` never divides by zero, nor does `CASE WHEN n = 0 THEN false ELSE 10 / n > 3 END`.
//! DataFusion computes both sides of AND and OR for a whole batch, unless hardly a row is left, and rewrites
//! a CASE of conditions as AND and OR. So the success of a query depended on its rows, and on whether its
//! source applied a condition.
//!
//! - [`CasePreservationRule`]: a boolean CASE with a fallible part stays a CASE, because its results are
//!   numbers while the plan is optimized. An aggregate's argument with a FILTER becomes a CASE too. A cast of
//!   a constant that fails within a CASE fails only when a row reaches it.
//! - [`ShortCircuitPlanner`]: after optimization, fallible conditions are evaluated only on the rows that all
//!   other conditions keep. A filter becomes two filters. Elsewhere, AND and OR become CASE, which evaluates
//!   a branch only on the rows that need it.

use std::sync::Arc;

use arrow::array::new_empty_array;
use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, disjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, Filter, LogicalPlan, Operator,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};

use tidemill_base::large_stack::{PLAN_STACK_BYTES, run_on_large_stack};
use tidemill_planning::{DynLogicalPlan, DynTreeNode};

use crate::in_lists;
use crate::opaque_casts::hide_casts_in_filters;
use tidemill_dialect::error_translation::{IntoTidemillError, into_datafusion_error};
use tidemill_planning::datafusion_names::scalars;
use tidemill_planning::plan_rewriting::{expression_input_schema, rewrite_all_expressions};

/// Functions that never fail, whatever their arguments.
const INFALLIBLE_FUNCTIONS: [&str; 35] = [
    scalars::ARRAY_HAS,
    scalars::ARRAY_LENGTH,
    scalars::BTRIM,
    scalars::CHARACTER_LENGTH,
    scalars::COALESCE,
    "comparable",
    scalars::CONCAT,
    scalars::CONTAINS,
    scalars::DATE_PART,
    "double",
    scalars::ENDS_WITH,
    scalars::GET_FIELD,
    scalars::GREATEST,
    "instant",
    scalars::ISNAN,
    scalars::ISZERO,
    scalars::LEAST,
    scalars::LEFT,
    scalars::LEVENSHTEIN,
    scalars::LOWER,
    scalars::LTRIM,
    scalars::MAKE_ARRAY,
    scalars::NULLIF,
    scalars::NVL,
    scalars::NVL2,
    scalars::OCTET_LENGTH,
    "place_of_float",
    scalars::RANDOM,
    scalars::REGEXP_LIKE,
    scalars::RIGHT,
    scalars::RTRIM,
    scalars::STARTS_WITH,
    scalars::STRPOS,
    scalars::UPPER,
    scalars::UUID,
];

/// Maximum depth of nested AND and OR that are rewritten where null differs from false. Deeper ones are
/// unchanged, because each rewrite duplicates its conditions. Volatile ones are unchanged too.
const GUARD_DEPTH_MAX: usize = 4;

/// Returns true if the evaluation of an expression can fail for some row.
fn can_fail(expr: &Expr, schema: &DFSchema) -> bool {
    let mut fails = |expr: &Expr| {
        Ok(match expr {
            Expr::Cast(cast) => {
                !is_infallible_cast(&cast.expr.get_type(schema)?, cast.field.data_type())
            }
            Expr::ScalarFunction(call) => !INFALLIBLE_FUNCTIONS.contains(&call.func.name()),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                is_arithmetic(*op)
                    && !(left.get_type(schema)?.is_floating()
                        && right.get_type(schema)?.is_floating())
            }
            Expr::Negative(value) => !value.get_type(schema)?.is_floating(),
            _ => false,
        })
    };
    expr.exists_dyn(&mut fails).unwrap_or(true)
}

fn is_arithmetic(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Plus
            | Operator::Minus
            | Operator::Multiply
            | Operator::Divide
            | Operator::Modulo
            | Operator::BitwiseShiftLeft
            | Operator::BitwiseShiftRight
    )
}

/// Returns true if a cast succeeds for every value of type `from`.
pub(crate) fn is_infallible_cast(from: &DataType, to: &DataType) -> bool {
    let is_text =
        |of: &DataType| matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let bits = |of: &DataType| of.primitive_width().map_or(0, |bytes| 8 * bytes);
    match (from, to) {
        _ if from == to || from.is_null() => true,
        (_, to) if is_text(to) => !from.is_nested() && !from.is_binary(),
        (from, to) if from.is_integer() && to.is_floating() => true,
        (from, to) if from.is_floating() && to.is_floating() => bits(from) <= bits(to),
        (from, to) if from.is_signed_integer() && to.is_signed_integer() => bits(from) <= bits(to),
        (from, to) if from.is_integer() && to.is_decimal() => match to {
            DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
                let digits = [3, 5, 10, 20][bits(from).ilog2() as usize - 3];
                i16::from(*precision) - i16::from(*scale) >= digits
            }
            _ => false,
        },
        (from, to) if from.is_decimal() && to.is_decimal() => match (from, to) {
            (
                DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale),
                DataType::Decimal128(wider, finer) | DataType::Decimal256(wider, finer),
            ) => {
                let (whole, wider) = (
                    i16::from(*precision) - i16::from(*scale),
                    i16::from(*wider) - i16::from(*finer),
                );
                whole <= wider && scale <= finer
            }
            _ => false,
        },
        (from, to) if from.is_decimal() && *to == DataType::Float64 => true,
        (from, to) if from.is_unsigned_integer() && to.is_integer() => match to.is_signed_integer()
        {
            true => bits(from) < bits(to),
            false => bits(from) <= bits(to),
        },
        _ => false,
    }
}

/// Keeps a fallible boolean CASE from being rewritten as AND and OR.
#[derive(Debug)]
pub(crate) struct CasePreservationRule;

impl AnalyzerRule for CasePreservationRule {
    fn name(&self) -> &'static str {
        "kept_cases"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        rewrite_all_expressions(plan, &preserve_cases)
    }
}

fn preserve_cases(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    match expr {
        Expr::AggregateFunction(mut call) => {
            let is_guarded = guard_filtered_arguments(
                &mut call.params.args,
                call.params.filter.as_deref(),
                schema,
            )?;
            Ok(Transformed::new_transformed(Expr::AggregateFunction(call), is_guarded))
        }
        Expr::WindowFunction(mut call) => {
            let params = &mut call.params;
            let is_guarded =
                guard_filtered_arguments(&mut params.args, params.filter.as_deref(), schema)?;
            Ok(Transformed::new_transformed(Expr::WindowFunction(call), is_guarded))
        }
        other => preserve_boolean_case(other, schema),
    }
}

/// Wraps the fallible arguments of a call with a FILTER in a CASE, so that they are evaluated only on the
/// rows that the filter selects. Returns true if there was one.
fn guard_filtered_arguments(
    args: &mut [Expr],
    filter: Option<&Expr>,
    schema: &DFSchema,
) -> PlanResult<bool> {
    // The rewrite would evaluate a volatile filter twice.
    let Some(filter) = filter.filter(|it| !it.is_volatile()) else { return Ok(false) };
    let mut is_guarded = false;
    for arg in args.iter_mut().filter(|arg| can_fail(arg, schema)) {
        is_guarded = true;
        let whens = vec![(Box::new(filter.clone()), Box::new(arg.clone()))];
        *arg = preserve_boolean_case(Expr::Case(Case::new(None, whens, None)), schema)?.data;
    }
    Ok(is_guarded)
}

fn preserve_boolean_case(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Expr::Case(mut case) = expr else { return Ok(Transformed::no(expr)) };
    let is_late = defer_failing_casts(&mut case)?;
    // The first condition is evaluated on every row.
    let later = case.when_then_expr.iter().enumerate().flat_map(|(at, (when, then))| {
        [Some(when).filter(|_| at > 0), Some(then)].into_iter().flatten()
    });
    let is_guard = later.chain(&case.else_expr).any(|it| can_fail(it, schema));
    let expr = Expr::Case(case);
    if !is_guard || expr.get_type(schema)? != DataType::Boolean {
        return Ok(Transformed::new_transformed(expr, is_late));
    }
    let Expr::Case(case) = expr else { return Ok(Transformed::no(expr)) };
    let number = |it: Box<Expr>| Box::new(Expr::Cast(Cast::new(it, DataType::Int8)));
    let answers = case.when_then_expr.into_iter().map(|(when, then)| (when, number(then)));
    let case = Case::new(case.expr, answers.collect(), case.else_expr.map(number));
    Ok(Transformed::yes(Expr::Case(case).eq(lit(1_i8))))
}

/// Defers failing casts of constants in the branches of a CASE. The optimizer would compute them at once, and
/// fail the query although no row may reach them. Returns true if there was one.
fn defer_failing_casts(case: &mut Case) -> PlanResult<bool> {
    let mut is_late = false;
    let mut settle = |part: &mut Expr| -> PlanResult<()> {
        let settled = std::mem::take(part).transform_down_dyn(&mut |expr| {
            let Expr::Cast(Cast { expr: of, field }) = &expr else {
                return Ok(Transformed::no(expr));
            };
            let to = field.data_type();
            match of.as_ref() {
                Expr::Literal(value, _) if value.cast_to(to).is_err() => {
                    let signature = Signature::any(1, Volatility::Immutable);
                    let function = Arc::new(ScalarUDF::from(DeferredCast {
                        target_type: to.clone(),
                        signature,
                    }));
                    let args = vec![of.as_ref().clone()];
                    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(
                        function, args,
                    ))))
                }
                _ => Ok(Transformed::no(expr)),
            }
        })?;
        is_late |= settled.transformed;
        *part = settled.data;
        Ok(())
    };
    for (at, (when, then)) in case.when_then_expr.iter_mut().enumerate() {
        if at > 0 {
            settle(when)?;
        }
        settle(then)?;
    }
    case.else_expr.iter_mut().try_for_each(|otherwise| settle(otherwise))?;
    Ok(is_late)
}

/// A function that casts a value only if there is a row to compute it for.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DeferredCast {
    target_type: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for DeferredCast {
    fn name(&self) -> &str {
        "late_cast"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.target_type.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match args.args.first() {
            Some(value) if args.number_rows > 0 => value.cast_to(&self.target_type, None),
            _ => Ok(ColumnarValue::Array(new_empty_array(&self.target_type))),
        }
    }
}

/// Plans fallible expressions above the conditions that drop rows.
#[derive(Debug)]
pub(crate) struct ShortCircuitPlanner;

#[async_trait]
impl QueryPlanner for ShortCircuitPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        state: &dyn Session,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::default();
        let compared = run_on_large_stack(PLAN_STACK_BYTES, || {
            in_lists::expand_computed_lists(plan.clone()).into_tidemill_error()
        });
        let plan = compared.map_err(into_datafusion_error)?;
        let hidden = run_on_large_stack(PLAN_STACK_BYTES, || {
            hide_casts_in_filters(plan).into_tidemill_error()
        });
        let plan = hidden.map_err(into_datafusion_error)?;
        if !needs_guards(&plan)? {
            return planner.create_physical_plan(&plan, state).await;
        }
        let rewrite = || {
            plan.clone()
                .transform_up_with_subqueries_dyn(&mut guard_node)
                .data()
                .into_tidemill_error()
        };
        let plan = run_on_large_stack(PLAN_STACK_BYTES, rewrite).map_err(into_datafusion_error)?;
        planner.create_physical_plan(&plan, state).await
    }
}

/// Returns true if a plan has fallible conditions.
fn needs_guards(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries_dyn(&mut |step| {
        let is_filter = matches!(step, LogicalPlan::Filter(_));
        let schema = expression_input_schema(step)?;
        step.apply_expressions_dyn(&mut |expr| {
            let mut joins = |expr: &Expr| {
                let op = match expr {
                    Expr::BinaryExpr(BinaryExpr { op, .. }) => *op,
                    _ => return Ok(false),
                };
                Ok(matches!(op, Operator::And | Operator::Or) && can_fail(expr, &schema))
            };
            found |= if is_filter { can_fail(expr, &schema) } else { expr.exists_dyn(&mut joins)? };
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

fn guard_node(plan: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    match plan {
        // A scan uses its filters only to skip parts of a file.
        LogicalPlan::TableScan(_) => Ok(Transformed::no(plan)),
        LogicalPlan::Filter(filter) => split_filter(filter),
        plan => {
            let schema = expression_input_schema(&plan)?;
            let names = NamePreserver::new(&plan);
            plan.map_expressions_dyn(&mut |expr| {
                let name = names.save(&expr);
                let expr = guard_preserving_null(expr, &schema, 0)?;
                Ok(expr.update_data(|expr| name.restore(expr)))
            })
        }
    }
}

/// Moves each fallible condition into a filter of its own above the other conditions, so that it is evaluated
/// only on the rows that the conditions below it keep.
fn split_filter(filter: Filter) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = filter.input.schema();
    let all = split_conjunction_owned(filter.predicate.clone());
    let (failing, others): (Vec<Expr>, Vec<Expr>) =
        all.into_iter().partition(|condition| can_fail(condition, schema));
    if failing.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let mut plan = Arc::clone(&filter.input);
    if let Some(others) = conjunction(others) {
        plan = Arc::new(LogicalPlan::Filter(Filter::new(others, plan)));
    }
    for condition in failing {
        let condition = guard_null_as_false(condition, plan.schema())?;
        plan = Arc::new(LogicalPlan::Filter(Filter::new(condition, plan)));
    }
    Ok(Transformed::yes(Arc::unwrap_or_clone(plan)))
}

/// Guards a condition for which null means the same as false.
fn guard_null_as_false(condition: Expr, schema: &DFSchema) -> PlanResult<Expr> {
    if !can_fail(&condition, schema) {
        return Ok(condition);
    }
    let (left, op, right) = match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            (*left, op, *right)
        }
        other => return Ok(guard_preserving_null(other, schema, 0)?.data),
    };
    let is_guarded = can_fail(&right, schema);
    let one = Box::new(guard_null_as_false(left, schema)?);
    let other = Box::new(guard_null_as_false(right, schema)?);
    if !is_guarded {
        return Ok(Expr::BinaryExpr(BinaryExpr::new(one, op, other)));
    }
    let (then, otherwise) = match op {
        Operator::And => (other, Box::new(lit(false))),
        _ => (Box::new(lit(true)), other),
    };
    Ok(Expr::Case(Case::new(None, vec![(one, then)], Some(otherwise))))
}

/// Guards AND and OR within an expression, with SQL's three-valued logic.
fn guard_preserving_null(
    expr: Expr,
    schema: &DFSchema,
    depth: usize,
) -> PlanResult<Transformed<Expr>> {
    let operator = match &expr {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => *op,
        _ => return expr.map_children(|expr| guard_preserving_null(expr, schema, depth)),
    };
    let mut all = Vec::new();
    flatten_operands(expr.clone(), operator, &mut all);
    // The infallible conditions come first, in whatever order the query has them.
    all.sort_by_key(|condition| can_fail(condition, schema));
    let guards = all.iter().skip(1).any(|condition| can_fail(condition, schema));
    if !guards || depth >= GUARD_DEPTH_MAX || expr.is_volatile() {
        return Ok(Transformed::no(expr));
    }
    let mut conditions = Vec::with_capacity(all.len());
    for condition in all {
        conditions.push(guard_preserving_null(condition, schema, depth + 1)?.data);
    }
    let (whens, otherwise): (Vec<_>, _) = match operator {
        Operator::And => {
            let is_false = |it: &Expr| (it.clone().is_false(), lit(false));
            (conditions.iter().map(is_false).collect(), conjunction(conditions))
        }
        _ => {
            let is_true = |it: &Expr| (it.clone(), lit(true));
            (conditions.iter().map(is_true).collect(), disjunction(conditions))
        }
    };
    let whens = whens.into_iter().map(|(when, then)| (Box::new(when), Box::new(then)));
    let otherwise = otherwise.unwrap_or(Expr::Literal(ScalarValue::Boolean(None), None));
    let case = Case::new(None, whens.collect(), Some(Box::new(otherwise)));
    Ok(Transformed::yes(Expr::Case(case)))
}

/// Collects the operands of a chain of one operator, from left to right.
fn flatten_operands(expr: Expr, operator: Operator, all: &mut Vec<Expr>) {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op == operator => {
            flatten_operands(*left, operator, all);
            flatten_operands(*right, operator, all);
        }
        other => all.push(other),
    }
}
