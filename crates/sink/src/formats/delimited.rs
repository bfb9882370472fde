//! The CSV and TSV formats.
//!
//! **CSV** is RFC 4180 with LF and a header line, which can be omitted. A field is quoted if it contains the
//! delimiter, a quote, CR or LF. A null is an empty field, or the null text if one is given;
//! a string that would read as null (the empty string, or one equal to the null text) is
//! quoted. One case is ambiguous, as in all CSV: in a file of one column without a null text, a
//! null is written `""`, because readers skip empty lines and the row would be lost.

use std::ops::Range;

use arrow::datatypes::{Schema, SchemaRef};

use super::line_format::{LineEncoder, LineFormat, PreparedBatch};
use super::{BatchEncoder, EncodeError, FileEncoding, FileFormat, text};
use crate::error::Result;
use crate::writing::compression::CodecChoice;
use crate::writing::encoder_output::EncoderOutput;

/// The definition of a format with delimited fields.
pub(super) struct DelimitedFormat {
    name: &'static str,
    suffixes: &'static [&'static str],
    delimiter: u8,
}

pub(super) const CSV: DelimitedFormat =
    DelimitedFormat { name: "csv", suffixes: &["csv"], delimiter: b',' };
pub(super) const TSV: DelimitedFormat =
    DelimitedFormat { name: "tsv", suffixes: &["tsv"], delimiter: b'\t' };

impl DelimitedFormat {
    fn line_format_of_records(&self, encoding: &FileEncoding) -> DelimitedRecords {
        DelimitedRecords {
            delimiter: self.delimiter,
            null: encoding.null_text.clone().unwrap_or_default(),
            has_header: encoding.has_header,
        }
    }
}

impl FileFormat for DelimitedFormat {
    fn name(&self) -> &str {
        self.name
    }

    fn suffixes(&self) -> &'static [&'static str] {
        self.suffixes
    }

    fn codec_choices(&self) -> &'static [CodecChoice] {
        text::TEXT_CODECS
    }

    fn is_text(&self) -> bool {
        true
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        text::refuse_columns_without_text(self.name, schema)
    }

    fn has_optional_header(&self) -> bool {
        true
    }

    fn line_format(&self, encoding: &FileEncoding) -> Option<Box<dyn LineFormat>> {
        Some(Box::new(self.line_format_of_records(encoding)))
    }

    fn new_encoder(
        &'static self,
        out: EncoderOutput,
        schema: &SchemaRef,
        encoding: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError> {
        Ok(Box::new(LineEncoder::new(self.line_format_of_records(encoding), out, schema)))
    }
}

/// The line format of delimited records, with `null` as the text of a null.
struct DelimitedRecords {
    delimiter: u8,
    null: String,
    has_header: bool,
}

impl LineFormat for DelimitedRecords {
    fn write_header(&self, schema: &Schema, out: &mut Vec<u8>) {
        if !self.has_header {
            return;
        }
        for (i, field) in schema.fields().iter().enumerate() {
            if i > 0 {
                out.push(self.delimiter);
            }
            if field.name().is_empty() || needs_quotes(field.name().as_bytes(), self.delimiter) {
                write_quoted(field.name().as_bytes(), out);
            } else {
                out.extend_from_slice(field.name().as_bytes());
            }
        }
        out.push(b'\n');
    }

    fn write_rows(&self, batch: &PreparedBatch, rows: Range<usize>, out: &mut Vec<u8>) {
        for row in rows {
            self.write_record(batch, row, out);
        }
    }
}

impl DelimitedRecords {
    fn write_record(&self, batch: &PreparedBatch, row: usize, out: &mut Vec<u8>) {
        let (delimiter, null) = (self.delimiter, self.null.as_bytes());
        for (i, (_, column)) in batch.columns.iter().enumerate() {
            if i > 0 {
                out.push(delimiter);
            }
            if column.is_null(row) {
                if null.is_empty() && batch.columns.len() == 1 {
                    out.extend_from_slice(b"\"\"");
                } else if needs_quotes(null, delimiter) {
                    write_quoted(null, out);
                } else {
                    out.extend_from_slice(null);
                }
                continue;
            }
            let start = out.len();
            column.write_text(row, out);
            let text = &out[start..];
            if column.may_need_quotes
                && (needs_quotes(text, delimiter) || text == null || text.is_empty())
            {
                let text = out.split_off(start);
                write_quoted(&text, out);
            }
        }
        out.push(b'\n');
    }
}

fn needs_quotes(text: &[u8], delimiter: u8) -> bool {
    text.iter().any(|&byte| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r'))
}

fn write_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}
