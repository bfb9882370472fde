//! Rows that are encoded alone: to be kept in a binary column, a message, a key-value store.
//!
//! Such a row is in the layout that leaves nothing out, which follows from the schema alone.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StructArray, UInt32Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::DataType;

use crate::columns::Columns;
use crate::decode::Rows;
use crate::encode;
use crate::error::{Error, Fault, Part, Result};
use crate::layout::{BLOCK_BYTES_MAX, Layout, Record, SLACK};
use crate::resolve::Plan;
use crate::schema::Schema;

/// What messages call rows that are in no file.
const NAME: &str = "encoded rows";

impl Schema {
    /// Each row of a batch as bytes by itself. Whoever has them and this schema can
    /// [decode](Plan::decode_rows) them.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    /// # use tidemill_rowfile::{Plan, Schema};
    /// let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    /// let batch = RecordBatch::try_from_iter([("id", ids)])?;
    /// let schema = Schema::from_arrow(&batch.schema())?;
    /// let rows = schema.encode_rows(&batch)?;
    /// assert_eq!(rows.value(0).len(), 8);
    ///
    /// let plan = Plan::new(&schema, &batch.schema())?;
    /// assert_eq!(RecordBatch::from(plan.decode_rows(&rows)?), batch);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the batch has other fields than the schema; if the rows take 2 GiB or more.
    pub fn encode_rows(&self, batch: &RecordBatch) -> Result<BinaryArray> {
        self.check()?;
        let found = Self::from_arrow(&batch.schema())?;
        crate::writer::same_fields(&self.fields, &found.fields, "")?;
        let record = Record::new(self);
        let columns = Columns::new(&record, &self.fields, batch.columns(), batch.num_rows())?;
        let sizes = encode::sizes_max(&record, &columns)?;
        let total: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
        let limit = |found| Error::TooLarge { what: "a batch", found, limit: BLOCK_BYTES_MAX };
        if total > BLOCK_BYTES_MAX {
            return Err(limit(total));
        }
        let layout = Layout::plain(&record).map_err(limit)?;
        let mut bytes = Vec::new();
        encode::rows(&record, &layout, &[(&columns, 0..batch.num_rows())], &mut bytes)?;
        let offsets = OffsetBuffer::from_lengths(sizes.iter().map(|size| *size as usize));
        Ok(BinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)?)
    }
}

impl Plan {
    /// Decodes rows that were [encoded](Schema::encode_rows) alone, out of a binary column of
    /// any of Arrow's layouts. A null in it is a null of the struct.
    ///
    /// # Errors
    /// If a row is damaged, or a value is not what the reader's schema allows; rows are counted in the
    /// column.
    pub fn decode_rows(&self, rows: &dyn Array) -> Result<StructArray> {
        let values: Vec<Option<&[u8]>> = match rows.data_type() {
            DataType::Binary => rows.as_binary::<i32>().iter().collect(),
            DataType::LargeBinary => rows.as_binary::<i64>().iter().collect(),
            DataType::BinaryView => rows.as_binary_view().iter().collect(),
            other => {
                return Err(Error::Mismatch {
                    column: String::new(),
                    expected: "binary".into(),
                    found: other.to_string(),
                });
            }
        };
        let total: usize = values.iter().flatten().map(|row| row.len()).sum();
        let limit = |found| Error::TooLarge { what: "a batch", found, limit: BLOCK_BYTES_MAX };
        if total as u64 > BLOCK_BYTES_MAX {
            return Err(limit(total as u64));
        }
        let mut bytes = Vec::with_capacity(total + SLACK);
        let mut spans = Vec::with_capacity(values.len());
        let narrow = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        for row in values.iter().flatten() {
            spans.push((narrow(bytes.len()), narrow(row.len())));
            bytes.extend_from_slice(row);
        }
        bytes.resize(total + SLACK, 0);
        let layout = Layout::plain(&self.record).map_err(limit)?;
        let decoder = Rows { record: &self.record, layout: &layout, bytes: &bytes, end: total };
        let columns = decoder.scattered(&self.rows, &spans).map_err(|fault| {
            // Rows are counted with those that are null.
            let fault = match fault {
                Fault::Value { row, column, reason } => {
                    let mut valid = (0..values.len())
                        .filter(|row| values.get(*row).is_some_and(Option::is_some));
                    Fault::Value { row: valid.nth(row).unwrap_or(row), column, reason }
                }
                other => other,
            };
            fault.at(NAME, Part::Row, 0, 0)
        })?;
        let fields = self.schema.fields().clone();
        let found = StructArray::try_new_with_length(fields, columns, None, spans.len())?;
        if spans.len() == values.len() {
            return Ok(found);
        }
        let mut next = 0;
        let at = values.iter().map(|row| {
            row.map(|_| {
                next += 1;
                next - 1
            })
        });
        let indices = UInt32Array::from_iter(at);
        let found: ArrayRef = Arc::new(found);
        Ok(arrow_select::take::take(&found, &indices, None)?.as_struct().clone())
    }
}
