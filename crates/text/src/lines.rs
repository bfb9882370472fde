//! The decoder of plain lines with one column, `line`, and helpers that formats of one record per line share.
//!
//! Every `\n` ends a line, and a `\r` before it belongs to the line end. An empty line is a
//! row with an empty string. Text after the last `\n` is a line too, unless it is empty. No
//! line is null. The decoder rejects a line that begins with a NUL byte, as in any format.
//!
//! `memchr` finds lines, and one check validates a window's UTF-8; both run
//! at the speed of the first caches. If only bytes are requested (Binary or BinaryView), the decoder
//! checks nothing and rejects no line.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use crate::array_builders::DecodingContext;
use crate::block_decoder::{FormatDecoder, TokenizedWindow, Tokenizer, WINDOW_BYTES, decodes};
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::predicate_filter::SpanFilter;
use crate::text_fault::{TextFault, TextFaultKind};
use crate::value_parsing::NullStrings;
use crate::value_span::ValueSpan;

/// Returns the one column of lines: `line`, Utf8View.
///
/// A caller can also request it as another type that text can be read as, or as Binary
/// or BinaryView, which hold any bytes.
#[must_use]
pub fn line_columns() -> Vec<FieldRef> {
    vec![Arc::new(Field::new("line", DataType::Utf8View, true))]
}

/// A decoder of plain lines.
///
/// ```
/// use tidemill_text::{BlockDecoder, DecodedBlocks, Options, lines::{LinesDecoder, line_columns}};
///
/// let mut decoder = LinesDecoder::new(line_columns(), Options::default()).unwrap();
/// let mut out = DecodedBlocks::default();
/// decoder.decode(b"one\r\n\nthree \xff\nfour", &mut out);
/// assert_eq!(out.batches[0].num_rows(), 3);
/// assert_eq!(out.rejected[0].fault.offset, 6);
/// ```
pub struct LinesDecoder {
    decoder: FormatDecoder<LineTokenizer>,
}

impl LinesDecoder {
    /// Returns a decoder of `columns`, each of which is the line: normally one column, or none to count
    /// lines.
    ///
    /// # Errors
    /// The first column of a type that text cannot be read as.
    pub fn new(columns: Vec<FieldRef>, options: crate::Options) -> Result<Self, FieldRef> {
        let context = DecodingContext {
            nulls: NullStrings::default(),
            // Lines have no escapes.
            unescape: Arc::new(|_, _| false),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            reads_hex_bytes: false,
        };
        let is_bytes =
            |field: &FieldRef| matches!(field.data_type(), DataType::Binary | DataType::BinaryView);
        let is_text = columns.is_empty() || !columns.iter().all(is_bytes);
        if let Some(nested) = columns.iter().find(|field| field.data_type().is_nested()) {
            return Err(nested.clone());
        }
        let filter = SpanFilter::new(options.predicates, &columns);
        let tokenizer = LineTokenizer { requires_utf8: is_text };
        let decoder = FormatDecoder::new(tokenizer, &columns, context, filter, options.batch_rows)?;
        Ok(Self { decoder })
    }
}

decodes!(LinesDecoder);

struct LineTokenizer {
    /// True if lines must be UTF-8.
    requires_utf8: bool,
}

impl Tokenizer for LineTokenizer {
    fn tokenize_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> TokenizedWindow {
        let until = at.saturating_add(WINDOW_BYTES).min(block.len());
        let (mut start, mut rows) = (at, 0);
        let mut take = |line: Range<usize>| {
            let span = trimmed_line_span(block, line);
            for column in &mut *columns {
                if let ColumnNode::Leaf { spans, .. } = &mut column.node {
                    spans.push(span);
                }
            }
        };
        for end in memchr::memchr_iter(b'\n', &block[at..until]) {
            if rows == rows_max || self.requires_utf8 && block[start] == 0 {
                break;
            }
            take(start..at + end + 1);
            start = at + end + 1;
            rows += 1;
        }
        if rows == 0 {
            let line = next_line_range(block, at);
            if self.requires_utf8 && block[line.clone()].first() == Some(&0) {
                return TokenizedWindow::IrregularFirstRow;
            }
            start = line.end;
            take(line);
            rows = 1;
        }
        if self.requires_utf8 && simdutf8::basic::from_utf8(&block[at..start]).is_err() {
            return TokenizedWindow::IrregularRows;
        }
        TokenizedWindow::RegularRows { end: start, rows }
    }

    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize> {
        next_line_range(block, at)
    }

    fn tokenize_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> Result<(), TextFault> {
        let span = trimmed_line_span(block, record.clone());
        for column in &mut *columns {
            if let ColumnNode::Leaf { spans, .. } = &mut column.node {
                spans.push(span);
            }
        }
        if self.requires_utf8 { check_record_utf8(block, record, columns) } else { Ok(()) }
    }

    fn accepts_leading_nuls(&self) -> bool {
        !self.requires_utf8
    }
}

/// Returns the line at `at`, with its line end; empty at the end of the block.
#[inline]
pub(crate) fn next_line_range(block: &[u8], at: usize) -> Range<usize> {
    let end = memchr::memchr(b'\n', &block[at..]).map_or(block.len(), |found| at + found + 1);
    at..end
}

/// Returns the next line that is not blank by `is_blank`, with its line end.
pub(crate) fn next_nonblank_line(
    block: &[u8],
    mut at: usize,
    is_blank: impl Fn(&[u8]) -> bool,
) -> Range<usize> {
    loop {
        let line = next_line_range(block, at);
        if line.is_empty() || !is_blank(&block[trim_line_end(block, line.clone())]) {
            return line;
        }
        at = line.end;
    }
}

/// Returns a line without its line end.
#[inline(always)]
pub(crate) fn trim_line_end(block: &[u8], line: Range<usize>) -> Range<usize> {
    let Range { start, mut end } = line;
    if end > start && block[end - 1] == b'\n' {
        end -= 1;
    }
    if end > start && block[end - 1] == b'\r' {
        end -= 1;
    }
    start..end
}

#[inline(always)]
fn trimmed_line_span(block: &[u8], line: Range<usize>) -> ValueSpan {
    plain_span(trim_line_end(block, line))
}

/// Returns the span of bytes without escapes.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
pub(crate) fn plain_span(range: Range<usize>) -> ValueSpan {
    ValueSpan::new_plain(range.start as u32, range.end as u32)
}

/// Checks that a record is UTF-8 after its values were added to the columns. The fault names
/// the column whose value is not UTF-8, if that column is wanted.
pub(crate) fn check_record_utf8(
    block: &[u8],
    record: Range<usize>,
    columns: &[ColumnDecoder],
) -> Result<(), TextFault> {
    let Err(error) = std::str::from_utf8(&block[record.clone()]) else { return Ok(()) };
    let at = record.start + error.valid_up_to();
    let holds = |column: &&ColumnDecoder| match &column.node {
        ColumnNode::Leaf { spans, .. } => spans.last().is_some_and(|span| {
            !span.is_null() && (span.start()..span.start() + span.len()).contains(&at)
        }),
        _ => false,
    };
    let mut fault = TextFault::new(error.valid_up_to(), TextFaultKind::InvalidUtf8 { field: None });
    fault.column = columns.iter().find(holds).map(|column| column.field.name().clone());
    Err(fault)
}

#[cfg(test)]
pub(crate) mod tests;
