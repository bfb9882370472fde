//! The assertions of the fuzz targets, as functions, so that a test can also run them without a fuzzer.
//!
//! An input consists of three bytes of choices, and text:
//!
//! ```text
//!   flags  batch rows  cuts  text…
//!   bits   0 = 8192    seed of the cuts
//! ```
//!
//! In the seeds the three bytes are printable: `@` sets only bit 6, `A` also bit 0, `H` also bit 3.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use arrow_select::concat::concat_batches;
use tidemill_text::access_log::{AccessLogDecoder, access_log_columns};
use tidemill_text::block_assembly::{AssembledBlock, BlockAssembler};
use tidemill_text::csv::CsvDecoder;
use tidemill_text::json::{JsonDecoder, RecordScanner, detect_layout};
use tidemill_text::logfmt::LogfmtDecoder;
use tidemill_text::record_boundaries::{RecordCutter, RecordGrammar, guess_record_start};
use tidemill_text::syslog::{
    SyslogDecoder, SyslogFormat, SyslogFramer, SyslogFraming, syslog_columns,
};
use tidemill_text::{
    BlockDecoder, CsvDialect, DecodedBlocks, Options, Predicate, RejectedTextRecord, TextFaultKind,
    ValueCondition,
};

#[path = "../../src/csv/model.rs"]
mod model;

/// A decoded input.
struct Input<'a> {
    flags: u8,
    options: Options,
    cuts: Cuts,
    text: &'a [u8],
}

impl<'a> Input<'a> {
    /// Bits 0 to 2 of the flags are options of every format, the other bits of one format.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let [flags, batch_rows, seed, text @ ..] = bytes else { return None };
        let not_null = Predicate { column: 0, condition: ValueCondition::IsNotNull };
        let options = Options {
            batch_rows: if *batch_rows == 0 { 8192 } else { usize::from(*batch_rows) },
            predicates: if flags & 1 == 0 { Vec::new() } else { vec![not_null] },
            mismatch_is_null: flags & 2 != 0,
            checks_skipped_values: flags & 4 != 0,
            ..Options::default()
        };
        Some(Self { flags: *flags, options, cuts: Cuts(u64::from(*seed) | 0x100), text })
    }

    fn flag(&self, bit: u8) -> bool {
        self.flags >> bit & 1 == 1
    }
}

/// Generator of cut positions: xorshift, from a seed that is not 0.
struct Cuts(u64);

impl Cuts {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}

fn field(name: &str, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(name, data_type, true))
}

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Decodes a block and checks that the result is sound.
fn decode(decoder: &mut dyn BlockDecoder, options: &Options, block: &[u8]) -> DecodedBlocks {
    let mut out = DecodedBlocks::default();
    decoder.decode(block, &mut out);
    let mut rows = 0;
    for batch in &out.batches {
        assert_eq!(&batch.schema(), decoder.schema());
        assert!((1..=options.batch_rows).contains(&batch.num_rows()));
        rows += batch.num_rows() as u64;
        for column in batch.columns() {
            column.to_data().validate_full().expect("arrays are valid");
        }
    }
    let is_filtered = !options.predicates.is_empty();
    assert!(rows == out.rows || rows < out.rows && is_filtered);
    let mut behind = 0;
    for record in &out.rejected {
        assert!(behind <= record.range.start && record.range.start < record.range.end);
        assert!(record.fault.offset <= record.range.len());
        assert!(!record.fault.to_string().is_empty());
        behind = record.range.end;
    }
    assert!(behind <= block.len());
    out
}

/// Asserts that blocks cut at some of the records' `ends` give the same result as the whole text, and
/// returns it.
fn whole_and_cut(
    decoder: &mut dyn BlockDecoder,
    input: &mut Input<'_>,
    ends: &[usize],
) -> DecodedBlocks {
    let whole = decode(decoder, &input.options, input.text);
    let keep_one_in = 1 + input.cuts.below(8);
    let mut start = 0;
    let (mut batches, mut rejected, mut rows) = (Vec::new(), Vec::new(), 0);
    for &end in ends.iter().chain([&input.text.len()]) {
        if end < input.text.len() && input.cuts.below(keep_one_in) != 0 {
            continue;
        }
        let part = decode(decoder, &input.options, &input.text[start..end]);
        let before = rows;
        let moved = |record: RejectedTextRecord| RejectedTextRecord {
            range: start + record.range.start..start + record.range.end,
            rows_before: before + record.rows_before,
            ..record
        };
        batches.extend(part.batches);
        rejected.extend(part.rejected.into_iter().map(moved));
        rows += part.rows;
        start = end;
    }
    let one =
        |batches: &[RecordBatch]| concat_batches(decoder.schema(), batches).expect("one schema");
    assert_eq!(one(&whole.batches), one(&batches));
    assert_eq!((&whole.rejected, whole.rows), (&rejected, rows));
    whole
}

