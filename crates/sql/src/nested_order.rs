//! One order of lists, structs and maps: a null within a value is larger than any other item.
//!
//! Arrow's comparisons treat such a null as the smallest item, and its sorts put it where the nulls of the
//! column go, so that `max(x)` need not be the last of `ORDER BY x`. PostgreSQL and DuckDB have one order:
//! the first difference decides, and of two lists with the same beginning the shorter one is less. The
//! analyzer rule [`NestedOrderRule`] therefore replaces nested values in comparisons and sorts by bytes of
//! Arrow's row format, which have this order. It runs after floats are normalized
//! ([`float_order`](crate::float_order)). A smallest or largest value is decoded from its bytes.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, GenericListArray, OffsetSizeTrait, new_null_array,
};
use arrow::compute::{SortOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Distinct, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder,
    Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, Window,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;

use tidemill_planning::datafusion_names::{aggregates, scalars};
use tidemill_planning::plan_rewriting::{invoke_unary_function, rewrite_all_nodes};

/// An analyzer rule that compares and sorts nested values by their sort keys.
#[derive(Debug)]
pub(crate) struct NestedOrderRule;

impl AnalyzerRule for NestedOrderRule {
    fn name(&self) -> &'static str {
        "one_order_of_nested_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> PlanResult<LogicalPlan> {
        rewrite_all_nodes(plan, &rewrite_expression, rewrite_sorting_plan)
    }
}

/// Replaces nested values in a comparison by their sort keys.
fn rewrite_expression(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let type_of = |expr: &Expr| expr.get_type(schema).ok();
    let are_nested = |exprs: &[&Expr]| {
        let types: Option<Vec<DataType>> = exprs.iter().map(|expr| type_of(expr)).collect();
        types.is_some_and(|types| {
            is_sortable_nested_type(&types[0])
                && types.iter().all(|of| of.equals_datatype(&types[0]))
        })
    };
    let boxed = |expr: Box<Expr>| Box::new(sort_key_expr(*expr));
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq),
            right,
        }) if are_nested(&[&left, &right]) => {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(boxed(left), op, boxed(right))))
        }
        Expr::Between(mut within) if are_nested(&[&within.expr, &within.low, &within.high]) => {
            within.expr = boxed(within.expr);
            within.low = boxed(within.low);
            within.high = boxed(within.high);
            Transformed::yes(Expr::Between(within))
        }
        Expr::ScalarFunction(call) => rewrite_function(call, schema),
        Expr::AggregateFunction(mut call) => {
            let keyed = replace_by_sort_keys(
                call.params.order_by.iter_mut().map(|sort| &mut sort.expr),
                schema,
            );
            Transformed::new_transformed(Expr::AggregateFunction(call), keyed)
        }
        Expr::WindowFunction(mut call) => {
            let sorts = call.params.order_by.iter_mut().map(|sort| &mut sort.expr);
            let keyed = replace_by_sort_keys(sorts, schema);
            Transformed::new_transformed(Expr::WindowFunction(call), keyed)
        }
        other => Transformed::no(other),
    })
}

/// Makes a function that finds the smallest or largest value, or sorts, work on sort keys.
fn rewrite_function(mut call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let completed =
        call.func.name() == scalars::ARRAY_SORT && set_array_sort_nulls_last(&mut call.args);
    let first = call.args.first().and_then(|first| first.get_type(schema).ok());
    let unchanged = |call| Transformed::new_transformed(Expr::ScalarFunction(call), completed);
    let Some(first) = first else { return unchanged(call) };
    let item = match &first {
        DataType::List(item) | DataType::LargeList(item) => Some(item.data_type().clone()),
        _ => None,
    };
    let answer = match call.func.name() {
        scalars::ARRAY_HAS_ALL if call.args.len() == 2 => {
            return guard_null_lists(call, schema);
        }
        scalars::GREATEST | scalars::LEAST if is_sortable_nested_type(&first) => {
            call.args = call.args.into_iter().map(sort_key_expr).collect();
            first
        }
        scalars::ARRAY_SORT | scalars::ARRAY_MAX | scalars::ARRAY_MIN
            if item.as_ref().is_some_and(is_sortable_nested_type) =>
        {
            call.args[0] =
                sort_key_call(SortKeyTarget::ListItems, std::mem::take(&mut call.args[0]));
            match (call.func.name(), item) {
                (scalars::ARRAY_SORT, _) | (_, None) => first,
                (_, Some(item)) => item,
            }
        }
        _ => return unchanged(call),
    };
    Transformed::yes(value_from_sort_key_expr(Expr::ScalarFunction(call), answer))
}

