//! Numbers that stand for values: `hash`, and the digests and checksums of bytes.
//!
//! `hash` is XXH64 (Yann Collet, seed 0) of the values' bytes, one value after the other, each behind a byte that
//! says of what kind it is; numbers are little-endian. It is the same in every release, on every machine, and for
//! every type that holds the same value of a kind: of an INT and a BIGINT, of a TIMESTAMP in milliseconds and in
//! nanoseconds.
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

use crate::callable::{Function, Given, Rows, Told, as_text, called_as, held, usage};

/// A column's values, ready to be written as bytes.
enum Bytes {
    Nulls,
    Whole(Int64Array),
    Unsigned(UInt64Array),
    Float(Float64Array),
    Text(BinaryArray),
    Binary(BinaryArray),
    Boolean(BooleanArray),
    Days(Int64Array),
    /// With how many nanoseconds its unit has.
    Instants(Int64Array, i64),
    TimeOperands(Int64Array, i64),
    Intervals(ArrayRef),
    Differences(Int64Array, i64),
    Decimals(ArrayRef, i8),
    List(ArrayRef, Box<Bytes>),
    Struct(ArrayRef, Vec<Bytes>),
    Map(ArrayRef, Box<Bytes>, Box<Bytes>),
}

fn unit_nanos(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Whether values of a type have a hash.
fn is_hashed(of: &DataType) -> bool {
    match of {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            is_hashed(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().all(|field| is_hashed(field.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                fields.len() == 2 && fields.iter().all(|field| is_hashed(field.data_type()))
            }
            _ => false,
        },
        DataType::Dictionary(_, values) => is_hashed(values),
        DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::Union(_, _)
        | DataType::RunEndEncoded(_, _) => false,
        _ => true,
    }
}

impl Bytes {
    fn of(array: &ArrayRef) -> Result<Self> {
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
            DataType::Null => Bytes::Nulls,
            DataType::UInt64 => Bytes::Unsigned(array.as_primitive::<UInt64Type>().clone()),
            of if of.is_integer() => Bytes::Whole(whole()?),
            of if of.is_floating() => {
                Bytes::Float(to(&DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Bytes::Text(to(&DataType::Binary)?.as_binary().clone())
            }
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => {
                Bytes::Binary(to(&DataType::Binary)?.as_binary().clone())
            }
            DataType::Boolean => Bytes::Boolean(array.as_boolean().clone()),
            DataType::Date32 => Bytes::Days(whole()?),
            DataType::Date64 => Bytes::Days(whole()?.unary(|millis| millis.div_euclid(86_400_000))),
            DataType::Timestamp(unit, _) => Bytes::Instants(whole()?, unit_nanos(*unit)),
            DataType::Time32(unit) | DataType::Time64(unit) => {
                Bytes::TimeOperands(whole()?, unit_nanos(*unit))
            }
            DataType::Duration(unit) => Bytes::Differences(whole()?, unit_nanos(*unit)),
            DataType::Interval(_) => {
                Bytes::Intervals(to(&DataType::Interval(IntervalUnit::MonthDayNano))?)
            }
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => {
                let scale = *scale;
                let wide = DataType::Decimal256(Decimal256Type::MAX_PRECISION, scale);
                Bytes::Decimals(to(&wide)?, scale)
            }
            DataType::Dictionary(_, values) => return Bytes::of(&to(values)?),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                let list = to(&DataType::LargeList(Arc::clone(item)))?;
                let items = Bytes::of(list.as_list::<i64>().values())?;
                Bytes::List(list, Box::new(items))
            }
            DataType::Struct(_) => {
                let fields = array.as_struct().columns().iter().map(Bytes::of);
                Bytes::Struct(Arc::clone(array), fields.collect::<Result<_>>()?)
            }
            DataType::Map(_, _) => {
                let map = array.as_map();
                let (keys, values) = (Bytes::of(map.keys())?, Bytes::of(map.values())?);
                Bytes::Map(Arc::clone(array), Box::new(keys), Box::new(values))
            }
            other => {
                return Err(usage(
                    format!("`hash` of a {} is not known", sql_type_name(other)),
                    "CAST(x AS TEXT) has one",
                ));
            }
        })
    }

    /// Writes the value of a row.
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        let tagged = |tag: u8, bytes: &[u8], out: &mut Vec<u8>| {
            out.push(tag);
            out.extend_from_slice(bytes);
        };
        let counted = |tag: u8, count: usize, out: &mut Vec<u8>| {
            out.push(tag);
            out.extend_from_slice(&(count as u64).to_le_bytes());
        };
        match self {
            Bytes::Whole(values) if values.is_valid(row) => {
                tagged(1, &values.value(row).to_le_bytes(), out);
            }
            Bytes::Unsigned(values) if values.is_valid(row) => {
                let value = values.value(row);
                let tag = if i64::try_from(value).is_ok() { 1 } else { 2 };
                tagged(tag, &value.to_le_bytes(), out);
            }
            Bytes::Float(values) if values.is_valid(row) => {
                let value = values.value(row);
                let bits = match value {
                    nan if nan.is_nan() => 0x7ff8_0000_0000_0000,
                    0.0 => 0,
                    other => other.to_bits(),
                };
                tagged(3, &bits.to_le_bytes(), out);
            }
            Bytes::Text(values) if values.is_valid(row) => {
                counted(4, values.value(row).len(), out);
                out.extend_from_slice(values.value(row));
            }
            Bytes::Binary(values) if values.is_valid(row) => {
                counted(5, values.value(row).len(), out);
                out.extend_from_slice(values.value(row));
            }
            Bytes::Boolean(values) if values.is_valid(row) => {
                tagged(6, &[u8::from(values.value(row))], out);
            }
            Bytes::Days(values) if values.is_valid(row) => {
                tagged(7, &values.value(row).to_le_bytes(), out);
            }
            Bytes::Instants(values, unit) if values.is_valid(row) => {
                let nanos = i128::from(values.value(row)) * i128::from(*unit);
                tagged(8, &nanos.to_le_bytes(), out);
            }
            // A time of day is below one day of nanoseconds.
            Bytes::TimeOperands(values, unit) if values.is_valid(row) => {
                tagged(9, &values.value(row).wrapping_mul(*unit).to_le_bytes(), out);
            }
            Bytes::Intervals(values) if values.is_valid(row) => {
                let span = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
                tagged(10, &span.months.to_le_bytes(), out);
                out.extend_from_slice(&span.days.to_le_bytes());
                out.extend_from_slice(&span.nanoseconds.to_le_bytes());
            }
            Bytes::Differences(values, unit) if values.is_valid(row) => {
                let nanos = i128::from(values.value(row)) * i128::from(*unit);
                tagged(11, &nanos.to_le_bytes(), out);
            }
            Bytes::Decimals(values, scale) if values.is_valid(row) => {
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
            Bytes::List(values, items) if values.is_valid(row) => {
                let ends = values.as_list::<i64>().value_offsets();
                let (from, to) = (ends[row] as usize, ends[row + 1] as usize);
                counted(13, to - from, out);
                (from..to).for_each(|item| items.write(item, out));
            }
            Bytes::Struct(values, fields) if values.is_valid(row) => {
                out.push(14);
                fields.iter().for_each(|field| field.write(row, out));
            }
            Bytes::Map(values, keys, items) if values.is_valid(row) => {
                let ends = values.as_map().value_offsets();
                let (from, to) = (ends[row] as usize, ends[row + 1] as usize);
                counted(15, to - from, out);
                for entry in from..to {
                    keys.write(entry, out);
                    items.write(entry, out);
                }
            }
            _ => out.push(0),
        }
    }
}

/// `hash`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct HashOf;

impl Function for HashOf {
    fn names(&self) -> &'static [&'static str] {
        &["hash"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_HASHING,
            calls: "hash(x, …)",
            what: "A number of 64 bits (BIGINT UNSIGNED) that stands for one value or several of any type, nulls too, \
                   the same in every release and on every machine: `hash('a', 1)` is `3367035323981720327`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given.iter().all(is_hashed) && !given.is_empty() {
            true => Ok(given.to_vec()),
            false => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn is_strict(&self) -> bool {
        false
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let columns = given.values.iter().map(|value| {
            let (array, rows) = held(value)?;
            Ok((Bytes::of(&array)?, rows))
        });
        let columns = columns.collect::<Result<Vec<(Bytes, Rows)>>>()?;
        let mut bytes = Vec::new();
        let hashes = (0..given.rows).map(|row| {
            bytes.clear();
            columns.iter().for_each(|(column, rows)| column.write(rows.at(row), &mut bytes));
            super::xxh64::xxh64(&bytes)
        });
        Ok(Arc::new(hashes.collect::<UInt64Array>()))
    }
}

/// `sample_rank`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SampleRank;

impl Function for SampleRank {
    fn names(&self) -> &'static [&'static str] {
        &["sample_rank"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_HASHING,
            calls: "sample_rank(hash, weight)",
            what: "By which `weighted_sample` orders rows (BIGINT UNSIGNED): the n that are largest are drawn with chances in \
                   proportion to their weights, such as `sample_rank(0, 1)` is `4591931904777111056`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [hash, weight] if hash.is_integer() && weight.is_numeric() => {
                Ok(vec![DataType::UInt64, DataType::Float64])
            }
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let (hashes, each_hash) = given.cast(0, &DataType::UInt64)?;
        let (weights, each_weight) = given.cast(1, &DataType::Float64)?;
        let hashes = hashes.as_primitive::<UInt64Type>();
        let weights = weights.as_primitive::<Float64Type>();
        let ranks = (0..given.rows).map(|row| {
            let (hash, weight) = (each_hash.at(row), each_weight.at(row));
            (hashes.is_valid(hash) && weights.is_valid(weight))
                .then(|| rank(hashes.value(hash), weights.value(weight)))
        });
        Ok(Arc::new(ranks.collect::<UInt64Array>()))
    }
}

/// By Efraimidis and Spirakis (2006) the key of a row is the weight's root of a number by chance; its logarithm,
/// as a whole number of the same order. 0 where the weight is no number.
fn rank(hash: u64, weight: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "a chance of 53 bits")]
    let chance = (hash as f64 + 1.0) / 2f64.powi(64);
    let key = chance.ln() / weight;
    if key.is_nan() {
        return 0;
    }
    let bits = key.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// What is made of a text's bytes, or of bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum OfBytes {
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

