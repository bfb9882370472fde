//! Type unification: a common type for the columns of one name in several files, and conversion of their
//! values.
//!
//! | in one file | in another | together |
//! | --- | --- | --- |
//! | integers | wider integers | the narrowest that holds both; UBIGINT and signed: DECIMAL(20, 0) |
//! | integers, REAL | DOUBLE | DOUBLE |
//! | integers | DECIMAL | a decimal that holds both |
//! | DECIMAL | DECIMAL | a decimal with the digits of both, 38 at most |
//! | DATE | timestamps without a zone | the timestamp, at midnight |
//! | times, timestamps, durations | of other units | the finer unit |
//! | intervals | of other parts | months, days and nanoseconds |
//! | timestamps of a zone | of another zone | UTC |
//! | text, bytes | in another layout | views |
//! | STRUCT | with other fields | the fields of both by name, each as here |
//! | lists, maps | of other items | items as here |
//! | nulls alone | anything | that |
//!
//! Types that the table does not list do not unify. Every step keeps the value. If the wider type may not
//! hold one (an integer beyond 2⁵³ as DOUBLE, the year 9999 in nanoseconds), the value is checked when it is
//! read. A value that does not fit is an error; it is never changed.
//!
//! Spark and Iceberg promote less (integers to wider ones, float to double, decimals to more digits), DuckDB
//! more (any two types meet in text). Comparisons of a column that became text would silently mean something
//! else. A user who wants text declares it in a schema.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    StructArray, make_array, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Int64Type, IntervalUnit, TimeUnit, UInt64Type,
};
use arrow::error::ArrowError;
use tidemill_text::sql_type_name;

/// Two types that do not unify, and their position in the column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypeConflict {
    /// Names of the enclosing fields, outermost first; empty for the column itself.
    pub(crate) path: Vec<String>,
    pub(crate) first: DataType,
    pub(crate) second: DataType,
}

impl TypeConflict {
    fn new(one: &DataType, two: &DataType) -> Self {
        Self { path: Vec::new(), first: one.clone(), second: two.clone() }
    }

    fn at_field(mut self, name: &str) -> Self {
        self.path.insert(0, name.into());
        self
    }
}

