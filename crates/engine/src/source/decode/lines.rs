//! Plain lines: one column, `line`, of type Utf8View.
//!
//! The block is copied once, and every line is a view into the copy. A `\r` before the line
//! end is not part of the line; an empty line is an empty string.

use std::sync::Arc;

use arrow::array::{Array, ArrayBuilder, ArrayRef, StringViewBuilder};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::{Fault, RecordDecoder};

/// Decodes lines.
pub(crate) struct LinesDecoder {
    schema: SchemaRef,
    /// How often the one column is asked for: normally once, or not at all.
    copies: usize,
    batch_rows: usize,
}

impl LinesDecoder {
    /// The column that lines become.
    pub(crate) fn field() -> Field {
        Field::new("line", DataType::Utf8View, true)
    }

    pub(crate) fn new(copies: usize, batch_rows: usize) -> Self {
        let schema = Arc::new(Schema::new(vec![Self::field(); copies]));
        Self { schema, copies, batch_rows }
    }

    fn batch(&self, lines: Option<ArrayRef>, rows: usize) -> Option<RecordBatch> {
        let columns = lines.into_iter().cycle().take(self.copies).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).ok()
    }
}

impl RecordDecoder for LinesDecoder {
    fn decode(&mut self, block: &[u8], out: &mut Vec<RecordBatch>) -> Result<(), usize> {
        if std::str::from_utf8(block).is_err() {
            return Err(0);
        }
        if self.copies == 0 {
            let mut rows = memchr::memchr_iter(b'\n', block).count();
            while rows > 0 {
                let count = rows.min(self.batch_rows);
                out.push(self.batch(None, count).ok_or(0usize)?);
                rows -= count;
            }
            return Ok(());
        }
        let (mut start, mut done) = (0, 0);
        let copy = Buffer::from(block);
        let mut builder = StringViewBuilder::with_capacity(self.batch_rows);
        let mut buffer = builder.append_block(copy.clone());
        let mut flush = |builder: &mut StringViewBuilder| {
            let lines: ArrayRef = Arc::new(builder.finish());
            let rows = lines.len();
            out.push(self.batch(Some(lines), rows)?);
            Some(())
        };
        for end in memchr::memchr_iter(b'\n', block) {
            let line = &block[start..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let (Ok(offset), Ok(length)) = (u32::try_from(start), u32::try_from(line.len())) else {
                return Err(done);
            };
            // In bounds, and valid UTF-8: the whole block is, and it is cut at ASCII bytes.
            unsafe { builder.append_view_unchecked(buffer, offset, length) };
            start = end + 1;
            if builder.len() == self.batch_rows {
                flush(&mut builder).ok_or(done)?;
                buffer = builder.append_block(copy.clone());
                done = start;
            }
        }
        if !builder.is_empty() {
            flush(&mut builder).ok_or(done)?;
        }
        Ok(())
    }

    fn explain(&mut self, record: &[u8]) -> Option<Fault> {
        match std::str::from_utf8(record) {
            Ok(_) => None,
            Err(error) => Some(Fault::new(format!(
                "the line is not valid UTF-8 from its byte {} on",
                error.valid_up_to() + 1
            ))),
        }
    }
}
