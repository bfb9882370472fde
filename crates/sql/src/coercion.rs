//! Coercion of operands of different types to a common type, where DataFusion's own choice loses values.
//!
//! DataFusion compares a DOUBLE with a DECIMAL as decimals with 15 places, so that 1e-20 is 0 and 1e26 an
//! error. It converts dates and times to nanoseconds, which end in 2262. A FLOAT beside a BIGINT has 24 bits
//! for 64. The analyzer rule [`CommonTypeRule`] visits each expression before DataFusion settles types, and
//! casts both operands where it has a better common type:
//!
//! | one side | other side | compared as | together in one column |
//! | --- | --- | --- | --- |
//! | DOUBLE, FLOAT | DECIMAL | DOUBLE, the decimal rounded to the nearest one | DOUBLE |
//! | a number with a point in the SQL | DECIMAL | that decimal | DOUBLE |
//! | FLOAT | an integer | DOUBLE | DOUBLE |
//! | DECIMAL | DECIMAL, an integer | a decimal wide enough for both | as in DataFusion; an error past 38 digits |
//! | DATE | TIMESTAMP | the timestamp's unit | the timestamp's type |
//! | TIMESTAMP | one of nanoseconds | instants, as wide integers | nanoseconds, or an error |
//! | TIME | TIME of another unit | the finer unit | the finer unit |
//! | BYTEA | a text that is written in the SQL | BYTEA | |
//!
//! `common_type` implements the table, and `time_casts` the casts to and of times.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as PlanResult, ScalarValue};
use datafusion::functions_nested::concat::array_concat_udf;
use datafusion::functions_nested::reverse::array_reverse_udf;
use datafusion::functions_nested::string::array_to_string_udf;
use datafusion::logical_expr::expr::{
    Between, Case, Cast, InList, InSubquery, NullTreatment, ScalarFunction, SetComparison, TryCast,
    WindowFunction,
};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    Union, Values, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use tidemill_base::column_types::sql_type_name;
use tidemill_base::error::Error;

use crate::common_type::{
    CommonType, align_time_zones, cast_if_needed, coerce_by_spelling, coerce_comparison,
    coerced_comparison_expr, common_column_type, common_column_type_of_all, comparison_type,
    is_interval_or_duration, overridden_column_type,
};
use crate::numeric_conversions::{DAY_NANOS, unit_nanoseconds};
use crate::replacement_functions::array_length;
use crate::time_casts::{is_time_to_integer_cast, rewrite_timestamp_cast, whole_seconds_or_days};
use crate::{bytea, date_functions, interval_parts, window_frames};
use tidemill_dialect::error_translation::into_datafusion_error;
use tidemill_planning::datafusion_names::{aggregates, scalars, windows};
use tidemill_planning::plan_rewriting::{
    is_comparison_operator, rewrite_all_nodes, schema_with_types,
};

/// Plans comparisons of times of day, and differences of times of two zones or units. In a select list the
/// planner asks for their type before any rule can settle it.
#[derive(Debug)]
pub(crate) struct TimeOperandPlanner;

impl ExprPlanner for TimeOperandPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        let operator = match expr.op {
            BinaryOperator::Eq => Operator::Eq,
            BinaryOperator::NotEq => Operator::NotEq,
            BinaryOperator::Lt => Operator::Lt,
            BinaryOperator::LtEq => Operator::LtEq,
            BinaryOperator::Gt => Operator::Gt,
            BinaryOperator::GtEq => Operator::GtEq,
            BinaryOperator::Spaceship => Operator::IsNotDistinctFrom,
            BinaryOperator::Minus => {
                return Ok(match align_subtraction_operands(&expr.left, &expr.right, schema) {
                    Some((left, right)) => {
                        let (left, right) = (Box::new(left), Box::new(right));
                        let difference = BinaryExpr::new(left, Operator::Minus, right);
                        PlannerResult::Planned(Expr::BinaryExpr(difference))
                    }
                    None => PlannerResult::Original(expr),
                });
            }
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let is_time = |expr: &Expr| {
            matches!(expr.get_type(schema), Ok(DataType::Time32(_) | DataType::Time64(_)))
        };
        if !is_time(&expr.left) || !is_time(&expr.right) {
            return Ok(PlannerResult::Original(expr));
        }
        let compared = coerced_comparison_expr(&expr.left, operator, &expr.right, schema);
        Ok(PlannerResult::Planned(compared))
    }
}

/// Casts operands to a common type before DataFusion does.
#[derive(Debug)]
pub(crate) struct CommonTypeRule;

