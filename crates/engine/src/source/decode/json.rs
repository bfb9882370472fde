//! JSON lines, by Arrow's push decoder.
//!
//! One line is one record: a line that holds two values, and a value that spans two lines,
//! are malformed. Arrow's decoder takes any white space between values, so it is given a line
//! at a time and has to have exactly one more record after it. (Comparing the number of rows
//! with that of lines is not enough: `{}{}` makes up for a record that spans two lines.)
//!
//! Columns of numbers other than floats, of dates and of timestamps come out of Arrow as the
//! text they are written in, and [`values`] gives them their type: Arrow itself would read
//! `1.5` as the integer 1 and `1700000000` as a timestamp in whatever unit the column has. A
//! number in quotes is taken for a number, and a number in a column of text for its text.
//!
//! Arrow's decoder lets missing and doubled commas pass; nothing is lost by it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::json::ReaderBuilder;
use arrow::json::reader::Decoder;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use serde_json::Value;

use super::values::{self, Nulls};
use super::{Fault, RecordDecoder, shown, wrong_type};
use crate::error::{Error, Result};

/// Whether JSON can be read as this type.
pub(crate) fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|field| is_supported(field.data_type())),
        DataType::List(item) => is_supported(item.data_type()),
        DataType::Map(entries, false) => match entries.data_type() {
            DataType::Struct(pair) => {
                pair.len() == 2
                    && matches!(pair[0].data_type(), DataType::Utf8 | DataType::Utf8View)
                    && is_supported(pair[1].data_type())
            }
            _ => false,
        },
        other => values::is_supported(other),
    }
}

/// What Arrow is asked for where a column is to become `data_type`.
fn wire_type(data_type: &DataType, nulls: &Nulls) -> DataType {
    let inner = |field: &FieldRef| -> FieldRef {
        let data_type = wire_type(field.data_type(), nulls);
        Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
    };
    match data_type {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        DataType::List(item) => DataType::List(inner(item)),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                let pair: Fields = vec![pair[0].clone(), inner(&pair[1])].into();
                let entries = Field::new(entries.name(), DataType::Struct(pair), false);
                DataType::Map(Arc::new(entries), *sorted)
            }
            _ => data_type.clone(),
        },
        DataType::Boolean | DataType::Float32 | DataType::Float64 | DataType::Utf8
            if nulls.is_none() =>
        {
            data_type.clone()
        }
        _ => DataType::Utf8View,
    }
}

/// What Arrow gave, as `data_type`; none if a value is not of that type.
fn typed(array: &ArrayRef, data_type: &DataType, nulls: &Nulls) -> Option<ArrayRef> {
    if array.data_type() == data_type && nulls.is_none() {
        return Some(array.clone());
    }
    Some(match data_type {
        DataType::Struct(fields) => {
            let array = array.as_struct();
            let columns = array
                .columns()
                .iter()
                .zip(fields)
                .map(|(column, field)| typed(column, field.data_type(), nulls))
                .collect::<Option<Vec<_>>>()?;
            let validity = array.nulls().cloned();
            Arc::new(
                StructArray::try_new_with_length(fields.clone(), columns, validity, array.len())
                    .ok()?,
            )
        }
        DataType::List(item) => {
            let (_, offsets, items, validity) = array.as_list::<i32>().clone().into_parts();
            let items = typed(&items, item.data_type(), nulls)?;
            Arc::new(ListArray::try_new(item.clone(), offsets, items, validity).ok()?)
        }
        DataType::Map(entries, sorted) => {
            let (_, offsets, pairs, validity, _) = array.as_map().clone().into_parts();
            let DataType::Struct(fields) = entries.data_type() else { return None };
            let keys = match fields[0].data_type() {
                same if same == pairs.column(0).data_type() => pairs.column(0).clone(),
                other => arrow::compute::cast(pairs.column(0), other).ok()?,
            };
            let items = typed(pairs.column(1), fields[1].data_type(), nulls)?;
            let pairs = StructArray::try_new(fields.clone(), vec![keys, items], None).ok()?;
            Arc::new(MapArray::try_new(entries.clone(), offsets, pairs, validity, *sorted).ok()?)
        }
        other => values::column(array.as_string_view_opt()?, other, nulls).ok()?,
    })
}

