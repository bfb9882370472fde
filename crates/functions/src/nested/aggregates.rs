//! Aggregates of a list's items: `list_aggregate(list, 'name')`, and functions such as `list_median`.
//!
//! Aggregates skip nulls among the items, except `first`, `last` and `list`. Items are compared in one order:
//! NaN is the largest number, and zeros are equal, within lists and structs too. Quantiles are those of
//! [`QuantileLevel`](tidemill_sketch::QuantileLevel).
//!
//! Statistics are calculated in DOUBLE from distances to the mean. Sums are rounded once, the mean has the
//! digits of two doubles, and distances are scaled by powers of two. Therefore neither a large mean nor very
//! large or small numbers cost digits.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, Float64Array, Int64Array,
    IntervalMonthDayNanoArray, LargeListArray, ListArray, MapArray, StringArray, StringBuilder,
    StructArray, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast_with_options, take};
use arrow::datatypes::{
    DataType, Field, Fields, Float32Type, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalUnit, TimeUnit, UInt64Type,
};
use arrow::row::{RowConverter, Rows as SortRows, SortField};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_ARRAY;
use datafusion_expr::{ColumnarValue, DocSection};
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_sketch::{FloatSum, QuantileLevel};

use super::sums::{ListSumOrMean, list_item_type};
use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, RowMapping, TextArgument, argument_array,
    internal_error, is_text_type, overflow_error, text_cast_type, usage_error,
    wrong_arguments_error,
};

/// An aggregate of the items of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ItemAggregate {
    First,
    Last,
    AnyValue,
    Minimum,
    Maximum,
    Mode,
    QuantileDisc,
    ItemList,
    Count,
    DistinctCount,
    CountIf,
    BoolAnd,
    BoolOr,
    BitAnd,
    BitOr,
    BitXor,
    Sum,
    Mean,
    FloatSum,
    FloatMean,
    Product,
    Median,
    MedianAbsoluteDeviation,
    QuantileCont,
    VarPop,
    VarSamp,
    StddevPop,
    StddevSamp,
    StandardError,
    Skewness,
    Kurtosis,
    KurtosisPop,
    Entropy,
    Histogram,
    JoinedText,
}

/// The names that `list_aggregate` accepts.
const AGGREGATES_BY_NAME: [(&str, ItemAggregate); 50] = [
    ("any_value", ItemAggregate::AnyValue),
    ("approx_count_distinct", ItemAggregate::DistinctCount),
    ("arbitrary", ItemAggregate::First),
    ("array_agg", ItemAggregate::ItemList),
    ("avg", ItemAggregate::Mean),
    ("bit_and", ItemAggregate::BitAnd),
    ("bit_or", ItemAggregate::BitOr),
    ("bit_xor", ItemAggregate::BitXor),
    ("bool_and", ItemAggregate::BoolAnd),
    ("bool_or", ItemAggregate::BoolOr),
    ("count", ItemAggregate::Count),
    ("count_distinct", ItemAggregate::DistinctCount),
    ("count_if", ItemAggregate::CountIf),
    ("countif", ItemAggregate::CountIf),
    ("entropy", ItemAggregate::Entropy),
    ("favg", ItemAggregate::FloatMean),
    ("first", ItemAggregate::First),
    ("fsum", ItemAggregate::FloatSum),
    ("group_concat", ItemAggregate::JoinedText),
    ("histogram", ItemAggregate::Histogram),
    ("kahan_sum", ItemAggregate::FloatSum),
    ("kurtosis", ItemAggregate::Kurtosis),
    ("kurtosis_pop", ItemAggregate::KurtosisPop),
    ("last", ItemAggregate::Last),
    ("list", ItemAggregate::ItemList),
    ("listagg", ItemAggregate::JoinedText),
    ("mad", ItemAggregate::MedianAbsoluteDeviation),
    ("max", ItemAggregate::Maximum),
    ("mean", ItemAggregate::Mean),
    ("median", ItemAggregate::Median),
    ("min", ItemAggregate::Minimum),
    ("mode", ItemAggregate::Mode),
    ("product", ItemAggregate::Product),
    ("quantile", ItemAggregate::QuantileDisc),
    ("quantile_cont", ItemAggregate::QuantileCont),
    ("quantile_disc", ItemAggregate::QuantileDisc),
    ("sem", ItemAggregate::StandardError),
    ("skewness", ItemAggregate::Skewness),
    ("stddev", ItemAggregate::StddevSamp),
    ("stddev_pop", ItemAggregate::StddevPop),
    ("stddev_samp", ItemAggregate::StddevSamp),
    ("string_agg", ItemAggregate::JoinedText),
    ("sum", ItemAggregate::Sum),
    ("sumkahan", ItemAggregate::FloatSum),
    ("uniq", ItemAggregate::DistinctCount),
    ("unique", ItemAggregate::DistinctCount),
    ("var_pop", ItemAggregate::VarPop),
    ("var_samp", ItemAggregate::VarSamp),
    ("variance", ItemAggregate::VarSamp),
    ("sum_no_overflow", ItemAggregate::Sum),
];

const HISTOGRAM_COUNT_TYPE: DataType = DataType::Int64;

/// Returns the value type of a dictionary, and any other type unchanged.
fn dictionary_value_type(item: &DataType) -> DataType {
    match item {
        DataType::Dictionary(_, values) => dictionary_value_type(values),
        other => other.clone(),
    }
}

fn is_numeric_type(item: &DataType) -> bool {
    item.is_numeric() || item.is_null()
}

/// Returns whether a type is a date, a timestamp or a time of day.
fn is_time_type(item: &DataType) -> bool {
    matches!(
        item,
        DataType::Date32
            | DataType::Date64
            | DataType::Timestamp(..)
            | DataType::Time32(_)
            | DataType::Time64(_)
    )
}

/// Returns the type of a map from items to their counts.
fn histogram_type(item: &DataType) -> DataType {
    DataType::Map(
        Arc::new(Field::new("entries", DataType::Struct(histogram_entry_fields(item)), false)),
        true,
    )
}

