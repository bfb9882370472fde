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

use crate::column::{Column, Node};
use crate::fault::{Bad, Fault, FaultKind};
use crate::filter::Filter;
use crate::keys::{KeyTally, UnknownKey};
use crate::leaf::Context;
use crate::mismatches::{ColumnMismatches, MismatchTally};

/// Text that is looked at in one go.
pub(crate) const WINDOW_BYTES: usize = 32 << 10;
/// The largest block.
pub(crate) const BLOCK_BYTES_MAX: usize = crate::span::Span::BYTES_MAX;
/// Values of a batch at most, nulls included: a record of JSON may have thousands of keys, and a null takes as much memory
/// as another value, some 28 bytes while a batch is built.
const BATCH_VALUES_MAX: usize = 1 << 20;
/// A batch of any number of columns may have so many rows.
const BATCH_ROWS_MIN: usize = 64;

/// What was decoded.
#[derive(Debug, Default)]
pub struct Decoded {
    /// Good records, in the order in which they were written.
    pub batches: Vec<RecordBatch>,
    /// Records that were refused, in the same order.
    pub bad: Vec<Bad>,
    /// Good records, those included that a predicate dropped and those that wait for their batch
    /// to fill up.
    pub rows: u64,
    /// Good records that a predicate dropped.
    pub dropped: u64,
    /// Keys of good records that no column has, each once a block.
    pub unknown: Vec<UnknownKey>,
    /// Occurrences of further such keys, beyond the maximum.
    pub unknown_others: u64,
    /// Values that became null because they are not of their column's type, each column once a block.
    pub mismatches: Vec<ColumnMismatches>,
}

impl Decoded {
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.batches.clear();
        self.bad.clear();
        self.unknown.clear();
        self.mismatches.clear();
        (self.rows, self.dropped, self.unknown_others) = (0, 0, 0);
    }
}

/// Turns blocks of whole records into record batches.
pub trait Decode: Send {
    /// The columns of the batches.
    fn schema(&self) -> &SchemaRef;

    /// Decodes `block`, which holds whole records, each with its line end; only the last may
    /// lack it. Rows that fill no batch are kept back, built and not as text, until more follow
    /// or [`finish`](Self::finish) is called.
    ///
    /// A block is of at most 1 GiB: of a longer one, nothing is decoded and all of it is one
    /// refused record.
    fn push(&mut self, block: &[u8], out: &mut Decoded);

    /// Gives the rows that were kept back.
    fn finish(&mut self, out: &mut Decoded);

    /// The first record of `block` at or behind `at`, which is where a record starts, with its line
    /// end; blank lines and comments are none. Behind the last one an empty range.
    fn next_record(&self, block: &[u8], at: usize) -> Range<usize>;

    /// Decodes `block` and keeps nothing back.
    fn decode(&mut self, block: &[u8], out: &mut Decoded) {
        self.push(block, out);
        self.finish(out);
    }
}

/// What a tokenizer found in a window.
pub(crate) enum Window {
    /// So many regular rows, whose spans the columns have, end at `end`.
    Rows { end: usize, rows: usize },
    /// Something that takes a closer look.
    Irregular,
    /// The first record takes a closer look; about those behind it, nothing is said.
    Doubtful,
}

/// Finds records and the spans of their values.
pub(crate) trait Tokenizer: Send {
    /// Takes whole records from `at` on, about [`WINDOW_BYTES`] of them and at most
    /// `rows_max`, and gives every column a span (or nested value) per record. If it answers
    /// [`Window::Irregular`] or [`Window::Doubtful`], what it gave is forgotten by the caller.
    fn window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [Column],
        context: &Context,
    ) -> Window;

    /// The first record at or behind `at`, exactly, with its line end; blank lines and comments
    /// are none. Behind the last one an empty range.
    fn next(&self, block: &[u8], at: usize) -> Range<usize>;

    /// The same as [`window`](Self::window) for one record, exactly. What it gave before a fault
    /// is forgotten by the caller.
    fn record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [Column],
        context: &Context,
    ) -> Result<(), Fault>;

    /// Returns whether a record may begin with a NUL byte. If not, [`window`](Self::window) takes no record that does, and
    /// the decoder refuses it.
    fn takes_leading_nuls(&self) -> bool {
        false
    }

    /// The path of the value that starts `at` bytes into a record, where it takes the record to
    /// tell: which item of a list it is.
    fn path(&mut self, _record: &[u8], _at: usize, _columns: &mut [Column]) -> Option<String> {
        None
    }

    /// Why the escapes of a value stand for nothing, and where in it, if they do not.
    fn escape_fault(&self, _value: &[u8]) -> Option<(usize, String)> {
        None
    }

    /// The tally of keys that no column has.
    fn tally(&mut self) -> Option<&mut KeyTally> {
        None
    }
}

