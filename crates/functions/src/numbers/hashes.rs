//! Hashes of values: `hash`, and digests and checksums of bytes.
//!
//! `hash` is XXH64 (Yann Collet, seed 0) of the bytes of the values, in order, each value preceded by a tag
//! byte for its kind. Numbers are little-endian. The hash is the same in every release, on every machine, and
//! for every type that holds the same value of a kind: for INT and BIGINT, and for TIMESTAMP in milliseconds
//! and in nanoseconds.
//!
//! ```text
//! 0                       null
//! 1  i64                  a whole number          2  u64    one above those of i64
//! 3  f64                  a float: -0 as 0, every NaN as 0x7ff8000000000000
//! 4  u64 length, bytes    text                    5  the same: bytes
//! 6  u8                   a boolean               7  i64    a date, in days since 1970
//! 8  i128                 a timestamp, in nanoseconds since 1970, whatever its zone
//! 9  i64                  a time of day, in nanoseconds
//! 10 i32 i32 i64          an interval: months, days, nanoseconds
//! 11 i128                 a difference of times, in nanoseconds
//! 12 i8, 32 bytes         a decimal: its scale and its digits, without zeros at its end
//! 13 u64 count, items     a list                  14 fields a struct
//! 15 u64 count, entries   a map: a key and a value each
//! ```

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, Int64Array, UInt64Array,
};
use arrow::compute::cast_with_options;
use arrow::datatypes::{
    DataType, Decimal256Type, DecimalType, Float64Type, Int64Type, IntervalMonthDayNanoType,
    IntervalUnit, TimeUnit, UInt64Type, i256,
};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::DOC_SECTION_HASHING;
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};

use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, RowMapping, argument_array, text_cast_type,
    usage_error, wrong_arguments_error,
};

/// A column cast to the type from which its values are serialized for hashing.
enum HashedColumn {
    Nulls,
    Integers(Int64Array),
    Unsigned(UInt64Array),
    Floats(Float64Array),
    Texts(BinaryArray),
    Binary(BinaryArray),
    Booleans(BooleanArray),
    Dates(Int64Array),
    /// The number is the count of nanoseconds in the column's unit.
    Timestamps(Int64Array, i64),
    TimesOfDay(Int64Array, i64),
    Intervals(ArrayRef),
    Durations(Int64Array, i64),
    Decimals(ArrayRef, i8),
    Lists(ArrayRef, Box<HashedColumn>),
    Structs(ArrayRef, Vec<HashedColumn>),
    Maps(ArrayRef, Box<HashedColumn>, Box<HashedColumn>),
}

