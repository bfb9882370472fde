//! Octet counting: records with their length before them (RFC 6587, section 3.4.1).
//!
//! ```text
//!   39 <34>1 - - su - - - 'su root' has failed44 <34>1 …
//!   ▲  └──────────── 39 bytes ───────────────┘
//!   MSG-LEN = 1*DIGIT, the first not 0, and a space
//! ```
//!
//! A message may hold line ends, so a stream of them cannot be cut at those. A record that does
//! not begin with a length and a space ends at its line end ("non-transparent framing", section
//! 3.4.2): senders are told apart by the first byte, `<` or a digit, as rsyslog does, and one
//! wrong length costs the records up to the next line end and not the whole stream.

use std::ops::Range;

/// The longest record that is counted, in bytes: a longer length is taken for text.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Where a [`Framer`] stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramerState {
    /// Before a record.
    Start,
    /// In a length, of which this is known.
    Length(usize),
    /// In a counted record, of which so many bytes are to come.
    Body(usize),
    /// In a line.
    Line,
}

/// Cuts a stream that comes block by block into whole records, as
/// [`Cutter`](crate::cut::Cutter) does for lines. It keeps no bytes: the caller keeps those
/// behind the last end, at most [`FRAME_BYTES_MAX`] and a length, or a line.
///
/// ```
/// use tidemill_text::syslog::Framer;
///
/// let mut framer = Framer::new();
/// assert_eq!(framer.last_end(b"5 a\nb c2 de9 "), Some(11));
/// assert_eq!(framer.last_end(b"ten bytes"), Some(9));
/// ```
#[derive(Debug, Clone)]
pub struct Framer {
    state: FramerState,
}

impl Default for Framer {
    fn default() -> Self {
        Self::new()
    }
}

impl Framer {
    /// A framer that begins at the start of a record.
    #[must_use]
    pub fn new() -> Self {
        Self { state: FramerState::Start }
    }

    /// Whether the stream may end here: at a record's end, or in a line.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.state, FramerState::Start | FramerState::Line)
    }

    /// Takes the whole block and returns the end of its last record, if one ends in it.
    pub fn last_end(&mut self, block: &[u8]) -> Option<usize> {
        let (mut last, mut at) = (None, 0);
        while let Some(end) = self.first_end(&block[at..]) {
            at += end;
            last = Some(at);
        }
        last
    }

    /// Takes the block up to the first record end and returns that end; takes it all and
    /// returns none if no record ends in it.
    pub fn first_end(&mut self, block: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < block.len() {
            match self.state {
                FramerState::Body(left) => {
                    let step = left.min(block.len() - at);
                    at += step;
                    self.state = FramerState::Body(left - step);
                    if step == left {
                        self.state = FramerState::Start;
                        return Some(at);
                    }
                }
                FramerState::Line => {
                    let found = memchr::memchr(b'\n', &block[at..])?;
                    self.state = FramerState::Start;
                    return Some(at + found + 1);
                }
                FramerState::Start | FramerState::Length(_) => {
                    self.state = step(self.state, block[at]);
                    at += usize::from(self.state != FramerState::Line);
                }
            }
        }
        None
    }
}

/// What comes behind a byte of a length, or of none: a line begins with that byte.
fn step(state: FramerState, byte: u8) -> FramerState {
    match (state, byte) {
        (FramerState::Start, b'1'..=b'9') => FramerState::Length(usize::from(byte - b'0')),
        (FramerState::Length(length), b'0'..=b'9') => {
            let length = length * 10 + usize::from(byte - b'0');
            if length > FRAME_BYTES_MAX { FramerState::Line } else { FramerState::Length(length) }
        }
        (FramerState::Length(length), b' ') => FramerState::Body(length),
        _ => FramerState::Line,
    }
}

/// How a record is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// Its text is there; it may end behind the block.
    Counted { start: usize, end: usize },
    /// By its line end.
    Line,
}

/// The frame of the record that a text begins with.
pub(super) fn frame(text: &[u8]) -> Frame {
    let mut state = FramerState::Start;
    for (at, &byte) in text.iter().enumerate() {
        state = step(state, byte);
        match state {
            FramerState::Body(length) => {
                return Frame::Counted { start: at + 1, end: at + 1 + length };
            }
            FramerState::Line => return Frame::Line,
            _ => {}
        }
    }
    Frame::Line
}

/// The first record at or behind `at`, with its frame; blank lines are none. Behind the last
/// one an empty range.
pub(super) fn next(block: &[u8], mut at: usize) -> Range<usize> {
    loop {
        let record = match frame(&block[at..]) {
            Frame::Counted { end, .. } => at..(at + end).min(block.len()),
            Frame::Line => crate::lines::next_line(block, at),
        };
        if record.is_empty() || !matches!(&block[record.clone()], b"\n" | b"\r\n" | b"\r") {
            return record;
        }
        at = record.end;
    }
}
