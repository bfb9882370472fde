//! `list_reduce(list, (a, b) -> a + b, start)`: a lambda of two values that is folded along a list. A third
//! parameter of the lambda is the one-based position of the item `b` in the list.
//!
//! The lists of a batch are reduced together: the lambda is evaluated once for all first items, once for all
//! second items, and so on. Lists are sorted by length, longest first, so that the lists with an item left
//! are always the first rows. A batch costs as many evaluations as its longest list has items, over as many
//! rows as there are items in total.
//!
//! The lambda's first parameter has the type of its result. The planner finds that type by iteration: it
//! plans the lambda with the type of the start, then with the type of the result, and so on. `a + b` of
//! DECIMAL(10,2) needs one more digit at each step and ends at DECIMAL(38,2). A lambda such as `[a]`, whose
//! result type always differs from its parameter type, fails when it is first evaluated.

use std::cmp::Reverse;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, UInt64Array, new_null_array};
use arrow::compute::{can_cast_types, cast_with_options, concat, take, take_arrays};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result as PlanResult, internal_err};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_ARRAY;
use datafusion_expr::{
    ColumnarValue, Documentation, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs,
    HigherOrderSignature, HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument,
    LambdaParametersProgress, ValueOrLambda, Volatility,
};
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};

use crate::closure_function::{is_text_type, usage_error};

/// Maximum number of types that the planner tries for the lambda's first parameter.
const PLANNING_STEPS_MAX: usize = 3;

/// The same maximum for a DECIMAL result, which gains a digit at each step.
const DECIMAL_PLANNING_STEPS_MAX: usize = 40;

/// Returns all higher-order functions of this crate.
pub(crate) fn functions() -> Vec<HigherOrderUDF> {
    vec![HigherOrderUDF::from(ListReduce::new())]
}

/// The function `list_reduce`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ListReduce {
    signature: HigherOrderSignature,
    aliases: Vec<String>,
}

impl ListReduce {
    fn new() -> Self {
        ListReduce {
            signature: HigherOrderSignature::user_defined(Volatility::Immutable),
            aliases: ["array_reduce", "reduce"].map(str::to_owned).to_vec(),
        }
    }
}

/// The arguments of a call in either order: the start may precede the lambda, as in Spark.
struct ReduceArguments<V, L> {
    list: V,
    function: L,
    start: Option<V>,
}

impl<V: Clone, L: Clone> ReduceArguments<V, L> {
    fn from_values_and_lambdas(args: &[ValueOrLambda<V, L>]) -> PlanResult<Self> {
        use ValueOrLambda::{Lambda, Value};
        let (list, function, start) = match args {
            [Value(list), Lambda(function)] => (list, function, None),
            [Value(list), Lambda(function), Value(start)]
            | [Value(list), Value(start), Lambda(function)] => (list, function, Some(start)),
            _ => return Err(wrong_arguments_error()),
        };
        Ok(ReduceArguments {
            list: list.clone(),
            function: function.clone(),
            start: start.cloned(),
        })
    }
}

fn wrong_arguments_error() -> datafusion_common::DataFusionError {
    usage_error(
        "`list_reduce` takes other arguments",
        "it is called as list_reduce(list, (a, b) -> a + b) or list_reduce(list, (a, b) -> a + b, start)",
    )
}

fn item_field(list: &DataType) -> PlanResult<&FieldRef> {
    match list {
        DataType::List(item) | DataType::LargeList(item) => Ok(item),
        other => Err(usage_error(
            format!("`list_reduce` takes a list, and this is a {}", sql_type_name(other)),
            "it is called as list_reduce(list, (a, b) -> a + b)",
        )),
    }
}

/// Checks that the first item of a list, or the start, casts to the result type of the lambda.
fn check_start_type(first: &DataType, answer: &DataType) -> PlanResult<()> {
    match first == answer || can_cast_types(first, answer) {
        true => Ok(()),
        false => Err(usage_error(
            format!(
                "the function of `list_reduce` answers {}, and begins with {}",
                sql_type_name(answer),
                sql_type_name(first)
            ),
            "a start has the type of the answer: list_reduce(list, (a, b) -> a + b.n, 0)",
        )),
    }
}

