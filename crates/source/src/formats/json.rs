//! JSON: objects, one per line or in any other sequence.

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::json::{self, JsonDecoder, JsonLayout, RECORD_SEPARATOR};
use tidemill_text::{BlockDecoder, infer};

use super::inferred_columns::{
    declare_types_by_name, declared_columns_without_data, file_columns_found_by_name,
    record_file_types, unreadable_records_error,
};
use super::{DecoderSpec, FileFormat, FormatKind, TextFormat};
use crate::error::{Error, Result};
use crate::files::byte_input::{ByteReadContext, OpenFile, ReadPattern};
use crate::schema::column_layouts::{FileColumns, TypeWitnesses};
use crate::schema::source_sample::SourceSample;
use crate::schema::text_options::TextOptionSupport;
use crate::splits::text_blocks::{RECORD_BYTES_MAX, RecordFraming};
use crate::{SourceFile, SourceSpec};

const NAME: &str = "json";

/// The JSON format.
pub(super) struct JsonSourceFormat;

impl FileFormat for JsonSourceFormat {
    fn name(&self) -> &str {
        NAME
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["jsonl", "ndjson"]
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["json", "jsonl", "ndjson"]
    }

    fn kind(&self) -> FormatKind<'_> {
        FormatKind::Text(self)
    }
}

impl TextFormat for JsonSourceFormat {
    fn infer_columns(
        &self,
        spec: &SourceSpec,
        sample: &mut SourceSample<'_>,
    ) -> Result<FileColumns> {
        infer_columns(spec, sample)
    }

    fn declare_types(
        &self,
        columns: &mut FileColumns,
        wanted: &Schema,
        _: &SourceSample<'_>,
    ) -> Result<()> {
        declare_types_by_name(columns, wanted, NAME)
    }

    fn decoder(&self, of: DecoderSpec<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        let nulls = &of.dialect.nulls;
        let (columns, options) = of.into_columns_and_options();
        Ok(Box::new(JsonDecoder::new(columns, nulls, options)?.with_joined_records()))
    }

    fn supported_options(&self) -> TextOptionSupport {
        TextOptionSupport { nulls: true, strict: true, ..TextOptionSupport::default() }
    }

    fn has_keyed_records(&self) -> bool {
        true
    }

    fn can_omit_line_ends(&self) -> bool {
        true
    }

    /// JSON that is not one object per line is read front to back, because the start of a record depends on
    /// all brackets before it.
    fn is_unsplittable(&self, file: &SourceFile, watch: &ByteReadContext) -> Result<bool> {
        let open = OpenFile::open(file, ReadPattern::Random, watch)?;
        let mut head = vec![0; HEAD_READ_BYTES_MIN];
        loop {
            let count = open.read_at(&mut head, 0)?;
            let text = head[..count].strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head[..count]);
            let is_all = count < head.len() || count > RECORD_BYTES_MAX;
            if let Some(layout) = json::detect_layout(text, is_all) {
                return Ok(layout == JsonLayout::Sequence);
            }
            head.resize(4 * head.len(), 0);
        }
    }

    /// A line that is one object, followed by a line that begins an object, proves that the file has one
    /// object per line: within a record, a comma would stand between them.
    fn is_splittable_by_sample(&self, seen: &[u8]) -> bool {
        let lines = seen.split(|byte| *byte == b'\n').skip(1);
        let next = lines.clone().skip(1);
        let is_object = |line: &[u8]| {
            let is_whole = || json::detect_layout(line, true) == Some(JsonLayout::Lines);
            line.starts_with(b"{") && line.trim_ascii_end().ends_with(b"}") && is_whole()
        };
        lines.zip(next).any(|(line, next)| next.first() == Some(&b'{') && is_object(line))
    }

    fn can_project_nested_fields(&self) -> bool {
        true
    }

    fn leading_blank_bytes(&self, record: &[u8]) -> usize {
        let is_before = |byte: &u8| byte.is_ascii_whitespace() || *byte == RECORD_SEPARATOR;
        record.iter().position(|byte| !is_before(byte)).unwrap_or(0)
    }
}

/// Bytes of a file read first to decide whether it can be split.
const HEAD_READ_BYTES_MIN: usize = 4 << 10;

fn infer_columns(spec: &SourceSpec, sample: &mut SourceSample<'_>) -> Result<FileColumns> {
    let nulls = sample.dialect.nulls.clone();
    let mut inference = infer::json::JsonInference::new(&nulls).with_joined_records();
    let mut shown_by = TypeWitnesses::default();
    let mut first_fault = None;
    let mut current: Option<usize> = None;
    let looked_at = sample.for_each_block(RecordFraming::Json, |file, block| {
        if current != Some(file.index) {
            record_file_types(&mut shown_by, current, || inference.fields());
            current = Some(file.index);
        }
        let records = inference.add_block(block);
        if let (None, Some(fault)) = (&first_fault, inference.first_fault()) {
            first_fault = Some((file.display_name.to_string(), fault.clone()));
        }
        if inference.is_too_wide() { Err(too_many_keys_error(file)) } else { Ok(records) }
    })?;
    record_file_types(&mut shown_by, current, || inference.fields());
    inference.settle_types();
    let chosen = sample.spread_files(looked_at);
    let inspect = |_: &SourceFile, block: &[u8]| {
        let mut inference = infer::json::JsonInference::new(&nulls).with_joined_records();
        inference.add_block(block);
        Some(inference)
    };
    for (file, other) in sample.inspect_beginnings(&chosen, RecordFraming::Json, inspect)? {
        inference.widen(&other);
        if inference.is_too_wide() {
            return Err(too_many_keys_error(&sample.files[file]));
        }
        shown_by.record_types(file, &inference.fields());
    }
    match first_fault {
        _ if inference.object_count() > 0 => Ok(file_columns_found_by_name(
            inference.fields(),
            &shown_by,
            !sample.covers_all_records,
        )),
        None => {
            declared_columns_without_data(spec, sample, "record", "blank lines or empty arrays")
        }
        Some((path, fault)) => Err(unreadable_records_error(path, "JSON objects", &fault)),
    }
}

/// Returns the error for records with too many different keys, which are probably values and not columns.
fn too_many_keys_error(file: &SourceFile) -> Error {
    Error::usage_with_hint(
        format!(
            "the records of `{}` have more than {} different keys, and each would be a column",
            file.display_name,
            infer::json::JSON_COLUMNS_MAX
        ),
        "--source-format lines reads each record as one text (job file: source.format); to have \
         such keys as a map, they belong into an object of their own within the record",
    )
}
