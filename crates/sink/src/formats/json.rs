//! JSON lines.
//!
//! Every row has every key, nulls as `null`; floats that JSON cannot hold (`NaN`, infinities) are
//! `null` too. Integers are exact, whatever their width.

use std::ops::Range;

use arrow::datatypes::{Schema, SchemaRef};

use super::lines::{LineFormat, Lines, PreparedRows};
use super::{EncodeError, Encoder, Encoding, FileFormat, refuse_equal_names, text};
use crate::compression::Choice;
use crate::error::Result;
use crate::out::Out;
use crate::value::json_key;

/// One JSON object per row.
pub(super) struct Json;

impl FileFormat for Json {
    fn name(&self) -> &str {
        "json"
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["jsonl", "ndjson"]
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["json", "jsonl", "ndjson"]
    }

    fn codecs(&self) -> &'static [Choice] {
        text::CODECS
    }

    fn is_text(&self) -> bool {
        true
    }

    fn check(&self, schema: &SchemaRef) -> Result<()> {
        refuse_equal_names(self.name(), schema)?;
        text::refuse_textless(self.name(), schema)
    }

    fn lines(&self, _: &Encoding) -> Option<Box<dyn LineFormat>> {
        Some(Box::new(Objects))
    }

    fn encoder(
        &'static self,
        out: Out,
        schema: &SchemaRef,
        _: &Encoding,
    ) -> Result<Box<dyn Encoder>, EncodeError> {
        Ok(Box::new(Lines::new(Objects, out, schema)))
    }
}

struct Objects;

impl LineFormat for Objects {
    fn header(&self, _: &Schema, _: &mut Vec<u8>) {}

    fn label(&self, name: &str) -> Vec<u8> {
        json_key(name)
    }

    fn write(&self, batch: &PreparedRows, rows: Range<usize>, out: &mut Vec<u8>) {
        for row in rows {
            out.push(b'{');
            for (i, (key, column)) in batch.columns.iter().enumerate() {
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
