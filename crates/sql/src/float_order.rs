//! One order of floats: −0.0 equals 0.0, and a NaN equals any other NaN and is the largest value.
//!
//! Arrow's kernels compare floats by IEEE 754's total order, in which −0.0 is less than 0.0, and a NaN is
//! above or below all numbers by its sign (`0.0 / 0.0` has a sign on x86). [`FloatOrderRule`], the last of
//! the analyzer's rules, therefore normalizes every float that is compared, grouped, joined or sorted by: it
//! wraps the operands of comparisons and keys in the function `comparable`, and normalizes literals at once.
//! On normalized floats the total order is the order above, whichever kernel compares them.
//!
//! Values that only pass through are unchanged: a selected −0.0 keeps its sign. Keys, minima and maxima are
//! normalized, and so are list items that are compared with others.
//!
//! An integer that is cast to a float needs no normalization; nor does a float that is already normalized.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, FixedSizeListArray, GenericListArray, MapArray,
    OffsetSizeTrait, PrimitiveArray, StructArray,
};
use arrow::datatypes::{DataType, FieldRef, Float16Type, Float32Type, Float64Type, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as PlanResult, ScalarValue, exec_err};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Cast, ColumnarValue, Distinct, Expr, ExprSchemable, Filter, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, RecursiveQuery, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_planning::DynLogicalPlan;

use crate::nested_order;
use tidemill_planning::datafusion_names::{aggregates, scalars};
use tidemill_planning::plan_rewriting::{is_comparison_operator, rewrite_all_nodes};

/// Name of the normalizing function in plans. SQL cannot call it.
const COMPARABLE_FUNCTION: &str = "comparable";

/// Functions over lists and maps that compare their items.
const MEMBER_COMPARING_FUNCTIONS: [&str; 19] = [
    scalars::ARRAY_DISTINCT,
    scalars::ARRAY_EXCEPT,
    scalars::ARRAY_HAS,
    scalars::ARRAY_HAS_ALL,
    scalars::ARRAY_HAS_ANY,
    scalars::ARRAY_INTERSECT,
    scalars::ARRAY_MAX,
    scalars::ARRAY_MIN,
    scalars::ARRAY_POSITION,
    scalars::ARRAY_POSITIONS,
    scalars::ARRAY_REMOVE,
    scalars::ARRAY_REMOVE_ALL,
    scalars::ARRAY_REMOVE_N,
    scalars::ARRAY_REPLACE,
    scalars::ARRAY_REPLACE_ALL,
    scalars::ARRAY_REPLACE_N,
    scalars::ARRAY_SORT,
    scalars::ARRAY_UNION,
    scalars::MAP_EXTRACT,
];

/// Aggregates that compare their arguments. Our own aggregates normalize them themselves.
const COMPARING_AGGREGATES: [&str; 4] =
    [aggregates::MAX, aggregates::MEDIAN, aggregates::MIN, aggregates::PERCENTILE_CONT];

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// Returns true for float types, and for types that contain floats.
pub fn has_floats(of: &DataType) -> bool {
    match of {
        DataType::Dictionary(_, value) => has_floats(value),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => has_floats(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_floats(field.data_type())),
        other => other.is_floating(),
    }
}

