//! Extraction of promoted records: reads structs, JSON in strings, and rowfile rows in bytes as columns.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, StructArray, new_null_array,
};
use arrow::compute::{cast, concat_batches, is_not_null, kernels::zip::zip};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use serde::{Deserialize, Serialize};
use tidemill_rowfile as rowfile;
use tidemill_text::json::JsonDecoder;
use tidemill_text::{
    BlockColumnMismatches, BlockDecoder, BlockUnknownKey, DecodedBlocks, KnownKeys, Options,
    RejectedTextRecord, value_excerpt,
};

use crate::error::{Error, Result};
use crate::files::rowfile_salvage::error_from_rowfile;
use crate::rejects::record_fault::RecordFault;
use crate::schema::text_options::TypeMismatchPolicy;
use crate::schema::type_unification::{cast_file_column, mask_nulls};
use crate::{Source, SourceFile};

/// A column of the files whose record has promoted fields.
#[derive(Debug, Clone)]
pub(crate) struct PromotedRecord {
    /// Position among the files' columns.
    pub(crate) column: usize,
    pub(crate) name: String,
    pub(crate) kind: PromotedRecordKind,
    /// The fields of the record.
    pub(crate) fields: Fields,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PromotedRecordKind {
    Struct,
    /// JSON in a string, or in bytes.
    Json,
    /// Rows of a rowfile in bytes, with the schema that the file's field declares.
    Rows,
}

/// A source column that comes from a field of a record, from a file's own column, or from both.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PromotedColumn {
    /// Index of the promoted record.
    pub(crate) promotion: usize,
    /// Name of the field in the record.
    pub(crate) field: String,
    /// Position of the files' own column of the same name, if a file has one.
    pub(crate) own: Option<usize>,
    /// The type conflict that prevents merging the two.
    pub(crate) clash: Option<String>,
}

impl PromotedColumn {
    /// Returns the error of a column that cannot be read.
    pub(crate) fn column_error(&self, source: &Source, name: &str) -> Option<Error> {
        let record = source.promoted_records.get(self.promotion)?;
        if let Some(clash) = &self.clash {
            return Some(Error::usage_with_hint(
                format!("column `{name}` and what `{}` gives as it differ: {clash}", record.name),
                prefix_hint(&record.name),
            ));
        }
        let own = self.own?;
        // In formats whose records name their columns, only the records can show a conflict.
        if !source.format.is_typed() && !source.format.is_delimited() {
            return None;
        }
        let has = |file: usize, column: usize| {
            source.columns.layout(file).places.get(column).copied().flatten().is_some()
        };
        let both = source
            .files
            .iter()
            .find(|file| has(file.index, own) && has(file.index, record.column))?;
        Some(Error::usage_with_hint(
            format!(
                "`{}` has a column `{name}`, and its `{}` has a field `{}`",
                both.display_name, record.name, self.field
            ),
            prefix_hint(&record.name),
        ))
    }
}

pub(crate) fn prefix_hint(column: &str) -> String {
    format!(
        "give the fields other names: --promote {column}={column}_ puts `{column}_` before each \
         (job file: source.promote)"
    )
}

/// Method of extracting records from a column.
enum ExtractionMethod {
    /// Takes the struct as it is.
    Struct,
    Json(Box<JsonDecoder>),
    /// Decodes rows by the plan for the file at this index, once it is known.
    Rows(Option<(usize, Box<rowfile::RowDecodePlan>)>),
}

/// Result of extracting the records of a column.
pub(crate) enum ExtractedRecords {
    Records(StructArray),
    /// The values that are no records, in order.
    Invalid(Vec<InvalidRecordValue>),
}

/// A value that is no record.
pub(crate) struct InvalidRecordValue {
    /// Row of the value, counted from 0 at the column's beginning.
    pub(crate) row: usize,
    fault: tidemill_text::TextFault,
    /// Range of the value in the extractor's lines.
    line_range: Range<usize>,
}

/// Extracts the wanted fields from the records of a column.
pub(crate) struct RecordExtractor {
    name: String,
    hint: &'static str,
    method: ExtractionMethod,
    /// Names of the wanted fields.
    wanted_fields: Vec<String>,
    lines: Vec<u8>,
    decoded_batches: DecodedBlocks,
    /// Unknown keys of the records that were extracted last.
    unknown_keys: Vec<BlockUnknownKey>,
    other_unknown_keys: u64,
    /// Type mismatches of these records.
    mismatches: Vec<BlockColumnMismatches>,
}

