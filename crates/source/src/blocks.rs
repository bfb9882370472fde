//! Bytes in blocks that hold whole records.
//!
//! One buffer is filled by large reads; the records that end in it are handed out as one
//! slice, and the beginning of the next record is moved to the front before the next read.
//! A record larger than the buffer makes it grow, up to [`RECORD_BYTES_MAX`]. Of a larger one the
//! beginning is handed out ([`Block::is_cut`]), for whoever refuses it, and the rest is passed
//! over without being kept.
//!
//! ```text
//!   buffer  [ spent │ block: whole records │ begun record │ free ]
//!                   └ start                └ scanned up to filled
//! ```

use tidemill_text::cut::{Cutter, Grammar, State};
use tidemill_text::syslog::Framer;

use super::error::Result;
use super::input::ByteInput;

/// One read, and so one block. From 256 KiB to 4 MiB, over a file in the page cache, CSV showed
/// no difference beyond noise; JSON, whose decoder holds several times its input, took about
/// twice as long at 4 MiB as at 1 MiB or less.
pub(crate) const READ_BYTES: usize = 256 << 10;
/// The largest record.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// What is handed out of a larger one: enough for the copy that is kept of a refused record, and
/// one byte that tells that there is more.
const CUT_BYTES: usize = super::reject::KEPT_BYTES_MAX + 1;
/// Behind a range's end only the rest of one record is wanted …
const TAIL_READ_BYTES: usize = 64 << 10;
/// … of which a quarter of a small range is read at first, but no less than this.
const TAIL_READ_BYTES_MIN: usize = 1 << 10;

/// What is wrong with a record that is beyond [`RECORD_BYTES_MAX`].
pub(crate) fn record_too_large() -> String {
    format!("the record is larger than {} MiB", RECORD_BYTES_MAX >> 20)
}

/// What says where a record ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ends {
    /// A line end, by the rules of a grammar.
    Lines(Grammar),
    /// The count of its bytes, which it begins with.
    Counts,
}

impl From<Grammar> for Ends {
    fn from(grammar: Grammar) -> Self {
        Ends::Lines(grammar)
    }
}

/// Finds where records end.
enum Finder {
    Lines(Cutter),
    Counts(Framer),
}

impl Finder {
    fn new(ends: Ends) -> Self {
        match ends {
            Ends::Lines(grammar) => Finder::Lines(Cutter::new(grammar)),
            Ends::Counts => Finder::Counts(Framer::new()),
        }
    }

    fn last_end(&mut self, block: &[u8]) -> Option<usize> {
        match self {
            Finder::Lines(cutter) => cutter.last_end(block),
            Finder::Counts(framer) => framer.last_end(block),
        }
    }

    fn first_end(&mut self, block: &[u8]) -> Option<usize> {
        match self {
            Finder::Lines(cutter) => cutter.first_end(block),
            Finder::Counts(framer) => framer.first_end(block),
        }
    }

    /// Where a cutter of lines stands.
    fn state(&self) -> State {
        match self {
            Finder::Lines(cutter) => cutter.state(),
            Finder::Counts(_) => State::RecordStart,
        }
    }

    /// Whether a last record may be given a line end that it lacks: what is counted would
    /// seem to be whole by it.
    fn ends_with_lines(&self) -> bool {
        matches!(self, Finder::Lines(_))
    }
}

/// The longest line that says what stands between fields, its end included: `"sep=;"`.
const SEPARATOR_BYTES_MAX: usize = 9;

/// What the line that a text begins with says of what stands between fields, and how long it is.
fn separator_line(text: &[u8]) -> Option<(u8, usize)> {
    let is_quoted = text.starts_with(b"\"");
    let rest = text.strip_prefix(b"\"").unwrap_or(text).strip_prefix(b"sep=")?;
    let (&separator, rest) = rest.split_first()?;
    let rest = if is_quoted { rest.strip_prefix(b"\"")? } else { rest };
    let rest = rest.strip_prefix(b"\r").unwrap_or(rest).strip_prefix(b"\n")?;
    // A letter or a digit is a value, and the line a record.
    let may_separate = separator == b'\t' || separator == b' ' || separator.is_ascii_punctuation();
    (may_separate && separator != b'"').then_some((separator, text.len() - rest.len()))
}

/// Whole records and where they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// Offset of the first byte in the uncompressed file.
    pub(crate) offset: u64,
    /// The line of the first byte, the first line being 1, where lines are counted.
    pub(crate) line: Option<u64>,
    /// Whether the input ended inside quotes, in this block's last record.
    pub(crate) unclosed: bool,
    /// Whether it is only the beginning of a record beyond [`RECORD_BYTES_MAX`].
    pub(crate) is_cut: bool,
    start: usize,
    end: usize,
}

