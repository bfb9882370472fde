//! Octet counting: framing in which each record follows its length (RFC 6587, section 3.4.1).
//!
//! ```text
//!   39 <34>1 - - su - - - 'su root' has failed44 <34>1 …
//!   ▲  └──────────── 39 bytes ───────────────┘
//!   MSG-LEN = 1*DIGIT, the first not 0, and a space
//! ```
//!
//! A message may hold line ends, so a stream of them cannot be cut at those. A record that does
//! not begin with a length and a space ends at its line end ("non-transparent framing", section
//! 3.4.2). The framer distinguishes senders by the first byte, `<` or a digit, as rsyslog does, and one
//! wrong length costs the records up to the next line end and not the whole stream.

use std::ops::Range;

/// Maximum length of a counted record in bytes: the framer takes a longer length for text.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// State of a [`SyslogFramer`] between two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramerState {
    /// Before a record.
    RecordStart,
    /// In a length, with the value so far.
    Length(usize),
    /// In a counted record, with the number of bytes left.
    CountedBody(usize),
    /// In a line.
    Line,
}

/// Cuts a stream that arrives in blocks into whole records, as
/// [`RecordCutter`](crate::record_boundaries::RecordCutter) does for lines. It keeps no bytes: the caller
/// keeps those after the last record end, at most [`FRAME_BYTES_MAX`] and a length, or a line.
///
/// ```
/// use tidemill_text::syslog::SyslogFramer;
///
/// let mut framer = SyslogFramer::new();
/// assert_eq!(framer.find_last_record_end(b"5 a\nb c2 de9 "), Some(11));
/// assert_eq!(framer.find_last_record_end(b"ten bytes"), Some(9));
/// ```
#[derive(Debug, Clone)]
pub struct SyslogFramer {
    state: FramerState,
}

impl Default for SyslogFramer {
    fn default() -> Self {
        Self::new()
    }
}

impl SyslogFramer {
    /// Returns a framer at the start of a record.
    #[must_use]
    pub fn new() -> Self {
        Self { state: FramerState::RecordStart }
    }

    /// Returns whether the stream may end here: at a record's end, or in a line.
    #[must_use]
    pub fn can_end_here(&self) -> bool {
        matches!(self.state, FramerState::RecordStart | FramerState::Line)
    }

    /// Consumes the whole block and returns the end of its last record, if one ends in it.
    pub fn find_last_record_end(&mut self, block: &[u8]) -> Option<usize> {
        let (mut last, mut at) = (None, 0);
        while let Some(end) = self.find_first_record_end(&block[at..]) {
            at += end;
            last = Some(at);
        }
        last
    }

    /// Consumes the block up to the first record end and returns that end. Consumes the whole block and
    /// returns `None` if no record ends in it.
    pub fn find_first_record_end(&mut self, block: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < block.len() {
            match self.state {
                FramerState::CountedBody(left) => {
                    let step = left.min(block.len() - at);
                    at += step;
                    self.state = FramerState::CountedBody(left - step);
                    if step == left {
                        self.state = FramerState::RecordStart;
                        return Some(at);
                    }
                }
                FramerState::Line => {
                    let found = memchr::memchr(b'\n', &block[at..])?;
                    self.state = FramerState::RecordStart;
                    return Some(at + found + 1);
                }
                FramerState::RecordStart | FramerState::Length(_) => {
                    self.state = next_framer_state(self.state, block[at]);
                    at += usize::from(self.state != FramerState::Line);
                }
            }
        }
        None
    }
}

/// Returns the state after a byte of a length; a line begins with a byte that belongs to no length.
fn next_framer_state(state: FramerState, byte: u8) -> FramerState {
    match (state, byte) {
        (FramerState::RecordStart, b'1'..=b'9') => FramerState::Length(usize::from(byte - b'0')),
        (FramerState::Length(length), b'0'..=b'9') => {
            let length = length * 10 + usize::from(byte - b'0');
            if length > FRAME_BYTES_MAX { FramerState::Line } else { FramerState::Length(length) }
        }
        (FramerState::Length(length), b' ') => FramerState::CountedBody(length),
        _ => FramerState::Line,
    }
}

/// The framing of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordFrame {
    /// Counted octets: the range of the text, which may end after the block.
    OctetCounted { start: usize, end: usize },
    /// A record that ends at its line end.
    Line,
}

/// Returns the frame of the record that a text begins with.
pub(super) fn detect_frame(text: &[u8]) -> RecordFrame {
    let mut state = FramerState::RecordStart;
    for (at, &byte) in text.iter().enumerate() {
        state = next_framer_state(state, byte);
        match state {
            FramerState::CountedBody(length) => {
                return RecordFrame::OctetCounted { start: at + 1, end: at + 1 + length };
            }
            FramerState::Line => return RecordFrame::Line,
            _ => {}
        }
    }
    RecordFrame::Line
}

/// Returns the range of the first record at or after `at`, with its frame; blank lines are no records.
/// Returns an empty range after the last record.
pub(super) fn next_record_range(block: &[u8], mut at: usize) -> Range<usize> {
    loop {
        let record = match detect_frame(&block[at..]) {
            RecordFrame::OctetCounted { end, .. } => at..(at + end).min(block.len()),
            RecordFrame::Line => crate::lines::next_line_range(block, at),
        };
        if record.is_empty() || !matches!(&block[record.clone()], b"\n" | b"\r\n" | b"\r") {
            return record;
        }
        at = record.end;
    }
}
