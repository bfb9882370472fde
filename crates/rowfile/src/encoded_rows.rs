//! Encoding of single rows, to be stored in a binary column, a message or a key-value store.
//!
//! ```text
//!   value = ┌ head: the width of lengths ┬ the row, in the plain layout with that width ┐
//! ```
//!
//! The plain layout omits nothing and so follows from the schema: it is computed once for a
//! batch, and a column is decoded like a block. Most lengths are below 256, and with 4 bytes
//! for each an event of short strings would be a quarter longer. Therefore each row states which of
//! three widths it uses: the smallest that fits this row, not its batch. A row so has the same
//! bytes in any batch.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StructArray, UInt32Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Fields};

use crate::columns::LeafColumns;
use crate::error::{Error, Result, RowDecodeError};
use crate::row_decoder::BlockRowDecoder;
use crate::row_encoder;
use crate::row_layout::{BLOCK_BYTES_MAX, BlockLayout, RowStructure, SLACK_BYTES};
use crate::schema::{Schema, metadata_keys};
use crate::schema_resolution::RowDecodePlan;

/// The possible widths of lengths; the head of a row is its width.
const LENGTH_WIDTHS: [u8; 3] = [1, 2, 4];

fn rows_too_large_error(found: u64) -> Error {
    Error::TooLarge { what: "a batch of encoded rows", found, limit: BLOCK_BYTES_MAX }
}

impl Schema {
    /// Encodes each row of a batch by itself. With these bytes and this schema they can be
    /// [decoded](RowDecodePlan::decode_rows); [`rows_field`](Self::rows_field) stores the schema with a
    /// column of such rows.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    /// # use tidemill_rowfile::{RowDecodePlan, Schema, StringLayout};
    /// let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    /// let inputs = RecordBatch::try_from_iter([("id", ids)])?;
    /// let schema = Schema::from_arrow(&inputs.schema())?;
    ///
    /// // A column of whole rows, as any file that keeps fields' metadata may contain …
    /// let field = schema.rows_field("input", false);
    /// let column = schema.encode_rows(&inputs)?;
    /// assert_eq!(column.value(0).len(), 9);
    ///
    /// // … and its decoding by a reader without other knowledge.
    /// let schema = Schema::from_rows_field(&field)?.expect("a column of rows");
    /// let plan = RowDecodePlan::new(&schema, &Arc::new(schema.to_arrow(StringLayout::default())))?;
    /// assert_eq!(RecordBatch::from(plan.decode_rows(&column, "input")?), inputs);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the batch's fields differ from the schema's; if the rows take 2 GiB or more.
    pub fn encode_rows(&self, batch: &RecordBatch) -> Result<BinaryArray> {
        self.encode_arrays(batch.schema().fields(), batch.columns(), batch.num_rows())
    }

    /// Encodes each struct of an array as a row, and a null as null. Otherwise as
    /// [`encode_rows`](Self::encode_rows).
    ///
    /// # Errors
    /// As [`encode_rows`](Self::encode_rows).
    pub fn encode_structs(&self, structs: &StructArray) -> Result<BinaryArray> {
        let Some(nulls) = structs.nulls().filter(|nulls| nulls.null_count() > 0) else {
            return self.encode_arrays(structs.fields(), structs.columns(), structs.len());
        };
        // Values under a null may be anything and are not encoded.
        let valid: UInt32Array =
            (0..).zip(nulls).filter(|(_, is_valid)| *is_valid).map(|(row, _)| Some(row)).collect();
        let columns = arrow_select::take::take_arrays(structs.columns(), &valid, None)?;
        let found = self.encode_arrays(structs.fields(), &columns, valid.len())?;
        let mut next = 0;
        let at = nulls.iter().map(|is_valid| {
            is_valid.then(|| {
                next += 1;
                next - 1
            })
        });
        let at: UInt32Array = at.collect();
        Ok(arrow_select::take::take(&found, &at, None)?.as_binary().clone())
    }

    /// Returns the Arrow field of a column of such rows: binary, with this schema in its metadata under
    /// [`metadata_keys::ROW_SCHEMA`].
    #[must_use]
    pub fn rows_field(&self, name: &str, nullable: bool) -> arrow_schema::Field {
        let metadata = [(metadata_keys::ROW_SCHEMA.to_owned(), self.to_json())].into();
        arrow_schema::Field::new(name, DataType::Binary, nullable).with_metadata(metadata)
    }

    /// Returns the schema of the rows in a binary column, if its field [declares](Self::rows_field)
    /// rows.
    ///
    /// # Errors
    /// If the metadata contains an invalid schema.
    pub fn from_rows_field(field: &arrow_schema::Field) -> Result<Option<Self>> {
        let is_binary = matches!(
            field.data_type(),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView
        );
        let Some(json) = field.metadata().get(metadata_keys::ROW_SCHEMA).filter(|_| is_binary)
        else {
            return Ok(None);
        };
        Self::parse(json).map(Some).map_err(|error| Error::InvalidSchema {
            column: field.name().clone(),
            reason: format!(
                "`{}` in its metadata is no schema: {error}",
                metadata_keys::ROW_SCHEMA
            ),
        })
    }

