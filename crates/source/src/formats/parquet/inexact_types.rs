//! Converts types that Arrow's Parquet decoder reads inexactly.
//!
//! | stored as | in the file | in the source |
//! | --- | --- | --- |
//! | `INT96` | nanoseconds of the day (8 bytes), Julian day (4 bytes), little endian | the timestamp of the file's Arrow schema; `TIMESTAMP(6)` without one |
//! | `INTERVAL` | months, days and milliseconds, each 4 bytes, unsigned, little endian | an interval of months, days and nanoseconds |
//! | `UUID` | 16 bytes | text of 36 characters |
//! | `ENUM` | UTF-8 | text; Arrow's decoder is asked for it |
//!
//! Arrow's decoder wraps an `INT96` that overflows 64 bits of nanoseconds, and drops the months of an `INTERVAL`.
//! The footer is therefore decoded with a schema in which both are plain `FIXED_LEN_BYTE_ARRAY(12)`: they have the
//! same bytes in every encoding, and arrive as `FixedSizeBinary(12)`. A value outside of the source type is
//! an error.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, FixedSizeListArray, GenericListArray,
    IntervalMonthDayNanoArray, MapArray, OffsetSizeTrait, StringViewBuilder, StructArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, IntervalMonthDayNano, IntervalUnit, TimeUnit,
};
use arrow::error::ArrowError;
use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};
use tidemill_text::sql_type_name;

use super::super::union_structs::convert_union_to_struct;

const INT96_BYTES: i32 = 12;
const INTERVAL_BYTES: i32 = 12;
pub(in crate::formats) const UUID_BYTES: i32 = 16;
const UUID_TEXT_BYTES: usize = 36;
const JULIAN_DAY_OF_EPOCH: i64 = 2_440_588;
/// The first Julian day that 64-bit microseconds since 1970 cover completely.
const MICROSECONDS_DAY_MIN: i32 = -104_311_402;
const SECONDS_PER_DAY: i64 = 86_400;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A value outside of the type of its column.
#[derive(Debug)]
pub(in crate::formats) struct ConversionMisfit {
    /// The row in the batch; `None` for a value in a nested column.
    pub(in crate::formats) row: Option<usize>,
    pub(in crate::formats) kind: ConversionMisfitKind,
}

#[derive(Debug)]
pub(in crate::formats) enum ConversionMisfitKind {
    /// The value has no counterpart in the type; described in words.
    OutOfRange(String),
    /// An `INT96` is finer than the unit of the timestamp.
    FinerThanUnit(TimeUnit),
    Arrow(ArrowError),
}

impl From<ArrowError> for ConversionMisfit {
    fn from(error: ArrowError) -> Self {
        Self { row: None, kind: ConversionMisfitKind::Arrow(error) }
    }
}

/// Returns whether a leaf column is an `INT96`.
pub(super) fn is_int96(column: &ColumnDescriptor) -> bool {
    column.physical_type() == PhysicalType::INT96
        && column.logical_type_ref() != Some(&LogicalType::Unknown)
}

