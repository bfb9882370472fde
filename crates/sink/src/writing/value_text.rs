//! The text of one value, the same in CSV, in a path, in a table and (quoted if
//! JSON requires it) in JSON.
//!
//! | type | text |
//! | --- | --- |
//! | integer, boolean, decimal | digits, `true`/`false`, digits with the column's scale |
//! | float | the shortest text that reads back as the same number: `5.0`, `0.1`, `1e16`, `NaN`, `inf` |
//! | date, time | `2013-01-01`, `05:15:00`, `05:15:00.250` |
//! | timestamp | `2013-01-01T05:15:00`; with `Z` or `+01:00` if the column has a zone |
//! | duration, interval | ISO 8601: `PT90.5S`, `P1M2DT3S` |
//! | binary | `\x` and lower-case hexadecimal digits, as PostgreSQL has it |
//! | list, struct, map | JSON |
//!
//! A fraction of a second has 0, 3, 6 or 9 digits, the fewest that hold it.
//!
//! Arrow's own formatters are not used: in them a timestamp beyond chrono's years becomes an
//! error text inside the data, nested values are not JSON, and each cell passes
//! through `fmt`. 2 million rows of 17 columns as CSV took 1.6 s that way and take 1.0 s this
//! way (as JSON 1.0 s both ways).

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::types::*;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, GenericListArray, GenericStringArray,
    OffsetSizeTrait, PrimitiveArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{ArrowNativeType as _, DataType, IntervalUnit, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_base::column_types::is_valid_type;

use crate::error::{Error, Result};

/// One column of a batch, prepared for writing value by value.
pub(crate) struct TextColumn {
    writer: Box<dyn ValueWriter>,
    nulls: Option<NullBuffer>,
    /// True if its text may contain characters that CSV must quote.
    pub(crate) may_need_quotes: bool,
}

/// Writes the non-null values of a column.
trait ValueWriter {
    /// Appends the value's plain text.
    fn write_text(&self, row: usize, out: &mut Vec<u8>);

    /// Appends the value as JSON; by default the same as its text.
    fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        self.write_text(row, out);
    }
}

impl TextColumn {
    /// Prepares a column. Costs a few reference counts, not a copy.
    ///
    /// # Errors
    /// [`Error::Usage`] for a type that has no text, naming the type.
    pub(crate) fn new(array: &ArrayRef) -> Result<Self> {
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let (cell, free_text) = new_value_writer(array)?;
        Ok(TextColumn { writer: cell, nulls, may_need_quotes: free_text })
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends the text of a value that is not null.
    pub(crate) fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        self.writer.write_text(row, out);
    }

    /// Appends the value as JSON, a null as `null`.
    pub(crate) fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
        } else {
            self.writer.write_json(row, out);
        }
    }
}

/// Returns true if values of a type have a text.
pub(crate) fn can_write_as_text(data_type: &DataType) -> bool {
    is_valid_type(data_type) && TextColumn::new(&arrow::array::new_empty_array(data_type)).is_ok()
}

