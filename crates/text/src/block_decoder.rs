//! Blocks of records to batches: what all formats share.
//!
//! ```text
//!   block ─ window ─ Tokenizer ─► spans per column ─ filter ─► leaves ─► batch
//!              │         └ irregular ┐                  └ a value is wrong ┐
//!              └─────────────────────┴── record by record ◄────────────────┘
//!                                            └ faults
//! ```
//!
//! A block is read a window of some tens of kilobytes at a time, so that the text, the
//! positions of its separators and the spans stay in the first caches between passes. A
//! window in which everything is regular costs nothing per record for bookkeeping. If anything
//! in it is not, what was taken of it is forgotten and its records are read one by one, which
//! is exact about each and slower.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{FieldRef, Schema, SchemaRef};

use crate::array_builders::DecodingContext;
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::predicate_filter::SpanFilter;
use crate::text_fault::{RejectedTextRecord, TextFault, TextFaultKind};
use crate::type_mismatches::{BlockColumnMismatches, ColumnMismatchTally};
use crate::unknown_keys::{BlockUnknownKey, KeyTally};

/// Text that is looked at in one go.
pub(crate) const WINDOW_BYTES: usize = 32 << 10;
/// The largest block.
pub(crate) const BLOCK_BYTES_MAX: usize = crate::value_span::ValueSpan::BYTES_MAX;
/// Values of a batch at most, nulls included: a record of JSON may have thousands of keys, and a null takes as much memory
/// as another value, some 28 bytes while a batch is built.
const BATCH_VALUES_MAX: usize = 1 << 20;
/// A batch of any number of columns may have so many rows.
const BATCH_ROWS_MIN: usize = 64;

/// What was decoded.
#[derive(Debug, Default)]
pub struct DecodedBlocks {
    /// Good records, in the order in which they were written.
    pub batches: Vec<RecordBatch>,
    /// Records that were refused, in the same order.
    pub rejected: Vec<RejectedTextRecord>,
    /// Good records, those included that a predicate dropped and those that wait for their batch
    /// to fill up.
    pub rows: u64,
    /// Good records that a predicate dropped.
    pub filtered_rows: u64,
    /// Keys of good records that no column has, each once a block.
    pub unknown_keys: Vec<BlockUnknownKey>,
    /// Occurrences of further such keys, beyond the maximum.
    pub unknown_key_overflow_count: u64,
    /// Values that became null because they are not of their column's type, each column once a block.
    pub mismatches: Vec<BlockColumnMismatches>,
}

impl DecodedBlocks {
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.batches.clear();
        self.rejected.clear();
        self.unknown_keys.clear();
        self.mismatches.clear();
        (self.rows, self.filtered_rows, self.unknown_key_overflow_count) = (0, 0, 0);
    }
}

/// Turns blocks of whole records into record batches.
pub trait BlockDecoder: Send {
    /// The columns of the batches.
    fn schema(&self) -> &SchemaRef;

    /// Decodes `block`, which holds whole records, each with its line end; only the last may
    /// lack it. Rows that fill no batch are kept back, built and not as text, until more follow
    /// or [`finish`](Self::finish) is called.
    ///
    /// A block is of at most 1 GiB: of a longer one, nothing is decoded and all of it is one
    /// refused record.
    fn push(&mut self, block: &[u8], out: &mut DecodedBlocks);

    /// Gives the rows that were kept back.
    fn finish(&mut self, out: &mut DecodedBlocks);

    /// The first record of `block` at or behind `at`, which is where a record starts, with its line
    /// end; blank lines and comments are none. Behind the last one an empty range.
    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize>;

    /// Decodes `block` and keeps nothing back.
    fn decode(&mut self, block: &[u8], out: &mut DecodedBlocks) {
        self.push(block, out);
        self.finish(out);
    }
}

/// What a tokenizer found in a window.
pub(crate) enum TokenizedWindow {
    /// So many regular rows, whose spans the columns have, end at `end`.
    RegularRows { end: usize, rows: usize },
    /// Something that takes a closer look.
    IrregularRows,
    /// The first record takes a closer look; about those behind it, nothing is said.
    IrregularFirstRow,
}