fn histogram_entry_fields(item: &DataType) -> Fields {
    vec![Field::new("key", item.clone(), false), Field::new("value", HISTOGRAM_COUNT_TYPE, true)]
        .into()
}

impl ItemAggregate {
    fn from_name(name: &str) -> Result<Self> {
        let name = name.to_lowercase();
        let found = AGGREGATES_BY_NAME.iter().find(|(known, _)| *known == name);
        match found {
            Some((_, aggregate)) => Ok(*aggregate),
            None => Err(usage_error(
                format!("`list_aggregate` knows no aggregate `{name}`"),
                "it knows sum, avg, median, stddev, mode, count, string_agg, quantile_cont and others; \
                 list_reduce(list, (x, y) -> …) takes any function",
            )),
        }
    }

    /// Returns the argument that a call may or must have behind the list and the name.
    fn extra_argument(self) -> ExtraArgument {
        match self {
            ItemAggregate::JoinedText => ExtraArgument::Separator,
            ItemAggregate::QuantileCont | ItemAggregate::QuantileDisc => ExtraArgument::Fraction,
            _ => ExtraArgument::None,
        }
    }

    /// Returns the result type for items of a type, or `None` if the aggregate does not take them.
    fn result_type(self, item: &DataType) -> Option<DataType> {
        use ItemAggregate as A;
        let is_compared = matches!(
            self,
            A::AnyValue
                | A::Minimum
                | A::Maximum
                | A::Mode
                | A::QuantileDisc
                | A::DistinctCount
                | A::Entropy
                | A::Histogram
                | A::Median
        );
        let fields = [SortField::new(item.clone())];
        if is_compared && !RowConverter::supports_fields(&fields) {
            return None;
        }
        let number = |answer: DataType| is_numeric_type(item).then_some(answer);
        match self {
            A::First | A::Last | A::AnyValue | A::Minimum | A::Maximum | A::Mode => {
                Some(item.clone())
            }
            A::QuantileDisc => Some(item.clone()),
            A::ItemList => {
                Some(DataType::List(Arc::new(Field::new_list_field(item.clone(), true))))
            }
            A::Count | A::DistinctCount => Some(DataType::Int64),
            A::CountIf => is_boolean_type(item).then_some(DataType::Int64),
            A::BoolAnd | A::BoolOr => is_boolean_type(item).then_some(DataType::Boolean),
            A::BitAnd | A::BitOr | A::BitXor => match item {
                DataType::Null => Some(DataType::Int64),
                of => of.is_integer().then(|| of.clone()),
            },
            A::Sum | A::Mean => {
                let sums = if self == A::Sum { ListSumOrMean::Sum } else { ListSumOrMean::Mean };
                let list = DataType::List(Arc::new(Field::new_list_field(item.clone(), true)));
                let taken = sums.coerce_argument_types(&[list]).ok()?;
                sums.return_type(&taken, &[None]).ok()
            }
            A::Median => Some(match item {
                DataType::Date32 | DataType::Date64 => {
                    DataType::Timestamp(TimeUnit::Microsecond, None)
                }
                of if is_numeric_type(of) => DataType::Float64,
                other => other.clone(),
            }),
            A::MedianAbsoluteDeviation if is_time_type(item) => {
                Some(DataType::Interval(IntervalUnit::MonthDayNano))
            }
            A::Entropy => Some(DataType::Float64),
            A::Histogram => Some(histogram_type(item)),
            A::JoinedText => (!item.is_nested()).then_some(DataType::Utf8),
            _ => number(DataType::Float64),
        }
    }
}

fn is_boolean_type(item: &DataType) -> bool {
    matches!(item, DataType::Boolean | DataType::Null)
}

/// The kind of argument behind the list and the name of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExtraArgument {
    None,
    Separator,
    Fraction,
}

/// An argument of lists.
struct ItemLists {
    lists: ListArray,
    rows: RowMapping,
}

impl ItemLists {
    fn from_argument(value: &ColumnarValue) -> Result<Self> {
        let (lists, rows) = argument_array(value)?;
        let lists =
            lists.as_list_opt::<i32>().ok_or_else(|| internal_error("a list is none"))?.clone();
        Ok(ItemLists { lists, rows })
    }

    fn items(&self) -> &ArrayRef {
        self.lists.values()
    }

    /// Returns the indices of all items of a list, or `None` for a null list.
    fn item_range(&self, list: usize) -> Option<std::ops::Range<usize>> {
        let places = self.lists.value_offsets();
        let place = |at: usize| usize::try_from(places[at]).unwrap_or_default();
        self.lists.is_valid(list).then(|| place(list)..place(list + 1))
    }

    /// Calls `answer` with the indices of the valid items of each list; a null list has no result.
    fn map_valid_items<T>(
        &self,
        mut answer: impl FnMut(&[usize]) -> Result<Option<T>>,
    ) -> Result<Vec<Option<T>>> {
        let items = self.items();
        let nulls = items.logical_nulls();
        let mut valid = Vec::new();
        (0..self.lists.len())
            .map(|list| {
                let Some(places) = self.item_range(list) else { return Ok(None) };
                valid.clear();
                valid.extend(
                    places.filter(|at| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*at))),
                );
                answer(&valid)
            })
            .collect()
    }

    /// Expands the results of lists to results of rows: a constant list has one result for all rows.
    fn expand_to_rows(&self, answers: ArrayRef, rows: usize) -> Result<ArrayRef> {
        Ok(match self.rows {
            RowMapping::PerRow => answers,
            RowMapping::Constant => take(&answers, &UInt64Array::from(vec![0_u64; rows]), None)?,
        })
    }
}

