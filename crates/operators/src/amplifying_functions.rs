//! Functions whose output can be much larger than their input.
//!
//! `repeat(s, 10000)` turns 8,192 rows into more than any budget provides for. The arguments determine the
//! size of such an output before it is built. That has two uses:
//!
//! - Below an operator that calls one of these functions, batches are sliced into fewer rows, so that each
//!   call outputs little ([`expression_memory`](crate::expression_memory)).
//! - All of these functions except `string_to_array` refuse to output more than a part of the budget at once,
//!   wherever they are called, including constant folding. The items of `string_to_array` come from its text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait};
use arrow::compute::{cast, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
    simplify::{ExprSimplifyResult, SimplifyContext},
    sort_properties::{ExprProperties, SortProperties},
};
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use regex::Regex;
use tidemill_base::batch_compaction::visible_values_bytes;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::Error;
use tidemill_base::memory_budget::format_binary_bytes;
use tidemill_functions::sketches::id_set_len_upper_bounds;

use tidemill_planning::datafusion_names::scalars;
use tidemill_planning::error_carrier::into_datafusion_error;

/// A function whose output size follows from its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AmplifyingFunction {
    Repeat,
    Pad,
    Range,
    ArrayRepeat,
    ArrayResize,
    Replace,
    RegexpReplace,
    Concat,
    /// `concat_ws`: the separator may be long.
    ConcatWs,
    /// `array_to_string`: the separator may be long.
    ArrayToString,
    /// `string_to_array`: each item has a view of its own.
    StringToArray,
    /// `id_set_ids`, `id_set_union`: a stored set takes far fewer bytes than its numbers.
    IdSetItems,
    /// Functions of two sets, such as `id_set_merge(a, b)`: the memory for one row's sets is freed before the
    /// next row.
    IdSetPair,
    /// `equi_width_bins`: makes a list of up to twice the count from two numbers or times.
    EquiWidthBins,
    /// A constant of the given number of bytes that is a column of its own, such as `range(0, 20000)` after
    /// folding.
    ConstantColumn(u64),
}

