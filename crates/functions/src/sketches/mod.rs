//! Functions of sketches and id sets that are stored in a column.
//!
//! A stored sketch is a BYTEA, or text that holds its bytes as hexadecimal digits behind `\x`, as CSV and
//! JSON have them and PostgreSQL prints them. Aggregates create and merge sketches (`hll_sketch`,
//! `hll_union`, `id_set`). The functions here evaluate one stored sketch or combine two.

mod hlls;
mod id_sets;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::{DocSection, ScalarUDF};
use tidemill_base::error::Error;
use tidemill_base::hex::{decode_hex, encode_hex};
use tidemill_sketch::{Hll, SketchError, SortedIdSet};

use crate::row_function::{
    ArgumentBatch, RowFunction, RowMapping, TextArgument, external_error, is_text_type,
    shorten_for_message, text_cast_type,
};

const SKETCH_SECTION: DocSection =
    DocSection { include: true, label: "Sketch Functions", description: None };

/// Returns all functions of this module.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    let of_hlls = hlls::HllFunction::ALL.map(RowFunction::into_udf);
    of_hlls.into_iter().chain(id_sets::IdSetFunction::ALL.map(RowFunction::into_udf)).collect()
}

/// Default maximum `log2m` of a stored sketch: 2^24 registers of 6 bits take 12 MiB.
pub const LOG2M_MAX: u8 = 24;

/// Decodes a stored HyperLogLog.
///
/// # Errors
/// Returns a message for the user if the bytes are not a HyperLogLog or it has more than 2^`log2m_max`
/// registers.
pub fn decode_hll(bytes: &[u8], log2m_max: u8) -> Result<Hll, Error> {
    Hll::from_bytes_with_log2m_max(bytes, log2m_max)
        .map_err(|error| invalid_sketch_error("HyperLogLog", bytes, &error))
}

/// Maximum number of ids in a stored set; that many take a gigabyte of memory.
const ID_SET_LEN_MAX: usize = 1 << 27;

/// Decodes a stored id set.
///
/// # Errors
/// Returns a message for the user if the bytes are not an id set or it has more than 2^27 ids.
pub fn decode_id_set(bytes: &[u8]) -> Result<SortedIdSet, Error> {
    SortedIdSet::decode_with_max(bytes, ID_SET_LEN_MAX)
        .map_err(|error| invalid_sketch_error("set of ids", bytes, &error))
}

/// Returns the number of ids in a stored set, and whether it contains `id`.
fn id_set_len_and_contains(bytes: &[u8], id: Option<u64>) -> Result<(usize, bool), Error> {
    SortedIdSet::scan_encoded(bytes, id)
        .map_err(|error| invalid_sketch_error("set of ids", bytes, &error))
}

/// Returns an upper bound for the number of ids in each row's stored set, read from its first bytes; 0 for a
/// value that is not a set. Costs about 10 ns per row.
pub fn id_set_len_upper_bounds(column: &ArrayRef) -> Vec<u64> {
    /// Length of the part of the header that states the count.
    const LEN_HEADER_BYTES: usize = 11;
    /// Upper bound of ids per stored byte, reached by runs of consecutive numbers.
    const IDS_PER_BYTE_MAX: u64 = 128;
    let len = |head: &[u8], bytes: usize| {
        let claimed = SortedIdSet::claimed_id_count(head).unwrap_or(0);
        claimed.min((bytes as u64).saturating_mul(IDS_PER_BYTE_MAX))
    };
    let of = |to: &DataType| cast(column, to).ok();
    let nothing = || vec![0; column.len()];
    match column.data_type() {
        DataType::Dictionary(_, values) => {
            of(values).map_or_else(nothing, |values| id_set_len_upper_bounds(&values))
        }
        text if is_text_type(text) => of(&DataType::Utf8View).map_or_else(nothing, |texts| {
            let texts = texts.as_string_view().iter();
            let len_of = |text: &str| {
                let head = text.get(..2 * LEN_HEADER_BYTES + 2).unwrap_or(text);
                decode_hex_text(head).map_or(0, |bytes| len(&bytes, text.len() / 2))
            };
            texts.map(|text| text.map_or(0, len_of)).collect()
        }),
        _ => of(&DataType::BinaryView).map_or_else(nothing, |sets| {
            let sets = sets.as_binary_view().iter();
            sets.map(|bytes| bytes.map_or(0, |bytes| len(bytes, bytes.len()))).collect()
        }),
    }
}