impl AnalyzerRule for CommonTypeRule {
    fn name(&self) -> &str {
        "common_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        let types = |expr, schema: &DFSchema| {
            window_frames::rewrite_window_call(expr, schema)?
                .transform_data(|expr| coerce_expression(expr, schema))
        };
        rewrite_all_nodes(plan, &types, |plan, _| match plan {
            LogicalPlan::Union(union) => coerce_union_columns(union),
            LogicalPlan::Values(values) => align_values_time_units(values),
            LogicalPlan::Window(window) => window_frames::separate_null_key_frames(window),
            LogicalPlan::Distinct(Distinct::On(mut on)) => {
                // A repeated key has no effect on the order.
                let mut is_other = false;
                if let Some(keys) = &mut on.sort_expr {
                    let mut seen = Vec::new();
                    keys.retain(|key| {
                        let is_new = !seen.contains(&key.expr);
                        is_other |= !is_new;
                        seen.push(key.expr.clone());
                        is_new
                    });
                }
                let plan = LogicalPlan::Distinct(Distinct::On(on));
                Ok(Transformed::new_transformed(plan, is_other))
            }
            LogicalPlan::Join(mut join) => {
                let schemas = [join.left.schema().as_ref(), join.right.schema().as_ref()];
                let mut changed = false;
                for (left, right) in &mut join.on {
                    let types = [left.get_type(schemas[0])?, right.get_type(schemas[1])?];
                    refuse_date_with_number(&types)?;
                    bytea::refuse_mixed_bytes_and_text(&types)?;
                    if let Some(sides) = coerce_comparison(left, right, schemas) {
                        (*left, *right) = sides;
                        changed = true;
                    }
                }
                let join = LogicalPlan::Join(join);
                Ok(if changed { Transformed::yes(join) } else { Transformed::no(join) })
            }
            other => Ok(Transformed::no(other)),
        })
    }
}

/// Casts a column of times in VALUES to nanoseconds if one of its rows needs that unit.
fn align_values_time_units(mut values: Values) -> PlanResult<Transformed<LogicalPlan>> {
    let schema = Arc::clone(&values.schema);
    let mut types: Vec<DataType> =
        schema.fields().iter().map(|field| field.data_type().clone()).collect();
    let nothing = DFSchema::empty();
    for row in &values.values {
        for (value, to) in row.iter().zip(&mut types) {
            if let (DataType::Timestamp(_, _), own @ DataType::Timestamp(TimeUnit::Nanosecond, _)) =
                (&*to, value.get_type(&nothing)?)
            {
                *to = own;
            }
        }
    }
    let is_same = schema.fields().iter().zip(&types).all(|(field, to)| field.data_type() == to);
    if is_same {
        return Ok(Transformed::no(LogicalPlan::Values(values)));
    }
    for row in &mut values.values {
        for (value, to) in row.iter_mut().zip(&types) {
            if matches!(to, DataType::Timestamp(_, _)) && value.get_type(&nothing)? != *to {
                *value = cast_if_needed(std::mem::take(value), to, &nothing);
            }
        }
    }
    values.schema = schema_with_types(&schema, types)?;
    Ok(Transformed::yes(LogicalPlan::Values(values)))
}

/// Casts the columns of a UNION's branches to common types. For the other columns DataFusion chooses from the
/// types that the branches have by now.
fn coerce_union_columns(union: Union) -> PlanResult<Transformed<LogicalPlan>> {
    let width = union.schema.fields().len();
    if union.inputs.iter().any(|input| input.schema().fields().len() != width) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let types: Vec<Option<(DataType, bool)>> = (0..width)
        .map(|index| {
            let types = || union.inputs.iter().map(|input| input.schema().field(index).data_type());
            let is_text = |of: &DataType| of.is_string();
            match types().any(is_text) && !types().all(|of| is_text(of) || of.is_null()) {
                true => Some((DataType::Utf8, true)),
                false => common_column_type_of_all(types()),
            }
        })
        .collect();
    for index in 0..width {
        let types =
            union.inputs.iter().map(|input| input.schema().field(index).data_type().clone());
        refuse_date_with_number(&types.collect::<Vec<_>>())?;
    }
    let mut inputs = Vec::with_capacity(union.inputs.len());
    for input in &union.inputs {
        let schema = input.schema();
        let columns = schema.iter().zip(&types).map(|((qualifier, field), to)| {
            let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
            match to {
                Some((to, true)) if field.data_type() != to => cast_if_needed(column, to, schema)
                    .alias_qualified(qualifier.cloned(), field.name()),
                _ => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        inputs.push(match columns.iter().all(|column| matches!(column, Expr::Column(_))) {
            true => Arc::clone(input),
            false => {
                let input = LogicalPlanBuilder::from(Arc::clone(input));
                Arc::new(input.project(columns)?.build()?)
            }
        });
    }
    // The union still has the schema that its first branch had when it was planned. The operators above it
    // are settled next.
    let types = union.schema.fields().iter().zip(types);
    let types = types.map(|(field, to)| to.map_or_else(|| field.data_type().clone(), |to| to.0));
    let schema = schema_with_types(&union.schema, types)?;
    Ok(Transformed::yes(LogicalPlan::Union(Union { inputs, schema })))
}

/// Refuses expressions in which DataFusion would read a number as a day, the days since 1970.
fn refuse_numbers_as_days(expr: &Expr, schema: &DFSchema) -> PlanResult<()> {
    let beside: Vec<&Expr> = match expr {
        Expr::BinaryExpr(binary) if is_comparison_operator(binary.op) => {
            vec![&binary.left, &binary.right]
        }
        Expr::Between(between) => vec![&between.expr, &between.low, &between.high],
        Expr::InList(among) => std::iter::once(among.expr.as_ref()).chain(&among.list).collect(),
        Expr::Case(case) => case
            .when_then_expr
            .iter()
            .map(|(_, then)| then)
            .chain(&case.else_expr)
            .map(AsRef::as_ref)
            .collect(),
        Expr::ScalarFunction(call)
            if matches!(
                call.func.name(),
                scalars::COALESCE | scalars::NVL | scalars::GREATEST | scalars::LEAST
            ) =>
        {
            call.args.iter().collect()
        }
        Expr::WindowFunction(call) if matches!(call.fun.name(), windows::LAG | windows::LEAD) => {
            call.params.args.iter().step_by(2).collect()
        }
        Expr::InSubquery(InSubquery { expr, subquery, .. })
        | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
            let rows = subquery.subquery.schema().fields();
            let types = rows.iter().map(|field| field.data_type().clone());
            let types: Vec<_> = types.chain(expr.get_type(schema).ok()).collect();
            return refuse_date_with_number(&types);
        }
        _ => return Ok(()),
    };
    let types = beside.iter().filter_map(|expr| expr.get_type(schema).ok());
    refuse_date_with_number(&types.collect::<Vec<_>>())
}

fn refuse_date_with_number(types: &[DataType]) -> PlanResult<()> {
    let has_day = types.iter().any(|of| matches!(of, DataType::Date32 | DataType::Date64));
    match types.iter().find(|of| of.is_numeric()).filter(|_| has_day) {
        Some(number) => Err(into_datafusion_error(Error::usage_with_hint(
            format!("a DATE and a {} have nothing in common", sql_type_name(number)),
            "a day is written in quotes: DATE '2026-03-01'",
        ))),
        None => Ok(()),
    }
}

/// Casts a time to a finer type if an added interval is finer than the time's type, so that the type holds
/// the sum.
fn widen_time_for_interval(time: &Expr, by: &Expr, schema: &DFSchema) -> Option<Expr> {
    let microsecond = unit_nanoseconds(&TimeUnit::Microsecond);
    let (unit, zone) = match time.get_type(schema).ok()? {
        DataType::Date32 | DataType::Date64 => (DAY_NANOS, None),
        DataType::Timestamp(unit, zone) => (unit_nanoseconds(&unit), zone),
        _ => return None,
    };
    if !matches!(by.get_type(schema).ok()?, DataType::Interval(_)) {
        return None;
    }
    let finest = match by {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(by)), _) => by.nanoseconds.into(),
        Expr::Literal(ScalarValue::IntervalDayTime(Some(by)), _) => {
            i128::from(by.milliseconds) * unit_nanoseconds(&TimeUnit::Millisecond)
        }
        Expr::Literal(_, _) => 0,
        // An interval of unknown precision counts as microseconds.
        _ => microsecond,
    };
    if finest % unit == 0 {
        return None;
    }
    let unit = match finest % microsecond {
        0 => TimeUnit::Microsecond,
        _ => TimeUnit::Nanosecond,
    };
    Some(cast_if_needed(time.clone(), &DataType::Timestamp(unit, zone), schema))
}