/// Decodes JSON lines.
pub(crate) struct JsonDecoder {
    nulls: Nulls,
    wire: SchemaRef,
    schema: SchemaRef,
    batch_rows: usize,
    decoder: Decoder,
    /// For single records.
    probe: Decoder,
}

impl JsonDecoder {
    /// A decoder of `columns`; their positions mean nothing in JSON.
    pub(crate) fn new(
        nulls: &[String],
        columns: Vec<(usize, FieldRef)>,
        batch_rows: usize,
    ) -> Result<Self> {
        let nulls = Nulls::new(nulls, false);
        let fields: Vec<FieldRef> = columns.into_iter().map(|(_, field)| field).collect();
        // Arrow finds a column by its name, so one that is asked for twice is read once.
        let mut wire: Vec<Field> = Vec::new();
        for field in &fields {
            if !wire.iter().any(|other| other.name() == field.name()) {
                let data_type = wire_type(field.data_type(), &nulls);
                wire.push(Field::new(field.name(), data_type, true));
            }
        }
        let wire = Arc::new(Schema::new(wire));
        let decoder = Self::decoder(&wire, batch_rows)?;
        let probe = Self::decoder(&wire, 2)?;
        Ok(Self { nulls, wire, schema: Arc::new(Schema::new(fields)), batch_rows, decoder, probe })
    }

    fn decoder(wire: &SchemaRef, batch_rows: usize) -> Result<Decoder> {
        ReaderBuilder::new(wire.clone())
            .with_batch_size(batch_rows)
            .with_coerce_primitive(true)
            .build_decoder()
            .map_err(|error| Error::Internal(format!("Arrow's JSON decoder: {error}")))
    }

    fn typed(&self, batch: &RecordBatch) -> Option<RecordBatch> {
        let columns = self
            .schema
            .fields()
            .iter()
            .map(|field| typed(batch.column_by_name(field.name())?, field.data_type(), &self.nulls))
            .collect::<Option<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).ok()
    }

    fn decode_from(&mut self, block: &[u8], out: &mut Vec<RecordBatch>) -> Result<(), usize> {
        // Where the first record that is not in `out` starts.
        let (mut at, mut done, mut held) = (0, 0, 0);
        while at < block.len() {
            let end = memchr::memchr(b'\n', &block[at..]).map_or(block.len(), |end| at + end + 1);
            let line = &block[at..end];
            at = end;
            if line[0].is_ascii_whitespace() && line.trim_ascii().is_empty() {
                continue;
            }
            let used = self.decoder.decode(line).map_err(|_| done)?;
            held += 1;
            let is_whole = self.decoder.len() == held && !self.decoder.has_partial_record();
            // A full decoder stops behind its last value.
            if !is_whole || !line[used..].trim_ascii().is_empty() {
                return Err(done);
            }
            if held == self.batch_rows {
                self.flush(out).ok_or(done)?;
                (done, held) = (at, 0);
            }
        }
        if held > 0 {
            self.flush(out).ok_or(done)?;
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<RecordBatch>) -> Option<()> {
        let batch = self.decoder.flush().ok()??;
        out.push(self.typed(&batch)?);
        Some(())
    }
}

impl RecordDecoder for JsonDecoder {
    fn decode(&mut self, block: &[u8], out: &mut Vec<RecordBatch>) -> Result<(), usize> {
        let result = self.decode_from(block, out);
        if result.is_err()
            && let Ok(decoder) = Self::decoder(&self.wire, self.batch_rows)
        {
            self.decoder = decoder;
        }
        result
    }

