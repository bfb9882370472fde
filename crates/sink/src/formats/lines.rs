//! Formats whose rows are lines: bytes appended to a buffer.
//!
//! Such a file is its header followed by its rows, so that rows can be encoded in any order of
//! files and appended whenever there is reason to: this is what lets the partitioned writer hold
//! encoded bytes instead of rows.

use std::io::Write;
use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

use super::{EncodeError, Encoder};
use crate::error::{Error, Result};
use crate::out::Out;
use crate::value::TextColumn;

/// Encoded bytes are handed on in pieces of about this size.
const WRITE_BYTES: usize = 1 << 20;

/// So many rows are encoded at a time, so that wide rows do not fill memory.
pub(crate) const ROWS_AT_ONCE: usize = 256;

/// How rows are written as lines.
pub(crate) trait LineFormat: Send {
    /// Appends what stands before the first row.
    fn header(&self, schema: &Schema, out: &mut Vec<u8>);

    /// What stands before each value of the column called `name`.
    fn label(&self, _name: &str) -> Vec<u8> {
        Vec::new()
    }

    /// Appends some of a batch's rows.
    fn write(&self, batch: &PreparedRows, rows: Range<usize>, out: &mut Vec<u8>);

    /// Prepares a batch's columns.
    ///
    /// # Errors
    /// [`Error::Usage`] for a column whose type has no text.
    fn prepare(&self, batch: &RecordBatch) -> Result<PreparedRows> {
        let schema = batch.schema_ref();
        let columns = schema.fields().iter().zip(batch.columns()).map(|(field, array)| {
            let column = TextColumn::new(array).map_err(|error| in_column(error, field.name()))?;
            Ok((self.label(field.name()), column))
        });
        Ok(PreparedRows { columns: columns.collect::<Result<_>>()? })
    }
}

fn in_column(error: Error, name: &str) -> Error {
    match error {
        Error::Usage { message, hint } => {
            Error::Usage { message: format!("column `{name}`: {message}"), hint }
        }
        other => other,
    }
}

/// The columns of one batch, ready to be written row by row, each with its label.
pub(crate) struct PreparedRows {
    pub(super) columns: Vec<(Vec<u8>, TextColumn)>,
}

/// Writes one file of lines.
pub(super) struct Lines<F> {
    format: F,
    buffer: Vec<u8>,
    out: Out,
}

impl<F: LineFormat> Lines<F> {
    pub(super) fn new(format: F, out: Out, schema: &SchemaRef) -> Self {
        let mut buffer = Vec::with_capacity(WRITE_BYTES + WRITE_BYTES / 8);
        format.header(schema, &mut buffer);
        Lines { format, buffer, out }
    }
}

impl<F: LineFormat> Encoder for Lines<F> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        let rows = self.format.prepare(batch)?;
        for start in (0..batch.num_rows()).step_by(ROWS_AT_ONCE) {
            let end = (start + ROWS_AT_ONCE).min(batch.num_rows());
            self.format.write(&rows, start..end, &mut self.buffer);
            if self.buffer.len() >= WRITE_BYTES {
                self.out.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), EncodeError> {
        Ok(self.out.write_all(&self.buffer)?)
    }
}
