//! CSV and TSV.
//!
//! **CSV** is RFC 4180 with LF and a header line, unless that is left out: a field is quoted if it holds the
//! delimiter, a quote, CR or LF. A null is an empty field, or the null text if one is given;
//! a string that would read as null (the empty string, or one equal to the null text) is
//! quoted. One case is ambiguous, as everywhere: in a file of one column and no null text, a
//! null is written `""`, because readers skip empty lines and the row would be lost.

use std::ops::Range;

use arrow::datatypes::{Schema, SchemaRef};

use super::lines::{LineFormat, Lines, PreparedRows};
use super::{EncodeError, Encoder, Encoding, FileFormat, text};
use crate::compression::Choice;
use crate::error::Result;
use crate::out::Out;

/// Fields with a delimiter between them.
pub(super) struct Delimited {
    name: &'static str,
    suffixes: &'static [&'static str],
    delimiter: u8,
}

pub(super) const CSV: Delimited = Delimited { name: "csv", suffixes: &["csv"], delimiter: b',' };
pub(super) const TSV: Delimited = Delimited { name: "tsv", suffixes: &["tsv"], delimiter: b'\t' };

impl Delimited {
    fn records(&self, encoding: &Encoding) -> Records {
        Records {
            delimiter: self.delimiter,
            null: encoding.null.clone().unwrap_or_default(),
            has_header: encoding.header,
        }
    }
}

impl FileFormat for Delimited {
    fn name(&self) -> &str {
        self.name
    }

    fn suffixes(&self) -> &'static [&'static str] {
        self.suffixes
    }

    fn codecs(&self) -> &'static [Choice] {
        text::CODECS
    }

    fn is_text(&self) -> bool {
        true
    }

    fn check(&self, schema: &SchemaRef) -> Result<()> {
        text::refuse_textless(self.name, schema)
    }

    fn has_header(&self) -> bool {
        true
    }

    fn lines(&self, encoding: &Encoding) -> Option<Box<dyn LineFormat>> {
        Some(Box::new(self.records(encoding)))
    }

    fn encoder(
        &'static self,
        out: Out,
        schema: &SchemaRef,
        encoding: &Encoding,
    ) -> Result<Box<dyn Encoder>, EncodeError> {
        Ok(Box::new(Lines::new(self.records(encoding), out, schema)))
    }
}

/// Records, in which a null is `null`.
struct Records {
    delimiter: u8,
    null: String,
    has_header: bool,
}

impl LineFormat for Records {
    fn header(&self, schema: &Schema, out: &mut Vec<u8>) {
        if !self.has_header {
            return;
        }
        for (i, field) in schema.fields().iter().enumerate() {
            if i > 0 {
                out.push(self.delimiter);
            }
            if field.name().is_empty() || must_quote(field.name().as_bytes(), self.delimiter) {
                quote(field.name().as_bytes(), out);
            } else {
                out.extend_from_slice(field.name().as_bytes());
            }
        }
        out.push(b'\n');
    }

    fn write(&self, batch: &PreparedRows, rows: Range<usize>, out: &mut Vec<u8>) {
        for row in rows {
            self.record(batch, row, out);
        }
    }
}

impl Records {
    fn record(&self, batch: &PreparedRows, row: usize, out: &mut Vec<u8>) {
        let (delimiter, null) = (self.delimiter, self.null.as_bytes());
        for (i, (_, column)) in batch.columns.iter().enumerate() {
            if i > 0 {
                out.push(delimiter);
            }
            if column.is_null(row) {
                if null.is_empty() && batch.columns.len() == 1 {
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