impl AmplifyingFunction {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            scalars::REPEAT => AmplifyingFunction::Repeat,
            scalars::LPAD | scalars::RPAD => AmplifyingFunction::Pad,
            scalars::RANGE | scalars::GENERATE_SERIES => AmplifyingFunction::Range,
            scalars::ARRAY_REPEAT => AmplifyingFunction::ArrayRepeat,
            scalars::ARRAY_RESIZE => AmplifyingFunction::ArrayResize,
            scalars::REPLACE => AmplifyingFunction::Replace,
            scalars::REGEXP_REPLACE => AmplifyingFunction::RegexpReplace,
            scalars::CONCAT => AmplifyingFunction::Concat,
            scalars::CONCAT_WS => AmplifyingFunction::ConcatWs,
            scalars::ARRAY_TO_STRING => AmplifyingFunction::ArrayToString,
            scalars::STRING_TO_ARRAY | "string_split" => AmplifyingFunction::StringToArray,
            "id_set_ids" => AmplifyingFunction::IdSetItems,
            "equi_width_bins" => AmplifyingFunction::EquiWidthBins,
            "id_set_merge" | "id_set_common" | "id_set_difference" | "id_set_jaccard" => {
                AmplifyingFunction::IdSetPair
            }
            _ => return None,
        })
    }

    /// Returns the aggregate of that name if its memory for a row can exceed the size of its argument.
    pub(crate) fn from_aggregate_name(name: &str) -> Option<Self> {
        matches!(name, "id_set_union" | "id_set_intersection")
            .then_some(AmplifyingFunction::IdSetItems)
    }

    /// Returns the function and the arguments if the expression is a call of such a function.
    pub(crate) fn from_physical_expr(
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Option<(Self, Vec<Arc<dyn PhysicalExpr>>)> {
        if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
            let amplifier = AmplifyingFunction::from_name(call.fun().name());
            // A batch holds the output of only one row at a time.
            let amplifier =
                amplifier.filter(|amplifier| *amplifier != AmplifyingFunction::IdSetPair)?;
            return Some((amplifier, call.args().to_vec()));
        }
        let call = expr.downcast_ref::<BinaryExpr>()?;
        let is_concat = *call.op() == Operator::StringConcat;
        is_concat.then(|| {
            (AmplifyingFunction::Concat, vec![Arc::clone(call.left()), Arc::clone(call.right())])
        })
    }

    /// Returns the approximate number of bytes of each row's output. The value is an upper bound for
    /// functions whose output depends on matches in the text.
    pub(crate) fn estimate_row_bytes(self, args: &[ArrayRef], rows: usize) -> Vec<u64> {
        let integers = |index: usize| args.get(index).and_then(to_int64_array);
        let lengths = |index: usize| args.get(index).map(value_byte_lengths).unwrap_or_default();
        let at = |values: &[u64], row: usize| values.get(row).copied().unwrap_or(0);
        let count = |values: &Option<ArrayRef>, row: usize| -> u64 {
            let Some(values) = values else { return 0 };
            let values = values.as_primitive::<Int64Type>();
            if row >= values.len() || values.is_null(row) {
                return 0;
            }
            u64::try_from(values.value(row)).unwrap_or(0)
        };
        match self {
            AmplifyingFunction::Repeat => {
                let (texts, counts) = (lengths(0), integers(1));
                (0..rows).map(|row| at(&texts, row).saturating_mul(count(&counts, row))).collect()
            }
            AmplifyingFunction::Pad => {
                let (fill, counts) = (lengths(2), integers(1));
                // A character of the fill may have four bytes.
                let most = if fill.iter().all(|length| *length <= 1) { 1 } else { 4 };
                (0..rows).map(|row| count(&counts, row).saturating_mul(most)).collect()
            }
            AmplifyingFunction::Range => {
                (0..rows).map(|row| range_result_bytes(args, row)).collect()
            }
            AmplifyingFunction::ArrayRepeat => {
                let (items, counts) = (lengths(0), integers(1));
                let bytes = |row| (at(&items, row) + 8).saturating_mul(count(&counts, row));
                (0..rows).map(bytes).collect()
            }
            AmplifyingFunction::ArrayResize => {
                let (items, counts) = (lengths(2), integers(1));
                let bytes = |row| (at(&items, row) + 8).saturating_mul(count(&counts, row));
                (0..rows).map(bytes).collect()
            }
            AmplifyingFunction::Replace => {
                let (texts, from, to) = (lengths(0), lengths(1), lengths(2));
                let bytes = |row: usize| {
                    let (text, from, to) = (at(&texts, row), at(&from, row), at(&to, row));
                    // An empty text matches between every two characters.
                    let places = text.checked_div(from).unwrap_or(text + 1);
                    text.saturating_add(places.saturating_mul(to.saturating_sub(from)))
                };
                (0..rows).map(bytes).collect()
            }
            AmplifyingFunction::RegexpReplace => {
                let (texts, to) = (lengths(0), lengths(2));
                let bytes = |row: usize| {
                    let (text, to) = (at(&texts, row), at(&to, row));
                    // The pattern may match the empty text at each position. A captured group lies within the
                    // text, and a reference to it takes at least two characters.
                    text.saturating_mul(2 + to / 2).saturating_add((text + 1).saturating_mul(to))
                };
                (0..rows).map(bytes).collect()
            }
            AmplifyingFunction::Concat => {
                let mut bytes = vec![0; rows];
                for index in 0..args.len() {
                    for (sum, length) in bytes.iter_mut().zip(lengths(index)) {
                        *sum += length;
                    }
                }
                bytes
            }
            AmplifyingFunction::ConcatWs => {
                let between = lengths(0);
                let more = args.len().saturating_sub(2) as u64;
                let mut bytes: Vec<u64> =
                    (0..rows).map(|row| at(&between, row).saturating_mul(more)).collect();
                for index in 1..args.len() {
                    for (sum, length) in bytes.iter_mut().zip(lengths(index)) {
                        *sum = sum.saturating_add(length);
                    }
                }
                bytes
            }
            AmplifyingFunction::ArrayToString => {
                let items = args.first().map(item_counts).unwrap_or_default();
                let (lists, between, null) = (lengths(0), lengths(1), lengths(2));
                // A number of eight bytes has up to twenty digits.
                let bytes = |row: usize| {
                    let each = at(&between, row) + at(&null, row);
                    let more = each.saturating_mul(at(&items, row));
                    at(&lists, row).saturating_mul(3).saturating_add(more)
                };
                (0..rows).map(bytes).collect()
            }
            AmplifyingFunction::StringToArray => {
                let (texts, between) = (lengths(0), lengths(1));
                // Without a separator each character is an item.
                let items = |row: usize| at(&texts, row) / at(&between, row).max(1) + 1;
                (0..rows)
                    .map(|row| at(&texts, row) + TEXT_ITEM_OVERHEAD_BYTES * items(row))
                    .collect()
            }
            AmplifyingFunction::IdSetItems => {
                let lens = args.first().map(id_set_len_upper_bounds).unwrap_or_default();
                (0..rows).map(|row| 8 * at(&lens, row)).collect()
            }
            AmplifyingFunction::IdSetPair => {
                let lens =
                    |index: usize| args.get(index).map(id_set_len_upper_bounds).unwrap_or_default();
                let (left, right) = (lens(0), lens(1));
                (0..rows).map(|row| 8 * (at(&left, row) + at(&right, row))).collect()
            }
            AmplifyingFunction::EquiWidthBins => {
                let counts = integers(2);
                (0..rows).map(|row| count(&counts, row).min(EQUI_WIDTH_BINS_MAX) * 2 * 8).collect()
            }
            AmplifyingFunction::ConstantColumn(bytes) => vec![bytes; rows],
        }
    }
}