/// Returns the narrowest type that holds the values of both types.
pub(crate) fn unify_types(one: &DataType, two: &DataType) -> Result<DataType, TypeConflict> {
    use DataType::{
        Binary, BinaryView, Date32, Date64, Decimal32, Decimal64, Decimal128, Dictionary, Duration,
        FixedSizeBinary, FixedSizeList, Float64, Interval, LargeBinary, LargeList, LargeUtf8, List,
        Map, Null, Struct, Time32, Time64, Timestamp, Utf8, Utf8View,
    };
    if one == two {
        return Ok(one.clone());
    }
    let clash = || TypeConflict::new(one, two);
    Ok(match (one, two) {
        (Null, other) | (other, Null) => other.clone(),
        (Dictionary(_, values), other) | (other, Dictionary(_, values)) => {
            unify_types(values, other).map_err(|_| clash())?
        }
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => Utf8View,
        (
            Binary | LargeBinary | BinaryView | FixedSizeBinary(_),
            Binary | LargeBinary | BinaryView | FixedSizeBinary(_),
        ) => BinaryView,
        (one, two) if one.is_integer() && two.is_integer() => unify_integers(one, two),
        (one, two) if one.is_floating() && two.is_floating() => unify_floats(one, two),
        (one, two)
            if (one.is_integer() && two.is_floating())
                || (one.is_floating() && two.is_integer()) =>
        {
            Float64
        }
        (
            Decimal32(..) | Decimal64(..) | Decimal128(..),
            Decimal32(..) | Decimal64(..) | Decimal128(..),
        ) => unify_decimals(one, two).ok_or_else(clash)?,
        (Decimal32(..) | Decimal64(..) | Decimal128(..), other) if other.is_integer() => {
            unify_decimals(one, two).ok_or_else(clash)?
        }
        (other, Decimal32(..) | Decimal64(..) | Decimal128(..)) if other.is_integer() => {
            unify_decimals(one, two).ok_or_else(clash)?
        }
        (Date32, Date64) | (Date64, Date32) => Date64,
        (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => Timestamp(*unit, None),
        (Timestamp(one, None), Timestamp(two, None)) => Timestamp(finer_unit(*one, *two), None),
        (Timestamp(one, Some(_)), Timestamp(two, Some(_))) => {
            Timestamp(finer_unit(*one, *two), Some("UTC".into()))
        }
        (Duration(one), Duration(two)) => Duration(finer_unit(*one, *two)),
        (Interval(_), Interval(_)) => Interval(IntervalUnit::MonthDayNano),
        (Time32(one) | Time64(one), Time32(two) | Time64(two)) => match finer_unit(*one, *two) {
            unit @ (TimeUnit::Second | TimeUnit::Millisecond) => Time32(unit),
            unit => Time64(unit),
        },
        (Struct(one), Struct(two)) => {
            Struct(unify_structs(one, two).map_err(|at| at.unwrap_or_else(clash))?)
        }
        (List(one), List(two)) => List(unify_fields(one, two)?),
        (
            List(one) | LargeList(one) | FixedSizeList(one, _),
            List(two) | LargeList(two) | FixedSizeList(two, _),
        ) => LargeList(unify_fields(one, two)?),
        (Map(one, sorted), Map(two, _)) => match (one.data_type(), two.data_type()) {
            (Struct(own), Struct(other)) if own.len() == 2 && other.len() == 2 => {
                let key = unify_types(own[0].data_type(), other[0].data_type());
                // SQL compares keys with literals of type `Utf8`.
                let key = match key.map_err(|clash| clash.at_field("key"))? {
                    Utf8View => Utf8,
                    key => key,
                };
                let key = own[0].as_ref().clone().with_data_type(key);
                let value =
                    unify_fields(&own[1], &other[1]).map_err(|clash| clash.at_field("value"))?;
                let pair: Fields = vec![Arc::new(key), value].into();
                Map(Arc::new(one.as_ref().clone().with_data_type(Struct(pair))), *sorted)
            }
            _ => return Err(clash()),
        },
        _ => return Err(clash()),
    })
}

fn unify_integers(one: &DataType, two: &DataType) -> DataType {
    use DataType::{Decimal128, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let bits = |kind: &DataType| match kind {
        Int8 | UInt8 => 8,
        Int16 | UInt16 => 16,
        Int32 | UInt32 => 32,
        _ => 64,
    };
    let wider = bits(one).max(bits(two));
    let unsigned = [one, two].into_iter().filter(|kind| kind.is_unsigned_integer());
    let needed = match (one.is_unsigned_integer(), two.is_unsigned_integer()) {
        (true, true) => {
            return match wider {
                8 => UInt8,
                16 => UInt16,
                32 => UInt32,
                _ => UInt64,
            };
        }
        (false, false) => wider,
        // A signed integer holds an unsigned one of half its width.
        _ => unsigned.map(|kind| 2 * bits(kind)).fold(wider, i32::max),
    };
    match needed {
        8 => Int8,
        16 => Int16,
        32 => Int32,
        64 => Int64,
        _ => Decimal128(20, 0),
    }
}

fn unify_floats(one: &DataType, two: &DataType) -> DataType {
    match (one, two) {
        (DataType::Float64, _) | (_, DataType::Float64) => DataType::Float64,
        _ => DataType::Float32,
    }
}

/// Returns a decimal that holds both types, one of which may be an integer.
fn unify_decimals(one: &DataType, two: &DataType) -> Option<DataType> {
    use DataType::{
        Decimal32, Decimal64, Decimal128, Int8, Int16, Int32, UInt8, UInt16, UInt32, UInt64,
    };
    // Digits before and behind the decimal point.
    let digits = |kind: &DataType| match kind {
        Decimal32(precision, scale)
        | Decimal64(precision, scale)
        | Decimal128(precision, scale) => {
            (i16::from(*precision) - i16::from(*scale), i16::from(*scale))
        }
        Int8 | UInt8 => (3, 0),
        Int16 | UInt16 => (5, 0),
        Int32 | UInt32 => (10, 0),
        UInt64 => (20, 0),
        _ => (19, 0),
    };
    let ((before, behind), (other_before, other_behind)) = (digits(one), digits(two));
    let (before, behind) = (before.max(other_before), behind.max(other_behind));
    let precision = u8::try_from((before + behind).max(1)).ok().filter(|digits| *digits <= 38)?;
    Some(Decimal128(precision, i8::try_from(behind).ok()?))
}

fn finer_unit(one: TimeUnit, two: TimeUnit) -> TimeUnit {
    one.max(two)
}

/// Unifies the fields of two structs by name; an error without a conflict if a name occurs twice.
fn unify_structs(one: &Fields, two: &Fields) -> Result<Fields, Option<TypeConflict>> {
    let is_clear = |fields: &Fields| {
        let mut names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        names.sort_unstable();
        names.windows(2).all(|pair| pair[0] != pair[1])
    };
    if !is_clear(one) || !is_clear(two) {
        return Err(None);
    }
    let mut fields: Vec<FieldRef> = Vec::with_capacity(one.len());
    for field in one {
        fields.push(match two.find(field.name()) {
            Some((_, other)) => {
                unify_fields(field, other).map_err(|clash| Some(clash.at_field(field.name())))?
            }
            None => nullable_field(field, field.data_type().clone()),
        });
    }
    let added = two.iter().filter(|field| one.find(field.name()).is_none());
    fields.extend(added.map(|field| nullable_field(field, field.data_type().clone())));
    Ok(fields.into())
}

fn unify_fields(one: &FieldRef, two: &FieldRef) -> Result<FieldRef, TypeConflict> {
    Ok(nullable_field(one, unify_types(one.data_type(), two.data_type())?))
}

fn nullable_field(field: &FieldRef, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(field.name(), data_type, true))
}

/// Returns true if a file's column can be read as the type that the user declared.
pub(crate) fn can_be_read_as(own: &DataType, wanted: &DataType) -> bool {
    let is_text =
        |kind: &DataType| matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let without_zone = |kind: &DataType| match kind {
        DataType::Timestamp(unit, _) => DataType::Timestamp(*unit, None),
        other => other.clone(),
    };
    unify_types(own, wanted).as_ref() == Ok(wanted)
        || (is_text(wanted) && (!own.is_nested() || is_text(own)))
        // A time without a zone is in UTC, as in text.
        || (matches!(wanted, DataType::Timestamp(_, Some(_)))
            && unify_types(&without_zone(own), &without_zone(wanted)) == Ok(without_zone(wanted)))
}

/// Returns true if the conversion keeps the order of values, so that statistics remain valid.
pub(crate) fn preserves_order(own: &DataType, wanted: &DataType) -> bool {
    own == wanted || unify_types(own, wanted).as_ref() == Ok(wanted)
}

/// Converts a file's column to its type in the source.
///
/// # Errors
/// A message about a value that the type cannot hold, if `exactly` is set.
pub(crate) fn cast_file_column(
    column: &ArrayRef,
    wanted: &DataType,
    exactly: bool,
) -> Result<ArrayRef, String> {
    cast_column(column, wanted, exactly).map_err(|error| {
        let text = match error {
            ArrowError::ComputeError(text)
            | ArrowError::CastError(text)
            | ArrowError::InvalidArgumentError(text)
            | ArrowError::ArithmeticOverflow(text) => text,
            other => other.to_string(),
        };
        format!("it cannot be read as {}: {}", sql_type_name(wanted), lowercase_first(&text))
    })
}

/// Propagates the nulls of structs to their fields, because readers of a field look only at the field's own
/// nulls.
pub(crate) fn propagate_struct_nulls(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    use DataType::{LargeList, List, Struct};
    let found: ArrayRef = match column.data_type() {
        Struct(fields) => {
            let own = column.as_struct();
            let columns = own.columns().iter().map(|inner| {
                let inner = match own.nulls().filter(|nulls| nulls.null_count() > 0) {
                    Some(outer) if inner.data_type() != &DataType::Null => {
                        mask_nulls(inner, outer)?
                    }
                    _ => inner.clone(),
                };
                propagate_struct_nulls(&inner)
            });
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let fields = fields.iter().zip(&columns);
            let fields: Fields = fields
                .map(|(field, inner)| nullable_field(field, inner.data_type().clone()))
                .collect();
            let nulls = own.nulls().cloned();
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, own.len())?)
        }
        List(item) if item.data_type().is_nested() => {
            let own = column.as_list::<i32>();
            let values = propagate_struct_nulls(own.values())?;
            let item = nullable_field(item, values.data_type().clone());
            let (offsets, nulls) = (own.offsets().clone(), own.nulls().cloned());
            Arc::new(GenericListArray::try_new(item, offsets, values, nulls)?)
        }
        LargeList(item) if item.data_type().is_nested() => {
            let own = column.as_list::<i64>();
            let values = propagate_struct_nulls(own.values())?;
            let item = nullable_field(item, values.data_type().clone());
            let (offsets, nulls) = (own.offsets().clone(), own.nulls().cloned());
            Arc::new(GenericListArray::try_new(item, offsets, values, nulls)?)
        }
        _ => column.clone(),
    };
    Ok(found)
}

