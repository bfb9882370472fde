//! The grammar of RFC 8259 below the level of separators: literals, numbers, strings; and a
//! cursor that checks a text against it byte by byte.

use super::parse_hex4;
use crate::text_fault::{TextFault, TextFaultKind};

/// The kind of a token that is neither a string nor a structural character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonScalar {
    Null,
    Boolean,
    Number,
}

/// Classifies a token; `None` if it is no scalar.
#[inline(always)]
pub(crate) fn classify_scalar(token: &[u8]) -> Option<JsonScalar> {
    match token {
        [b'-' | b'0'..=b'9', ..] => is_number(token).then_some(JsonScalar::Number),
        b"null" => Some(JsonScalar::Null),
        b"true" | b"false" => Some(JsonScalar::Boolean),
        _ => None,
    }
}

/// Returns whether a token matches `-? (0 | [1-9][0-9]*) (\.[0-9]+)? ([eE][+-]?[0-9]+)?`.
#[inline]
pub(crate) fn is_number(token: &[u8]) -> bool {
    fn digits(bytes: &[u8]) -> Option<&[u8]> {
        let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then(|| &bytes[count..])
    }
    let unsigned = token.strip_prefix(b"-").unwrap_or(token);
    let Some(mut rest) = digits(unsigned) else { return false };
    if unsigned[0] == b'0' && unsigned.len() - rest.len() > 1 {
        return false;
    }
    if let [b'.', fraction @ ..] = rest {
        let Some(tail) = digits(fraction) else { return false };
        rest = tail;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', digits @ ..] => digits,
            digits => digits,
        };
        let Some(tail) = digits(exponent) else { return false };
        rest = tail;
    }
    rest.is_empty()
}

/// Returns whether `start..end` is a number of at most eight digits, possibly with a point among them.
/// If not, it may still be a number.
#[inline(always)]
pub(crate) fn is_short_number(text: &[u8], start: usize, end: usize) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let len = end - start;
    let Some(Ok(bytes)) = text.get(start..start + 8).map(TryInto::try_into) else { return false };
    if len.wrapping_sub(1) >= 8 {
        return false;
    }
    let word = u64::from_le_bytes(bytes);
    let value = word ^ (ONES * 0x30);
    // The top bit of each byte that is not a digit.
    let others = (((value & (ONES * 0x7f)) + ONES * 0x76) | value) & (ONES * 0x80);
    let others = others & (u64::MAX >> (64 - 8 * len));
    // A digit comes first, and after a leading zero only a point.
    if others & 0x80 != 0 || value & 0xff == 0 && len > 1 && others & 0x8000 == 0 {
        return false;
    }
    if others == 0 {
        return true;
    }
    let point = others.trailing_zeros() - 7;
    others & (others - 1) == 0
        && (word >> point) & 0xff == u64::from(b'.')
        && others >> (8 * len - 1) == 0
}

/// Returns the position of the first invalid escape in the inside of a string.
pub(crate) fn find_bad_escape(raw: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &raw[at..]) {
        at += found;
        let mut rest = &raw[at + 1..];
        match rest.split_first() {
            Some((b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', _)) => at += 2,
            Some((b'u', tail)) => {
                rest = tail;
                match parse_hex4(&mut rest) {
                    Some(0xd800..=0xdbff) => {
                        let Some(mut low) = rest.strip_prefix(b"\\u") else { return Some(at) };
                        let Some(0xdc00..=0xdfff) = parse_hex4(&mut low) else { return Some(at) };
                        at += 12;
                    }
                    None | Some(0xdc00..=0xdfff) => return Some(at),
                    Some(_) => at += 6,
                }
            }
            _ => return Some(at),
        }
    }
    None
}

/// Returns whether a byte is white space between tokens.
#[inline(always)]
pub(crate) fn is_json_whitespace(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The byte range between the quotes of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StringInterior {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) has_escapes: bool,
}

/// A cursor that reads JSON from the front of a text and checks it.
#[derive(Debug, Clone)]
pub(crate) struct JsonCursor<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) position: usize,
    /// True to check skipped values by the full grammar.
    pub(crate) checks_skipped_values: bool,
}

impl<'a> JsonCursor<'a> {
    pub(crate) fn new(text: &'a [u8], strict: bool) -> Self {
        Self { text, position: 0, checks_skipped_values: strict }
    }

