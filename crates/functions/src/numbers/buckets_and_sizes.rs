//! `width_bucket`, `bar`, and sizes and quantities in human-readable form.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, UInt64Array};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::{DOC_SECTION_MATH, DOC_SECTION_STRING};

use tidemill_base::error::Error;

use crate::row_function::{
    ArgumentBatch, FunctionDocs, RowFunction, RowMapping, argument_array, external_error,
    overflow_error, shorten_for_message, text_cast_type, usage_error, wrong_arguments_error,
};

/// An argument of DOUBLEs.
pub(super) struct DoubleArgument {
    values: Float64Array,
    rows: RowMapping,
}

impl DoubleArgument {
    pub(super) fn from_argument(given: &ArgumentBatch<'_>, at: usize) -> Result<Self> {
        let (array, rows) = given.cast_argument(at, &DataType::Float64)?;
        Ok(DoubleArgument { values: array.as_primitive::<Float64Type>().clone(), rows })
    }

    pub(super) fn get(&self, row: usize) -> Option<f64> {
        let row = self.rows.value_index(row);
        self.values.is_valid(row).then(|| self.values.value(row))
    }
}

pub(super) fn is_numeric_type(of: &DataType) -> bool {
    match of {
        DataType::Dictionary(_, values) => is_numeric_type(values),
        other => other.is_numeric() || other.is_null(),
    }
}

/// The function `width_bucket(x, low, high, count)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct WidthBucketFunction;

impl RowFunction for WidthBucketFunction {
    fn names(&self) -> &'static [&'static str] {
        &["width_bucket"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_MATH,
            syntax: "width_bucket(x, low, high, count)",
            description: "Which of so many equally wide buckets between two bounds a number is in, from 1 on, 0 below the \
                   first bound and `count + 1` from the last on: `width_bucket(35, 0, 100, 10)` is `4`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [bounds @ .., count]
                if bounds.len() == 3
                    && bounds.iter().all(is_numeric_type)
                    && (count.is_integer() || count.is_null()) =>
            {
                let mut taken = vec![DataType::Float64; 3];
                taken.push(DataType::Int64);
                Ok(taken)
            }
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let values = DoubleArgument::from_argument(given, 0)?;
        let (lows, highs) =
            (DoubleArgument::from_argument(given, 1)?, DoubleArgument::from_argument(given, 2)?);
        let (counts, count_rows) = given.cast_argument(3, &DataType::Int64)?;
        let counts = counts.as_primitive::<Int64Type>();
        let buckets = (0..given.row_count).map(|row| {
            let at = count_rows.value_index(row);
            let count = counts.is_valid(at).then(|| counts.value(at));
            match (values.get(row), lows.get(row), highs.get(row), count) {
                (Some(value), Some(low), Some(high), Some(count)) => {
                    bucket_number(value, low, high, count).map(Some)
                }
                _ => Ok(None),
            }
        });
        Ok(Arc::new(buckets.collect::<Result<Int64Array>>()?))
    }
}

/// Returns the bucket of a value as in the SQL standard: with `high` below `low`, buckets count downwards.
fn bucket_number(value: f64, low: f64, high: f64, count: i64) -> Result<i64> {
    if count <= 0 || count == i64::MAX {
        return Err(overflow_error(
            format!("`width_bucket` has no {count} buckets"),
            Some("the fourth argument is how many there are, from 1"),
        ));
    }
    let is_none = |bound: f64| !bound.is_finite();
    if is_none(low) || is_none(high) || low == high || value.is_nan() {
        return Err(overflow_error(
            format!("`width_bucket` of {value} has no answer between {low} and {high}"),
            Some("bounds are two different numbers"),
        ));
    }
    let (from, to) = if low < high { (low, high) } else { (-low, -high) };
    let value = if low < high { value } else { -value };
    Ok(if value < from {
        0
    } else if value >= to {
        count + 1
    } else {
        // Halves keep the difference of two doubles finite.
        let share = (value / 2.0 - from / 2.0) / (to / 2.0 - from / 2.0);
        ((share * count as f64) as i64).min(count - 1) + 1
    })
}

/// The function `bar(x, min, max, width)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct BarFunction;

/// Width of a bar in characters if the call does not set it.
const BAR_WIDTH_DEFAULT: f64 = 80.0;
const BAR_WIDTH_MAX: f64 = 1_000.0;