/// Returns the record ends that the automaton finds.
fn ends(grammar: RecordGrammar, text: &[u8]) -> Vec<usize> {
    let (mut cutter, mut at, mut ends) = (RecordCutter::new(grammar), 0, Vec::new());
    while let Some(end) = cutter.find_first_record_end(&text[at..]) {
        at += end;
        ends.push(at);
    }
    ends
}

// ----------------------------------------------------------------------------------- CSV

/// Flags from bit 3 on: no quotes, an escape, comments, no null string.
fn dialect(input: &Input<'_>) -> CsvDialect {
    CsvDialect {
        quote: (!input.flag(3)).then_some(b'"'),
        escape: input.flag(4).then_some(b'\\'),
        comment: input.flag(5).then_some(b'#'),
        nulls: if input.flag(6) { Vec::new() } else { vec!["NA".into()] },
        ..CsvDialect::default()
    }
}

/// Number of fields in a record.
const FIELDS: usize = 3;

/// Decodes CSV in blocks, and compares it with `csv-core`.
pub fn csv(bytes: &[u8]) {
    let Some(mut input) = Input::new(bytes) else { return };
    let dialect = dialect(&input);
    let ends = ends(RecordGrammar::from_dialect(&dialect), input.text);
    let typed = vec![
        (2, field("n", DataType::Int64)),
        (0, field("f", DataType::Float64)),
        (1, field("t", utc())),
        (1, field("b", DataType::Boolean)),
    ];
    for columns in [typed, vec![(1, field("d", DataType::Date32))], vec![]] {
        let mut options = input.options.clone();
        options.predicates.truncate(columns.len());
        let decoder = CsvDecoder::new(&dialect, FIELDS, columns, options);
        whole_and_cut(&mut decoder.expect("types of values"), &mut input, &ends);
    }
    let columns: Vec<_> = [0, 2].map(|place| (place, field("c", DataType::Utf8View))).to_vec();
    let decoder = CsvDecoder::new(&dialect, FIELDS, columns, input.options.clone());
    let out = whole_and_cut(&mut decoder.expect("texts"), &mut input, &ends);
    // Records that begin with NUL bytes are rejected, but `csv-core` reads them.
    let is_behind_hole = |record: &RejectedTextRecord| {
        matches!(record.fault.kind, TextFaultKind::LeadingNuls { .. })
    };
    let has_hole = out.rejected.iter().any(is_behind_hole);
    if !has_hole && std::str::from_utf8(input.text).is_ok() {
        compare_with_csv_core(&dialect, &input, &out);
    }
}

fn compare_with_csv_core(dialect: &CsvDialect, input: &Input<'_>, out: &DecodedBlocks) {
    // `csv-core` takes a comment at the end of the input for a record.
    let records = model::records(dialect, &[input.text, b"\n"].concat());
    let (good, bad): (Vec<_>, Vec<_>) = records.into_iter().partition(|r| r.len() == FIELDS);
    let value = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).expect("a part of UTF-8");
        (!dialect.is_null_string(&text)).then_some(text)
    };
    let mut expected: Vec<_> = good.iter().map(|r| [value(&r[0]), value(&r[2])]).collect();
    // An unclosed quote makes the last record malformed; `csv-core` accepts it.
    let is_unclosed =
        out.rejected.last().is_some_and(|record| record.fault.kind == TextFaultKind::UnclosedQuote);
    if is_unclosed && out.rejected.len() > bad.len() {
        expected.pop();
    } else {
        assert_eq!(out.rejected.len(), bad.len());
    }
    assert_eq!(out.rows as usize, expected.len());
    // `csv-core` does not distinguish an empty field in quotes (a text) from one without (a null): both are
    // nulls here.
    let texts = |column: &ArrayRef| -> Vec<Option<String>> {
        let texts = column.as_string_view().iter();
        texts.map(|text| text.filter(|text| !text.is_empty()).map(str::to_owned)).collect()
    };
    let mut found = Vec::new();
    for batch in &out.batches {
        let columns = texts(batch.column(0)).into_iter().zip(texts(batch.column(1)));
        found.extend(columns.map(|(a, b)| [a, b]));
    }
    expected
        .iter_mut()
        .flatten()
        .for_each(|value| *value = value.take().filter(|it| !it.is_empty()));
    if !input.options.predicates.is_empty() {
        expected.retain(|row| row[0].is_some());
        found.retain(|row: &[Option<String>; 2]| row[0].is_some());
    }
    assert_eq!(found, expected);
}

// ---------------------------------------------------------------------------------- JSON