/// Normalizes -0 to 0 and every NaN to one NaN, within lists, structs and maps too.
fn normalize_floats(items: &ArrayRef) -> Result<ArrayRef> {
    fn contains_floats(of: &DataType) -> bool {
        match of {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => contains_floats(item.data_type()),
            DataType::Struct(fields) => {
                fields.iter().any(|field| contains_floats(field.data_type()))
            }
            DataType::Dictionary(_, values) => contains_floats(values),
            _ => false,
        }
    }
    if !contains_floats(items.data_type()) {
        return Ok(Arc::clone(items));
    }
    Ok(match items.data_type() {
        DataType::Float64 => {
            let one = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            Arc::new(items.as_primitive::<Float64Type>().unary::<_, Float64Type>(one))
        }
        DataType::Float32 => {
            let one = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(items.as_primitive::<Float32Type>().unary::<_, Float32Type>(one))
        }
        DataType::List(_) => {
            let (field, offsets, values, nulls) = items.as_list::<i32>().clone().into_parts();
            Arc::new(ListArray::try_new(field, offsets, normalize_floats(&values)?, nulls)?)
        }
        DataType::LargeList(_) => {
            let (field, offsets, values, nulls) = items.as_list::<i64>().clone().into_parts();
            Arc::new(LargeListArray::try_new(field, offsets, normalize_floats(&values)?, nulls)?)
        }
        DataType::FixedSizeList(_, 1..) => {
            let (field, size, values, nulls) = items.as_fixed_size_list().clone().into_parts();
            Arc::new(FixedSizeListArray::try_new(field, size, normalize_floats(&values)?, nulls)?)
        }
        DataType::Map(..) => {
            let (field, offsets, entries, nulls, is_sorted) = items.as_map().clone().into_parts();
            let entries = normalize_floats(&(Arc::new(entries) as ArrayRef))?;
            let entries = entries.as_struct().clone();
            Arc::new(MapArray::try_new(field, offsets, entries, nulls, is_sorted)?)
        }
        DataType::Struct(_) => {
            let (fields, columns, nulls) = items.as_struct().clone().into_parts();
            let columns =
                columns.iter().map(normalize_floats).collect::<Result<Vec<ArrayRef>>>()?;
            Arc::new(StructArray::try_new(fields, columns, nulls)?)
        }
        DataType::Dictionary(..) => {
            let coded = items.as_any_dictionary();
            coded.with_values(normalize_floats(coded.values())?)
        }
        _ => Arc::clone(items),
    })
}

/// Converts items to rows of Arrow's row format, which compare and order them.
fn comparable_rows(items: &ArrayRef) -> Result<SortRows> {
    let comparable = normalize_floats(items)?;
    let field = SortField::new(comparable.data_type().clone());
    Ok(RowConverter::new(vec![field])?.convert_columns(&[comparable])?)
}

/// Returns the distinct items of a list in order: the first index of each and its count.
fn distinct_items(sort: &SortRows, places: &[usize]) -> Vec<(usize, u64)> {
    let mut sorted = places.to_vec();
    sorted.sort_by(|&x, &y| sort.row(x).cmp(&sort.row(y)));
    let mut runs: Vec<(usize, u64)> = Vec::new();
    for place in sorted {
        match runs.last_mut() {
            Some((first, count)) if sort.row(*first) == sort.row(place) => *count += 1,
            _ => runs.push((place, 1)),
        }
    }
    runs
}

/// Sorts numbers, NaN last.
fn sort_numbers(numbers: &mut [f64]) {
    numbers.sort_by(|x, y| x.partial_cmp(y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan())));
}

/// Returns the median of numbers, which are reordered.
fn median_of_numbers(numbers: &mut [f64]) -> Option<f64> {
    QuantileLevel::new(0.5)?.select_quantile(numbers)
}

/// The fraction of a quantile, counted from the smallest or from the largest item.
#[derive(Debug, Clone, Copy)]
struct SignedQuantileFraction {
    share: QuantileLevel,
    is_from_end: bool,
}

impl SignedQuantileFraction {
    /// # Errors
    /// Fails for a number outside of -1 to 1.
    fn from_number(number: f64) -> Result<Self> {
        let is_from_end = number < 0.0;
        match QuantileLevel::new(number.abs()) {
            Some(share) => Ok(SignedQuantileFraction { share, is_from_end }),
            None => Err(usage_error(
                format!("a quantile's fraction is {number}"),
                "fractions are 0 to 1, 0.5 for the median, or 0 to -1, counted from the largest item",
            )),
        }
    }

    /// Returns the index of the discrete quantile among sorted items, or `None` for no items.
    fn discrete_index(self, count: usize) -> Option<usize> {
        let place = usize::try_from(self.share.discrete_index(count as u64)?).ok()?;
        Some(if self.is_from_end { count - 1 - place } else { place })
    }

    fn quantile_of_sorted(self, sorted: &[f64]) -> Option<f64> {
        let share = if self.is_from_end { self.share.complement() } else { self.share };
        share.quantile_of_sorted(sorted)
    }
}

/// Returns the median of sorted integers, rounded towards the smaller one.
fn median_of_sorted(sorted: &[i128]) -> Option<i128> {
    let last = sorted.len().checked_sub(1)?;
    let (below, above) = (sorted[last / 2], sorted[last.div_ceil(2)]);
    Some(below + (above - below) / 2)
}

/// Returns the distance of a number from a mean that is the sum of two doubles.
fn distance_from_mean(number: f64, mean: f64, rest: f64) -> f64 {
    // Knuth's two-sum: the difference and its rounding error.
    let difference = number - mean;
    let subtracted = difference - number;
    let lost = (number - (difference - subtracted)) - (mean + subtracted);
    difference + (lost - rest)
}

/// Returns the correctly rounded sum.
fn rounded_sum(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sum = FloatSum::new();
    numbers.for_each(|number| sum.add(number));
    sum.value()
}

/// Central moments of numbers. Distances from the mean are scaled so that the largest is about one, which
/// keeps their powers from overflow and underflow.
struct CentralMoments {
    count: f64,
    /// Exponent of the power of two by which the distances were divided.
    exponent: i32,
    second: f64,
    third: f64,
    fourth: f64,
}

