//! The framework that all decoders share: it turns blocks of records into batches.
//!
//! ```text
//!   block ─ window ─ Tokenizer ─► spans per column ─ filter ─► array builders ─► batch
//!              │         └ irregular ┐                  └ a value is wrong ┐
//!              └─────────────────────┴── record by record ◄────────────────┘
//!                                            └ faults
//! ```
//!
//! The decoder reads a block one window of some tens of kilobytes at a time, so that the text, the
//! positions of its separators and the spans stay in the first caches between passes. A
//! window in which everything is regular costs no bookkeeping per record. If anything
//! is irregular, the decoder discards its work on the window and reads the records one by one,
//! which is slower and reports each fault exactly.

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

/// Number of bytes that a tokenizer reads in one pass.
pub(crate) const WINDOW_BYTES: usize = 32 << 10;
/// Maximum size of a block.
pub(crate) const BLOCK_BYTES_MAX: usize = crate::value_span::ValueSpan::BYTES_MAX;
/// Maximum number of values in a batch, nulls included: a JSON record may have thousands of keys, and a null
/// takes as much memory as another value, about 28 bytes while the decoder builds a batch.
const BATCH_VALUES_MAX: usize = 1 << 20;
/// Number of rows that a batch may have with any number of columns.
const BATCH_ROWS_MIN: usize = 64;

/// The output of a decoder: batches, rejected records and counts.
#[derive(Debug, Default)]
pub struct DecodedBlocks {
    /// Batches of good records, in the order of the input.
    pub batches: Vec<RecordBatch>,
    /// Rejected records, in the same order.
    pub rejected: Vec<RejectedTextRecord>,
    /// Number of good records, including those that a predicate dropped and those that wait for their batch
    /// to fill up.
    pub rows: u64,
    /// Number of good records that a predicate dropped.
    pub filtered_rows: u64,
    /// Keys of good records that no column has, each once per block.
    pub unknown_keys: Vec<BlockUnknownKey>,
    /// Number of occurrences of further such keys, beyond the maximum number of distinct keys.
    pub unknown_key_overflow_count: u64,
    /// Values that became NULL because they are not of their column's type, one entry per column and block.
    pub mismatches: Vec<BlockColumnMismatches>,
}

impl DecodedBlocks {
    /// Clears everything and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.batches.clear();
        self.rejected.clear();
        self.unknown_keys.clear();
        self.mismatches.clear();
        (self.rows, self.filtered_rows, self.unknown_key_overflow_count) = (0, 0, 0);
    }
}

/// Decodes blocks of whole records into record batches.
pub trait BlockDecoder: Send {
    /// Returns the schema of the batches.
    fn schema(&self) -> &SchemaRef;

    /// Decodes `block`, which holds whole records, each with its line end; only the last record may
    /// lack it. The decoder keeps rows that do not fill a batch, already built, until more rows follow
    /// or [`finish`](Self::finish) is called.
    ///
    /// A block has at most 1 GiB. The decoder rejects a longer block as a single record and decodes
    /// nothing of it.
    fn push(&mut self, block: &[u8], out: &mut DecodedBlocks);

    /// Emits the rows that the decoder kept.
    fn finish(&mut self, out: &mut DecodedBlocks);

    /// Returns the range of the first record of `block` at or after `at`, where a record must start, with its
    /// line end. Blank lines and comments are not records. Returns an empty range after the last record.
    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize>;

    /// Decodes `block` and keeps no rows back.
    fn decode(&mut self, block: &[u8], out: &mut DecodedBlocks) {
        self.push(block, out);
        self.finish(out);
    }
}

/// The result of tokenizing a window.
pub(crate) enum TokenizedWindow {
    /// `rows` regular rows, whose spans the columns hold; they end at `end`.
    RegularRows { end: usize, rows: usize },
    /// Something in the window needs exact decoding.
    IrregularRows,
    /// The first record needs exact decoding; the records after it are unchecked.
    IrregularFirstRow,
}

/// A format's tokenizer, which finds records and the spans of their values.
pub(crate) trait Tokenizer: Send {
    /// Takes whole records from `at` on, about [`WINDOW_BYTES`] of them and at most
    /// `rows_max`, and gives every column one span (or nested value) per record. The caller discards
    /// the spans if the result is [`TokenizedWindow::IrregularRows`] or
    /// [`TokenizedWindow::IrregularFirstRow`].
    fn tokenize_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
        context: &DecodingContext,
    ) -> TokenizedWindow;

    /// Returns the exact range of the first record at or after `at`, with its line end; blank lines and
    /// comments are not records. Returns an empty range after the last record.
    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize>;

    /// Does the same as [`tokenize_window`](Self::tokenize_window) for one record, exactly. The caller
    /// discards the spans that precede a fault.
    fn tokenize_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
        context: &DecodingContext,
    ) -> Result<(), TextFault>;

    /// Returns whether a record may begin with a NUL byte. If not, [`tokenize_window`](Self::tokenize_window)
    /// takes no record that does, and the decoder rejects it.
    fn accepts_leading_nuls(&self) -> bool {
        false
    }

    /// Returns the path of the value that starts `at` bytes into a record, for formats that need the record
    /// to tell which item of a list it is.
    fn value_path(
        &mut self,
        _record: &[u8],
        _at: usize,
        _columns: &mut [ColumnDecoder],
    ) -> Option<String> {
        None
    }

    /// Returns position and reason of the first invalid escape in a value, if there is one.
    fn describe_escape_fault(&self, _value: &[u8]) -> Option<(usize, String)> {
        None
    }

    /// Returns the tally of keys that no column has, for formats with keys.
    fn key_tally(&mut self) -> Option<&mut KeyTally> {
        None
    }
}

/// Implements [`BlockDecoder`] for a type by delegating to its field `decoder`.
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

/// A decoder of one format, generic over the format's tokenizer.
pub(crate) struct FormatDecoder<T> {
    tokenizer: T,
    columns: Vec<ColumnDecoder>,
    context: DecodingContext,
    schema: SchemaRef,
    filter: SpanFilter,
    /// The rows to keep, where nested columns prevent dropping rows before they are built.
    row_selection: Option<BooleanBufferBuilder>,
    batch_rows: usize,
    /// Number of rows in the columns.
    rows: usize,
    /// Values that became NULL because they are not of their column's type.
    mismatches: ColumnMismatchTally,
}

impl<T: Tokenizer> FormatDecoder<T> {
    /// Returns a decoder of `fields`, or the first field of a type that text cannot be read as.
    pub(crate) fn new(
        tokenizer: T,
        fields: &[FieldRef],
        context: DecodingContext,
        filter: SpanFilter,
        batch_rows: usize,
    ) -> Result<Self, FieldRef> {
        Self::with_canonical_columns(tokenizer, fields, &[], context, filter, batch_rows)
    }

    /// Returns a decoder of `fields`. The fields at the positions `canonical` take only
    /// [canonical](crate::canonical_spelling) values.
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

    /// Returns a decoder of existing columns, for formats with their own spelling of some types.
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

    /// Filters and builds the window's `rows` rows. Returns false if a value is wrong; the decoder has then
    /// discarded the window.
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

    /// Commits the counts of keys and mismatches of the window, or discards them.
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

    /// Decodes the records that start in `at..until` one by one; returns the start of the next record.
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

    /// Returns whether the rows fill a batch.
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
        // The columns' own fields define the arrays, with as many values in each as there are rows.
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

/// Returns the type of the part of a column that a path names: fields follow `.`, items follow `[]`.
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

    /// Returns a decoder factory and sample records for every text format.
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
