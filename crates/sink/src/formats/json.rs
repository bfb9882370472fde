//! The JSON format: one object per line.
//!
//! Every row has every key, nulls as `null`; floats that JSON cannot hold (`NaN`, infinities) are
//! `null` too. Integers are exact, whatever their width.

use std::ops::Range;

use arrow::datatypes::{Schema, SchemaRef};

use super::line_format::{LineEncoder, LineFormat, PreparedBatch};
use super::{BatchEncoder, EncodeError, FileEncoding, FileFormat, refuse_duplicate_names, text};
use crate::error::Result;
use crate::writing::compression::CodecChoice;
use crate::writing::encoder_output::EncoderOutput;
use crate::writing::value_text::json_key;

/// The definition of the JSON format.
pub(super) struct JsonFormat;

impl FileFormat for JsonFormat {
    fn name(&self) -> &str {
        "json"
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["jsonl", "ndjson"]
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["json", "jsonl", "ndjson"]
    }

    fn codec_choices(&self) -> &'static [CodecChoice] {
        text::TEXT_CODECS
    }

    fn is_text(&self) -> bool {
        true
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        refuse_duplicate_names(self.name(), schema)?;
        text::refuse_columns_without_text(self.name(), schema)
    }

    fn line_format(&self, _: &FileEncoding) -> Option<Box<dyn LineFormat>> {
        Some(Box::new(JsonObjectLines))
    }

    fn new_encoder(
        &'static self,
        out: EncoderOutput,
        schema: &SchemaRef,
        _: &FileEncoding,
    ) -> Result<Box<dyn BatchEncoder>, EncodeError> {
        Ok(Box::new(LineEncoder::new(JsonObjectLines, out, schema)))
    }
}

struct JsonObjectLines;

impl LineFormat for JsonObjectLines {
    fn write_header(&self, _: &Schema, _: &mut Vec<u8>) {}

    fn value_prefix(&self, name: &str) -> Vec<u8> {
        json_key(name)
    }

    fn write_rows(&self, batch: &PreparedBatch, rows: Range<usize>, out: &mut Vec<u8>) {
        for row in rows {
            out.push(b'{');
            for (i, (key, column)) in batch.columns.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(key);
                column.write_json(row, out);
            }
            out.extend_from_slice(b"}\n");
        }
    }
}
