//! Values in the forms that sketches take: as hashes, or as bytes that sort as the values do.
//!
//! Equal values must hash alike whatever file or column type they came from, so that a stored sketch merges
//! with a new one: an integer of any width is hashed as 8 little-endian bytes, a float as its f64 with one
//! zero and one NaN, a string as its UTF-8. A timestamp is hashed as its UTC instant in microseconds or, if
//! that is not a whole number of 64 bits, in nanoseconds as 16 little-endian bytes; so are a time and a
//! duration. A date is hashed as its day number, a boolean as 0 or 1, a decimal as its shortest text.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Decimal256Array, Float64Array,
    GenericByteViewArray, GenericListArray, Int64Array, LargeBinaryArray, LargeStringArray,
    OffsetSizeTrait, StringArray, StructArray, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast_with_options;
use arrow::datatypes::{
    ByteViewType, DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, TimeUnit,
    UInt64Type, i256,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_base::batch_compaction::view_array_bytes;
use tidemill_base::column_types::STRICT_CAST_OPTIONS;
use tidemill_base::error::{Error, Result};
use tidemill_sketch::{hash_bytes, hash_f64, hash_i64, hash_i64s};

/// Casts `array` to type `to`; returns the same array if it has that type.
///
/// # Errors
/// Returns the errors of Arrow's `cast`, and an error if a value does not fit the type.
pub fn cast_exactly(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if array.data_type() == to { Ok(Arc::clone(array)) } else { cast_array(array, to) }
}

fn cast_array(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    Ok(cast_with_options(array, to, &STRICT_CAST_OPTIONS)?)
}

/// Returns an array without the string bytes that it does not refer to.
///
/// Views retain their buffers through `slice` and `take`: a few strings of a batch would hold all of its text
/// in memory, and write it to disk.
pub fn compact_views(array: &ArrayRef) -> ArrayRef {
    copy_views_if(array, &|held, used| held > 0 && held > 2 * used)
}

/// Returns an array whose strings are in buffers of its own without spare bytes: the buffers that a
/// DataFusion operator fills may be many times as large.
pub(crate) fn copy_views(array: &ArrayRef) -> ArrayRef {
    copy_views_if(array, &|held, _| held > 0)
}

/// Copies the strings of views if `is_copied`, called with the bytes that buffers hold and the bytes that
/// views refer to, returns true.
fn copy_views_if(array: &ArrayRef, is_copied: &impl Fn(usize, usize) -> bool) -> ArrayRef {
    fn collected<T: ByteViewType>(
        views: &GenericByteViewArray<T>,
        whole: &ArrayRef,
        is_copied: impl Fn(usize, usize) -> bool,
    ) -> ArrayRef {
        let held: usize = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
        match is_copied(held, views.total_buffer_bytes_used()) {
            true => Arc::new(views.gc()),
            false => Arc::clone(whole),
        }
    }
    fn items<O: OffsetSizeTrait>(
        lists: &GenericListArray<O>,
        whole: &ArrayRef,
        is_copied: &impl Fn(usize, usize) -> bool,
    ) -> ArrayRef {
        let (field, offsets, values, nulls) = lists.clone().into_parts();
        let (first, last) = (offsets[0].as_usize(), offsets[lists.len()].as_usize());
        let values = copy_views_if(&values.slice(first, last - first), is_copied);
        let offsets = offsets.iter().map(|offset| *offset - offsets[0]).collect::<Vec<_>>();
        let lists =
            GenericListArray::try_new(field, OffsetBuffer::new(offsets.into()), values, nulls);
        lists.map_or_else(|_| Arc::clone(whole), |lists| Arc::new(lists) as ArrayRef)
    }
    match array.data_type() {
        DataType::Utf8View => collected(array.as_string_view(), array, is_copied),
        DataType::BinaryView => collected(array.as_binary_view(), array, is_copied),
        DataType::List(_) => items::<i32>(array.as_list(), array, is_copied),
        DataType::LargeList(_) => items::<i64>(array.as_list(), array, is_copied),
        DataType::Struct(_) => {
            let (fields, columns, nulls) = array.as_struct().clone().into_parts();
            let columns = columns.iter().map(|column| copy_views_if(column, is_copied)).collect();
            let structs = StructArray::try_new_with_length(fields, columns, nulls, array.len());
            structs.map_or_else(|_| Arc::clone(array), |structs| Arc::new(structs) as ArrayRef)
        }
        _ => Arc::clone(array),
    }
}

/// Returns the bytes of an array's values alone, which are the same for equal arrays whatever else their
/// buffers hold.
pub fn logical_bytes(array: &ArrayRef) -> usize {
    fn items<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> usize {
        let offsets = lists.offsets();
        let (first, last) = (offsets[0].as_usize(), offsets[lists.len()].as_usize());
        offsets.len() * size_of::<O>() + logical_bytes(&lists.values().slice(first, last - first))
    }
    match array.data_type() {
        DataType::Utf8View => view_array_bytes(array.as_string_view()),
        DataType::BinaryView => view_array_bytes(array.as_binary_view()),
        DataType::List(_) => items::<i32>(array.as_list()),
        DataType::LargeList(_) => items::<i64>(array.as_list()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(logical_bytes).sum(),
        _ => {
            let size = array.to_data().get_slice_memory_size();
            size.unwrap_or_else(|_| array.get_array_memory_size())
        }
    }
}

/// The form in which a type's values reach a sketch.
#[derive(Clone, PartialEq)]
enum ValueEncoding {
    /// 64-bit integers, after a cast to the given type.
    Integer(DataType),
    /// Microseconds, from 64-bit integers of the given unit.
    Time(TimeUnit),
    Unsigned,
    Float,
    Boolean,
    Text,
    Bytes,
    Decimal,
}

fn value_encoding(of: &DataType) -> Option<ValueEncoding> {
    Some(match of {
        DataType::UInt64 => ValueEncoding::Unsigned,
        t if t.is_integer() => ValueEncoding::Integer(DataType::Int64),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => ValueEncoding::Float,
        DataType::Boolean => ValueEncoding::Boolean,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ValueEncoding::Text,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => ValueEncoding::Bytes,
        DataType::Date32 | DataType::Date64 => ValueEncoding::Integer(DataType::Date32),
        DataType::Time32(unit)
        | DataType::Time64(unit)
        | DataType::Timestamp(unit, _)
        | DataType::Duration(unit) => ValueEncoding::Time(*unit),
        DataType::Decimal32(_, _)
        | DataType::Decimal64(_, _)
        | DataType::Decimal128(_, _)
        | DataType::Decimal256(_, _) => ValueEncoding::Decimal,
        DataType::Dictionary(_, value) => return value_encoding(value),
        _ => return None,
    })
}

/// Returns true if `unique` accepts values of this type.
pub fn is_hashable(of: &DataType) -> bool {
    value_encoding(of).is_some()
}

/// Returns true if values of this type have [`SortableItems`], as `top_k` and sets of values need.
pub fn has_sortable_items(of: &DataType) -> bool {
    !matches!(of, DataType::Dictionary(_, _)) && value_encoding(of).is_some()
}

/// Returns true if each item of a type has eight bytes.
pub fn has_eight_byte_items(of: &DataType) -> bool {
    matches!(
        value_encoding(of),
        Some(
            ValueEncoding::Unsigned
                | ValueEncoding::Float
                | ValueEncoding::Integer(_)
                | ValueEncoding::Time(TimeUnit::Microsecond)
        )
    )
}

/// Returns true if a type's items are strings or bytes.
pub fn is_textual(of: &DataType) -> bool {
    matches!(value_encoding(of), Some(ValueEncoding::Text | ValueEncoding::Bytes))
}

/// Casts `array` to one of the few types that the functions below handle.
fn normalize_values(array: &ArrayRef) -> Result<(ValueEncoding, ArrayRef)> {
    let shape = value_encoding(array.data_type())
        .ok_or_else(|| Error::Internal(format!("a sketch over {}", array.data_type())))?;
    let array = match array.data_type() {
        DataType::Dictionary(_, value) => cast_exactly(array, value)?,
        _ => Arc::clone(array),
    };
    let plain = match &shape {
        ValueEncoding::Integer(DataType::Int64) => cast_exactly(&array, &DataType::Int64)?,
        ValueEncoding::Integer(DataType::Date32) => {
            let days = cast_exactly(&array, &DataType::Date32)?;
            cast_array(&cast_array(&days, &DataType::Int32)?, &DataType::Int64)?
        }
        ValueEncoding::Integer(via) => cast_array(&cast_exactly(&array, via)?, &DataType::Int64)?,
        ValueEncoding::Time(_) if matches!(array.data_type(), DataType::Time32(_)) => {
            cast_array(&cast_array(&array, &DataType::Int32)?, &DataType::Int64)?
        }
        ValueEncoding::Time(_) => cast_array(&array, &DataType::Int64)?,
        ValueEncoding::Float => cast_exactly(&array, &DataType::Float64)?,
        ValueEncoding::Bytes => match array.data_type() {
            DataType::BinaryView => array,
            _ => cast_exactly(&array, &DataType::LargeBinary)?,
        },
        _ => array,
    };
    Ok((shape, plain))
}

/// Returns the number of nanoseconds in a unit.
fn nanoseconds_per_unit(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    }
}

fn hash_time(value: i64, unit: TimeUnit) -> u64 {
    hash_nanoseconds(i128::from(value) * nanoseconds_per_unit(unit))
}

/// Returns the hash of a timestamp, a time or a duration, given in nanoseconds.
pub fn hash_nanoseconds(time: i128) -> u64 {
    match i64::try_from(time / 1000) {
        Ok(microseconds) if time % 1000 == 0 => hash_i64(microseconds),
        _ => hash_bytes(&time.to_le_bytes(), 0),
    }
}

/// Splits a time into whole microseconds, rounded down, and the remaining nanoseconds; `None` beyond 64 bits.
fn split_time(value: i64, unit: TimeUnit) -> Option<(i64, u16)> {
    let time = i128::from(value) * nanoseconds_per_unit(unit);
    let whole = i64::try_from(time.div_euclid(1000)).ok()?;
    Some((whole, u16::try_from(time.rem_euclid(1000)).ok()?))
}

/// Joins microseconds and nanoseconds to a time; `None` if the unit cannot represent it.
fn join_time(whole: i64, left: u16, unit: TimeUnit) -> Option<i64> {
    let time = i128::from(whole) * 1000 + i128::from(left);
    (time % nanoseconds_per_unit(unit) == 0)
        .then(|| i64::try_from(time / nanoseconds_per_unit(unit)).ok())?
}

/// Returns the hash of a decimal that is written without an exponent: `-12.50`.
pub fn hash_decimal_text(text: &str) -> u64 {
    let shortest = match text.split_once('.') {
        Some((_, fraction)) if fraction.bytes().all(|b| b == b'0') => {
            &text[..text.len() - fraction.len() - 1]
        }
        Some(_) => text.trim_end_matches('0'),
        None => text,
    };
    hash_bytes(shortest.as_bytes(), 0)
}

/// Returns the hash of each value, and the nulls, whose hashes are meaningless.
///
/// # Errors
/// Returns an error if the type is not hashable.
pub fn hash_values(array: &ArrayRef) -> Result<(Vec<u64>, Option<NullBuffer>)> {
    let (shape, array) = normalize_values(array)?;
    let bytes = |bytes: &[u8]| hash_bytes(bytes, 0);
    let hashes = match shape {
        ValueEncoding::Integer(_) | ValueEncoding::Time(TimeUnit::Microsecond) => {
            hash_i64s(array.as_primitive::<Int64Type>().values())
        }
        ValueEncoding::Time(unit) => {
            let values = array.as_primitive::<Int64Type>().values().iter();
            values.map(|v| hash_time(*v, unit)).collect()
        }
        ValueEncoding::Unsigned => {
            let values = array.as_primitive::<UInt64Type>().values().inner();
            hash_i64s(&ScalarBuffer::<i64>::from(values.clone()))
        }
        ValueEncoding::Float => {
            array.as_primitive::<Float64Type>().values().iter().map(|v| hash_f64(*v)).collect()
        }
        ValueEncoding::Boolean => {
            array.as_boolean().values().iter().map(|v| hash_i64(i64::from(v))).collect()
        }
        ValueEncoding::Text => {
            let texts = ByteStrings::new(&array);
            (0..array.len()).map(|row| bytes(texts.get(row))).collect()
        }
        ValueEncoding::Bytes => {
            let texts = ByteStrings::new(&array);
            (0..array.len()).map(|row| bytes(texts.get(row))).collect()
        }
        ValueEncoding::Decimal => {
            let options = FormatOptions::default();
            let format = ArrayFormatter::try_new(&array, &options)?;
            (0..array.len()).map(|row| hash_decimal_text(&format.value(row).to_string())).collect()
        }
    };
    Ok((hashes, array.logical_nulls()))
}

/// Returns the weights of rows as unsigned integers. `of` is the function's name in messages.
///
/// # Errors
/// Returns an error if a weight among the rows in `counted` is negative.
pub fn to_unsigned_weights(
    weights: &ArrayRef,
    of: &str,
    counted: Option<&NullBuffer>,
) -> Result<UInt64Array> {
    if weights.data_type() == &DataType::UInt64 {
        return Ok(weights.as_primitive::<UInt64Type>().clone());
    }
    let signed = cast_exactly(weights, &DataType::Int64)?;
    let signed = signed.as_primitive::<Int64Type>();
    let counts = |row| counted.is_none_or(|counted| counted.is_valid(row));
    let below = |(row, weight): (usize, Option<i64>)| weight.filter(|w| *w < 0 && counts(row));
    if let Some(below) = signed.iter().enumerate().find_map(below) {
        return Err(Error::Overflow {
            message: format!("a weight of `{of}` is a whole number from 0; found {below}"),
            hint: Some("leave such rows out, with FILTER (WHERE …)".into()),
        });
    }
    Ok(signed.unary(i64::cast_unsigned))
}

/// Strings or bytes in any of Arrow's layouts.
enum ByteStrings<'a> {
    Utf8(&'a StringArray),
    LargeUtf8(&'a arrow::array::LargeStringArray),
    Utf8View(&'a arrow::array::StringViewArray),
    LargeBinary(&'a arrow::array::LargeBinaryArray),
    BinaryView(&'a arrow::array::BinaryViewArray),
}

impl<'a> ByteStrings<'a> {
    fn new(array: &'a ArrayRef) -> Self {
        match array.data_type() {
            DataType::LargeUtf8 => ByteStrings::LargeUtf8(array.as_string()),
            DataType::Utf8View => ByteStrings::Utf8View(array.as_string_view()),
            DataType::LargeBinary => ByteStrings::LargeBinary(array.as_binary()),
            DataType::BinaryView => ByteStrings::BinaryView(array.as_binary_view()),
            _ => ByteStrings::Utf8(array.as_string()),
        }
    }

    fn get(&self, row: usize) -> &'a [u8] {
        match self {
            ByteStrings::Utf8(array) => array.value(row).as_bytes(),
            ByteStrings::LargeUtf8(array) => array.value(row).as_bytes(),
            ByteStrings::Utf8View(array) => array.value(row).as_bytes(),
            ByteStrings::LargeBinary(array) => array.value(row),
            ByteStrings::BinaryView(array) => array.value(row),
        }
    }
}

const SIGN_BIT: u64 = 1 << 63;

/// Values as byte strings that sort as the values do: integers and floats as 8 big-endian bytes with the sign
/// bit flipped, decimals so as 16 or 32, times as their microseconds so and, if there are any, the remaining
/// nanoseconds as 2 more, strings as they are.
pub struct SortableItems {
    encoding: ValueEncoding,
    array: ArrayRef,
}

impl SortableItems {
    /// Creates the items of an array.
    ///
    /// # Errors
    /// Returns an error if the type has no such form.
    pub fn new(array: &ArrayRef) -> Result<Self> {
        let of = array.data_type().clone();
        let (shape, mut array) = normalize_values(array)?;
        if let DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) = array.data_type() {
            array = cast_exactly(&array, &DataType::Decimal128(38, *scale))?;
        }
        if let ValueEncoding::Time(unit) = shape {
            let mut times = array.as_primitive::<Int64Type>().iter().flatten();
            if times.any(|time| split_time(time, unit).is_none()) {
                return Err(Error::Overflow {
                    message: format!("a {of} for `top_k` does not fit 64 bits of microseconds"),
                    hint: Some("leave it out, with FILTER (WHERE …)".into()),
                });
            }
        }
        Ok(SortableItems { encoding: shape, array })
    }

    /// Returns all items, including those of nulls, if each has eight bytes.
    pub fn eight_byte_items(&self) -> Option<Vec<[u8; 8]>> {
        macro_rules! words {
            ($of:ty, $turn:expr) => {
                self.array.as_primitive::<$of>().values().iter().map(|v| $turn(*v).to_be_bytes())
            };
        }
        let turned = |v: i64| v.cast_unsigned() ^ SIGN_BIT;
        Some(match self.encoding {
            ValueEncoding::Unsigned => words!(UInt64Type, |v: u64| v).collect(),
            ValueEncoding::Float => words!(Float64Type, encode_sortable_float).collect(),
            ValueEncoding::Time(unit) if unit != TimeUnit::Microsecond => return None,
            ValueEncoding::Integer(_) | ValueEncoding::Time(_) => {
                words!(Int64Type, turned).collect()
            }
            ValueEncoding::Boolean
            | ValueEncoding::Text
            | ValueEncoding::Bytes
            | ValueEncoding::Decimal => return None,
        })
    }

    /// Returns all items, including those of nulls, if each is short.
    pub fn short_items(&self) -> Option<Vec<ShortItem>> {
        if !matches!(self.encoding, ValueEncoding::Text | ValueEncoding::Bytes) {
            return None;
        }
        let texts = ByteStrings::new(&self.array);
        (0..self.array.len()).map(|row| ShortItem::new(texts.get(row))).collect()
    }

    /// Calls `take` with the item of each row that `rows` enumerates; the type is matched only once.
    pub fn for_each_item(
        &self,
        rows: impl FnOnce(&mut dyn FnMut(usize, usize)),
        mut take: impl FnMut(usize, &[u8]),
    ) {
        macro_rules! words {
            ($values:expr, $turn:expr) => {{
                let values = $values;
                rows(&mut |row, group| take(group, &$turn(values[row]).to_be_bytes()));
            }};
        }
        match self.encoding {
            ValueEncoding::Unsigned => {
                words!(self.array.as_primitive::<UInt64Type>().values(), |v: u64| v)
            }
            ValueEncoding::Float => {
                words!(self.array.as_primitive::<Float64Type>().values(), encode_sortable_float)
            }
            ValueEncoding::Boolean => {
                let values = self.array.as_boolean().values();
                rows(&mut |row, group| take(group, &[u8::from(values.value(row))]));
            }
            ValueEncoding::Text | ValueEncoding::Bytes => {
                let texts = ByteStrings::new(&self.array);
                rows(&mut |row, group| take(group, texts.get(row)));
            }
            ValueEncoding::Time(unit) if unit != TimeUnit::Microsecond => {
                let values = self.array.as_primitive::<Int64Type>().values();
                rows(&mut |row, group| {
                    let (whole, left) = split_time(values[row], unit).unwrap_or_default();
                    let mut item = [0; 10];
                    item[..8].copy_from_slice(&(whole.cast_unsigned() ^ SIGN_BIT).to_be_bytes());
                    item[8..].copy_from_slice(&left.to_be_bytes());
                    take(group, &item[..if left == 0 { 8 } else { 10 }]);
                });
            }
            ValueEncoding::Decimal => match self.array.data_type() {
                DataType::Decimal256(_, _) => {
                    let values = self.array.as_primitive::<Decimal256Type>().values();
                    rows(&mut |row, group| {
                        let mut item = values[row].to_be_bytes();
                        item[0] ^= 0x80;
                        take(group, &item);
                    });
                }
                _ => {
                    let values = self.array.as_primitive::<Decimal128Type>().values();
                    rows(&mut |row, group| {
                        let mut item = values[row].to_be_bytes();
                        item[0] ^= 0x80;
                        take(group, &item);
                    });
                }
            },
            ValueEncoding::Integer(_) | ValueEncoding::Time(_) => {
                words!(self.array.as_primitive::<Int64Type>().values(), |v: i64| {
                    v.cast_unsigned() ^ SIGN_BIT
                });
            }
        }
    }
}

/// An item of at most [`ShortItem::BYTES_MAX`] bytes.
#[derive(Clone, Copy, Default)]
pub struct ShortItem {
    length: u8,
    bytes: [u8; ShortItem::BYTES_MAX],
}

impl ShortItem {
    /// Maximum length of an item that needs no memory of its own, in bytes.
    pub const BYTES_MAX: usize = 22;

    fn new(item: &[u8]) -> Option<Self> {
        let mut bytes = [0; ShortItem::BYTES_MAX];
        bytes.get_mut(..item.len())?.copy_from_slice(item);
        Some(ShortItem { length: u8::try_from(item.len()).ok()?, bytes })
    }

    /// Returns the item's bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

fn encode_sortable_float(value: f64) -> u64 {
    let value = if value == 0.0 { 0.0 } else { value };
    let bits = if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
    if bits & SIGN_BIT == 0 { bits | SIGN_BIT } else { !bits }
}

fn decode_sortable_float(bits: u64) -> f64 {
    f64::from_bits(if bits & SIGN_BIT == 0 { !bits } else { bits & !SIGN_BIT })
}

/// Decodes decimals from their items; `None` if an item is not of the type.
fn decode_decimals(items: &[&[u8]], of: &DataType) -> Option<ArrayRef> {
    fn turned<const N: usize>(item: &[u8]) -> Option<[u8; N]> {
        let mut bytes: [u8; N] = item.try_into().ok()?;
        bytes[0] ^= 0x80;
        Some(bytes)
    }
    if let DataType::Decimal256(precision, scale) = of {
        let values = items.iter().map(|item| turned(item).map(i256::from_be_bytes));
        let values = Decimal256Array::from_iter_values(values.collect::<Option<Vec<_>>>()?);
        return Some(Arc::new(values.with_precision_and_scale(*precision, *scale).ok()?));
    }
    let values = items.iter().map(|item| turned(item).map(i128::from_be_bytes));
    let values = Decimal128Array::from_iter_values(values.collect::<Option<Vec<_>>>()?);
    let wide = match of {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale) => DataType::Decimal128(38, *scale),
        _ => return None,
    };
    let values: ArrayRef = Arc::new(values.with_data_type(wide));
    cast_exactly(&values, of).ok()
}

/// Decodes the array of type `of` from its items: the inverse of [`SortableItems`].
///
/// # Errors
/// Returns an error if an item is not of that type, as in a damaged partial table.
pub fn decode_items(items: &[&[u8]], of: &DataType) -> Result<ArrayRef> {
    let damaged = || Error::Corrupt {
        path: "partial table".into(),
        offset: None,
        reason: format!("a state of `top_k` holds an item that is no {of}"),
        hint: None,
    };
    let word = |item: &[u8]| item.try_into().map(u64::from_be_bytes).map_err(|_| damaged());
    let shape = value_encoding(of).ok_or_else(damaged)?;
    let time = |item: &[u8], unit: TimeUnit| -> Result<i64> {
        let (whole, left) = item.split_at_checked(8).ok_or_else(damaged)?;
        let left = match left {
            [] => 0,
            [high, low] => u16::from_be_bytes([*high, *low]),
            _ => return Err(damaged()),
        };
        let whole = (word(whole)? ^ SIGN_BIT).cast_signed();
        join_time(whole, left, unit).ok_or_else(damaged)
    };
    let array: ArrayRef = match &shape {
        ValueEncoding::Time(unit) => {
            let values = items.iter().map(|item| time(item, *unit));
            let values: ArrayRef = Arc::new(Int64Array::from(values.collect::<Result<Vec<_>>>()?));
            match of {
                DataType::Time32(_) => cast_array(&values, &DataType::Int32)?,
                _ => values,
            }
        }
        ValueEncoding::Decimal => return decode_decimals(items, of).ok_or_else(damaged),
        ValueEncoding::Integer(_) => {
            let values = items.iter().map(|item| Ok((word(item)? ^ SIGN_BIT).cast_signed()));
            Arc::new(Int64Array::from(values.collect::<Result<Vec<i64>>>()?))
        }
        ValueEncoding::Unsigned => Arc::new(UInt64Array::from(
            items.iter().map(|item| word(item)).collect::<Result<Vec<u64>>>()?,
        )),
        ValueEncoding::Float => {
            let values = items.iter().map(|item| Ok(decode_sortable_float(word(item)?)));
            Arc::new(Float64Array::from(values.collect::<Result<Vec<f64>>>()?))
        }
        ValueEncoding::Boolean => Arc::new(BooleanArray::from_iter(
            items.iter().map(|item| Some(item.first().is_some_and(|byte| *byte != 0))),
        )),
        ValueEncoding::Text => {
            let texts = items.iter().map(|item| std::str::from_utf8(item).map_err(|_| damaged()));
            Arc::new(LargeStringArray::from(texts.collect::<Result<Vec<&str>>>()?))
        }
        ValueEncoding::Bytes => Arc::new(LargeBinaryArray::from_iter_values(items.iter())),
    };
    let array = match &shape {
        ValueEncoding::Integer(DataType::Date32) => {
            cast_array(&cast_array(&array, &DataType::Int32)?, &DataType::Date32)?
        }
        ValueEncoding::Integer(via) if via != &DataType::Int64 => cast_array(&array, via)?,
        _ => array,
    };
    cast_exactly(&array, of)
}