fn coerce_expression(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let zoned = align_difference_zones(expr, schema);
    let was_brought = zoned.transformed;
    let mut done = coerce_operand_types(zoned.data, schema)?;
    done.transformed |= was_brought;
    Ok(done)
}

/// Casts both times of a difference to one zone, for the operator and for functions.
fn align_difference_zones(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => {
            let sides = align_subtraction_operands(&left, &right, schema);
            let changed = sides.is_some();
            let (left, right) = sides.unwrap_or((*left, *right));
            let difference = BinaryExpr::new(Box::new(left), Operator::Minus, Box::new(right));
            Transformed::new_transformed(Expr::BinaryExpr(difference), changed)
        }
        Expr::ScalarFunction(mut call) if is_difference_function(call.func.name()) => {
            let sides = match call.args.as_slice() {
                [.., left, right] => align_time_zones(left, right, schema),
                _ => None,
            };
            let Some((left, right)) = sides else {
                return Transformed::no(Expr::ScalarFunction(call));
            };
            call.args.truncate(call.args.len() - 2);
            call.args.extend([left, right]);
            Transformed::yes(Expr::ScalarFunction(call))
        }
        other => Transformed::no(other),
    }
}

/// Casts two times, at least one of which has a zone, to one zone and one unit. Returns `None` if they agree
/// already, or if they are no such times.
fn align_subtraction_operands(
    left: &Expr,
    right: &Expr,
    schema: &DFSchema,
) -> Option<(Expr, Expr)> {
    match align_time_zones(left, right, schema) {
        Some((left, right)) => {
            Some(align_time_units(&left, &right, schema).unwrap_or((left, right)))
        }
        None => align_time_units(left, right, schema),
    }
}