/// Maximum number of bins of `equi_width_bins`, which refuses more itself.
const EQUI_WIDTH_BINS_MAX: u64 = 10_000;

/// Bytes of an item in a list of texts in addition to its text.
pub(crate) const TEXT_ITEM_OVERHEAD_BYTES: u64 = 17;

/// Returns the number of items of each row's list. For nested lists it counts the items of the inner lists.
fn item_counts(array: &ArrayRef) -> Vec<u64> {
    fn counts_from_offsets<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Vec<u64> {
        let offsets = lists.offsets().windows(2).map(|two| two[0].as_usize()..two[1].as_usize());
        match lists.values().data_type() {
            DataType::List(_) | DataType::LargeList(_) => {
                let within = item_counts(lists.values());
                offsets.map(|items| within[items].iter().sum()).collect()
            }
            _ => offsets.map(|items| items.len() as u64).collect(),
        }
    }
    match array.data_type() {
        DataType::List(_) => counts_from_offsets(array.as_list::<i32>()),
        DataType::LargeList(_) => counts_from_offsets(array.as_list::<i64>()),
        DataType::FixedSizeList(_, size) => {
            vec![u64::try_from(*size).unwrap_or(0); array.len()]
        }
        _ => vec![0; array.len()],
    }
}

/// Returns the approximate number of bytes of each row's value.
pub(crate) fn value_byte_lengths(array: &ArrayRef) -> Vec<u64> {
    fn text_lengths<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Vec<u64> {
        values.map(|value| value.map_or(0, |value| value.len() as u64)).collect()
    }
    match array.data_type() {
        DataType::Utf8 => text_lengths(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => text_lengths(array.as_string::<i64>().iter()),
        DataType::Utf8View => text_lengths(array.as_string_view().iter()),
        _ => {
            let mean = (visible_values_bytes(array) / array.len().max(1)) as u64;
            vec![mean; array.len()]
        }
    }
}

fn to_int64_array(array: &ArrayRef) -> Option<ArrayRef> {
    match array.data_type() {
        DataType::Int64 => Some(Arc::clone(array)),
        integer if integer.is_integer() => cast(array, &DataType::Int64).ok(),
        _ => None,
    }
}

const DAY_NANOS: i128 = 86_400_000_000_000;

/// Returns the bytes of one row's output of `range` or `generate_series`: eight for each number.
fn range_result_bytes(args: &[ArrayRef], row: usize) -> u64 {
    let points = |array: &ArrayRef| -> Option<i128> {
        if array.is_null(row) {
            return None;
        }
        let array = array.slice(row, 1);
        match array.data_type() {
            DataType::Timestamp(_, zone) => {
                let to = DataType::Timestamp(TimeUnit::Nanosecond, zone.clone());
                let value = cast(&cast(&array, &to).ok()?, &DataType::Int64).ok()?;
                Some(i128::from(value.as_primitive::<Int64Type>().value(0)))
            }
            DataType::Date32 | DataType::Date64 => {
                let days = cast(&array, &DataType::Date32).ok()?;
                let days = cast(&cast(&days, &DataType::Int32).ok()?, &DataType::Int64).ok()?;
                Some(i128::from(days.as_primitive::<Int64Type>().value(0)) * DAY_NANOS)
            }
            DataType::Interval(_) => {
                let to = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
                let value = cast(&array, &to).ok()?;
                let value = value.as_primitive::<IntervalMonthDayNanoType>().value(0);
                let days = i128::from(value.months) * 28 + i128::from(value.days);
                Some(days * DAY_NANOS + i128::from(value.nanoseconds))
            }
            _ => {
                let value = to_int64_array(&array)?;
                let value = value.as_primitive::<Int64Type>();
                value.is_valid(0).then(|| i128::from(value.value(0)))
            }
        }
    };
    let (start, stop, step) = match args {
        [stop] => (Some(0), points(stop), Some(1)),
        [start, stop] => (points(start), points(stop), Some(1)),
        [start, stop, step] => (points(start), points(stop), points(step)),
        _ => return 0,
    };
    let (Some(start), Some(stop), Some(step)) = (start, stop, step) else { return 0 };
    if step == 0 || (stop < start) != (step < 0) {
        return 0;
    }
    u64::try_from((stop - start) / step + 1).unwrap_or(u64::MAX).saturating_mul(8)
}

/// Checks that a timestamp fits nanoseconds. DataFusion computes series of timestamps in nanoseconds, and
/// returns NULL for timestamps outside their range.
///
/// # Errors
/// If the timestamp is out of the range of nanoseconds.
fn check_nanosecond_range(value: &ColumnarValue) -> PlanResult<()> {
    let DataType::Timestamp(_, zone) = value.data_type() else { return Ok(()) };
    let to = DataType::Timestamp(TimeUnit::Nanosecond, zone);
    let values = value.to_array(1)?;
    match cast_with_options(&values, &to, &STRICT_CAST_OPTIONS) {
        Ok(_) => Ok(()),
        Err(_) => Err(into_datafusion_error(Error::usage_with_hint(
            "a series of timestamps begins and ends between 1677-09-21 and 2262-04-11",
            "a series of dates has no such limits",
        ))),
    }
}

/// Returns the exact number of bytes of each row's `replace(text, from, to)`.
fn replace_result_bytes(args: &[ArrayRef]) -> PlanResult<Vec<u64>> {
    let texts = args.iter().map(|arg| Ok(cast(arg, &DataType::Utf8View)?));
    let texts = texts.collect::<PlanResult<Vec<_>>>()?;
    let [text, from, to] = texts.as_slice() else { return Ok(Vec::new()) };
    let (text, from, to) = (text.as_string_view(), from.as_string_view(), to.as_string_view());
    let rows = text.iter().zip(from).zip(to);
    let bytes = rows.map(|row| match row {
        ((Some(text), Some(from)), Some(to)) => {
            let places = text.matches(from).count();
            (text.len() - places * from.len() + places * to.len()) as u64
        }
        _ => 0,
    });
    Ok(bytes.collect())
}

/// Returns an upper bound of the bytes of each row's `regexp_replace(text, pattern, to, flags)`. A group that
/// `to` refers to lies within the match.
fn regexp_replace_result_bytes(args: &[ArrayRef]) -> PlanResult<Vec<u64>> {
    let texts = args.iter().map(|arg| Ok(cast(arg, &DataType::Utf8View)?));
    let texts = texts.collect::<PlanResult<Vec<_>>>()?;
    let [text, pattern, to, rest @ ..] = texts.as_slice() else { return Ok(Vec::new()) };
    let (text, pattern, to) =
        (text.as_string_view(), pattern.as_string_view(), to.as_string_view());
    let flags = rest.first().map(|flags| flags.as_string_view());
    let mut compiled: Option<(String, Regex)> = None;
    let mut bytes = Vec::with_capacity(text.len());
    for (row, text) in text.iter().enumerate() {
        let flags = flags.map(|flags| flags.is_valid(row).then(|| flags.value(row)));
        let known = (text, pattern.is_valid(row) && to.is_valid(row), flags.unwrap_or(Some("")));
        let (Some(text), true, Some(flags)) = known else {
            bytes.push(0);
            continue;
        };
        let (pattern, to) = (pattern.value(row), to.value(row));
        let others = flags.replace('g', "");
        let wanted = match others.as_str() {
            "" => pattern.to_owned(),
            _ => format!("(?{others}){pattern}"),
        };
        if compiled.as_ref().is_none_or(|(had, _)| *had != wanted) {
            // The function itself reports patterns that it does not support.
            let Ok(regex) = Regex::new(&wanted) else { return Ok(Vec::new()) };
            compiled = Some((wanted, regex));
        }
        let Some((_, regex)) = &compiled else { return Ok(Vec::new()) };
        let named = to.bytes().filter(|byte| matches!(byte, b'$' | b'\\')).count();
        let most = if flags.contains('g') { usize::MAX } else { 1 };
        let made = regex.find_iter(text).take(most).map(|found| to.len() + named * found.len());
        bytes.push(text.len() as u64 + made.map(|made| made as u64).sum::<u64>());
    }
    Ok(bytes)
}

/// An amplifying function with a limit on its output per call.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SizeLimitedFunction {
    inner: ScalarUDF,
    amplifying_function: AmplifyingFunction,
    result_bytes_max: u64,
}