/// Finds records and the spans of their values.
pub(crate) trait Tokenizer: Send {
    /// Takes whole records from `at` on, about [`WINDOW_BYTES`] of them and at most
    /// `rows_max`, and gives every column a span (or nested value) per record. If it answers
    /// [`Window::Irregular`] or [`Window::Doubtful`], what it gave is forgotten by the caller.
    fn tokenize_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
        context: &DecodingContext,
    ) -> TokenizedWindow;

    /// The first record at or behind `at`, exactly, with its line end; blank lines and comments
    /// are none. Behind the last one an empty range.
    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize>;

    /// The same as [`window`](Self::window) for one record, exactly. What it gave before a fault
    /// is forgotten by the caller.
    fn tokenize_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
        context: &DecodingContext,
    ) -> Result<(), TextFault>;

    /// Returns whether a record may begin with a NUL byte. If not, [`window`](Self::window) takes no record that does, and
    /// the decoder refuses it.
    fn accepts_leading_nuls(&self) -> bool {
        false
    }

    /// The path of the value that starts `at` bytes into a record, where it takes the record to
    /// tell: which item of a list it is.
    fn value_path(
        &mut self,
        _record: &[u8],
        _at: usize,
        _columns: &mut [ColumnDecoder],
    ) -> Option<String> {
        None
    }

    /// Why the escapes of a value stand for nothing, and where in it, if they do not.
    fn describe_escape_fault(&self, _value: &[u8]) -> Option<(usize, String)> {
        None
    }

    /// The tally of keys that no column has.
    fn key_tally(&mut self) -> Option<&mut KeyTally> {
        None
    }
}

/// Makes a type that has its `decoder` decode what that decodes.
macro_rules! decodes {
    ($name:ident) => {
        impl $crate::block_decoder::BlockDecoder for $name {
            fn schema(&self) -> &arrow_schema::SchemaRef {
                self.decoder.schema()
            }

            fn push(&mut self, block: &[u8], out: &mut $crate::block_decoder::DecodedBlocks) {
                self.decoder.push(block, out);
            }

            fn finish(&mut self, out: &mut $crate::block_decoder::DecodedBlocks) {
                self.decoder.finish(out);
            }

            fn next_record_range(&self, block: &[u8], at: usize) -> std::ops::Range<usize> {
                self.decoder.next_record_range(block, at)
            }
        }
    };
}
pub(crate) use decodes;

/// A decoder of one format.
pub(crate) struct FormatDecoder<T> {
    tokenizer: T,
    columns: Vec<ColumnDecoder>,
    context: DecodingContext,
    schema: SchemaRef,
    filter: SpanFilter,
    /// Which rows are kept, where that could not be settled before they were built.
    row_selection: Option<BooleanBufferBuilder>,
    batch_rows: usize,
    /// Rows in the columns.
    rows: usize,
    /// Values that became null because they are not of their column's type.
    mismatches: ColumnMismatchTally,
}

impl<T: Tokenizer> FormatDecoder<T> {
    /// A decoder of `fields`; the first of them that text cannot be read as otherwise.
    pub(crate) fn new(
        tokenizer: T,
        fields: &[FieldRef],
        context: DecodingContext,
        filter: SpanFilter,
        batch_rows: usize,
    ) -> Result<Self, FieldRef> {
        Self::with_canonical_columns(tokenizer, fields, &[], context, filter, batch_rows)
    }