/// Returns the binary exponent of the largest of some finite numbers; 0 if all are zero.
fn largest_exponent(numbers: &[f64]) -> i32 {
    let largest = numbers.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
    libm::frexp(largest).1
}

impl CentralMoments {
    /// Calculates the moments, which are NaN if a number is infinite or NaN.
    fn from_numbers(numbers: &[f64]) -> Self {
        let count = numbers.len() as f64;
        if !numbers.iter().all(|number| number.is_finite()) {
            let nan = f64::NAN;
            return CentralMoments { count, exponent: 0, second: nan, third: nan, fourth: nan };
        }
        let exponent = largest_exponent(numbers);
        let scaled: Vec<f64> =
            numbers.iter().map(|number| libm::ldexp(*number, -exponent)).collect();
        // The mean as two doubles: with one, small distances from a large mean would keep few digits.
        let mean = rounded_sum(scaled.iter().copied()) / count;
        let rest = rounded_sum(scaled.iter().flat_map(|number| [*number, -mean])) / count;
        let mut distances: Vec<f64> =
            scaled.iter().map(|number| distance_from_mean(*number, mean, rest)).collect();
        // Equal numbers have no variance, even if the mean was rounded.
        if numbers.iter().all(|number| *number == numbers[0]) {
            distances.fill(0.0);
        }
        let of_distances = largest_exponent(&distances);
        for distance in &mut distances {
            *distance = libm::ldexp(*distance, -of_distances);
        }
        let moment = |power: i32| rounded_sum(distances.iter().map(|x| x.powi(power))) / count;
        let exponent = exponent + of_distances;
        CentralMoments { count, exponent, second: moment(2), third: moment(3), fourth: moment(4) }
    }

    fn statistic(&self, aggregate: ItemAggregate) -> Option<f64> {
        let n = self.count;
        let samp = || self.second * n / (n - 1.0);
        let kurtosis = || self.fourth / (self.second * self.second) - 3.0;
        let varies = self.second != 0.0;
        let variance = |scaled: f64| libm::ldexp(scaled, 2 * self.exponent);
        let deviation = |scaled: f64| libm::ldexp(scaled.sqrt(), self.exponent);
        match aggregate {
            ItemAggregate::VarPop => Some(variance(self.second)),
            ItemAggregate::StddevPop => Some(deviation(self.second)),
            ItemAggregate::VarSamp => (n > 1.0).then(|| variance(samp())),
            ItemAggregate::StddevSamp => (n > 1.0).then(|| deviation(samp())),
            ItemAggregate::StandardError => Some(deviation(self.second / n)),
            ItemAggregate::Skewness => (n > 2.0 && varies).then(|| {
                let population = self.third / (self.second * self.second.sqrt());
                population * (n * (n - 1.0)).sqrt() / (n - 2.0)
            }),
            ItemAggregate::KurtosisPop => (n > 1.0 && varies).then(kurtosis),
            ItemAggregate::Kurtosis => (n > 3.0 && varies)
                .then(|| (n - 1.0) / ((n - 2.0) * (n - 3.0)) * ((n + 1.0) * kurtosis() + 6.0)),
            _ => None,
        }
    }
}