/// The bytes that an argument is cast to: those of text as they are.
pub(super) fn as_bytes(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Some(DataType::LargeBinary),
        DataType::Dictionary(_, values) => as_bytes(values),
        other => as_text(other),
    }
}

/// An argument's bytes.
pub(super) fn bytes_of(given: &Given<'_>, at: usize) -> Result<(BinaryArray, Rows)> {
    let (array, rows) = given.cast(at, &DataType::Binary)?;
    Ok((array.as_binary().clone(), rows))
}

fn write_hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
}

impl Function for OfBytes {
    fn names(&self) -> &'static [&'static str] {
        match self {
            OfBytes::Md5 => &["md5"],
            OfBytes::Md5Upper => &["md5_number_upper"],
            OfBytes::Md5Lower => &["md5_number_lower"],
            OfBytes::Sha1 => &["sha1", "sha"],
            OfBytes::Sha224 => &["sha224"],
            OfBytes::Sha256 => &["sha256"],
            OfBytes::Sha384 => &["sha384"],
            OfBytes::Sha512 => &["sha512"],
            OfBytes::Sha2 => &["sha2"],
            OfBytes::Crc32 => &["crc32"],
            OfBytes::XxHash64 => &["xxhash64"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            OfBytes::Md5 => (
                "md5(x)",
                "The MD5 digest of text or bytes, in hexadecimal digits: `md5('abc')` is \
                 `900150983cd24fb0d6963f7d28e17f72`.",
            ),
            OfBytes::Md5Upper => (
                "md5_number_upper(x)",
                "The first eight bytes of the MD5 digest of text or bytes as a number, the lowest first, a BIGINT \
                 UNSIGNED: `md5_number_upper('hello')` is `8514701317032132957`.",
            ),
            OfBytes::Md5Lower => (
                "md5_number_lower(x)",
                "The last eight bytes of the MD5 digest of text or bytes as a number, the lowest first, a BIGINT \
                 UNSIGNED: `md5_number_lower('hello')` is `10575884659879408057`.",
            ),
            OfBytes::Sha1 => (
                "sha1(x)",
                "The SHA-1 digest of text or bytes, in hexadecimal digits: `sha1('abc')` is \
                 `a9993e364706816aba3e25717850c26c9cd0d89d`.",
            ),
            OfBytes::Sha224 => (
                "sha224(x)",
                "The SHA-224 digest of text or bytes, in hexadecimal digits: `sha224('abc')` is \
                 `23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7`.",
            ),
            OfBytes::Sha256 => (
                "sha256(x)",
                "The SHA-256 digest of text or bytes, in hexadecimal digits: `sha256('abc')` is \
                 `ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad`.",
            ),
            OfBytes::Sha384 => (
                "sha384(x)",
                "The SHA-384 digest of text or bytes, in hexadecimal digits: `sha384('abc')` is \
                 `cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7`.",
            ),
            OfBytes::Sha512 => (
                "sha512(x)",
                "The SHA-512 digest of text or bytes, in hexadecimal digits: `sha512('abc')` is \
                 `ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f`.",
            ),
            OfBytes::Sha2 => (
                "sha2(x, bits)",
                "The SHA-2 digest of text or bytes of 224, 256, 384 or 512 bits, in hexadecimal digits; of 0 bits it is \
                 of 256: `sha2('abc', 224)` is `23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7`.",
            ),
            OfBytes::Crc32 => (
                "crc32(x)",
                "The CRC-32 checksum of text or bytes, as gzip has it, a BIGINT: `crc32('abc')` is `891568578`.",
            ),
            OfBytes::XxHash64 => (
                "xxhash64(x)",
                "XXH64 of text or bytes with the seed 0, as ClickHouse has it, a BIGINT UNSIGNED: `xxhash64('abc')` is \
                 `4952883123889572249`.",
            ),
        };
        Told { section: DOC_SECTION_HASHING, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match (self, given) {
            (OfBytes::Sha2, [of, bits]) if bits.is_integer() || bits.is_null() => {
                let of = as_bytes(of).ok_or_else(|| called_as(self, given))?;
                Ok(vec![of, DataType::Int64])
            }
            (OfBytes::Sha2, _) => Err(called_as(self, given)),
            (_, [of]) => Ok(vec![as_bytes(of).ok_or_else(|| called_as(self, given))?]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        if let (OfBytes::Sha2, Some(Some(ScalarValue::Int64(Some(bits))))) =
            (self, constants.get(1))
        {
            sha2_of(*bits)?;
        }
        Ok(match self {
            OfBytes::Crc32 => DataType::Int64,
            OfBytes::XxHash64 | OfBytes::Md5Upper | OfBytes::Md5Lower => DataType::UInt64,
            _ => DataType::Utf8,
        })
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let (values, rows) = bytes_of(given, 0)?;
        let value = |row: usize| {
            let row = rows.at(row);
            values.is_valid(row).then(|| values.value(row))
        };
        match self {
            OfBytes::Crc32 => {
                let sums = (0..given.rows)
                    .map(|row| value(row).map(|bytes| i64::from(crc32fast::hash(bytes))));
                return Ok(Arc::new(sums.collect::<Int64Array>()));
            }
            OfBytes::XxHash64 => {
                let sums = (0..given.rows).map(|row| value(row).map(super::xxh64::xxh64));
                return Ok(Arc::new(sums.collect::<UInt64Array>()));
            }
            OfBytes::Md5Upper | OfBytes::Md5Lower => {
                let is_upper = *self == OfBytes::Md5Upper;
                let sums = (0..given.rows).map(|row| {
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
            OfBytes::Sha2 => Some(given.cast(1, &DataType::Int64)?),
            _ => None,
        };
        given.written(|row, out| {
            let Some(bytes) = value(row) else { return Ok(false) };
            let own = match &bits {
                Some((bits, rows)) => {
                    let bits = bits.as_primitive::<Int64Type>();
                    match bits.is_valid(rows.at(row)) {
                        true => &sha2_of(bits.value(rows.at(row)))?,
                        false => return Ok(false),
                    }
                }
                None => self,
            };
            match own {
                OfBytes::Md5 => write_hex(&Md5::digest(bytes), out),
                OfBytes::Sha1 => write_hex(&Sha1::digest(bytes), out),
                OfBytes::Sha224 => write_hex(&Sha224::digest(bytes), out),
                OfBytes::Sha384 => write_hex(&Sha384::digest(bytes), out),
                OfBytes::Sha512 => write_hex(&Sha512::digest(bytes), out),
                _ => write_hex(&Sha256::digest(bytes), out),
            }
            Ok(true)
        })
    }
}

/// The halves of an MD5 digest as little-endian numbers.
fn md5_halves(bytes: &[u8]) -> [u64; 2] {
    let digest = u128::from_le_bytes(Md5::digest(bytes).into());
    // The cast takes the low half, which is the first one.
    [digest as u64, (digest >> 64) as u64]
}

fn sha2_of(bits: i64) -> Result<OfBytes> {
    Ok(match bits {
        224 => OfBytes::Sha224,
        0 | 256 => OfBytes::Sha256,
        384 => OfBytes::Sha384,
        512 => OfBytes::Sha512,
        _ => {
            return Err(usage(
                format!("`sha2` has no digest of {bits} bits"),
                "there are 224, 256, 384 and 512",
            ));
        }
    })
}