/// Replaces −0.0 by 0.0, and each NaN by one NaN, also within lists, structs and maps.
pub fn normalize_floats(array: &ArrayRef) -> ArrayRef {
    macro_rules! floats {
        ($t:ty, $nan:expr, $zero:expr) => {{
            let values = array.as_primitive::<$t>();
            let settled: PrimitiveArray<$t> =
                values.unary(|value| if value.is_nan() { $nan } else { value + $zero });
            Arc::new(settled)
        }};
    }
    fn items<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> ArrayRef {
        let (field, offsets, values, nulls) = lists.clone().into_parts();
        Arc::new(GenericListArray::new(field, offsets, normalize_floats(&values), nulls))
    }
    fn structs(of: &StructArray) -> StructArray {
        let (fields, columns, nulls) = of.clone().into_parts();
        let columns = columns.iter().map(normalize_floats).collect();
        match fields.is_empty() {
            true => of.clone(),
            false => StructArray::new(fields, columns, nulls),
        }
    }
    if !has_floats(array.data_type()) {
        return Arc::clone(array);
    }
    match array.data_type() {
        DataType::Float64 => floats!(Float64Type, f64::NAN, 0.0),
        DataType::Float32 => floats!(Float32Type, f32::NAN, 0.0),
        DataType::Float16 => floats!(Float16Type, Half::NAN, Half::ZERO),
        DataType::List(_) => items::<i32>(array.as_list()),
        DataType::LargeList(_) => items::<i64>(array.as_list()),
        DataType::FixedSizeList(_, _) => {
            let lists = array.as_fixed_size_list();
            let (field, size, values, nulls) = lists.clone().into_parts();
            match size {
                0 => Arc::clone(array),
                _ => {
                    Arc::new(FixedSizeListArray::new(field, size, normalize_floats(&values), nulls))
                }
            }
        }
        DataType::Struct(_) => Arc::new(structs(array.as_struct())),
        DataType::Map(_, _) => {
            let (field, offsets, entries, nulls, is_sorted) = array.as_map().clone().into_parts();
            Arc::new(MapArray::new(field, offsets, structs(&entries), nulls, is_sorted))
        }
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            dictionary.with_values(normalize_floats(dictionary.values()))
        }
        _ => Arc::clone(array),
    }
}

/// Normalizes one value.
fn normalize_scalar(value: &ScalarValue) -> PlanResult<ScalarValue> {
    if value.is_null() || !has_floats(&value.data_type()) {
        return Ok(value.clone());
    }
    ScalarValue::try_from_array(&normalize_floats(&value.to_array()?), 0)
}

/// Returns an expression that normalizes the floats of `expr`.
fn normalize_expression(expr: Expr) -> PlanResult<Expr> {
    Ok(match expr {
        Expr::Literal(value, metadata) => Expr::Literal(normalize_scalar(&value)?, metadata),
        Expr::Alias(mut alias) => {
            *alias.expr = normalize_expression(*alias.expr)?;
            Expr::Alias(alias)
        }
        other => comparable_call(other),
    })
}

fn comparable_call(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::from(ComparableFunction::default())));
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![expr]))
}

/// Returns the argument of a `comparable` call; `None` for other expressions.
pub fn unwrap_comparable(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == COMPARABLE_FUNCTION => call.args.first(),
        _ => None,
    }
}

/// Returns true if the floats of an expression are certainly normalized.
fn is_normalized(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Alias(alias) => is_normalized(&alias.expr, schema),
        Expr::Cast(cast) => is_exact_number(&cast.expr, schema),
        Expr::TryCast(cast) => is_exact_number(&cast.expr, schema),
        other => unwrap_comparable(other).is_some(),
    }
}

fn is_exact_number(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|of| of.is_integer() || of.is_decimal())
}

/// Normalizes an operand or a key if it may contain floats that are not normalized.
fn normalize_operand(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    // An expression without a type here has none in the plan, and is refused there.
    let is_float = expr.get_type(schema).is_ok_and(|of| has_floats(&of));
    if !is_float || is_normalized(&expr, schema) {
        return Ok(Transformed::no(expr));
    }
    let settled = normalize_expression(expr.clone())?;
    let changed = settled != expr;
    Ok(Transformed::new_transformed(settled, changed))
}

/// Normalizes floats that are compared; see the module.
#[derive(Debug)]
pub struct FloatOrderRule;

impl AnalyzerRule for FloatOrderRule {
    fn name(&self) -> &str {
        "one_order_of_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        rewrite_all_nodes(plan, &normalize_compared_operands, normalize_keys)
    }
}