/// Calculates an aggregate for a batch of lists. `more` is the index of the extra argument.
fn aggregate_lists(
    aggregate: ItemAggregate,
    name: &str,
    given: &ArgumentBatch<'_>,
    more: usize,
) -> Result<ArrayRef> {
    use ItemAggregate as A;
    let lists = ItemLists::from_argument(given.argument(0)?)?;
    let items = lists.items();
    let answers: ArrayRef = match aggregate {
        A::Sum | A::Mean => {
            let sums = if aggregate == A::Sum { ListSumOrMean::Sum } else { ListSumOrMean::Mean };
            let taken = sums.coerce_argument_types(&[given.argument(0)?.data_type()])?;
            let list = given.argument(0)?.cast_to(&taken[0], None)?;
            return sums.calculate(&ArgumentBatch { arguments: &[list], ..*given });
        }
        A::JoinedText => return join_items(&lists, given, more),
        A::QuantileCont | A::QuantileDisc => {
            return list_quantiles(aggregate, &lists, given, more);
        }
        A::First | A::Last => {
            let place = |list| {
                let places = lists.item_range(list)?;
                let at = if aggregate == A::First { places.start } else { places.end.max(1) - 1 };
                (!places.is_empty()).then_some(at as u64)
            };
            let places: UInt64Array = (0..lists.lists.len()).map(place).collect();
            take(items, &places, None)?
        }
        A::AnyValue | A::Minimum | A::Maximum | A::Mode => {
            let sort = comparable_rows(items)?;
            let places = lists.map_valid_items(|places| {
                let place = match aggregate {
                    A::AnyValue => places.first().copied(),
                    A::Minimum => places.iter().copied().min_by_key(|&at| sort.row(at)),
                    // Reversed, so that the first of equal items wins, as for the minimum.
                    A::Maximum => places.iter().rev().copied().max_by_key(|&at| sort.row(at)),
                    _ => {
                        let runs = distinct_items(&sort, places);
                        let most = runs.iter().map(|(_, count)| *count).max();
                        let most = runs.iter().filter(|(_, count)| Some(*count) == most);
                        most.map(|(first, _)| *first).min()
                    }
                };
                Ok(place.map(|place| place as u64))
            })?;
            take(items, &UInt64Array::from(places), None)?
        }
        A::ItemList => {
            let nulls = (0..lists.lists.len())
                .map(|list| lists.item_range(list).is_some_and(|places| !places.is_empty()));
            let nulls: NullBuffer = nulls.collect::<Vec<bool>>().into();
            let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
            let offsets = lists.lists.offsets().clone();
            Arc::new(ListArray::try_new(field, offsets, Arc::clone(items), Some(nulls))?)
        }
        A::Count => Arc::new(Int64Array::from(
            lists.map_valid_items(|places| Ok(Some(places.len() as i64)))?,
        )),
        A::DistinctCount => {
            let sort = comparable_rows(items)?;
            let counts = lists
                .map_valid_items(|places| Ok(Some(distinct_items(&sort, places).len() as i64)))?;
            Arc::new(Int64Array::from(counts))
        }
        A::CountIf | A::BoolAnd | A::BoolOr => {
            let items = cast_with_options(items, &DataType::Boolean, &STRICT_CAST_OPTIONS)?;
            let items = items.as_boolean();
            let counts = lists.map_valid_items(|places| {
                let count = places.iter().filter(|&&at| items.value(at)).count();
                Ok(Some((count, places.len())))
            })?;
            match aggregate {
                A::CountIf => Arc::new(
                    counts
                        .into_iter()
                        .map(|counts| counts.map(|(count, _)| count as i64))
                        .collect::<Int64Array>(),
                ),
                _ => Arc::new(
                    counts
                        .into_iter()
                        .map(|counts| {
                            let (count, all) = counts.filter(|(_, all)| *all > 0)?;
                            Some(if aggregate == A::BoolAnd { count == all } else { count > 0 })
                        })
                        .collect::<BooleanArray>(),
                ),
            }
        }
        A::BitAnd | A::BitOr | A::BitXor => {
            // Unsigned numbers need a cast of their own: a cast to a signed type would fail for large ones.
            let is_unsigned = *items.data_type() == DataType::UInt64;
            let to = if is_unsigned { DataType::UInt64 } else { DataType::Int64 };
            let items = cast_with_options(items, &to, &STRICT_CAST_OPTIONS)?;
            let bits = |at: usize| match is_unsigned {
                true => items.as_primitive::<UInt64Type>().value(at),
                false => items.as_primitive::<Int64Type>().value(at).cast_unsigned(),
            };
            let found = lists.map_valid_items(|places| {
                Ok(places.iter().map(|&at| bits(at)).reduce(|x, y| match aggregate {
                    A::BitAnd => x & y,
                    A::BitOr => x | y,
                    _ => x ^ y,
                }))
            })?;
            let found: ArrayRef = match is_unsigned {
                true => Arc::new(UInt64Array::from(found)),
                false => Arc::new(
                    found
                        .into_iter()
                        .map(|bits| bits.map(u64::cast_signed))
                        .collect::<Int64Array>(),
                ),
            };
            cast_with_options(&found, given.return_type, &STRICT_CAST_OPTIONS)?
        }
        A::Entropy => {
            let sort = comparable_rows(items)?;
            let found = lists.map_valid_items(|places| {
                let all = places.len() as f64;
                let part = |(_, count): (usize, u64)| {
                    let share = count as f64 / all;
                    -share * share.log2()
                };
                Ok(Some(rounded_sum(distinct_items(&sort, places).into_iter().map(part)) + 0.0))
            })?;
            Arc::new(Float64Array::from(found))
        }
        A::Histogram => list_histograms(&lists)?,
        A::Median if !is_numeric_type(items.data_type()) => {
            list_medians(&lists, given.return_type)?
        }
        A::MedianAbsoluteDeviation if is_time_type(items.data_type()) => time_deviations(&lists)?,
        _ => {
            let numbers = cast_with_options(items, &DataType::Float64, &STRICT_CAST_OPTIONS)?;
            let numbers = numbers.as_primitive::<Float64Type>();
            let found = lists.map_valid_items(|places| {
                if places.is_empty() {
                    return Ok(None);
                }
                let mut of: Vec<f64> = places.iter().map(|&at| numbers.value(at)).collect();
                Ok(match aggregate {
                    A::FloatSum => Some(rounded_sum(of.into_iter())),
                    A::FloatMean => Some(rounded_sum(of.into_iter()) / places.len() as f64),
                    A::Product => Some(of.iter().product()),
                    A::Median => median_of_numbers(&mut of),
                    A::MedianAbsoluteDeviation => {
                        let median = median_of_numbers(&mut of).unwrap_or_default();
                        of.iter_mut().for_each(|number| *number = (*number - median).abs());
                        median_of_numbers(&mut of)
                    }
                    _ => {
                        let found = CentralMoments::from_numbers(&of).statistic(aggregate);
                        let is_moment =
                            matches!(aggregate, A::Skewness | A::Kurtosis | A::KurtosisPop);
                        if is_moment && found.is_some_and(|found| !found.is_finite()) {
                            return Err(overflow_error(
                                format!(
                                    "`{name}` has no answer for a number that is infinite or NaN"
                                ),
                                Some("a filter leaves it out: list_filter(list, x -> isfinite(x))"),
                            ));
                        }
                        found
                    }
                })
            })?;
            Arc::new(Float64Array::from(found))
        }
    };
    let answers = lists.expand_to_rows(answers, given.row_count)?;
    Ok(match answers.data_type() == given.return_type {
        true => answers,
        false => cast_with_options(&answers, given.return_type, &STRICT_CAST_OPTIONS)?,
    })
}

/// Joins the items of each list as text, with a separator between them.
fn join_items(lists: &ItemLists, given: &ArgumentBatch<'_>, more: usize) -> Result<ArrayRef> {
    let items = cast_with_options(lists.items(), &DataType::Utf8, &STRICT_CAST_OPTIONS)?;
    let items: &StringArray = items.as_string();
    let separators = match given.arguments.get(more) {
        Some(separators) => TextArgument::from_value(separators)?,
        None => TextArgument::from_value(&ColumnarValue::Scalar(ScalarValue::from(",")))?,
    };
    let mut texts = StringBuilder::with_capacity(given.row_count, given.row_count * 16);
    let mut text = String::new();
    for row in 0..given.row_count {
        let (Some(places), Some(separator)) =
            (lists.item_range(lists.rows.value_index(row)), separators.get(row))
        else {
            texts.append_null();
            continue;
        };
        text.clear();
        let mut is_first = true;
        for item in places.filter(|at| items.is_valid(*at)) {
            if !is_first {
                text.push_str(separator);
            }
            text.push_str(items.value(item));
            is_first = false;
        }
        match is_first {
            true => texts.append_null(),
            false => texts.append_value(&text),
        }
    }
    Ok(Arc::new(texts.finish()))
}