/// Casts the coarser of two times of one zone to the unit of the other: DataFusion subtracts no times with a
/// zone that have different units. Returns `None` if there is nothing to cast.
fn align_time_units(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<(Expr, Expr)> {
    let (one, other) = (left.get_type(schema).ok()?, right.get_type(schema).ok()?);
    let (DataType::Timestamp(unit, Some(zone)), DataType::Timestamp(other_unit, Some(_))) =
        (&one, &other)
    else {
        return None;
    };
    let finer = match unit_nanoseconds(unit).cmp(&unit_nanoseconds(other_unit)) {
        Ordering::Equal => return None,
        Ordering::Less => unit,
        Ordering::Greater => other_unit,
    };
    let to = DataType::Timestamp(*finer, Some(Arc::clone(zone)));
    Some((cast_if_needed(left.clone(), &to, schema), cast_if_needed(right.clone(), &to, schema)))
}

/// Returns true for functions that return the distance between their last two arguments.
fn is_difference_function(name: &str) -> bool {
    matches!(name, "age" | "date_diff" | "date_sub" | "months_between")
}

fn coerce_operand_types(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    refuse_numbers_as_days(&expr, schema)?;
    bytea::refuse_bytes_text_comparison(&expr, schema)?;
    if let Expr::BinaryExpr(BinaryExpr {
        left,
        op: op @ (Operator::Plus | Operator::Minus),
        right,
    }) = &expr
    {
        let sum = |left: Expr, right: Expr| {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(left), *op, Box::new(right)))
        };
        if let Some(time) = widen_time_for_interval(left, right, schema) {
            return Ok(Transformed::yes(sum(time, right.as_ref().clone())));
        }
        if let (Operator::Plus, Some(time)) = (op, widen_time_for_interval(right, left, schema)) {
            return Ok(Transformed::yes(sum(left.as_ref().clone(), time)));
        }
    }
    let types = |exprs: &[&Expr]| -> Option<Vec<DataType>> {
        exprs.iter().map(|expr| expr.get_type(schema).ok()).collect()
    };
    match expr {
        Expr::Cast(Cast { ref expr, ref field })
        | Expr::TryCast(TryCast { ref expr, ref field })
            if is_duration_to_number_cast(expr, field, schema) =>
        {
            Err(into_datafusion_error(Error::usage_with_hint(
                format!(
                    "a difference of two times is not cast to {}",
                    sql_type_name(field.data_type())
                ),
                "extract(epoch FROM b - a) is how many seconds it has, as a DOUBLE",
            )))
        }
        Expr::Cast(Cast { ref expr, ref field })
            if is_time_to_integer_cast(expr, field, schema)? =>
        {
            let whole = whole_seconds_or_days(expr.as_ref().clone(), schema)?;
            Ok(Transformed::yes(Expr::Cast(Cast::new(Box::new(whole), field.data_type().clone()))))
        }
        Expr::TryCast(TryCast { ref expr, ref field })
            if is_time_to_integer_cast(expr, field, schema)? =>
        {
            let whole = whole_seconds_or_days(expr.as_ref().clone(), schema)?;
            let to = field.data_type().clone();
            Ok(Transformed::yes(Expr::TryCast(TryCast::new(Box::new(whole), to))))
        }
        Expr::Cast(cast) => Ok(match rewrite_timestamp_cast(&cast.expr, &cast.field, schema)? {
            Some((value, to)) => Transformed::yes(Expr::Cast(Cast::new(Box::new(value), to))),
            None => Transformed::no(Expr::Cast(cast)),
        }),
        Expr::TryCast(cast) => Ok(match rewrite_timestamp_cast(&cast.expr, &cast.field, schema)? {
            Some((value, to)) => Transformed::yes(Expr::TryCast(TryCast::new(Box::new(value), to))),
            None => Transformed::no(Expr::TryCast(cast)),
        }),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison_operator(op) => {
            let sides = coerce_comparison(&left, &right, [schema, schema]);
            let changed = sides.is_some();
            let (left, right) = sides.unwrap_or((*left, *right));
            let both = BinaryExpr::new(Box::new(left), op, Box::new(right));
            let both = Expr::BinaryExpr(both);
            Ok(if changed { Transformed::yes(both) } else { Transformed::no(both) })
        }
        // Signed and unsigned integers have a decimal as common type, whose quotient has decimal places.
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right })
            if types(&[&left, &right]).is_some_and(|of| {
                of.contains(&DataType::UInt64) && of.iter().any(DataType::is_signed_integer)
            }) =>
        {
            let whole = DataType::Decimal128(20, 0);
            let (left, right) =
                (cast_if_needed(*left, &whole, schema), cast_if_needed(*right, &whole, schema));
            let operate = |left: Expr, operator, right: Expr| {
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
            };
            let rest = operate(left.clone(), Operator::Modulo, right.clone());
            let quotient = operate(operate(left, Operator::Minus, rest), Operator::Divide, right);
            Ok(Transformed::yes(Expr::Cast(Cast::new(Box::new(quotient), whole))))
        }
        // The difference of a date and a timestamp is in the timestamp's unit.
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => {
            let both = match (left.get_type(schema), right.get_type(schema)) {
                (Ok(one), Ok(other)) => common_column_type(&one, &other),
                _ => None,
            };
            let both = both.filter(|both| matches!(both, DataType::Timestamp(_, _)));
            let difference = |left, right| {
                Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::Minus, Box::new(right)))
            };
            Ok(match both {
                Some(to) => Transformed::yes(difference(
                    cast_if_needed(*left, &to, schema),
                    cast_if_needed(*right, &to, schema),
                )),
                None => Transformed::no(difference(*left, *right)),
            })
        }
        Expr::Like(like) => {
            bytea::refuse_bytes_in_like(&like, schema)?;
            Ok(Transformed::no(Expr::Like(like)))
        }
        Expr::AggregateFunction(call) => {
            bytea::refuse_bytes_in_string_agg(call.func.name(), &call.params.args, schema)?;
            Ok(Transformed::no(Expr::AggregateFunction(call)))
        }
        Expr::WindowFunction(call) if call.fun.name() == aggregates::STRING_AGG => {
            bytea::refuse_bytes_in_string_agg(call.fun.name(), &call.params.args, schema)?;
            Ok(Transformed::no(Expr::WindowFunction(call)))
        }
        Expr::Between(between) => Ok(coerce_between(between, schema)),
        Expr::InList(list) => Ok(coerce_in_list(list, schema)),
        Expr::InSubquery(among) => coerce_in_subquery(among, schema),
        Expr::SetComparison(of) => coerce_set_comparison(of, schema),
        Expr::Case(case) => Ok(coerce_case(case, schema)),
        Expr::WindowFunction(call)
            if matches!(call.fun.name(), windows::LAG | windows::LEAD)
                && matches!(call.params.args.get(1), Some(Expr::Literal(rows, _)) if rows.is_null()) =>
        {
            Err(into_datafusion_error(Error::usage_with_hint(
                format!("`{}` by null rows is of no row", call.fun.name()),
                "its second argument is a number of rows: lag(x, 1)",
            )))
        }
        // DataFusion's function drops the values after the first of several that are not null.
        Expr::WindowFunction(call)
            if call.params.null_treatment == Some(NullTreatment::IgnoreNulls)
                && rows_ahead(&call).is_some_and(|rows| rows > 1) =>
        {
            Err(into_datafusion_error(Error::usage_with_hint(
                "`lead` by more than one row takes no IGNORE NULLS",
                "lag(x, 2) IGNORE NULLS OVER (ORDER BY … DESC) is the same, from the other end",
            )))
        }
        // The default value is in the same column as the values.
        Expr::WindowFunction(mut call)
            if matches!(call.fun.name(), windows::LAG | windows::LEAD)
                && call.params.args.len() == 3 =>
        {
            let args = &mut call.params.args;
            let both = types(&[&args[0], &args[2]]).filter(|both| {
                both[0] != both[1] && both.iter().all(|of| of.is_numeric() || of.is_temporal())
            });
            let Some((to, _)) = both.and_then(|both| common_column_type_of_all(&both)) else {
                return Ok(Transformed::no(Expr::WindowFunction(call)));
            };
            for arg in [0, 2] {
                args[arg] = match std::mem::take(&mut args[arg]) {
                    Expr::Literal(value, metadata) => Expr::Literal(value.cast_to(&to)?, metadata),
                    other => cast_if_needed(other, &to, schema),
                };
            }
            Ok(Transformed::yes(Expr::WindowFunction(call)))
        }
        Expr::ScalarFunction(mut call) => match call.func.name() {
            // Counts are BIGINT.
            scalars::ARRAY_LENGTH | scalars::ARRAY_NDIMS | scalars::CARDINALITY => {
                let count = Box::new(Expr::ScalarFunction(call));
                Ok(Transformed::yes(Expr::Cast(Cast::new(count, DataType::Int64))))
            }
            // DataFusion's result has the argument's type, in which 9.99 may be the largest value.
            scalars::CEIL | scalars::FLOOR if call.args.len() == 1 => {
                match call.args[0].get_type(schema) {
                    Ok(DataType::Decimal128(precision, scale)) if scale > 0 && precision < 38 => {
                        let wider = DataType::Decimal128(precision + 1, scale);
                        let value = std::mem::take(&mut call.args[0]);
                        call.args[0] = Expr::Cast(Cast::new(Box::new(value), wider));
                        Ok(Transformed::yes(Expr::ScalarFunction(call)))
                    }
                    _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
                }
            }
            // DataFusion rewrites it to `3 IN (x, 2)`, which is null where `x` is null.
            scalars::ARRAY_HAS if call.args.len() == 2 && is_array_constructor(&call.args[0]) => {
                let is_null = call.args[1].clone().is_null();
                let found = Expr::ScalarFunction(call);
                let found = datafusion::functions::core::coalesce().call(vec![found, lit(false)]);
                let null = Expr::Literal(ScalarValue::Boolean(None), None);
                let when = vec![(Box::new(is_null), Box::new(null))];
                Ok(Transformed::yes(Expr::Case(Case::new(None, when, Some(Box::new(found))))))
            }
            // No list is that long, and DataFusion accepts no larger number.
            scalars::ARRAY_SLICE if ends_beyond_list_length_limit(call.args.get(2)) => {
                call.args[2] = lit(i64::from(i32::MAX));
                Ok(Transformed::yes(Expr::ScalarFunction(call)))
            }
            scalars::COALESCE | scalars::NVL | scalars::GREATEST | scalars::LEAST => {
                if let Some(args) = interval_parts::align_interval_units(&call.args, schema) {
                    call.args = args;
                    return Ok(Transformed::yes(Expr::ScalarFunction(call)));
                }
                let args: Vec<&Expr> = call.args.iter().collect();
                let Some(to) = types(&args).and_then(|types| overridden_column_type(&types)) else {
                    return Ok(Transformed::no(Expr::ScalarFunction(call)));
                };
                let args = std::mem::take(&mut call.args).into_iter();
                call.args = args.map(|arg| cast_if_needed(arg, &to, schema)).collect();
                Ok(Transformed::yes(Expr::ScalarFunction(call)))
            }
            // The number of places is a part of the result type. Without this cast it becomes a literal of
            // another type only after types are settled.
            scalars::ROUND
                if matches!(
                    call.args.get(1),
                    Some(Expr::Literal(ScalarValue::Int64(Some(_)), _))
                ) =>
            {
                let Expr::Literal(places, metadata) = call.args.remove(1) else {
                    return Err(into_datafusion_error(Error::Internal(
                        "`round` lost its places".into(),
                    )));
                };
                let places = places.cast_to(&DataType::Int32)?;
                call.args.push(Expr::Literal(places, metadata));
                Ok(Transformed::yes(Expr::ScalarFunction(call)))
            }
            scalars::TO_CHAR
                if call.args.first().is_some_and(|of| {
                    of.get_type(schema).is_ok_and(|of| is_interval_or_duration(&of))
                }) =>
            {
                Err(into_datafusion_error(Error::usage_with_hint(
                    "`to_char` has no format of intervals",
                    "extract(hour FROM b - a) and its like have their parts; CAST(b - a AS TEXT) is all of it",
                )))
            }
            scalars::DATE_PART => {
                Ok(match interval_parts::plan_interval_date_part(&call.args, schema)? {
                    Some(part) => Transformed::yes(part),
                    // `extract` is planned with another function object than the registered one.
                    None if call.func.as_ref() != date_functions::date_part_udf().as_ref() => {
                        call.func = date_functions::date_part_udf();
                        Transformed::yes(Expr::ScalarFunction(call))
                    }
                    None => Transformed::no(Expr::ScalarFunction(call)),
                })
            }
            // DataFusion's function requires one type for all three arguments.
            scalars::NVL2 if call.args.len() == 3 => {
                let mut args = std::mem::take(&mut call.args).into_iter().map(Box::new);
                let (Some(value), Some(then), otherwise) = (args.next(), args.next(), args.next())
                else {
                    return Err(into_datafusion_error(Error::Internal(
                        "`nvl2` lost its arguments".into(),
                    )));
                };
                let when = vec![(Box::new(Expr::IsNotNull(value)), then)];
                let case = coerce_case(Case::new(None, when, otherwise), schema).data;
                Ok(Transformed::yes(case))
            }
            // The result is the first value unchanged, whatever the type of the comparison.
            scalars::NULLIF if call.args.len() == 2 && !call.args[0].is_volatile() => {
                let is_equal =
                    coerced_comparison_expr(&call.args[0], Operator::Eq, &call.args[1], schema);
                let mut value = Box::new(call.args[0].clone());
                // Texts have the type of the call, because a reference from a subquery has recorded that
                // type.
                let own = value.get_type(schema)?;
                let of_call = Expr::ScalarFunction(call).get_type(schema)?;
                if own.is_string() && of_call.is_string() {
                    value = Box::new(cast_if_needed(*value, &of_call, schema));
                }
                let null = ScalarValue::try_from(value.get_type(schema)?)?;
                let then = Box::new(Expr::Literal(null, None));
                let when = vec![(Box::new(is_equal), then)];
                Ok(Transformed::yes(Expr::Case(Case::new(None, when, Some(value)))))
            }
            _ => resolve_list_arguments(call, schema),
        },
        other => Ok(Transformed::no(other)),
    }
}

