//! Cuts a byte stream into blocks of whole records.
//!
//! Large reads fill one buffer. The reader returns the records that end in the buffer as one slice, and moves
//! the beginning of the next record to the front before the next read. A larger record makes the buffer grow,
//! up to [`RECORD_BYTES_MAX`]. Of a record beyond that size the reader returns only the beginning, as a fault
//! ([`BlockFault::TooLarge`]), and skips the rest without keeping it.
//!
//! A power failure leaves files whose end was allocated and never written: NUL bytes up to the end, behind a
//! whole record or within one. The reader returns them as a block of their own
//! ([`BlockFault::TrailingNuls`]), which is rejected as one malformed record. It has an offset and is
//! counted: nobody knows the lost records, so a total without them must not look complete.
//!
//! ```text
//!   buffer  [ spent │ block: whole records │ begun record │ free ]
//!                   └ start                └ scanned up to filled
//! ```

use std::ops::Range;
use std::sync::Arc;

use tidemill_text::json::{self, JsonLayout, RecordScanner};
use tidemill_text::record_boundaries::{CutterState, RecordCutter, RecordGrammar};
use tidemill_text::syslog::SyslogFramer;

use crate::error::{Error, Result};
use crate::files::byte_input::ByteInput;

/// Size of one read, and so of one block, in bytes. CSV from the page cache showed no difference beyond noise
/// from 256 KiB to 4 MiB. JSON, whose decoder holds several times its input, took about twice as long at 4
/// MiB as at 1 MiB or less.
pub(crate) const READ_BYTES: usize = 256 << 10;
/// Maximum number of columns for which reads have their full size; a read of records with more columns is
/// smaller.
const COLUMNS_PER_FULL_READ: usize = 128;
/// Minimum size of a read of records with many columns, in bytes.
const READ_BYTES_MIN: usize = 4 << 10;
/// Maximum size of a record, in bytes.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// Size of the block returned for a larger record: enough for the copy of a rejected record, and one byte
/// that shows that the record goes on.
const OVERSIZED_PREFIX_BYTES: usize = crate::rejects::reject_log::REJECT_COPY_BYTES_MAX + 1;
/// Maximum size of a read behind a range's end, where only the rest of one record is wanted.
const TAIL_READ_BYTES_MAX: usize = 64 << 10;
/// Minimum size of that read; a small range reads a quarter of its length.
const TAIL_READ_BYTES_MIN: usize = 1 << 10;

/// Returns the reason for rejecting a record beyond [`RECORD_BYTES_MAX`].
pub(crate) fn record_too_large_reason() -> String {
    format!("the record is larger than {} MiB", RECORD_BYTES_MAX >> 20)
}

/// The rule that determines where a record ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordFraming {
    /// A line end, according to a grammar.
    Lines(RecordGrammar),
    /// A byte count at the beginning of each record.
    LengthPrefixes,
    /// A line end or the rules of JSON; the first record decides which.
    Json,
}

impl From<RecordGrammar> for RecordFraming {
    fn from(grammar: RecordGrammar) -> Self {
        RecordFraming::Lines(grammar)
    }
}

/// Finds the ends of records.
enum RecordEndFinder {
    Lines(RecordCutter),
    LengthPrefixes(SyslogFramer),
}

impl RecordEndFinder {
    fn new(ends: RecordFraming) -> Self {
        match ends {
            RecordFraming::Lines(grammar) => RecordEndFinder::Lines(RecordCutter::new(grammar)),
            RecordFraming::LengthPrefixes => RecordEndFinder::LengthPrefixes(SyslogFramer::new()),
            // Lines, until the detected layout is another.
            RecordFraming::Json => RecordEndFinder::Lines(RecordCutter::new(RecordGrammar::LINES)),
        }
    }

    fn find_last_end(&mut self, block: &[u8]) -> Option<usize> {
        match self {
            RecordEndFinder::Lines(cutter) => cutter.find_last_record_end(block),
            RecordEndFinder::LengthPrefixes(framer) => framer.find_last_record_end(block),
        }
    }

    fn find_first_end(&mut self, block: &[u8]) -> Option<usize> {
        match self {
            RecordEndFinder::Lines(cutter) => cutter.find_first_record_end(block),
            RecordEndFinder::LengthPrefixes(framer) => framer.find_first_record_end(block),
        }
    }

    /// Returns the state of the line cutter.
    fn state(&self) -> CutterState {
        match self {
            RecordEndFinder::Lines(cutter) => cutter.state(),
            RecordEndFinder::LengthPrefixes(_) => CutterState::RecordStart,
        }
    }

    /// Returns true if a last record without a line end may get one. A length-prefixed record would look
    /// complete by it.
    fn can_append_line_end(&self) -> bool {
        matches!(self, RecordEndFinder::Lines(_))
    }
}

/// JSON values that are not one per line, and their copies rewritten as lines.
struct JsonSequence {
    scanner: RecordScanner,
    /// Offsets in the input of whole records that were not returned yet.
    pending_records: Vec<Range<u64>>,
    /// The records of the last block, one per line.
    lines: Vec<u8>,
    /// For each line its start in `lines`, and the record's range in the buffer.
    line_positions: Vec<(usize, Range<usize>)>,
    /// Path of the input, for messages.
    path: Arc<str>,
}

/// Maximum number of records in a block of a sequence.
const SEQUENCE_RECORDS_MAX: usize = 1 << 16;
/// Up to this size, each read triggers another layout detection of JSON.
const LAYOUT_CHECK_BYTES: usize = 64 << 10;