fn nanos_per_unit(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Returns whether values of a type can be hashed.
fn is_hashable_type(of: &DataType) -> bool {
    match of {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_hashable_type(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| is_hashable_type(field.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                fields.len() == 2 && fields.iter().all(|field| is_hashable_type(field.data_type()))
            }
            _ => false,
        },
        DataType::Dictionary(_, values) => is_hashable_type(values),
        DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Union(_, _)
        | DataType::RunEndEncoded(_, _) => false,
        _ => true,
    }
}

impl HashedColumn {
    fn from_array(array: &ArrayRef) -> Result<Self> {
        let to = |to: &DataType| cast_with_options(array, to, &STRICT_CAST_OPTIONS);
        let whole = || -> Result<Int64Array> {
            let array = match array.data_type() {
                DataType::Date32 | DataType::Time32(_) => to(&DataType::Int32)?,
                _ => Arc::clone(array),
            };
            let whole = cast_with_options(&array, &DataType::Int64, &STRICT_CAST_OPTIONS)?;
            Ok(whole.as_primitive::<Int64Type>().clone())
        };
        Ok(match array.data_type() {
            DataType::Null => HashedColumn::Nulls,
            DataType::UInt64 => HashedColumn::Unsigned(array.as_primitive::<UInt64Type>().clone()),
            of if of.is_integer() => HashedColumn::Integers(whole()?),
            of if of.is_floating() => {
                HashedColumn::Floats(to(&DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                HashedColumn::Texts(to(&DataType::Binary)?.as_binary().clone())
            }
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => {
                HashedColumn::Binary(to(&DataType::Binary)?.as_binary().clone())
            }
            DataType::Boolean => HashedColumn::Booleans(array.as_boolean().clone()),
            DataType::Date32 => HashedColumn::Dates(whole()?),
            DataType::Date64 => {
                HashedColumn::Dates(whole()?.unary(|millis| millis.div_euclid(86_400_000)))
            }
            DataType::Timestamp(unit, _) => {
                HashedColumn::Timestamps(whole()?, nanos_per_unit(*unit))
            }
            DataType::Time32(unit) | DataType::Time64(unit) => {
                HashedColumn::TimesOfDay(whole()?, nanos_per_unit(*unit))
            }
            DataType::Duration(unit) => HashedColumn::Durations(whole()?, nanos_per_unit(*unit)),
            DataType::Interval(_) => {
                HashedColumn::Intervals(to(&DataType::Interval(IntervalUnit::MonthDayNano))?)
            }
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => {
                let scale = *scale;
                let wide = DataType::Decimal256(Decimal256Type::MAX_PRECISION, scale);
                HashedColumn::Decimals(to(&wide)?, scale)
            }
            DataType::Dictionary(_, values) => return HashedColumn::from_array(&to(values)?),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                let list = to(&DataType::LargeList(Arc::clone(item)))?;
                let items = HashedColumn::from_array(list.as_list::<i64>().values())?;
                HashedColumn::Lists(list, Box::new(items))
            }
            DataType::Struct(_) => {
                let fields = array.as_struct().columns().iter().map(HashedColumn::from_array);
                HashedColumn::Structs(Arc::clone(array), fields.collect::<Result<_>>()?)
            }
            DataType::Map(_, _) => {
                let map = array.as_map();
                let (keys, values) = (
                    HashedColumn::from_array(map.keys())?,
                    HashedColumn::from_array(map.values())?,
                );
                HashedColumn::Maps(Arc::clone(array), Box::new(keys), Box::new(values))
            }
            other => {
                return Err(usage_error(
                    format!("`hash` of a {} is not known", sql_type_name(other)),
                    "CAST(x AS TEXT) has one",
                ));
            }
        })
    }

    /// Writes the value of a row with its tag byte.
    fn write_value(&self, row: usize, out: &mut Vec<u8>) {
        let tagged = |tag: u8, bytes: &[u8], out: &mut Vec<u8>| {
            out.push(tag);
            out.extend_from_slice(bytes);
        };
        let counted = |tag: u8, count: usize, out: &mut Vec<u8>| {
            out.push(tag);
            out.extend_from_slice(&(count as u64).to_le_bytes());
        };
        match self {
            HashedColumn::Integers(values) if values.is_valid(row) => {
                tagged(1, &values.value(row).to_le_bytes(), out);
            }
            HashedColumn::Unsigned(values) if values.is_valid(row) => {
                let value = values.value(row);
                let tag = if i64::try_from(value).is_ok() { 1 } else { 2 };
                tagged(tag, &value.to_le_bytes(), out);
            }
            HashedColumn::Floats(values) if values.is_valid(row) => {
                let value = values.value(row);
                let bits = match value {
                    nan if nan.is_nan() => 0x7ff8_0000_0000_0000,
                    0.0 => 0,
                    other => other.to_bits(),
                };
                tagged(3, &bits.to_le_bytes(), out);
            }
            HashedColumn::Texts(values) if values.is_valid(row) => {
                counted(4, values.value(row).len(), out);
                out.extend_from_slice(values.value(row));
            }
            HashedColumn::Binary(values) if values.is_valid(row) => {
                counted(5, values.value(row).len(), out);
                out.extend_from_slice(values.value(row));
            }
            HashedColumn::Booleans(values) if values.is_valid(row) => {
                tagged(6, &[u8::from(values.value(row))], out);
            }
            HashedColumn::Dates(values) if values.is_valid(row) => {
                tagged(7, &values.value(row).to_le_bytes(), out);
            }
            HashedColumn::Timestamps(values, unit) if values.is_valid(row) => {
                let nanos = i128::from(values.value(row)) * i128::from(*unit);
                tagged(8, &nanos.to_le_bytes(), out);
            }
            // A time of day is below one day of nanoseconds, which fits.
            HashedColumn::TimesOfDay(values, unit) if values.is_valid(row) => {
                tagged(9, &values.value(row).wrapping_mul(*unit).to_le_bytes(), out);
            }
            HashedColumn::Intervals(values) if values.is_valid(row) => {
                let span = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
                tagged(10, &span.months.to_le_bytes(), out);
                out.extend_from_slice(&span.days.to_le_bytes());
                out.extend_from_slice(&span.nanoseconds.to_le_bytes());
            }
            HashedColumn::Durations(values, unit) if values.is_valid(row) => {
                let nanos = i128::from(values.value(row)) * i128::from(*unit);
                tagged(11, &nanos.to_le_bytes(), out);
            }
            HashedColumn::Decimals(values, scale) if values.is_valid(row) => {
                let (mut digits, mut scale) =
                    (values.as_primitive::<Decimal256Type>().value(row), *scale);
                let ten = i256::from_i128(10);
                while scale > 0 && digits.checked_rem(ten) == Some(i256::ZERO) {
                    digits = digits.wrapping_div(ten);
                    scale -= 1;
                }
                tagged(12, &scale.to_le_bytes(), out);
                out.extend_from_slice(&digits.to_le_bytes());
            }
            HashedColumn::Lists(values, items) if values.is_valid(row) => {
                let ends = values.as_list::<i64>().value_offsets();
                let (from, to) = (ends[row] as usize, ends[row + 1] as usize);
                counted(13, to - from, out);
                (from..to).for_each(|item| items.write_value(item, out));
            }
            HashedColumn::Structs(values, fields) if values.is_valid(row) => {
                out.push(14);
                fields.iter().for_each(|field| field.write_value(row, out));
            }
            HashedColumn::Maps(values, keys, items) if values.is_valid(row) => {
                let ends = values.as_map().value_offsets();
                let (from, to) = (ends[row] as usize, ends[row + 1] as usize);
                counted(15, to - from, out);
                for entry in from..to {
                    keys.write_value(entry, out);
                    items.write_value(entry, out);
                }
            }
            _ => out.push(0),
        }
    }
}

/// The function `hash`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct HashFunction;

impl RowFunction for HashFunction {
    fn names(&self) -> &'static [&'static str] {
        &["hash"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_HASHING,
            syntax: "hash(x, …)",
            description: "A number of 64 bits (BIGINT UNSIGNED) that stands for one value or several of any type, nulls too, \
                   the same in every release and on every machine: `hash('a', 1)` is `3367035323981720327`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given.iter().all(is_hashable_type) && !given.is_empty() {
            true => Ok(given.to_vec()),
            false => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn is_strict(&self) -> bool {
        false
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let columns = given.arguments.iter().map(|value| {
            let (array, rows) = argument_array(value)?;
            Ok((HashedColumn::from_array(&array)?, rows))
        });
        let columns = columns.collect::<Result<Vec<(HashedColumn, RowMapping)>>>()?;
        let mut bytes = Vec::new();
        let hashes = (0..given.row_count).map(|row| {
            bytes.clear();
            columns
                .iter()
                .for_each(|(column, rows)| column.write_value(rows.value_index(row), &mut bytes));
            super::xxh64::xxh64(&bytes)
        });
        Ok(Arc::new(hashes.collect::<UInt64Array>()))
    }
}

/// The function `sample_rank`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SampleRankFunction;

impl RowFunction for SampleRankFunction {
    fn names(&self) -> &'static [&'static str] {
        &["sample_rank"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_HASHING,
            syntax: "sample_rank(hash, weight)",
            description: "By which `weighted_sample` orders rows (BIGINT UNSIGNED): the n that are largest are drawn with chances in \
                   proportion to their weights, such as `sample_rank(0, 1)` is `4591931904777111056`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [hash, weight] if hash.is_integer() && weight.is_numeric() => {
                Ok(vec![DataType::UInt64, DataType::Float64])
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let (hashes, each_hash) = given.cast_argument(0, &DataType::UInt64)?;
        let (weights, each_weight) = given.cast_argument(1, &DataType::Float64)?;
        let hashes = hashes.as_primitive::<UInt64Type>();
        let weights = weights.as_primitive::<Float64Type>();
        let ranks = (0..given.row_count).map(|row| {
            let (hash, weight) = (each_hash.value_index(row), each_weight.value_index(row));
            (hashes.is_valid(hash) && weights.is_valid(weight))
                .then(|| weighted_sampling_rank(hashes.value(hash), weights.value(weight)))
        });
        Ok(Arc::new(ranks.collect::<UInt64Array>()))
    }
}

/// Returns the sampling rank of a row with the given weight, or 0 if the weight is NaN.
///
/// Efraimidis and Spirakis (2006) draw a uniform random number per row and take its `weight`-th root as the
/// key. The rank is the logarithm of that key, mapped to an integer of the same order.
fn weighted_sampling_rank(hash: u64, weight: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "a chance of 53 bits")]
    let chance = (hash as f64 + 1.0) / 2f64.powi(64);
    let key = chance.ln() / weight;
    if key.is_nan() {
        return 0;
    }
    let bits = key.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Digests and checksums of the bytes of text or binary values.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum DigestFunction {
    Md5,
    /// `md5_number_upper`
    Md5Upper,
    /// `md5_number_lower`
    Md5Lower,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    /// `sha2(x, bits)`
    Sha2,
    Crc32,
    XxHash64,
}

/// Returns the type that an argument is cast to in order to read its bytes; the bytes of text stay as they
/// are.
pub(super) fn bytes_cast_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Some(DataType::LargeBinary),
        DataType::Dictionary(_, values) => bytes_cast_type(values),
        other => text_cast_type(other),
    }
}

