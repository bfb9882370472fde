//! The span of a value in a block: tokenizers emit spans, and column decoders read them.

/// Start and length of a value's bytes in a block, with a flag for escapes, in 64 bits.
///
/// ```text
///   start: u32 │ escaped: 1 bit │ length: 31 bits
/// ```
///
/// In a null, all bits of the second half are set. Its start is 0, or the offset of a value that has another
/// shape than its column and is therefore null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ValueSpan {
    start: u32,
    length_and_flag: u32,
}

const ESCAPED_BIT: u32 = 1 << 31;

impl ValueSpan {
    /// The span of a missing value.
    pub(crate) const NULL: ValueSpan = ValueSpan { start: 0, length_and_flag: u32::MAX };
    /// Maximum length of a value: a block is never longer.
    pub(crate) const BYTES_MAX: usize = 1 << 30;

    /// Returns the span of the bytes `start..end`, which are the value as it stands.
    #[inline(always)]
    pub(crate) fn new_plain(start: u32, end: u32) -> Self {
        ValueSpan { start, length_and_flag: end.wrapping_sub(start) }
    }

    /// Returns the span of bytes with escapes, which the reader must unescape to get the value.
    #[inline(always)]
    pub(crate) fn new_escaped(start: u32, end: u32) -> Self {
        ValueSpan { start, length_and_flag: end.wrapping_sub(start) | ESCAPED_BIT }
    }

    /// Returns a null for a value that begins at `start`, which is not 0, and has another shape than its
    /// column.
    pub(crate) fn new_mismatch(start: u32) -> Self {
        ValueSpan { start, length_and_flag: u32::MAX }
    }

    #[inline(always)]
    pub(crate) fn is_mismatch(self) -> bool {
        self.is_null() && self.start != 0
    }

    /// Returns whether the bytes are the value itself, without escapes.
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

    /// Returns the bytes, with their escapes; an empty slice for a null.
    #[inline(always)]
    pub(crate) fn raw_bytes(self, text: &[u8]) -> &[u8] {
        if self.is_null() { &[] } else { &text[self.start()..self.start() + self.len()] }
    }
}