/// Normalizes the operands of an expression's own comparisons.
fn normalize_compared_operands(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let mut changed = false;
    let mut settle = |expr: Expr| -> PlanResult<Expr> {
        let settled = normalize_operand(expr, schema)?;
        changed |= settled.transformed;
        Ok(settled.data)
    };
    let mut boxed = |expr: Box<Expr>| -> PlanResult<Box<Expr>> { Ok(Box::new(settle(*expr)?)) };
    let expr = match expr {
        Expr::BinaryExpr(binary) if is_comparison_operator(binary.op) => {
            let (left, right) = (boxed(binary.left)?, boxed(binary.right)?);
            Expr::BinaryExpr(BinaryExpr::new(left, binary.op, right))
        }
        Expr::Between(mut between) => {
            between.expr = boxed(between.expr)?;
            between.low = boxed(between.low)?;
            between.high = boxed(between.high)?;
            Expr::Between(between)
        }
        Expr::InList(InList { expr, list, negated }) => {
            let expr = boxed(expr)?;
            let list = list.into_iter().map(settle).collect::<PlanResult<_>>()?;
            Expr::InList(InList { expr, list, negated })
        }
        Expr::Case(mut case) => {
            if let Some(of) = case.expr {
                case.expr = Some(boxed(of)?);
                for (when, _) in &mut case.when_then_expr {
                    *when = boxed(std::mem::take(when))?;
                }
            }
            Expr::Case(case)
        }
        Expr::InSubquery(mut found) => {
            found.expr = boxed(found.expr)?;
            changed |= normalize_subquery_rows(&mut found.subquery)?;
            Expr::InSubquery(found)
        }
        Expr::SetComparison(mut found) => {
            found.expr = boxed(found.expr)?;
            changed |= normalize_subquery_rows(&mut found.subquery)?;
            Expr::SetComparison(found)
        }
        Expr::ScalarFunction(mut function) => {
            let name = function.func.name();
            // A `nullif` that is still a call has a volatile argument.
            if matches!(name, scalars::GREATEST | scalars::LEAST | scalars::NULLIF)
                || MEMBER_COMPARING_FUNCTIONS.contains(&name)
            {
                let args = function.args.into_iter().map(settle);
                function.args = args.collect::<PlanResult<_>>()?;
            }
            Expr::ScalarFunction(function)
        }
        Expr::AggregateFunction(mut function) => {
            let compares = COMPARING_AGGREGATES.contains(&function.func.name());
            if compares || function.params.distinct {
                let args = function.params.args.into_iter().map(&mut settle);
                function.params.args = args.collect::<PlanResult<_>>()?;
            }
            for sort in &mut function.params.order_by {
                sort.expr = settle(std::mem::take(&mut sort.expr))?;
            }
            Expr::AggregateFunction(function)
        }
        Expr::WindowFunction(mut function) => {
            let compares = COMPARING_AGGREGATES.contains(&function.fun.name());
            let params = &mut function.params;
            let compares = compares || params.distinct;
            let args = params.args.iter_mut().filter(|_| compares);
            for key in args.chain(&mut params.partition_by) {
                *key = settle(std::mem::take(key))?;
            }
            for sort in &mut params.order_by {
                sort.expr = settle(std::mem::take(&mut sort.expr))?;
            }
            Expr::WindowFunction(function)
        }
        other => other,
    };
    Ok(Transformed::new_transformed(expr, changed))
}

/// Normalizes the rows of a subquery that a value is compared with. Returns true if the subquery changed.
fn normalize_subquery_rows(subquery: &mut Subquery) -> PlanResult<bool> {
    let settled = normalize_plan_rows(&subquery.subquery)?;
    let changed = settled.is_some();
    if let Some(settled) = settled {
        subquery.subquery = Arc::new(settled);
    }
    Ok(changed)
}

/// Normalizes the floats of a plan's rows; returns `None` if it has no floats.
///
/// The expression that normalizes a column never reads a column of the same name: when DataFusion turns the
/// subquery into a join, it would confuse the two.
fn normalize_plan_rows(plan: &LogicalPlan) -> PlanResult<Option<LogicalPlan>> {
    let schema = plan.schema();
    if !schema.fields().iter().any(|field| has_floats(field.data_type())) {
        return Ok(None);
    }
    let settled = |(index, value): (usize, Expr)| {
        let (qualifier, field) = schema.qualified_field(index);
        let value = value.unalias();
        let value = if has_floats(field.data_type()) { comparable_call(value) } else { value };
        value.alias_qualified(qualifier.cloned(), field.name())
    };
    if let LogicalPlan::Projection(projection) = plan {
        let columns = projection.expr.iter().cloned().enumerate().map(settled).collect();
        let plan = Projection::try_new(columns, Arc::clone(&projection.input))?;
        return Ok(Some(LogicalPlan::Projection(plan)));
    }
    let name = |index: usize| format!("row of comparison {index}");
    let columns = schema.columns().into_iter().enumerate();
    let renamed = columns.map(|(index, column)| Expr::Column(column).alias(name(index)));
    let columns = (0..schema.fields().len())
        .map(|index| (index, Expr::Column(Column::new_unqualified(name(index)))));
    let plan = LogicalPlanBuilder::from(plan.clone()).project(renamed.collect::<Vec<_>>())?;
    plan.project(columns.map(settled).collect::<Vec<_>>())?.build().map(Some)
}