impl JsonSequence {
    /// Rewrites the pending records as lines. `base` is the input offset of the buffer's first byte; all
    /// records end within the buffer. Returns the range of the records in the buffer.
    fn write_lines(&mut self, buffer: &[u8], base: u64) -> Range<usize> {
        self.lines.clear();
        self.line_positions.clear();
        let index = |offset: u64| {
            let index = usize::try_from(offset.saturating_sub(base)).unwrap_or(usize::MAX);
            index.min(buffer.len())
        };
        for record in self.pending_records.drain(..) {
            let place = index(record.start)..index(record.end);
            let start = self.lines.len();
            if record.is_empty() {
                self.lines.push(json::MISSING_COMMA_MARKER);
            }
            self.lines.extend_from_slice(&buffer[place.clone()]);
            // Within a record a line end is white space, and either line end is invalid in a string.
            let mut line = &mut self.lines[start..];
            while let Some(at) = memchr::memchr(b'\n', line) {
                line[at] = b'\r';
                line = &mut line[at + 1..];
            }
            self.lines.push(b'\n');
            self.line_positions.push((start, place));
        }
        match (self.line_positions.first(), self.line_positions.last()) {
            (Some((_, first)), Some((_, last))) => first.start..last.end,
            _ => 0..0,
        }
    }

    /// Returns the buffer position of a byte of the lines; a line end maps to the end of its record.
    fn buffer_position(&self, at: usize) -> usize {
        let line = self.line_positions.partition_point(|(start, _)| *start <= at).saturating_sub(1);
        self.line_positions
            .get(line)
            .map_or(0, |(start, place)| place.end.min(place.start + at - start))
    }
}

/// Maximum length of a line that declares the field separator, with its line end: `"sep=;"`.
const SEPARATOR_LINE_BYTES_MAX: usize = 9;

/// Returns the separator that a text's first line declares, and the length of that line.
fn parse_separator_line(text: &[u8]) -> Option<(u8, usize)> {
    let is_quoted = text.starts_with(b"\"");
    let rest = text.strip_prefix(b"\"").unwrap_or(text).strip_prefix(b"sep=")?;
    let (&separator, rest) = rest.split_first()?;
    let rest = if is_quoted { rest.strip_prefix(b"\"")? } else { rest };
    let rest = rest.strip_prefix(b"\r").unwrap_or(rest).strip_prefix(b"\n")?;
    // A letter or a digit would be a value, and the line a record.
    let may_separate = separator == b'\t' || separator == b' ' || separator.is_ascii_punctuation();
    (may_separate && separator != b'"').then_some((separator, text.len() - rest.len()))
}

/// The fault of a record that is rejected without decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockFault {
    /// The record is larger than [`RECORD_BYTES_MAX`]; the block is its beginning.
    TooLarge {
        /// True if its first [`RECORD_BYTES_MAX`] bytes end in a run of NUL bytes.
        ends_in_nuls: bool,
    },
    /// The input ends in this many NUL bytes; the block is the record that they cut off, if any.
    TrailingNuls(u64),
}

impl BlockFault {
    /// Describes the fault of a record, of which `record_bytes` bytes are available.
    pub(crate) fn reason(self, record_bytes: usize) -> String {
        match self {
            BlockFault::TooLarge { ends_in_nuls: true } => {
                format!("{}, and NUL bytes make it so", record_too_large_reason())
            }
            BlockFault::TooLarge { ends_in_nuls: false } => record_too_large_reason(),
            BlockFault::TrailingNuls(nuls) => {
                let bytes = if nuls == 1 { "byte stands" } else { "bytes stand" };
                match record_bytes {
                    0 => format!("{nuls} NUL {bytes} in the place of records, up to the end"),
                    _ => format!(
                        "the record is cut off: {nuls} NUL {bytes} behind it, up to the end"
                    ),
                }
            }
        }
    }

    pub(crate) fn is_trailing_nuls(self) -> bool {
        matches!(self, BlockFault::TrailingNuls(_))
    }

    /// Returns true if the record ends in NUL bytes, as far as it was read.
    pub(crate) fn ends_in_nuls(self) -> bool {
        matches!(self, BlockFault::TrailingNuls(_) | BlockFault::TooLarge { ends_in_nuls: true })
    }
}

/// Returns the position of the NUL bytes that end an input, if no NUL precedes them. NULs within records are
/// data, as in a list that `find -print0` writes. So is a single NUL behind a record, because a list of one
/// entry ends with it.
fn find_nul_tail(rest: &[u8]) -> Option<usize> {
    let data = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let (data_bytes, nuls) = rest.split_at_checked(data)?;
    let is_tail = match data_bytes {
        [] => !nuls.is_empty(),
        _ => nuls.len() > 1,
    };
    (is_tail && memchr::memchr(0, data_bytes).is_none()).then_some(data)
}

/// A block of whole records, with its position in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextBlock {
    /// Offset of the first byte in the uncompressed file.
    pub(crate) offset: u64,
    /// Line number of the first byte, counted from 1; none if lines are not counted.
    pub(crate) line: Option<u64>,
    /// True if the input ended inside quotes, in this block's last record.
    pub(crate) is_unclosed: bool,
    /// The fault of a record that is rejected without decoding.
    pub(crate) fault: Option<BlockFault>,
    /// True if the block's bytes are records rewritten as lines.
    is_rewritten: bool,
    start: usize,
    end: usize,
}

/// Returns the size of a read behind the limit of a range of `length` bytes, for the end of its last record.
pub(crate) fn tail_read_bytes(length: usize) -> usize {
    (length / 4).clamp(TAIL_READ_BYTES_MIN, TAIL_READ_BYTES_MAX)
}

/// Cuts an input into [`TextBlock`]s.
pub(crate) struct BlockReader {
    input: Box<dyn ByteInput>,
    end_finder: RecordEndFinder,
    /// Scanner for JSON that is not one value per line; `end_finder` finds all other records.
    sequence: Option<JsonSequence>,
    buffer: Vec<u8>,
    /// Start of the bytes that were not returned yet.
    start: usize,
    filled: usize,
    /// End of the bytes that the end finder has inspected.
    scanned_end: usize,
    /// Offset of `buffer[0]` in the uncompressed input.
    buffer_offset: u64,
    /// Records that start at or behind this offset belong to the next range.
    limit: Option<u64>,
    line: Option<u64>,
    /// Field separator that a skipped first line declares.
    declared_separator: Option<u8>,
    /// Sizes of a read before and behind the limit.
    read_bytes: usize,
    tail_read_bytes: usize,
    /// True if the rest of an oversized record is skipped before anything else.
    is_skipping_record: bool,
    has_input_ended: bool,
    is_done: bool,
}

