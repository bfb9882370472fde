//! Where a value stands: what scanners give and columns take.

/// A value's bytes in the text, in one word.
///
/// ```text
///   start: u32 │ escaped: 1 bit │ length: 31 bits
/// ```
///
/// All bits of the second half set is a null. Its start is 0, or the place of a value that is not of its
/// column's shape and therefore null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ValueSpan {
    start: u32,
    length_and_flag: u32,
}

const ESCAPED_BIT: u32 = 1 << 31;

impl ValueSpan {
    /// A value that is not there.
    pub(crate) const NULL: ValueSpan = ValueSpan { start: 0, length_and_flag: u32::MAX };
    /// The longest value: a text is never longer.
    pub(crate) const BYTES_MAX: usize = 1 << 30;

    /// The bytes `start..end`, as they are.
    #[inline(always)]
    pub(crate) fn new_plain(start: u32, end: u32) -> Self {
        ValueSpan { start, length_and_flag: end.wrapping_sub(start) }
    }

    /// Bytes that are not the value but how it is written.
    #[inline(always)]
    pub(crate) fn new_escaped(start: u32, end: u32) -> Self {
        ValueSpan { start, length_and_flag: end.wrapping_sub(start) | ESCAPED_BIT }
    }

    /// A null in place of a value that begins at `start`, which is not 0, and is not of its column's shape.
    pub(crate) fn new_mismatch(start: u32) -> Self {
        ValueSpan { start, length_and_flag: u32::MAX }
    }

    #[inline(always)]
    pub(crate) fn is_mismatch(self) -> bool {
        self.is_null() && self.start != 0
    }

    /// Whether the bytes are the value.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.length_and_flag < ESCAPED_BIT
    }

    #[inline(always)]
    pub(crate) fn is_null(self) -> bool {
        self.length_and_flag == u32::MAX
    }

    #[inline(always)]
    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        (self.length_and_flag & !ESCAPED_BIT) as usize
    }

    /// Returns whether the span is the inside of a JSON string: no other value of JSON has a quote before it.
    #[inline(always)]
    pub(crate) fn is_in_quotes(self, text: &[u8]) -> bool {
        !self.is_null()
            && self.start().checked_sub(1).and_then(|before| text.get(before)) == Some(&b'"')
    }

    /// The bytes, escapes and all; of a null none.
    #[inline(always)]
    pub(crate) fn raw_bytes(self, text: &[u8]) -> &[u8] {
        if self.is_null() { &[] } else { &text[self.start()..self.start() + self.len()] }
    }
}