/// Returns the amplifying functions of `all`, each with a limit for a run that has `memory_bytes`.
pub fn limit_amplifying_functions<'a>(
    all: impl Iterator<Item = &'a Arc<ScalarUDF>>,
    memory_bytes: u64,
) -> Vec<ScalarUDF> {
    let mut limited = Vec::new();
    for function in all {
        let Some(amplifier) = AmplifyingFunction::from_name(function.name()) else { continue };
        // The text of its items is that of its argument.
        if amplifier == AmplifyingFunction::StringToArray {
            continue;
        }
        let inner = function.as_ref().clone();
        let bytes_max = memory_bytes / 4;
        limited.push(ScalarUDF::new_from_impl(SizeLimitedFunction {
            inner,
            amplifying_function: amplifier,
            result_bytes_max: bytes_max,
        }));
    }
    limited
}

impl SizeLimitedFunction {
    fn check_result_size(&self, args: &ScalarFunctionArgs) -> PlanResult<()> {
        let rows = match args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_))) {
            true => 1,
            false => args.number_rows,
        };
        let arrays = args.args.iter().map(|arg| arg.to_array(rows));
        let arrays = arrays.collect::<PlanResult<Vec<_>>>()?;
        let sum = |sizes: Vec<u64>| sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
        let sizes = self.amplifying_function.estimate_row_bytes(&arrays, rows);
        let mut total = match self.amplifying_function {
            AmplifyingFunction::IdSetPair => sizes.into_iter().max().unwrap_or(0),
            _ => sum(sizes),
        };
        if total > self.result_bytes_max {
            // The estimate replaced every possible position; now count the actual matches.
            total = match self.amplifying_function {
                AmplifyingFunction::Replace => sum(replace_result_bytes(&arrays)?),
                AmplifyingFunction::RegexpReplace => sum(regexp_replace_result_bytes(&arrays)?),
                _ => total,
            };
        }
        if total <= self.result_bytes_max {
            return Ok(());
        }
        let of = match rows {
            _ if self.amplifying_function == AmplifyingFunction::IdSetPair => "two sets".to_owned(),
            1 => "one value".to_owned(),
            _ => format!("{rows} values"),
        };
        Err(into_datafusion_error(Error::MemoryBudgetTooSmall {
            message: format!(
                "out of memory: `{}` would make {of} of {}, more than a step may hold at once \
                 ({})",
                self.inner.name(),
                format_binary_bytes(total),
                format_binary_bytes(self.result_bytes_max),
            ),
            hint: Some("make it of fewer, or give --memory more: it may take a quarter".into()),
        }))
    }
}

