//! Arrow views of values that are short enough to be stored inside the view.

/// Maximum length of a value that Arrow stores inside its view.
pub(crate) const VIEW_INLINE_BYTES_MAX: usize = 12;

/// Returns the view of a short value of a text: its length and its bytes, padded with zeros.
#[inline(always)]
pub(crate) fn make_inline_view(text: &[u8], start: usize, len: usize) -> u128 {
    debug_assert!(len <= VIEW_INLINE_BYTES_MAX);
    let bytes: u128 = match text.get(start..start + 16) {
        Some(bytes) => match bytes.try_into() {
            Ok(bytes) => u128::from_le_bytes(bytes),
            Err(_) => 0,
        },
        None => {
            let mut padded = [0; 16];
            padded[..len].copy_from_slice(&text[start..start + len]);
            u128::from_le_bytes(padded)
        }
    };
    let kept = bytes & ((1u128 << (8 * len)) - 1);
    (kept << 32) | len as u128
}