/// Columns of every shape.
fn json_columns() -> Vec<FieldRef> {
    let list = |item| DataType::List(field("item", item));
    let pair = vec![
        Arc::new(Field::new("key", DataType::Utf8, false)),
        field("value", DataType::Utf8View),
    ];
    let entries = Field::new("entries", DataType::Struct(pair.into()), false);
    let item = DataType::Struct(vec![field("x", DataType::Int64)].into());
    let object = vec![field("n", DataType::Int64), field("o", list(item))];
    vec![
        field("a", DataType::Int64),
        field("t", DataType::Utf8View),
        field("f", DataType::Float64),
        field("b", DataType::Boolean),
        field("ts", utc()),
        field("s", DataType::Struct(object.into())),
        field("l", list(list(DataType::Int64))),
        field("m", DataType::Map(Arc::new(entries), false)),
    ]
}

/// Decodes JSON lines in blocks, and compares them with `serde_json` where skipped values are checked.
pub fn json(bytes: &[u8]) {
    let Some(mut input) = Input::new(bytes) else { return };
    let ends = ends(RecordGrammar::LINES, input.text);
    let nulls = if input.flag(3) { vec!["NA".to_owned()] } else { Vec::new() };
    for columns in [json_columns(), json_columns()[1..3].to_vec(), vec![]] {
        let mut options = input.options.clone();
        options.predicates.truncate(columns.len());
        let decoder = JsonDecoder::new(columns, &nulls, options);
        let decoder = decoder.expect("types of values");
        let mut decoder = if input.flag(4) { decoder.with_joined_records() } else { decoder };
        whole_and_cut(&mut decoder, &mut input, &ends);
    }
    sequence(input.text);
    let options = Options { checks_skipped_values: true, ..Options::default() };
    let mut strict = JsonDecoder::new(vec![], &[], options.clone()).expect("no columns");
    for line in input.text.split(|byte| *byte == b'\n') {
        let Some(accepts) = serde_json_accepts(line) else { continue };
        let out = decode(&mut strict, &options, line);
        assert_eq!(out.rejected.is_empty(), accepts, "{:?}", out.rejected);
    }
}

/// Scans a JSON sequence, whole and byte by byte: bytes outside records are only separators.
fn sequence(text: &[u8]) {
    let (mut whole, mut bytes) = (RecordScanner::new(0), RecordScanner::new(0));
    let (mut records, mut again) = (Vec::new(), Vec::new());
    whole.scan(text, &mut records, usize::MAX);
    for byte in text.chunks(1) {
        bytes.scan(byte, &mut again, usize::MAX);
    }
    let broken = whole.finish(&mut records);
    assert_eq!((bytes.finish(&mut again), &again), (broken, &records));
    let end = broken.unwrap_or(text.len() as u64);
    let mut at = 0;
    for record in records.into_iter().chain([end..end]) {
        let between = &text[at as usize..record.start as usize];
        assert!(between.iter().all(|byte| b" \t\r\n\x1e,[]".contains(byte)));
        assert!(record.start <= record.end);
        at = record.end;
    }
    let whole = detect_layout(text, true);
    assert!(detect_layout(&text[..text.len() / 2], false).is_none_or(|early| Some(early) == whole));
}

/// Returns whether a line is an object; `None` where `serde_json` has limits of its own.
fn serde_json_accepts(line: &[u8]) -> Option<bool> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    match serde_json::from_slice::<serde_json::Value>(line) {
        Ok(value) => Some(value.is_object()),
        Err(error) => {
            let message = error.to_string();
            // `serde_json` has limits of its own.
            let is_limit = message.contains("number out of range") || message.contains("recursion");
            (!is_limit).then_some(false)
        }
    }
}

// ------------------------------------------------------------------ logs, a record per line

/// Decodes an access log in blocks.
pub fn access_log(bytes: &[u8]) {
    let Some(mut input) = Input::new(bytes) else { return };
    let ends = ends(RecordGrammar::LINES, input.text);
    let all: Vec<_> = access_log_columns().into_iter().enumerate().collect();
    let texts = (0..all.len()).map(|place| (place, field("c", DataType::Utf8View))).collect();
    let few = vec![all[7].clone(), all[3].clone()];
    for columns in [all, texts, few, vec![]] {
        let mut options = input.options.clone();
        options.predicates.truncate(columns.len());
        let decoder = AccessLogDecoder::new(columns, options);
        whole_and_cut(&mut decoder.expect("types of values"), &mut input, &ends);
    }
}

