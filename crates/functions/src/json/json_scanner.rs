//! A scanner of JSON text (RFC 8259) that builds no tree.
//!
//! A value is a range of the text's bytes. The scanner always passes over the whole text: to a value, over
//! it, and on to the end. A text is therefore either JSON or not, and a result never depends on how far the
//! scan went. Open brackets are kept on the scanner's own stack rather than on the thread's, so that nesting
//! is limited only by the size of the text.

use std::ops::Range;

use super::json_path::PathStep;

/// A syntax error in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonSyntaxError {
    /// Number of bytes before the error.
    pub(super) offset: usize,
    /// The expected token, or the problem.
    pub(super) message: &'static str,
}

type ScanResult<T> = Result<T, JsonSyntaxError>;

/// The kind of a JSON value, which its first byte determines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonKind {
    Object,
    Array,
    String,
    Number,
    Boolean,
    Null,
}

impl JsonKind {
    /// Returns the kind of a valid JSON value.
    pub(super) fn from_value(value: &str) -> Self {
        match value.as_bytes().first() {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::String,
            Some(b't' | b'f') => JsonKind::Boolean,
            Some(b'n') => JsonKind::Null,
            _ => JsonKind::Number,
        }
    }
}

/// A scanner, whose fields are reusable buffers.
#[derive(Debug, Default)]
pub(super) struct JsonScanner {
    /// The open brackets, the innermost last; true for objects.
    open_brackets: Vec<bool>,
    /// Offsets at which the items of an array begin.
    item_starts: Vec<usize>,
    unescaped_key: String,
}

fn syntax_error<T>(at: usize, what: &'static str) -> ScanResult<T> {
    Err(JsonSyntaxError { offset: at, message: what })
}

#[inline]
fn skip_spaces(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Returns the offset behind a string whose opening quote is at `at`.
#[inline]
fn skip_string(bytes: &[u8], at: usize) -> ScanResult<usize> {
    if bytes.get(at) != Some(&b'"') {
        return syntax_error(at, "a string was expected");
    }
    let mut at = at + 1;
    loop {
        // Eight bytes at a time while none of them is a quote, a backslash or a control character.
        while let Some(eight) = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()) {
            let word = u64::from_le_bytes(eight);
            let zero = |word: u64| word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS;
            let quotes = zero(word ^ (LOW_BITS * 0x22));
            let slashes = zero(word ^ (LOW_BITS * 0x5c));
            let controls = word.wrapping_sub(LOW_BITS * 0x20) & !word & HIGH_BITS;
            if (quotes | slashes | controls) != 0 {
                break;
            }
            at += 8;
        }
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => match bytes.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                Some(b'u') => {
                    let digits = bytes.get(at + 2..at + 6);
                    if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                        return syntax_error(at, "four hexadecimal digits follow \\u");
                    }
                    at += 6;
                }
                _ => return syntax_error(at, "there is no such escape"),
            },
            Some(0..0x20) => return syntax_error(at, "a control character is escaped in a string"),
            Some(_) => at += 1,
            None => return syntax_error(at, "a string does not end"),
        }
    }
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Returns the offset behind a number that begins at `at`.
fn skip_number(bytes: &[u8], mut at: usize) -> ScanResult<usize> {
    let digits = |mut at: usize| {
        let start = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at == start { syntax_error(at, "a digit was expected") } else { Ok(at) }
    };
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        _ => digits(at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits(at)?;
    }
    Ok(at)
}

/// Scans a key that begins at `at`. Returns its range and the offset behind its colon.
#[inline]
fn scan_key(bytes: &[u8], at: usize) -> ScanResult<(Range<usize>, usize)> {
    if bytes.get(at) != Some(&b'"') {
        return syntax_error(at, "a key in double quotes was expected");
    }
    let end = skip_string(bytes, at)?;
    let colon = skip_spaces(bytes, end);
    match bytes.get(colon) {
        Some(b':') => Ok((at + 1..end - 1, colon + 1)),
        _ => syntax_error(colon, "a colon was expected"),
    }
}