fn ends_beyond_list_length_limit(end: Option<&Expr>) -> bool {
    let Some(Expr::Literal(end, _)) = end else { return false };
    match end {
        ScalarValue::Int64(Some(end)) => *end > i64::from(i32::MAX),
        ScalarValue::UInt64(Some(end)) => *end > u64::from(i32::MAX.unsigned_abs()),
        _ => false,
    }
}

fn is_array_constructor(list: &Expr) -> bool {
    matches!(list, Expr::ScalarFunction(call) if call.func.name() == scalars::MAKE_ARRAY)
}

/// Returns the number of rows ahead from which `lead`, or `lag` by a negative number, takes its value.
fn rows_ahead(call: &WindowFunction) -> Option<i64> {
    let rows = match call.params.args.get(1) {
        None => 1,
        Some(Expr::Literal(rows, _)) => match rows.cast_to(&DataType::Int64).ok()? {
            ScalarValue::Int64(rows) => rows?,
            _ => return None,
        },
        Some(_) => return None,
    };
    match call.fun.name() {
        windows::LEAD => Some(rows),
        windows::LAG => rows.checked_neg(),
        _ => None,
    }
}

fn is_duration_to_number_cast(value: &Expr, to: &FieldRef, schema: &DFSchema) -> bool {
    let is_difference = |of: DataType| matches!(of, DataType::Duration(_));
    to.data_type().is_numeric() && value.get_type(schema).is_ok_and(is_difference)
}