fn new_value_writer(array: &ArrayRef) -> Result<(Box<dyn ValueWriter>, bool)> {
    macro_rules! integer {
        ($t:ty) => {
            (Box::new(Integer(array.as_primitive::<$t>().clone())), false)
        };
    }
    macro_rules! quoted {
        ($t:ty, $write:expr) => {
            (Box::new(Quoted(array.as_primitive::<$t>().clone(), $write)), false)
        };
    }
    macro_rules! decimal {
        ($t:ty, $precision:expr, $scale:expr) => {{
            let (precision, scale) = (*$precision, *$scale);
            let values = array.as_primitive::<$t>().clone();
            let write = move |value, out: &mut Vec<u8>| {
                let text = <$t>::format_decimal(value, precision, scale);
                out.extend_from_slice(text.as_bytes());
            };
            (Box::new(Plain(values, write)), false)
        }};
    }
    Ok(match array.data_type() {
        DataType::Null => (Box::new(NullValues), false),
        DataType::Boolean => (Box::new(Bool(array.as_boolean().clone())), false),
        DataType::Int8 => integer!(Int8Type),
        DataType::Int16 => integer!(Int16Type),
        DataType::Int32 => integer!(Int32Type),
        DataType::Int64 => integer!(Int64Type),
        DataType::UInt8 => integer!(UInt8Type),
        DataType::UInt16 => integer!(UInt16Type),
        DataType::UInt32 => integer!(UInt32Type),
        DataType::UInt64 => integer!(UInt64Type),
        DataType::Float16 => {
            let cast = arrow::compute::cast(array, &DataType::Float32)
                .map_err(|e| Error::Internal(e.to_string()))?;
            return new_value_writer(&cast);
        }
        DataType::Float32 => (Box::new(Float(array.as_primitive::<Float32Type>().clone())), false),
        DataType::Float64 => (Box::new(Float(array.as_primitive::<Float64Type>().clone())), false),
        DataType::Decimal32(p, s) => decimal!(Decimal32Type, p, s),
        DataType::Decimal64(p, s) => decimal!(Decimal64Type, p, s),
        DataType::Decimal128(p, s) => decimal!(Decimal128Type, p, s),
        DataType::Decimal256(p, s) => decimal!(Decimal256Type, p, s),
        DataType::Date32 => {
            quoted!(Date32Type, |v, out: &mut Vec<u8>| write_date(i64::from(v), out))
        }
        DataType::Date64 => quoted!(Date64Type, |v: i64, out: &mut Vec<u8>| {
            match v.rem_euclid(SECONDS_PER_DAY * 1000) {
                0 => write_date(v.div_euclid(SECONDS_PER_DAY * 1000), out),
                _ => write_timestamp(v, 1000, out),
            }
        }),
        DataType::Time32(TimeUnit::Second) => {
            quoted!(Time32SecondType, |v, out: &mut Vec<u8>| write_time(i64::from(v), 1, out))
        }
        DataType::Time32(_) => {
            quoted!(Time32MillisecondType, |v, out: &mut Vec<u8>| write_time(
                i64::from(v),
                1000,
                out
            ))
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            quoted!(Time64MicrosecondType, |v, out: &mut Vec<u8>| write_time(v, 1_000_000, out))
        }
        DataType::Time64(_) => {
            quoted!(Time64NanosecondType, |v, out: &mut Vec<u8>| write_time(v, 1_000_000_000, out))
        }
        DataType::Timestamp(unit, zone) => {
            (new_timestamp_writer(array, *unit, zone.as_deref()), false)
        }
        DataType::Duration(unit) => {
            let per_second = units_per_second(*unit);
            let write = move |v: i64, out: &mut Vec<u8>| write_duration(v, per_second, out);
            let cell: Box<dyn ValueWriter> = match unit {
                TimeUnit::Second => {
                    Box::new(Quoted(array.as_primitive::<DurationSecondType>().clone(), write))
                }
                TimeUnit::Millisecond => {
                    Box::new(Quoted(array.as_primitive::<DurationMillisecondType>().clone(), write))
                }
                TimeUnit::Microsecond => {
                    Box::new(Quoted(array.as_primitive::<DurationMicrosecondType>().clone(), write))
                }
                TimeUnit::Nanosecond => {
                    Box::new(Quoted(array.as_primitive::<DurationNanosecondType>().clone(), write))
                }
            };
            (cell, false)
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            quoted!(IntervalYearMonthType, |v: i32, out: &mut Vec<u8>| write_interval(v, 0, 0, out))
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let write = |v: arrow::datatypes::IntervalDayTime, out: &mut Vec<u8>| {
                write_interval(0, v.days, i64::from(v.milliseconds) * 1_000_000, out);
            };
            (Box::new(Quoted(array.as_primitive::<IntervalDayTimeType>().clone(), write)), false)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let write = |v: arrow::datatypes::IntervalMonthDayNano, out: &mut Vec<u8>| {
                write_interval(v.months, v.days, v.nanoseconds, out);
            };
            (
                Box::new(Quoted(array.as_primitive::<IntervalMonthDayNanoType>().clone(), write)),
                false,
            )
        }
        DataType::Utf8 => (Box::new(Text(array.as_string::<i32>().clone())), true),
        DataType::LargeUtf8 => (Box::new(Text(array.as_string::<i64>().clone())), true),
        DataType::Utf8View => {
            let views = array.as_string_view().clone();
            (
                Box::new(TextByRow(move |row: usize, f: &mut dyn FnMut(&str)| f(views.value(row)))),
                true,
            )
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>().clone();
            (
                Box::new(Bytes(move |row: usize, f: &mut dyn FnMut(&[u8])| f(values.value(row)))),
                false,
            )
        }
        DataType::LargeBinary => {
            let values = array.as_binary::<i64>().clone();
            (
                Box::new(Bytes(move |row: usize, f: &mut dyn FnMut(&[u8])| f(values.value(row)))),
                false,
            )
        }
        DataType::BinaryView => {
            let values = array.as_binary_view().clone();
            (
                Box::new(Bytes(move |row: usize, f: &mut dyn FnMut(&[u8])| f(values.value(row)))),
                false,
            )
        }
        DataType::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary().clone();
            (
                Box::new(Bytes(move |row: usize, f: &mut dyn FnMut(&[u8])| f(values.value(row)))),
                false,
            )
        }
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            if dictionary.values().is_empty() {
                return Ok((Box::new(NullValues), false));
            }
            let values = TextColumn::new(dictionary.values())?;
            let free_text = values.may_need_quotes;
            (Box::new(Dictionary { keys: dictionary.normalized_keys(), values }), free_text)
        }
        DataType::RunEndEncoded(_, values) => {
            let cast = arrow::compute::cast(array, values.data_type())
                .map_err(|_| no_text_error(array))?;
            return new_value_writer(&cast);
        }
        DataType::List(_) => (new_list_writer(array.as_list::<i32>())?, true),
        DataType::LargeList(_) => (new_list_writer(array.as_list::<i64>())?, true),
        DataType::ListView(item) | DataType::LargeListView(item) => {
            let cast = arrow::compute::cast(array, &DataType::LargeList(Arc::clone(item)))
                .map_err(|_| no_text_error(array))?;
            return new_value_writer(&cast);
        }
        DataType::FixedSizeList(_, _) => {
            let lists = array.as_fixed_size_list();
            let items = TextColumn::new(lists.values())?;
            let width = usize::try_from(lists.value_length()).unwrap_or(0);
            let range = move |row: usize| (row * width, (row + 1) * width);
            (Box::new(List { items, range }), true)
        }
        DataType::Struct(fields) => {
            let values = array.as_struct();
            let mut columns = Vec::with_capacity(fields.len());
            for (field, column) in fields.iter().zip(values.columns()) {
                columns.push((json_key(field.name()), TextColumn::new(column)?));
            }
            (Box::new(Struct(columns)), true)
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let keys = TextColumn::new(map.keys())?;
            let values = TextColumn::new(map.values())?;
            (Box::new(Map { offsets: map.offsets().clone(), keys, values }), true)
        }
        DataType::Union(_, _) => return Err(no_text_error(array)),
    })
}