/// Normalizes the keys of a plan node.
fn normalize_keys(plan: LogicalPlan, schema: &DFSchema) -> PlanResult<Transformed<LogicalPlan>> {
    let mut changed = false;
    let mut settle = |expr: &mut Expr, schema: &DFSchema| -> PlanResult<()> {
        let settled = normalize_operand(std::mem::take(expr), schema)?;
        changed |= settled.transformed;
        *expr = settled.data;
        Ok(())
    };
    let plan = match plan {
        LogicalPlan::Sort(mut sort) => {
            for key in &mut sort.expr {
                settle(&mut key.expr, schema)?;
            }
            LogicalPlan::Sort(sort)
        }
        LogicalPlan::Join(mut join) => {
            for (left, right) in &mut join.on {
                settle(left, join.left.schema())?;
                settle(right, join.right.schema())?;
            }
            LogicalPlan::Join(join)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let names = NamePreserver::new_for_projection();
            let mut group_expr = aggregate.group_expr.clone();
            for key in &mut group_expr {
                let mut named = |key: &mut Expr| -> PlanResult<()> {
                    let name = names.save(key);
                    settle(key, schema)?;
                    *key = name.restore(std::mem::take(key));
                    Ok(())
                };
                match key {
                    Expr::GroupingSet(sets) => grouping_set_keys(sets).try_for_each(named)?,
                    key => named(key)?,
                }
            }
            match changed {
                true => LogicalPlan::Aggregate(Aggregate::try_new_with_schema(
                    aggregate.input,
                    group_expr,
                    aggregate.aggr_expr,
                    aggregate.schema,
                )?),
                false => LogicalPlan::Aggregate(aggregate),
            }
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let settled = normalize_plan_rows(&input)?;
            changed = settled.is_some();
            LogicalPlan::Distinct(Distinct::All(settled.map_or(input, Arc::new)))
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            for key in &mut on.on_expr {
                settle(key, schema)?;
            }
            for key in on.sort_expr.iter_mut().flatten() {
                settle(&mut key.expr, schema)?;
            }
            LogicalPlan::Distinct(Distinct::On(on))
        }
        LogicalPlan::RecursiveQuery(query) if query.is_distinct => {
            let (first, next) = (
                normalize_plan_rows(&query.static_term)?,
                normalize_plan_rows(&query.recursive_term)?,
            );
            changed = first.is_some() || next.is_some();
            LogicalPlan::RecursiveQuery(RecursiveQuery {
                static_term: first.map_or(query.static_term, Arc::new),
                recursive_term: next.map_or(query.recursive_term, Arc::new),
                ..query
            })
        }
        LogicalPlan::Filter(filter) => return normalize_correlated_filter(filter),
        other => other,
    };
    Ok(Transformed::new_transformed(plan, changed))
}

fn grouping_set_keys(
    sets: &mut datafusion::logical_expr::GroupingSet,
) -> Box<dyn Iterator<Item = &mut Expr> + '_> {
    use datafusion::logical_expr::GroupingSet::{Cube, GroupingSets, Rollup};
    match sets {
        Cube(keys) | Rollup(keys) => Box::new(keys.iter_mut()),
        GroupingSets(sets) => Box::new(sets.iter_mut().flatten()),
    }
}