/// Returns the quantile of each list at the fraction of its row.
fn list_quantiles(
    aggregate: ItemAggregate,
    lists: &ItemLists,
    given: &ArgumentBatch<'_>,
    more: usize,
) -> Result<ArrayRef> {
    let (fractions, fraction_rows) = given.cast_argument(more, &DataType::Float64)?;
    let fractions = fractions.as_primitive::<Float64Type>();
    let fraction_of = |row: usize| {
        let row = fraction_rows.value_index(row);
        if fractions.is_null(row) {
            return Ok(None);
        }
        SignedQuantileFraction::from_number(fractions.value(row)).map(Some)
    };
    if aggregate == ItemAggregate::QuantileDisc {
        let sort = comparable_rows(lists.items())?;
        let sorted = lists.map_valid_items(|places| {
            let mut places = places.to_vec();
            places.sort_by(|&x, &y| sort.row(x).cmp(&sort.row(y)));
            Ok(Some(places))
        })?;
        let places = (0..given.row_count).map(|row| {
            let Some(fraction) = fraction_of(row)? else { return Ok(None) };
            let Some(sorted) = &sorted[lists.rows.value_index(row)] else { return Ok(None) };
            let place = fraction.discrete_index(sorted.len());
            Ok(place.map(|place| sorted[place] as u64))
        });
        return Ok(take(lists.items(), &places.collect::<Result<UInt64Array>>()?, None)?);
    }
    let numbers = cast_with_options(lists.items(), &DataType::Float64, &STRICT_CAST_OPTIONS)?;
    let numbers = numbers.as_primitive::<Float64Type>();
    let sorted = lists.map_valid_items(|places| {
        let mut of: Vec<f64> = places.iter().map(|&at| numbers.value(at)).collect();
        sort_numbers(&mut of);
        Ok(Some(of))
    })?;
    let found = (0..given.row_count).map(|row| {
        let Some(fraction) = fraction_of(row)? else { return Ok(None) };
        let sorted = sorted[lists.rows.value_index(row)].as_ref();
        Ok(sorted.and_then(|sorted| fraction.quantile_of_sorted(sorted)))
    });
    Ok(Arc::new(found.collect::<Result<Float64Array>>()?))
}

/// Returns maps from the distinct items of each list to their counts, in the order of the items.
fn list_histograms(lists: &ItemLists) -> Result<ArrayRef> {
    let sort = comparable_rows(lists.items())?;
    let found = lists.map_valid_items(|places| {
        Ok((!places.is_empty()).then(|| distinct_items(&sort, places)))
    })?;
    let nulls: NullBuffer = found.iter().map(Option::is_some).collect::<Vec<bool>>().into();
    let offsets =
        OffsetBuffer::from_lengths(found.iter().map(|runs| runs.as_ref().map_or(0, Vec::len)));
    let all = || found.iter().flatten().flatten();
    let keys: UInt64Array = all().map(|(first, _)| Some(*first as u64)).collect();
    let keys = take(lists.items(), &keys, None)?;
    let counts: Int64Array = all().map(|(_, count)| Some(count.cast_signed())).collect();
    let fields = histogram_entry_fields(keys.data_type());
    let entries = StructArray::try_new(fields.clone(), vec![keys, Arc::new(counts)], None)?;
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    Ok(Arc::new(MapArray::try_new(field, offsets, entries, Some(nulls), true)?))
}