impl HigherOrderUDFImpl for ListReduce {
    fn name(&self) -> &str {
        "list_reduce"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        let Some((list, start)) = given.split_first().filter(|(_, start)| start.len() < 2) else {
            return Err(wrong_arguments_error());
        };
        let list = match list {
            DataType::FixedSizeList(item, _) | DataType::ListView(item) => {
                DataType::List(Arc::clone(item))
            }
            DataType::LargeListView(item) => DataType::LargeList(Arc::clone(item)),
            DataType::Null => DataType::new_list(DataType::Null, true),
            other => other.clone(),
        };
        item_field(&list)?;
        Ok(std::iter::once(list).chain(start.iter().cloned()).collect())
    }

    fn lambda_parameters(
        &self,
        step: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> PlanResult<LambdaParametersProgress> {
        let ReduceArguments { list, function, start } =
            ReduceArguments::from_values_and_lambdas(fields)?;
        let item = item_field(list.data_type())?;
        let first = start.as_ref().map_or(item.data_type(), |start| start.data_type());
        let parameters = |answer: &DataType| {
            vec![
                Arc::new(Field::new("a", answer.clone(), true)),
                Arc::new(item.as_ref().clone().with_nullable(true)),
                Arc::new(Field::new("i", DataType::Int64, true)),
            ]
        };
        let Some(answer) = function else {
            return Ok(LambdaParametersProgress::Partial(vec![Some(parameters(first))]));
        };
        let answer = answer.data_type();
        let steps =
            if answer.is_decimal() { DECIMAL_PLANNING_STEPS_MAX } else { PLANNING_STEPS_MAX };
        // At step 0 the lambda is already planned.
        let is_known = step == 0 || step >= steps || answer == first;
        Ok(match is_known {
            true => LambdaParametersProgress::Complete(vec![parameters(answer)]),
            false => LambdaParametersProgress::Partial(vec![Some(parameters(answer))]),
        })
    }

    fn coerce_values_for_lambdas(
        &self,
        fields: &[ValueOrLambda<DataType, DataType>],
    ) -> PlanResult<Option<Vec<DataType>>> {
        let ReduceArguments { list, function: answer, start } =
            ReduceArguments::from_values_and_lambdas(fields)?;
        let first = match &start {
            Some(start) => start.clone(),
            None => item_field(&list)?.data_type().clone(),
        };
        check_start_type(&first, &answer)?;
        Ok(Some(std::iter::once(list).chain(start.map(|_| answer)).collect()))
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs) -> PlanResult<FieldRef> {
        let ReduceArguments { list, function, start } =
            ReduceArguments::from_values_and_lambdas(args.arg_fields)?;
        let item = item_field(list.data_type())?;
        let first = start.as_ref().map_or(item.data_type(), |start| start.data_type());
        check_start_type(first, function.data_type())?;
        Ok(Arc::new(Field::new("", function.data_type().clone(), true)))
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> PlanResult<ColumnarValue> {
        let ReduceArguments { list, function, start } =
            ReduceArguments::from_values_and_lambdas(&args.args)?;
        let answer = args.return_field.data_type();
        let list = list.to_array(args.number_rows)?;
        let start = start.map(|start| start.to_array(args.number_rows)).transpose()?;
        Ok(ColumnarValue::Array(reduce_lists(&list, &function, start.as_ref(), answer)?))
    }

    fn documentation(&self) -> Option<&Documentation> {
        static TOLD: LazyLock<Documentation> = LazyLock::new(|| {
            Documentation::builder(
                DOC_SECTION_ARRAY,
                "Applies a function of two values along a list: to the first two items, then to the answer and the next item. \
                 A start stands before the first item. Null of an empty list without a start. A third parameter of the \
                 function is the place of the item.",
                "list_reduce(list, (a, b) -> a + b, start)",
            )
            .build()
        });
        Some(&TOLD)
    }
}

/// One list of a batch: its row and the position of its items.
struct ListRow {
    row: usize,
    first: usize,
    length: usize,
}

fn list_rows(lists: &ArrayRef) -> PlanResult<(ArrayRef, Vec<ListRow>)> {
    fn rows_of_offsets<O: Copy + TryInto<usize>>(
        offsets: &[O],
        is_valid: impl Fn(usize) -> bool,
    ) -> Vec<ListRow> {
        let place = |offset: O| offset.try_into().unwrap_or(0);
        let pairs = offsets.windows(2).enumerate().filter(|(row, _)| is_valid(*row));
        let rows = pairs.map(|(row, pair)| {
            let (first, end) = (place(pair[0]), place(pair[1]));
            ListRow { row, first, length: end.saturating_sub(first) }
        });
        rows.collect()
    }

    let is_valid = |row: usize| lists.is_valid(row);
    match lists.data_type() {
        DataType::List(_) => {
            let lists = lists.as_list::<i32>();
            Ok((Arc::clone(lists.values()), rows_of_offsets(lists.value_offsets(), is_valid)))
        }
        DataType::LargeList(_) => {
            let lists = lists.as_list::<i64>();
            Ok((Arc::clone(lists.values()), rows_of_offsets(lists.value_offsets(), is_valid)))
        }
        other => internal_err!("`list_reduce` of {other}"),
    }
}

fn reduce_lists(
    lists: &ArrayRef,
    function: &LambdaArgument,
    start: Option<&ArrayRef>,
    answer: &DataType,
) -> PlanResult<ArrayRef> {
    let typed = |values: ArrayRef| match values.data_type() == answer {
        true => Ok(values),
        false => cast_with_options(&values, answer, &STRICT_CAST_OPTIONS),
    };
    let (items, mut rows) = list_rows(lists)?;
    if start.is_none() {
        rows.retain(|row| row.length > 0);
    }
    rows.sort_by_key(|row| Reverse(row.length));
    let numbers = |rows: &[ListRow]| rows.iter().map(|row| row.row as u64).collect::<UInt64Array>();
    let mut step = 0;
    let mut reached = match start {
        Some(start) => typed(take(start, &numbers(&rows), None)?)?,
        None => {
            step = 1;
            let places: UInt64Array = rows.iter().map(|row| row.first as u64).collect();
            typed(take(&items, &places, None)?)?
        }
    };
    // The results of lists that have ended, in ascending order of length.
    let mut ended: Vec<ArrayRef> = Vec::new();
    loop {
        let count = rows.partition_point(|row| row.length > step);
        if count < reached.len() {
            ended.push(reached.slice(count, reached.len() - count));
        }
        if count == 0 {
            break;
        }
        let before = reached.slice(0, count);
        let places: UInt64Array =
            rows[..count].iter().map(|row| (row.first + step) as u64).collect();
        let next = take(&items, &places, None)?;
        let place = || -> PlanResult<ArrayRef> {
            let place = i64::try_from(step + 1).unwrap_or(i64::MAX);
            Ok(Arc::new(Int64Array::from_value(place, count)))
        };
        let made = function.evaluate(
            &[&|| Ok(Arc::clone(&before)), &|| Ok(Arc::clone(&next)), &place],
            |captures| Ok(take_arrays(captures, &numbers(&rows[..count]), None)?),
        )?;
        let made = made.into_array(count)?;
        if made.data_type() != answer && !(is_text_type(made.data_type()) && is_text_type(answer)) {
            return Err(usage_error(
                format!(
                    "the function of `list_reduce` takes {}, and answers {}",
                    sql_type_name(answer),
                    sql_type_name(made.data_type())
                ),
                "CAST gives it one type: list_reduce(list, (a, b) -> CAST(a * b AS DOUBLE))",
            ));
        }
        reached = typed(made)?;
        step += 1;
    }
    if ended.is_empty() {
        return Ok(new_null_array(answer, lists.len()));
    }
    let ended: Vec<&dyn Array> = ended.iter().rev().map(AsRef::as_ref).collect();
    let ended = concat(&ended)?;
    let mut places: Vec<Option<u64>> = vec![None; lists.len()];
    for (place, row) in rows.iter().enumerate() {
        places[row.row] = Some(place as u64);
    }
    Ok(take(&ended, &UInt64Array::from(places), None)?)
}
