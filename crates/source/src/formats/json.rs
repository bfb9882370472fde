//! JSON: objects, one per line or in any other sequence.

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::json::{self, JsonDecoder, JsonLayout, RECORD_SEPARATOR};
use tidemill_text::{BlockDecoder, infer};

use super::inferred::{found_by_name, note, nothing_to_infer, settle_by_name, unreadable};
use super::{Decoding, FileFormat, Kind, TextFormat};
use crate::blocks::{Ends, RECORD_BYTES_MAX};
use crate::columns::{Columns, ShownBy};
use crate::dialect::Takes;
use crate::error::{Error, Result};
use crate::input::{OpenFile, ReadPattern, Watch};
use crate::sample::Sample;
use crate::{SourceFile, SourceSpec};

const NAME: &str = "json";

/// The format.
pub(super) struct Json;

impl FileFormat for Json {
    fn name(&self) -> &str {
        NAME
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["jsonl", "ndjson"]
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &["json", "jsonl", "ndjson"]
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Text(self)
    }
}

impl TextFormat for Json {
    fn columns(&self, spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
        columns(spec, sample)
    }

    fn settle(&self, columns: &mut Columns, wanted: &Schema, _: &Sample<'_>) -> Result<()> {
        settle_by_name(columns, wanted, NAME)
    }

    fn decoder(&self, of: Decoding<'_>) -> Result<Box<dyn BlockDecoder>, FieldRef> {
        let nulls = &of.dialect.nulls;
        let (columns, options) = of.by_name();
        Ok(Box::new(JsonDecoder::new(columns, nulls, options)?.with_joined_records()))
    }

    fn takes(&self) -> Takes {
        Takes { nulls: true, strict: true, ..Takes::default() }
    }

    fn has_keys(&self) -> bool {
        true
    }

    fn is_sequence(&self) -> bool {
        true
    }

    /// JSON that is no object per line is read front to back: the start of a record depends on all brackets before it.
    fn is_whole(&self, file: &SourceFile, watch: &Watch) -> Result<bool> {
        let open = OpenFile::open(file, ReadPattern::Random, watch)?;
        let mut head = vec![0; HEAD_BYTES];
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

    /// A line that is one object, and the next one that begins as one: within a record there is a comma between.
    fn shows_cut(&self, seen: &[u8]) -> bool {
        let lines = seen.split(|byte| *byte == b'\n').skip(1);
        let next = lines.clone().skip(1);
        let is_object = |line: &[u8]| {
            let is_whole = || json::detect_layout(line, true) == Some(JsonLayout::Lines);
            line.starts_with(b"{") && line.trim_ascii_end().ends_with(b"}") && is_whole()
        };
        lines.zip(next).any(|(line, next)| next.first() == Some(&b'{') && is_object(line))
    }

    fn reads_parts(&self) -> bool {
        true
    }

    fn blank_before(&self, record: &[u8]) -> usize {
        let is_before = |byte: &u8| byte.is_ascii_whitespace() || *byte == RECORD_SEPARATOR;
        record.iter().position(|byte| !is_before(byte)).unwrap_or(0)
    }
}

/// Bytes of a file that the first look takes, to tell whether the file can be cut.
const HEAD_BYTES: usize = 4 << 10;

fn columns(spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
    let nulls = sample.dialect.nulls.clone();
    let mut inference = infer::json::JsonInference::new(&nulls).with_joined_records();
    let mut shown_by = ShownBy::default();
    let mut first_fault = None;
    let mut current: Option<usize> = None;
    let looked_at = sample.each_block(Ends::Json, |file, block| {
        if current != Some(file.index) {
            note(&mut shown_by, current, || inference.fields());
            current = Some(file.index);
        }
        let records = inference.add_block(block);
        if let (None, Some(fault)) = (&first_fault, inference.first_fault()) {
            first_fault = Some((file.shown.to_string(), fault.clone()));
        }
        if inference.is_too_wide() { Err(too_wide(file)) } else { Ok(records) }
    })?;
    note(&mut shown_by, current, || inference.fields());
    inference.settle_types();
    let chosen = sample.spread(looked_at);
    let inspect = |_: &SourceFile, block: &[u8]| {
        let mut inference = infer::json::JsonInference::new(&nulls).with_joined_records();
        inference.add_block(block);
        Some(inference)
    };
    for (file, other) in sample.beginnings(&chosen, Ends::Json, inspect)? {
        inference.widen(&other);
        if inference.is_too_wide() {
            return Err(too_wide(&sample.files[file]));
        }
        shown_by.note(file, &inference.fields());
    }
    match first_fault {
        _ if inference.object_count() > 0 => {
            Ok(found_by_name(inference.fields(), &shown_by, !sample.is_all))
        }
        None => nothing_to_infer(spec, sample, "record", "blank lines or empty arrays"),
        Some((path, fault)) => Err(unreadable(path, "JSON objects", &fault)),
    }
}

/// Keys that are values are no columns.
fn too_wide(file: &SourceFile) -> Error {
    Error::usage_hint(
        format!(
            "the records of `{}` have more than {} different keys, and each would be a column",
            file.shown,
            infer::json::JSON_COLUMNS_MAX
        ),
        "--source-format lines reads each record as one text (job file: source.format); to have \
         such keys as a map, they belong into an object of their own within the record",
    )
}
