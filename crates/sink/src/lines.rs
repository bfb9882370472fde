//! The line formats: CSV, TSV and JSON lines, as bytes appended to a buffer.
//!
//! A line format's file is its header followed by its rows, so that rows can be encoded in
//! any order of files and appended whenever there is reason to: this is what lets the
//! partitioned writer hold encoded bytes instead of rows.
//!
//! **CSV** is RFC 4180 with a header line and LF: a field is quoted if it holds the
//! delimiter, a quote, CR or LF. A null is an empty field, or the null text if one is given;
//! a string that would read as null (the empty string, or one equal to the null text) is
//! quoted. One case is ambiguous, as everywhere: in a file of one column and no null text, a
//! null is written `""`, because readers skip empty lines and the row would be lost.
//!
//! **JSON lines** has every key in every row, nulls as `null`; floats that JSON cannot hold
//! (`NaN`, infinities) are `null` too. Integers are exact, whatever their width.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use tidemill_base::error::{Error, Result};

use super::value::{TextColumn, json_key};

/// A format whose files are lines, and how to write them.
#[derive(Debug, Clone)]
pub(super) enum LineFormat {
    /// Fields with a delimiter between them; a null is `null`.
    Delimited { delimiter: u8, null: String },
    /// One JSON object per row.
    Json,
}

impl LineFormat {
    /// Appends what stands before the first row.
    pub(super) fn header(&self, schema: &Schema, out: &mut Vec<u8>) {
        let LineFormat::Delimited { delimiter, .. } = self else { return };
        for (i, field) in schema.fields().iter().enumerate() {
            if i > 0 {
                out.push(*delimiter);
            }
            if field.name().is_empty() || must_quote(field.name().as_bytes(), *delimiter) {
                quote(field.name().as_bytes(), out);
            } else {
                out.extend_from_slice(field.name().as_bytes());
            }
        }
        out.push(b'\n');
    }

    /// Prepares a batch's columns.
    ///
    /// # Errors
    /// [`Error::Usage`] for a column whose type has no text.
    pub(super) fn prepare(&self, batch: &RecordBatch) -> Result<PreparedRows> {
        let schema = batch.schema_ref();
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (field, array) in schema.fields().iter().zip(batch.columns()) {
            let column = TextColumn::new(array).map_err(|error| in_column(error, field.name()))?;
            let key = match self {
                LineFormat::Json => json_key(field.name()),
                LineFormat::Delimited { .. } => Vec::new(),
            };
            columns.push((key, column));
        }
        Ok(PreparedRows { columns })
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

/// The columns of one batch, ready to be written row by row.
pub(super) struct PreparedRows {
    columns: Vec<(Vec<u8>, TextColumn)>,
}

impl PreparedRows {
    /// Appends some of the batch's rows.
    pub(super) fn write(&self, format: &LineFormat, rows: Range<usize>, out: &mut Vec<u8>) {
        match format {
            LineFormat::Delimited { delimiter, null } => {
                for row in rows {
                    self.delimited(row, *delimiter, null.as_bytes(), out);
                }
            }
            LineFormat::Json => {
                for row in rows {
                    out.push(b'{');
                    for (i, (key, column)) in self.columns.iter().enumerate() {
                        if i > 0 {
                            out.push(b',');
                        }
                        out.extend_from_slice(key);
                        column.json(row, out);
                    }
                    out.extend_from_slice(b"}\n");
                }
            }
        }
    }

    fn delimited(&self, row: usize, delimiter: u8, null: &[u8], out: &mut Vec<u8>) {
        for (i, (_, column)) in self.columns.iter().enumerate() {
            if i > 0 {
                out.push(delimiter);
            }
            if column.is_null(row) {
                if null.is_empty() && self.columns.len() == 1 {
                    out.extend_from_slice(b"\"\"");
                } else if must_quote(null, delimiter) {
                    quote(null, out);
                } else {
                    out.extend_from_slice(null);
                }
                continue;
            }
            let start = out.len();
            column.text(row, out);
            let text = &out[start..];
            if column.free_text && (must_quote(text, delimiter) || text == null || text.is_empty())
            {
                let text = out.split_off(start);
                quote(&text, out);
            }
        }
        out.push(b'\n');
    }
}

fn must_quote(text: &[u8], delimiter: u8) -> bool {
    text.iter().any(|&byte| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r'))
}

fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}