/// Makes `array_has_all` null for null lists, like `array_has_any`; DataFusion returns true for them.
fn guard_null_lists(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let may_be_null = |list: &&Expr| list.nullable(schema).unwrap_or(true);
    let are_there = call.args.iter().filter(may_be_null).map(|list| list.clone().is_not_null());
    match are_there.reduce(Expr::and) {
        Some(are_there) => {
            let then = vec![(Box::new(are_there), Box::new(Expr::ScalarFunction(call)))];
            Transformed::yes(Expr::Case(Case::new(None, then, None)))
        }
        None => Transformed::no(Expr::ScalarFunction(call)),
    }
}

/// Adds NULLS LAST to an ascending `array_sort` that leaves the position of nulls open, because nulls are the
/// largest items. A descending one has them first already.
fn set_array_sort_nulls_last(args: &mut Vec<Expr>) -> bool {
    let text = |text: &str| Expr::Literal(ScalarValue::Utf8(Some(text.into())), None);
    let is_ascending = match args.as_slice() {
        [_] => true,
        [_, Expr::Literal(order, _)] => {
            order.try_as_str().flatten().is_some_and(|order| order.eq_ignore_ascii_case("asc"))
        }
        _ => false,
    };
    if is_ascending {
        args.truncate(1);
        args.extend([text("ASC"), text("NULLS LAST")]);
    }
    is_ascending
}

/// Replaces nested values by their sort keys in an operator that sorts.
fn rewrite_sorting_plan(
    plan: LogicalPlan,
    schema: &DFSchema,
) -> PlanResult<Transformed<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Sort(mut sort) => {
            let keyed =
                replace_by_sort_keys(sort.expr.iter_mut().map(|sort| &mut sort.expr), schema);
            Transformed::new_transformed(LogicalPlan::Sort(sort), keyed)
        }
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let sorts = on.sort_expr.iter_mut().flatten().map(|sort| &mut sort.expr);
            let keyed = replace_by_sort_keys(on.on_expr.iter_mut().chain(sorts), schema);
            Transformed::new_transformed(LogicalPlan::Distinct(Distinct::On(on)), keyed)
        }
        LogicalPlan::Window(window) => rewrite_window_extremes(window, schema)?,
        other => Transformed::no(other),
    })
}

/// Computes the smallest and largest values of windows from the smallest and largest sort keys.
fn rewrite_window_extremes(
    window: Window,
    schema: &DFSchema,
) -> PlanResult<Transformed<LogicalPlan>> {
    let before = Arc::clone(&window.schema);
    let own = window.input.schema().fields().len();
    let mut of: Vec<Option<DataType>> = vec![None; own];
    let mut calls = Vec::with_capacity(window.window_expr.len());
    for (index, expr) in window.window_expr.iter().enumerate() {
        let inner = match expr {
            Expr::Alias(alias) => alias.expr.as_ref(),
            other => other,
        };
        let argument = match inner {
            Expr::WindowFunction(call)
                if matches!(call.fun.name(), aggregates::MAX | aggregates::MIN) =>
            {
                call.params.args.first().and_then(|first| first.get_type(schema).ok())
            }
            _ => None,
        };
        let mut call = inner.clone();
        let found = argument.filter(is_sortable_nested_type);
        match (&mut call, &found) {
            (Expr::WindowFunction(function), Some(_)) => {
                replace_by_sort_keys(function.params.args.iter_mut().take(1), schema);
                calls.push(call.alias(before.field(own + index).name()));
            }
            _ => calls.push(expr.clone()),
        }
        of.push(found);
    }
    if of.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let keys = LogicalPlan::Window(Window::try_new(calls, window.input)?);
    let shown = restore_columns(&keys, &before, of);
    Ok(Transformed::yes(LogicalPlanBuilder::from(keys).project(shown)?.build()?))
}

