//! JSON lines.

/// Appends what the inside of a JSON string stands for; false if an escape is malformed or
/// stands for half of a surrogate pair.
pub(crate) fn unescape(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let Some((&escape, tail)) = rest[at + 1..].split_first() else { return false };
        rest = tail;
        let byte = match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let Some(first) = hex4(&mut rest) else { return false };
                let code = match first {
                    0xd800..=0xdbff => {
                        let Some(tail) = rest.strip_prefix(b"\\u") else { return false };
                        rest = tail;
                        match hex4(&mut rest) {
                            Some(second @ 0xdc00..=0xdfff) => {
                                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                            }
                            _ => return false,
                        }
                    }
                    code => code,
                };
                let Some(character) = char::from_u32(code) else { return false };
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return false,
        };
        out.push(byte);
    }
    out.extend_from_slice(rest);
    true
}

fn hex4(rest: &mut &[u8]) -> Option<u32> {
    let (digits, tail) = rest.split_at_checked(4)?;
    let mut code = 0;
    for digit in digits {
        code = code << 4 | char::from(*digit).to_digit(16)?;
    }
    *rest = tail;
    Some(code)
}
