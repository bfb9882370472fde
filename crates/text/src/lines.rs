//! Plain lines: one column, `line`, and what the formats of one record per line share.
//!
//! Every `\n` ends a line, and a `\r` before it belongs to the line end. An empty line is a
//! row, of an empty string; what follows the last `\n` is one too, unless it is nothing. No
//! line is null. A line that begins with a NUL byte is refused, as a record of any format.
//!
//! Lines are found by `memchr`, and a window is checked to be UTF-8 in one go, which both run
//! at the speed of the first caches. Where only bytes are asked for (Binary or BinaryView),
//! nothing is checked and no line can be refused.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use crate::column::{Column, Node};
use crate::decoder::{Decoder, Tokenizer, WINDOW_BYTES, Window, decodes};
use crate::fault::{Fault, FaultKind};
use crate::filter::Filter;
use crate::leaf::Context;
use crate::span::Span;
use crate::values::Nulls;

/// The one column that lines have: `line`, Utf8View.
///
/// A decoder can also be asked for it as another type that text can be read as, or as Binary
/// or BinaryView, which hold any bytes.
#[must_use]
pub fn columns() -> Vec<FieldRef> {
    vec![Arc::new(Field::new("line", DataType::Utf8View, true))]
}

/// Decodes plain lines.
///
/// ```
/// use tidemill_text::{Decode, Decoded, Options, lines::{LinesDecoder, columns}};
///
/// let mut decoder = LinesDecoder::new(columns(), Options::default()).unwrap();
/// let mut out = Decoded::default();
/// decoder.decode(b"one\r\n\nthree \xff\nfour", &mut out);
/// assert_eq!(out.batches[0].num_rows(), 3);
/// assert_eq!(out.bad[0].fault.at, 6);
/// ```
pub struct LinesDecoder {
    decoder: Decoder<Lines>,
}

impl LinesDecoder {
    /// A decoder of `columns`, each of which is the line: normally one, none to count lines.
    ///
    /// # Errors
    /// The first column of a type that text cannot be read as.
    pub fn new(columns: Vec<FieldRef>, options: crate::Options) -> Result<Self, FieldRef> {
        let context = Context {
            nulls: Nulls::default(),
            // There are no escapes in lines.
            unescape: Arc::new(|_, _| false),
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            has_hex_bytes: false,
        };
        let is_bytes =
            |field: &FieldRef| matches!(field.data_type(), DataType::Binary | DataType::BinaryView);
        let is_text = columns.is_empty() || !columns.iter().all(is_bytes);
        if let Some(nested) = columns.iter().find(|field| field.data_type().is_nested()) {
            return Err(nested.clone());
        }
        let filter = Filter::new(options.predicates, &columns);
        let tokenizer = Lines { is_text };
        let decoder = Decoder::new(tokenizer, &columns, context, filter, options.batch_rows)?;
        Ok(Self { decoder })
    }
}

decodes!(LinesDecoder);

struct Lines {
    /// Whether lines have to be UTF-8.
    is_text: bool,
}

impl Tokenizer for Lines {
    fn window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [Column],
        _: &Context,
    ) -> Window {
        let until = at.saturating_add(WINDOW_BYTES).min(block.len());
        let (mut start, mut rows) = (at, 0);
        let mut take = |line: Range<usize>| {
            let span = trimmed(block, line);
            for column in &mut *columns {
                if let Node::Leaf { spans, .. } = &mut column.node {
                    spans.push(span);
                }
            }
        };
        for end in memchr::memchr_iter(b'\n', &block[at..until]) {
            if rows == rows_max || self.is_text && block[start] == 0 {
                break;
            }
            take(start..at + end + 1);
            start = at + end + 1;
            rows += 1;
        }
        if rows == 0 {
            let line = next_line(block, at);
            if self.is_text && block[line.clone()].first() == Some(&0) {
                return Window::Doubtful;
            }
            start = line.end;
            take(line);
            rows = 1;
        }
        if self.is_text && simdutf8::basic::from_utf8(&block[at..start]).is_err() {
            return Window::Irregular;
        }
        Window::Rows { end: start, rows }
    }

    fn next(&self, block: &[u8], at: usize) -> Range<usize> {
        next_line(block, at)
    }

    fn record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [Column],
        _: &Context,
    ) -> Result<(), Fault> {
        let span = trimmed(block, record.clone());
        for column in &mut *columns {
            if let Node::Leaf { spans, .. } = &mut column.node {
                spans.push(span);
            }
        }
        if self.is_text { check_utf8(block, record, columns) } else { Ok(()) }
    }

    fn takes_leading_nuls(&self) -> bool {
        !self.is_text
    }
}

/// The line at `at`, with its line end; empty at the end of the block.
#[inline]
pub(crate) fn next_line(block: &[u8], at: usize) -> Range<usize> {
    let end = memchr::memchr(b'\n', &block[at..]).map_or(block.len(), |found| at + found + 1);
    at..end
}

/// The same of the next line that `is_blank` says has something in it.
pub(crate) fn next_filled(
    block: &[u8],
    mut at: usize,
    is_blank: impl Fn(&[u8]) -> bool,
) -> Range<usize> {
    loop {
        let line = next_line(block, at);
        if line.is_empty() || !is_blank(&block[trim(block, line.clone())]) {
            return line;
        }
        at = line.end;
    }
}

/// A line without its line end.
#[inline(always)]
pub(crate) fn trim(block: &[u8], line: Range<usize>) -> Range<usize> {
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
fn trimmed(block: &[u8], line: Range<usize>) -> Span {
    span(trim(block, line))
}

/// Bytes of a block as they are.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
pub(crate) fn span(range: Range<usize>) -> Span {
    Span::plain(range.start as u32, range.end as u32)
}

/// Whether a record whose values the columns have just been given is UTF-8: the fault names
/// the column whose value is not, if one was asked for.
pub(crate) fn check_utf8(
    block: &[u8],
    record: Range<usize>,
    columns: &[Column],
) -> Result<(), Fault> {
    let Err(error) = std::str::from_utf8(&block[record.clone()]) else { return Ok(()) };
    let at = record.start + error.valid_up_to();
    let holds = |column: &&Column| match &column.node {
        Node::Leaf { spans, .. } => spans.last().is_some_and(|span| {
            !span.is_null() && (span.start()..span.start() + span.len()).contains(&at)
        }),
        _ => false,
    };
    let mut fault = Fault::new(error.valid_up_to(), FaultKind::Utf8 { field: None });
    fault.column = columns.iter().find(holds).map(|column| column.field.name().clone());
    Err(fault)
}

#[cfg(test)]
pub(crate) mod tests;
