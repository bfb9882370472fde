//! Shows estimates to people: `12,300 ± 210` for three columns of a result, the number and its bounds.
//!
//! The bounds of an estimate follow its column, and their schema marks them ([`BOUND_METADATA_KEY`]). In
//! tables for people the three are one column. It shows as many digits of the number as its interval leaves,
//! of which two are shown, and groups digits. `≥ 41` is a bound, and `~ 41` a number whose error is unknown.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Schema, SchemaRef};
use tidemill_base::coverage::BOUND_METADATA_KEY;

use crate::error::{Error, Result};
use crate::writing::value_text::TextColumn;

/// Schema metadata key of a column that displays an estimate.
const ESTIMATE_METADATA_KEY: &str = "tidemill.estimate";

/// Returns the positions of the result columns that a table for people shows. A number followed by its bounds
/// is one displayed column, at the number's position.
pub fn displayed_columns(schema: &SchemaRef) -> Vec<usize> {
    EstimateDisplay::new(schema).columns.iter().map(|(index, _)| *index).collect()
}

/// The plan by which a result's columns are combined for display.
pub(crate) struct EstimateDisplay {
    schema: SchemaRef,
    /// For each displayed column, its position in the result, and whether its bounds follow it.
    columns: Vec<(usize, bool)>,
}

/// Returns true if a column displays an estimate: a number, even if its type is text.
pub(crate) fn is_displayed_estimate(field: &Field) -> bool {
    field.metadata().contains_key(ESTIMATE_METADATA_KEY)
}

/// Returns true if the text of an estimate is only a bound.
pub(crate) fn is_bound_text(text: &str) -> bool {
    text.starts_with(['≥', '≤'])
}

impl EstimateDisplay {
    /// Plans the display of a result's columns.
    pub(crate) fn new(schema: &SchemaRef) -> Self {
        let fields = schema.fields();
        let is_bound = |index: usize, which: &str| {
            fields
                .get(index)
                .and_then(|field: &FieldRef| field.metadata().get(BOUND_METADATA_KEY))
                .is_some_and(|it| it == which)
        };
        let (mut places, mut shown): (Vec<(usize, bool)>, Vec<FieldRef>) = (Vec::new(), Vec::new());
        let mut index = 0;
        while let Some(field) = fields.get(index) {
            let has_bounds = is_bound(index + 1, "low") && is_bound(index + 2, "high");
            places.push((index, has_bounds));
            match has_bounds {
                true => {
                    let said = [(ESTIMATE_METADATA_KEY.to_owned(), String::new())].into();
                    shown.push(Arc::new(
                        Field::new(field.name(), DataType::Utf8, true).with_metadata(said),
                    ));
                    index += 3;
                }
                false => {
                    shown.push(Arc::clone(field));
                    index += 1;
                }
            }
        }
        EstimateDisplay { schema: Arc::new(Schema::new(shown)), columns: places }
    }