/// Makes a type that has its `decoder` decode what that decodes.
macro_rules! decodes {
    ($name:ident) => {
        impl $crate::decoder::Decode for $name {
            fn schema(&self) -> &arrow_schema::SchemaRef {
                self.decoder.schema()
            }

            fn push(&mut self, block: &[u8], out: &mut $crate::decoder::Decoded) {
                self.decoder.push(block, out);
            }

            fn finish(&mut self, out: &mut $crate::decoder::Decoded) {
                self.decoder.finish(out);
            }

            fn next_record(&self, block: &[u8], at: usize) -> std::ops::Range<usize> {
                self.decoder.next_record(block, at)
            }
        }
    };
}
pub(crate) use decodes;

/// A decoder of one format.
pub(crate) struct Decoder<T> {
    tokenizer: T,
    columns: Vec<Column>,
    context: Context,
    schema: SchemaRef,
    filter: Filter,
    /// Which rows are kept, where that could not be settled before they were built.
    kept: Option<BooleanBufferBuilder>,
    batch_rows: usize,
    /// Rows in the columns.
    rows: usize,
    /// Values that became null because they are not of their column's type.
    mismatches: MismatchTally,
}

impl<T: Tokenizer> Decoder<T> {
    /// A decoder of `fields`; the first of them that text cannot be read as otherwise.
    pub(crate) fn new(
        tokenizer: T,
        fields: &[FieldRef],
        context: Context,
        filter: Filter,
        batch_rows: usize,
    ) -> Result<Self, FieldRef> {
        Self::with_canonical(tokenizer, fields, &[], context, filter, batch_rows)
    }