/// Returns whether a type that Arrow's decoder is asked for may contain an `INT96`.
pub(super) fn has_int96(decoded: &DataType) -> bool {
    match decoded {
        DataType::FixedSizeBinary(INT96_BYTES) => true,
        DataType::Struct(fields) => fields.iter().any(|field| has_int96(field.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => has_int96(item.data_type()),
        _ => false,
    }
}

/// Returns whether a leaf column is an `INTERVAL`.
pub(super) fn is_interval(column: &ColumnDescriptor) -> bool {
    column.converted_type() == ConvertedType::INTERVAL
        && column.physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY
        && column.type_length() == INTERVAL_BYTES
}

/// Returns whether a leaf column is a `UUID`.
pub(super) fn is_uuid(column: &ColumnDescriptor) -> bool {
    column.logical_type_ref() == Some(&LogicalType::Uuid)
        && column.physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY
        && column.type_length() == UUID_BYTES
}

/// Returns whether a leaf column is an `ENUM`.
fn is_enum(column: &ColumnDescriptor) -> bool {
    match column.logical_type_ref() {
        Some(logical) => logical == &LogicalType::Enum,
        None => column.converted_type() == ConvertedType::ENUM,
    }
}

/// Replaces `INT96` and `INTERVAL` columns by fixed-length bytes; returns `None` if there are none.
///
/// A file with an Arrow schema (`has_hints`) keeps its intervals, because that schema says which parts they use.
///
/// # Errors
/// Fails only if the `parquet` crate rejects the replacement type.
pub(super) fn replace_inexact_types(
    schema: &SchemaDescriptor,
    has_hints: bool,
) -> Result<Option<SchemaDescriptor>, ParquetError> {
    let is_replaced = |leaf: &ColumnDescriptor| is_int96(leaf) || (is_interval(leaf) && !has_hints);
    let mut leaves = schema.columns().iter().map(|leaf| is_replaced(leaf));
    if !schema.columns().iter().any(|leaf| is_replaced(leaf)) {
        return Ok(None);
    }
    let root = replace_leaves(schema.root_schema(), &mut leaves)?;
    Ok(Some(SchemaDescriptor::new(root)))
}

/// Replaces the leaves of a type for which `leaves` yields true.
fn replace_leaves(
    of: &Type,
    leaves: &mut impl Iterator<Item = bool>,
) -> Result<Arc<Type>, ParquetError> {
    Ok(Arc::new(match of {
        Type::GroupType { basic_info, fields } => {
            let fields = fields.iter().map(|field| replace_leaves(field, leaves));
            let fields = fields.collect::<Result<Vec<_>, _>>()?;
            Type::GroupType { basic_info: basic_info.clone(), fields }
        }
        Type::PrimitiveType { basic_info, .. } if leaves.next() == Some(true) => {
            let id = basic_info.has_id().then(|| basic_info.id());
            Type::primitive_type_builder(of.name(), PhysicalType::FIXED_LEN_BYTE_ARRAY)
                .with_repetition(basic_info.repetition())
                .with_length(INT96_BYTES)
                .with_id(id)
                .build()?
        }
        Type::PrimitiveType { .. } => of.clone(),
    }))
}

/// Derives the source columns from the Arrow types of the file's own schema.
pub(super) fn derive_source_fields(
    fields: &Fields,
    schema: &SchemaDescriptor,
    has_hints: bool,
) -> Fields {
    use DataType::{Dictionary, FixedSizeBinary, Interval, Timestamp, Utf8View};
    map_leaves(fields, schema, &|leaf, own| {
        let values = if let Dictionary(_, values) = own { values.as_ref() } else { own };
        match values {
            Timestamp(..) if is_int96(leaf) && has_hints => values.clone(),
            Timestamp(..) if is_int96(leaf) => Timestamp(TimeUnit::Microsecond, None),
            Interval(_) if is_interval(leaf) && !has_hints => Interval(IntervalUnit::MonthDayNano),
            FixedSizeBinary(UUID_BYTES) if is_uuid(leaf) => Utf8View,
            _ => own.clone(),
        }
    })
}

/// Changes `ENUM` columns, which contain UTF-8, from bytes to text.
pub(super) fn with_enums_as_text(fields: &Fields, schema: &SchemaDescriptor) -> Fields {
    map_leaves(fields, schema, &|leaf, own| match own {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView if is_enum(leaf) => {
            DataType::Utf8View
        }
        _ => own.clone(),
    })
}

/// Changes the time zones of timestamps to those in the file's Arrow schema, at any depth.
///
/// Arrow's reader uses a type of the Arrow schema only if the file stores timestamps in the same unit.
/// Parquet has no seconds, and an option of writers chooses another unit: then the reader yields UTC.
pub(super) fn with_arrow_time_zones(fields: &Fields, arrow: &Fields) -> Fields {
    if fields.len() != arrow.len() {
        return fields.clone();
    }
    fields
        .iter()
        .zip(arrow)
        .map(|(field, arrow)| with_arrow_time_zone(field, arrow.data_type()))
        .collect()
}

fn with_arrow_time_zone(field: &FieldRef, arrow: &DataType) -> FieldRef {
    use DataType::{
        Dictionary, FixedSizeList, LargeList, LargeListView, List, ListView, Map, Struct, Timestamp,
    };
    let inner = |item: &FieldRef| match arrow {
        List(arrow)
        | LargeList(arrow)
        | ListView(arrow)
        | LargeListView(arrow)
        | FixedSizeList(arrow, _)
        | Map(arrow, _) => with_arrow_time_zone(item, arrow.data_type()),
        _ => Arc::clone(item),
    };
    let data_type = match (field.data_type(), arrow) {
        (_, Dictionary(_, values)) => return with_arrow_time_zone(field, values),
        (Timestamp(unit, Some(_)), Timestamp(_, Some(zone))) if !zone.is_empty() => {
            Timestamp(*unit, Some(Arc::clone(zone)))
        }
        (Struct(fields), Struct(arrow)) => Struct(with_arrow_time_zones(fields, arrow)),
        (List(item), _) => List(inner(item)),
        (LargeList(item), _) => LargeList(inner(item)),
        (ListView(item), _) => ListView(inner(item)),
        (LargeListView(item), _) => LargeListView(inner(item)),
        (FixedSizeList(item, size), _) => FixedSizeList(inner(item), *size),
        (Map(entries, sorted), _) => Map(inner(entries), *sorted),
        _ => return Arc::clone(field),
    };
    match data_type == *field.data_type() {
        true => Arc::clone(field),
        false => Arc::new(field.as_ref().clone().with_data_type(data_type)),
    }
}

/// Changes the types of leaf columns; returns the fields unchanged if they do not match the schema.
fn map_leaves(
    fields: &Fields,
    schema: &SchemaDescriptor,
    change: &dyn Fn(&ColumnDescriptor, &DataType) -> DataType,
) -> Fields {
    let mut leaves = schema.columns().iter().map(AsRef::as_ref);
    let changed = fields.iter().map(|field| map_field_leaves(field, &mut leaves, change));
    let changed: Option<Fields> = changed.collect();
    // Both schemas have the same leaves in the same order.
    changed.filter(|_| leaves.next().is_none()).unwrap_or_else(|| fields.clone())
}

fn map_field_leaves<'a>(
    field: &FieldRef,
    leaves: &mut dyn Iterator<Item = &'a ColumnDescriptor>,
    change: &dyn Fn(&ColumnDescriptor, &DataType) -> DataType,
) -> Option<FieldRef> {
    use DataType::{FixedSizeList, LargeList, List, Map, Struct};
    let mut item = |item: &FieldRef| map_field_leaves(item, leaves, change);
    let data_type = match field.data_type() {
        Struct(fields) => Struct(fields.iter().map(&mut item).collect::<Option<Fields>>()?),
        List(of) => List(item(of)?),
        LargeList(of) => LargeList(item(of)?),
        FixedSizeList(of, size) => FixedSizeList(item(of)?, *size),
        Map(entries, sorted) => Map(with_utf8_key(item(entries)?, entries), *sorted),
        own => change(leaves.next()?, own),
    };
    Some(match data_type == *field.data_type() {
        true => Arc::clone(field),
        // The metadata describes the stored type.
        false => Arc::new(Field::new(field.name(), data_type, field.is_nullable())),
    })
}

/// Changes a converted map key to `Utf8`, because SQL compares keys with `Utf8` literals.
fn with_utf8_key(entries: FieldRef, own: &FieldRef) -> FieldRef {
    let (DataType::Struct(pair), DataType::Struct(stored)) = (entries.data_type(), own.data_type())
    else {
        return entries;
    };
    let mut pair: Vec<FieldRef> = pair.iter().cloned().collect();
    if let (Some(key), Some(stored)) = (pair.first_mut(), stored.first())
        && key.data_type() != stored.data_type()
        && key.data_type() == &DataType::Utf8View
    {
        *key = Arc::new(key.as_ref().clone().with_data_type(DataType::Utf8));
    }
    Arc::new(entries.as_ref().clone().with_data_type(DataType::Struct(pair.into())))
}

/// Returns the conversion target of a column: the source type, but with the requested unit, so that no digit
/// is lost in between.
pub(super) fn conversion_target(shown: &DataType, wanted: &DataType) -> DataType {
    match (shown, wanted) {
        (DataType::Timestamp(_, zone), DataType::Timestamp(unit, _)) => {
            DataType::Timestamp(*unit, zone.clone())
        }
        _ => shown.clone(),
    }
}

/// Converts a decoded column to its source type.
///
/// # Errors
/// Fails for a value outside of the source type, and, with `exactly`, for one with more digits.
pub(in crate::formats) fn convert_array(
    column: &ArrayRef,
    shown: &DataType,
    exactly: bool,
) -> Result<ArrayRef, ConversionMisfit> {
    use DataType::{
        Dictionary, FixedSizeBinary, FixedSizeList, Interval, LargeList, LargeListView, List,
        ListView, Map, Struct, Timestamp, Union, Utf8, Utf8View,
    };
    // The index of a nested value is not a row number.
    let inner = |inner: &ArrayRef, shown: &DataType| {
        convert_array(inner, shown, exactly)
            .map_err(|misfit| ConversionMisfit { row: None, ..misfit })
    };
    Ok(match (column.data_type(), shown) {
        (FixedSizeBinary(INT96_BYTES), Timestamp(unit, zone)) => {
            convert_timestamps(column.as_fixed_size_binary(), *unit, zone.as_ref(), exactly)?
        }
        (FixedSizeBinary(INTERVAL_BYTES), Interval(IntervalUnit::MonthDayNano)) => {
            convert_intervals(column.as_fixed_size_binary())?
        }
        (FixedSizeBinary(UUID_BYTES), Utf8View) => format_uuids(column.as_fixed_size_binary()),
        (FixedSizeBinary(UUID_BYTES), Utf8) => {
            cast(&format_uuids(column.as_fixed_size_binary()), shown)?
        }
        (Dictionary(_, values), Utf8View) if matches!(**values, FixedSizeBinary(_)) => {
            convert_array(&cast(column, values)?, shown, exactly)?
        }
        (Union(..), Struct(_)) => {
            inner(&(Arc::new(convert_union_to_struct(column.as_union())?) as ArrayRef), shown)?
        }
        (ListView(item), List(_)) => inner(&cast(column, &List(Arc::clone(item)))?, shown)?,
        (LargeListView(item), LargeList(_)) => {
            inner(&cast(column, &LargeList(Arc::clone(item)))?, shown)?
        }
        (Struct(own), Struct(fields)) if own.len() == fields.len() => {
            let column = column.as_struct();
            let columns = column.columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| inner(column, field.data_type()));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let fields = with_types_of(own, &columns);
            let (nulls, rows) = (column.nulls().cloned(), column.len());
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, rows)?)
        }
        (List(own), List(item)) => {
            let column = column.as_list::<i32>();
            rebuild_list(column, own, inner(column.values(), item.data_type())?)?
        }
        (LargeList(own), LargeList(item)) => {
            let column = column.as_list::<i64>();
            rebuild_list(column, own, inner(column.values(), item.data_type())?)?
        }
        (FixedSizeList(own, size), FixedSizeList(item, _)) => {
            let column = column.as_fixed_size_list();
            let values = inner(column.values(), item.data_type())?;
            let item = with_type_of(own, &values);
            let nulls = column.nulls().cloned();
            Arc::new(FixedSizeListArray::try_new(item, *size, values, nulls)?)
        }
        (Map(own, sorted), Map(entries, _)) => {
            let column = column.as_map();
            let stored: ArrayRef = Arc::new(column.entries().clone());
            let values = inner(&stored, entries.data_type())?;
            let (offsets, nulls) = (column.offsets().clone(), column.nulls().cloned());
            let field = with_type_of(own, &values);
            let entries = values.as_struct().clone();
            Arc::new(MapArray::try_new(field, offsets, entries, nulls, *sorted)?)
        }
        _ => Arc::clone(column),
    })
}