/// What is read behind the limit of a range of so many bytes, for the end of its last record.
pub(crate) fn tail_bytes(length: usize) -> usize {
    (length / 4).clamp(TAIL_READ_BYTES_MIN, TAIL_READ_BYTES)
}

/// Cuts an input into [`Block`]s.
pub(crate) struct Blocks {
    input: Box<dyn ByteInput>,
    cutter: Finder,
    buffer: Vec<u8>,
    /// Start of what has not been handed out.
    start: usize,
    filled: usize,
    /// Up to where the cutter has looked.
    scanned: usize,
    /// Offset of `buffer[0]` in the uncompressed input.
    base: u64,
    /// Records that start at or behind this offset are not ours.
    limit: Option<u64>,
    line: Option<u64>,
    /// What a first line that was skipped says of what stands between fields.
    separator: Option<u8>,
    /// What one read asks for, and one behind the limit.
    read_bytes: usize,
    tail_bytes: usize,
    /// Whether the rest of a record is passed over before anything else.
    is_passing: bool,
    ended: bool,
    done: bool,
}

impl Blocks {
    /// Blocks of `input`, whose first byte is at `offset` and starts a record, up to the
    /// first record that starts at or behind `limit`.
    pub(crate) fn new(
        input: Box<dyn ByteInput>,
        ends: impl Into<Ends>,
        offset: u64,
        limit: Option<u64>,
    ) -> Self {
        let length = limit.map_or(0, |limit| limit.saturating_sub(offset));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Self {
            input,
            cutter: Finder::new(ends.into()),
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            scanned: 0,
            base: offset,
            limit,
            line: None,
            separator: None,
            read_bytes: READ_BYTES,
            tail_bytes: tail_bytes(length),
            is_passing: false,
            ended: false,
            done: limit.is_some_and(|limit| offset >= limit),
        }
    }

    /// Counts lines from here on, the next byte being in line `line`: for inputs that cannot
    /// be read a second time to find a line's number.
    pub(crate) fn count_lines(&mut self, line: u64) {
        self.line = Some(line);
    }

    /// Reads less at once than usual: only the first records are wanted.
    pub(crate) fn set_read_bytes(&mut self, bytes: usize) {
        self.read_bytes = bytes;
    }

    /// The offset of the first byte that has not been handed out: at the end, the first
    /// record start at or behind the limit.
    pub(crate) fn position(&self) -> u64 {
        self.base + self.start as u64
    }

    /// A block's bytes; valid until the next block is asked for.
    pub(crate) fn bytes(&self, block: Block) -> &[u8] {
        &self.buffer[block.start..block.end]
    }

    /// Takes the first bytes of the input if they are there, without cutting: a byte-order
    /// mark, say. Must come before the first block.
    pub(crate) fn peek(&mut self, count: usize) -> Result<&[u8]> {
        while self.filled < count && !self.ended {
            self.fill()?;
        }
        Ok(&self.buffer[..self.filled.min(count)])
    }

    /// Skips bytes that [`peek`](Self::peek) has shown.
    pub(crate) fn skip(&mut self, count: usize) {
        self.start += count;
        self.scanned = self.start;
    }

    /// Skips a first line that says what stands between fields, as spreadsheets write and read it
    /// (`sep=;`), behind `mark` bytes of a byte-order mark. Must come before the first block.
    pub(crate) fn skip_separator(&mut self, mark: usize) -> Result<usize> {
        let head = self.peek(mark + SEPARATOR_BYTES_MAX)?;
        let Some((separator, used)) = separator_line(head.get(mark..).unwrap_or_default()) else {
            return Ok(0);
        };
        self.separator = Some(separator);
        if let Some(line) = &mut self.line {
            *line += 1;
        }
        Ok(used)
    }

    /// What a first line says of what stands between fields.
    pub(crate) fn separator(&self) -> Option<u8> {
        self.separator
    }

