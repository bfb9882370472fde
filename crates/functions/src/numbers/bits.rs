//! Bits and digits of numbers and bytes: `bit_count`, `bin`, `hex`, their inverses, and `to_base`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, Int64Array};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::{
    DOC_SECTION_BINARY_STRING, DOC_SECTION_MATH, DOC_SECTION_STRING,
};

use super::hashes::{bytes_argument, bytes_cast_type};
use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, RowMapping, external_error, overflow_error,
    shorten_for_message, text_cast_type, usage_error, wrong_arguments_error,
};
use tidemill_base::error::Error;

/// Returns the 64-bit integer type that an argument is cast to.
fn integer_cast_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::UInt64 => Some(DataType::UInt64),
        DataType::Null => Some(DataType::Int64),
        DataType::Dictionary(_, values) => integer_cast_type(values),
        of => of.is_integer().then_some(DataType::Int64),
    }
}

/// An argument of integers, read as 64 bits; negative numbers in two's complement.
struct BitsArgument {
    array: ArrayRef,
    rows: RowMapping,
}

impl BitsArgument {
    fn from_arguments(given: &ArgumentBatch<'_>) -> Result<Self> {
        let of = given.argument(0)?.data_type();
        let (array, rows) = given.cast_argument(0, &of)?;
        Ok(BitsArgument { array, rows })
    }

    fn get(&self, row: usize) -> Option<u64> {
        let row = self.rows.value_index(row);
        self.array.is_valid(row).then(|| match self.array.data_type() {
            DataType::UInt64 => self.array.as_primitive::<UInt64Type>().value(row),
            _ => self.array.as_primitive::<Int64Type>().value(row) as u64,
        })
    }
}

/// Functions of the bits of integers and bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum BitFunction {
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