fn with_type_of(field: &FieldRef, values: &ArrayRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(values.data_type().clone()))
}

fn with_types_of(fields: &Fields, columns: &[ArrayRef]) -> Fields {
    fields.iter().zip(columns).map(|(field, column)| with_type_of(field, column)).collect()
}

fn rebuild_list<O: OffsetSizeTrait>(
    own: &GenericListArray<O>,
    item: &FieldRef,
    values: ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    let (offsets, nulls) = (own.offsets().clone(), own.nulls().cloned());
    let item = with_type_of(item, &values);
    Ok(Arc::new(GenericListArray::<O>::try_new(item, offsets, values, nulls)?))
}

fn convert_timestamps(
    column: &FixedSizeBinaryArray,
    unit: TimeUnit,
    zone: Option<&Arc<str>>,
    exactly: bool,
) -> Result<ArrayRef, ConversionMisfit> {
    let per_second: i64 = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => NANOS_PER_SECOND,
    };
    let step = NANOS_PER_SECOND / per_second;
    let mut values = Vec::with_capacity(column.len());
    for row in 0..column.len() {
        if column.is_null(row) {
            values.push(0);
            continue;
        }
        let (nanos, day) = split_int96(column.value(row));
        let misfit = |kind| ConversionMisfit { row: Some(row), kind };
        if exactly && nanos % step != 0 {
            return Err(misfit(ConversionMisfitKind::FinerThanUnit(unit)));
        }
        values.push(to_instant(nanos, day, per_second).ok_or_else(|| {
            let kind = sql_type_name(&DataType::Timestamp(unit, None));
            misfit(ConversionMisfitKind::OutOfRange(format!(
                "Julian day {day} and {nanos} nanoseconds are no {kind}"
            )))
        })?);
    }
    let nulls = column.nulls().cloned();
    let zone = zone.cloned();
    Ok(match unit {
        TimeUnit::Second => {
            Arc::new(TimestampSecondArray::new(values.into(), nulls).with_timezone_opt(zone))
        }
        TimeUnit::Millisecond => {
            Arc::new(TimestampMillisecondArray::new(values.into(), nulls).with_timezone_opt(zone))
        }
        TimeUnit::Microsecond => {
            Arc::new(TimestampMicrosecondArray::new(values.into(), nulls).with_timezone_opt(zone))
        }
        TimeUnit::Nanosecond => {
            Arc::new(TimestampNanosecondArray::new(values.into(), nulls).with_timezone_opt(zone))
        }
    })
}