/// Resolves text functions whose arguments are lists to the list function of that name, if there is one.
/// DataFusion passes the list's text to the other ones.
///
/// # Errors
/// If there is no list function of that name and the function takes text.
fn resolve_list_arguments(
    mut call: ScalarFunction,
    schema: &DFSchema,
) -> PlanResult<Transformed<Expr>> {
    let of = call.args.iter().map(|arg| Ok(arg.to_field(schema)?.1));
    let Ok(of) = of.collect::<PlanResult<Vec<FieldRef>>>() else {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    };
    bytea::refuse_bytes_as_text_argument(&call, &of)?;
    let is_list = |of: &DataType| {
        matches!(of, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _))
    };
    let name = call.func.name();
    let is_alone = of.len() == 1 && is_list(of[0].data_type());
    let has_list = of.iter().any(|of| is_list(of.data_type()));
    let are_lists = of.iter().all(|of| is_list(of.data_type()) || of.data_type().is_null());
    let replaced = match name {
        scalars::CHARACTER_LENGTH if is_alone => Some(array_length()),
        scalars::REVERSE if is_alone => Some(array_reverse_udf()),
        scalars::CONCAT if has_list && are_lists => {
            // A null adds nothing to a list, and its type is no list.
            let lists = call.args.into_iter().zip(&of);
            let lists = lists.filter(|(_, of)| !of.data_type().is_null());
            call.args = lists.map(|(list, _)| list).collect();
            Some(array_concat_udf())
        }
        _ => None,
    };
    if let Some(function) = replaced {
        call.func = function;
        return Ok(Transformed::yes(Expr::ScalarFunction(call)));
    }
    // The items of a list are joined like other values; an empty list adds nothing.
    if name == scalars::CONCAT_WS && has_list {
        let Some((separator, values)) = call.args.split_first() else {
            return Ok(Transformed::no(Expr::ScalarFunction(call)));
        };
        let joined = values.iter().zip(of.iter().skip(1)).map(|(value, of)| {
            if !is_list(of.data_type()) {
                return value.clone();
            }
            let has_items = array_length().call(vec![value.clone()]).gt(lit(0));
            let text = array_to_string_udf().call(vec![value.clone(), separator.clone()]);
            Expr::Case(Case::new(None, vec![(Box::new(has_items), Box::new(text))], None))
        });
        call.args = std::iter::once(separator.clone()).chain(joined).collect();
        return Ok(Transformed::yes(Expr::ScalarFunction(call)));
    }
    let shown_as_they_are = [scalars::CONCAT, scalars::CONCAT_WS, scalars::TO_CHAR];
    let is_nested = |of: &FieldRef| of.data_type().is_nested();
    if !of.iter().any(is_nested) || shown_as_they_are.contains(&name) {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    // Calls with invalid arguments are reported when all types are settled.
    let Ok(taken) = fields_with_udf(&of, call.func.as_ref()) else {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    };
    let is_text =
        |of: &DataType| matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    match of.iter().zip(&taken).find(|(of, to)| is_nested(of) && is_text(to.data_type())) {
        Some((of, _)) => Err(into_datafusion_error(Error::usage_with_hint(
            format!("`{name}` takes text, and not {}", sql_type_name(of.data_type())),
            "array_to_string(list, ', ') makes text of a list, and CAST(x AS TEXT) of anything",
        ))),
        None => Ok(Transformed::no(Expr::ScalarFunction(call))),
    }
}