    fn encode_arrays(
        &self,
        fields: &Fields,
        arrays: &[ArrayRef],
        rows: usize,
    ) -> Result<BinaryArray> {
        self.validate()?;
        let found = Self::from_arrow(&arrow_schema::Schema::new(fields.clone()))?;
        crate::writer::check_same_fields(&self.fields, &found.fields, "")?;
        let record = RowStructure::new(self);
        let columns = LeafColumns::new(&record, &self.fields, arrays, rows)?;
        let widths = row_encoder::length_widths(&record, &columns)?;
        let first = widths.first().copied().unwrap_or(1);
        if widths.iter().all(|width| *width == first) {
            return encode_rows_with_width(&record, &columns, first);
        }
        // Encode each width separately, then restore the order of the rows.
        let (mut parts, mut places) = (Vec::new(), vec![(0, 0); rows]);
        let mut total = 0;
        for width in LENGTH_WIDTHS {
            let wanted = || widths.iter().enumerate().filter(move |(_, found)| **found == width);
            for (at, (row, _)) in wanted().enumerate() {
                if let Some(place) = places.get_mut(row) {
                    *place = (parts.len(), at);
                }
            }
            let rows = wanted().map(|(row, _)| u32::try_from(row).ok());
            let rows: UInt32Array = rows.collect();
            let arrays = arrow_select::take::take_arrays(arrays, &rows, None)?;
            let columns = LeafColumns::new(&record, &self.fields, &arrays, rows.len())?;
            let part = encode_rows_with_width(&record, &columns, width)?;
            total += part.value_data().len() as u64;
            parts.push(part);
        }
        if total > BLOCK_BYTES_MAX {
            return Err(rows_too_large_error(total));
        }
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
        Ok(arrow_select::interleave::interleave(&parts, &places)?.as_binary().clone())
    }
}

/// Encodes rows whose lengths all fit a width.
fn encode_rows_with_width(
    record: &RowStructure,
    columns: &LeafColumns,
    width: u8,
) -> Result<BinaryArray> {
    let layout = BlockLayout::new_plain(record, width.into()).map_err(rows_too_large_error)?;
    let (bytes, sizes) = row_encoder::encode_single_rows(record, &layout, columns, width)?;
    let offsets = OffsetBuffer::from_lengths(sizes.iter().map(|size| *size as usize + 1));
    Ok(BinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)?)
}

/// The rows of a column with the same width of lengths.
#[derive(Default)]
struct RowsOfWidth {
    /// Their spans in the bytes, without the heads.
    spans: Vec<(u32, u32)>,
    /// Their indexes in the column.
    rows: Vec<usize>,
}

impl RowDecodePlan {
    /// Decodes rows that were [encoded](Schema::encode_rows) by themselves, from a binary column of
    /// any Arrow layout. A null becomes a null of the struct. Messages call the column
    /// `name`.
    ///
    /// # Errors
    /// [`Error::InvalidEncodedRow`] if bytes are not a row of the writer's schema, [`Error::InvalidValue`] if
    /// the reader's schema does not allow a value; both name the row, counted in the column. If the column is
    /// not binary or has 2 GiB or more.
    pub fn decode_rows(&self, rows: &dyn Array, name: &str) -> Result<StructArray> {
        let (bytes, spans) = concatenate_rows(rows, name)?;
        let mut classes: [RowsOfWidth; LENGTH_WIDTHS.len()] = Default::default();
        for (row, span) in spans.iter().enumerate() {
            let Some((start, length)) = *span else { continue };
            let wrong = |reason: String| Error::InvalidEncodedRow {
                name: name.into(),
                row: row as u64,
                reason,
            };
            let Some(rest) = length.checked_sub(1) else {
                return Err(wrong("it has no bytes".into()));
            };
            let head = bytes.get(start as usize).copied().unwrap_or_default();
            let class = LENGTH_WIDTHS.iter().position(|width| *width == head);
            let Some(class) = class.and_then(|class| classes.get_mut(class)) else {
                return Err(wrong(format!("it begins with {head}, not with 1, 2 or 4")));
            };
            class.spans.push((start + 1, rest));
            class.rows.push(row);
        }
        let mut parts = Vec::new();
        // Position of each row in the concatenated parts.
        let mut places: Vec<Option<u32>> = vec![None; spans.len()];
        let mut next = 0;
        for (class, width) in classes.iter().zip(LENGTH_WIDTHS) {
            if class.rows.is_empty() {
                continue;
            }
            parts.push(self.decode_rows_of_width(class, width, &bytes, name)?);
            for row in &class.rows {
                if let Some(place) = places.get_mut(*row) {
                    *place = Some(next);
                    next += 1;
                }
            }
        }
        let found = match parts.as_slice() {
            [] => {
                return Ok(StructArray::new_null(self.output_schema.fields().clone(), spans.len()));
            }
            [one] if one.len() == spans.len() => return Ok(one.clone()),
            [one] => Arc::new(one.clone()) as ArrayRef,
            many => {
                let many: Vec<&dyn Array> = many.iter().map(|part| part as &dyn Array).collect();
                arrow_select::concat::concat(&many)?
            }
        };
        let places = UInt32Array::from(places);
        Ok(arrow_select::take::take(&found, &places, None)?.as_struct().clone())
    }

