//! Delimited text, by Arrow's push decoder.
//!
//! Arrow splits the records, checks their number of fields and reads numbers, Booleans and
//! text; dates, timestamps and rarer types come out of it as string views, and [`values`]
//! gives them their type. (To type every column from views was slower than Arrow alone.)
//! Columns that are not asked for are split and nothing more.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Decoder;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::{Fault, RecordDecoder, values, wrong_type};
use crate::source::format::Dialect;

/// Arrow's reader cannot turn quoting off, so it gets a quote that no UTF-8 text contains.
const NO_QUOTE: u8 = 0xff;
/// Arrow holds the end of each field of a batch: so many at most.
const BATCH_FIELDS_MAX: usize = 2 << 20;

/// Decodes delimited text.
pub(crate) struct CsvDecoder {
    dialect: Dialect,
    /// Number of fields of a record.
    fields: usize,
    /// The columns asked for: their position in a record and what they become.
    columns: Vec<(usize, FieldRef)>,
    schema: SchemaRef,
    batch_rows: usize,
    decoder: Decoder,
}

impl CsvDecoder {
    /// A decoder of `columns`, by position in records of `fields` fields.
    pub(crate) fn new(
        dialect: &Dialect,
        fields: usize,
        columns: Vec<(usize, FieldRef)>,
        batch_rows: usize,
    ) -> Self {
        let batch_rows = batch_rows.min(BATCH_FIELDS_MAX / fields.max(1)).max(16);
        let schema =
            Arc::new(Schema::new(columns.iter().map(|(_, f)| f.clone()).collect::<Vec<_>>()));
        let decoder = Self::decoder(dialect, fields, &columns, batch_rows);
        Self { dialect: dialect.clone(), fields, columns, schema, batch_rows, decoder }
    }

    fn decoder(
        dialect: &Dialect,
        fields: usize,
        columns: &[(usize, FieldRef)],
        batch_rows: usize,
    ) -> Decoder {
        let mut wire: Vec<Field> = (0..fields)
            .map(|index| Field::new(index.to_string(), DataType::Utf8View, true))
            .collect();
        for (index, field) in columns {
            if is_native(field.data_type()) {
                wire[*index].set_data_type(field.data_type().clone());
            }
        }
        let mut builder = ReaderBuilder::new(Arc::new(Schema::new(wire)))
            .with_header(false)
            .with_delimiter(dialect.delimiter)
            .with_quote(dialect.quote.unwrap_or(NO_QUOTE))
            .with_batch_size(batch_rows)
            .with_projection(columns.iter().map(|(index, _)| *index).collect());
        if let (Some(escape), Some(_)) = (dialect.escape, dialect.quote) {
            builder = builder.with_escape(escape);
        }
        if let Some(comment) = dialect.comment {
            builder = builder.with_comment(comment);
        }
        if let Some(nulls) = null_pattern(&dialect.nulls) {
            builder = builder.with_null_regex(nulls);
        }
        let mut decoder = builder.build_decoder();
        // The parser takes a byte-order mark at the first byte it sees for one, and that byte
        // may be the middle of a file. An empty line is no record.
        let _ = decoder.decode(b"\n");
        decoder
    }

    fn reset(&mut self) {
        self.decoder = Self::decoder(&self.dialect, self.fields, &self.columns, self.batch_rows);
    }

    fn typed(&self, batch: &RecordBatch) -> Option<RecordBatch> {
        let columns = batch
            .columns()
            .iter()
            .zip(&self.columns)
            .map(|(column, (_, field))| {
                if column.data_type() == field.data_type() {
                    return Some(column.clone());
                }
                // What is null is null already.
                let nulls = values::Nulls::default();
                values::column(column.as_string_view_opt()?, field.data_type(), &nulls).ok()
            })
            .collect::<Option<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).ok()
    }

    fn decode_from(&mut self, block: &[u8], out: &mut Vec<RecordBatch>) -> Result<(), usize> {
        let (mut at, mut done) = (0, 0);
        // Without quoting, the stand-in for a quote would swallow what follows it; it is
        // invalid UTF-8 anyway.
        if self.dialect.quote.is_none() && memchr::memchr(NO_QUOTE, block).is_some() {
            return Err(0);
        }
        while at < block.len() {
            at += self.decoder.decode(&block[at..]).map_err(|_| done)?;
            if at == block.len() || self.decoder.capacity() == 0 {
                if let Some(batch) = self.decoder.flush().map_err(|_| done)? {
                    out.push(self.typed(&batch).ok_or(done)?);
                }
                done = at;
            }
        }
        Ok(())
    }
}