    /// Returns the fault of a text that breaks the grammar for `reason`.
    pub(crate) fn syntax_fault(at: usize, reason: &str) -> TextFault {
        TextFault::new(at, TextFaultKind::SyntaxError(format!("not valid JSON: {reason}")))
    }

    fn truncation_fault(&self, within: &str) -> TextFault {
        TextFault::new(self.text.len(), TextFaultKind::EndsInsideValue(format!("within {within}")))
    }

    /// Skips white space and returns the next byte without consuming it; `None` at the end.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.text.get(self.position) {
            if !is_json_whitespace(byte) {
                return Some(byte);
            }
            self.position += 1;
        }
        None
    }

    /// Does the same inside a value, where the text must not end.
    pub(crate) fn peek_within(&mut self, within: &str) -> Result<u8, TextFault> {
        self.peek().ok_or_else(|| self.truncation_fault(within))
    }

    /// Consumes `byte` after optional white space.
    pub(crate) fn expect_byte(
        &mut self,
        byte: u8,
        within: &str,
        reason: &str,
    ) -> Result<(), TextFault> {
        if self.peek_within(within)? == byte {
            self.position += 1;
            return Ok(());
        }
        Err(Self::syntax_fault(self.position, reason))
    }

    /// Consumes the string whose opening quote comes next.
    pub(crate) fn read_string(&mut self, check_escapes: bool) -> Result<StringInterior, TextFault> {
        let start = self.position + 1;
        let mut at = start;
        let mut has_escapes = false;
        loop {
            match self.text.get(at) {
                None => return Err(self.truncation_fault("a string")),
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    at += 1;
                    match self.text.get(at) {
                        Some(0..0x20) => {
                            return Err(Self::syntax_fault(at, "a control character in a string"));
                        }
                        Some(_) => at += 1,
                        None => return Err(self.truncation_fault("a string")),
                    }
                }
                Some(0..0x20) => {
                    return Err(Self::syntax_fault(at, "a control character in a string"));
                }
                Some(_) => at += 1,
            }
        }
        self.position = at + 1;
        if has_escapes
            && check_escapes
            && let Some(bad) = find_bad_escape(&self.text[start..at])
        {
            return Err(Self::syntax_fault(start + bad, "an escape that stands for nothing"));
        }
        Ok(StringInterior { start, end: at, has_escapes })
    }

    /// Consumes the next token without checking it.
    pub(crate) fn read_token(&mut self) -> Result<&'a [u8], TextFault> {
        let start = self.position;
        while let Some(&byte) = self.text.get(self.position) {
            match byte {
                b'{' | b'}' | b'[' | b']' | b':' | b',' | b'"' => break,
                byte if is_json_whitespace(byte) => break,
                b'\\' | 0..0x20 => return Err(Self::syntax_fault(start, "expected a value")),
                _ => self.position += 1,
            }
        }
        if start == self.position {
            return Err(Self::syntax_fault(start, "expected a value"));
        }
        Ok(&self.text[start..self.position])
    }

    /// Consumes the next token, which must be a scalar.
    pub(crate) fn read_scalar(&mut self) -> Result<(JsonScalar, &'a [u8]), TextFault> {
        let start = self.position;
        let token = self.read_token()?;
        match classify_scalar(token) {
            Some(scalar) => Ok((scalar, token)),
            None => {
                // The input may be truncated inside a literal.
                let is_cut = self.position == self.text.len()
                    && [&b"null"[..], b"true", b"false"].iter().any(|word| word.starts_with(token));
                Err(if is_cut {
                    self.truncation_fault("a value")
                } else if matches!(token[0], b'-' | b'0'..=b'9') {
                    Self::syntax_fault(start, "a malformed number")
                } else {
                    Self::syntax_fault(start, "expected a value")
                })
            }
        }
    }

    /// Consumes the next key and its colon.
    pub(crate) fn read_key(&mut self) -> Result<StringInterior, TextFault> {
        if self.peek_within("an object")? != b'"' {
            return Err(Self::syntax_fault(self.position, "expected a key in quotes"));
        }
        let key = self.read_string(self.checks_skipped_values)?;
        self.expect_byte(b':', "an object", "expected `:`")?;
        Ok(key)
    }

    /// Consumes the next comma and returns true, or consumes the end of the container and returns false.
    pub(crate) fn take_comma_or_end(&mut self, closing: u8) -> Result<bool, TextFault> {
        let (within, reason) = match closing {
            b'}' => ("an object", "expected `,` or `}`"),
            _ => ("an array", "expected `,` or `]`"),
        };
        let byte = self.peek_within(within)?;
        if byte != b',' && byte != closing {
            return Err(Self::syntax_fault(self.position, reason));
        }
        self.position += 1;
        Ok(byte == b',')
    }

    /// Consumes the next value, of any shape and depth.
    pub(crate) fn skip_value(&mut self) -> Result<(), TextFault> {
        // One bit for each open bracket: 1 for an object.
        let mut open = BitStack::default();
        loop {
            match self.peek_within("a value")? {
                b'{' => {
                    self.position += 1;
                    open.push(true);
                    if self.peek_within("an object")? != b'}' {
                        self.read_key()?;
                        continue;
                    }
                }
                b'[' => {
                    self.position += 1;
                    open.push(false);
                    if self.peek_within("an array")? != b']' {
                        continue;
                    }
                }
                b'"' => {
                    self.read_string(self.checks_skipped_values)?;
                }
                _ if self.checks_skipped_values => {
                    self.read_scalar()?;
                }
                _ => {
                    self.read_token()?;
                }
            }
            // After a value, or before the end of an empty container.
            loop {
                let Some(in_object) = open.last() else { return Ok(()) };
                let within = if in_object { "an object" } else { "an array" };
                match (self.peek_within(within)?, in_object) {
                    (b'}', true) | (b']', false) => {
                        self.position += 1;
                        open.pop();
                    }
                    // Not after an opening bracket: the code above has checked that.
                    (b',', true) => {
                        self.position += 1;
                        self.read_key()?;
                        break;
                    }
                    (b',', false) => {
                        self.position += 1;
                        break;
                    }
                    (_, true) => {
                        return Err(Self::syntax_fault(self.position, "expected `,` or `}`"));
                    }
                    (_, false) => {
                        return Err(Self::syntax_fault(self.position, "expected `,` or `]`"));
                    }
                }
            }
        }
    }
}

