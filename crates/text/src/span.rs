//! Where a value stands: what scanners give and columns take.

/// A value's bytes in the text, in one word.
///
/// ```text
///   start: u32 │ escaped: 1 bit │ length: 31 bits
/// ```
///
/// All bits of the second half set is a null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Span {
    start: u32,
    tail: u32,
}

const ESCAPED: u32 = 1 << 31;

impl Span {
    /// A value that is not there.
    pub(crate) const NULL: Span = Span { start: 0, tail: u32::MAX };
    /// The longest value: a text is never longer.
    pub(crate) const BYTES_MAX: usize = 1 << 30;

    /// The bytes `start..end`, as they are.
    #[inline(always)]
    pub(crate) fn plain(start: u32, end: u32) -> Self {
        Span { start, tail: end.wrapping_sub(start) }
    }

    /// Bytes that are not the value but how it is written.
    #[inline(always)]
    pub(crate) fn escaped(start: u32, end: u32) -> Self {
        Span { start, tail: end.wrapping_sub(start) | ESCAPED }
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

    #[inline(always)]
    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        (self.tail & !ESCAPED) as usize
    }

    /// The bytes, escapes and all; of a null none.
    #[inline(always)]
    pub(crate) fn raw(self, text: &[u8]) -> &[u8] {
        if self.is_null() { &[] } else { &text[self.start()..self.start() + self.len()] }
    }
}