    /// A decoder of `fields`, of which those at the positions `canonical` take only
    /// [`canonical`](crate::canonical) values.
    ///
    /// # Errors
    /// The first of the fields that text cannot be read as.
    pub(crate) fn with_canonical_columns(
        tokenizer: T,
        fields: &[FieldRef],
        canonical: &[usize],
        context: DecodingContext,
        filter: SpanFilter,
        batch_rows: usize,
    ) -> Result<Self, FieldRef> {
        let column = |(index, field): (usize, &FieldRef)| {
            let column = match canonical.contains(&index) {
                true => ColumnDecoder::with_canonical_spelling(field, &context),
                false => ColumnDecoder::new(field, &context),
            };
            column.ok_or_else(|| field.clone())
        };
        let columns = fields.iter().enumerate().map(column).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::with_columns(tokenizer, columns, context, filter, batch_rows))
    }

    /// The same of columns that are there, where a format has its own spelling of some.
    pub(crate) fn with_columns(
        tokenizer: T,
        columns: Vec<ColumnDecoder>,
        context: DecodingContext,
        filter: SpanFilter,
        batch_rows: usize,
    ) -> Self {
        let fields: Vec<FieldRef> = columns.iter().map(|column| column.field.clone()).collect();
        let is_flat = columns.iter().all(|column| matches!(column.node, ColumnNode::Leaf { .. }));
        let kept = (!is_flat && !filter.is_empty()).then(|| BooleanBufferBuilder::new(0));
        let leaf_count = columns.iter().map(ColumnDecoder::leaf_count).sum::<usize>().max(1);
        let rows_max = (BATCH_VALUES_MAX / leaf_count).max(BATCH_ROWS_MIN);
        Self {
            mismatches: ColumnMismatchTally::new(columns.len()),
            tokenizer,
            columns,
            context,
            schema: Arc::new(Schema::new(fields)),
            filter,
            row_selection: kept,
            batch_rows: batch_rows.clamp(1, rows_max),
            rows: 0,
        }
    }

    pub(crate) fn tokenizer_mut(&mut self) -> &mut T {
        &mut self.tokenizer
    }

    /// Settles the window's `rows` rows; false if one of them is not what it should be, after
    /// which nothing of the window is left.
    fn build_window(&mut self, block: &[u8], rows: usize, out: &mut DecodedBlocks) -> bool {
        let before = self.rows;
        let mut left = rows;
        if !self.filter.is_empty() {
            left = self.filter.filter_window(
                block,
                &mut self.columns,
                &self.context,
                rows,
                self.row_selection.as_mut(),
            );
        }
        for (index, column) in self.columns.iter_mut().enumerate() {
            if column.build_window(block, &self.context).is_err() {
                self.truncate_rows(before);
                return false;
            }
            if let Some((count, at)) = self.context.mismatches.take() {
                self.mismatches.add(index, count, at);
            }
        }
        self.commit_or_discard_counts(true);
        self.rows = before + left;
        out.rows += rows as u64;
        out.filtered_rows += (rows - left) as u64;
        true
    }

    /// Settles what was counted besides rows: it counts, or is forgotten.
    fn commit_or_discard_counts(&mut self, counts: bool) {
        match counts {
            true => self.mismatches.commit(),
            false => {
                self.context.mismatches.take();
                self.mismatches.discard();
            }
        }
        match self.tokenizer.key_tally() {
            Some(tally) if counts => tally.commit(),
            Some(tally) => tally.discard(),
            None => {}
        }
    }

    fn truncate_rows(&mut self, rows: usize) {
        self.commit_or_discard_counts(false);
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
        if let Some(kept) = &mut self.row_selection
            && kept.len() > rows
        {
            kept.truncate(rows);
        }
        self.rows = rows;
    }

    /// Reads the records that start in `at..until` one by one; returns where the next starts.
    fn decode_records_singly(
        &mut self,
        block: &[u8],
        mut at: usize,
        until: usize,
        out: &mut DecodedBlocks,
    ) -> usize {
        while at < until {
            let record = self.tokenizer.next_record_range(block, at);
            if record.is_empty() {
                return block.len();
            }
            at = record.end;
            if let Err(fault) = self.decode_record(block, record.clone(), out) {
                out.rejected.push(RejectedTextRecord {
                    range: record,
                    fault,
                    rows_before: out.rows,
                });
            } else if self.is_batch_full() {
                self.flush_batch(out);
            }
        }
        at
    }

    fn decode_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        out: &mut DecodedBlocks,
    ) -> Result<(), TextFault> {
        let before = self.rows;
        let start = record.start;
        if !self.tokenizer.accepts_leading_nuls()
            && let Some(fault) = TextFault::from_leading_nuls(&block[record.clone()])
        {
            return Err(fault);
        }
        self.tokenizer
            .tokenize_record(block, record.clone(), &mut self.columns, &self.context)
            .inspect_err(|_| self.columns.iter_mut().for_each(|column| column.truncate(before)))
            .inspect_err(|_| {
                if let Some(tally) = self.tokenizer.key_tally() {
                    tally.discard();
                }
            })?;
        let mut left = 1;
        if !self.filter.is_empty() {
            left = self.filter.filter_window(
                block,
                &mut self.columns,
                &self.context,
                1,
                self.row_selection.as_mut(),
            );
        }
        for index in 0..self.columns.len() {
            let column = &mut self.columns[index];
            if let Err((path, span)) = column.build_window(block, &self.context) {
                let data_type = type_at_path(column, &path);
                let is_string = column.rejects_string(block, span, &data_type);
                self.truncate_rows(before);
                let at = span.start().saturating_sub(start);
                let exact = self.tokenizer.value_path(&block[record], at, &mut self.columns);
                self.truncate_rows(before);
                let path = exact.unwrap_or(path);
                let raw = span.raw_bytes(block);
                if !span.is_plain()
                    && let Some((offset, reason)) = self.tokenizer.describe_escape_fault(raw)
                {
                    return Err(TextFault::in_column(
                        path,
                        at + offset,
                        TextFaultKind::SyntaxError(reason),
                    ));
                }
                let fault = TextFault::from_wrong_type(&path, at, &data_type, raw);
                return Err(if is_string { fault.into_string_fault() } else { fault });
            }
            if let Some((count, at)) = self.context.mismatches.take() {
                self.mismatches.add(index, count, at);
            }
        }
        self.commit_or_discard_counts(true);
        self.rows = before + left;
        out.rows += 1;
        out.filtered_rows += 1 - left as u64;
        Ok(())
    }

    /// Whether the rows are a batch.
    fn is_batch_full(&self) -> bool {
        self.rows >= self.batch_rows || self.columns.iter().any(ColumnDecoder::is_full)
    }

    fn flush_batch(&mut self, out: &mut DecodedBlocks) {
        let rows = std::mem::take(&mut self.rows);
        let kept = self.row_selection.as_mut().map(|kept| BooleanArray::new(kept.finish(), None));
        if rows == 0 {
            return;
        }
        let arrays = self.columns.iter_mut().map(ColumnDecoder::finish).collect::<Option<Vec<_>>>();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = arrays.and_then(|arrays| {
            RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options).ok()
        });
        let batch = match (batch, kept) {
            (Some(batch), Some(kept)) => {
                arrow_select::filter::filter_record_batch(&batch, &kept).ok()
            }
            (batch, _) => batch,
        };
        // Arrays are built of the columns' own fields, as many values in each as there are rows.
        let Some(batch) = batch else { unreachable!("columns of one batch fit together") };
        out.filtered_rows += (rows - batch.num_rows()) as u64;
        if batch.num_rows() > 0 {
            out.batches.push(batch);
        }
    }
}