fn no_text_error(array: &ArrayRef) -> Error {
    Error::usage_with_hint(
        format!("a value of type `{}` cannot be written as text", array.data_type()),
        "cast the column, or write `parquet` or `arrow`",
    )
}

struct NullValues;

impl ValueWriter for NullValues {
    fn write_text(&self, _row: usize, _out: &mut Vec<u8>) {}

    fn write_json(&self, _row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"null");
    }
}

struct Bool(BooleanArray);

impl ValueWriter for Bool {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.0.value(row) { b"true" } else { b"false" });
    }
}

struct Integer<T: ArrowPrimitiveType>(PrimitiveArray<T>);

impl<T: ArrowPrimitiveType> ValueWriter for Integer<T>
where
    i128: From<T::Native>,
{
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        let value = i128::from(self.0.value(row));
        if value < 0 {
            out.push(b'-');
        }
        // The magnitude of i64::MIN and u64::MAX both fit.
        digits(u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX), 1, out);
    }
}

/// A float that can be written as text, and that knows if JSON can hold it.
trait FloatValue: Copy {
    fn write(self, out: &mut Vec<u8>);
    fn finite(self) -> bool;
}

macro_rules! float {
    ($t:ty, $exact:expr) => {
        impl FloatValue for $t {
            fn write(self, out: &mut Vec<u8>) {
                // Most floats of real tables are whole numbers, and `fmt` is slow at them.
                if self.abs() < $exact && self.trunc() == self {
                    if self.is_sign_negative() {
                        out.push(b'-');
                    }
                    digits(self.abs() as u64, 1, out);
                    out.extend_from_slice(b".0");
                } else {
                    // `Debug` is the shortest text that round-trips, with an exponent for
                    // numbers that would otherwise be long. A `Vec` takes every write.
                    let _ = write!(out, "{self:?}");
                }
            }

            fn finite(self) -> bool {
                self.is_finite()
            }
        }
    };
}
float!(f32, 1e7);
float!(f64, 1e15);

