//! Encoder from Arrow's arrays to Avro rows, and the Avro schema of Arrow columns.
//!
//! | Arrow | Avro |
//! | --- | --- |
//! | integers up to 32 bits | `int`; unsigned ones of 32 bits `long` |
//! | integers of 64 bits | `long`; unsigned ones are refused |
//! | floats of 16 and 32 bits, of 64 | `float`, `double` |
//! | text, bytes, bytes of fixed length | `string`, `bytes`, `fixed` |
//! | decimals with a scale of zero or more | `bytes` with `decimal` |
//! | dates, times and timestamps | the logical types; seconds become milliseconds |
//! | timestamps with a zone | the instant: Avro keeps no zone |
//! | intervals of months, days and nanoseconds | `duration` |
//! | lists, maps with text as keys, structs | `array`, `map`, `record` |
//! | dictionaries | their values |
//! | nullable columns | a union of `null` and the type |

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, BooleanArray,
    FixedSizeBinaryArray, LargeBinaryArray, LargeStringArray, RecordBatch, StringArray,
    StringViewArray,
};
use arrow_buffer::{IntervalMonthDayNano, NullBuffer, i256};
use arrow_schema::{DataType, Field, Fields, IntervalUnit, TimeUnit};
use serde_json::{Value, json};

use crate::error::{Error, Result};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

const MILLIS_PER_DAY: i64 = 86_400_000;

/// Returns the Avro schema of columns, as JSON.
pub(crate) fn avro_schema_of(columns: &Fields) -> Result<Value> {
    TypeNames::default().record_schema("row", columns, &[])
}

/// Unique names for the Avro types that need one.
#[derive(Default)]
struct TypeNames {
    used_names: HashSet<String>,
}

impl TypeNames {
    fn record_schema(&mut self, name: &str, fields: &Fields, path: &[&str]) -> Result<Value> {
        let name = self.unused_name(name);
        let mut seen = HashSet::new();
        let mut list = Vec::with_capacity(fields.len());
        for field in fields {
            let path: Vec<&str> = path.iter().copied().chain([field.name().as_str()]).collect();
            if !is_valid_name(field.name()) {
                return Err(unsupported_column(
                    &path,
                    "has a name that Avro does not take: letters, digits and `_`, and no digit \
                     first",
                    "name it otherwise with AS",
                ));
            }
            if !seen.insert(field.name()) {
                return Err(unsupported_column(
                    &path,
                    "is there twice",
                    "name one of them otherwise with AS",
                ));
            }
            let mut entry =
                json!({"name": field.name(), "type": self.nullable_schema(field, &path)?});
            if field.is_nullable() {
                entry["default"] = Value::Null;
            }
            list.push(entry);
        }
        Ok(json!({"type": "record", "name": name, "fields": list}))
    }

    fn unused_name(&mut self, name: &str) -> String {
        let mut unused = name.to_owned();
        for number in 2.. {
            if self.used_names.insert(unused.clone()) {
                break;
            }
            unused = format!("{name}_{number}");
        }
        unused
    }

    fn nullable_schema(&mut self, field: &Field, path: &[&str]) -> Result<Value> {
        let kind = self.type_schema(field.data_type(), path)?;
        Ok(match field.is_nullable() && *field.data_type() != DataType::Null {
            true => json!(["null", kind]),
            false => kind,
        })
    }