impl RowFunction for BitFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            BitFunction::Count => &["bit_count", "bitcount"],
            BitFunction::Binary => &["bin", "to_binary"],
            BitFunction::Hex => &["hex"],
            BitFunction::Unhex => &["unhex", "from_hex"],
            BitFunction::Unbin => &["unbin", "from_binary"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        match self {
            BitFunction::Count => FunctionDocs {
                section: DOC_SECTION_MATH,
                syntax: "bit_count(n)",
                description: "How many bits of a whole number are set, of 64: `bit_count(255)` is `8`.",
            },
            BitFunction::Binary => FunctionDocs {
                section: DOC_SECTION_STRING,
                syntax: "bin(x)",
                description: "A whole number in binary digits, one below zero as its 64 bits, or the bytes of text or of BYTEA in \
                       eight digits each: `bin(10)` is `1010`, and `bin('a')` is `01100001`.",
            },
            BitFunction::Hex => FunctionDocs {
                section: DOC_SECTION_BINARY_STRING,
                syntax: "hex(x)",
                description: "A whole number, or the bytes of text or of BYTEA, in hexadecimal digits: `hex(255)` is `FF`, and \
                       `hex('abc')` is `616263`.",
            },
            BitFunction::Unhex => FunctionDocs {
                section: DOC_SECTION_BINARY_STRING,
                syntax: "unhex(x)",
                description: "The bytes that hexadecimal digits are, a BYTEA: `hex(unhex('616263'))` is `616263`.",
            },
            BitFunction::Unbin => FunctionDocs {
                section: DOC_SECTION_BINARY_STRING,
                syntax: "unbin(x)",
                description: "The bytes that binary digits are, a BYTEA: `hex(unbin('01100001'))` is `61`.",
            },
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [of] = given else { return Err(wrong_arguments_error(self, given)) };
        let taken = match self {
            BitFunction::Count => integer_cast_type(of),
            BitFunction::Binary | BitFunction::Hex => {
                integer_cast_type(of).or_else(|| bytes_cast_type(of))
            }
            BitFunction::Unhex | BitFunction::Unbin => text_cast_type(of),
        };
        Ok(vec![taken.ok_or_else(|| wrong_arguments_error(self, given))?])
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self {
            BitFunction::Count => DataType::Int64,
            BitFunction::Unhex | BitFunction::Unbin => DataType::Binary,
            BitFunction::Binary | BitFunction::Hex => DataType::Utf8,
        })
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        match self {
            BitFunction::Count => {
                let bits = BitsArgument::from_arguments(given)?;
                let counts = (0..given.row_count)
                    .map(|row| bits.get(row).map(|bits| i64::from(bits.count_ones())));
                Ok(Arc::new(counts.collect::<Int64Array>()))
            }
            BitFunction::Binary | BitFunction::Hex
                if integer_cast_type(&given.argument(0)?.data_type()).is_some() =>
            {
                let bits = BitsArgument::from_arguments(given)?;
                let bits_each = if *self == BitFunction::Hex { 4 } else { 1 };
                given.build_texts(|row, out| {
                    let Some(bits) = bits.get(row) else { return Ok(false) };
                    write_digits(bits, bits_each, out);
                    Ok(true)
                })
            }
            BitFunction::Binary => {
                let (values, rows) = bytes_argument(given, 0)?;
                given.build_texts(|row, out| {
                    let row = rows.value_index(row);
                    if values.is_null(row) {
                        return Ok(false);
                    }
                    for byte in values.value(row) {
                        (0..8).rev().for_each(|bit| out.push(hex_digit(byte >> bit & 1)));
                    }
                    Ok(true)
                })
            }
            BitFunction::Hex => {
                let (values, rows) = bytes_argument(given, 0)?;
                given.build_texts(|row, out| {
                    let row = rows.value_index(row);
                    if values.is_null(row) {
                        return Ok(false);
                    }
                    for byte in values.value(row) {
                        out.push(hex_digit(byte >> 4));
                        out.push(hex_digit(byte & 15));
                    }
                    Ok(true)
                })
            }
            BitFunction::Unhex | BitFunction::Unbin => {
                let (bits_each, to, hint) = match self {
                    BitFunction::Unbin => (1, "bytes in binary digits", "digits are 0 and 1"),
                    _ => (4, "bytes in hexadecimal digits", "digits are 0 to 9 and A to F"),
                };
                let texts = given.text_argument(0)?;
                let mut found = BinaryBuilder::with_capacity(given.row_count, given.row_count * 16);
                let mut bytes = Vec::new();
                for row in 0..given.row_count {
                    let Some(text) = texts.get(row) else {
                        found.append_null();
                        continue;
                    };
                    bytes.clear();
                    match read_digits(text, bits_each, &mut bytes) {
                        true => found.append_value(&bytes),
                        false => {
                            return Err(external_error(Error::Cast {
                                value: shorten_for_message(text),
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

fn hex_digit(value: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(value & 15)])
}

/// Writes digits of `each` bits, without leading zeros.
fn write_digits(bits: u64, each: u32, out: &mut String) {
    let count = (64 - bits.leading_zeros()).div_ceil(each).max(1);
    for at in (0..count).rev() {
        let value = (bits >> (at * each)) & ((1 << each) - 1);
        out.push(hex_digit(value as u8));
    }
}

/// Reads digits of `bits_each` bits into bytes. Returns false if a character is not such a digit. If the
/// digits do not fill a whole number of bytes, zeros precede them.
fn read_digits(text: &str, bits_each: u32, bytes: &mut Vec<u8>) -> bool {
    let digits_each = 8 / bits_each as usize;
    let count = text.chars().count();
    let mut filled = count.next_multiple_of(digits_each) - count;
    let mut byte = 0_u8;
    for letter in text.chars() {
        let Some(value) = letter.to_digit(1 << bits_each) else { return false };
        // A digit value is below 16.
        byte = byte << bits_each | value as u8;
        filled += 1;
        if filled == digits_each {
            bytes.push(byte);
            (filled, byte) = (0, 0);
        }
    }
    true
}

/// The function `to_base(n, base)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ToBaseFunction;

/// Maximum number of digits that `to_base` pads to.
const TO_BASE_DIGITS_MAX: i64 = 64;

impl RowFunction for ToBaseFunction {
    fn names(&self) -> &'static [&'static str] {
        &["to_base"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_STRING,
            syntax: "to_base(n, base)\nto_base(n, base, digits)",
            description: "A whole number in digits of a base from 2 to 36, with zeros before it where it has fewer `digits`: \
                   `to_base(255, 16)` is `FF`, and `to_base(5, 2, 8)` is `00000101`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given.len() {
            2 | 3 if given.iter().all(|of| integer_cast_type(of).is_some()) => {
                let number = integer_cast_type(&given[0]).unwrap_or(DataType::Int64);
                Ok(std::iter::once(number)
                    .chain(given[1..].iter().map(|_| DataType::Int64))
                    .collect())
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        let constant = |at: usize| match constants.get(at) {
            Some(Some(ScalarValue::Int64(number))) => *number,
            _ => None,
        };
        if let Some(base) = constant(1) {
            check_base(base)?;
        }
        if let Some(digits) = constant(2) {
            check_digit_count(digits)?;
        }
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let bits = BitsArgument::from_arguments(given)?;
        let is_signed = given.argument(0)?.data_type() == DataType::Int64;
        let (bases, base_rows) = given.cast_argument(1, &DataType::Int64)?;
        let counts = match given.arguments.len() {
            3 => Some(given.cast_argument(2, &DataType::Int64)?),
            _ => None,
        };
        let number = |array: &ArrayRef, at: usize| {
            array.is_valid(at).then(|| array.as_primitive::<Int64Type>().value(at))
        };
        given.build_texts(|row, out| {
            let digits = match &counts {
                Some((counts, rows)) => number(counts, rows.value_index(row)),
                None => Some(0),
            };
            let (Some(mut rest), Some(base), Some(digits)) =
                (bits.get(row), number(&bases, base_rows.value_index(row)), digits)
            else {
                return Ok(false);
            };
            let (base, least) = (check_base(base)?, check_digit_count(digits)?);
            if is_signed && rest.cast_signed() < 0 {
                return Err(overflow_error(
                    format!(
                        "`to_base` takes no number below zero, and this is {}",
                        rest.cast_signed()
                    ),
                    Some("bin(n) and hex(n) write the bits of one"),
                ));
            }
            // Digits come out last first.
            while rest > 0 || out.is_empty() || out.len() < least {
                out.insert(0, BASE_36_DIGITS[(rest % base) as usize]);
                rest /= base;
            }
            Ok(true)
        })
    }
}

const BASE_36_DIGITS: [char; 36] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I',
    'J', 'K', 'L', 'M', 'N', 'O', 'P', 'Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X', 'Y', 'Z',
];

fn check_base(base: i64) -> Result<u64> {
    match (2..=36).contains(&base) {
        true => Ok(base.unsigned_abs()),
        false => Err(usage_error(
            format!("`to_base` has no digits of the base {base}"),
            "a base is from 2 to 36",
        )),
    }
}

fn check_digit_count(digits: i64) -> Result<usize> {
    match usize::try_from(digits) {
        Ok(count) if digits <= TO_BASE_DIGITS_MAX => Ok(count),
        _ => Err(usage_error(
            format!("`to_base` does not fill up to {digits} digits"),
            format!("the count of digits is from 0 to {TO_BASE_DIGITS_MAX}"),
        )),
    }
}