struct Float<T: ArrowPrimitiveType>(PrimitiveArray<T>);

impl<T: ArrowPrimitiveType> ValueWriter for Float<T>
where
    T::Native: FloatValue,
{
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        self.0.value(row).write(out);
    }

    fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        let value = self.0.value(row);
        if value.finite() { value.write(out) } else { out.extend_from_slice(b"null") }
    }
}

/// A primitive whose text is also a JSON number.
struct Plain<T: ArrowPrimitiveType, F>(PrimitiveArray<T>, F);

impl<T: ArrowPrimitiveType, F: Fn(T::Native, &mut Vec<u8>)> ValueWriter for Plain<T, F> {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        (self.1)(self.0.value(row), out);
    }
}

/// A primitive whose text JSON needs in quotes, without escapes.
struct Quoted<T: ArrowPrimitiveType, F>(PrimitiveArray<T>, F);

impl<T: ArrowPrimitiveType, F: Fn(T::Native, &mut Vec<u8>)> ValueWriter for Quoted<T, F> {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        (self.1)(self.0.value(row), out);
    }

    fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        self.write_text(row, out);
        out.push(b'"');
    }
}

/// A value like [`Quoted`], written from a row number.
struct QuotedByRow<F>(F);

impl<F: Fn(usize, &mut Vec<u8>)> ValueWriter for QuotedByRow<F> {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        (self.0)(row, out);
    }

    fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        self.write_text(row, out);
        out.push(b'"');
    }
}

struct Text<O: OffsetSizeTrait>(GenericStringArray<O>);

impl<O: OffsetSizeTrait> ValueWriter for Text<O> {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.value(row).as_bytes());
    }

    fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        write_json_string(self.0.value(row), out);
    }
}

/// Strings reached through a closure.
struct TextByRow<F>(F);

impl<F: Fn(usize, &mut dyn FnMut(&str))> ValueWriter for TextByRow<F> {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        (self.0)(row, &mut |text| out.extend_from_slice(text.as_bytes()));
    }

    fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        (self.0)(row, &mut |text| write_json_string(text, out));
    }
}

/// Binary values reached through a closure.
struct Bytes<F>(F);

impl<F: Fn(usize, &mut dyn FnMut(&[u8]))> ValueWriter for Bytes<F> {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\\x");
        (self.0)(row, &mut |bytes| write_hex(bytes, out));
    }

    fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"\\\\x");
        (self.0)(row, &mut |bytes| write_hex(bytes, out));
        out.push(b'"');
    }
}

struct Dictionary {
    keys: Vec<usize>,
    values: TextColumn,
}

impl ValueWriter for Dictionary {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        self.values.write_text(self.keys[row], out);
    }

    fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        self.values.write_json(self.keys[row], out);
    }
}

struct List<F> {
    items: TextColumn,
    range: F,
}

fn new_list_writer<O: OffsetSizeTrait>(
    lists: &GenericListArray<O>,
) -> Result<Box<dyn ValueWriter>> {
    let offsets = lists.offsets().clone();
    let range = move |row: usize| (offsets[row].as_usize(), offsets[row + 1].as_usize());
    Ok(Box::new(List { items: TextColumn::new(lists.values())?, range }))
}

impl<F: Fn(usize) -> (usize, usize)> ValueWriter for List<F> {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        out.push(b'[');
        let (start, end) = (self.range)(row);
        for item in start..end {
            if item > start {
                out.push(b',');
            }
            self.items.write_json(item, out);
        }
        out.push(b']');
    }
}