/// A stack of bits.
#[derive(Debug, Default)]
struct BitStack {
    words: Vec<u64>,
    len: usize,
}

impl BitStack {
    fn push(&mut self, bit: bool) {
        let (word, place) = (self.len / 64, self.len % 64);
        if word == self.words.len() {
            self.words.push(0);
        }
        self.words[word] = self.words[word] & !(1 << place) | u64::from(bit) << place;
        self.len += 1;
    }

    fn pop(&mut self) {
        self.len = self.len.saturating_sub(1);
    }

    fn last(&self) -> Option<bool> {
        let last = self.len.checked_sub(1)?;
        Some(self.words[last / 64] >> (last % 64) & 1 == 1)
    }
}

/// Describes the kind of a value that begins with `byte`, in words.
pub(crate) fn describe_value_kind(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'{' => "an object",
        b'[' => "an array",
        b'"' => "text",
        b't' | b'f' => "a Boolean",
        b'n' => "null",
        b'-' | b'0'..=b'9' => "a number",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn numbers_are_those_of_serde_json(
            text in "-?[0-9]{0,9}(\\.[0-9]{0,4})?([eE][-+]?[0-9]{0,2})?|[-+.0-9]{0,6}e?[-+.0-9]{0,2}|.{0,9}",
            behind in "[0-9, .]{0,9}"
        ) {
            let is_number = text.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
                && !text.ends_with(|last: char| last.is_whitespace())
                && match serde_json::from_str::<f64>(&text) {
                    Ok(_) => true,
                    // Grammatical, but out of the range of a float.
                    Err(error) => error.to_string().contains("out of range"),
                };
            prop_assert_eq!(super::is_number(text.as_bytes()), is_number);
            let padded = format!("{text}{behind}");
            if is_short_number(padded.as_bytes(), 0, text.len()) {
                prop_assert!(is_number, "{}", padded);
            }
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if plain && is_number && text.len() <= 8 && padded.len() >= 8 {
                prop_assert!(is_short_number(padded.as_bytes(), 0, text.len()));
            }
        }
    }
}