/// Returns the columns of a plan under the names of `names`; a column with a type in `of` is decoded from its key.
fn restore_columns(plan: &LogicalPlan, names: &DFSchema, of: Vec<Option<DataType>>) -> Vec<Expr> {
    let columns = plan.schema().iter().zip(names.iter()).zip(of);
    let columns = columns.map(|(((from, field), (qualifier, name)), of)| {
        let column = Expr::Column(Column::new(from.cloned(), field.name()));
        match of {
            Some(of) => value_from_sort_key_expr(column, of)
                .alias_qualified(qualifier.cloned(), name.name()),
            None => column,
        }
    });
    columns.collect()
}

/// Replaces the nested values among expressions by their sort keys; returns whether there was one.
fn replace_by_sort_keys<'a>(exprs: impl Iterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let mut changed = false;
    for expr in exprs {
        if expr.get_type(schema).is_ok_and(|of| is_sortable_nested_type(&of)) {
            *expr = sort_key_expr(std::mem::take(expr));
            changed = true;
        }
    }
    changed
}

/// Returns whether a type is nested and its values have sort keys.
pub(crate) fn is_sortable_nested_type(of: &DataType) -> bool {
    let is_nested = matches!(
        of,
        DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(_, _)
            | DataType::Struct(_)
            | DataType::Map(_, _)
    );
    is_nested && RowConverter::supports_fields(&[SortField::new(of.clone())])
}

/// Returns an expression for the sort key of a nested value.
pub(crate) fn sort_key_expr(expr: Expr) -> Expr {
    sort_key_call(SortKeyTarget::Value, expr)
}

fn sort_key_call(keys: SortKeyTarget, expr: Expr) -> Expr {
    static FUNCTIONS: LazyLock<[Arc<ScalarUDF>; 2]> = LazyLock::new(|| {
        [SortKeyTarget::Value, SortKeyTarget::ListItems].map(|keys| {
            let signature = Signature::any(1, Volatility::Immutable);
            Arc::new(ScalarUDF::from(SortKeyFunction { target: keys, signature }))
        })
    });
    let [of_values, of_items] = &*FUNCTIONS;
    let function = match keys {
        SortKeyTarget::Value => of_values,
        SortKeyTarget::ListItems => of_items,
    };
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), vec![expr]))
}

/// Returns an expression that decodes a sort key to a value of type `of`, or a list of sort keys to a list.
pub(crate) fn value_from_sort_key_expr(key: Expr, of: DataType) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = Arc::new(ScalarUDF::from(FromSortKeyFunction { value_type: of, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![key]))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SortKeyTarget {
    Value,
    /// Each item of a list of nested values.
    ListItems,
}

/// The function `sort_key` or `sort_keys_of_items`, which encodes nested values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SortKeyFunction {
    target: SortKeyTarget,
    signature: Signature,
}

fn item_field(of: &Field, data_type: DataType) -> FieldRef {
    Arc::new(of.clone().with_data_type(data_type).with_nullable(true))
}