impl BlockReader {
    /// Creates a reader for `input`, whose first byte is at `offset` and starts a record. It ends before the
    /// first record that starts at or behind `limit`.
    pub(crate) fn new(
        input: Box<dyn ByteInput>,
        ends: impl Into<RecordFraming>,
        offset: u64,
        limit: Option<u64>,
    ) -> Self {
        let length = limit.map_or(0, |limit| limit.saturating_sub(offset));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Self {
            input,
            end_finder: RecordEndFinder::new(ends.into()),
            sequence: None,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            scanned_end: 0,
            buffer_offset: offset,
            limit,
            line: None,
            declared_separator: None,
            read_bytes: READ_BYTES,
            tail_read_bytes: tail_read_bytes(length),
            is_skipping_record: false,
            has_input_ended: false,
            is_done: limit.is_some_and(|limit| offset >= limit),
        }
    }

    /// Counts lines from the next byte on, which is in line `line`. For inputs that cannot be read again to
    /// find a line number.
    pub(crate) fn enable_line_counting(&mut self, line: u64) {
        self.line = Some(line);
    }

    /// Sets the size of a read, for callers that want only the first records.
    pub(crate) fn set_read_bytes(&mut self, bytes: usize) {
        self.read_bytes = bytes;
    }

    /// Makes blocks smaller for records with many columns: even a short record has a value or a null in each
    /// column, and all rows of a block are in memory at once.
    pub(crate) fn limit_read_for_columns(&mut self, columns: usize) {
        let bytes = READ_BYTES / columns.div_ceil(COLUMNS_PER_FULL_READ).max(1);
        self.read_bytes = self.read_bytes.min(bytes.max(READ_BYTES_MIN));
    }

    /// Returns the offset of the first byte that was not returned yet. At the end it is the first record
    /// start at or behind the limit.
    pub(crate) fn position(&self) -> u64 {
        self.buffer_offset + self.start as u64
    }

    /// Returns a block's bytes, with a line end after each record. Valid until the next call of
    /// [`next_block`](Self::next_block).
    pub(crate) fn block_bytes(&self, block: TextBlock) -> &[u8] {
        match &self.sequence {
            Some(sequence) if block.is_rewritten => &sequence.lines,
            _ => &self.buffer[block.start..block.end],
        }
    }

    /// Returns the buffer position of a byte of a block, or of the end of its bytes.
    fn buffer_position(&self, block: TextBlock, at: usize) -> usize {
        match &self.sequence {
            Some(sequence) if block.is_rewritten => sequence.buffer_position(at),
            _ => block.start + at,
        }
    }

    /// Returns the input offset of a byte of a block.
    pub(crate) fn input_offset(&self, block: TextBlock, at: usize) -> u64 {
        self.buffer_offset + self.buffer_position(block, at) as u64
    }

    /// Returns the number of the input's line ends between two bytes of a block.
    pub(crate) fn count_line_ends(&self, block: TextBlock, between: Range<usize>) -> u64 {
        let start = if between.start == 0 {
            block.start
        } else {
            self.buffer_position(block, between.start)
        };
        let bytes =
            self.buffer.get(start..self.buffer_position(block, between.end)).unwrap_or_default();
        memchr::memchr_iter(b'\n', bytes).count() as u64
    }

    /// Returns a record of a block as the input has it.
    pub(crate) fn original_record(&self, block: TextBlock, record: Range<usize>) -> &[u8] {
        if !block.is_rewritten {
            return self.block_bytes(block).get(record).unwrap_or_default();
        }
        let end = record.end.checked_sub(1).map_or(0, |last| {
            let is_line_end = self.block_bytes(block).get(last) == Some(&b'\n');
            self.buffer_position(block, last) + usize::from(!is_line_end)
        });
        self.buffer.get(self.buffer_position(block, record.start)..end).unwrap_or_default()
    }

    /// Detects the layout of the JSON behind the skipped bytes. Must be called before the first block.
    ///
    /// # Errors
    /// Those of the input.
    pub(crate) fn detect_json_layout(&mut self, shown: &Arc<str>) -> Result<()> {
        let mut looked_at = 0;
        loop {
            let head = &self.buffer[self.start.min(self.filled)..self.filled];
            // Each detection scans all of a long first record, so detections become rarer as it grows.
            let step = if head.len() < LAYOUT_CHECK_BYTES { 1 } else { head.len() / 8 };
            if head.len() >= looked_at + step
                || self.has_input_ended
                || head.len() > RECORD_BYTES_MAX
            {
                looked_at = head.len();
                let is_all = self.has_input_ended || head.len() > RECORD_BYTES_MAX;
                match json::detect_layout(head, is_all) {
                    None => {}
                    Some(JsonLayout::Lines) => return Ok(()),
                    Some(JsonLayout::Sequence) => break,
                }
            }
            self.fill_buffer()?;
        }
        self.sequence = Some(JsonSequence {
            scanner: RecordScanner::new(self.buffer_offset + self.start as u64),
            pending_records: Vec::new(),
            lines: Vec::new(),
            line_positions: Vec::new(),
            path: Arc::clone(shown),
        });
        Ok(())
    }

    /// Returns up to `count` bytes from the beginning of the input without consuming them, such as a
    /// byte-order mark. Must be called before the first block.
    pub(crate) fn peek(&mut self, count: usize) -> Result<&[u8]> {
        while self.filled < count && !self.has_input_ended {
            self.fill_buffer()?;
        }
        Ok(&self.buffer[..self.filled.min(count)])
    }