/// Returns the array with the additional nulls of its parent.
pub(crate) fn mask_nulls(inner: &ArrayRef, outer: &NullBuffer) -> Result<ArrayRef, ArrowError> {
    let nulls = NullBuffer::union(Some(outer), inner.nulls());
    // Most writers already have these nulls, and building an array validates it.
    if nulls.as_ref().map_or(0, NullBuffer::null_count) == inner.null_count() {
        return Ok(inner.clone());
    }
    Ok(make_array(inner.to_data().into_builder().nulls(nulls).build()?))
}

fn lowercase_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

fn cast_column(
    column: &ArrayRef,
    wanted: &DataType,
    exactly: bool,
) -> Result<ArrayRef, ArrowError> {
    use DataType::{
        BinaryView, Dictionary, FixedSizeBinary, FixedSizeList, Float64, Int64, LargeList,
        LargeUtf8, List, Map, Null, Struct, UInt64, Utf8, Utf8View,
    };
    if column.data_type() == wanted {
        return Ok(column.clone());
    }
    Ok(match (column.data_type(), wanted) {
        (Null, _) => new_null_array(wanted, column.len()),
        (Dictionary(_, values), _) => {
            cast_column(&cast_strictly(column, values)?, wanted, exactly)?
        }
        // Arrow casts bytes of a fixed length to other bytes only.
        (FixedSizeBinary(_), Utf8 | LargeUtf8 | Utf8View) => {
            cast_strictly(&cast_strictly(column, &BinaryView)?, wanted)?
        }
        (Struct(_), Struct(fields)) => {
            let own = column.as_struct();
            let columns = fields
                .iter()
                .map(|field| match own.column_by_name(field.name()) {
                    Some(column) => cast_column(column, field.data_type(), exactly),
                    None => Ok(new_null_array(field.data_type(), own.len())),
                })
                .collect::<Result<Vec<_>, _>>()?;
            let validity = own.nulls().cloned();
            Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                columns,
                validity,
                own.len(),
            )?)
        }
        (List(_), List(item) | LargeList(item)) => {
            cast_strictly(&cast_list(column.as_list::<i32>(), item, exactly)?, wanted)?
        }
        (LargeList(_), LargeList(item)) => cast_list(column.as_list::<i64>(), item, exactly)?,
        (FixedSizeList(_, _), List(item) | LargeList(item)) => {
            let own: &FixedSizeListArray = column.as_fixed_size_list();
            let as_list = cast_strictly(column, &List(Arc::new(list_item_field(own))))?;
            let adapted = cast_list(as_list.as_list::<i32>(), item, exactly)?;
            cast_strictly(&adapted, wanted)?
        }
        (Map(_, _), Map(entries, sorted)) => {
            let own = column.as_map();
            let Struct(pair) = entries.data_type() else {
                return cast_strictly(column, wanted);
            };
            let adapted = |index: usize| {
                cast_column(own.entries().column(index), pair[index].data_type(), exactly)
            };
            let columns = vec![adapted(0)?, adapted(1)?];
            let entry = StructArray::try_new(pair.clone(), columns, None)?;
            Arc::new(MapArray::try_new(
                entries.clone(),
                own.offsets().clone(),
                entry,
                own.nulls().cloned(),
                *sorted,
            )?)
        }
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // Looked for.
        (Int64, Float64) if exactly => {
            let values = column.as_primitive::<Int64Type>();
            let is_inexact = |value: &i64| i128::from(*value) != (*value as f64) as i128;
            check_exact(values.iter().flatten().find(is_inexact))?;
            cast_strictly(column, wanted)?
        }
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // Looked for.
        (UInt64, Float64) if exactly => {
            let values = column.as_primitive::<UInt64Type>();
            let is_inexact = |value: &u64| i128::from(*value) != (*value as f64) as i128;
            check_exact(values.iter().flatten().find(is_inexact))?;
            cast_strictly(column, wanted)?
        }
        _ => cast_strictly(column, wanted)?,
    })
}