/// Rewrites BETWEEN as two comparisons if one of them needs a coercion.
fn coerce_between(between: Between, schema: &DFSchema) -> Transformed<Expr> {
    let needs = |bound: &Expr| coerce_comparison(&between.expr, bound, [schema, schema]).is_some();
    let is_mixed =
        has_incompatible_number_types([&*between.expr, &*between.low, &*between.high], schema);
    if !is_mixed && !needs(&between.low) && !needs(&between.high) {
        return Transformed::no(Expr::Between(between));
    }
    let compare =
        |operator, bound: &Expr| coerced_comparison_expr(&between.expr, operator, bound, schema);
    Transformed::yes(match between.negated {
        false => compare(Operator::GtEq, &between.low).and(compare(Operator::LtEq, &between.high)),
        true => compare(Operator::Lt, &between.low).or(compare(Operator::Gt, &between.high)),
    })
}

/// Coerces IN over values of other types: casts both sides if one cast suffices for all items, and otherwise
/// compares item by item.
fn coerce_in_list(list: InList, schema: &DFSchema) -> Transformed<Expr> {
    let Ok(own) = list.expr.get_type(schema) else {
        return Transformed::no(Expr::InList(list));
    };
    if let (Expr::Literal(_, _), true) = (list.expr.as_ref(), own.is_string()) {
        let mut types = list.list.iter().filter_map(|item| item.get_type(schema).ok());
        if let Some(value) = types.find_map(|of| bytea::text_literal_as_bytes(&list.expr, &of)) {
            let list = InList::new(Box::new(value), list.list, list.negated);
            return Transformed::yes(coerce_in_list(list, schema).data);
        }
    }
    let items: Vec<Expr> = list
        .list
        .iter()
        .map(|item| {
            let of = item.get_type(schema).ok();
            of.and_then(|of| coerce_by_spelling(item, &of, &own)).unwrap_or_else(|| item.clone())
        })
        .collect();
    let mut meetings: Vec<Option<CommonType>> = items
        .iter()
        .filter_map(|item| item.get_type(schema).ok().filter(|of| !of.is_null()))
        .map(|of| comparison_type(&own, &of))
        .collect();
    meetings.dedup();
    let is_mixed = has_incompatible_number_types(items.iter().chain([list.expr.as_ref()]), schema);
    match meetings.as_slice() {
        _ if is_mixed => expand_in_list(list, &items, schema),
        [] | [None] if items == list.list => Transformed::no(Expr::InList(list)),
        [] | [None] => Transformed::yes(Expr::InList(InList::new(list.expr, items, list.negated))),
        [Some(meeting)] => {
            let value = Box::new(meeting.coerce_operand(*list.expr, schema));
            let items = items.into_iter().map(|item| match item.get_type(schema) {
                Ok(of) if of.is_null() => item,
                _ => meeting.coerce_operand(item, schema),
            });
            Transformed::yes(Expr::InList(InList::new(value, items.collect(), list.negated)))
        }
        _ => expand_in_list(list, &items, schema),
    }
}