/// Normalizes a condition of a correlated subquery. The operand that is compared with the outer query must be
/// a column, because the subquery is then grouped by it. So a normalized column is projected as an additional
/// column.
fn normalize_correlated_filter(filter: Filter) -> PlanResult<Transformed<LogicalPlan>> {
    if !filter.predicate.contains_outer() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let mut added: Vec<Expr> = Vec::new();
    let mut conjuncts = split_conjunction_owned(filter.predicate.clone());
    for conjunct in &mut conjuncts {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = conjunct else {
            continue;
        };
        let has_outer = (left.contains_outer(), right.contains_outer());
        for (own, is_outer_set) in [(left, has_outer.1), (right, has_outer.0)] {
            let is_own = matches!(unwrap_comparable(own), Some(Expr::Column(_)));
            if is_own && is_outer_set {
                let place = added.iter().position(|known| known == own.as_ref());
                let place = place.unwrap_or_else(|| {
                    added.push(own.as_ref().clone());
                    added.len() - 1
                });
                **own = Expr::Column(Column::new_unqualified(added_column_name(place)));
            }
        }
    }
    let Some(predicate) = conjunction(conjuncts).filter(|_| !added.is_empty()) else {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    };
    let own = filter.input.schema().iter();
    let own: Vec<Expr> = own
        .map(|(qualifier, field)| Expr::Column(Column::new(qualifier.cloned(), field.name())))
        .collect();
    let added =
        added.into_iter().enumerate().map(|(place, expr)| expr.alias(added_column_name(place)));
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(filter.input))
        .project(own.iter().cloned().chain(added))?
        .filter(predicate)?
        .project(own)?
        .build()?;
    Ok(Transformed::yes(plan))
}

/// Returns the name of an additional column, which no column of a file has that SQL can name.
fn added_column_name(place: usize) -> String {
    format!("\0{COMPARABLE_FUNCTION}_{place}")
}

/// Rewrites `min` and `max` of floats and of nested values in a plan that DataFusion executes.
///
/// DataFusion's accumulators compare floats as processors do, and ignore a NaN or everything except it. They
/// get integers in the order of the floats instead, and the sort keys of nested values
/// ([`nested_order`](crate::nested_order)). Our own aggregate tables do not need the rewrite of floats.
///
/// # Errors
/// The errors of DataFusion's plan builder.
pub fn rewrite_float_and_nested_extremes(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries_dyn(&mut |plan| rewrite_extremes(plan, true))?.data)
}

/// Rewrites `min` and `max` of nested values only, which our own aggregate tables compute over sort keys too.
///
/// # Errors
/// The errors of DataFusion's plan builder.
pub fn rewrite_nested_extremes(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries_dyn(&mut |plan| rewrite_extremes(plan, false))?.data)
}

fn rewrite_extremes(plan: LogicalPlan, of_floats: bool) -> PlanResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
    let inner = aggregate.input.schema();
    let mut changed = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut calls = Vec::with_capacity(aggregate.aggr_expr.len());
    for expr in &aggregate.aggr_expr {
        let name = expr.qualified_name().1;
        let call = match expr {
            Expr::Alias(alias) => alias.expr.as_ref(),
            other => other,
        };
        let call = match call {
            Expr::AggregateFunction(call)
                if matches!(call.func.name(), aggregates::MIN | aggregates::MAX) =>
            {
                call
            }
            _ => {
                changed.push(None);
                calls.push(expr.clone());
                continue;
            }
        };
        let of = match call.params.args.first() {
            Some(argument) => argument.get_type(inner)?,
            None => DataType::Null,
        };
        let is_nested = nested_order::is_sortable_nested_type(&of);
        if !(is_nested || of_floats && of.is_floating()) {
            changed.push(None);
            calls.push(expr.clone());
            continue;
        }
        let mut call = call.clone();
        for argument in &mut call.params.args {
            let own = std::mem::take(argument);
            *argument = match is_nested {
                true => nested_order::sort_key_expr(own),
                false => {
                    let float = own.cast_to(&DataType::Float64, inner)?;
                    Expr::ScalarFunction(ScalarFunction::new_udf(
                        ordered_integer_udf(true),
                        vec![float],
                    ))
                }
            };
        }
        calls.push(Expr::AggregateFunction(call).alias(name));
        changed.push(Some(of));
    }
    if changed.iter().all(Option::is_none) {
        return Ok(Transformed::no(plan));
    }
    let keys = aggregate.schema.fields().len() - calls.len();
    let input = Arc::clone(&aggregate.input);
    let ordered_groups = Aggregate::try_new(input, aggregate.group_expr.clone(), calls)?;
    let mut shown = Vec::with_capacity(aggregate.schema.fields().len());
    for (index, (qualifier, field)) in aggregate.schema.iter().enumerate() {
        let (from, column) = ordered_groups.schema.qualified_field(index);
        let column = Expr::Column(Column::new(from.cloned(), column.name()));
        let of = index.checked_sub(keys).and_then(|call| changed[call].as_ref());
        shown.push(match of {
            Some(of) if !of.is_floating() => {
                nested_order::value_from_sort_key_expr(column, of.clone())
                    .alias_qualified(qualifier.cloned(), field.name())
            }
            Some(of) => {
                let float = ScalarFunction::new_udf(ordered_integer_udf(false), vec![column]);
                let float = Expr::ScalarFunction(float);
                let float = match of {
                    DataType::Float64 => float,
                    other => Expr::Cast(Cast::new(Box::new(float), other.clone())),
                };
                float.alias_qualified(qualifier.cloned(), field.name())
            }
            None => column,
        });
    }
    // Uses the existing names: the planner gives a key and a cast of it one name, and refuses the duplicate.
    let groups = Arc::new(LogicalPlan::Aggregate(ordered_groups));
    let shown = Projection::try_new_with_schema(shown, groups, Arc::clone(&aggregate.schema))?;
    Ok(Transformed::yes(LogicalPlan::Projection(shown)))
}

