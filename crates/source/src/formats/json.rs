//! JSON: lines of one object each, or one array of objects.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use tidemill_text::json::{self, ArrayRecords, JsonDecoder};
use tidemill_text::{Decode, cut, infer};

use super::inferred::{found_by_name, note, nothing_to_infer, settle_by_name};
use super::{Decoding, FileFormat, Kind, TextFormat};
use crate::columns::{Columns, ShownBy};
use crate::dialect::Takes;
use crate::error::{Error, Result};
use crate::input::{Access, ByteInput, OpenFile, Watch};
use crate::sample::Sample;
use crate::stream::Opened;
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

    fn decoder(&self, of: Decoding<'_>) -> Result<Box<dyn Decode>, FieldRef> {
        let nulls = &of.dialect.nulls;
        let (columns, options) = of.by_name();
        Ok(Box::new(JsonDecoder::new(columns, nulls, options)?))
    }

    fn takes(&self) -> Takes {
        Takes { nulls: true, strict: true, ..Takes::default() }
    }

    fn opened(&self) -> Opened {
        |input, path| Box::new(JsonInput::new(input, Arc::clone(path)))
    }

    /// One array is read front to back: what a line is depends on all brackets before it.
    fn is_whole(&self, file: &SourceFile, watch: &Watch) -> Result<bool> {
        let open = OpenFile::open(file, Access::Random, watch)?;
        let mut head = [0; 4096];
        let count = open.read_at(&mut head, 0)?;
        Ok(begins_array(&head[..count]) == Some(true))
    }

    /// Between the items of an array there are commas.
    fn shows_cut(&self, seen: &[u8]) -> bool {
        let ends = memchr::memchr_iter(b'\n', seen);
        ends.into_iter().any(|end| {
            let (before, behind) = (seen[..end].trim_ascii_end(), &seen[end + 1..]);
            before.ends_with(b"}") && behind.first() == Some(&b'{')
        })
    }

    fn reads_parts(&self) -> bool {
        true
    }

    /// An item of an array may begin with the line end of the one before it.
    fn blank_before(&self, record: &[u8]) -> usize {
        record.len() - record.trim_ascii_start().len()
    }
}

fn columns(spec: &SourceSpec, sample: &mut Sample<'_>) -> Result<Columns> {
    let nulls = sample.dialect.nulls.clone();
    let mut inference = infer::json::Inference::new(&nulls);
    let mut shown_by = ShownBy::default();
    let mut first_fault = None;
    let mut current: Option<usize> = None;
    let looked_at = sample.each_block(cut::Grammar::LINES, |file, block| {
        if current != Some(file.index) {
            refuse_other_layouts(block, &file.shown)?;
            note(&mut shown_by, current, || inference.fields());
            current = Some(file.index);
        }
        let records = inference.add(block);
        if let (None, Some(fault)) = (&first_fault, inference.first_fault()) {
            first_fault = Some((file.shown.to_string(), fault.to_string()));
        }
        if inference.is_too_wide() { Err(too_wide(file)) } else { Ok(records) }
    })?;
    note(&mut shown_by, current, || inference.fields());
    inference.settle();
    let chosen = sample.spread(looked_at);
    let inspect = |_: &SourceFile, block: &[u8]| {
        let mut inference = infer::json::Inference::new(&nulls);
        inference.add(block);
        Some(inference)
    };
    for (file, other) in sample.beginnings(&chosen, cut::Grammar::LINES, inspect)? {
        inference.widen(&other);
        if inference.is_too_wide() {
            return Err(too_wide(&sample.files[file]));
        }
        shown_by.note(file, &inference.fields());
    }
    match first_fault {
        _ if inference.objects() > 0 => Ok(found_by_name(inference.fields(), &shown_by)),
        None => nothing_to_infer(spec, sample, "record"),
        Some((path, reason)) => Err(Error::Corrupt {
            path,
            offset: None,
            reason: format!("its lines are not JSON objects ({reason})"),
            hint: Some("--source-format names another format (job file: source.format)".into()),
        }),
    }
}