/// Raises negative lengths to zero: DataFusion would allocate a negative length as a huge one.
fn clamp_negative_lengths(lengths: &mut ColumnarValue) {
    if let ColumnarValue::Array(array) = lengths
        && let Some(found) = array.as_primitive_opt::<Int64Type>()
    {
        *array = Arc::new(found.unary::<_, Int64Type>(|length| length.max(0)));
    }
}

impl ScalarUDFImpl for SizeLimitedFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        self.inner.inner().schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        self.inner.inner().return_type(arg_types)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = self.inner.inner().with_updated_config(config)?;
        let (amplifier, bytes_max) = (self.amplifying_function, self.result_bytes_max);
        Some(ScalarUDF::new_from_impl(SizeLimitedFunction {
            inner,
            amplifying_function: amplifier,
            result_bytes_max: bytes_max,
        }))
    }

    fn return_field_from_args(
        &self,
        args: ReturnFieldArgs,
    ) -> PlanResult<arrow::datatypes::FieldRef> {
        self.inner.inner().return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        self.check_result_size(&args)?;
        if self.amplifying_function == AmplifyingFunction::Range {
            args.args.iter().try_for_each(check_nanosecond_range)?;
        }
        if self.amplifying_function == AmplifyingFunction::Pad
            && let Some(length) = args.args.get_mut(1)
        {
            clamp_negative_lengths(length);
        }
        self.inner.inner().invoke_with_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> PlanResult<ExprSimplifyResult> {
        // `concat_ws` concatenates constants here, without a call of the limited function.
        if self.amplifying_function == AmplifyingFunction::ConcatWs
            && let Some(Expr::Literal(between, _)) = args.first()
            && (between.size() as u64).saturating_mul(args.len() as u64) > self.result_bytes_max
        {
            return Ok(ExprSimplifyResult::Original(args));
        }
        self.inner.inner().simplify(args, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner.inner().short_circuits()
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<SortProperties> {
        self.inner.inner().output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> PlanResult<bool> {
        self.inner.inner().preserves_lex_ordering(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.inner.inner().coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use arrow::array::{Int64Array, ListArray, RecordBatch, StringArray, StringViewArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;
    use datafusion::prelude::SessionContext;
    use tidemill_base::RunSettings;
    use tidemill_planning::plan_sql;

    use super::*;
    use tidemill_sql::{IntoTidemillError, session};

    pub(crate) fn open_test_session(memory_bytes: u64) -> SessionContext {
        let settings = RunSettings { threads: 1, ..RunSettings::new(memory_bytes) };
        session::open_session(32 << 20, &settings, Default::default()).unwrap()
    }

    /// Runs a query over `n` = 0 … 999 and `s`, texts of ten bytes, and returns its batches.
    pub(crate) fn run_test_query(sql: &str) -> Result<Vec<RecordBatch>, Error> {
        let context = open_test_session(64 << 20);
        let numbers = Int64Array::from_iter_values(0..1000);
        let texts = StringViewArray::from_iter_values((0..1000).map(|n| format!("{n:0>10}")));
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(numbers) as ArrayRef),
            ("s", Arc::new(texts)),
        ])
        .unwrap();
        context.register_batch("t", batch).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { plan_sql(&context, sql)?.collect().await }).into_tidemill_error()
    }

    #[test]
    fn result_sizes_are_estimated_from_arguments() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("ab"), None, Some("")]));
        let three = |values: [i64; 3]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        let same = |text: &str| Arc::new(StringArray::from(vec![text; 3])) as ArrayRef;
        for (amplifier, args, expected) in [
            (AmplifyingFunction::Repeat, vec![texts.clone(), three([3, 9, 9])], [6, 0, 0]),
            (AmplifyingFunction::Repeat, vec![texts.clone(), three([-3, 9, 9])], [0, 0, 0]),
            (AmplifyingFunction::Pad, vec![texts.clone(), three([100, 7, 0])], [100, 7, 0]),
            (AmplifyingFunction::Range, vec![three([0, 10, -5])], [8, 88, 0]),
            (AmplifyingFunction::Range, vec![three([5, 0, 0]), three([0, 10, 10])], [0, 88, 88]),
            (
                AmplifyingFunction::Range,
                vec![three([5, 0, 0]), three([0, 10, 10]), three([-1, 5, 0])],
                [48, 24, 0],
            ),
            (
                AmplifyingFunction::EquiWidthBins,
                vec![three([0, 0, 0]), three([9, 9, 9]), three([100, -1, 2_000_000])],
                [1_600, 0, 160_000],
            ),
            (AmplifyingFunction::Replace, vec![texts.clone(), same("a"), same("xyz")], [6, 0, 0]),
            (AmplifyingFunction::Concat, vec![texts.clone(), same("xyz")], [5, 3, 3]),
            (
                AmplifyingFunction::ConcatWs,
                vec![same("--"), texts.clone(), same("xyz"), texts.clone()],
                [11, 7, 7],
            ),
            (
                AmplifyingFunction::StringToArray,
                vec![texts.clone(), same("")],
                [2 + 3 * TEXT_ITEM_OVERHEAD_BYTES, 17, 17],
            ),
            (
                AmplifyingFunction::StringToArray,
                vec![texts.clone(), same("ab")],
                [2 + 2 * TEXT_ITEM_OVERHEAD_BYTES, 17, 17],
            ),
        ] {
            assert_eq!(amplifier.estimate_row_bytes(&args, 3), expected, "{amplifier:?}");
        }
    }

    #[test]
    fn regexp_replace_size_is_bounded_by_its_matches() {
        let texts =
            |values: [Option<&str>; 4]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
        let text = texts([Some("aXbx"), Some("aXbx"), None, Some("xx")]);
        let pattern = texts([Some("x"), Some("x"), Some("x"), Some("(x)(x)")]);
        let to = texts([Some("12345"), Some("12345"), Some("1"), Some("\\2-${1}")]);
        let flags = texts([Some("g"), Some("ig"), Some("g"), Some("i")]);
        let sizes = regexp_replace_result_bytes(&[text, pattern, to, flags]);
        assert_eq!(sizes.unwrap(), [4 + 5, 4 + 10, 0, 2 + 7 + 4]);
    }

    #[test]
    fn items_of_nested_lists_are_counted() {
        let numbers = |counts: [usize; 4]| {
            ListArray::from_iter_primitive::<Int64Type, _, _>(
                counts.into_iter().map(|count| Some((0..count as i64).map(Some))),
            )
        };
        let inner = numbers([3, 0, 5, 1]);
        let field = Field::new_list_field(inner.data_type().clone(), true);
        let offsets = OffsetBuffer::from_lengths([2, 0, 2]);
        let lists = ListArray::new(Arc::new(field), offsets, Arc::new(inner), None);
        let lists: ArrayRef = Arc::new(lists);
        assert_eq!(item_counts(&lists), [3, 0, 6]);
        assert_eq!(item_counts(&lists.slice(1, 2)), [0, 6]);
        let between: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1000); 3]));
        let sizes = AmplifyingFunction::ArrayToString.estimate_row_bytes(&[lists, between], 3);
        assert!(sizes[0] >= 3000 && sizes[0] < 4000 && sizes[2] >= 6000, "{sizes:?}");
    }

    #[test]
    fn value_above_a_quarter_of_the_budget_is_refused_with_its_size() {
        for (sql, expected) in [
            ("SELECT unnest(range(0, 1000000000))", "`range` would make one value of 7.5 GiB"),
            ("SELECT repeat('x', 10000000000)", "`repeat` would make one value of 9.3 GiB"),
            ("SELECT max(length(repeat(s, 3000000))) FROM t", "one value of 28.6 MiB"),
            ("SELECT lpad('x', 2000000000)", "`lpad` would make one value of"),
            ("SELECT array_repeat(1, 1000000000)", "`array_repeat` would make one value of"),
            (
                "SELECT length(array_to_string(range(0, 200000), repeat('x', 1000)))",
                "`array_to_string` would make one value of 195.3 MiB",
            ),
            (
                "SELECT length(replace(repeat('x', 1000000), 'x', repeat('y', 1000)))",
                "`replace` would make one value of 953.7 MiB",
            ),
        ] {
            let error = run_test_query(sql).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::MemoryBudgetTooSmall { .. }), "{sql}: {text}");
            assert!(text.contains(expected) && text.contains("\nhint: "), "{sql}: {text}");
        }
    }

    #[test]
    fn values_that_are_never_built_are_not_refused() {
        // The searched text does not occur.
        let sql = "SELECT length(replace(repeat('x', 1000000), 'z', repeat('y', 1000)))";
        assert_eq!(run_test_query(sql).unwrap()[0].num_rows(), 1);
        let sql = "SELECT sum(CASE WHEN n < 5 THEN length(repeat(s, n * n * n * 100)) END) FROM t";
        assert_eq!(run_test_query(sql).unwrap()[0].num_rows(), 1);
    }
}