    fn decode_rows_of_width(
        &self,
        class: &RowsOfWidth,
        width: u8,
        bytes: &[u8],
        name: &str,
    ) -> Result<StructArray> {
        let layout =
            BlockLayout::new_plain(&self.record, width.into()).map_err(rows_too_large_error)?;
        let end = bytes.len().saturating_sub(SLACK_BYTES);
        let decoder =
            BlockRowDecoder { record: &self.record, layout: &layout, bytes, rows_end: end };
        let columns =
            decoder.decode_at_spans(&self.record_plan, &class.spans).map_err(|fault| {
                let of = |at: usize| class.rows.get(at).copied().unwrap_or_default() as u64;
                match fault {
                    RowDecodeError::InvalidValue { row, column, reason } => {
                        Error::InvalidValue { file: name.into(), row: of(row), column, reason }
                    }
                    RowDecodeError::Damaged(reason) => {
                        // The error does not name the row: find the first that fails by itself.
                        let alone = |span: &(u32, u32)| {
                            let fault =
                                decoder.decode_at_spans(&self.record_plan, &[*span]).err()?;
                            matches!(fault, RowDecodeError::Damaged(_)).then_some(())
                        };
                        let at = class.spans.iter().position(|span| alone(span).is_some());
                        Error::InvalidEncodedRow {
                            name: name.into(),
                            row: of(at.unwrap_or_default()),
                            reason,
                        }
                    }
                    RowDecodeError::Other(error) => error,
                }
            })?;
        let fields = self.output_schema.fields().clone();
        Ok(StructArray::try_new_with_length(fields, columns, None, class.rows.len())?)
    }
}

/// The bytes of a binary column with [`SLACK_BYTES`] bytes behind them, and the span of each row.
type ConcatenatedRows = (Vec<u8>, Vec<Option<(u32, u32)>>);

fn concatenate_rows(rows: &dyn Array, name: &str) -> Result<ConcatenatedRows> {
    /// Copies all bytes at once, including those under nulls.
    fn packed<O: arrow_array::OffsetSizeTrait>(
        array: &arrow_array::GenericBinaryArray<O>,
    ) -> Result<ConcatenatedRows> {
        let offsets = array.value_offsets();
        let at = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize());
        let (first, last) = (at(offsets.first()), at(offsets.last()));
        let values = array.value_data().get(first..last).unwrap_or_default();
        let mut bytes = allocate_with_slack(values.len())?;
        bytes.extend_from_slice(values);
        bytes.resize(values.len() + SLACK_BYTES, 0);
        let spans = offsets.windows(2).enumerate().map(|(row, pair)| match pair {
            [start, end] if array.is_valid(row) => {
                let narrow = |at: usize| u32::try_from(at - first).unwrap_or(u32::MAX);
                let (start, end) = (narrow(start.as_usize()), narrow(end.as_usize()));
                Some((start, end - start))
            }
            _ => None,
        });
        let spans = spans.collect();
        Ok((bytes, spans))
    }
    match rows.data_type() {
        DataType::Binary => packed(rows.as_binary::<i32>()),
        DataType::LargeBinary => packed(rows.as_binary::<i64>()),
        DataType::BinaryView => {
            let array = rows.as_binary_view();
            // Views may share bytes: count each separately.
            let total: u64 = array.iter().flatten().map(|row| row.len() as u64).sum();
            let total = usize::try_from(total).map_err(|_| rows_too_large_error(total))?;
            let mut bytes = allocate_with_slack(total)?;
            let narrow = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
            let spans = array.iter().map(|row| {
                let row = row?;
                let start = narrow(bytes.len());
                bytes.extend_from_slice(row);
                Some((start, narrow(row.len())))
            });
            let spans = spans.collect();
            bytes.resize(total + SLACK_BYTES, 0);
            Ok((bytes, spans))
        }
        other => Err(Error::SchemaMismatch {
            column: name.into(),
            expected: "binary".into(),
            found: other.to_string(),
        }),
    }
}

fn allocate_with_slack(bytes: usize) -> Result<Vec<u8>> {
    if bytes as u64 > BLOCK_BYTES_MAX {
        return Err(rows_too_large_error(bytes as u64));
    }
    Ok(Vec::with_capacity(bytes + SLACK_BYTES))
}