    /// Returns the schema of the displayed columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns a batch with the displayed columns.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) for a column that has no text.
    pub(crate) fn merge_bounds(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if self.columns.len() == batch.num_columns() {
            return Ok(batch.clone());
        }
        let columns = self.columns.iter().map(|(index, has_bounds)| match has_bounds {
            false => Ok(Arc::clone(batch.column(*index))),
            true => self.format_estimate_column(&batch.columns()[*index..index + 3]),
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| Error::Internal(format!("estimates of another result: {error}")))
    }

    fn format_estimate_column(&self, columns: &[ArrayRef]) -> Result<ArrayRef> {
        let [value, low, high] = columns else { return Ok(Arc::clone(&columns[0])) };
        let mut builder = StringBuilder::with_capacity(value.len(), 0);
        // An estimate may have a type of its own beside bounds that are DOUBLE.
        let is_number = value.data_type().is_numeric() && low.data_type() == &DataType::Float64;
        let doubles = is_number.then(|| arrow::compute::cast(value, &DataType::Float64));
        let doubles = doubles.and_then(|cast| cast.ok());
        let numbers = doubles.as_ref().and_then(|it| it.as_primitive_opt::<Float64Type>());
        let has_own_type = value.data_type() != &DataType::Float64;
        let texts = TextColumn::new(value)?;
        let mut buffer = Vec::new();
        for row in 0..value.len() {
            if value.is_null(row) {
                builder.append_null();
                continue;
            }
            let (has_low, has_high) = (low.is_valid(row), high.is_valid(row));
            let text = match numbers {
                Some(numbers) => {
                    let number =
                        |column: &ArrayRef| column.as_primitive::<Float64Type>().value(row);
                    let (low, high) =
                        (has_low.then(|| number(low)), has_high.then(|| number(high)));
                    let is_exact = low == high && low == Some(numbers.value(row));
                    if has_own_type && is_exact {
                        // A DOUBLE may lack some of its digits.
                        buffer.clear();
                        texts.write_text(row, &mut buffer);
                        crate::display::terminal_table::group_thousands(&String::from_utf8_lossy(
                            &buffer,
                        ))
                    } else {
                        format_estimate(numbers.value(row), low, high)
                    }
                }
                None => {
                    buffer.clear();
                    texts.write_text(row, &mut buffer);
                    let text = String::from_utf8_lossy(&buffer);
                    match (has_low, has_high) {
                        (true, false) => format!("≥ {text}"),
                        (false, true) => format!("≤ {text}"),
                        _ => text.into_owned(),
                    }
                }
            };
            builder.append_value(text);
        }
        Ok(Arc::new(builder.finish()))
    }
}

/// Formats a number with its bounds for people.
fn format_estimate(value: f64, low: Option<f64>, high: Option<f64>) -> String {
    let plain = |value: f64| match value {
        _ if value.abs() < 1e15 && value == value.trunc() => format_number(value, 0),
        _ if value.abs() < 1e15 => format_significant(value, 6),
        _ => value.to_string(),
    };
    match (low, high) {
        (Some(low), Some(high)) => {
            let half = (high - value).max(value - low);
            if half == 0.0 {
                return plain(value);
            }
            if !half.is_finite()
                || !value.is_finite()
                || half.max(value.abs()) >= 1e15
                || half < 1e-9
            {
                return format!("{value:e} ± {half:.1e}");
            }
            let (down, up) = (value - low, high - value);
            let crosses = low >= 0.0 && value < half || high <= 0.0 && -value < half;
            if down.min(up) < 0.6 * half || crosses {
                // An asymmetric interval: `±` would wrongly say, for example, that a count may be below 0.
                let digits = 1 - (down.min(up).max(half / 10.0).log10().floor() as i32);
                let decimals = usize::try_from(digits).unwrap_or(0);
                let unit = 10_f64.powi(-digits);
                let rounded = |at: f64| format_number((at / unit).round() * unit, decimals);
                return format!("{} ({} … {})", rounded(value), rounded(low), rounded(high));
            }
            // Shows two digits of the interval, rounded up, and the number to the same precision.
            let digits = 1 - (half.log10().floor() as i32);
            let unit = 10_f64.powi(-digits);
            let half = (half / unit * (1.0 - 1e-12)).ceil() * unit;
            let value = (value / unit).round() * unit;
            let decimals = usize::try_from(digits).unwrap_or(0);
            format!("{} ± {}", format_number(value, decimals), format_number(half, decimals))
        }
        (Some(low), None) => format!("≥ {}", plain(low)),
        (None, Some(high)) => format!("≤ {}", plain(high)),
        (None, None) => format!("~ {}", plain(value)),
    }
}

/// Formats a number with `digits` significant digits.
fn format_significant(value: f64, digits: i32) -> String {
    let whole = value.abs().log10().floor() as i32 + 1;
    let decimals = usize::try_from(digits - whole).unwrap_or(0).min(12);
    let text = format_number(value, decimals);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn format_number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.trim_start_matches('-').bytes().all(|b| matches!(b, b'0' | b'.')) {
        text.trim_start_matches('-').to_owned()
    } else {
        text
    };
    crate::display::terminal_table::group_thousands(&text)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array};

    use super::*;