impl<T: Tokenizer> BlockDecoder for FormatDecoder<T> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn finish(&mut self, out: &mut DecodedBlocks) {
        self.flush_batch(out);
    }

    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize> {
        self.tokenizer.next_record_range(block, at)
    }

    fn push(&mut self, block: &[u8], out: &mut DecodedBlocks) {
        if block.len() > BLOCK_BYTES_MAX {
            let kind = TextFaultKind::RecordTooLong { bytes_max: BLOCK_BYTES_MAX };
            let (range, fault) = (0..block.len(), TextFault::new(0, kind));
            out.rejected.push(RejectedTextRecord { range, fault, rows_before: out.rows });
            return;
        }
        let mut at = 0;
        while at < block.len() {
            let rows_max = self.batch_rows - self.rows;
            let window = self.tokenizer.tokenize_window(
                block,
                at,
                rows_max,
                &mut self.columns,
                &self.context,
            );
            at = match window {
                TokenizedWindow::RegularRows { end, rows } => {
                    debug_assert!(end > at && rows <= rows_max);
                    if self.build_window(block, rows, out) {
                        end
                    } else {
                        self.decode_records_singly(block, at, end, out)
                    }
                }
                TokenizedWindow::IrregularFirstRow => {
                    self.truncate_rows(self.rows);
                    self.decode_records_singly(block, at, at + 1, out)
                }
                TokenizedWindow::IrregularRows => {
                    self.truncate_rows(self.rows);
                    self.decode_records_singly(
                        block,
                        at,
                        at.saturating_add(WINDOW_BYTES).min(block.len()),
                        out,
                    )
                }
            };
            if self.is_batch_full() {
                self.flush_batch(out);
            }
        }
        if let Some(tally) = self.tokenizer.key_tally() {
            out.unknown_key_overflow_count += tally.drain(&mut out.unknown_keys);
        }
        self.mismatches.drain(&mut out.mismatches);
    }
}