/// Returns times as counts of their unit, and the nanoseconds of that unit.
fn time_unit_counts(items: &ArrayRef) -> Result<(Int64Array, i128)> {
    let (whole, nanos) = match items.data_type() {
        DataType::Date32 => (DataType::Int32, 86_400_000_000_000),
        DataType::Date64 => (DataType::Int64, 1_000_000),
        DataType::Time32(unit) => (DataType::Int32, nanos_per_unit(*unit)),
        DataType::Timestamp(unit, _) | DataType::Time64(unit) => {
            (DataType::Int64, nanos_per_unit(*unit))
        }
        other => return Err(internal_error(&format!("a {} is no time", sql_type_name(other)))),
    };
    let whole = cast_with_options(items, &whole, &STRICT_CAST_OPTIONS)?;
    let whole = cast_with_options(&whole, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
    Ok((whole.as_primitive::<Int64Type>().clone(), nanos))
}

fn nanos_per_unit(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Returns medians of items that are not numbers: the middle of two times, and the smaller of two other
/// items.
fn list_medians(lists: &ItemLists, answer: &DataType) -> Result<ArrayRef> {
    let items = lists.items();
    if !is_time_type(items.data_type()) {
        let sort = comparable_rows(items)?;
        let places = lists.map_valid_items(|places| {
            let mut places = places.to_vec();
            places.sort_by(|&x, &y| sort.row(x).cmp(&sort.row(y)));
            Ok(places.len().checked_sub(1).map(|last| places[last / 2] as u64))
        })?;
        return Ok(take(items, &UInt64Array::from(places), None)?);
    }
    let items = match items.data_type() {
        DataType::Date32 | DataType::Date64 => {
            cast_with_options(items, answer, &STRICT_CAST_OPTIONS)?
        }
        _ => Arc::clone(items),
    };
    let (counts, _) = time_unit_counts(&items)?;
    let found = lists.map_valid_items(|places| {
        let mut of: Vec<i128> = places.iter().map(|&at| counts.value(at).into()).collect();
        of.sort_unstable();
        median_of_sorted(&of)
            .map(|median| i64::try_from(median).map_err(|_| interval_overflow_error()))
            .transpose()
    })?;
    let found: ArrayRef = Arc::new(Int64Array::from(found));
    let found = match items.data_type() {
        DataType::Time32(_) => cast_with_options(&found, &DataType::Int32, &STRICT_CAST_OPTIONS)?,
        _ => found,
    };
    Ok(cast_with_options(&found, items.data_type(), &STRICT_CAST_OPTIONS)?)
}

fn interval_overflow_error() -> datafusion_common::DataFusionError {
    overflow_error("a span is longer than an INTERVAL holds", None)
}

/// Returns the median distance of times from their median.
fn time_deviations(lists: &ItemLists) -> Result<ArrayRef> {
    const DAY_NANOS: i128 = 86_400_000_000_000;
    let (counts, nanos) = time_unit_counts(lists.items())?;
    let found = lists.map_valid_items(|places| {
        let mut of: Vec<i128> =
            places.iter().map(|&at| i128::from(counts.value(at)) * nanos).collect();
        of.sort_unstable();
        let Some(median) = median_of_sorted(&of) else { return Ok(None) };
        of.iter_mut().for_each(|nanos| *nanos = (*nanos - median).abs());
        of.sort_unstable();
        let Some(span) = median_of_sorted(&of) else { return Ok(None) };
        let days = i32::try_from(span / DAY_NANOS).map_err(|_| interval_overflow_error())?;
        let rest = i64::try_from(span % DAY_NANOS).map_err(|_| interval_overflow_error())?;
        Ok(Some(IntervalMonthDayNano::new(0, days, rest)))
    })?;
    Ok(Arc::new(IntervalMonthDayNanoArray::from(found)))
}

/// Returns the type that a list argument is cast to, or `None` if it is not a list.
fn list_cast_type(list: &DataType) -> Option<DataType> {
    match list {
        DataType::Null => {
            Some(DataType::List(Arc::new(Field::new_list_field(DataType::Null, true))))
        }
        other => {
            let item = dictionary_value_type(list_item_type(other)?);
            Some(DataType::List(Arc::new(Field::new_list_field(item, true))))
        }
    }
}

/// Returns the type that an argument behind the list is cast to.
fn extra_argument_cast_type(given: &DataType) -> Option<DataType> {
    match given {
        of if is_text_type(of) || matches!(of, DataType::Dictionary(..)) => text_cast_type(of),
        DataType::Null => Some(DataType::Utf8),
        of if of.is_numeric() => Some(DataType::Float64),
        _ => None,
    }
}

/// The function `list_aggregate`, which takes the name of the aggregate.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ListAggregateFunction;

impl ListAggregateFunction {
    fn parse_aggregate_name(constant: Option<&ScalarValue>) -> Result<ItemAggregate> {
        match constant.and_then(|name| name.try_as_str().flatten()) {
            Some(name) => ItemAggregate::from_name(name),
            None => Err(usage_error(
                "`list_aggregate` takes the name of an aggregate, a constant, as its second argument",
                "it is called as list_aggregate(list, 'sum')",
            )),
        }
    }
}

impl RowFunction for ListAggregateFunction {
    fn names(&self) -> &'static [&'static str] {
        &["list_aggregate", "list_aggr", "array_aggregate", "array_aggr"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_ARRAY,
            syntax: "list_aggregate(list, 'name')\nlist_aggregate(list, 'string_agg', separator)\n\
                    list_aggregate(list, 'quantile_cont', fraction)",
            description: "The aggregate of a name over the items of a list, of sum, avg, min, max, count, median, mode, stddev, \
                   histogram, string_agg and others: `list_aggregate([1, 2, 6], 'median')` is `2.0`, and \
                   `list_aggregate(['a', 'b'], 'string_agg', '-')` is `a-b`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let (list, others) = match given {
            [list, others @ ..] if matches!(others.len(), 1 | 2) => (list, others),
            _ => return Err(wrong_arguments_error(self, given)),
        };
        let list = list_cast_type(list).into_iter();
        let taken: Vec<DataType> =
            list.chain(others.iter().filter_map(extra_argument_cast_type)).collect();
        match taken.len() == given.len() && is_text_type(&taken[1]) {
            true => Ok(taken),
            false => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(
        &self,
        taken: &[DataType],
        constants: &[Option<&ScalarValue>],
    ) -> Result<DataType> {
        let aggregate =
            ListAggregateFunction::parse_aggregate_name(constants.get(1).copied().flatten())?;
        let fits = match (aggregate.extra_argument(), taken.get(2)) {
            (ExtraArgument::None | ExtraArgument::Separator, None) => true,
            (ExtraArgument::Separator, Some(of)) => is_text_type(of),
            (ExtraArgument::Fraction, Some(of)) => of.is_numeric(),
            _ => false,
        };
        let item = taken.first().and_then(list_item_type).filter(|_| fits);
        item.and_then(|item| aggregate.result_type(item))
            .ok_or_else(|| wrong_arguments_error(self, taken))
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let ColumnarValue::Scalar(name) = given.argument(1)? else {
            return Err(internal_error("`list_aggregate` has lost its constant"));
        };
        aggregate_lists(
            ListAggregateFunction::parse_aggregate_name(Some(name))?,
            self.names()[0],
            given,
            2,
        )
    }
}

/// A function for one aggregate of a list, such as `list_median`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct NamedListAggregateFunction(ItemAggregate);

impl NamedListAggregateFunction {
    pub(super) fn all() -> impl Iterator<Item = NamedListAggregateFunction> {
        use ItemAggregate as A;
        [
            A::Mode,
            A::Median,
            A::MedianAbsoluteDeviation,
            A::VarPop,
            A::VarSamp,
            A::StddevPop,
            A::StddevSamp,
            A::StandardError,
            A::Skewness,
            A::Kurtosis,
            A::KurtosisPop,
            A::Entropy,
            A::Histogram,
            A::BitAnd,
            A::BitOr,
            A::BitXor,
            A::BoolAnd,
            A::BoolOr,
            A::DistinctCount,
            A::JoinedText,
        ]
        .into_iter()
        .map(NamedListAggregateFunction)
    }
}

const LIST_SECTION: DocSection = DOC_SECTION_ARRAY;

impl RowFunction for NamedListAggregateFunction {
    fn names(&self) -> &'static [&'static str] {
        match self.0 {
            ItemAggregate::Mode => &["list_mode"],
            ItemAggregate::Median => &["list_median"],
            ItemAggregate::MedianAbsoluteDeviation => &["list_mad"],
            ItemAggregate::VarPop => &["list_var_pop"],
            ItemAggregate::VarSamp => &["list_var_samp"],
            ItemAggregate::StddevPop => &["list_stddev_pop"],
            ItemAggregate::StddevSamp => &["list_stddev_samp"],
            ItemAggregate::StandardError => &["list_sem"],
            ItemAggregate::Skewness => &["list_skewness"],
            ItemAggregate::Kurtosis => &["list_kurtosis"],
            ItemAggregate::KurtosisPop => &["list_kurtosis_pop"],
            ItemAggregate::Entropy => &["list_entropy"],
            ItemAggregate::Histogram => &["list_histogram"],
            ItemAggregate::BitAnd => &["list_bit_and"],
            ItemAggregate::BitOr => &["list_bit_or"],
            ItemAggregate::BitXor => &["list_bit_xor"],
            ItemAggregate::BoolAnd => &["list_bool_and"],
            ItemAggregate::BoolOr => &["list_bool_or"],
            ItemAggregate::DistinctCount => &["list_approx_count_distinct"],
            _ => &["list_string_agg"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self.0 {
            ItemAggregate::Mode => (
                "list_mode(list)",
                "The most frequent item, the first of several: `list_mode([3, 1, 1])` is `1`.",
            ),
            ItemAggregate::Median => (
                "list_median(list)",
                "The median of a list, of two numbers or times their middle, of other items the smaller: \
                 `list_median([1, 2, 4, 9])` is `3.0`.",
            ),
            ItemAggregate::MedianAbsoluteDeviation => (
                "list_mad(list)",
                "The median of the distances from the median, an INTERVAL for times: `list_mad([1, 2, 9])` is `1.0`.",
            ),
            ItemAggregate::VarPop => (
                "list_var_pop(list)",
                "The variance of numbers that are all there are: `list_var_pop([1, 3])` is `1.0`.",
            ),
            ItemAggregate::VarSamp => (
                "list_var_samp(list)",
                "The variance of numbers that are a sample, NULL for fewer than two: `list_var_samp([1, 3])` is `2.0`.",
            ),
            ItemAggregate::StddevPop => (
                "list_stddev_pop(list)",
                "The standard deviation of numbers that are all there are: `list_stddev_pop([1, 3])` is `1.0`.",
            ),
            ItemAggregate::StddevSamp => (
                "list_stddev_samp(list)",
                "The standard deviation of numbers that are a sample, NULL for fewer than two: \
                 `list_stddev_samp([1, 4, 7])` is `3.0`.",
            ),
            ItemAggregate::StandardError => (
                "list_sem(list)",
                "The standard error of the mean, from the deviation of the population: `list_sem([1, 1, 3, 3])` is \
                 `0.5`.",
            ),
            ItemAggregate::Skewness => (
                "list_skewness(list)",
                "The skewness of a sample, NULL for fewer than three numbers or equal ones: `list_skewness([1, 2, 3])` \
                 is `0.0`.",
            ),
            ItemAggregate::Kurtosis => (
                "list_kurtosis(list)",
                "The excess kurtosis of a sample, NULL for fewer than four numbers or equal ones: \
                 `list_kurtosis([1, 1, 3, 3])` is `-6.0`.",
            ),
            ItemAggregate::KurtosisPop => (
                "list_kurtosis_pop(list)",
                "The excess kurtosis of a population, NULL for fewer than two numbers or equal ones: \
                 `list_kurtosis_pop([1, 3])` is `-2.0`.",
            ),
            ItemAggregate::Entropy => (
                "list_entropy(list)",
                "The entropy of the items in bits: `list_entropy(['a', 'b'])` is `1.0`.",
            ),
            ItemAggregate::Histogram => (
                "list_histogram(list)",
                "A map from each different item to its count, by the order of the items: \
                 `list_histogram([2, 1, 2])` is `{1: 1, 2: 2}`.",
            ),
            ItemAggregate::BitAnd => (
                "list_bit_and(list)",
                "The bits that all numbers have: `list_bit_and([5, 7])` is `5`.",
            ),
            ItemAggregate::BitOr => {
                ("list_bit_or(list)", "The bits that any number has: `list_bit_or([5, 2])` is `7`.")
            }
            ItemAggregate::BitXor => (
                "list_bit_xor(list)",
                "The bits that an odd count of the numbers has: `list_bit_xor([5, 7])` is `2`.",
            ),
            ItemAggregate::BoolAnd => (
                "list_bool_and(list)",
                "True if all items are, NULL of none: `list_bool_and([TRUE, FALSE])` is `false`.",
            ),
            ItemAggregate::BoolOr => (
                "list_bool_or(list)",
                "True if any item is, NULL of none: `list_bool_or([TRUE, FALSE])` is `true`.",
            ),
            ItemAggregate::DistinctCount => (
                "list_approx_count_distinct(list)",
                "The count of different items, which is exact here: `list_approx_count_distinct([1, 1, 2])` is `2`.",
            ),
            _ => (
                "list_string_agg(list)\nlist_string_agg(list, separator)",
                "The items as one text with commas or another separator between them, NULL of none: \
                 `list_string_agg([1, 2])` is `1,2`.",
            ),
        };
        FunctionDocs { section: LIST_SECTION, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let taken = match given {
            [list] => list_cast_type(list).map(|list| vec![list]),
            [list, separator] if self.0 == ItemAggregate::JoinedText => list_cast_type(list)
                .zip(text_cast_type(separator))
                .map(|(list, text)| vec![list, text]),
            _ => None,
        };
        taken.ok_or_else(|| wrong_arguments_error(self, given))
    }

    fn return_type(&self, taken: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        let item = taken.first().and_then(list_item_type);
        item.and_then(|item| self.0.result_type(item))
            .ok_or_else(|| wrong_arguments_error(self, taken))
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        aggregate_lists(self.0, self.names()[0], given, 1)
    }
}