    /// A decoder of `fields`, of which those at the positions `canonical` take only
    /// [`canonical`](crate::canonical) values.
    ///
    /// # Errors
    /// The first of the fields that text cannot be read as.
    pub(crate) fn with_canonical(
        tokenizer: T,
        fields: &[FieldRef],
        canonical: &[usize],
        context: Context,
        filter: Filter,
        batch_rows: usize,
    ) -> Result<Self, FieldRef> {
        let column = |(index, field): (usize, &FieldRef)| {
            let column = match canonical.contains(&index) {
                true => Column::canonical(field, &context),
                false => Column::new(field, &context),
            };
            column.ok_or_else(|| field.clone())
        };
        let columns = fields.iter().enumerate().map(column).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::with_columns(tokenizer, columns, context, filter, batch_rows))
    }

    /// The same of columns that are there, where a format has its own spelling of some.
    pub(crate) fn with_columns(
        tokenizer: T,
        columns: Vec<Column>,
        context: Context,
        filter: Filter,
        batch_rows: usize,
    ) -> Self {
        let fields: Vec<FieldRef> = columns.iter().map(|column| column.field.clone()).collect();
        let is_flat = columns.iter().all(|column| matches!(column.node, Node::Leaf { .. }));
        let kept = (!is_flat && !filter.is_empty()).then(|| BooleanBufferBuilder::new(0));
        let leaf_count = columns.iter().map(Column::leaf_count).sum::<usize>().max(1);
        let rows_max = (BATCH_VALUES_MAX / leaf_count).max(BATCH_ROWS_MIN);
        Self {
            mismatches: MismatchTally::new(columns.len()),
            tokenizer,
            columns,
            context,
            schema: Arc::new(Schema::new(fields)),
            filter,
            kept,
            batch_rows: batch_rows.clamp(1, rows_max),
            rows: 0,
        }
    }

    pub(crate) fn tokenizer_mut(&mut self) -> &mut T {
        &mut self.tokenizer
    }

    /// Settles the window's `rows` rows; false if one of them is not what it should be, after
    /// which nothing of the window is left.
    fn settle(&mut self, block: &[u8], rows: usize, out: &mut Decoded) -> bool {
        let before = self.rows;
        let mut left = rows;
        if !self.filter.is_empty() {
            left = self.filter.apply(
                block,
                &mut self.columns,
                &self.context,
                rows,
                self.kept.as_mut(),
            );
        }
        for (index, column) in self.columns.iter_mut().enumerate() {
            if column.build(block, &self.context).is_err() {
                self.forget(before);
                return false;
            }
            if let Some((count, at)) = self.context.mismatches.take() {
                self.mismatches.add(index, count, at);
            }
        }
        self.settle_counts(true);
        self.rows = before + left;
        out.rows += rows as u64;
        out.dropped += (rows - left) as u64;
        true
    }

    /// Settles what was counted besides rows: it counts, or is forgotten.
    fn settle_counts(&mut self, counts: bool) {
        match counts {
            true => self.mismatches.commit(),
            false => {
                self.context.mismatches.take();
                self.mismatches.discard();
            }
        }
        match self.tokenizer.tally() {
            Some(tally) if counts => tally.commit(),
            Some(tally) => tally.discard(),
            None => {}
        }
    }

    fn forget(&mut self, rows: usize) {
        self.settle_counts(false);
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
        if let Some(kept) = &mut self.kept
            && kept.len() > rows
        {
            kept.truncate(rows);
        }
        self.rows = rows;
    }

    /// Reads the records that start in `at..until` one by one; returns where the next starts.
    fn carefully(&mut self, block: &[u8], mut at: usize, until: usize, out: &mut Decoded) -> usize {
        while at < until {
            let record = self.tokenizer.next(block, at);
            if record.is_empty() {
                return block.len();
            }
            at = record.end;
            if let Err(fault) = self.one(block, record.clone(), out) {
                out.bad.push(Bad { range: record, fault, rows_before: out.rows });
            } else if self.is_full() {
                self.flush(out);
            }
        }
        at
    }

    fn one(&mut self, block: &[u8], record: Range<usize>, out: &mut Decoded) -> Result<(), Fault> {
        let before = self.rows;
        let start = record.start;
        if !self.tokenizer.takes_leading_nuls()
            && let Some(fault) = Fault::leading_nuls(&block[record.clone()])
        {
            return Err(fault);
        }
        self.tokenizer
            .record(block, record.clone(), &mut self.columns, &self.context)
            .inspect_err(|_| self.columns.iter_mut().for_each(|column| column.truncate(before)))
            .inspect_err(|_| {
                if let Some(tally) = self.tokenizer.tally() {
                    tally.discard();
                }
            })?;
        let mut left = 1;
        if !self.filter.is_empty() {
            left =
                self.filter.apply(block, &mut self.columns, &self.context, 1, self.kept.as_mut());
        }
        for index in 0..self.columns.len() {
            let column = &mut self.columns[index];
            if let Err((path, span)) = column.build(block, &self.context) {
                let data_type = leaf_type(column, &path);
                let is_string = column.refuses_string(block, span, &data_type);
                self.forget(before);
                let at = span.start().saturating_sub(start);
                let exact = self.tokenizer.path(&block[record], at, &mut self.columns);
                self.forget(before);
                let path = exact.unwrap_or(path);
                let raw = span.raw(block);
                if !span.is_plain()
                    && let Some((offset, reason)) = self.tokenizer.escape_fault(raw)
                {
                    return Err(Fault::of(path, at + offset, FaultKind::Syntax(reason)));
                }
                let fault = Fault::wrong_type(&path, at, &data_type, raw);
                return Err(if is_string { fault.of_string() } else { fault });
            }
            if let Some((count, at)) = self.context.mismatches.take() {
                self.mismatches.add(index, count, at);
            }
        }
        self.settle_counts(true);
        self.rows = before + left;
        out.rows += 1;
        out.dropped += 1 - left as u64;
        Ok(())
    }

    /// Whether the rows are a batch.
    fn is_full(&self) -> bool {
        self.rows >= self.batch_rows || self.columns.iter().any(Column::is_full)
    }

    fn flush(&mut self, out: &mut Decoded) {
        let rows = std::mem::take(&mut self.rows);
        let kept = self.kept.as_mut().map(|kept| BooleanArray::new(kept.finish(), None));
        if rows == 0 {
            return;
        }
        let arrays = self.columns.iter_mut().map(Column::finish).collect::<Option<Vec<_>>>();
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
        out.dropped += (rows - batch.num_rows()) as u64;
        if batch.num_rows() > 0 {
            out.batches.push(batch);
        }
    }
}

impl<T: Tokenizer> Decode for Decoder<T> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn finish(&mut self, out: &mut Decoded) {
        self.flush(out);
    }

    fn next_record(&self, block: &[u8], at: usize) -> Range<usize> {
        self.tokenizer.next(block, at)
    }

    fn push(&mut self, block: &[u8], out: &mut Decoded) {
        if block.len() > BLOCK_BYTES_MAX {
            let kind = FaultKind::TooLong { limit: BLOCK_BYTES_MAX };
            let (range, fault) = (0..block.len(), Fault::new(0, kind));
            out.bad.push(Bad { range, fault, rows_before: out.rows });
            return;
        }
        let mut at = 0;
        while at < block.len() {
            let rows_max = self.batch_rows - self.rows;
            let window =
                self.tokenizer.window(block, at, rows_max, &mut self.columns, &self.context);
            at = match window {
                Window::Rows { end, rows } => {
                    debug_assert!(end > at && rows <= rows_max);
                    if self.settle(block, rows, out) {
                        end
                    } else {
                        self.carefully(block, at, end, out)
                    }
                }
                Window::Doubtful => {
                    self.forget(self.rows);
                    self.carefully(block, at, at + 1, out)
                }
                Window::Irregular => {
                    self.forget(self.rows);
                    self.carefully(block, at, at.saturating_add(WINDOW_BYTES).min(block.len()), out)
                }
            };
            if self.is_full() {
                self.flush(out);
            }
        }
        if let Some(tally) = self.tokenizer.tally() {
            out.unknown_others += tally.drain(&mut out.unknown);
        }
        self.mismatches.drain(&mut out.mismatches);
    }
}