/// Number of occurrences of an unknown key, or of mismatches of a field, in promoted records.
pub(crate) struct PromotedFieldCount {
    pub(crate) path: String,
    pub(crate) count: u64,
    /// Row of the first occurrence, counted from 0 at the column's beginning.
    pub(crate) first_row: usize,
}

impl RecordExtractor {
    /// Creates an extractor for the named fields.
    ///
    /// # Errors
    /// [`Error::Internal`] only.
    pub(crate) fn new(
        source: &Source,
        promotion: &PromotedRecord,
        wanted: &[String],
        batch_rows: usize,
    ) -> Result<Self> {
        let how = match promotion.kind {
            PromotedRecordKind::Struct => ExtractionMethod::Struct,
            PromotedRecordKind::Rows => ExtractionMethod::Rows(None),
            PromotedRecordKind::Json => {
                let fields = promotion.fields.iter().filter(|it| wanted.contains(it.name()));
                let fields: Vec<FieldRef> = fields.cloned().collect();
                let options = Options {
                    batch_rows,
                    inferred_columns: (0..fields.len()).collect(),
                    known_keys: Some(Arc::new(KnownKeys::new(&promotion.fields, |_| true))),
                    mismatch_is_null: source.spec.text_options.mismatch
                        == Some(TypeMismatchPolicy::Null),
                    checks_skipped_values: source.spec.text_options.strict.unwrap_or(false),
                    ..Options::default()
                };
                let decoder = JsonDecoder::new(fields, &[], options);
                ExtractionMethod::Json(Box::new(decoder.map_err(|field| {
                    Error::Internal(format!("`{}` cannot be read from JSON", field.name()))
                })?))
            }
        };
        let (lines, out) = (Vec::new(), DecodedBlocks::default());
        let hint = match source.format.is_typed() {
            true => {
                "every value has to be one JSON object, or null; --max-bad N or N% skips rows with \
                 others, counts them and keeps a copy"
            }
            false => {
                "every value has to be one JSON object, or null; --mismatch null reads what is of \
                 another type than elsewhere as null; --max-bad N or N% skips rows with others, \
                 counts them and keeps a copy"
            }
        };
        let (name, wanted) = (promotion.name.clone(), wanted.to_vec());
        let (unknown, unknown_others, mismatches) = (Vec::new(), 0, Vec::new());
        Ok(RecordExtractor {
            name,
            hint,
            method: how,
            wanted_fields: wanted,
            lines,
            decoded_batches: out,
            unknown_keys: unknown,
            other_unknown_keys: unknown_others,
            mismatches,
        })
    }

    /// Returns true if values may be invalid records.
    pub(crate) fn can_reject(&self) -> bool {
        matches!(self.method, ExtractionMethod::Json(_))
    }

    /// Extracts the records of a batch, or returns the values that are none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for bytes that are no row of a rowfile.
    pub(crate) fn extract(
        &mut self,
        column: &ArrayRef,
        file: &SourceFile,
    ) -> Result<ExtractedRecords> {
        let decoder = match &mut self.method {
            ExtractionMethod::Struct => {
                let records = column.as_struct_opt().cloned().map(ExtractedRecords::Records);
                return records
                    .ok_or_else(|| Error::Internal(format!("`{}` is no struct", self.name)));
            }
            ExtractionMethod::Rows(plan) => {
                if plan.as_ref().is_none_or(|(known, _)| *known != file.index) {
                    *plan = Some((file.index, row_plan(file, &self.name, &self.wanted_fields)?));
                }
                let Some((_, plan)) = plan else {
                    return Err(Error::Internal("rows without a plan".into()));
                };
                let records = plan.decode_rows(column, &self.name);
                return records.map(ExtractedRecords::Records).map_err(|error| Error::Corrupt {
                    path: file.display_name.to_string(),
                    offset: None,
                    reason: error.to_string(),
                    hint: None,
                });
            }
            ExtractionMethod::Json(decoder) => decoder,
        };
        let Some(values) = as_text_values(column) else {
            return Err(Error::Internal(format!("`{}` is no text", self.name)));
        };
        self.lines.clear();
        write_value_lines(&values, true, &mut self.lines);
        self.decoded_batches.clear();
        decoder.decode(&self.lines, &mut self.decoded_batches);
        if !self.decoded_batches.rejected.is_empty() {
            return Ok(ExtractedRecords::Invalid(invalid_values(
                &self.lines,
                self.decoded_batches.rejected.drain(..),
            )));
        }
        let schema = decoder.schema().clone();
        let batch = concat_batches(&schema, &self.decoded_batches.batches)?;
        if batch.num_rows() != values.len() {
            return Err(Error::Internal(format!(
                "{} values of `{}` gave {} records",
                values.len(),
                self.name,
                batch.num_rows()
            )));
        }
        self.unknown_keys.append(&mut self.decoded_batches.unknown_keys);
        self.other_unknown_keys += self.decoded_batches.unknown_key_overflow_count;
        self.mismatches.append(&mut self.decoded_batches.mismatches);
        self.decoded_batches.clear();
        let columns = batch.columns().to_vec();
        let fields = schema.fields().clone();
        let records = StructArray::try_new_with_length(fields, columns, None, values.len())?;
        Ok(ExtractedRecords::Records(records))
    }