impl JsonScanner {
    /// Returns the offset behind the value that begins at `at`, or after spaces there.
    fn skip_value(&mut self, bytes: &[u8], at: usize) -> ScanResult<usize> {
        let base = self.open_brackets.len();
        self.skip_to_depth(bytes, at, base, true)
    }

    /// Scans on until at most `base` brackets are open. Begins with a value if `starts` is true, else behind
    /// one.
    fn skip_to_depth(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        base: usize,
        starts: bool,
    ) -> ScanResult<usize> {
        let mut is_value = starts;
        loop {
            if is_value {
                at = skip_spaces(bytes, at);
                match bytes.get(at) {
                    Some(b'{') => {
                        at = skip_spaces(bytes, at + 1);
                        if bytes.get(at) == Some(&b'}') {
                            at += 1;
                        } else {
                            self.open_brackets.push(true);
                            at = scan_key(bytes, at)?.1;
                            continue;
                        }
                    }
                    Some(b'[') => {
                        at = skip_spaces(bytes, at + 1);
                        if bytes.get(at) == Some(&b']') {
                            at += 1;
                        } else {
                            self.open_brackets.push(false);
                            continue;
                        }
                    }
                    Some(b'"') => at = skip_string(bytes, at)?,
                    Some(b'-' | b'0'..=b'9') => at = skip_number(bytes, at)?,
                    Some(b't') if bytes.get(at..at + 4) == Some(b"true") => at += 4,
                    Some(b'f') if bytes.get(at..at + 5) == Some(b"false") => at += 5,
                    Some(b'n') if bytes.get(at..at + 4) == Some(b"null") => at += 4,
                    Some(_) => return syntax_error(at, "a value was expected"),
                    None => return syntax_error(at, "the text ends where a value was expected"),
                }
            }
            is_value = false;
            if self.open_brackets.len() <= base {
                return Ok(at);
            }
            at = skip_spaces(bytes, at);
            match (bytes.get(at), self.open_brackets.last()) {
                (Some(b','), Some(true)) => {
                    at = scan_key(bytes, skip_spaces(bytes, at + 1))?.1;
                    is_value = true;
                }
                (Some(b','), Some(false)) => {
                    at += 1;
                    is_value = true;
                }
                (Some(b'}'), Some(true)) | (Some(b']'), Some(false)) => {
                    at += 1;
                    self.open_brackets.pop();
                }
                (Some(_), Some(true)) => return syntax_error(at, "a comma or } was expected"),
                (Some(_), _) => return syntax_error(at, "a comma or ] was expected"),
                (None, _) => {
                    return syntax_error(at, "the text ends before all brackets are closed");
                }
            }
        }
    }

    /// Checks the text behind a value, up to its end.
    fn check_rest(&mut self, bytes: &[u8], at: usize) -> ScanResult<()> {
        let at = self.skip_to_depth(bytes, at, 0, false)?;
        let at = skip_spaces(bytes, at);
        match bytes.get(at) {
            Some(_) => syntax_error(at, "something follows the value"),
            None => Ok(()),
        }
    }