/// Rewrites IN as comparisons with each item.
fn expand_in_list(list: InList, items: &[Expr], schema: &DFSchema) -> Transformed<Expr> {
    let (one, and) = match list.negated {
        false => (Operator::Eq, Operator::Or),
        true => (Operator::NotEq, Operator::And),
    };
    let mut each: Vec<Expr> =
        items.iter().map(|item| coerced_comparison_expr(&list.expr, one, item, schema)).collect();
    // Builds a balanced tree: a chain would be as deep as the list is long.
    while each.len() > 1 {
        let pairs = each.chunks(2).map(|pair| match pair {
            [left, right] => Expr::BinaryExpr(BinaryExpr::new(
                Box::new(left.clone()),
                and,
                Box::new(right.clone()),
            )),
            rest => rest[0].clone(),
        });
        each = pairs.collect();
    }
    match each.pop() {
        Some(all) => Transformed::yes(all),
        None => Transformed::no(Expr::InList(list)),
    }
}

/// Returns true if no single type holds the values: floats together with decimals, or with integers whose
/// only common type is a decimal. DataFusion compares all of them as decimals with 15 places, but a pair as
/// DOUBLEs.
fn has_incompatible_number_types<'e>(
    values: impl IntoIterator<Item = &'e Expr>,
    schema: &DFSchema,
) -> bool {
    let types: Vec<DataType> =
        values.into_iter().filter_map(|value| value.get_type(schema).ok()).collect();
    let has = |is_of: &dyn Fn(&DataType) -> bool| types.iter().any(is_of);
    let has_integers =
        has(&|of| of == &DataType::UInt64) && has(&|of| DataType::is_signed_integer(of));
    has(&|of| DataType::is_floating(of)) && (has(&|of| DataType::is_decimal(of)) || has_integers)
}

/// Coerces IN over a subquery with values of another type.
fn coerce_in_subquery(among: InSubquery, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Some((value, subquery)) = coerce_value_and_subquery(&among.expr, &among.subquery, schema)?
    else {
        return Ok(Transformed::no(Expr::InSubquery(among)));
    };
    let among = InSubquery::new(Box::new(value), subquery, among.negated);
    Ok(Transformed::yes(Expr::InSubquery(among)))
}

/// Coerces ANY and ALL over a subquery with values of another type.
fn coerce_set_comparison(of: SetComparison, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Some((value, subquery)) = coerce_value_and_subquery(&of.expr, &of.subquery, schema)? else {
        return Ok(Transformed::no(Expr::SetComparison(of)));
    };
    let of = SetComparison::new(Box::new(value), subquery, of.op, of.quantifier);
    Ok(Transformed::yes(Expr::SetComparison(of)))
}

/// Casts a value and a subquery's rows to a common type; returns `None` if DataFusion's type is as good.
fn coerce_value_and_subquery(
    value: &Expr,
    subquery: &Subquery,
    schema: &DFSchema,
) -> PlanResult<Option<(Expr, Subquery)>> {
    let plan = &subquery.subquery;
    let (Ok(own), 1) = (value.get_type(schema), plan.schema().fields().len()) else {
        return Ok(None);
    };
    let (qualifier, field) = plan.schema().qualified_field(0);
    if let Some(bytes) = bytea::text_literal_as_bytes(value, field.data_type()) {
        return Ok(Some((bytes, subquery.clone())));
    }
    let Some(meeting) = comparison_type(&own, field.data_type()) else { return Ok(None) };
    let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
    let column = meeting.coerce_operand(column, plan.schema()).alias(field.name());
    let rows = LogicalPlanBuilder::from(Arc::clone(plan)).project(vec![column])?.build()?;
    let value = meeting.coerce_operand(value.clone(), schema);
    Ok(Some((value, subquery.with_plan(Arc::new(rows)))))
}

/// Casts the results of a CASE to one type, and compares its value as `=` does.
fn coerce_case(mut case: Case, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = false;
    if let Some(value) = &case.expr {
        let needs = |when: &Expr| coerce_comparison(value, when, [schema, schema]).is_some();
        let mut whens = case.when_then_expr.iter().map(|(when, _)| when.as_ref());
        let is_mixed = has_incompatible_number_types(whens.clone().chain([value.as_ref()]), schema);
        if !value.is_volatile() && (is_mixed || whens.any(needs)) {
            let value = value.as_ref().clone();
            for (when, _) in &mut case.when_then_expr {
                **when = coerced_comparison_expr(&value, Operator::Eq, when, schema);
            }
            case.expr = None;
            changed = true;
        }
    }
    let answers = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
    let types: Option<Vec<DataType>> = answers.map(|answer| answer.get_type(schema).ok()).collect();
    if let Some(to) = types.and_then(|types| overridden_column_type(&types)) {
        let answers = case.when_then_expr.iter_mut().map(|(_, then)| then);
        for answer in answers.chain(&mut case.else_expr) {
            **answer = cast_if_needed((**answer).clone(), &to, schema);
        }
        changed = true;
    }
    let case = Expr::Case(case);
    if changed { Transformed::yes(case) } else { Transformed::no(case) }
}