    /// Takes the unknown keys of the records that were extracted last, and the number of occurrences of
    /// further keys.
    pub(crate) fn take_unknown_keys(&mut self) -> (Vec<PromotedFieldCount>, u64) {
        let lines = &self.lines;
        let keys = self.unknown_keys.drain(..).map(|key| PromotedFieldCount {
            path: format!("{}.{}", self.name, key.path),
            count: key.count,
            first_row: row_at(lines, key.first_offset),
        });
        (keys.collect(), std::mem::take(&mut self.other_unknown_keys))
    }

    /// Takes the type mismatches of the records that were extracted last.
    pub(crate) fn take_mismatches(&mut self) -> Vec<PromotedFieldCount> {
        let ExtractionMethod::Json(decoder) = &self.method else { return Vec::new() };
        let (schema, lines) = (decoder.schema(), &self.lines);
        let fields = self.mismatches.drain(..).filter_map(|found| {
            let field = schema.fields().get(found.column)?;
            Some(PromotedFieldCount {
                path: format!("{}.{}", self.name, field.name()),
                count: found.count,
                first_row: row_at(lines, found.first_offset),
            })
        });
        fields.collect()
    }

    /// Clears the counts of the records that were extracted last.
    pub(crate) fn clear_counts(&mut self) {
        self.unknown_keys.clear();
        self.other_unknown_keys = 0;
        self.mismatches.clear();
    }

    /// Returns the name of the column that holds the records.
    pub(crate) fn column_name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes of a value of the batch that was extracted last.
    pub(crate) fn value_bytes(&self, bad: &InvalidRecordValue) -> &[u8] {
        self.lines.get(bad.line_range.clone()).unwrap_or_default().trim_ascii()
    }

    /// Returns the fault of an invalid value.
    pub(crate) fn record_fault(&self, bad: &InvalidRecordValue) -> RecordFault {
        let column = match &bad.fault.column {
            Some(within) => format!("{}.{within}", self.name),
            None => self.name.clone(),
        };
        let value = value_excerpt(&String::from_utf8_lossy(self.value_bytes(bad)));
        RecordFault {
            column: Some(column),
            reason: format!("{}, in `{value}`", bad.fault),
            hint: Some(self.hint.into()),
        }
    }
}

/// Returns the row whose line holds the byte at `at`.
fn row_at(lines: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', &lines[..at.min(lines.len())]).count()
}

/// Returns the values that are no records; each value is a line.
fn invalid_values(
    lines: &[u8],
    bad: impl Iterator<Item = RejectedTextRecord>,
) -> Vec<InvalidRecordValue> {
    let (mut values, mut row, mut at) = (Vec::new(), 0, 0);
    for RejectedTextRecord { range, fault, .. } in bad {
        row += memchr::memchr_iter(b'\n', &lines[at..range.start]).count();
        at = range.start;
        // The decoder rejects too long lines together.
        for line in lines[range].split_inclusive(|byte| *byte == b'\n') {
            values.push(InvalidRecordValue {
                row,
                fault: fault.clone(),
                line_range: at..at + line.len(),
            });
            row += 1;
            at += line.len();
        }
    }
    values
}

/// Creates the plan for decoding the wanted fields of a file's rows.
fn row_plan(
    file: &SourceFile,
    name: &str,
    wanted: &[String],
) -> Result<Box<rowfile::RowDecodePlan>> {
    let failed = |error| error_from_rowfile(error, &file.display_name);
    let Some(schema) = nested_row_schema(file, name)? else {
        return Err(Error::Internal(format!("`{name}` holds no rows in `{}`", file.display_name)));
    };
    let all = schema.to_arrow(rowfile::StringLayout::default());
    let fields: Vec<FieldRef> =
        all.fields().iter().filter(|field| wanted.contains(field.name())).cloned().collect();
    let plan = rowfile::RowDecodePlan::new(&schema, &Arc::new(Schema::new(fields)));
    plan.map(Box::new).map_err(failed)
}