fn check_exact(value: Option<impl std::fmt::Display>) -> Result<(), ArrowError> {
    match value {
        Some(value) => Err(ArrowError::ComputeError(format!("{value} would be rounded"))),
        None => Ok(()),
    }
}

fn list_item_field(list: &FixedSizeListArray) -> Field {
    Field::new("item", list.value_type(), true)
}

fn cast_list<O: OffsetSizeTrait>(
    own: &GenericListArray<O>,
    item: &FieldRef,
    exactly: bool,
) -> Result<ArrayRef, ArrowError> {
    let values = cast_column(own.values(), item.data_type(), exactly)?;
    let (offsets, validity) = (own.offsets().clone(), own.nulls().cloned());
    Ok(Arc::new(GenericListArray::<O>::try_new(item.clone(), offsets, values, validity)?))
}

fn cast_strictly(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == wanted {
        return Ok(column.clone());
    }
    // `safe` is Arrow's word for nulls instead of errors.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, wanted, &options)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array,
        ListArray, StringArray, UInt64Array,
    };
    use arrow::datatypes::Int32Type;
    use arrow::util::display::{ArrayFormatter, FormatOptions};
    use proptest::prelude::*;

    use super::*;

    fn field(name: &str, data_type: DataType) -> FieldRef {
        Arc::new(Field::new(name, data_type, true))
    }

    fn record(fields: &[(&str, DataType)]) -> DataType {
        DataType::Struct(fields.iter().map(|(name, kind)| field(name, kind.clone())).collect())
    }

    fn list_of(item: DataType) -> DataType {
        DataType::List(field("item", item))
    }

    fn map_of(key: DataType, value: DataType) -> DataType {
        let pair = vec![Arc::new(Field::new("key", key, false)), field("value", value)];
        let entries = Field::new("entries", DataType::Struct(pair.into()), false);
        DataType::Map(Arc::new(entries), false)
    }

    #[test]
    fn types_unify_to_the_narrowest_that_holds_both() {
        use DataType::*;
        let time = |unit, zone: Option<&str>| Timestamp(unit, zone.map(Into::into));
        for (one, two, expected) in [
            (Int32, Int64, Some(Int64)),
            (Int8, Int16, Some(Int16)),
            (UInt8, UInt32, Some(UInt32)),
            (UInt8, Int8, Some(Int16)),
            (UInt8, Int32, Some(Int32)),
            (UInt32, Int32, Some(Int64)),
            (UInt64, Int8, Some(Decimal128(20, 0))),
            (Float32, Float64, Some(Float64)),
            (Int64, Float64, Some(Float64)),
            (Int8, Float32, Some(Float64)),
            (Decimal128(10, 2), Decimal128(12, 4), Some(Decimal128(12, 4))),
            (Decimal128(10, 2), Decimal128(6, 4), Some(Decimal128(12, 4))),
            (Decimal64(10, 2), Int64, Some(Decimal128(21, 2))),
            (Int32, Decimal128(5, 1), Some(Decimal128(11, 1))),
            (Decimal128(38, 0), Decimal128(38, 10), None),
            (Decimal128(10, 2), Float64, None),
            (Date32, time(TimeUnit::Microsecond, None), Some(time(TimeUnit::Microsecond, None))),
            (Date32, time(TimeUnit::Microsecond, Some("UTC")), None),
            (Date32, Date64, Some(Date64)),
            (
                time(TimeUnit::Millisecond, None),
                time(TimeUnit::Nanosecond, None),
                Some(time(TimeUnit::Nanosecond, None)),
            ),
            (
                time(TimeUnit::Millisecond, Some("Europe/Berlin")),
                time(TimeUnit::Second, Some("+00:00")),
                Some(time(TimeUnit::Millisecond, Some("UTC"))),
            ),
            (time(TimeUnit::Second, None), time(TimeUnit::Second, Some("UTC")), None),
            (
                Time32(TimeUnit::Second),
                Time64(TimeUnit::Nanosecond),
                Some(Time64(TimeUnit::Nanosecond)),
            ),
            (
                Duration(TimeUnit::Second),
                Duration(TimeUnit::Millisecond),
                Some(Duration(TimeUnit::Millisecond)),
            ),
            (
                Interval(IntervalUnit::DayTime),
                Interval(IntervalUnit::MonthDayNano),
                Some(Interval(IntervalUnit::MonthDayNano)),
            ),
            (
                Interval(IntervalUnit::DayTime),
                Interval(IntervalUnit::YearMonth),
                Some(Interval(IntervalUnit::MonthDayNano)),
            ),
            (Utf8, LargeUtf8, Some(Utf8View)),
            (Dictionary(Box::new(Int32), Box::new(Utf8)), Utf8View, Some(Utf8View)),
            (FixedSizeBinary(4), BinaryView, Some(BinaryView)),
            (Utf8View, BinaryView, None),
            (Null, Utf8View, Some(Utf8View)),
            (Boolean, Int8, None),
            (Int64, Utf8View, None),
            (
                record(&[("a", Int32), ("b", Utf8View)]),
                record(&[("c", Boolean), ("a", Int64)]),
                Some(record(&[("a", Int64), ("b", Utf8View), ("c", Boolean)])),
            ),
            (record(&[("a", Int32), ("a", Int32)]), record(&[("a", Int32)]), None),
            (list_of(Int32), list_of(Int64), Some(list_of(Int64))),
            (
                list_of(Int32),
                LargeList(field("item", Int64)),
                Some(LargeList(field("item", Int64))),
            ),
            (list_of(Int32), Int32, None),
            (list_of(Int32), record(&[("a", Int32)]), None),
            (map_of(Utf8, Int32), map_of(LargeUtf8, Int64), Some(map_of(Utf8, Int64))),
            (map_of(Utf8, Int32), record(&[("a", Int32)]), None),
        ] {
            assert_eq!(unify_types(&one, &two).ok(), expected, "{one} and {two}");
            let other_way = unify_types(&two, &one).ok();
            if !one.is_nested() {
                assert_eq!(other_way, expected, "{two} and {one}");
            }
            if let Some(expected) = expected {
                assert_eq!(unify_types(&expected, &two), Ok(expected.clone()));
                let nulls = cast_file_column(&new_null_array(&one, 3), &expected, true).unwrap();
                assert_eq!((nulls.data_type(), nulls.len()), (&expected, 3));
            }
        }
        let clash = unify_types(
            &record(&[("a", record(&[("b", Int64)]))]),
            &record(&[("a", record(&[("b", Utf8View)]))]),
        );
        assert_eq!(clash.unwrap_err().path, ["a", "b"]);
    }

    fn shown(array: &ArrayRef) -> Vec<String> {
        let options = FormatOptions::default().with_null("∅");
        let format = ArrayFormatter::try_new(array, &options).unwrap();
        (0..array.len()).map(|row| format.value(row).to_string()).collect()
    }

    #[test]
    fn values_are_kept_or_refused_but_never_changed() {
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(15706), None]));
        let far: ArrayRef = Arc::new(Date32Array::from(vec![2_932_896]));
        let whole: ArrayRef = Arc::new(Int64Array::from(vec![Some(1 << 53), Some(-3), None]));
        let long: ArrayRef = Arc::new(Int64Array::from(vec![1, (1 << 53) + 1]));
        let huge: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
        let cents: ArrayRef =
            Arc::new(Decimal128Array::from(vec![12345]).with_precision_and_scale(5, 2).unwrap());
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let fixed = |values: [Option<&[u8]>; 2]| -> ArrayRef {
            let values = values.into_iter();
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 2).unwrap())
        };
        let (letters, no_letters) = (fixed([Some(b"ab"), None]), fixed([Some(b"\xc3("), None]));
        for (array, wanted, expected) in [
            (&days, micros.clone(), Ok(vec!["2013-01-01T00:00:00", "∅"])),
            (&far, micros, Ok(vec!["9999-12-31T00:00:00"])),
            (&far, nanos, Err("overflow")),
            (&whole, DataType::Float64, Ok(vec!["9007199254740992.0", "-3.0", "∅"])),
            (&long, DataType::Float64, Err("9007199254740993 would be rounded")),
            (&huge, DataType::Float64, Err("18446744073709551615 would be rounded")),
            (&huge, DataType::Decimal128(20, 0), Ok(vec!["18446744073709551615"])),
            (&cents, DataType::Decimal128(7, 3), Ok(vec!["123.450"])),
            (&whole, DataType::Utf8View, Ok(vec!["9007199254740992", "-3", "∅"])),
            (&text, DataType::Int64, Err("cannot be read as BIGINT")),
            (&letters, DataType::Utf8View, Ok(vec!["ab", "∅"])),
            (&letters, DataType::Utf8, Ok(vec!["ab", "∅"])),
            (&letters, DataType::BinaryView, Ok(vec!["6162", "∅"])),
            (&no_letters, DataType::Utf8View, Err("cannot be read as TEXT")),
        ] {
            match (cast_file_column(array, &wanted, true), expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!(found.data_type(), &wanted);
                    assert_eq!(shown(&found), expected);
                }
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        }
        let rounded = cast_file_column(&long, &DataType::Float64, false).unwrap();
        assert_eq!(shown(&rounded), ["1.0", "9007199254740992.0"]);
    }

    #[test]
    fn nested_columns_are_adapted_by_their_fields() {
        let own = Arc::new(StructArray::from(vec![
            (field("b", DataType::Utf8), Arc::new(StringArray::from(vec!["x", "y"])) as ArrayRef),
            (
                field("a", DataType::Int32),
                Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef,
            ),
        ])) as ArrayRef;
        let wanted = record(&[
            ("a", DataType::Int64),
            ("b", DataType::Utf8View),
            ("c", list_of(DataType::Int64)),
        ]);
        let found = cast_file_column(&own, &wanted, true).unwrap();
        assert_eq!(found.data_type(), &wanted);
        assert_eq!(shown(&found), ["{a: 1, b: x, c: ∅}", "{a: ∅, b: y, c: ∅}"]);

        let own: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]));
        let wanted = DataType::LargeList(field("item", DataType::Float64));
        let found = cast_file_column(&own, &wanted, true).unwrap();
        assert_eq!(shown(&found), ["[1.0, ∅]", "∅", "[]"]);
    }

    #[test]
    fn declared_types_keep_values_or_make_text() {
        use DataType::*;
        let zoned = Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let naive = Timestamp(TimeUnit::Millisecond, None);
        for (own, wanted, expected) in [
            (Int32, Int64, true),
            (Int64, Int32, false),
            (Int64, Float64, true),
            (Int64, Utf8View, true),
            (Utf8View, Int64, false),
            (naive.clone(), zoned.clone(), true),
            (zoned, naive, false),
            (list_of(Int32), Utf8View, false),
        ] {
            assert_eq!(can_be_read_as(&own, &wanted), expected, "{own} as {wanted}");
        }
        assert!(preserves_order(&Int32, &Float64));
        assert!(!preserves_order(&Int32, &Utf8View));
    }

    proptest! {
        #[test]
        fn integers_of_any_width_stay_what_they_are(
            values in prop::collection::vec(prop::option::of(any::<i64>()), 0..20),
            widths in (0..8usize, 0..8usize),
        ) {
            use DataType::*;
            let kinds = [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64];
            let (one, two) = (&kinds[widths.0], &kinds[widths.1]);
            let together = unify_types(one, two).unwrap();
            let all: ArrayRef = Arc::new(Int64Array::from(values));
            for own in [one, two] {
                // Values that the width cannot hold are null here.
                let column = arrow::compute::cast(&all, own).unwrap();
                let found = cast_file_column(&column, &together, true).unwrap();
                prop_assert_eq!(shown(&found), shown(&column));
                let floats = cast_file_column(&column, &Float64, true);
                let is_exact = shown(&column).iter().all(|text| {
                    text.parse::<i128>().is_ok_and(|value| value as f64 as i128 == value) || text == "∅"
                });
                prop_assert_eq!(floats.is_ok(), is_exact);
                if let Ok(floats) = floats {
                    let floats: Vec<Option<f64>> =
                        floats.as_any().downcast_ref::<Float64Array>().unwrap().iter().collect();
                    let expected = shown(&column).iter().map(|t| t.parse().ok()).collect::<Vec<_>>();
                    prop_assert_eq!(floats, expected);
                }
            }
        }
    }
}