    fn type_schema(&mut self, data_type: &DataType, path: &[&str]) -> Result<Value> {
        use DataType as D;
        let named = || path.join("_").replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let logical = |base: &str, name: &str| json!({"type": base, "logicalType": name});
        Ok(match data_type {
            D::Null => json!("null"),
            D::Boolean => json!("boolean"),
            D::Int8 | D::Int16 | D::Int32 | D::UInt8 | D::UInt16 => json!("int"),
            D::Int64 | D::UInt32 => json!("long"),
            D::UInt64 => {
                return Err(unsupported_column(
                    path,
                    "has unsigned integers of 64 bits, which Avro does not have",
                    "CAST(column AS DECIMAL(20, 0)) keeps them, CAST(column AS BIGINT) checks that \
                     they fit",
                ));
            }
            D::Float16 | D::Float32 => json!("float"),
            D::Float64 => json!("double"),
            D::Utf8 | D::LargeUtf8 | D::Utf8View => json!("string"),
            D::Binary | D::LargeBinary | D::BinaryView => json!("bytes"),
            D::FixedSizeBinary(size) => {
                json!({"type": "fixed", "name": self.unused_name(&named()), "size": size})
            }
            D::Date32 | D::Date64 => logical("int", "date"),
            D::Time32(_) => logical("int", "time-millis"),
            D::Time64(TimeUnit::Microsecond) => logical("long", "time-micros"),
            D::Timestamp(unit, zone) => {
                let unit = match unit {
                    TimeUnit::Second | TimeUnit::Millisecond => "timestamp-millis",
                    TimeUnit::Microsecond => "timestamp-micros",
                    TimeUnit::Nanosecond => "timestamp-nanos",
                };
                match zone {
                    Some(_) => logical("long", unit),
                    None => logical("long", &format!("local-{unit}")),
                }
            }
            D::Decimal32(precision, scale)
            | D::Decimal64(precision, scale)
            | D::Decimal128(precision, scale)
            | D::Decimal256(precision, scale)
                if *scale >= 0 =>
            {
                let mut kind = logical("bytes", "decimal");
                kind["precision"] = json!(precision);
                kind["scale"] = json!(scale);
                kind
            }
            D::Interval(IntervalUnit::MonthDayNano) => json!({
                "type": "fixed", "name": self.unused_name(&named()), "size": 12,
                "logicalType": "duration",
            }),
            D::List(item) | D::LargeList(item) | D::FixedSizeList(item, _) => {
                let path: Vec<&str> = path.iter().copied().chain(["item"]).collect();
                json!({"type": "array", "items": self.nullable_schema(item, &path)?})
            }
            D::Map(entries, _) => match entries.data_type() {
                D::Struct(pair) if pair.len() == 2 && is_text_type(pair[0].data_type()) => {
                    let path: Vec<&str> = path.iter().copied().chain(["value"]).collect();
                    json!({"type": "map", "values": self.nullable_schema(&pair[1], &path)?})
                }
                _ => {
                    return Err(unsupported_column(
                        path,
                        "is a map whose keys are not text",
                        "Avro has maps from text alone; write `parquet` or `arrow`",
                    ));
                }
            },
            D::Struct(fields) => self.record_schema(&named(), fields, path)?,
            D::Dictionary(_, values) => self.type_schema(values, path)?,
            other => {
                return Err(unsupported_column(
                    path,
                    &format!("is of type {other}, which Avro does not have"),
                    "cast the column (durations to BIGINT, times to TEXT), or write `parquet` or \
                     `arrow`",
                ));
            }
        })
    }
}

fn unsupported_column(path: &[&str], reason: &str, hint: &str) -> Error {
    Error::UnsupportedColumn { column: path.join("."), reason: reason.into(), hint: hint.into() }
}

fn is_text_type(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_valid_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// An encoder of a batch, row by row.
pub(crate) struct RowEncoder<'a>(Vec<(&'a str, ColumnEncoder<'a>)>);

impl<'a> RowEncoder<'a> {
    /// Returns an encoder with the columns as the file has them: a batch may differ in their nullability.
    pub(crate) fn new(batch: &'a RecordBatch, fields: &'a Fields) -> Result<Self> {
        let pairs = fields.iter().zip(batch.columns());
        let unlike = pairs.clone().find(|(field, array)| field.data_type() != array.data_type());
        if unlike.is_some() || fields.len() != batch.num_columns() {
            return Err(Error::UnrepresentableValue {
                column: unlike.map(|(field, _)| field.name().clone()).unwrap_or_default(),
                reason: "a batch has other columns than its file".into(),
            });
        }
        let columns = pairs.map(|(field, array)| {
            Ok((field.name().as_str(), ColumnEncoder::new(array, field.is_nullable())?))
        });
        columns.collect::<Result<Vec<_>>>().map(RowEncoder)
    }

    /// Appends a row.
    pub(crate) fn encode_row(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        for (name, column) in &self.0 {
            column.encode_value(row, out).map_err(|reason| Error::UnrepresentableValue {
                column: (*name).to_owned(),
                reason: reason.to_owned(),
            })?;
        }
        Ok(())
    }
}

struct ColumnEncoder<'a> {
    is_nullable: bool,
    nulls: Option<NullBuffer>,
    values: EncodedColumnValues<'a>,
}