    #[test]
    fn estimates_have_the_digits_that_their_interval_leaves() {
        for (value, low, high, expected) in [
            (12_304.0, Some(12_094.0), Some(12_514.0), "12,300 ± 210"),
            (12_304.0, Some(12_150.0), Some(12_514.0), "12,300 ± 210"),
            (320.0, Some(20.0), Some(1_040.0), "320 (20 … 1,040)"),
            (233.0, Some(26.0), Some(539.0), "230 (30 … 540)"),
            (-233.0, Some(-539.0), Some(-26.0), "-230 (-540 … -30)"),
            (5.0, Some(5.0), Some(9.5), "5.00 (5.00 … 9.50)"),
            (0.123456, Some(0.12), Some(0.127), "0.1235 ± 0.0036"),
            (12_304.4, Some(12_302.0), Some(12_306.5), "12,304.4 ± 2.4"),
            (-7.0, Some(-8.04), Some(-6.0), "-7.0 ± 1.1"),
            (5.0, Some(5.0), Some(5.0), "5"),
            (5.25, Some(5.25), Some(5.25), "5.25"),
            (1e6 / 3.0, Some(1e6 / 3.0), Some(1e6 / 3.0), "333,333"),
            (41.0, Some(41.0), None, "≥ 41"),
            (41.0, None, Some(41.0), "≤ 41"),
            (41_000.0, None, None, "~ 41,000"),
            (9.96, Some(8.96), Some(10.96), "10.0 ± 1.0"),
            (0.0, Some(-0.3), Some(0.3), "0.00 ± 0.30"),
            (-0.001, Some(-0.3), Some(0.3), "0.00 ± 0.31"),
            (1e18, Some(0.9e18), Some(1.1e18), "1e18 ± 1.0e17"),
        ] {
            assert_eq!(format_estimate(value, low, high), expected);
        }
    }

    #[test]
    fn an_estimate_of_its_own_type_is_shown_with_its_bounds_or_all_of_its_digits() {
        let bound = |which: &str| {
            Field::new(format!("n_{which}"), DataType::Float64, true)
                .with_metadata([(BOUND_METADATA_KEY.to_owned(), which.to_owned())].into())
        };
        let large = (1_i64 << 53) + 1;
        let rows = [
            (Some(12_304), Some(12_094.0), Some(12_514.0), Some("12,300 ± 210")),
            (Some(12_304), Some(12_304.0), Some(12_304.0), Some("12,304")),
            (Some(large), Some(large as f64), Some(large as f64), Some("9,007,199,254,740,993")),
            (Some(41), Some(41.0), None, Some("≥ 41")),
            (None, None, None, None),
        ];
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            bound("low"),
            bound("high"),
        ]));
        let doubles = |values: Vec<Option<f64>>| Arc::new(Float64Array::from(values)) as ArrayRef;
        let columns = vec![
            Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0))) as ArrayRef,
            doubles(rows.iter().map(|row| row.1).collect()),
            doubles(rows.iter().map(|row| row.2).collect()),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let shown = EstimateDisplay::new(&schema).merge_bounds(&batch).unwrap();
        let texts: Vec<Option<&str>> = shown.column(0).as_string::<i32>().iter().collect();
        let expected: Vec<Option<&str>> = rows.iter().map(|row| row.3).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn three_columns_are_shown_as_one() {
        let bound = |name: &str, which: &str| {
            Field::new(name, DataType::Float64, true)
                .with_metadata([(BOUND_METADATA_KEY.to_owned(), which.to_owned())].into())
        };
        let schema = Arc::new(Schema::new(vec![
            Field::new("k", DataType::Float64, true),
            Field::new("n", DataType::Float64, true),
            bound("n_low", "low"),
            bound("n_high", "high"),
            Field::new("z", DataType::Float64, true),
        ]));
        let column =
            |values: [Option<f64>; 3]| Arc::new(Float64Array::from_iter(values)) as ArrayRef;
        let batch = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                column([Some(1.0), Some(2.0), None]),
                column([Some(100.0), Some(200.0), None]),
                column([Some(90.0), None, None]),
                column([Some(110.0), None, None]),
                column([Some(7.0), Some(8.0), Some(9.0)]),
            ],
        )
        .unwrap();
        let estimates = EstimateDisplay::new(&schema);
        let shown = estimates.merge_bounds(&batch).unwrap();
        assert_eq!(shown.num_columns(), 3);
        let texts: Vec<Option<&str>> = shown.column(1).as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("100 ± 10"), Some("~ 200"), None]);
        assert!(
            is_displayed_estimate(shown.schema().field(1))
                && !is_displayed_estimate(shown.schema().field(0))
        );
        assert_eq!(displayed_columns(&schema), [0, 1, 4]);
        let cells = crate::format_cells(&batch, 1..3, 80).unwrap();
        let texts: Vec<Vec<Option<&str>>> =
            cells.iter().map(|row| row.iter().map(Option::as_deref).collect()).collect();
        assert_eq!(texts, [[Some("2.0"), Some("~ 200"), Some("8.0")], [None, None, Some("9.0")]]);
    }
}