fn ordered_integer_udf(is_key: bool) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(OrderedIntegerFunction { encodes_floats: is_key, signature }))
}

/// The function that maps floats to integers in the same order, and its inverse.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderedIntegerFunction {
    /// True for the mapping from floats to integers, false for the inverse.
    encodes_floats: bool,
    signature: Signature,
}

impl ScalarUDFImpl for OrderedIntegerFunction {
    fn name(&self) -> &str {
        if self.encodes_floats { "place_of_float" } else { "float_at_place" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(if self.encodes_floats { DataType::Int64 } else { DataType::Float64 })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        // Its own inverse: it flips all bits except the sign of negative floats.
        let turn = |bits: i64| if bits < 0 { bits ^ i64::MAX } else { bits };
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let Some(array) = arrays.first() else { return exec_err!("it takes one argument") };
        let turned: ArrayRef = match self.encodes_floats {
            true => {
                let floats = normalize_floats(array);
                let floats = floats.as_primitive::<Float64Type>();
                let places: PrimitiveArray<Int64Type> =
                    floats.unary(|value| turn(value.to_bits().cast_signed()));
                Arc::new(places)
            }
            false => {
                let places = array.as_primitive::<Int64Type>();
                let floats: PrimitiveArray<Float64Type> =
                    places.unary(|place| f64::from_bits(turn(place).cast_unsigned()));
                Arc::new(floats)
            }
        };
        Ok(ColumnarValue::Array(turned))
    }
}

/// The function that normalizes floats in plans.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ComparableFunction {
    signature: Signature,
}

impl Default for ComparableFunction {
    fn default() -> Self {
        ComparableFunction { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for ComparableFunction {
    fn name(&self) -> &str {
        COMPARABLE_FUNCTION
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        match arguments {
            [of] => Ok(of.clone()),
            _ => exec_err!("`{COMPARABLE_FUNCTION}` takes one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        match args.arg_fields {
            [of] => Ok(Arc::new(of.as_ref().clone().with_name(COMPARABLE_FUNCTION))),
            _ => exec_err!("`{COMPARABLE_FUNCTION}` takes one argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        match args.args.first() {
            Some(ColumnarValue::Array(array)) => Ok(ColumnarValue::Array(normalize_floats(array))),
            Some(ColumnarValue::Scalar(value)) => {
                Ok(ColumnarValue::Scalar(normalize_scalar(value)?))
            }
            None => exec_err!("`{COMPARABLE_FUNCTION}` takes one argument"),
        }
    }

    fn simplify(&self, mut args: Vec<Expr>, _: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        match args.pop() {
            Some(inner) if args.is_empty() && unwrap_comparable(&inner).is_some() => {
                Ok(ExprSimplifyResult::Simplified(inner))
            }
            last => Ok(ExprSimplifyResult::Original(args.into_iter().chain(last).collect())),
        }
    }
}