    /// Returns the value that the whole text consists of.
    pub(super) fn scan_whole<'a>(&mut self, text: &'a str) -> ScanResult<&'a str> {
        self.open_brackets.clear();
        let bytes = text.as_bytes();
        let start = skip_spaces(bytes, 0);
        let end = self.skip_value(bytes, start)?;
        self.check_rest(bytes, end)?;
        Ok(text.get(start..end).unwrap_or_default())
    }

    /// Finds the value at a path without wildcards. If a key occurs twice in an object, the first counts.
    pub(super) fn find_value<'a>(
        &mut self,
        text: &'a str,
        steps: &[PathStep],
    ) -> ScanResult<Option<&'a str>> {
        self.open_brackets.clear();
        let bytes = text.as_bytes();
        let mut at = skip_spaces(bytes, 0);
        // Offset and depth at which the scan resumes after items that were scanned in advance.
        let mut resumed: Option<(usize, usize)> = None;
        let mut found = true;
        for step in steps {
            at = skip_spaces(bytes, at);
            let next = match (step, bytes.get(at)) {
                (PathStep::Key(name) | PathStep::KeyOrIndex(name, _), Some(b'{')) => {
                    self.find_member(text, at, name)?
                }
                (PathStep::Index(index), Some(b'[')) => match usize::try_from(*index) {
                    Ok(index) => self.find_item(bytes, at, index)?,
                    Err(_) => {
                        let end = self.collect_item_starts(bytes, at)?;
                        let back = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
                        let start = self.item_starts.len().checked_sub(back);
                        resumed = resumed.or(Some((end, self.open_brackets.len())));
                        start.and_then(|index| self.item_starts.get(index)).copied().ok_or(end)
                    }
                },
                (PathStep::KeyOrIndex(_, Some(index)), Some(b'[')) => {
                    self.find_item(bytes, at, *index)?
                }
                _ => Err(self.skip_value(bytes, at)?),
            };
            match next {
                Ok(start) => at = start,
                Err(end) => {
                    at = end;
                    found = false;
                    break;
                }
            }
        }
        let mut range = None;
        if found {
            let start = skip_spaces(bytes, at);
            at = self.skip_value(bytes, start)?;
            range = Some(start..at);
        }
        if let Some((end, depth)) = resumed {
            at = end;
            self.open_brackets.truncate(depth);
        }
        self.check_rest(bytes, at)?;
        Ok(range.and_then(|range| text.get(range)))
    }

    /// Finds the value of the first key of a name at any depth.
    pub(super) fn find_key_at_any_depth<'a>(
        &mut self,
        text: &'a str,
        name: &str,
    ) -> ScanResult<Option<&'a str>> {
        self.scan_whole(text)?;
        let bytes = text.as_bytes();
        let mut at = 0;
        // In valid JSON, a quote outside of a string begins one, and a string before a colon is a key.
        while let Some(quote) = bytes.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
            let start = at + quote;
            let end = skip_string(bytes, start)?;
            let colon = skip_spaces(bytes, end);
            at = end;
            let own = text.get(start + 1..end - 1).unwrap_or_default();
            if bytes.get(colon) == Some(&b':') && self.key_matches(own, name) {
                let start = skip_spaces(bytes, colon + 1);
                let end = self.skip_value(bytes, start)?;
                return Ok(text.get(start..end));
            }
        }
        Ok(None)
    }

    /// Returns the start of a member's value, with the object left open, or as `Err` the end of the object.
    fn find_member(
        &mut self,
        text: &str,
        at: usize,
        name: &str,
    ) -> ScanResult<Result<usize, usize>> {
        let bytes = text.as_bytes();
        let mut at = skip_spaces(bytes, at + 1);
        if bytes.get(at) == Some(&b'}') {
            return Ok(Err(at + 1));
        }
        self.open_brackets.push(true);
        loop {
            let (own, value) = scan_key(bytes, at)?;
            if self.key_matches(text.get(own).unwrap_or_default(), name) {
                return Ok(Ok(value));
            }
            at = skip_spaces(bytes, self.skip_value(bytes, value)?);
            match bytes.get(at) {
                Some(b',') => at = skip_spaces(bytes, at + 1),
                Some(b'}') => {
                    self.open_brackets.pop();
                    return Ok(Err(at + 1));
                }
                Some(_) => return syntax_error(at, "a comma or } was expected"),
                None => return syntax_error(at, "the text ends before all brackets are closed"),
            }
        }
    }

    fn key_matches(&mut self, own: &str, name: &str) -> bool {
        if !own.contains('\\') {
            return own == name;
        }
        self.unescaped_key.clear();
        write_unescaped(own, &mut self.unescaped_key);
        self.unescaped_key == name
    }

    /// Returns the start of an item, with the array left open, or as `Err` the end of the array.
    fn find_item(
        &mut self,
        bytes: &[u8],
        at: usize,
        index: usize,
    ) -> ScanResult<Result<usize, usize>> {
        let mut at = skip_spaces(bytes, at + 1);
        if bytes.get(at) == Some(&b']') {
            return Ok(Err(at + 1));
        }
        self.open_brackets.push(false);
        let mut left = index;
        loop {
            if left == 0 {
                return Ok(Ok(at));
            }
            left -= 1;
            at = skip_spaces(bytes, self.skip_value(bytes, at)?);
            match bytes.get(at) {
                Some(b',') => at = skip_spaces(bytes, at + 1),
                Some(b']') => {
                    self.open_brackets.pop();
                    return Ok(Err(at + 1));
                }
                Some(_) => return syntax_error(at, "a comma or ] was expected"),
                None => return syntax_error(at, "the text ends before all brackets are closed"),
            }
        }
    }

    /// Records the offsets at which all items begin. Returns the offset behind the array.
    fn collect_item_starts(&mut self, bytes: &[u8], at: usize) -> ScanResult<usize> {
        self.item_starts.clear();
        let mut at = skip_spaces(bytes, at + 1);
        if bytes.get(at) == Some(&b']') {
            return Ok(at + 1);
        }
        loop {
            self.item_starts.push(at);
            at = skip_spaces(bytes, self.skip_value(bytes, at)?);
            match bytes.get(at) {
                Some(b',') => at = skip_spaces(bytes, at + 1),
                Some(b']') => return Ok(at + 1),
                Some(_) => return syntax_error(at, "a comma or ] was expected"),
                None => return syntax_error(at, "the text ends before all brackets are closed"),
            }
        }
    }

    /// Finds the values at a path with wildcards, in the order of the text.
    pub(super) fn find_all<'a>(
        &mut self,
        text: &'a str,
        steps: &[PathStep],
        found: &mut Vec<&'a str>,
    ) -> ScanResult<()> {
        found.clear();
        let whole = self.scan_whole(text)?;
        found.push(whole);
        // Step by step: each value is replaced by all values that the step leads to.
        let mut next = Vec::new();
        for step in steps {
            next.clear();
            for value in found.iter() {
                match step {
                    PathStep::AllMembers if JsonKind::from_value(value) == JsonKind::Object => {
                        self.for_each_member(value, |_, member| next.push(member))?;
                    }
                    PathStep::AllItems if JsonKind::from_value(value) == JsonKind::Array => {
                        self.for_each_item(value, |item| next.push(item))?;
                    }
                    PathStep::AllMembers | PathStep::AllItems => {}
                    one => next.extend(self.find_value(value, std::slice::from_ref(one))?),
                }
            }
            std::mem::swap(found, &mut next);
        }
        Ok(())
    }

    /// Calls `each` with the members of an object that is a whole value: the key between its quotes, and the
    /// value.
    pub(super) fn for_each_member<'a>(
        &mut self,
        object: &'a str,
        mut each: impl FnMut(&'a str, &'a str),
    ) -> ScanResult<()> {
        self.open_brackets.clear();
        let bytes = object.as_bytes();
        let mut at = skip_spaces(bytes, 1);
        if bytes.get(at) == Some(&b'}') {
            return Ok(());
        }
        self.open_brackets.push(true);
        loop {
            let (own, value) = scan_key(bytes, at)?;
            let start = skip_spaces(bytes, value);
            let end = self.skip_value(bytes, start)?;
            each(object.get(own).unwrap_or_default(), object.get(start..end).unwrap_or_default());
            at = skip_spaces(bytes, end);
            match bytes.get(at) {
                Some(b',') => at = skip_spaces(bytes, at + 1),
                _ => return Ok(()),
            }
        }
    }

    /// Calls `each` with the items of an array that is a whole value.
    pub(super) fn for_each_item<'a>(
        &mut self,
        array: &'a str,
        mut each: impl FnMut(&'a str),
    ) -> ScanResult<()> {
        self.open_brackets.clear();
        let bytes = array.as_bytes();
        let mut at = skip_spaces(bytes, 1);
        if bytes.get(at) == Some(&b']') {
            return Ok(());
        }
        loop {
            let end = self.skip_value(bytes, at)?;
            each(array.get(at..end).unwrap_or_default());
            at = skip_spaces(bytes, end);
            match bytes.get(at) {
                Some(b',') => at = skip_spaces(bytes, at + 1),
                _ => return Ok(()),
            }
        }
    }
}