    /// The next block, or none after the last.
    ///
    /// # Errors
    /// Those of the input.
    pub(crate) fn next_block(&mut self) -> Result<Option<Block>> {
        if self.is_passing {
            self.pass_over()?;
        }
        loop {
            if self.done {
                return Ok(None);
            }
            if let Some(end) = self.cut() {
                return Ok(Some(self.hand_out(end, false)));
            }
            if self.ended {
                self.done = true;
                let unclosed = matches!(self.cutter.state(), State::Quoted | State::Escaped);
                if self.filled == self.start {
                    return Ok(None);
                }
                // The decoders end a record at its line end, so the last one gets one.
                if self.buffer[self.filled - 1] != b'\n' && self.cutter.ends_with_lines() {
                    if self.filled == self.buffer.len() {
                        self.buffer.push(0);
                    }
                    self.buffer[self.filled] = b'\n';
                    let block = self.hand_out(self.filled + 1, unclosed);
                    self.start = self.filled;
                    return Ok(Some(block));
                }
                return Ok(Some(self.hand_out(self.filled, unclosed)));
            }
            // All of it has been looked at, and its end is not there.
            if self.filled - self.start > RECORD_BYTES_MAX {
                self.is_passing = true;
                let (offset, line) = (self.position(), self.line);
                let (start, end) = (self.start, self.start + CUT_BYTES);
                return Ok(Some(Block { offset, line, unclosed: false, is_cut: true, start, end }));
            }
            self.fill()?;
        }
    }

    /// Passes over the rest of a record whose beginning fills the buffer.
    fn pass_over(&mut self) -> Result<()> {
        self.is_passing = false;
        loop {
            let spent = &self.buffer[self.start..self.filled];
            if let Some(line) = &mut self.line {
                *line += memchr::memchr_iter(b'\n', spent).count() as u64;
            }
            self.base += self.filled as u64;
            (self.start, self.filled, self.scanned) = (0, 0, 0);
            if self.ended {
                self.done = true;
                return Ok(());
            }
            self.buffer.truncate(self.read_bytes + 1);
            self.buffer.shrink_to_fit();
            self.fill()?;
            let Some(end) = self.cutter.first_end(&self.buffer[..self.filled]) else { continue };
            if let Some(line) = &mut self.line {
                *line += memchr::memchr_iter(b'\n', &self.buffer[..end]).count() as u64;
            }
            (self.start, self.scanned) = (end, end);
            self.done = self.limit.is_some_and(|limit| self.position() >= limit);
            return Ok(());
        }
    }