/// Returns an argument as bytes.
pub(super) fn bytes_argument(
    given: &ArgumentBatch<'_>,
    at: usize,
) -> Result<(BinaryArray, RowMapping)> {
    let (array, rows) = given.cast_argument(at, &DataType::Binary)?;
    Ok((array.as_binary().clone(), rows))
}

fn write_hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
}

impl RowFunction for DigestFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            DigestFunction::Md5 => &["md5"],
            DigestFunction::Md5Upper => &["md5_number_upper"],
            DigestFunction::Md5Lower => &["md5_number_lower"],
            DigestFunction::Sha1 => &["sha1", "sha"],
            DigestFunction::Sha224 => &["sha224"],
            DigestFunction::Sha256 => &["sha256"],
            DigestFunction::Sha384 => &["sha384"],
            DigestFunction::Sha512 => &["sha512"],
            DigestFunction::Sha2 => &["sha2"],
            DigestFunction::Crc32 => &["crc32"],
            DigestFunction::XxHash64 => &["xxhash64"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            DigestFunction::Md5 => (
                "md5(x)",
                "The MD5 digest of text or bytes, in hexadecimal digits: `md5('abc')` is \
                 `900150983cd24fb0d6963f7d28e17f72`.",
            ),
            DigestFunction::Md5Upper => (
                "md5_number_upper(x)",
                "The first eight bytes of the MD5 digest of text or bytes as a number, the lowest first, a BIGINT \
                 UNSIGNED: `md5_number_upper('hello')` is `8514701317032132957`.",
            ),
            DigestFunction::Md5Lower => (
                "md5_number_lower(x)",
                "The last eight bytes of the MD5 digest of text or bytes as a number, the lowest first, a BIGINT \
                 UNSIGNED: `md5_number_lower('hello')` is `10575884659879408057`.",
            ),
            DigestFunction::Sha1 => (
                "sha1(x)",
                "The SHA-1 digest of text or bytes, in hexadecimal digits: `sha1('abc')` is \
                 `a9993e364706816aba3e25717850c26c9cd0d89d`.",
            ),
            DigestFunction::Sha224 => (
                "sha224(x)",
                "The SHA-224 digest of text or bytes, in hexadecimal digits: `sha224('abc')` is \
                 `23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7`.",
            ),
            DigestFunction::Sha256 => (
                "sha256(x)",
                "The SHA-256 digest of text or bytes, in hexadecimal digits: `sha256('abc')` is \
                 `ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad`.",
            ),
            DigestFunction::Sha384 => (
                "sha384(x)",
                "The SHA-384 digest of text or bytes, in hexadecimal digits: `sha384('abc')` is \
                 `cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7`.",
            ),
            DigestFunction::Sha512 => (
                "sha512(x)",
                "The SHA-512 digest of text or bytes, in hexadecimal digits: `sha512('abc')` is \
                 `ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f`.",
            ),
            DigestFunction::Sha2 => (
                "sha2(x, bits)",
                "The SHA-2 digest of text or bytes of 224, 256, 384 or 512 bits, in hexadecimal digits; of 0 bits it is \
                 of 256: `sha2('abc', 224)` is `23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7`.",
            ),
            DigestFunction::Crc32 => (
                "crc32(x)",
                "The CRC-32 checksum of text or bytes, as gzip has it, a BIGINT: `crc32('abc')` is `891568578`.",
            ),
            DigestFunction::XxHash64 => (
                "xxhash64(x)",
                "XXH64 of text or bytes with the seed 0, as ClickHouse has it, a BIGINT UNSIGNED: `xxhash64('abc')` is \
                 `4952883123889572249`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_HASHING, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match (self, given) {
            (DigestFunction::Sha2, [of, bits]) if bits.is_integer() || bits.is_null() => {
                let of = bytes_cast_type(of).ok_or_else(|| wrong_arguments_error(self, given))?;
                Ok(vec![of, DataType::Int64])
            }
            (DigestFunction::Sha2, _) => Err(wrong_arguments_error(self, given)),
            (_, [of]) => {
                Ok(vec![bytes_cast_type(of).ok_or_else(|| wrong_arguments_error(self, given))?])
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        if let (DigestFunction::Sha2, Some(Some(ScalarValue::Int64(Some(bits))))) =
            (self, constants.get(1))
        {
            sha2_of_bits(*bits)?;
        }
        Ok(match self {
            DigestFunction::Crc32 => DataType::Int64,
            DigestFunction::XxHash64 | DigestFunction::Md5Upper | DigestFunction::Md5Lower => {
                DataType::UInt64
            }
            _ => DataType::Utf8,
        })
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let (values, rows) = bytes_argument(given, 0)?;
        let value = |row: usize| {
            let row = rows.value_index(row);
            values.is_valid(row).then(|| values.value(row))
        };
        match self {
            DigestFunction::Crc32 => {
                let sums = (0..given.row_count)
                    .map(|row| value(row).map(|bytes| i64::from(crc32fast::hash(bytes))));
                return Ok(Arc::new(sums.collect::<Int64Array>()));
            }
            DigestFunction::XxHash64 => {
                let sums = (0..given.row_count).map(|row| value(row).map(super::xxh64::xxh64));
                return Ok(Arc::new(sums.collect::<UInt64Array>()));
            }
            DigestFunction::Md5Upper | DigestFunction::Md5Lower => {
                let is_upper = *self == DigestFunction::Md5Upper;
                let sums = (0..given.row_count).map(|row| {
                    value(row).map(|bytes| {
                        let [upper, lower] = md5_halves(bytes);
                        if is_upper { upper } else { lower }
                    })
                });
                return Ok(Arc::new(sums.collect::<UInt64Array>()));
            }
            _ => {}
        }
        let bits = match self {
            DigestFunction::Sha2 => Some(given.cast_argument(1, &DataType::Int64)?),
            _ => None,
        };
        given.build_texts(|row, out| {
            let Some(bytes) = value(row) else { return Ok(false) };
            let own = match &bits {
                Some((bits, rows)) => {
                    let bits = bits.as_primitive::<Int64Type>();
                    match bits.is_valid(rows.value_index(row)) {
                        true => &sha2_of_bits(bits.value(rows.value_index(row)))?,
                        false => return Ok(false),
                    }
                }
                None => self,
            };
            match own {
                DigestFunction::Md5 => write_hex(&Md5::digest(bytes), out),
                DigestFunction::Sha1 => write_hex(&Sha1::digest(bytes), out),
                DigestFunction::Sha224 => write_hex(&Sha224::digest(bytes), out),
                DigestFunction::Sha384 => write_hex(&Sha384::digest(bytes), out),
                DigestFunction::Sha512 => write_hex(&Sha512::digest(bytes), out),
                _ => write_hex(&Sha256::digest(bytes), out),
            }
            Ok(true)
        })
    }
}

/// Returns the two halves of an MD5 digest as little-endian numbers.
fn md5_halves(bytes: &[u8]) -> [u64; 2] {
    let digest = u128::from_le_bytes(Md5::digest(bytes).into());
    // The cast keeps the low half, which is the first one.
    [digest as u64, (digest >> 64) as u64]
}

fn sha2_of_bits(bits: i64) -> Result<DigestFunction> {
    Ok(match bits {
        224 => DigestFunction::Sha224,
        0 | 256 => DigestFunction::Sha256,
        384 => DigestFunction::Sha384,
        512 => DigestFunction::Sha512,
        _ => {
            return Err(usage_error(
                format!("`sha2` has no digest of {bits} bits"),
                "there are 224, 256, 384 and 512",
            ));
        }
    })
}