/// Struct fields with their keys as JSON, including the colon.
struct Struct(Vec<(Vec<u8>, TextColumn)>);

impl ValueWriter for Struct {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        out.push(b'{');
        for (i, (key, column)) in self.0.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(key);
            column.write_json(row, out);
        }
        out.push(b'}');
    }
}

struct Map {
    offsets: OffsetBuffer<i32>,
    keys: TextColumn,
    values: TextColumn,
}

impl ValueWriter for Map {
    fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        let (start, end) = (self.offsets[row].as_usize(), self.offsets[row + 1].as_usize());
        out.push(b'{');
        let mut key = Vec::new();
        for entry in start..end {
            if entry > start {
                out.push(b',');
            }
            // JSON keys are always strings: a number becomes its text.
            key.clear();
            self.keys.write_text(entry, &mut key);
            write_json_string(&String::from_utf8_lossy(&key), out);
            out.push(b':');
            self.values.write_json(entry, out);
        }
        out.push(b'}');
    }
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Returns a field's name as a JSON string followed by a colon.
pub(crate) fn json_key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 3);
    write_json_string(name, &mut key);
    key.push(b':');
    key
}

/// Appends a JSON string: escapes quotes, backslashes and control characters, and copies the rest
/// as UTF-8.
pub(crate) fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut done = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[done..i]);
        done = i + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                out.extend_from_slice(b"\\u00");
                write_hex(&[byte], out);
            }
        }
    }
    out.extend_from_slice(&bytes[done..]);
    out.push(b'"');
}

/// Appends a number with at least `width` digits.
fn digits(mut value: u64, width: usize, out: &mut Vec<u8>) {
    let mut buffer = [b'0'; 20];
    let mut start = buffer.len();
    while value > 0 {
        start -= 1;
        buffer[start] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&buffer[start.min(buffer.len() - width)..]);
}

const SECONDS_PER_DAY: i64 = 86_400;

fn units_per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn write_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = tidemill_base::calendar::civil_from_days(days);
    // ISO 8601: a year beyond four digits has a sign.
    match year {
        0..=9999 => {}
        10_000.. => out.push(b'+'),
        _ => out.push(b'-'),
    }
    digits(year.unsigned_abs(), 4, out);
    out.push(b'-');
    digits(month, 2, out);
    out.push(b'-');
    digits(day, 2, out);
}

/// Appends the time of day `value / per_second` seconds after midnight.
fn write_time(value: i64, per_second: i64, out: &mut Vec<u8>) {
    let seconds = value.div_euclid(per_second);
    digits(seconds.div_euclid(3600).unsigned_abs(), 2, out);
    out.push(b':');
    digits((seconds / 60).rem_euclid(60).unsigned_abs(), 2, out);
    out.push(b':');
    digits(seconds.rem_euclid(60).unsigned_abs(), 2, out);
    write_fraction(value.rem_euclid(per_second).unsigned_abs(), per_second, out);
}

/// Appends `.` and 3, 6 or 9 digits, the fewest that hold the value; nothing for zero.
fn write_fraction(value: u64, per_second: i64, out: &mut Vec<u8>) {
    if value == 0 {
        return;
    }
    let nanos = value * (1_000_000_000 / per_second.unsigned_abs());
    out.push(b'.');
    if nanos.is_multiple_of(1_000_000) {
        digits(nanos / 1_000_000, 3, out);
    } else if nanos.is_multiple_of(1_000) {
        digits(nanos / 1_000, 6, out);
    } else {
        digits(nanos, 9, out);
    }
}

fn write_timestamp(value: i64, per_second: i64, out: &mut Vec<u8>) {
    let per_day = SECONDS_PER_DAY * per_second;
    write_date(value.div_euclid(per_day), out);
    out.push(b'T');
    write_time(value.rem_euclid(per_day), per_second, out);
}

fn write_duration(value: i64, per_second: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(b"PT");
    let per_second_abs = per_second.unsigned_abs();
    digits(value.unsigned_abs() / per_second_abs, 1, out);
    write_fraction(value.unsigned_abs() % per_second_abs, per_second, out);
    out.push(b'S');
}