/// Splits an `INT96` into nanoseconds of the day and the Julian day.
fn split_int96(bytes: &[u8]) -> (i64, i32) {
    let mut parts = bytes.chunks_exact(4).map(|part| u32::from_le_bytes(to_four_bytes(part)));
    let mut part = || parts.next().unwrap_or(0);
    let (low, high, day) = (part(), part(), part());
    ((u64::from(high) << 32 | u64::from(low)).cast_signed(), day.cast_signed())
}

fn to_four_bytes(bytes: &[u8]) -> [u8; 4] {
    bytes.try_into().unwrap_or_default()
}

/// Returns the time since 1970, rounded down, or `None` on overflow.
///
/// Spark counts 64-bit microseconds from Julian day 0, which wraps for years after 287396. The wrapped days are earlier
/// than any that 64-bit microseconds since 1970 can express, so they are unambiguous.
fn to_instant(nanos: i64, day: i32, per_second: i64) -> Option<i64> {
    let step = NANOS_PER_SECOND / per_second;
    let days = i64::from(day) - JULIAN_DAY_OF_EPOCH;
    let within_day = nanos.div_euclid(step);
    let midnight = days.checked_mul(SECONDS_PER_DAY * per_second);
    if let Some(instant) = midnight.and_then(|midnight| midnight.checked_add(within_day))
        && day >= MICROSECONDS_DAY_MIN
    {
        return Some(instant);
    }
    // The exact value, because the first representable day begins before the first representable instant.
    let exact = |days: i64| {
        i128::from(days) * i128::from(SECONDS_PER_DAY * NANOS_PER_SECOND) + i128::from(nanos)
    };
    let (instant, micros) = (exact(days), 1_000);
    let is_wrapped = instant < i128::from(i64::MIN) * micros
        && exact(i64::from(day)) >= i128::from(i64::MIN) * micros;
    let instant = if is_wrapped { instant + (1 << 64) * micros } else { instant };
    i64::try_from(instant.div_euclid(i128::from(step))).ok()
}

