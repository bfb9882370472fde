//! Numbers and bytes by their bits and digits: `bit_count`, `bin`, `hex`, the ways back, and `to_base`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, Int64Array};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::{
    DOC_SECTION_BINARY_STRING, DOC_SECTION_MATH, DOC_SECTION_STRING,
};

use super::hashes::{as_bytes, bytes_of};
use crate::callable::{
    Function, Given, Rows, Told, as_text, brief, called_as, external, overflow, usage,
};
use tidemill_base::error::Error;

/// The whole number that an argument is cast to: one of 64 bits.
fn as_whole(given: &DataType) -> Option<DataType> {
    match given {
        DataType::UInt64 => Some(DataType::UInt64),
        DataType::Null => Some(DataType::Int64),
        DataType::Dictionary(_, values) => as_whole(values),
        of => of.is_integer().then_some(DataType::Int64),
    }
}

/// Whole numbers as their 64 bits, those below zero as in memory.
struct Bits {
    array: ArrayRef,
    rows: Rows,
}

impl Bits {
    fn of(given: &Given<'_>) -> Result<Self> {
        let of = given.value(0)?.data_type();
        let (array, rows) = given.cast(0, &of)?;
        Ok(Bits { array, rows })
    }

    fn at(&self, row: usize) -> Option<u64> {
        let row = self.rows.at(row);
        self.array.is_valid(row).then(|| match self.array.data_type() {
            DataType::UInt64 => self.array.as_primitive::<UInt64Type>().value(row),
            _ => self.array.as_primitive::<Int64Type>().value(row) as u64,
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum OfBits {
    /// `bit_count`
    Count,
    /// `bin`
    Binary,
    /// `hex`
    Hex,
    /// `unhex`
    Unhex,
    /// `unbin`
    Unbin,
}

impl Function for OfBits {
    fn names(&self) -> &'static [&'static str] {
        match self {
            OfBits::Count => &["bit_count", "bitcount"],
            OfBits::Binary => &["bin", "to_binary"],
            OfBits::Hex => &["hex"],
            OfBits::Unhex => &["unhex", "from_hex"],
            OfBits::Unbin => &["unbin", "from_binary"],
        }
    }

    fn told(&self) -> Told {
        match self {
            OfBits::Count => Told {
                section: DOC_SECTION_MATH,
                calls: "bit_count(n)",
                what: "How many bits of a whole number are set, of 64: `bit_count(255)` is `8`.",
            },
            OfBits::Binary => Told {
                section: DOC_SECTION_STRING,
                calls: "bin(x)",
                what: "A whole number in binary digits, one below zero as its 64 bits, or the bytes of text or of BYTEA in \
                       eight digits each: `bin(10)` is `1010`, and `bin('a')` is `01100001`.",
            },
            OfBits::Hex => Told {
                section: DOC_SECTION_BINARY_STRING,
                calls: "hex(x)",
                what: "A whole number, or the bytes of text or of BYTEA, in hexadecimal digits: `hex(255)` is `FF`, and \
                       `hex('abc')` is `616263`.",
            },
            OfBits::Unhex => Told {
                section: DOC_SECTION_BINARY_STRING,
                calls: "unhex(x)",
                what: "The bytes that hexadecimal digits are, a BYTEA: `hex(unhex('616263'))` is `616263`.",
            },
            OfBits::Unbin => Told {
                section: DOC_SECTION_BINARY_STRING,
                calls: "unbin(x)",
                what: "The bytes that binary digits are, a BYTEA: `hex(unbin('01100001'))` is `61`.",
            },
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [of] = given else { return Err(called_as(self, given)) };
        let taken = match self {
            OfBits::Count => as_whole(of),
            OfBits::Binary | OfBits::Hex => as_whole(of).or_else(|| as_bytes(of)),
            OfBits::Unhex | OfBits::Unbin => as_text(of),
        };
        Ok(vec![taken.ok_or_else(|| called_as(self, given))?])
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self {
            OfBits::Count => DataType::Int64,
            OfBits::Unhex | OfBits::Unbin => DataType::Binary,
            OfBits::Binary | OfBits::Hex => DataType::Utf8,
        })
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        match self {
            OfBits::Count => {
                let bits = Bits::of(given)?;
                let counts = (0..given.rows)
                    .map(|row| bits.at(row).map(|bits| i64::from(bits.count_ones())));
                Ok(Arc::new(counts.collect::<Int64Array>()))
            }
            OfBits::Binary | OfBits::Hex if as_whole(&given.value(0)?.data_type()).is_some() => {
                let bits = Bits::of(given)?;
                let bits_each = if *self == OfBits::Hex { 4 } else { 1 };
                given.written(|row, out| {
                    let Some(bits) = bits.at(row) else { return Ok(false) };
                    write_digits(bits, bits_each, out);
                    Ok(true)
                })
            }
            OfBits::Binary => {
                let (values, rows) = bytes_of(given, 0)?;
                given.written(|row, out| {
                    let row = rows.at(row);
                    if values.is_null(row) {
                        return Ok(false);
                    }
                    for byte in values.value(row) {
                        (0..8).rev().for_each(|bit| out.push(digit(byte >> bit & 1)));
                    }
                    Ok(true)
                })
            }
            OfBits::Hex => {
                let (values, rows) = bytes_of(given, 0)?;
                given.written(|row, out| {
                    let row = rows.at(row);
                    if values.is_null(row) {
                        return Ok(false);
                    }
                    for byte in values.value(row) {
                        out.push(digit(byte >> 4));
                        out.push(digit(byte & 15));
                    }
                    Ok(true)
                })
            }
            OfBits::Unhex | OfBits::Unbin => {
                let (bits_each, to, hint) = match self {
                    OfBits::Unbin => (1, "bytes in binary digits", "digits are 0 and 1"),
                    _ => (4, "bytes in hexadecimal digits", "digits are 0 to 9 and A to F"),
                };
                let texts = given.texts(0)?;
                let mut found = BinaryBuilder::with_capacity(given.rows, given.rows * 16);
                let mut bytes = Vec::new();
                for row in 0..given.rows {
                    let Some(text) = texts.at(row) else {
                        found.append_null();
                        continue;
                    };
                    bytes.clear();
                    match read_digits(text, bits_each, &mut bytes) {
                        true => found.append_value(&bytes),
                        false => {
                            return Err(external(Error::Cast {
                                value: brief(text),
                                to: to.into(),
                                cast: None,
                                hint: Some(hint.into()),
                            }));
                        }
                    }
                }
                Ok(Arc::new(found.finish()))
            }
        }
    }
}

fn digit(value: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(value & 15)])
}

/// Digits of so many bits each, without zeros before them.
fn write_digits(bits: u64, each: u32, out: &mut String) {
    let count = (64 - bits.leading_zeros()).div_ceil(each).max(1);
    for at in (0..count).rev() {
        let value = (bits >> (at * each)) & ((1 << each) - 1);
        out.push(digit(value as u8));
    }
}

/// Reads digits of so many bits each into bytes; false where a character is no such digit. Zeros stand before the
/// digits where these fill no whole byte.
fn read_digits(text: &str, bits_each: u32, bytes: &mut Vec<u8>) -> bool {
    let digits_each = 8 / bits_each as usize;
    let count = text.chars().count();
    let mut filled = count.next_multiple_of(digits_each) - count;
    let mut byte = 0_u8;
    for letter in text.chars() {
        let Some(value) = letter.to_digit(1 << bits_each) else { return false };
        // A digit is below 16.
        byte = byte << bits_each | value as u8;
        filled += 1;
        if filled == digits_each {
            bytes.push(byte);
            (filled, byte) = (0, 0);
        }
    }
    true
}

/// `to_base(n, base)`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ToBase;

/// Maximum number of digits that `to_base` fills up to.
const DIGITS_MAX: i64 = 64;

impl Function for ToBase {
    fn names(&self) -> &'static [&'static str] {
        &["to_base"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_STRING,
            calls: "to_base(n, base)\nto_base(n, base, digits)",
            what: "A whole number in digits of a base from 2 to 36, with zeros before it where it has fewer `digits`: \
                   `to_base(255, 16)` is `FF`, and `to_base(5, 2, 8)` is `00000101`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given.len() {
            2 | 3 if given.iter().all(|of| as_whole(of).is_some()) => {
                let number = as_whole(&given[0]).unwrap_or(DataType::Int64);
                Ok(std::iter::once(number)
                    .chain(given[1..].iter().map(|_| DataType::Int64))
                    .collect())
            }
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        let constant = |at: usize| match constants.get(at) {
            Some(Some(ScalarValue::Int64(number))) => *number,
            _ => None,
        };
        if let Some(base) = constant(1) {
            checked_base(base)?;
        }
        if let Some(digits) = constant(2) {
            checked_digits(digits)?;
        }
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let bits = Bits::of(given)?;
        let is_signed = given.value(0)?.data_type() == DataType::Int64;
        let (bases, base_rows) = given.cast(1, &DataType::Int64)?;
        let counts = match given.values.len() {
            3 => Some(given.cast(2, &DataType::Int64)?),
            _ => None,
        };
        let number = |array: &ArrayRef, at: usize| {
            array.is_valid(at).then(|| array.as_primitive::<Int64Type>().value(at))
        };
        given.written(|row, out| {
            let digits = match &counts {
                Some((counts, rows)) => number(counts, rows.at(row)),
                None => Some(0),
            };
            let (Some(mut rest), Some(base), Some(digits)) =
                (bits.at(row), number(&bases, base_rows.at(row)), digits)
            else {
                return Ok(false);
            };
            let (base, least) = (checked_base(base)?, checked_digits(digits)?);
            if is_signed && rest.cast_signed() < 0 {
                return Err(overflow(
                    format!(
                        "`to_base` takes no number below zero, and this is {}",
                        rest.cast_signed()
                    ),
                    Some("bin(n) and hex(n) write the bits of one"),
                ));
            }
            // The last digit first.
            while rest > 0 || out.is_empty() || out.len() < least {
                out.insert(0, DIGITS[(rest % base) as usize]);
                rest /= base;
            }
            Ok(true)
        })
    }
}

const DIGITS: [char; 36] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I',
    'J', 'K', 'L', 'M', 'N', 'O', 'P', 'Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X', 'Y', 'Z',
];

fn checked_base(base: i64) -> Result<u64> {
    match (2..=36).contains(&base) {
        true => Ok(base.unsigned_abs()),
        false => Err(usage(
            format!("`to_base` has no digits of the base {base}"),
            "a base is from 2 to 36",
        )),
    }
}

fn checked_digits(digits: i64) -> Result<usize> {
    match usize::try_from(digits) {
        Ok(count) if digits <= DIGITS_MAX => Ok(count),
        _ => Err(usage(
            format!("`to_base` does not fill up to {digits} digits"),
            format!("the count of digits is from 0 to {DIGITS_MAX}"),
        )),
    }
}