fn write_interval(months: i32, days: i32, nanos: i64, out: &mut Vec<u8>) {
    out.push(b'P');
    // Writing to a `Vec` cannot fail.
    if months / 12 != 0 {
        let _ = write!(out, "{}Y", months / 12);
    }
    if months % 12 != 0 {
        let _ = write!(out, "{}M", months % 12);
    }
    if days != 0 {
        let _ = write!(out, "{days}D");
    }
    if nanos != 0 || (months == 0 && days == 0) {
        out.push(b'T');
        if nanos < 0 {
            out.push(b'-');
        }
        digits(nanos.unsigned_abs() / 1_000_000_000, 1, out);
        write_fraction(nanos.unsigned_abs() % 1_000_000_000, 1_000_000_000, out);
        out.push(b'S');
    }
}

/// The zone suffix of a timestamp's text.
enum TimestampZone {
    None,
    Utc,
    /// Seconds east of Greenwich, and the text `+01:00`.
    Fixed(i64, String),
    /// A named zone: the offset changes over the year.
    Named,
}

fn parse_zone(name: Option<&str>) -> TimestampZone {
    let Some(name) = name else { return TimestampZone::None };
    if matches!(name, "UTC" | "utc" | "Z" | "GMT" | "Etc/UTC" | "+00:00" | "-00:00" | "+0000") {
        return TimestampZone::Utc;
    }
    let fixed = || -> Option<(i64, String)> {
        let sign = match name.as_bytes().first()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let number: String = name[1..].chars().filter(|c| *c != ':').collect();
        if !number.is_ascii() || !(number.len() == 2 || number.len() == 4) {
            return None;
        }
        let hours: i64 = number[..2].parse().ok()?;
        let minutes: i64 = if number.len() == 4 { number[2..].parse().ok()? } else { 0 };
        let text = format!("{}{hours:02}:{minutes:02}", &name[..1]);
        Some((sign * (hours * 3600 + minutes * 60), text))
    };
    match fixed() {
        Some((0, _)) => TimestampZone::Utc,
        Some((seconds, text)) => TimestampZone::Fixed(seconds, text),
        None => TimestampZone::Named,
    }
}

fn new_timestamp_writer(
    array: &ArrayRef,
    unit: TimeUnit,
    name: Option<&str>,
) -> Box<dyn ValueWriter> {
    let values: PrimitiveArray<Int64Type> = match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().reinterpret_cast(),
        TimeUnit::Millisecond => {
            array.as_primitive::<TimestampMillisecondType>().reinterpret_cast()
        }
        TimeUnit::Microsecond => {
            array.as_primitive::<TimestampMicrosecondType>().reinterpret_cast()
        }
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().reinterpret_cast(),
    };
    let per_second = units_per_second(unit);
    match parse_zone(name) {
        TimestampZone::None => Box::new(Quoted(values, move |v, out: &mut Vec<u8>| {
            write_timestamp(v, per_second, out);
        })),
        TimestampZone::Utc => Box::new(Quoted(values, move |v, out: &mut Vec<u8>| {
            write_timestamp(v, per_second, out);
            out.push(b'Z');
        })),
        TimestampZone::Fixed(offset, text) => {
            Box::new(Quoted(values, move |v: i64, out: &mut Vec<u8>| {
                write_timestamp(v.saturating_add(offset * per_second), per_second, out);
                out.extend_from_slice(text.as_bytes());
            }))
        }
        TimestampZone::Named => {
            let array = Arc::clone(array);
            Box::new(QuotedByRow(move |row: usize, out: &mut Vec<u8>| {
                let options = FormatOptions::new();
                let local = ArrayFormatter::try_new(array.as_ref(), &options)
                    .and_then(|formatter| formatter.value(row).try_to_string());
                match local {
                    Ok(text) => out.extend_from_slice(text.as_bytes()),
                    // A zone that this build does not know, or a year beyond its tables:
                    // the instant is right in any case.
                    Err(_) => {
                        write_timestamp(values.value(row), per_second, out);
                        out.push(b'Z');
                    }
                }
            }))
        }
    }
}
