//! Plain lines.

/// Appends what a string with `\` escapes stands for, as servers write them into logs: `\n`,
/// `\r`, `\t`, `\xhh`; any other byte after `\` is itself.
pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let Some((&escape, tail)) = rest[at + 1..].split_first() else {
            out.push(b'\\');
            return true;
        };
        rest = tail;
        out.push(match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => match rest {
                [high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    rest = tail;
                    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
                    digit(*high) << 4 | digit(*low)
                }
                _ => escape,
            },
            other => other,
        });
    }
    out.extend_from_slice(rest);
    true
}