impl RecordDecoder for CsvDecoder {
    fn decode(&mut self, block: &[u8], out: &mut Vec<RecordBatch>) -> Result<(), usize> {
        let result = self.decode_from(block, out);
        if result.is_err() {
            self.reset();
        }
        result
    }

    fn explain(&mut self, record: &[u8]) -> Option<Fault> {
        let fields = match split(&self.dialect, record) {
            Ok(Some(fields)) => fields,
            Ok(None) => return None, // A comment or a blank line.
            Err(fault) => return Some(fault),
        };
        if fields.len() != self.fields {
            let s = if self.fields == 1 { "" } else { "s" };
            return Some(Fault::new(format!(
                "expected {} field{s}, found {}",
                self.fields,
                fields.len()
            )));
        }
        for (index, field) in fields.iter().enumerate() {
            if std::str::from_utf8(field).is_err() {
                let column = self.columns.iter().find(|(position, _)| *position == index);
                return Some(Fault {
                    column: column.map(|(_, field)| field.name().clone()),
                    reason: format!("field {} is not valid UTF-8", index + 1),
                    hint: None,
                });
            }
        }
        self.columns.iter().find_map(|(index, column)| {
            let text = std::str::from_utf8(&fields[*index]).ok()?;
            let fits = self.dialect.is_null(text) || values::accepts(text, column.data_type());
            (!fits).then(|| wrong_type(column.name(), column.data_type(), text))
        })
    }
}

/// The types that Arrow reads as strictly as [`values`] does.
fn is_native(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Float32
                | DataType::Float64
                | DataType::Utf8
                | DataType::Utf8View
        )
}

/// What Arrow takes for null, besides nothing.
fn null_pattern(nulls: &[String]) -> Option<regex::Regex> {
    if nulls.iter().all(String::is_empty) {
        return None;
    }
    let words: Vec<String> = nulls.iter().map(|null| regex::escape(null)).collect();
    regex::Regex::new(&format!("^(?:|{})$", words.join("|"))).ok()
}

/// The fields of one record, unquoted; none if it is a comment or a blank line.
///
/// # Errors
/// A fault if a quote is never closed.
pub(crate) fn split(dialect: &Dialect, record: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Fault> {
    let mut parser = dialect.parser();
    let mut out = vec![0; record.len() + 1];
    let mut ends = vec![0; record.len() + 2];
    // As in the decoder: the first byte is no byte-order mark.
    parser.read_record(b"\n", &mut out, &mut ends);
    let (mut result, used, written, mut count) = parser.read_record(record, &mut out, &mut ends);
    let closed = result == csv_core::ReadRecordResult::Record;
    if result == csv_core::ReadRecordResult::InputEmpty && used == record.len() {
        let (last, _, _, more) = parser.read_record(&[], &mut out[written..], &mut ends[count..]);
        result = last;
        count += more;
    }
    if result != csv_core::ReadRecordResult::Record {
        return Ok(None);
    }
    // A record ends with its line end unless the line end was taken for part of a field.
    if !closed && matches!(record.last(), Some(b'\n' | b'\r')) {
        return Err(Fault {
            column: None,
            reason: "a quote is never closed".into(),
            hint: Some(
                "if quotes are plain text here, turn quoting off (job file: source.options, quote \
                 = false)"
                    .into(),
            ),
        });
    }
    let mut start = 0;
    Ok(Some(
        ends[..count]
            .iter()
            .map(|&end| {
                let field = out[start..end].to_vec();
                start = end;
                field
            })
            .collect(),
    ))
}