enum EncodedColumnValues<'a> {
    Null,
    Boolean(&'a BooleanArray),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    /// Seconds, encoded as milliseconds.
    Seconds32(&'a [i32]),
    Seconds64(&'a [i64]),
    /// Milliseconds, encoded as days.
    Days(&'a [i64]),
    F16(&'a [Half]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
    TextView(&'a StringViewArray),
    Bytes(&'a BinaryArray),
    LargeBytes(&'a LargeBinaryArray),
    BytesView(&'a BinaryViewArray),
    Fixed(&'a FixedSizeBinaryArray),
    D32(&'a [i32]),
    D64(&'a [i64]),
    D128(&'a [i128]),
    D256(&'a [i256]),
    Interval(&'a [IntervalMonthDayNano]),
    List(&'a [i32], Box<ColumnEncoder<'a>>),
    LargeList(&'a [i64], Box<ColumnEncoder<'a>>),
    FixedList(usize, Box<ColumnEncoder<'a>>),
    Map(&'a [i32], Box<ColumnEncoder<'a>>, Box<ColumnEncoder<'a>>),
    Struct(Vec<ColumnEncoder<'a>>),
    /// Indices into the values.
    Dictionary(Vec<usize>, Box<ColumnEncoder<'a>>),
}

impl<'a> ColumnEncoder<'a> {
    fn new(array: &'a ArrayRef, nullable: bool) -> Result<Self> {
        use DataType as D;
        let child = |array: &'a ArrayRef, field: &Field| {
            ColumnEncoder::new(array, field.is_nullable()).map(Box::new)
        };
        let values = match array.data_type() {
            D::Null => EncodedColumnValues::Null,
            D::Boolean => EncodedColumnValues::Boolean(array.as_boolean()),
            D::Int8 => EncodedColumnValues::I8(array.as_primitive::<Int8Type>().values()),
            D::Int16 => EncodedColumnValues::I16(array.as_primitive::<Int16Type>().values()),
            D::Int32 => EncodedColumnValues::I32(array.as_primitive::<Int32Type>().values()),
            D::Int64 => EncodedColumnValues::I64(array.as_primitive::<Int64Type>().values()),
            D::UInt8 => EncodedColumnValues::U8(array.as_primitive::<UInt8Type>().values()),
            D::UInt16 => EncodedColumnValues::U16(array.as_primitive::<UInt16Type>().values()),
            D::UInt32 => EncodedColumnValues::U32(array.as_primitive::<UInt32Type>().values()),
            D::Float16 => EncodedColumnValues::F16(array.as_primitive::<Float16Type>().values()),
            D::Float32 => EncodedColumnValues::F32(array.as_primitive::<Float32Type>().values()),
            D::Float64 => EncodedColumnValues::F64(array.as_primitive::<Float64Type>().values()),
            D::Utf8 => EncodedColumnValues::Text(array.as_string()),
            D::LargeUtf8 => EncodedColumnValues::LargeText(array.as_string()),
            D::Utf8View => EncodedColumnValues::TextView(array.as_string_view()),
            D::Binary => EncodedColumnValues::Bytes(array.as_binary()),
            D::LargeBinary => EncodedColumnValues::LargeBytes(array.as_binary()),
            D::BinaryView => EncodedColumnValues::BytesView(array.as_binary_view()),
            D::FixedSizeBinary(_) => EncodedColumnValues::Fixed(array.as_fixed_size_binary()),
            D::Date32 => EncodedColumnValues::I32(array.as_primitive::<Date32Type>().values()),
            D::Date64 => EncodedColumnValues::Days(array.as_primitive::<Date64Type>().values()),
            D::Time32(TimeUnit::Second) => {
                EncodedColumnValues::Seconds32(array.as_primitive::<Time32SecondType>().values())
            }
            D::Time32(_) => {
                EncodedColumnValues::I32(array.as_primitive::<Time32MillisecondType>().values())
            }
            D::Time64(TimeUnit::Microsecond) => {
                EncodedColumnValues::I64(array.as_primitive::<Time64MicrosecondType>().values())
            }
            D::Timestamp(unit, _) => match unit {
                TimeUnit::Second => EncodedColumnValues::Seconds64(
                    array.as_primitive::<TimestampSecondType>().values(),
                ),
                TimeUnit::Millisecond => EncodedColumnValues::I64(
                    array.as_primitive::<TimestampMillisecondType>().values(),
                ),
                TimeUnit::Microsecond => EncodedColumnValues::I64(
                    array.as_primitive::<TimestampMicrosecondType>().values(),
                ),
                TimeUnit::Nanosecond => EncodedColumnValues::I64(
                    array.as_primitive::<TimestampNanosecondType>().values(),
                ),
            },
            D::Decimal32(..) => {
                EncodedColumnValues::D32(array.as_primitive::<Decimal32Type>().values())
            }
            D::Decimal64(..) => {
                EncodedColumnValues::D64(array.as_primitive::<Decimal64Type>().values())
            }
            D::Decimal128(..) => {
                EncodedColumnValues::D128(array.as_primitive::<Decimal128Type>().values())
            }
            D::Decimal256(..) => {
                EncodedColumnValues::D256(array.as_primitive::<Decimal256Type>().values())
            }
            D::Interval(IntervalUnit::MonthDayNano) => EncodedColumnValues::Interval(
                array.as_primitive::<IntervalMonthDayNanoType>().values(),
            ),
            D::List(item) => {
                let list = array.as_list::<i32>();
                EncodedColumnValues::List(list.value_offsets(), child(list.values(), item)?)
            }
            D::LargeList(item) => {
                let list = array.as_list::<i64>();
                EncodedColumnValues::LargeList(list.value_offsets(), child(list.values(), item)?)
            }
            D::FixedSizeList(item, size) => {
                let list = array.as_fixed_size_list();
                let size = usize::try_from(*size).unwrap_or(0);
                EncodedColumnValues::FixedList(size, child(list.values(), item)?)
            }
            D::Map(entries, _) => {
                let map = array.as_map();
                let D::Struct(pair) = entries.data_type() else {
                    return Err(unsupported_type(array));
                };
                let (keys, values) = (child(map.keys(), &pair[0])?, child(map.values(), &pair[1])?);
                EncodedColumnValues::Map(map.value_offsets(), keys, values)
            }
            D::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let columns =
                    columns.map(|(field, array)| ColumnEncoder::new(array, field.is_nullable()));
                EncodedColumnValues::Struct(columns.collect::<Result<_>>()?)
            }
            D::Dictionary(..) => {
                let Some(dictionary) = array.as_any_dictionary_opt() else {
                    return Err(unsupported_type(array));
                };
                let keys = match dictionary.values().is_empty() {
                    true => vec![0; array.len()],
                    false => dictionary.normalized_keys(),
                };
                EncodedColumnValues::Dictionary(
                    keys,
                    Box::new(ColumnEncoder::new(dictionary.values(), false)?),
                )
            }
            _ => return Err(unsupported_type(array)),
        };
        Ok(ColumnEncoder { is_nullable: nullable, nulls: array.logical_nulls(), values })
    }

    fn encode_value(&self, row: usize, out: &mut Vec<u8>) -> Result<(), &'static str> {
        let is_null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        if let EncodedColumnValues::Null = self.values {
            return Ok(());
        }
        if self.is_nullable {
            out.push(if is_null { 0 } else { 2 });
            if is_null {
                return Ok(());
            }
        } else if is_null {
            return Err("a null where its type has none");
        }
        self.values.encode_value(row, out)
    }
}

impl EncodedColumnValues<'_> {
    #[inline]
    fn encode_value(&self, row: usize, out: &mut Vec<u8>) -> Result<(), &'static str> {
        match self {
            EncodedColumnValues::Null => {}
            EncodedColumnValues::Boolean(values) => out.push(u8::from(values.value(row))),
            EncodedColumnValues::I8(values) => write_long(values[row].into(), out),
            EncodedColumnValues::I16(values) => write_long(values[row].into(), out),
            EncodedColumnValues::I32(values) => write_long(values[row].into(), out),
            EncodedColumnValues::I64(values) => write_long(values[row], out),
            EncodedColumnValues::U8(values) => write_long(values[row].into(), out),
            EncodedColumnValues::U16(values) => write_long(values[row].into(), out),
            EncodedColumnValues::U32(values) => write_long(values[row].into(), out),
            EncodedColumnValues::Seconds32(values) => match values[row].checked_mul(1000) {
                Some(millis) => write_long(millis.into(), out),
                None => return Err("a time beyond a day"),
            },
            EncodedColumnValues::Seconds64(values) => match values[row].checked_mul(1000) {
                Some(millis) => write_long(millis, out),
                None => return Err("a timestamp that is too far away for milliseconds"),
            },
            EncodedColumnValues::Days(values) => match values[row] % MILLIS_PER_DAY {
                0 => write_long(values[row] / MILLIS_PER_DAY, out),
                _ => return Err("a date with a time of day"),
            },
            EncodedColumnValues::F16(values) => {
                out.extend_from_slice(&values[row].to_f32().to_le_bytes())
            }
            EncodedColumnValues::F32(values) => out.extend_from_slice(&values[row].to_le_bytes()),
            EncodedColumnValues::F64(values) => out.extend_from_slice(&values[row].to_le_bytes()),
            EncodedColumnValues::Text(values) => write_bytes(values.value(row).as_bytes(), out),
            EncodedColumnValues::LargeText(values) => {
                write_bytes(values.value(row).as_bytes(), out)
            }
            EncodedColumnValues::TextView(values) => write_bytes(values.value(row).as_bytes(), out),
            EncodedColumnValues::Bytes(values) => write_bytes(values.value(row), out),
            EncodedColumnValues::LargeBytes(values) => write_bytes(values.value(row), out),
            EncodedColumnValues::BytesView(values) => write_bytes(values.value(row), out),
            EncodedColumnValues::Fixed(values) => out.extend_from_slice(values.value(row)),
            EncodedColumnValues::D32(values) => write_decimal(&values[row].to_be_bytes(), out),
            EncodedColumnValues::D64(values) => write_decimal(&values[row].to_be_bytes(), out),
            EncodedColumnValues::D128(values) => write_decimal(&values[row].to_be_bytes(), out),
            EncodedColumnValues::D256(values) => write_decimal(&values[row].to_be_bytes(), out),
            EncodedColumnValues::Interval(values) => write_interval(values[row], out)?,
            EncodedColumnValues::List(offsets, item) => {
                let (from, to) = (offsets[row], offsets[row + 1]);
                write_items(from.into(), to.into(), out, |row, out| item.encode_value(row, out))?;
            }
            EncodedColumnValues::LargeList(offsets, item) => {
                write_items(offsets[row], offsets[row + 1], out, |row, out| {
                    item.encode_value(row, out)
                })?;
            }
            EncodedColumnValues::FixedList(size, item) => {
                let from = (row * size) as i64;
                write_items(from, from + *size as i64, out, |row, out| {
                    item.encode_value(row, out)
                })?;
            }
            EncodedColumnValues::Map(offsets, keys, values) => {
                let (from, to) = (offsets[row], offsets[row + 1]);
                write_items(from.into(), to.into(), out, |row, out| {
                    keys.values.encode_value(row, out)?;
                    values.encode_value(row, out)
                })?;
            }
            EncodedColumnValues::Struct(columns) => {
                columns.iter().try_for_each(|column| column.encode_value(row, out))?;
            }
            EncodedColumnValues::Dictionary(keys, values) => {
                values.values.encode_value(keys[row], out)?
            }
        }
        Ok(())
    }
}

fn unsupported_type(array: &ArrayRef) -> Error {
    Error::UnsupportedColumn {
        column: String::new(),
        reason: format!("is of type {}, which Avro does not have", array.data_type()),
        hint: "cast it".into(),
    }
}

#[inline]
pub(crate) fn write_long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push((rest & 0x7f) as u8);
}

#[inline]
pub(crate) fn write_bytes(value: &[u8], out: &mut Vec<u8>) {
    write_long(value.len() as i64, out);
    out.extend_from_slice(value);
}

/// Writes big-endian bytes, as few as keep the sign.
fn write_decimal(value: &[u8], out: &mut Vec<u8>) {
    let mut value = value;
    while let [sign @ (0 | 0xff), next, ..] = value
        && (*next >= 0x80) == (*sign == 0xff)
    {
        value = &value[1..];
    }
    write_bytes(value, out);
}

fn write_interval(value: IntervalMonthDayNano, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let millis = (value.nanoseconds % 1_000_000 == 0).then_some(value.nanoseconds / 1_000_000);
    let parts = [i64::from(value.months), i64::from(value.days), millis.unwrap_or(-1)];
    for part in parts {
        let part = u32::try_from(part);
        let part = part.map_err(|_| "an interval that is below zero or finer than milliseconds")?;
        out.extend_from_slice(&part.to_le_bytes());
    }
    Ok(())
}

/// Writes the items of an array or a map: their number, the items, and the end mark.
fn write_items(
    from: i64,
    to: i64,
    out: &mut Vec<u8>,
    mut item: impl FnMut(usize, &mut Vec<u8>) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    if to > from {
        write_long(to - from, out);
        for row in from..to {
            item(usize::try_from(row).unwrap_or(usize::MAX), out)?;
        }
    }
    out.push(0);
    Ok(())
}