    /// Returns all bytes that were read and not returned yet.
    pub(crate) fn buffered_bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.filled]
    }

    /// Skips bytes that [`peek`](Self::peek) returned.
    pub(crate) fn skip_bytes(&mut self, count: usize) {
        self.start += count;
        self.scanned_end = self.start;
    }

    /// Reads a first line that declares the field separator (`sep=;`), as spreadsheets write it, behind
    /// `mark` bytes of a byte-order mark. Returns the length of the line, or 0. Must be called before the
    /// first block.
    pub(crate) fn read_separator_line(&mut self, mark: usize) -> Result<usize> {
        let head = self.peek(mark + SEPARATOR_LINE_BYTES_MAX)?;
        let Some((separator, used)) = parse_separator_line(head.get(mark..).unwrap_or_default())
        else {
            return Ok(0);
        };
        self.declared_separator = Some(separator);
        if let Some(line) = &mut self.line {
            *line += 1;
        }
        Ok(used)
    }

    /// Skips lines whatever they contain; fewer if the input ends earlier. A line ends in `\n`, `\r\n` or a
    /// lone `\r`. Must be called before the first block.
    ///
    /// # Errors
    /// Those of the input.
    pub(crate) fn skip_lines(&mut self, mut lines: u64) -> Result<()> {
        // A line feed right behind `\r` belongs to the line that was skipped last.
        let mut is_behind_cr = false;
        while lines > 0 || is_behind_cr {
            if self.start == self.filled {
                if self.has_input_ended {
                    break;
                }
                self.scanned_end = self.start;
                self.fill_buffer()?;
                continue;
            }
            let rest = &self.buffer[self.start..self.filled];
            if std::mem::take(&mut is_behind_cr) && rest.first() == Some(&b'\n') {
                self.start += 1;
                self.count_line();
                continue;
            }
            if lines == 0 {
                break;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.start = self.filled;
                continue;
            };
            is_behind_cr = rest[end] == b'\r';
            self.start += end + 1;
            lines -= 1;
            if !is_behind_cr {
                self.count_line();
            }
        }
        self.scanned_end = self.start;
        Ok(())
    }

    /// Leaves the first record to the next range if it begins at or behind the limit, which can happen behind
    /// skipped lines. Must be called before the first block.
    pub(crate) fn end_if_at_limit(&mut self) {
        self.is_done = self.limit.is_some_and(|limit| self.position() >= limit);
    }

    /// Counts a line feed that was skipped.
    fn count_line(&mut self) {
        if let Some(line) = &mut self.line {
            *line += 1;
        }
    }

    /// Returns the field separator that the first line declares.
    pub(crate) fn declared_separator(&self) -> Option<u8> {
        self.declared_separator
    }

    /// Returns the next block; none after the last.
    ///
    /// # Errors
    /// Those of the input.
    pub(crate) fn next_block(&mut self) -> Result<Option<TextBlock>> {
        if self.sequence.is_some() {
            return self.next_sequence_block();
        }
        if self.is_skipping_record {
            self.skip_oversized_rest()?;
        }
        loop {
            if self.is_done {
                return Ok(None);
            }
            if let Some(end) = self.find_block_end() {
                return Ok(Some(self.emit_block(end, false)));
            }
            if self.has_input_ended {
                self.is_done = true;
                let unclosed =
                    matches!(self.end_finder.state(), CutterState::Quoted | CutterState::Escaped);
                if self.filled == self.start {
                    return Ok(None);
                }
                if let Some(data) = find_nul_tail(&self.buffer[self.start..self.filled]) {
                    let nuls = (self.filled - self.start - data) as u64;
                    let block = self.emit_block(self.start + data, false);
                    self.start = self.filled;
                    return Ok(Some(TextBlock {
                        fault: Some(BlockFault::TrailingNuls(nuls)),
                        ..block
                    }));
                }
                // Decoders end a record at its line end, so the last record gets one.
                if self.buffer[self.filled - 1] != b'\n' && self.end_finder.can_append_line_end() {
                    if self.filled == self.buffer.len() {
                        self.buffer.push(0);
                    }
                    self.buffer[self.filled] = b'\n';
                    let block = self.emit_block(self.filled + 1, unclosed);
                    self.start = self.filled;
                    return Ok(Some(block));
                }
                return Ok(Some(self.emit_block(self.filled, unclosed)));
            }
            // The whole record so far was inspected, and its end is not there.
            if self.filled - self.start > RECORD_BYTES_MAX {
                self.is_skipping_record = true;
                let (offset, line) = (self.position(), self.line);
                let ends_in_nuls = find_nul_tail(&self.buffer[self.start..self.filled]).is_some();
                let fault = Some(BlockFault::TooLarge { ends_in_nuls });
                let (start, end) = (self.start, self.start + OVERSIZED_PREFIX_BYTES);
                return Ok(Some(TextBlock {
                    offset,
                    line,
                    is_unclosed: false,
                    fault,
                    is_rewritten: false,
                    start,
                    end,
                }));
            }
            self.fill_buffer()?;
        }
    }

    /// Returns the next block of JSON values.
    ///
    /// # Errors
    /// Those of the input, and [`Error::Corrupt`] for an array that ends early.
    fn next_sequence_block(&mut self) -> Result<Option<TextBlock>> {
        loop {
            let Some(sequence) = self.sequence.as_mut().filter(|_| !self.is_done) else {
                return Ok(None);
            };
            let JsonSequence { scanner, pending_records: records, .. } = sequence;
            let piece = &self.buffer[self.scanned_end..self.filled];
            self.scanned_end += scanner.scan(piece, records, SEQUENCE_RECORDS_MAX);
            let is_scanned = self.scanned_end == self.filled;
            let mut broken = scanner.broken_array_offset();
            let is_last = self.has_input_ended && is_scanned && records.is_empty();
            if is_last {
                broken = scanner.finish(records);
                self.is_done = records.is_empty();
            }
            if let Some(offset) = broken {
                return Err(Error::Corrupt {
                    path: sequence.path.to_string(),
                    offset: Some(offset),
                    reason: "an array of records begins in it, and it ends before the array does"
                        .into(),
                    hint: Some("it may have been cut short; fetch or write it again".into()),
                });
            }
            // The first record is the rest of an oversized one.
            if self.is_skipping_record && !records.is_empty() {
                records.remove(0);
                self.is_skipping_record = false;
            }
            // Records that begin at or behind the limit belong to the next range.
            if let Some(limit) = self.limit {
                let ours = records.partition_point(|record| record.start < limit);
                self.is_done |= ours < records.len();
                records.truncate(ours);
                let is_behind = self.buffer_offset + self.scanned_end as u64 >= limit;
                let is_between = scanner.begun_record_offset().is_none_or(|start| start >= limit);
                self.is_done |=
                    is_behind && is_between && !scanner.is_in_array() && records.is_empty();
            }
            if let Some(record) = records.first() {
                let start = record.start.checked_sub(self.buffer_offset);
                let start = start.and_then(|start| usize::try_from(start).ok());
                let nuls =
                    start.filter(|_| is_last).and_then(|start| self.emit_trailing_nuls(start));
                return Ok(Some(nuls.unwrap_or_else(|| self.emit_sequence_lines())));
            }
            // All other scanned bytes lie between records, except for one that has begun.
            let begun = scanner.begun_record_offset().filter(|_| !self.is_skipping_record);
            let begun = begun
                .and_then(|start| usize::try_from(start.checked_sub(self.buffer_offset)?).ok());
            self.advance_to(begun.unwrap_or(self.scanned_end));
            if !is_scanned || self.is_done {
                continue;
            }
            if self.filled - self.start > RECORD_BYTES_MAX {
                self.is_skipping_record = true;
                let ends_in_nuls = find_nul_tail(&self.buffer[self.start..self.filled]).is_some();
                let (start, end) = (self.start, self.start + OVERSIZED_PREFIX_BYTES);
                return Ok(Some(TextBlock {
                    offset: self.position(),
                    line: self.line,
                    is_unclosed: false,
                    fault: Some(BlockFault::TooLarge { ends_in_nuls }),
                    is_rewritten: false,
                    start,
                    end,
                }));
            }
            if self.is_skipping_record {
                self.clear_consumed_buffer();
            }
            self.fill_buffer()?;
        }
    }

    /// Returns the last record of a sequence, which begins at `start` in the buffer, if the input ends in NUL
    /// bytes.
    fn emit_trailing_nuls(&mut self, start: usize) -> Option<TextBlock> {
        let rest = self.buffer.get(start..self.filled)?;
        let (data, bytes) = (find_nul_tail(rest)?, rest.len());
        self.advance_to(start);
        let block = self.emit_block(start + data, false);
        (self.start, self.is_done) = (self.filled, true);
        Some(TextBlock { fault: Some(BlockFault::TrailingNuls((bytes - data) as u64)), ..block })
    }

    /// Returns the whole records of a sequence as a block.
    fn emit_sequence_lines(&mut self) -> TextBlock {
        let place = match &mut self.sequence {
            Some(sequence) => sequence.write_lines(&self.buffer[..self.filled], self.buffer_offset),
            None => self.start..self.start,
        };
        self.advance_to(place.start);
        let block = TextBlock {
            offset: self.position(),
            line: self.line,
            is_unclosed: false,
            fault: None,
            is_rewritten: true,
            start: place.start,
            end: place.end,
        };
        self.advance_to(place.end);
        block
    }

    /// Advances to a position in the buffer, and counts lines.
    fn advance_to(&mut self, to: usize) {
        if let (Some(line), Some(bytes)) = (&mut self.line, self.buffer.get(self.start..to)) {
            *line += memchr::memchr_iter(b'\n', bytes).count() as u64;
        }
        self.start = self.start.max(to);
    }

    /// Skips the rest of a record whose beginning fills the buffer.
    fn skip_oversized_rest(&mut self) -> Result<()> {
        self.is_skipping_record = false;
        loop {
            let spent = &self.buffer[self.start..self.filled];
            if let Some(line) = &mut self.line {
                *line += memchr::memchr_iter(b'\n', spent).count() as u64;
            }
            self.clear_consumed_buffer();
            if self.has_input_ended {
                self.is_done = true;
                return Ok(());
            }
            self.fill_buffer()?;
            let Some(end) = self.end_finder.find_first_end(&self.buffer[..self.filled]) else {
                continue;
            };
            if let Some(line) = &mut self.line {
                *line += memchr::memchr_iter(b'\n', &self.buffer[..end]).count() as u64;
            }
            (self.start, self.scanned_end) = (end, end);
            self.is_done = self.limit.is_some_and(|limit| self.position() >= limit);
            return Ok(());
        }
    }

    /// Empties the buffer, all of which is consumed.
    fn clear_consumed_buffer(&mut self) {
        self.buffer_offset += self.filled as u64;
        (self.start, self.filled, self.scanned_end) = (0, 0, 0);
        self.buffer.truncate(self.read_bytes + 1);
        self.buffer.shrink_to_fit();
    }

    /// Returns the hint for a record that is too large.
    pub(crate) fn too_large_hint(&self) -> &'static str {
        match self.end_finder.state() {
            CutterState::Quoted | CutterState::Escaped | CutterState::QuoteInQuoted => {
                "a quote in it may never be closed; if quotes are plain text here, turn quoting off: \
                 --quote '' (job file: source.options, quote = false); --max-bad N or N% skips the \
                 record"
            }
            _ => {
                "is this the right format? --source-format names another (job file: \
                 source.format); --max-bad N or N% skips the record"
            }
        }
    }

    fn emit_block(&mut self, end: usize, unclosed: bool) -> TextBlock {
        let block = TextBlock {
            offset: self.position(),
            line: self.line,
            is_unclosed: unclosed,
            fault: None,
            is_rewritten: false,
            start: self.start,
            end,
        };
        self.start = end;
        if let Some(line) = &mut self.line {
            *line += memchr::memchr_iter(b'\n', &self.buffer[block.start..end]).count() as u64;
        }
        block
    }

    /// Inspects the new bytes and returns the end of the last whole record of this range.
    fn find_block_end(&mut self) -> Option<usize> {
        // A record that ends exactly at the limit is followed by one of the next range, so its end may be
        // found from one byte before the limit on.
        let last_chance = self.limit.map(|limit| {
            usize::try_from(limit.saturating_sub(self.buffer_offset).saturating_sub(1))
                .unwrap_or(usize::MAX)
        });
        let mut found = None;
        let inside =
            last_chance.map_or(self.filled, |at| at.min(self.filled)).max(self.scanned_end);
        if inside > self.scanned_end {
            let from = self.scanned_end;
            found = self.end_finder.find_last_end(&self.buffer[from..inside]).map(|end| from + end);
            self.scanned_end = inside;
        }
        if last_chance.is_some_and(|at| self.scanned_end >= at) && self.scanned_end < self.filled {
            let from = self.scanned_end;
            match self.end_finder.find_first_end(&self.buffer[from..self.filled]) {
                Some(end) => {
                    self.is_done = true;
                    self.scanned_end = from + end;
                    return Some(from + end);
                }
                None => self.scanned_end = self.filled,
            }
        }
        found
    }

    /// Reads more bytes behind the buffered ones.
    fn fill_buffer(&mut self) -> Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.buffer_offset += self.start as u64;
            self.scanned_end -= self.start;
            self.filled -= self.start;
            self.start = 0;
        }
        let end = self.buffer_offset + self.filled as u64;
        let wanted = match self.limit {
            Some(limit) if end >= limit => self.tail_read_bytes.max(self.filled),
            Some(limit) => {
                let left = usize::try_from(limit - end).unwrap_or(usize::MAX);
                // Includes the last record's end in the same read if there is room: one read, and one block,
                // for a small range.
                let all = left.saturating_add(self.tail_read_bytes);
                if all <= self.read_bytes { all } else { left.min(self.read_bytes) }
            }
            None => self.read_bytes,
        }
        // Doubling keeps the work for a huge record linear.
        .max(if self.filled >= self.read_bytes { self.filled } else { 0 })
        .min(RECORD_BYTES_MAX + 1 - self.filled);
        if self.buffer.len() < self.filled + wanted {
            // One extra byte, for the line end that a last record may lack.
            self.buffer.resize(self.filled + wanted + 1, 0);
        }
        let count = self.input.read(&mut self.buffer[self.filled..self.filled + wanted])?;
        self.filled += count;
        self.has_input_ended = count == 0 || count < wanted && !self.input.allows_short_reads();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::byte_input::{ByteReadContext, ReaderInput};

    fn blocks(text: &[u8], grammar: RecordGrammar, from: usize, limit: Option<u64>) -> BlockReader {
        let rest = std::io::Cursor::new(text[from..].to_vec());
        let input = ReaderInput::new(Vec::new(), rest, "x".into(), ByteReadContext::default());
        BlockReader::new(Box::new(input), grammar, from as u64, limit)
    }

    fn all(mut blocks: BlockReader) -> (Vec<u8>, u64) {
        let mut text = Vec::new();
        while let Some(block) = blocks.next_block().unwrap() {
            text.extend_from_slice(blocks.block_bytes(block));
        }
        (text, blocks.position())
    }

    #[test]
    fn a_range_holds_the_records_that_start_in_it() {
        let text = b"aa\nbb\ncc\n";
        for (from, limit, expected, end) in [
            (0, 9, &b"aa\nbb\ncc\n"[..], 9),
            (0, 1, b"aa\n", 3),
            (0, 3, b"aa\n", 3),
            (0, 4, b"aa\nbb\n", 6),
            (3, 6, b"bb\n", 6),
            (6, 7, b"cc\n", 9),
            (6, 6, b"", 6),
        ] {
            let found = all(blocks(text, RecordGrammar::LINES, from, Some(limit)));
            assert_eq!(found, (expected.to_vec(), end), "{from}..{limit}");
        }
    }

    #[test]
    fn a_last_record_without_a_line_end_gets_one() {
        assert_eq!(all(blocks(b"a\nb", RecordGrammar::LINES, 0, None)), (b"a\nb\n".to_vec(), 3));
        assert_eq!(all(blocks(b"", RecordGrammar::LINES, 0, None)), (vec![], 0));
        assert_eq!(all(blocks(b"b", RecordGrammar::LINES, 0, Some(1))), (b"b\n".to_vec(), 1));
    }

    #[test]
    fn a_record_larger_than_the_buffer_is_whole() {
        let mut text = vec![b'x'; 3 * READ_BYTES + 17];
        text.push(b'\n');
        text.extend_from_slice(b"y\n");
        let mut blocks = blocks(&text, RecordGrammar::LINES, 0, None);
        let mut found = Vec::new();
        while let Some(block) = blocks.next_block().unwrap() {
            let bytes = blocks.block_bytes(block);
            assert_eq!(bytes.last(), Some(&b'\n'));
            found.extend_from_slice(bytes);
        }
        assert_eq!(found.len(), text.len());
    }

    #[test]
    fn a_record_beyond_the_limit_is_handed_out_in_part_and_passed_over() {
        let large = |quoted: bool, bytes: usize| {
            let mut text = b"short\n".to_vec();
            text.extend_from_slice(if quoted { b"\"\n" } else { b"" });
            text.resize(6 + bytes - usize::from(quoted), b'x');
            text.extend_from_slice(if quoted { b"\"\n" } else { b"\n" });
            text
        };
        let csv = RecordGrammar::from_dialect(&tidemill_text::CsvDialect::default());
        for (grammar, quoted) in [(RecordGrammar::LINES, false), (csv, true)] {
            for (bytes, rest, limit) in [
                (RECORD_BYTES_MAX + 1, &b"next\nlast"[..], None),
                (RECORD_BYTES_MAX + 3 * READ_BYTES, b"next\n", None),
                (RECORD_BYTES_MAX + 100, b"", None),
                // The record began before the limit and belongs to this range; the following one does not.
                (RECORD_BYTES_MAX + 100, b"next\n", Some(7)),
            ] {
                let mut text = large(quoted, bytes);
                let end = text.len() as u64;
                text.extend_from_slice(rest);
                let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
                let mut blocks = blocks(&text, grammar, 0, limit);
                blocks.enable_line_counting(1);
                let (mut whole, mut cut) = (Vec::new(), Vec::new());
                let mut last_line = None;
                while let Some(block) = blocks.next_block().unwrap() {
                    match block.fault {
                        Some(_) => {
                            cut.push((block.offset, block.line, blocks.block_bytes(block).len()))
                        }
                        None => {
                            last_line = block.line;
                            whole.extend_from_slice(blocks.block_bytes(block));
                        }
                    }
                }
                assert_eq!(cut, [(6, Some(2), OVERSIZED_PREFIX_BYTES)]);
                let mut expected = b"short\n".to_vec();
                if limit.is_none() {
                    expected.extend_from_slice(rest);
                    if rest.ends_with(b"t") {
                        expected.push(b'\n');
                    }
                    assert_eq!(blocks.position(), text.len() as u64);
                    if rest == b"next\n" {
                        assert_eq!(last_line, Some(lines));
                    }
                } else {
                    assert_eq!(blocks.position(), end);
                }
                assert!(whole == expected, "{} bytes", whole.len());
            }
        }
    }

    #[test]
    fn a_record_beyond_the_limit_that_never_ends_is_the_last() {
        let mut text = b"short\n".to_vec();
        text.resize(RECORD_BYTES_MAX + 2 * READ_BYTES, b'x');
        let length = text.len() as u64;
        let mut blocks = blocks(&text, RecordGrammar::LINES, 0, None);
        assert_eq!(blocks.next_block().unwrap().map(|block| block.fault.is_some()), Some(false));
        assert_eq!(blocks.next_block().unwrap().map(|block| block.fault.is_some()), Some(true));
        assert_eq!(blocks.next_block().unwrap(), None);
        assert_eq!(blocks.position(), length);
    }

    fn sequence(text: &[u8], limit: Option<u64>) -> BlockReader {
        let rest = std::io::Cursor::new(text.to_vec());
        let input = ReaderInput::new(Vec::new(), rest, "x".into(), ByteReadContext::default());
        let mut blocks = BlockReader::new(Box::new(input), RecordFraming::Json, 0, limit);
        blocks.enable_line_counting(1);
        blocks.detect_json_layout(&"x".into()).unwrap();
        blocks
    }

    #[test]
    fn a_large_record_of_a_sequence_is_handed_out_in_part_and_passed_over() {
        let large = |bytes: usize| {
            let mut text = b"{\"a\":\n\"".to_vec();
            text.resize(bytes - 2, b'x');
            text.extend_from_slice(b"\"}");
            text
        };
        for (bytes, rest) in [
            (RECORD_BYTES_MAX, &b"{}"[..]),
            (RECORD_BYTES_MAX + 1, b"{}"),
            (RECORD_BYTES_MAX + 1, b""),
            (RECORD_BYTES_MAX + 2 * READ_BYTES, b"\n{\n}{}"),
        ] {
            let text = [&b"\n{\n\n}"[..], &large(bytes), rest].concat();
            let mut blocks = sequence(&text, Some(text.len() as u64));
            let (mut whole, mut cut) = (Vec::new(), Vec::new());
            while let Some(block) = blocks.next_block().unwrap() {
                let bytes = blocks.block_bytes(block);
                match block.fault.is_some() {
                    true => cut.push((block.offset, block.line, bytes.len())),
                    false => {
                        for record in bytes.split_inclusive(|byte| *byte == b'\n') {
                            let at = record.as_ptr() as usize - bytes.as_ptr() as usize;
                            let line = block.line.unwrap() + blocks.count_line_ends(block, 0..at);
                            whole.push((blocks.input_offset(block, at), line, record.len()));
                        }
                    }
                }
            }
            let end = 5 + bytes as u64;
            let mut expected = vec![(1, 2, 5)];
            if bytes <= RECORD_BYTES_MAX {
                expected.push((5, 4, bytes + 1));
            }
            match rest.len() {
                0 => {}
                2 => expected.push((end, 5, 3)),
                _ => expected.extend([(end + 1, 6, 4), (end + 4, 7, 3)]),
            }
            assert_eq!(whole, expected, "{bytes} {rest:?}");
            let passed = (5, Some(4), OVERSIZED_PREFIX_BYTES);
            assert_eq!(cut, if bytes > RECORD_BYTES_MAX { vec![passed] } else { vec![] });
            assert_eq!(blocks.position(), text.len() as u64);
        }
    }

    #[test]
    fn a_sequence_ends_with_the_record_that_begins_before_the_limit() {
        let text = b"{\"a\":1} {\"a\":2}\n{\"a\":3}";
        for (limit, records) in [(1, 1), (7, 1), (8, 1), (9, 2), (15, 2), (16, 2), (17, 3), (99, 3)]
        {
            let (found, _) = all(sequence(text, Some(limit)));
            let expected: String = (1..=records).map(|n| format!("{{\"a\":{n}}}\n")).collect();
            assert_eq!(String::from_utf8(found).unwrap(), expected, "{limit}");
        }
    }

    #[test]
    fn white_space_between_records_is_not_kept() {
        let mut text = b"{},".to_vec();
        text.resize(RECORD_BYTES_MAX + 4 * READ_BYTES, b' ');
        text.extend_from_slice(b"{}\n");
        let mut blocks = sequence(&[&text[..], b"{}"].concat(), None);
        assert!(blocks.sequence.is_some());
        let mut found = Vec::new();
        while let Some(block) = blocks.next_block().unwrap() {
            assert!(block.fault.is_none() && blocks.buffer.len() < 4 * READ_BYTES);
            found.extend_from_slice(blocks.block_bytes(block));
        }
        assert_eq!(found, b"{}\n{}\n{}\n");
    }

    #[test]
    fn nul_bytes_at_the_end_are_handed_out_by_themselves() {
        let csv = RecordGrammar::from_dialect(&tidemill_text::CsvDialect::default());
        let large = format!("a\n{}", "\0".repeat(3 * READ_BYTES));
        for (text, records, last) in [
            // The truncated record, its start, and the number of NULs.
            ("a\nb\n\0", "a\nb\n", Some(("", 4, 1))),
            ("a\nb\n\0\0\0", "a\nb\n", Some(("", 4, 3))),
            ("a\nb\0\0", "a\n", Some(("b", 2, 2))),
            ("a\n\"b\nc\0\0", "a\n", Some(("\"b\nc", 2, 2))),
            ("\0\0\0", "", Some(("", 0, 3))),
            (large.as_str(), "a\n", Some(("", 2, 3 * READ_BYTES as u64))),
            // NULs that are data.
            ("a\n\0b\n", "a\n\0b\n", None),
            ("a\n\0\n", "a\n\0\n", None),
            ("a\0b\0", "a\0b\0\n", None),
            ("a\n\0\0b", "a\n\0\0b\n", None),
        ] {
            for grammar in [RecordGrammar::LINES, csv] {
                if grammar == RecordGrammar::LINES && text.contains('"') {
                    continue;
                }
                for limit in [None, Some(3), Some(text.len() as u64)] {
                    let mut blocks = blocks(text.as_bytes(), grammar, 0, limit);
                    let (mut whole, mut nuls) = (String::new(), None);
                    while let Some(block) = blocks.next_block().unwrap() {
                        let bytes = std::str::from_utf8(blocks.block_bytes(block)).unwrap();
                        match block.fault {
                            Some(BlockFault::TrailingNuls(count)) => {
                                nuls = Some((bytes.to_owned(), block.offset, count));
                            }
                            Some(fault) => panic!("{fault:?}"),
                            None => whole.push_str(bytes),
                        }
                    }
                    let last = last.map(|(text, offset, count)| (text.to_owned(), offset, count));
                    // A record that begins at the limit belongs to the next range.
                    let is_ours = |(_, offset, _): &(String, u64, u64)| {
                        limit.is_none_or(|limit| *offset < limit)
                    };
                    if limit == Some(3) && !last.as_ref().is_some_and(is_ours) {
                        assert_eq!(nuls, None, "{text:.20?}");
                        continue;
                    }
                    assert_eq!((whole.as_str(), &nuls), (records, &last), "{text:.20?} {limit:?}");
                    assert_eq!(blocks.position(), text.len() as u64, "{text:.20?}");
                }
            }
        }
    }

    #[test]
    fn lines_are_skipped_whatever_is_in_them_and_however_they_end() {
        let long = format!("{}\nb\n", "\"x".repeat(READ_BYTES));
        for (text, skipped, offset, line) in [
            ("a\nb\nc\n", 0, 0, 1),
            ("a\nb\nc\n", 1, 2, 2),
            ("a\nb\nc\n", 2, 4, 3),
            ("a\nb\nc\n", 3, 6, 4),
            ("a\nb\nc\n", 7, 6, 4),
            ("a\r\nb\r\nc\r\n", 2, 6, 3),
            ("a\r\n", 1, 3, 2),
            ("a\rb\rc\n", 2, 4, 1),
            ("a\r\rb\n", 2, 3, 1),
            ("\n\n\"a\nb\n", 3, 5, 4),
            ("\"a\nb\nc\"\nd\n", 2, 5, 3),
            (&long, 1, 2 * READ_BYTES as u64 + 1, 2),
            ("", 2, 0, 1),
            ("a", 1, 1, 1),
        ] {
            for limit in [None, Some(2), Some(5)] {
                let csv = RecordGrammar::from_dialect(&tidemill_text::CsvDialect::default());
                let mut blocks = blocks(text.as_bytes(), csv, 0, limit);
                blocks.enable_line_counting(1);
                blocks.skip_lines(skipped).unwrap();
                blocks.end_if_at_limit();
                assert_eq!((blocks.position(), blocks.line), (offset, Some(line)), "{text:.9?}");
                let rest = &text[usize::try_from(offset).unwrap()..];
                let is_ours = limit.is_none_or(|limit| offset < limit) && !rest.is_empty();
                let block = blocks.next_block().unwrap();
                assert_eq!(block.is_some(), is_ours, "{text:.9?} {skipped} {limit:?}");
                if let Some(block) = block {
                    assert!(rest.as_bytes().starts_with(blocks.block_bytes(block)), "{text:.9?}");
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn skipped_lines_are_those_of_a_simple_reader(
            text in "[ab\"\n\r]{0,40}", lines in 0..8u64, piece in 1..5usize
        ) {
            struct Pieces(Vec<u8>, usize);
            impl std::io::Read for Pieces {
                fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
                    let count = out.len().min(self.1).min(self.0.len());
                    out[..count].copy_from_slice(&self.0[..count]);
                    self.0.drain(..count);
                    Ok(count)
                }
            }
            let watch = ByteReadContext { allows_short_reads: true, ..ByteReadContext::default() };
            let pieces = Pieces(text.clone().into_bytes(), piece);
            let input = ReaderInput::new(Vec::new(), pieces, "x".into(), watch);
            let mut blocks = BlockReader::new(Box::new(input), RecordGrammar::LINES, 0, None);
            blocks.skip_lines(lines).unwrap();
            let (mut rest, mut expected) = (text.as_str(), 0);
            for _ in 0..lines {
                let Some(end) = rest.find(['\n', '\r']) else {
                    (expected, rest) = (text.len(), "");
                    continue;
                };
                let end = end + if rest[end..].starts_with("\r\n") { 2 } else { 1 };
                (expected, rest) = (expected + end, &rest[end..]);
            }
            proptest::prop_assert_eq!(blocks.position(), expected as u64);
        }
    }

    #[test]
    fn nul_bytes_beyond_the_largest_record_are_named() {
        for (head, expected) in [(&b""[..], true), (b"cut", true), (b"a\0b", false)] {
            let mut text = [b"a\n", head].concat();
            text.resize(text.len() + RECORD_BYTES_MAX + 5, 0);
            let mut blocks = blocks(&text, RecordGrammar::LINES, 0, None);
            assert_eq!(blocks.next_block().unwrap().and_then(|block| block.fault), None);
            let fault = blocks.next_block().unwrap().and_then(|block| block.fault);
            assert_eq!(fault, Some(BlockFault::TooLarge { ends_in_nuls: expected }));
            assert_eq!(blocks.next_block().unwrap(), None);
            assert_eq!(blocks.position(), text.len() as u64);
        }
    }

    #[test]
    fn lines_are_counted_where_asked() {
        let mut blocks = blocks(b"a\nb\nc", RecordGrammar::LINES, 0, None);
        blocks.enable_line_counting(1);
        let block = blocks.next_block().unwrap().unwrap();
        assert_eq!((block.line, block.offset), (Some(1), 0));
        assert_eq!(blocks.block_bytes(block), b"a\nb\n");
        let block = blocks.next_block().unwrap().unwrap();
        assert_eq!((block.line, block.offset), (Some(3), 4));
    }
}
