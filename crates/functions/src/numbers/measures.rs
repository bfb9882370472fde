//! Numbers measured: `width_bucket`, `bar`, and sizes and quantities that people read.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::scalar_doc_sections::{DOC_SECTION_MATH, DOC_SECTION_STRING};

use crate::callable::{Function, Given, Rows, Told, called_as, overflow, usage};

/// Arguments as doubles.
pub(super) struct Doubles {
    values: Float64Array,
    rows: Rows,
}

impl Doubles {
    pub(super) fn of(given: &Given<'_>, at: usize) -> Result<Self> {
        let (array, rows) = given.cast(at, &DataType::Float64)?;
        Ok(Doubles { values: array.as_primitive::<Float64Type>().clone(), rows })
    }

    pub(super) fn at(&self, row: usize) -> Option<f64> {
        let row = self.rows.at(row);
        self.values.is_valid(row).then(|| self.values.value(row))
    }
}

pub(super) fn is_number(of: &DataType) -> bool {
    match of {
        DataType::Dictionary(_, values) => is_number(values),
        other => other.is_numeric() || other.is_null(),
    }
}

/// `width_bucket(x, low, high, count)`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct WidthBucket;

impl Function for WidthBucket {
    fn names(&self) -> &'static [&'static str] {
        &["width_bucket"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_MATH,
            calls: "width_bucket(x, low, high, count)",
            what: "Which of so many equally wide buckets between two bounds a number is in, from 1 on, 0 below the \
                   first bound and `count + 1` from the last on: `width_bucket(35, 0, 100, 10)` is `4`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [bounds @ .., count]
                if bounds.len() == 3
                    && bounds.iter().all(is_number)
                    && (count.is_integer() || count.is_null()) =>
            {
                let mut taken = vec![DataType::Float64; 3];
                taken.push(DataType::Int64);
                Ok(taken)
            }
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let values = Doubles::of(given, 0)?;
        let (lows, highs) = (Doubles::of(given, 1)?, Doubles::of(given, 2)?);
        let (counts, count_rows) = given.cast(3, &DataType::Int64)?;
        let counts = counts.as_primitive::<Int64Type>();
        let buckets = (0..given.rows).map(|row| {
            let at = count_rows.at(row);
            let count = counts.is_valid(at).then(|| counts.value(at));
            match (values.at(row), lows.at(row), highs.at(row), count) {
                (Some(value), Some(low), Some(high), Some(count)) => {
                    bucket(value, low, high, count).map(Some)
                }
                _ => Ok(None),
            }
        });
        Ok(Arc::new(buckets.collect::<Result<Int64Array>>()?))
    }
}