    /// What to do about a record that is too large.
    pub(crate) fn large_hint(&self) -> &'static str {
        match self.cutter.state() {
            State::Quoted | State::Escaped | State::QuoteInQuoted => {
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

    fn hand_out(&mut self, end: usize, unclosed: bool) -> Block {
        let block = Block {
            offset: self.position(),
            line: self.line,
            unclosed,
            is_cut: false,
            start: self.start,
            end,
        };
        self.start = end;
        if let Some(line) = &mut self.line {
            *line += memchr::memchr_iter(b'\n', &self.buffer[block.start..end]).count() as u64;
        }
        block
    }

    /// Looks at what was not looked at yet; the end of the last record that is whole and ours.
    fn cut(&mut self) -> Option<usize> {
        // A record that ends exactly at the limit is followed by one that is not ours, so
        // its end may be found from one byte before the limit on.
        let last_chance = self.limit.map(|limit| {
            usize::try_from(limit.saturating_sub(self.base).saturating_sub(1)).unwrap_or(usize::MAX)
        });
        let mut found = None;
        let inside = last_chance.map_or(self.filled, |at| at.min(self.filled)).max(self.scanned);
        if inside > self.scanned {
            let from = self.scanned;
            found = self.cutter.last_end(&self.buffer[from..inside]).map(|end| from + end);
            self.scanned = inside;
        }
        if last_chance.is_some_and(|at| self.scanned >= at) && self.scanned < self.filled {
            let from = self.scanned;
            match self.cutter.first_end(&self.buffer[from..self.filled]) {
                Some(end) => {
                    self.done = true;
                    self.scanned = from + end;
                    return Some(from + end);
                }
                None => self.scanned = self.filled,
            }
        }
        found
    }

    /// Reads more behind what is there.
    fn fill(&mut self) -> Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.base += self.start as u64;
            self.scanned -= self.start;
            self.filled -= self.start;
            self.start = 0;
        }
        let end = self.base + self.filled as u64;
        let wanted = match self.limit {
            Some(limit) if end >= limit => self.tail_bytes.max(self.filled),
            Some(limit) => {
                let left = usize::try_from(limit - end).unwrap_or(usize::MAX);
                // The last record's end in the same read, where there is room: one read, and one block, of a small
                // range.
                let all = left.saturating_add(self.tail_bytes);
                if all <= self.read_bytes { all } else { left.min(self.read_bytes) }
            }
            None => self.read_bytes,
        }
        // Doubling keeps the work for a huge record linear.
        .max(if self.filled >= self.read_bytes { self.filled } else { 0 })
        .min(RECORD_BYTES_MAX + 1 - self.filled);
        if self.buffer.len() < self.filled + wanted {
            // One byte more, for the line end that a last record may lack.
            self.buffer.resize(self.filled + wanted + 1, 0);
        }
        let count = self.input.read(&mut self.buffer[self.filled..self.filled + wanted])?;
        self.filled += count;
        self.ended = count == 0 || count < wanted && !self.input.is_eager();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{ReaderInput, Watch};

    fn blocks(text: &[u8], grammar: Grammar, from: usize, limit: Option<u64>) -> Blocks {
        let rest = std::io::Cursor::new(text[from..].to_vec());
        let input = ReaderInput::new(Vec::new(), rest, "x".into(), Watch::default());
        Blocks::new(Box::new(input), grammar, from as u64, limit)
    }

    fn all(mut blocks: Blocks) -> (Vec<u8>, u64) {
        let mut text = Vec::new();
        while let Some(block) = blocks.next_block().unwrap() {
            text.extend_from_slice(blocks.bytes(block));
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
            let found = all(blocks(text, Grammar::LINES, from, Some(limit)));
            assert_eq!(found, (expected.to_vec(), end), "{from}..{limit}");
        }
    }

    #[test]
    fn a_last_record_without_a_line_end_gets_one() {
        assert_eq!(all(blocks(b"a\nb", Grammar::LINES, 0, None)), (b"a\nb\n".to_vec(), 3));
        assert_eq!(all(blocks(b"", Grammar::LINES, 0, None)), (vec![], 0));
        assert_eq!(all(blocks(b"b", Grammar::LINES, 0, Some(1))), (b"b\n".to_vec(), 1));
    }

    #[test]
    fn a_record_larger_than_the_buffer_is_whole() {
        let mut text = vec![b'x'; 3 * READ_BYTES + 17];
        text.push(b'\n');
        text.extend_from_slice(b"y\n");
        let mut blocks = blocks(&text, Grammar::LINES, 0, None);
        let mut found = Vec::new();
        while let Some(block) = blocks.next_block().unwrap() {
            let bytes = blocks.bytes(block);
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
        let csv = Grammar::delimited(&tidemill_text::Dialect::default());
        for (grammar, quoted) in [(Grammar::LINES, false), (csv, true)] {
            for (bytes, rest, limit) in [
                (RECORD_BYTES_MAX + 1, &b"next\nlast"[..], None),
                (RECORD_BYTES_MAX + 3 * READ_BYTES, b"next\n", None),
                (RECORD_BYTES_MAX + 100, b"", None),
                // It began before the limit and is ours; what follows is not.
                (RECORD_BYTES_MAX + 100, b"next\n", Some(7)),
            ] {
                let mut text = large(quoted, bytes);
                let end = text.len() as u64;
                text.extend_from_slice(rest);
                let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
                let mut blocks = blocks(&text, grammar, 0, limit);
                blocks.count_lines(1);
                let (mut whole, mut cut) = (Vec::new(), Vec::new());
                let mut last_line = None;
                while let Some(block) = blocks.next_block().unwrap() {
                    match block.is_cut {
                        true => cut.push((block.offset, block.line, blocks.bytes(block).len())),
                        false => {
                            last_line = block.line;
                            whole.extend_from_slice(blocks.bytes(block));
                        }
                    }
                }
                assert_eq!(cut, [(6, Some(2), CUT_BYTES)]);
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
        let mut blocks = blocks(&text, Grammar::LINES, 0, None);
        assert_eq!(blocks.next_block().unwrap().map(|block| block.is_cut), Some(false));
        assert_eq!(blocks.next_block().unwrap().map(|block| block.is_cut), Some(true));
        assert_eq!(blocks.next_block().unwrap(), None);
        assert_eq!(blocks.position(), length);
    }

    #[test]
    fn lines_are_counted_where_asked() {
        let mut blocks = blocks(b"a\nb\nc", Grammar::LINES, 0, None);
        blocks.count_lines(1);
        let block = blocks.next_block().unwrap().unwrap();
        assert_eq!((block.line, block.offset), (Some(1), 0));
        assert_eq!(blocks.bytes(block), b"a\nb\n");
        let block = blocks.next_block().unwrap().unwrap();
        assert_eq!((block.line, block.offset), (Some(3), 4));
    }
}