impl RowFunction for BarFunction {
    fn names(&self) -> &'static [&'static str] {
        &["bar"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_STRING,
            syntax: "bar(x, min, max)\nbar(x, min, max, width)",
            description: "A bar as long as a number is large, to an eighth of a letter: nothing at `min` and below, `width` \
                   letters (80, if not said) at `max` and above: `bar(7, 0, 10, 5)` is `███▌`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given.len() {
            3 | 4 if given.iter().all(is_numeric_type) => Ok(vec![DataType::Float64; given.len()]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        if let Some(Some(ScalarValue::Float64(Some(width)))) = constants.get(3) {
            check_bar_width(*width)?;
        }
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let values = DoubleArgument::from_argument(given, 0)?;
        let (lows, highs) =
            (DoubleArgument::from_argument(given, 1)?, DoubleArgument::from_argument(given, 2)?);
        let widths = match given.arguments.len() {
            4 => Some(DoubleArgument::from_argument(given, 3)?),
            _ => None,
        };
        given.build_texts(|row, out| {
            let width = match &widths {
                Some(widths) => widths.get(row),
                None => Some(BAR_WIDTH_DEFAULT),
            };
            let (Some(value), Some(low), Some(high), Some(width)) =
                (values.get(row), lows.get(row), highs.get(row), width)
            else {
                return Ok(false);
            };
            let width = check_bar_width(width)?;
            let share = (value - low) / (high - low);
            let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
            let eighths = (share * width * 8.0) as usize;
            (0..eighths / 8).for_each(|_| out.push('█'));
            match eighths % 8 {
                0 => {}
                rest => out.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][rest - 1]),
            }
            Ok(true)
        })
    }
}

fn check_bar_width(width: f64) -> Result<f64> {
    match (1.0..=BAR_WIDTH_MAX).contains(&width) {
        true => Ok(width),
        false => Err(usage_error(
            format!("`bar` is not {width} letters wide"),
            format!("a width is from 1 to {BAR_WIDTH_MAX}"),
        )),
    }
}

/// Functions that write numbers in human-readable form.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum ReadableNumberFunction {
    /// `format_bytes`: `15.6 KiB`
    FormatBytes,
    /// `formatReadableSize`: `16.11 KiB`
    ReadableSize,
    /// `formatReadableDecimalSize`: `16.00 KB`
    ReadableDecimalSize,
    /// `formatReadableQuantity`: `16.00 thousand`
    ReadableQuantity,
}

impl ReadableNumberFunction {
    fn unit_scale(&self) -> (f64, &'static [&'static str], usize) {
        const KIBI: [&str; 9] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
        const KILO: [&str; 9] = ["B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"];
        const WORDS: [&str; 6] = ["", "thousand", "million", "billion", "trillion", "quadrillion"];
        match self {
            ReadableNumberFunction::FormatBytes => (1024.0, &KIBI[..6], 1),
            ReadableNumberFunction::ReadableSize => (1024.0, &KIBI, 2),
            ReadableNumberFunction::ReadableDecimalSize => (1000.0, &KILO, 2),
            ReadableNumberFunction::ReadableQuantity => (1000.0, &WORDS, 2),
        }
    }
}

impl RowFunction for ReadableNumberFunction {
    fn names(&self) -> &'static [&'static str] {
        match self {
            ReadableNumberFunction::FormatBytes => &["format_bytes", "pg_size_pretty"],
            ReadableNumberFunction::ReadableSize => &["formatreadablesize"],
            ReadableNumberFunction::ReadableDecimalSize => &["formatreadabledecimalsize"],
            ReadableNumberFunction::ReadableQuantity => &["formatreadablequantity"],
        }
    }

    fn docs(&self) -> FunctionDocs {
        let (calls, what) = match self {
            ReadableNumberFunction::FormatBytes => (
                "format_bytes(n)",
                "A number of bytes as people read it, with one digit behind the point and the rest cut off, in units up to \
                 PiB: `format_bytes(16000)` is `15.6 KiB`, and `format_bytes(12)` is `12 bytes`.",
            ),
            ReadableNumberFunction::ReadableSize => (
                "formatReadableSize(n)",
                "So many bytes as people read them, to two digits: `formatreadablesize(16500)` is `16.11 KiB`.",
            ),
            ReadableNumberFunction::ReadableDecimalSize => (
                "formatReadableDecimalSize(n)",
                "So many bytes in units of 1,000: `formatreadabledecimalsize(16000)` is `16.00 KB`.",
            ),
            ReadableNumberFunction::ReadableQuantity => (
                "formatReadableQuantity(n)",
                "A number in thousands, millions and so on: `formatreadablequantity(1234567)` is `1.23 million`.",
            ),
        };
        FunctionDocs { section: DOC_SECTION_STRING, syntax: calls, description: what }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            // A decimal keeps all digits of an integer, which matters because digits are cut off, not
            // rounded.
            [of] if *self == ReadableNumberFunction::FormatBytes && of.is_integer() => {
                Ok(vec![DataType::Decimal128(20, 0)])
            }
            [of] if is_numeric_type(of) => Ok(vec![DataType::Float64]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        if *self == ReadableNumberFunction::FormatBytes
            && given.argument(0)?.data_type().is_decimal()
        {
            let (array, rows) = argument_array(given.argument(0)?)?;
            let numbers = array.as_primitive::<Decimal128Type>();
            return given.build_texts(|row, out| {
                let row = rows.value_index(row);
                if numbers.is_null(row) {
                    return Ok(false);
                }
                write_byte_size(numbers.value(row), out);
                Ok(true)
            });
        }
        let values = DoubleArgument::from_argument(given, 0)?;
        let (step, units, digits) = self.unit_scale();
        given.build_texts(|row, out| {
            let Some(value) = values.get(row) else { return Ok(false) };
            if *self == ReadableNumberFunction::FormatBytes && value.is_finite() {
                write_byte_size(value as i128, out);
                return Ok(true);
            }
            let half = 0.5 / 10_f64.powi(digits as i32);
            let mut shown = value;
            let mut at = 0;
            // A value that would round up to a whole larger unit is written in that unit.
            while at + 1 < units.len() && shown.is_finite() && shown.abs() >= step {
                shown /= step;
                at += 1;
            }
            if at > 0 && at + 1 < units.len() && shown.abs() + half >= step {
                shown /= step;
                at += 1;
            }
            let written = write!(out, "{shown:.digits$} {}", units[at]);
            if out.ends_with(' ') {
                out.pop();
            }
            Ok(written.is_ok())
        })
    }
}