/// As SQL's standard has it: bounds the other way round count downwards.
fn bucket(value: f64, low: f64, high: f64, count: i64) -> Result<i64> {
    if count <= 0 || count == i64::MAX {
        return Err(overflow(
            format!("`width_bucket` has no {count} buckets"),
            Some("the fourth argument is how many there are, from 1"),
        ));
    }
    let is_none = |bound: f64| !bound.is_finite();
    if is_none(low) || is_none(high) || low == high || value.is_nan() {
        return Err(overflow(
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
        // Halves, so that no difference of two doubles is infinite.
        let share = (value / 2.0 - from / 2.0) / (to / 2.0 - from / 2.0);
        ((share * count as f64) as i64).min(count - 1) + 1
    })
}

/// `bar(x, min, max, width)`
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Bar;

/// What `bar` is as wide as, unless it is said.
const WIDTH: f64 = 80.0;
const WIDTH_MAX: f64 = 1_000.0;

impl Function for Bar {
    fn names(&self) -> &'static [&'static str] {
        &["bar"]
    }

    fn told(&self) -> Told {
        Told {
            section: DOC_SECTION_STRING,
            calls: "bar(x, min, max)\nbar(x, min, max, width)",
            what: "A bar as long as a number is large, to an eighth of a letter: nothing at `min` and below, `width` \
                   letters (80, if not said) at `max` and above: `bar(7, 0, 10, 5)` is `███▌`.",
        }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given.len() {
            3 | 4 if given.iter().all(is_number) => Ok(vec![DataType::Float64; given.len()]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
        if let Some(Some(ScalarValue::Float64(Some(width)))) = constants.get(3) {
            checked_width(*width)?;
        }
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let values = Doubles::of(given, 0)?;
        let (lows, highs) = (Doubles::of(given, 1)?, Doubles::of(given, 2)?);
        let widths = match given.values.len() {
            4 => Some(Doubles::of(given, 3)?),
            _ => None,
        };
        given.written(|row, out| {
            let width = match &widths {
                Some(widths) => widths.at(row),
                None => Some(WIDTH),
            };
            let (Some(value), Some(low), Some(high), Some(width)) =
                (values.at(row), lows.at(row), highs.at(row), width)
            else {
                return Ok(false);
            };
            let width = checked_width(width)?;
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

fn checked_width(width: f64) -> Result<f64> {
    match (1.0..=WIDTH_MAX).contains(&width) {
        true => Ok(width),
        false => Err(usage(
            format!("`bar` is not {width} letters wide"),
            format!("a width is from 1 to {WIDTH_MAX}"),
        )),
    }
}

/// Numbers as people read them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Readable {
    /// `format_bytes`: `15.6 KiB`
    Bytes,
    /// `formatReadableSize`: `16.11 KiB`
    Size,
    /// `formatReadableDecimalSize`: `16.00 KB`
    DecimalSize,
    /// `formatReadableQuantity`: `16.00 thousand`
    Quantity,
}

impl Readable {
    fn units(&self) -> (f64, &'static [&'static str], usize) {
        const KIBI: [&str; 9] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
        const KILO: [&str; 9] = ["B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"];
        const WORDS: [&str; 6] = ["", "thousand", "million", "billion", "trillion", "quadrillion"];
        match self {
            Readable::Bytes => (1024.0, &KIBI, 1),
            Readable::Size => (1024.0, &KIBI, 2),
            Readable::DecimalSize => (1000.0, &KILO, 2),
            Readable::Quantity => (1000.0, &WORDS, 2),
        }
    }
}

impl Function for Readable {
    fn names(&self) -> &'static [&'static str] {
        match self {
            Readable::Bytes => &["format_bytes", "pg_size_pretty"],
            Readable::Size => &["formatreadablesize"],
            Readable::DecimalSize => &["formatreadabledecimalsize"],
            Readable::Quantity => &["formatreadablequantity"],
        }
    }

    fn told(&self) -> Told {
        let (calls, what) = match self {
            Readable::Bytes => (
                "format_bytes(n)",
                "So many bytes as people read them: `format_bytes(16000)` is `15.6 KiB`, and `format_bytes(12)` is \
                 `12 bytes`.",
            ),
            Readable::Size => (
                "formatReadableSize(n)",
                "So many bytes as people read them, to two digits: `formatreadablesize(16500)` is `16.11 KiB`.",
            ),
            Readable::DecimalSize => (
                "formatReadableDecimalSize(n)",
                "So many bytes in units of 1,000: `formatreadabledecimalsize(16000)` is `16.00 KB`.",
            ),
            Readable::Quantity => (
                "formatReadableQuantity(n)",
                "A number in thousands, millions and so on: `formatreadablequantity(1234567)` is `1.23 million`.",
            ),
        };
        Told { section: DOC_SECTION_STRING, calls, what }
    }

    fn takes(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of] if is_number(of) => Ok(vec![DataType::Float64]),
            _ => Err(called_as(self, given)),
        }
    }

    fn gives(&self, _: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn calculate(&self, given: &Given<'_>) -> Result<ArrayRef> {
        let values = Doubles::of(given, 0)?;
        let (step, units, digits) = self.units();
        given.written(|row, out| {
            let Some(value) = values.at(row) else { return Ok(false) };
            let half = 0.5 / 10_f64.powi(digits as i32);
            let mut shown = value;
            let mut at = 0;
            // What would be rounded to a whole unit is one.
            while at + 1 < units.len() && shown.is_finite() && shown.abs() >= step {
                shown /= step;
                at += 1;
            }
            if at > 0 && at + 1 < units.len() && shown.abs() + half >= step {
                shown /= step;
                at += 1;
            }
            let written = match (self, at) {
                (Readable::Bytes, 0) if value == 1.0 => write!(out, "1 byte"),
                (Readable::Bytes, 0) => write!(out, "{value:.0} bytes"),
                _ => write!(out, "{shown:.digits$} {}", units[at]),
            };
            if out.ends_with(' ') {
                out.pop();
            }
            Ok(written.is_ok())
        })
    }
}
