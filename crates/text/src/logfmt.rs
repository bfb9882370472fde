//! logfmt.

pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(raw);
    true
}