/// The type of the part of a column that a path names: steps after `.`, items after `[]`.
fn leaf_type(column: &Column, path: &str) -> arrow_schema::DataType {
    let rest = path.strip_prefix(column.field.name().as_str()).unwrap_or_default();
    match &column.node {
        Node::Leaf { .. } => column.field.data_type().clone(),
        Node::Struct { parts, .. } => {
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            let fits = |part: &&Column| {
                rest.strip_prefix(part.field.name().as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            match parts.iter().find(fits) {
                Some(part) => leaf_type(part, rest),
                None => column.field.data_type().clone(),
            }
        }
        Node::List { item, .. } | Node::Map { value: item, .. } => {
            let rest = rest.strip_prefix("[]").unwrap_or(rest);
            leaf_type(item, &format!("{}{rest}", item.field.name()))
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
    use crate::{Dialect, Options, access_log, lines};

    type Make = Box<dyn Fn(Options) -> Box<dyn Decode>>;

    /// Every text format with records of it.
    fn formats() -> Vec<(&'static str, Make, Vec<String>)> {
        let text = |name: &str| Arc::new(Field::new(name, DataType::Utf8View, true));
        let csv = move |dialect: Dialect, fields: usize| -> Make {
            let columns = vec![(0, text("a")), (fields - 1, text("b"))];
            Box::new(move |options| {
                Box::new(CsvDecoder::new(&dialect, fields, columns.clone(), options).unwrap())
            })
        };
        let records = |record: &dyn Fn(usize) -> String| (0..60).map(record).collect::<Vec<_>>();
        let client = |n: usize| format!("10.0.0.{n} - - [10/Oct/2026:13:55:36 -0700]");
        vec![
            ("csv", csv(Dialect::default(), 3), records(&|n| format!("{n},\0x,y"))),
            ("quoted csv", csv(Dialect::default(), 2), records(&|n| format!("{n},\"x\n\0\""))),
            (
                "escaped csv",
                csv(Dialect { escape: Some(b'\\'), ..Dialect::default() }, 2),
                records(&|n| format!("{n},\"\\\"\"")),
            ),
            ("one field", csv(Dialect::default(), 1), records(&|n| format!("x{n}"))),
            (
                "lines",
                Box::new(|options| Box::new(LinesDecoder::new(lines::columns(), options).unwrap())),
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
                    let columns = access_log::columns().into_iter().enumerate().collect();
                    Box::new(AccessLogDecoder::new(columns, options).unwrap())
                }),
                records(&|n| format!("{} \"GET / HTTP/1.1\" 200 {n} \"-\" \"x\"", client(n))),
            ),
            (
                "access log of two formats",
                Box::new(|options| {
                    let columns = access_log::columns().into_iter().enumerate().collect();
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
                    let columns = syslog::columns().into_iter().enumerate().collect();
                    let format = syslog::Format::default();
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

    fn decoded(make: &Make, options: &Options, text: &[u8]) -> Decoded {
        let mut out = Decoded::default();
        make(options.clone()).decode(text, &mut out);
        out
    }

    #[test]
    fn record_behind_nuls_is_refused_and_others_are_read() {
        for (name, make, records) in formats() {
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
                        let out = decoded(&make, &options, &text);
                        let expected = decoded(&make, &options, &rest);
                        assert_eq!(
                            (expected.bad.len(), expected.rows),
                            (0, 60 - holes.len() as u64)
                        );
                        let found: Vec<_> = out.bad.iter().map(|bad| bad.range.clone()).collect();
                        assert_eq!(found, ranges, "{name} {count}");
                        for bad in &out.bad {
                            assert_eq!(bad.fault.kind, FaultKind::LeadingNuls { count }, "{name}");
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
        let mut out = Decoded::default();
        let mut decoder = LinesDecoder::new(vec![column], Options::default()).unwrap();
        decoder.decode(b"\0a\n\0\nb\n", &mut out);
        assert_eq!((out.rows, out.bad.len()), (3, 0));
    }
}