/// Returns a field of records; it is null in every null record.
pub(crate) fn extract_field(records: &StructArray, name: &str) -> Option<ArrayRef> {
    let column = records.column_by_name(name)?;
    let Some(outer) = records.nulls().filter(|_| column.data_type() != &DataType::Null) else {
        return Some(column.clone());
    };
    // Both arrays have the same length.
    mask_nulls(column, outer).ok()
}

/// Merges a promoted field with the file's own column of the same name.
///
/// # Errors
/// [`Error::Corrupt`] for a row with a value in both places, and for a value that the column's type cannot
/// hold.
pub(crate) fn merge_promoted_column(
    inner: Option<ArrayRef>,
    own: Option<ArrayRef>,
    wanted: &Field,
    rows: usize,
    file: &SourceFile,
) -> Result<ArrayRef> {
    let corrupt = |reason: String| Error::Corrupt {
        path: file.display_name.to_string(),
        offset: None,
        reason: format!("column `{}`: {reason}", wanted.name()),
        hint: None,
    };
    let fit = |column: ArrayRef| match column.data_type() == wanted.data_type() {
        true => Ok(column),
        false => cast_file_column(&column, wanted.data_type(), true).map_err(corrupt),
    };
    let (inner, own) = (inner.map(fit).transpose()?, own.map(fit).transpose()?);
    match (inner, own) {
        (None, None) => Ok(new_null_array(wanted.data_type(), rows)),
        (Some(column), None) | (None, Some(column)) => Ok(column),
        (Some(inner), Some(own)) => {
            let (has_inner, has_own) = (is_not_null(&inner)?, is_not_null(&own)?);
            let both = |at: &usize| has_inner.value(*at) && has_own.value(*at);
            if let Some(at) = (0..rows).find(both) {
                let value = |column: &ArrayRef| {
                    let text = cast(&column.slice(at, 1), &DataType::Utf8).ok();
                    text.map_or(String::new(), |text| {
                        format!(" `{}`", value_excerpt(text.as_string::<i32>().value(0)))
                    })
                };
                return Err(Error::Corrupt {
                    path: file.display_name.to_string(),
                    offset: None,
                    reason: format!(
                        "column `{}`: a row has two values,{} of its own and{} in the record that \
                         is promoted",
                        wanted.name(),
                        value(&own),
                        value(&inner)
                    ),
                    hint: Some(
                        "give the record's fields other names: --promote COLUMN=PREFIX (job file: \
                         source.promote)"
                            .into(),
                    ),
                });
            }
            if has_own.true_count() == 0 {
                return Ok(inner);
            }
            let mask: BooleanArray = has_inner;
            Ok(zip(&mask, &inner, &own)?)
        }
    }
}

/// Returns the schema of the rows that a file's column holds, if the file declares one.
pub(crate) fn nested_row_schema(file: &SourceFile, name: &str) -> Result<Option<rowfile::Schema>> {
    let Some(known) = file.metadata() else { return Ok(None) };
    let Ok(field) = known.schema().field_with_name(name) else { return Ok(None) };
    rowfile::Schema::from_rows_field(field)
        .map_err(|error| error_from_rowfile(error, &file.display_name))
}

/// Returns text, or bytes that hold text, as binary views.
pub(crate) fn as_text_values(values: &ArrayRef) -> Option<BinaryViewArray> {
    match values.data_type() {
        DataType::Utf8View => Some(values.as_string_view().clone().to_binary_view()),
        DataType::BinaryView => Some(values.as_binary_view().clone()),
        _ => None,
    }
}

/// Writes a line for each value. With `every_row`, a null or blank value gives an empty object; otherwise it
/// gives no line.
pub(crate) fn write_value_lines(values: &BinaryViewArray, every_row: bool, lines: &mut Vec<u8>) {
    for value in values {
        let value = value.unwrap_or_default().trim_ascii();
        if value.is_empty() {
            if every_row {
                lines.extend_from_slice(b"{}\n");
            }
            continue;
        }
        let start = lines.len();
        lines.extend_from_slice(value);
        // Between tokens a line end is white space; within a JSON string it is invalid.
        for byte in &mut lines[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        lines.push(b'\n');
    }
}