/// The type of the part of a column that a path names: steps after `.`, items after `[]`.
fn type_at_path(column: &ColumnDecoder, path: &str) -> arrow_schema::DataType {
    let rest = path.strip_prefix(column.field.name().as_str()).unwrap_or_default();
    match &column.node {
        ColumnNode::Leaf { .. } => column.field.data_type().clone(),
        ColumnNode::Struct { parts, .. } => {
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            let fits = |part: &&ColumnDecoder| {
                rest.strip_prefix(part.field.name().as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            match parts.iter().find(fits) {
                Some(part) => type_at_path(part, rest),
                None => column.field.data_type().clone(),
            }
        }
        ColumnNode::List { item, .. } | ColumnNode::Map { value: item, .. } => {
            let rest = rest.strip_prefix("[]").unwrap_or(rest);
            type_at_path(item, &format!("{}{rest}", item.field.name()))
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::access_log::AccessLogDecoder;
    use crate::csv::CsvDecoder;
    use crate::json::JsonDecoder;
    use crate::lines::LinesDecoder;
    use crate::log_format::{LogFormat, LogFormatDecoder};
    use crate::logfmt::LogfmtDecoder;
    use crate::syslog::{self, SyslogDecoder};
    use crate::{CsvDialect, Options, access_log, lines};

    type DecoderFactory = Box<dyn Fn(Options) -> Box<dyn BlockDecoder>>;

    /// Every text format with records of it.
    fn decoders_with_records() -> Vec<(&'static str, DecoderFactory, Vec<String>)> {
        let text = |name: &str| Arc::new(Field::new(name, DataType::Utf8View, true));
        let csv = move |dialect: CsvDialect, fields: usize| -> DecoderFactory {
            let columns = vec![(0, text("a")), (fields - 1, text("b"))];
            Box::new(move |options| {
                Box::new(CsvDecoder::new(&dialect, fields, columns.clone(), options).unwrap())
            })
        };
        let records = |record: &dyn Fn(usize) -> String| (0..60).map(record).collect::<Vec<_>>();
        let client = |n: usize| format!("10.0.0.{n} - - [10/Oct/2026:13:55:36 -0700]");
        vec![
            ("csv", csv(CsvDialect::default(), 3), records(&|n| format!("{n},\0x,y"))),
            ("quoted csv", csv(CsvDialect::default(), 2), records(&|n| format!("{n},\"x\n\0\""))),
            (
                "escaped csv",
                csv(CsvDialect { escape: Some(b'\\'), ..CsvDialect::default() }, 2),
                records(&|n| format!("{n},\"\\\"\"")),
            ),
            ("one field", csv(CsvDialect::default(), 1), records(&|n| format!("x{n}"))),
            (
                "lines",
                Box::new(|options| {
                    Box::new(LinesDecoder::new(lines::line_columns(), options).unwrap())
                }),
                records(&|n| format!("line {n} \0")),
            ),
            (
                "logfmt",
                Box::new(move |options| {
                    Box::new(LogfmtDecoder::new(vec![text("a")], options).unwrap())
                }),
                records(&|n| format!("a={n} b=\"x\"")),
            ),
            (
                "access log",
                Box::new(|options| {
                    let columns =
                        access_log::access_log_columns().into_iter().enumerate().collect();
                    Box::new(AccessLogDecoder::new(columns, options).unwrap())
                }),
                records(&|n| format!("{} \"GET / HTTP/1.1\" 200 {n} \"-\" \"x\"", client(n))),
            ),
            (
                "access log of two formats",
                Box::new(|options| {
                    let columns =
                        access_log::access_log_columns().into_iter().enumerate().collect();
                    Box::new(AccessLogDecoder::new(columns, options).unwrap())
                }),
                records(&|n| {
                    let more = if n % 2 == 0 { "" } else { " \"-\" \"x\"" };
                    format!("{} \"GET / HTTP/1.1\" 200 {n}{more}", client(n))
                }),
            ),
            (
                "described log",
                Box::new(|options| {
                    let format = LogFormat::new("$host $request_time").unwrap();
                    let columns = format.columns().into_iter().enumerate().collect();
                    Box::new(LogFormatDecoder::new(&format, columns, options).unwrap())
                }),
                records(&|n| format!("a.example {n}.5")),
            ),
            (
                "syslog",
                Box::new(|options| {
                    let columns = syslog::syslog_columns().into_iter().enumerate().collect();
                    let format = syslog::SyslogFormat::default();
                    Box::new(SyslogDecoder::new(columns, &format, options).unwrap())
                }),
                records(&|n| format!("<34>Oct 11 22:14:15 host su: failed {n}")),
            ),
            (
                "json",
                Box::new(move |options| {
                    Box::new(JsonDecoder::new(vec![text("a")], &[], options).unwrap())
                }),
                records(&|n| format!("{{\"a\":{n}}}")),
            ),
        ]
    }

    fn decode_text(make: &DecoderFactory, options: &Options, text: &[u8]) -> DecodedBlocks {
        let mut out = DecodedBlocks::default();
        make(options.clone()).decode(text, &mut out);
        out
    }

    #[test]
    fn record_behind_nuls_is_refused_and_others_are_read() {
        for (name, make, records) in decoders_with_records() {
            for holes in [&[0][..], &[1], &[59], &[0, 1, 7, 8, 40], &[30, 59]] {
                for (count, has_record) in [(1, true), (3, true), (5000, true), (7, false)] {
                    let (mut text, mut rest, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
                    for (at, record) in records.iter().enumerate() {
                        let start = text.len();
                        if holes.contains(&at) {
                            text.resize(start + count, 0);
                        }
                        if has_record || !holes.contains(&at) {
                            text.extend_from_slice(record.as_bytes());
                        }
                        text.push(b'\n');
                        if holes.contains(&at) {
                            ranges.push(start..text.len());
                        } else {
                            rest.extend_from_slice(record.as_bytes());
                            rest.push(b'\n');
                        }
                    }
                    for batch_rows in [1, 7, 8192] {
                        let options = Options { batch_rows, ..Options::default() };
                        let out = decode_text(&make, &options, &text);
                        let expected = decode_text(&make, &options, &rest);
                        assert_eq!(
                            (expected.rejected.len(), expected.rows),
                            (0, 60 - holes.len() as u64)
                        );
                        let found: Vec<_> =
                            out.rejected.iter().map(|bad| bad.range.clone()).collect();
                        assert_eq!(found, ranges, "{name} {count}");
                        for bad in &out.rejected {
                            assert_eq!(
                                bad.fault.kind,
                                TextFaultKind::LeadingNuls { count },
                                "{name}"
                            );
                        }
                        assert_eq!(out.batches, expected.batches, "{name} {holes:?} {count}");
                    }
                }
            }
        }
    }

    #[test]
    fn lines_of_bytes_may_begin_with_nuls() {
        let column = Arc::new(Field::new("line", DataType::BinaryView, true));
        let mut out = DecodedBlocks::default();
        let mut decoder = LinesDecoder::new(vec![column], Options::default()).unwrap();
        decoder.decode(b"\0a\n\0\nb\n", &mut out);
        assert_eq!((out.rows, out.rejected.len()), (3, 0));
    }
}