/// Keys that are values are no columns.
fn too_wide(file: &SourceFile) -> Error {
    Error::usage_hint(
        format!(
            "the records of `{}` have more than {} different keys, and each would be a column",
            file.shown,
            infer::json::COLUMNS_MAX
        ),
        "--source-format lines reads each record as one text (job file: source.format); to have \
         such keys as a map, they belong into an object of their own within the record",
    )
}

/// Objects spread over lines are JSON but neither JSON lines nor an array.
fn refuse_other_layouts(block: &[u8], shown: &str) -> Result<()> {
    if json::layout(block) != json::Layout::Spread {
        return Ok(());
    }
    Err(Error::Corrupt {
        path: shown.into(),
        offset: Some(0),
        reason: "its objects span several lines, and JSON is read as lines with one object each, \
                 or as one array"
            .into(),
        hint: Some("jq -c . > file.jsonl makes JSON lines of it".into()),
    })
}

/// Whether a JSON text that begins so is one array; none if that does not tell yet.
fn begins_array(head: &[u8]) -> Option<bool> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let first = head.iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(*first == b'[')
}

/// JSON as lines: what is one array has its items made lines, in place and at their offsets.
struct JsonInput {
    inner: Box<dyn ByteInput>,
    path: Arc<str>,
    read_bytes: u64,
    layout: JsonLayout,
}

enum JsonLayout {
    Unknown,
    Lines,
    Array(ArrayRecords),
}

impl JsonInput {
    fn new(inner: Box<dyn ByteInput>, path: Arc<str>) -> Self {
        Self { inner, path, read_bytes: 0, layout: JsonLayout::Unknown }
    }
}

impl ByteInput for JsonInput {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let count = self.inner.read(out)?;
        let (piece, is_first) = (&mut out[..count], self.read_bytes == 0);
        self.read_bytes += count as u64;
        let mark = if is_first && piece.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        if matches!(self.layout, JsonLayout::Unknown) {
            match begins_array(&piece[mark..]) {
                Some(true) => self.layout = JsonLayout::Array(ArrayRecords::new()),
                Some(false) => self.layout = JsonLayout::Lines,
                None => {}
            }
        }
        if let JsonLayout::Array(records) = &mut self.layout {
            records.rewrite(&mut piece[mark..]);
            // Fewer bytes than asked for come at the end only, or none.
            let has_ended = count == 0 || count < out.len() && !self.inner.is_eager();
            if has_ended && !records.is_closed() {
                return Err(Error::Corrupt {
                    path: self.path.to_string(),
                    offset: Some(self.read_bytes),
                    reason: "it is one JSON array and ends before the array does".into(),
                    hint: Some("it may have been cut short; fetch or write it again".into()),
                });
            }
        }
        Ok(count)
    }

    fn is_eager(&self) -> bool {
        self.inner.is_eager()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::as_told;

    struct Pieces(Vec<u8>, usize);

    impl ByteInput for Pieces {
        fn read(&mut self, out: &mut [u8]) -> Result<usize> {
            let count = out.len().min(self.0.len() - self.1);
            out[..count].copy_from_slice(&self.0[self.1..self.1 + count]);
            self.1 += count;
            Ok(count)
        }
    }

    fn read(text: &str, piece: usize) -> Result<String> {
        let mut input = JsonInput::new(Box::new(Pieces(text.into(), 0)), "x".into());
        let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            let count = input.read(&mut buffer)?;
            all.extend_from_slice(&buffer[..count]);
            if count < piece {
                return Ok(String::from_utf8(all).unwrap());
            }
        }
    }

    #[test]
    fn an_array_becomes_lines_and_lines_stay_what_they_are() {
        for piece in [4, 5, 7, 100] {
            let mark = "\u{feff}";
            assert_eq!(
                read(&format!("{mark}[{{\"a\":\n1}},\n{{}}]\n"), piece).unwrap(),
                format!("{mark} {{\"a\": 1}}\n {{}}\n ")
            );
            assert_eq!(read("{\"a\": [1,\n", piece).unwrap(), "{\"a\": [1,\n");
            assert_eq!(read("", piece).unwrap(), "");
            let error = as_told(read("[{\"a\": 1},\n{\"a\"", piece).unwrap_err());
            assert!(error.contains("ends before the array does"), "{error}");
        }
    }
}