/// Decodes the bytes that a text represents.
///
/// # Errors
/// Returns a message for the user if the text is not hexadecimal digits behind `\x`.
pub fn decode_hex_text(text: &str) -> Result<Vec<u8>, Error> {
    let digits = text.strip_prefix("\\x").or_else(|| text.strip_prefix("\\X"));
    digits.and_then(decode_hex).ok_or_else(|| Error::InvalidBytes {
        message: format!("`{}` is no stored sketch or set", shorten_for_message(text)),
        hint: Some(
            "they are bytes, or text of `\\x` and an even number of hexadecimal digits".into(),
        ),
    })
}

/// Returns the error for bytes that are not a sketch.
fn invalid_sketch_error(what: &str, bytes: &[u8], error: &SketchError) -> Error {
    let error = error.to_string();
    let (problem, hint) = match error.split_once("\nhint: ") {
        Some((problem, hint)) => (problem.to_owned(), Some(hint.to_owned())),
        None => (error, None),
    };
    let mut shown = format!("\\x{}", encode_hex(&bytes[..bytes.len().min(16)]));
    if bytes.len() > 16 {
        shown.push('…');
    }
    let hint = hint.unwrap_or_else(|| {
        match what {
            "HyperLogLog" => {
                "`hll_sketch`, PostgreSQL's `hll` and java-hll write them; NULLs are passed over"
            }
            _ => "`id_set` writes them; NULLs are passed over",
        }
        .into()
    });
    Error::InvalidBytes { message: format!("`{shown}` is no {what}: {problem}"), hint: Some(hint) }
}

/// Returns whether values of a type can be stored sketches.
pub fn is_sketch_type(of: &DataType) -> bool {
    match of {
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_)
        | DataType::Null => true,
        DataType::Dictionary(_, values) => is_sketch_type(values),
        other => is_text_type(other),
    }
}

/// Returns the type that a sketch argument is cast to, or `None` if the argument cannot be a sketch.
fn sketch_cast_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_)
        | DataType::Null => Some(DataType::LargeBinary),
        DataType::Dictionary(_, values) => sketch_cast_type(values),
        other => text_cast_type(other),
    }
}

/// An argument of stored sketches, as bytes or as hexadecimal text.
enum SketchArgument {
    Bytes(ArrayRef, RowMapping),
    HexTexts(TextArgument),
}

impl SketchArgument {
    fn from_argument(given: &ArgumentBatch<'_>, at: usize) -> Result<Self> {
        match is_text_type(&given.argument(at)?.data_type()) {
            true => Ok(SketchArgument::HexTexts(given.text_argument(at)?)),
            false => {
                let (array, rows) = given.cast_argument(at, &DataType::LargeBinary)?;
                Ok(SketchArgument::Bytes(array, rows))
            }
        }
    }

    /// Returns the bytes of a row, or `None` if it is null.
    fn bytes(&self, row: usize) -> Result<Option<Cow<'_, [u8]>>> {
        match self {
            SketchArgument::Bytes(array, rows) => {
                let row = rows.value_index(row);
                let bytes = array.as_binary::<i64>();
                Ok(bytes.is_valid(row).then(|| Cow::Borrowed(bytes.value(row))))
            }
            SketchArgument::HexTexts(texts) => {
                let bytes =
                    texts.get(row).map(decode_hex_text).transpose().map_err(external_error)?;
                Ok(bytes.map(Cow::Owned))
            }
        }
    }
}
