//! Where a value stands: what scanners give and columns take.

/// A value's bytes in the text, in one word.
///
/// ```text
///   start: u32 │ escaped: 1 bit │ text: 1 bit │ length: 30 bits
/// ```
///
/// All bits of the second half set is a null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    tail: u32,
}

const ESCAPED: u32 = 1 << 31;
const TEXT: u32 = 1 << 30;

impl Span {
    /// A value that is not there.
    pub(crate) const NULL: Span = Span { start: 0, tail: u32::MAX };
    /// The longest value: a text is never longer.
    pub(crate) const BYTES_MAX: usize = (1 << 30) - 2;

    /// The bytes `start..end`, as they are.
    #[inline(always)]
    pub(crate) fn plain(start: u32, end: u32) -> Self {
        Span { start, tail: end.wrapping_sub(start) }
    }

    /// The bytes `start..end` between quotes, as they are.
    #[inline(always)]
    pub(crate) fn text(start: u32, end: u32) -> Self {
        Span { start, tail: end.wrapping_sub(start) | TEXT }
    }

    /// Bytes that are not the value but how it is written, and whether between quotes.
    #[inline(always)]
    pub(crate) fn escaped(start: u32, end: u32, text: bool) -> Self {
        Span { start, tail: end.wrapping_sub(start) | ESCAPED | if text { TEXT } else { 0 } }
    }

    /// Whether the bytes are the value.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.tail < ESCAPED
    }

    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.tail == u32::MAX
    }

    /// Whether the value was written between quotes; not to be asked of a null.
    #[inline(always)]
    pub(crate) fn is_text(self) -> bool {
        self.tail & TEXT != 0
    }

    #[inline(always)]
    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        (self.tail & (TEXT - 1)) as usize
    }

    /// The bytes, escapes and all; of a null none.
    #[inline(always)]
    pub(crate) fn raw(self, text: &[u8]) -> &[u8] {
        if self.is_null() { &[] } else { &text[self.start()..self.start() + self.len()] }
    }
}
