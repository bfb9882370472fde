//! Line formats: formats whose rows are lines, encoded by appending bytes to a buffer.
//!
//! Such a file is its header followed by its rows. Rows can therefore be encoded in any order of
//! files and appended at any time, so that the partitioned writer can hold encoded bytes instead of
//! rows.

use std::io::Write;
use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

use super::{BatchEncoder, EncodeError};
use crate::error::{Error, Result};
use crate::writing::encoder_output::EncoderOutput;
use crate::writing::value_text::TextColumn;

/// Approximate size of the pieces in which encoded bytes are written.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Maximum number of rows encoded at a time, so that wide rows do not fill memory.
pub(crate) const ENCODED_ROWS_MAX: usize = 256;

/// An encoder of rows as lines.
pub(crate) trait LineFormat: Send {
    /// Appends the text before the first row.
    fn write_header(&self, schema: &Schema, out: &mut Vec<u8>);

    /// Returns the text before each value of the column called `name`.
    fn value_prefix(&self, _name: &str) -> Vec<u8> {
        Vec::new()
    }

    /// Appends a range of a batch's rows.
    fn write_rows(&self, batch: &PreparedBatch, rows: Range<usize>, out: &mut Vec<u8>);

    /// Prepares a batch's columns.
    ///
    /// # Errors
    /// [`Error::Usage`] for a column whose type has no text.
    fn prepare_batch(&self, batch: &RecordBatch) -> Result<PreparedBatch> {
        let schema = batch.schema_ref();
        let columns = schema.fields().iter().zip(batch.columns()).map(|(field, array)| {
            let column = TextColumn::new(array)
                .map_err(|error| name_column_in_error(error, field.name()))?;
            Ok((self.value_prefix(field.name()), column))
        });
        Ok(PreparedBatch { columns: columns.collect::<Result<_>>()? })
    }
}

fn name_column_in_error(error: Error, name: &str) -> Error {
    match error {
        Error::Usage { message, hint } => {
            Error::Usage { message: format!("column `{name}`: {message}"), hint }
        }
        other => other,
    }
}

/// The columns of one batch with their value prefixes, prepared for writing row by row.
pub(crate) struct PreparedBatch {
    pub(super) columns: Vec<(Vec<u8>, TextColumn)>,
}

/// The encoder of one file in a line format.
pub(super) struct LineEncoder<F> {
    format: F,
    buffer: Vec<u8>,
    out: EncoderOutput,
}

impl<F: LineFormat> LineEncoder<F> {
    pub(super) fn new(format: F, out: EncoderOutput, schema: &SchemaRef) -> Self {
        let mut buffer = Vec::with_capacity(WRITE_BUFFER_BYTES + WRITE_BUFFER_BYTES / 8);
        format.write_header(schema, &mut buffer);
        LineEncoder { format, buffer, out }
    }
}

impl<F: LineFormat> BatchEncoder for LineEncoder<F> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EncodeError> {
        let rows = self.format.prepare_batch(batch)?;
        for start in (0..batch.num_rows()).step_by(ENCODED_ROWS_MAX) {
            let end = (start + ENCODED_ROWS_MAX).min(batch.num_rows());
            self.format.write_rows(&rows, start..end, &mut self.buffer);
            if self.buffer.len() >= WRITE_BUFFER_BYTES {
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
