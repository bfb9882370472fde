//! Numbers and bytes by their bits: `bit_count`, `bin`, `hex` and `unhex`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, Int64Array};
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::{
    DOC_SECTION_BINARY_STRING, DOC_SECTION_MATH, DOC_SECTION_STRING,
};

use super::hashes::{as_bytes, bytes_of};
use crate::callable::{Function, Given, Rows, Told, as_text, brief, called_as, external};
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
}

impl Function for OfBits {
    fn names(&self) -> &'static [&'static str] {
        match self {
            OfBits::Count => &["bit_count", "bitcount"],
            OfBits::Binary => &["bin"],
            OfBits::Hex => &["hex"],
            OfBits::Unhex => &["unhex", "from_hex"],
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
                calls: "bin(n)",
                what: "A whole number in binary digits, one below zero as its 64 bits: `bin(10)` is `1010`.",
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
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [of] = given else { return Err(called_as(self, given)) };
        let taken = match self {
            OfBits::Count | OfBits::Binary => as_whole(of),
            OfBits::Hex => as_whole(of).or_else(|| as_bytes(of)),
            OfBits::Unhex => as_text(of),
        };
        Ok(vec![taken.ok_or_else(|| called_as(self, given))?])
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(match self {
            OfBits::Count => DataType::Int64,
            OfBits::Unhex => DataType::Binary,
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
            OfBits::Binary => {
                let bits = Bits::of(given)?;
                given.written(|row, out| {
                    let Some(bits) = bits.at(row) else { return Ok(false) };
                    write_digits(bits, 1, out);
                    Ok(true)
                })
            }
            OfBits::Hex if as_whole(&given.value(0)?.data_type()).is_some() => {
                let bits = Bits::of(given)?;
                given.written(|row, out| {
                    let Some(bits) = bits.at(row) else { return Ok(false) };
                    write_digits(bits, 4, out);
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
            OfBits::Unhex => {
                let texts = given.texts(0)?;
                let mut found = BinaryBuilder::with_capacity(given.rows, given.rows * 16);
                let mut bytes = Vec::new();
                for row in 0..given.rows {
                    let Some(text) = texts.at(row) else {
                        found.append_null();
                        continue;
                    };
                    bytes.clear();
                    match read_hex(text, &mut bytes) {
                        true => found.append_value(&bytes),
                        false => {
                            return Err(external(Error::Cast {
                                value: brief(text),
                                to: "bytes in hexadecimal digits".into(),
                                cast: None,
                                hint: Some("digits are 0 to 9 and A to F".into()),
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

/// An odd count of digits has a zero before it.
fn read_hex(text: &str, bytes: &mut Vec<u8>) -> bool {
    let mut high = (text.len() % 2 == 1).then_some(0);
    for letter in text.chars() {
        let Some(value) = letter.to_digit(16) else { return false };
        // A digit is below 16.
        let value = value as u8;
        high = match high {
            Some(high) => {
                bytes.push(high << 4 | value);
                None
            }
            None => Some(value),
        };
    }
    true
}