/// Writes a value without spaces between tokens.
pub(super) fn write_compact(value: &str, made: &mut String) {
    let bytes = value.as_bytes();
    let is_nested = matches!(bytes.first(), Some(b'{' | b'['));
    if !is_nested || !bytes.iter().any(|byte| b" \t\n\r".contains(byte)) {
        made.push_str(value);
        return;
    }
    let (mut at, mut kept) = (0, 0);
    while at < bytes.len() {
        match bytes.get(at) {
            Some(b'"') => at = skip_string(bytes, at).unwrap_or(bytes.len()),
            Some(b' ' | b'\t' | b'\n' | b'\r') => {
                made.push_str(value.get(kept..at).unwrap_or_default());
                at = skip_spaces(bytes, at);
                kept = at;
            }
            _ => at += 1,
        }
    }
    made.push_str(value.get(kept..).unwrap_or_default());
}

/// Writes the content of a string without its quotes and escapes. Half of a surrogate pair becomes U+FFFD.
pub(super) fn write_unescaped(inner: &str, made: &mut String) {
    let unit = |rest: &str| {
        let digits = rest.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut rest = inner;
    while let Some(slash) = rest.find('\\') {
        made.push_str(rest.get(..slash).unwrap_or_default());
        rest = rest.get(slash..).unwrap_or_default();
        if let Some(first) = unit(rest) {
            let second = rest.get(6..).and_then(unit);
            let pair = [first, second.unwrap_or(0)];
            let mut letters =
                char::decode_utf16(pair.into_iter().take(1 + usize::from(second.is_some())));
            match letters.next() {
                Some(Ok(letter)) => {
                    made.push(letter);
                    rest = rest.get(6 * letter.len_utf16()..).unwrap_or_default();
                }
                _ => {
                    made.push('\u{fffd}');
                    rest = rest.get(6..).unwrap_or_default();
                }
            }
            continue;
        }
        let letter = rest.get(1..).and_then(|rest| rest.chars().next()).unwrap_or('\\');
        made.push(match letter {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            other => other,
        });
        rest = rest.get(1 + letter.len_utf8()..).unwrap_or_default();
    }
    made.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::super::json_path::JsonPath;
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn syntax_errors_state_their_offset() {
        for (text, expected) in [
            ("{\"a\":1}", None),
            (" [1, -0.5e+3, true , false,null, \"x\\u00e9\\n\"] ", None),
            ("{}", None),
            ("[]", None),
            ("5", None),
            ("{\"a\":1", Some((6, "the text ends before all brackets are closed"))),
            ("", Some((0, "the text ends where a value was expected"))),
            ("{\"a\":1} x", Some((8, "something follows the value"))),
            ("01", Some((1, "something follows the value"))),
            ("[1,]", Some((3, "a value was expected"))),
            ("{\"a\":1,}", Some((7, "a key in double quotes was expected"))),
            ("{a:1}", Some((1, "a key in double quotes was expected"))),
            ("{\"a\" 1}", Some((5, "a colon was expected"))),
            ("[1 2]", Some((3, "a comma or ] was expected"))),
            ("[1}", Some((2, "a comma or ] was expected"))),
            ("NaN", Some((0, "a value was expected"))),
            ("-", Some((1, "a digit was expected"))),
            ("1.", Some((2, "a digit was expected"))),
            ("\"a", Some((2, "a string does not end"))),
            ("\"\\x\"", Some((1, "there is no such escape"))),
            ("\"\\u12g4\"", Some((1, "four hexadecimal digits follow \\u"))),
            ("\"a\tb\"", Some((2, "a control character is escaped in a string"))),
            ("\"0123456789\u{1}\"", Some((11, "a control character is escaped in a string"))),
            ("nul", Some((0, "a value was expected"))),
        ] {
            let found = JsonScanner::default().scan_whole(text).err();
            assert_eq!(
                found,
                expected.map(|(at, what)| JsonSyntaxError { offset: at, message: what }),
                "{text}"
            );
        }
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let text = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(JsonScanner::default().scan_whole(&text), Ok(text.as_str()));
        let text = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        assert!(
            JsonScanner::default()
                .find_value(&text, &[PathStep::Key("a".into())])
                .unwrap()
                .is_some()
        );
        let text = "[".repeat(1_000_000);
        assert!(JsonScanner::default().scan_whole(&text).is_err());
    }

    #[test]
    fn escapes_are_decoded() {
        for (inner, expected) in [
            ("a", "a"),
            ("x\\n\\u00e9\\\"y\\/", "x\né\"y/"),
            ("\\ud83d\\ude00!", "😀!"),
            ("\\ud83d!", "\u{fffd}!"),
            ("\\ude00\\ud83d", "\u{fffd}\u{fffd}"),
            ("\\ud83d\\u0041", "\u{fffd}A"),
            ("\\\\u0041", "\\u0041"),
            ("ä\\tö", "ä\tö"),
        ] {
            let mut made = String::new();
            write_unescaped(inner, &mut made);
            assert_eq!(made, expected, "{inner}");
        }
    }

    fn arbitrary_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
            "[a-c\"\\\\\n é]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"é]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Finds the value at a path in a tree.
    fn find_in_tree<'a>(value: &'a Value, steps: &[PathStep]) -> Option<&'a Value> {
        steps.iter().try_fold(value, |value, step| match (step, value) {
            (PathStep::Key(name) | PathStep::KeyOrIndex(name, _), Value::Object(members)) => {
                members.get(name)
            }
            (PathStep::KeyOrIndex(_, Some(index)), Value::Array(items)) => items.get(*index),
            (PathStep::Index(index), Value::Array(items)) => {
                let len = i64::try_from(items.len()).ok()?;
                let index = if *index < 0 { len + index } else { *index };
                items.get(usize::try_from(index).ok()?)
            }
            _ => None,
        })
    }

    proptest! {
        #[test]
        fn scanner_finds_same_value_as_a_tree(
            value in arbitrary_json(),
            steps in prop::collection::vec((any::<bool>(), "[a-c\"é]{0,2}", -3_i64..3), 0..4),
            spaced in any::<bool>(),
        ) {
            let text = match spaced {
                true => serde_json::to_string_pretty(&value).unwrap(),
                false => value.to_string(),
            };
            let steps: Vec<PathStep> = steps
                .into_iter()
                .map(|(is_key, name, index)| if is_key { PathStep::Key(name) } else { PathStep::Index(index) })
                .collect();
            let mut scanner = JsonScanner::default();
            let found = scanner.find_value(&text, &steps).unwrap();
            prop_assert_eq!(
                found.map(|found| serde_json::from_str::<Value>(found).unwrap()),
                find_in_tree(&value, &steps).cloned()
            );
            let mut all = Vec::new();
            scanner.find_all(&text, &steps, &mut all).unwrap();
            prop_assert_eq!(all.first().copied(), found);
            if let Some(found) = found {
                let mut made = String::new();
                write_compact(found, &mut made);
                prop_assert_eq!(made, find_in_tree(&value, &steps).unwrap().to_string());
            }
        }

        #[test]
        fn scanner_accepts_same_texts_as_serde_json(text in "[\\[\\]{}:,\"a1 .e-]{0,12}|\\[[\\[\\]{}:,\"1-]{0,8}\\]") {
            // A number that is too large for serde_json's tree is valid JSON.
            let theirs = serde_json::from_str::<Value>(&text);
            let theirs = theirs.map_or_else(|error| error.to_string().contains("out of range"), |_| true);
            prop_assert_eq!(JsonScanner::default().scan_whole(&text).is_ok(), theirs, "{}", text);
            // Validity does not depend on the path.
            for path in ["$.a", "$[0]", "$[-1].a", "/0/a", "$[1][0]"] {
                let path = JsonPath::parse(path).unwrap();
                prop_assert_eq!(JsonScanner::default().find_value(&text, path.steps()).is_ok(), theirs);
            }
        }

        #[test]
        fn strings_decode_as_serde_json_decodes_them(text in ".{0,20}") {
            let written = serde_json::to_string(&text).unwrap();
            let mut made = String::new();
            write_unescaped(&written[1..written.len() - 1], &mut made);
            prop_assert_eq!(made, text);
        }
    }
}