/// Decodes a system log in blocks; with bit 3, in counted octets.
pub fn syslog(bytes: &[u8]) {
    let Some(mut input) = Input::new(bytes) else { return };
    let framing = if input.flag(3) { SyslogFraming::Octets } else { SyslogFraming::Lines };
    let format = SyslogFormat { framing, reference_seconds: 1_790_000_000, offset_seconds: 3600 };
    let ends = match framing {
        SyslogFraming::Octets => frames(&mut input),
        _ => ends(RecordGrammar::LINES, input.text),
    };
    let all: Vec<_> = syslog_columns().into_iter().enumerate().collect();
    let few = vec![all[9].clone(), (8, field("data", DataType::Utf8View)), all[3].clone()];
    for columns in [all, few, vec![]] {
        let mut options = input.options.clone();
        options.predicates.truncate(columns.len());
        let decoder = SyslogDecoder::new(columns, &format, options);
        whole_and_cut(&mut decoder.expect("types of values"), &mut input, &ends);
    }
}

/// Returns the ends of counted records, and checks that pieces give the same.
fn frames(input: &mut Input<'_>) -> Vec<usize> {
    let (mut framer, mut at, mut ends) = (SyslogFramer::new(), 0, Vec::new());
    while let Some(end) = framer.find_first_record_end(&input.text[at..]) {
        at += end;
        ends.push(at);
    }
    let (mut framer, mut start, mut last) = (SyslogFramer::new(), 0, None);
    while start < input.text.len() {
        let end = input.text.len().min(start + 1 + input.cuts.below(40));
        last = framer.find_last_record_end(&input.text[start..end]).map(|at| start + at).or(last);
        start = end;
    }
    assert_eq!(last, ends.last().copied());
    ends
}

/// Decodes logfmt in blocks.
pub fn logfmt(bytes: &[u8]) {
    let Some(mut input) = Input::new(bytes) else { return };
    let ends = ends(RecordGrammar::LINES, input.text);
    let typed = vec![
        field("a", DataType::Int64),
        field("f", DataType::Float64),
        field("ts", utc()),
        field("slow", DataType::Boolean),
        field("msg", DataType::Utf8View),
    ];
    let texts =
        ["msg", "a", "long_key_name", ""].map(|key| field(key, DataType::Utf8View)).to_vec();
    for columns in [typed, texts, vec![]] {
        let mut options = input.options.clone();
        options.predicates.truncate(columns.len());
        let decoder = LogfmtDecoder::new(columns, options);
        whole_and_cut(&mut decoder.expect("types of values"), &mut input, &ends);
    }
}

// ---------------------------------------------------------------------------------- feed

/// Assembles blocks from pieces: every byte is emitted once and in its place, in whole records, and a dropped
/// record is longer than the limit, which bit 0 sets. With bit 1 every line is a record,
/// otherwise the grammar is that of [`csv`].
pub fn feed(bytes: &[u8]) {
    let Some(mut input) = Input::new(bytes) else { return };
    let lines = input.flag(1);
    let grammar =
        if lines { RecordGrammar::LINES } else { RecordGrammar::from_dialect(&dialect(&input)) };
    let ends = ends(grammar, input.text);
    let limit = if input.flag(0) { input.options.batch_rows } else { usize::MAX };
    let piece_bytes = 1 + input.cuts.below(1 + input.text.len());
    let mut assembler = BlockAssembler::new(grammar, limit);
    let (text, mut seen) = (input.text, 0);
    let mut take = |assembled: AssembledBlock<'_>| {
        let (offset, len) = match assembled {
            AssembledBlock::Records { offset, block } => {
                assert_eq!(block, &text[seen..seen + block.len()]);
                (offset, block.len())
            }
            AssembledBlock::OversizedRecord { offset, bytes } => {
                let end = seen + bytes as usize;
                assert!(bytes > limit as u64);
                assert_eq!(end, ends.iter().copied().find(|e| *e > seen).unwrap_or(text.len()));
                (offset, bytes as usize)
            }
        };
        assert_eq!(offset, seen as u64);
        assert!(len > 0);
        seen += len;
        assert!(seen == text.len() || ends.binary_search(&seen).is_ok());
    };
    let mut start = 0;
    while start < text.len() {
        let end = text.len().min(start + 1 + input.cuts.below(piece_bytes));
        assembler.push(&text[start..end], &mut take);
        assert!(assembler.buffered_bytes() <= limit);
        start = end;
    }
    assembler.finish(&mut take);
    assert_eq!((assembler.buffered_bytes(), seen), (0, text.len()));

    let mut cutter = RecordCutter::new(grammar);
    assert_eq!(cutter.find_last_record_end(text), ends.last().copied());
    let guess = guess_record_start(grammar, text, FIELDS);
    assert!(guess.is_none_or(|at| (1..=text.len()).contains(&at)));
}

#[cfg(test)]
mod tests;
