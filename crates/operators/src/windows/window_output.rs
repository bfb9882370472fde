//! Attaches the values of window calls to their rows, in batches of bounded size.
//!
//! All rows of a partition, or all peers, may share one value, and that value may be long:
//! `string_agg(s, ',') OVER ()`. The value is repeated for a portion of the rows at a time, as the next
//! operator asks for them.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;

/// Maximum size in bytes of the values attached to the rows of one batch, unless a single row's values are
/// larger.
pub(crate) const OUTPUT_PORTION_BYTES: usize = 1 << 20;

/// The values of one window call for consecutive rows.
pub(crate) enum CallValues {
    /// One value for each row.
    PerRow(ArrayRef),
    /// One value for each group of rows.
    PerGroup(VecDeque<ScalarValue>),
}

/// Rows with the values of their window calls that are not emitted yet.
pub(crate) struct PendingWindowRows {
    rows: RecordBatch,
    /// Number of rows in each group; together the groups cover `rows`.
    group_lengths: VecDeque<usize>,
    call_values: Vec<CallValues>,
}

impl PendingWindowRows {
    /// Creates a queue of `rows`, which consist of consecutive groups of the given lengths.
    pub(crate) fn new(
        rows: RecordBatch,
        groups: impl IntoIterator<Item = usize>,
        calls: Vec<CallValues>,
    ) -> Self {
        PendingWindowRows { rows, group_lengths: groups.into_iter().collect(), call_values: calls }
    }

    /// Creates a queue of rows that share all values.
    pub(crate) fn from_single_group(rows: RecordBatch, values: &[ScalarValue]) -> Self {
        let groups = [rows.num_rows()];
        let calls =
            values.iter().map(|value| CallValues::PerGroup(VecDeque::from([value.clone()])));
        let calls = calls.collect();
        PendingWindowRows::new(rows, groups, calls)
    }

    /// Returns the next rows with one more column for each call, or `None` once all rows are emitted.
    pub(crate) fn next_batch(
        &mut self,
        schema: &SchemaRef,
        most_rows: usize,
    ) -> PlanResult<Option<RecordBatch>> {
        if self.rows.num_rows() == 0 {
            return Ok(None);
        }
        let (mut whole, mut rows, mut bytes) = (0, 0, 0);
        for (group, &length) in self.group_lengths.iter().enumerate() {
            let width = self.shared_bytes_per_row(group);
            let room =
                most_rows.saturating_sub(rows).min((OUTPUT_PORTION_BYTES - bytes) / width.max(1));
            if length <= room {
                (whole, rows, bytes) = (whole + 1, rows + length, bytes + length * width);
                continue;
            }
            if rows == 0 {
                rows = room.max(1);
                whole = usize::from(rows == length);
            }
            break;
        }
        let columns = self.call_values.iter_mut().map(|values| match values {
            CallValues::PerRow(values) => {
                let now = values.slice(0, rows);
                *values = values.slice(rows, values.len() - rows);
                Ok(now)
            }
            CallValues::PerGroup(values) if whole == 0 => values[0].to_array_of_size(rows),
            CallValues::PerGroup(values) => {
                repeat_per_row(values.drain(..whole), self.group_lengths.range(..whole))
            }
        });
        let columns = columns.collect::<PlanResult<Vec<_>>>()?;
        if whole == 0 {
            self.group_lengths[0] -= rows;
        }
        self.group_lengths.drain(..whole);
        let now = self.rows.slice(0, rows);
        self.rows = self.rows.slice(rows, self.rows.num_rows() - rows);
        let columns = now.columns().iter().cloned().chain(columns).collect();
        Ok(Some(RecordBatch::try_new(Arc::clone(schema), columns)?))
    }

    /// Returns the bytes of the variable-length values that each row of a group receives.
    fn shared_bytes_per_row(&self, group: usize) -> usize {
        let calls = self.call_values.iter().map(|values| match values {
            CallValues::PerGroup(values) => variable_bytes(&values[group]),
            CallValues::PerRow(_) => 0,
        });
        calls.sum()
    }
}

/// Returns the size of a value in bytes, or 0 if all values of its type have the same size.
pub(crate) fn variable_bytes(value: &ScalarValue) -> usize {
    if value.data_type().is_primitive() { 0 } else { value.size() }
}

/// Expands one value per group to one value per row.
fn repeat_per_row<'a>(
    mut values: impl ExactSizeIterator<Item = ScalarValue>,
    groups: impl Iterator<Item = &'a usize> + Clone,
) -> PlanResult<ArrayRef> {
    if values.len() == 1
        && let (Some(value), Some(&rows)) = (values.next(), groups.clone().next())
    {
        return value.to_array_of_size(rows);
    }
    let values = ScalarValue::iter_to_array(values)?;
    if groups.clone().all(|rows| *rows == 1) {
        return Ok(values);
    }
    let indices = groups.zip(0u32..).flat_map(|(rows, index)| std::iter::repeat_n(index, *rows));
    Ok(take(&values, &UInt32Array::from_iter_values(indices), None)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::compute::concat_batches;
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;

    #[test]
    fn every_row_has_its_group_value_at_any_batch_size() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("each", DataType::Int64, true),
            Field::new("shared", DataType::Utf8, true),
            Field::new("count", DataType::Int64, true),
        ]));
        let lengths = [3_usize, 1, 1, 700, 2, 5, 1, 1, 1, 40];
        let long = |group: usize| match group {
            3 => "x".repeat(OUTPUT_PORTION_BYTES / 100),
            5 => "y".repeat(OUTPUT_PORTION_BYTES / 2 + 1),
            7 => "z".repeat(3 * OUTPUT_PORTION_BYTES),
            _ => format!("group {group}"),
        };
        let rows: usize = lengths.iter().sum();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..755));
        assert_eq!(numbers.len(), rows);
        let groups = || lengths.iter().enumerate();
        let expected: StringArray =
            groups().flat_map(|(group, &rows)| vec![Some(long(group)); rows]).collect();
        for most in [1, 2, 7, 64, 8192] {
            let calls = vec![
                CallValues::PerRow(Arc::clone(&numbers)),
                CallValues::PerGroup(
                    groups().map(|(group, _)| long(group).as_str().into()).collect(),
                ),
                CallValues::PerGroup(
                    groups().map(|(_, rows)| i64::try_from(*rows).unwrap().into()).collect(),
                ),
            ];
            let batch = RecordBatch::try_from_iter([("n", Arc::clone(&numbers))]).unwrap();
            let mut beside = PendingWindowRows::new(batch, lengths, calls);
            let mut made = Vec::new();
            while let Some(batch) = beside.next_batch(&schema, most).unwrap() {
                assert!((1..=most).contains(&batch.num_rows()));
                let text = batch.column(2).as_string::<i32>();
                let bytes: usize = text.iter().flatten().map(str::len).sum();
                assert!(batch.num_rows() == 1 || bytes <= OUTPUT_PORTION_BYTES, "{bytes} bytes");
                made.push(batch);
            }
            let made = concat_batches(&schema, &made).unwrap();
            assert_eq!(made.column(0), &numbers);
            assert_eq!(made.column(1), &numbers);
            assert_eq!(made.column(2).as_string::<i32>(), &expected);
            let counts = made.column(3).as_primitive::<Int64Type>();
            assert_eq!(counts.value(5), 700);
            assert_eq!(counts.value(754), 40);
        }
    }
}