    fn explain(&mut self, record: &[u8]) -> Option<Fault> {
        if record.trim_ascii().is_empty() {
            return None;
        }
        let taken = self.probe.decode(record).is_ok_and(|taken| taken == record.len());
        let batch = if taken { self.probe.flush().ok().flatten() } else { None };
        if batch.is_some_and(|b| b.num_rows() == 1 && self.typed(&b).is_some()) {
            return None;
        }
        if let Ok(probe) = Self::decoder(&self.wire, 2) {
            self.probe = probe;
        }
        Some(why(record, self.schema.fields(), &self.nulls))
    }
}

/// Why a record that cannot be decoded cannot.
fn why(record: &[u8], fields: &Fields, nulls: &Nulls) -> Fault {
    if let Err(error) = std::str::from_utf8(record) {
        let at = error.valid_up_to() + 1;
        return Fault::new(format!("the record is not valid UTF-8 from its byte {at} on"));
    }
    let value: Value = match serde_json::from_slice(record) {
        Ok(value) => value,
        Err(error) => return not_json(record, &error),
    };
    let Value::Object(object) = &value else {
        let mut fault = Fault::new(format!("expected an object, found {}", kind(&value)));
        if value.is_array() {
            fault.hint = Some("each line holds one object: jq -c '.[]' makes it so".into());
        }
        return fault;
    };
    fields
        .iter()
        .find_map(|field| {
            let value = object.get(field.name())?;
            mismatch(field.name(), value, field.data_type(), nulls)
        })
        .unwrap_or_else(|| Fault::new("it cannot be decoded"))
}

fn not_json(record: &[u8], error: &serde_json::Error) -> Fault {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or("not valid JSON");
    let mut stream = serde_json::Deserializer::from_slice(record).into_iter::<Value>();
    if matches!(stream.next(), Some(Ok(_))) {
        return Fault {
            column: None,
            reason: format!(
                "the line goes on after its value, from byte {} on",
                stream.byte_offset() + 1
            ),
            hint: Some("each line holds one object: jq -c . makes it so".into()),
        };
    }
    if error.is_eof() {
        return Fault {
            column: None,
            reason: format!("the line ends within its value ({text})"),
            hint: Some(
                "an object may not span lines; jq -c . writes one per line. In the last line of a \
                 file: it is truncated"
                    .into(),
            ),
        };
    }
    Fault::new(format!("not valid JSON: {text} at byte {}", error.column()))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a Boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The fault of a value that is not of `data_type`, if it is not.
fn mismatch(path: &str, value: &Value, data_type: &DataType, nulls: &Nulls) -> Option<Fault> {
    match (data_type, value) {
        (_, Value::Null) => None,
        (DataType::Struct(fields), Value::Object(object)) => fields.iter().find_map(|field| {
            let path = format!("{path}.{}", field.name());
            mismatch(&path, object.get(field.name())?, field.data_type(), nulls)
        }),
        (DataType::List(item), Value::Array(items)) => {
            items.iter().enumerate().find_map(|(i, value)| {
                mismatch(&format!("{path}[{i}]"), value, item.data_type(), nulls)
            })
        }
        (DataType::Map(entries, _), Value::Object(object)) => {
            let DataType::Struct(pair) = entries.data_type() else { return None };
            object.iter().find_map(|(key, value)| {
                mismatch(&format!("{path}.{key}"), value, pair[1].data_type(), nulls)
            })
        }
        (DataType::Struct(_) | DataType::Map(_, _) | DataType::List(_), other)
        | (_, other @ (Value::Array(_) | Value::Object(_))) => Some(Fault {
            column: Some(path.into()),
            reason: format!(
                "expected {}, found {} `{}`",
                values::describe(data_type),
                kind(other),
                shown(&other.to_string())
            ),
            hint: Some(
                "a column has one shape in all records; leave it out of the query, or skip such \
                 records with --max-bad N or N%"
                    .into(),
            ),
        }),
        (_, scalar) => {
            let text = match scalar {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let fits = nulls.contains(&text) || values::accepts(&text, data_type);
            (!fits).then(|| wrong_type(path, data_type, &text))
        }
    }
}