fn convert_intervals(column: &FixedSizeBinaryArray) -> Result<ArrayRef, ConversionMisfit> {
    let mut values = Vec::with_capacity(column.len());
    for row in 0..column.len() {
        if column.is_null(row) {
            values.push(IntervalMonthDayNano::ZERO);
            continue;
        }
        let mut parts =
            column.value(row).chunks_exact(4).map(to_four_bytes).map(u32::from_le_bytes);
        let mut part = || parts.next().unwrap_or(0);
        let (months, days, millis) = (part(), part(), part());
        let (Ok(months), Ok(days)) = (i32::try_from(months), i32::try_from(days)) else {
            let reason = format!(
                "an INTERVAL of {months} months and {days} days has more than {} of one",
                i32::MAX
            );
            return Err(ConversionMisfit {
                row: Some(row),
                kind: ConversionMisfitKind::OutOfRange(reason),
            });
        };
        values.push(IntervalMonthDayNano::new(months, days, i64::from(millis) * 1_000_000));
    }
    Ok(Arc::new(IntervalMonthDayNanoArray::new(values.into(), column.nulls().cloned())))
}

fn format_uuids(column: &FixedSizeBinaryArray) -> ArrayRef {
    let mut texts = StringViewBuilder::with_capacity(column.len());
    for value in column {
        let digits = value.and_then(format_uuid);
        texts.append_option(digits.as_ref().and_then(|digits| str::from_utf8(digits).ok()));
    }
    Arc::new(texts.finish())
}

/// Formats a UUID canonically, which keeps the order of the bytes; returns `None` unless there are 16 bytes.
pub(super) fn format_uuid(bytes: &[u8]) -> Option<[u8; UUID_TEXT_BYTES]> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    let mut text = [b'-'; UUID_TEXT_BYTES];
    // A hyphen follows the bytes 3, 5, 7 and 9.
    let places = text.iter_mut().enumerate();
    let mut places = places.filter(|(place, _)| !matches!(place, 8 | 13 | 18 | 23));
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            if let Some((_, place)) = places.next() {
                *place = DIGITS[usize::from(digit)];
            }
        }
    }
    Some(text)
}