/// Writes a size in bytes as DuckDB does: digits below a tenth of the unit are cut off, and so is the part
/// below the next smaller unit.
fn write_byte_size(bytes: i128, out: &mut String) {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let size = bytes.unsigned_abs();
    let sign = if bytes < 0 { "-" } else { "" };
    let mut unit = None;
    let mut whole = size;
    let mut rest = 0;
    for name in UNITS {
        if whole < 1024 {
            break;
        }
        (whole, rest) = (whole / 1024, whole % 1024);
        unit = Some(name);
    }
    // Writing to a `String` cannot fail.
    let _ = match (unit, size) {
        (Some(unit), _) => write!(out, "{sign}{whole}.{} {unit}", rest * 10 / 1024),
        (None, 1) => write!(out, "{sign}1 byte"),
        (None, _) => write!(out, "{sign}{size} bytes"),
    };
}

/// The function `parse_formatted_bytes(x)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ParseFormattedBytesFunction;

impl RowFunction for ParseFormattedBytesFunction {
    fn names(&self) -> &'static [&'static str] {
        &["parse_formatted_bytes"]
    }

    fn docs(&self) -> FunctionDocs {
        FunctionDocs {
            section: DOC_SECTION_STRING,
            syntax: "parse_formatted_bytes(x)",
            description: "The number of bytes that a text with a unit says, a BIGINT UNSIGNED: \
                   `parse_formatted_bytes('1.5 KB')` is `1500`, and `parse_formatted_bytes('2 MiB')` is `2097152`.",
        }
    }

    fn coerce_argument_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] => Ok(vec![text_cast_type(of).ok_or_else(|| wrong_arguments_error(self, given))?]),
            _ => Err(wrong_arguments_error(self, given)),
        }
    }

    fn return_type(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn calculate(&self, given: &ArgumentBatch<'_>) -> Result<ArrayRef> {
        let texts = given.text_argument(0)?;
        let sizes =
            (0..given.row_count).map(|row| texts.get(row).map(parse_formatted_bytes).transpose());
        Ok(Arc::new(sizes.collect::<Result<UInt64Array>>()?))
    }
}

fn parse_formatted_bytes(text: &str) -> Result<u64> {
    let refused = |hint: &str| {
        Err(external_error(Error::Cast {
            value: shorten_for_message(text),
            to: "a number of bytes".into(),
            cast: None,
            hint: Some(hint.into()),
        }))
    };
    let bare = text.trim_ascii();
    let (number, rest) = bare.split_at(find_number_end(bare));
    let Ok(number) = number.parse::<f64>() else {
        return refused("a number stands before its unit: 1.5 KB");
    };
    let unit = rest.trim_ascii_start().split_ascii_whitespace().next().unwrap_or_default();
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "b" | "byte" | "bytes" => 1,
        "k" | "kb" | "kilobyte" | "kilobytes" => 1_000,
        "m" | "mb" | "megabyte" | "megabytes" => 1_000_000,
        "g" | "gb" | "gigabyte" | "gigabytes" => 1_000_000_000,
        "t" | "tb" | "terabyte" | "terabytes" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return refused("units are B, KB, MB, GB, TB, KiB, MiB, GiB and TiB"),
    };
    // 2^64, one more than the largest result.
    const U64_LIMIT: f64 = 18_446_744_073_709_551_616.0;
    #[allow(clippy::cast_precision_loss)]
    let bytes = number * factor as f64;
    if number < 0.0 || bytes >= U64_LIMIT {
        return refused("it is from 0 B to 16777215 TiB");
    }
    Ok(bytes as u64)
}

/// Returns the end of a number that may have a decimal point and an exponent.
fn find_number_end(text: &str) -> usize {
    let sign = usize::from(text.starts_with('-'));
    let digits = |from: usize| {
        text[from..].bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count()
    };
    let end = sign + digits(sign);
    match text[end..].strip_prefix(['e', 'E']) {
        Some(exponent) => {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            match digits(end + 1 + sign) {
                0 => end,
                count => end + 1 + sign + count,
            }
        }
        None => end,
    }
}