impl ScalarUDFImpl for SortKeyFunction {
    fn name(&self) -> &str {
        match self.target {
            SortKeyTarget::Value => "sort_key",
            SortKeyTarget::ListItems => "sort_keys_of_items",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> PlanResult<DataType> {
        Ok(match (self.target, arguments) {
            (SortKeyTarget::Value, [_]) => DataType::Binary,
            (SortKeyTarget::ListItems, [DataType::List(of)]) => {
                DataType::List(item_field(of, DataType::Binary))
            }
            (SortKeyTarget::ListItems, [DataType::LargeList(of)]) => {
                DataType::LargeList(item_field(of, DataType::Binary))
            }
            _ => return plan_err!("`{}` takes one list", self.name()),
        })
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        fn items<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> PlanResult<ArrayRef> {
            let (field, offsets, values, nulls) = lists.clone().into_parts();
            let field = item_field(&field, DataType::Binary);
            Ok(Arc::new(GenericListArray::try_new(
                field,
                offsets,
                encode_sort_keys(&values)?,
                nulls,
            )?))
        }
        invoke_unary_function(&args.args, |array| match (self.target, array.data_type()) {
            (SortKeyTarget::ListItems, DataType::List(_)) => items::<i32>(array.as_list()),
            (SortKeyTarget::ListItems, _) => items::<i64>(array.as_list()),
            (SortKeyTarget::Value, _) => encode_sort_keys(array),
        })
    }
}

fn row_converter(of: &DataType) -> PlanResult<RowConverter> {
    let options = SortOptions { descending: false, nulls_first: false };
    Ok(RowConverter::new(vec![SortField::new_with_options(of.clone(), options)])?)
}

fn encode_sort_keys(array: &ArrayRef) -> PlanResult<ArrayRef> {
    let rows = row_converter(array.data_type())?.convert_columns(&[Arc::clone(array)])?;
    let (offsets, bytes, _) = rows.try_into_binary()?.into_parts();
    Ok(Arc::new(BinaryArray::try_new(offsets, bytes, array.logical_nulls())?))
}

/// The function `of_sort_key`, which decodes sort keys.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FromSortKeyFunction {
    value_type: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for FromSortKeyFunction {
    fn name(&self) -> &str {
        "of_sort_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(self.value_type.clone())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        fn items<O: OffsetSizeTrait>(
            lists: &GenericListArray<O>,
            field: &FieldRef,
        ) -> PlanResult<ArrayRef> {
            let (_, offsets, keys, nulls) = lists.clone().into_parts();
            let values = decode_sort_keys(&keys, field.data_type())?;
            Ok(Arc::new(GenericListArray::try_new(Arc::clone(field), offsets, values, nulls)?))
        }
        invoke_unary_function(&args.args, |array| match (array.data_type(), &self.value_type) {
            (DataType::List(_), DataType::List(field)) => items::<i32>(array.as_list(), field),
            (DataType::LargeList(_), DataType::LargeList(field)) => {
                items::<i64>(array.as_list(), field)
            }
            (_, of) => decode_sort_keys(array, of),
        })
    }
}

fn decode_sort_keys(keys: &ArrayRef, of: &DataType) -> PlanResult<ArrayRef> {
    let keys = cast_with_options(keys, &DataType::Binary, &STRICT_CAST_OPTIONS)?;
    let converter = row_converter(of)?;
    // The bytes under a null may be lost; a valid null stands in for them.
    let null = converter.convert_columns(&[new_null_array(of, 1)])?;
    let parser = converter.parser();
    let rows = keys
        .as_binary::<i32>()
        .iter()
        .map(|key| parser.parse(key.unwrap_or_else(|| null.row(0).data())));
    let Some(found) = converter.convert_rows(rows)?.pop() else {
        return plan_err!("a key without a value");
    };
    // The row format decodes a dictionary to plain values.
    Ok(cast_with_options(&found, of, &STRICT_CAST_OPTIONS)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StructArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn sort_keys_keep_order_and_decode_to_values() {
        // In order: a list before its extensions, a null after all values.
        let lists = [
            Some(vec![]),
            Some(vec![Some(-1), None]),
            Some(vec![Some(1)]),
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(1), Some(2), Some(0)]),
            Some(vec![Some(1), None]),
            Some(vec![Some(2)]),
            Some(vec![None, Some(0)]),
            Some(vec![None, None]),
            None,
        ];
        let lists: ArrayRef =
            Arc::new(GenericListArray::<i32>::from_iter_primitive::<Int32Type, _, _>(lists));
        let keys = encode_sort_keys(&lists).unwrap();
        let found: Vec<Option<&[u8]>> = keys.as_binary::<i32>().iter().collect();
        assert!(found[..9].is_sorted_by(|one, other| one < other), "{found:?}");
        assert_eq!(found[9], None);
        assert_eq!(&decode_sort_keys(&keys, lists.data_type()).unwrap(), &lists);

        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
        let field = Arc::new(Field::new("a", DataType::Int32, true));
        let structs: ArrayRef = Arc::new(StructArray::from(vec![(field, numbers)]));
        let keys = encode_sort_keys(&structs).unwrap();
        let found: Vec<Option<&[u8]>> = keys.as_binary::<i32>().iter().collect();
        assert!(found[0] < found[2] && found[2] < found[1], "{found:?}");
        // A null without its bytes.
        let lost: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![found[0], None]));
        let again = decode_sort_keys(&lost, structs.data_type()).unwrap();
        assert!(again.is_null(1) && again.is_valid(0));
    }
}
