//! The text form of lists, structs and maps: splits a text into the texts of its parts, and quotes a leaf value.
//!
//! The grammar is that of DuckDB's casts (`src/function/cast/vector_cast_helpers.cpp`), read in December 2026:
//! - `[a, b]` is a list, `{k: v}` a struct, `(a, b)` a struct by position, `{k=v}` a map. White space around a part
//!   is dropped.
//! - A part ends at a separator outside quotes and brackets. Brackets within it are kept with their contents.
//! - Quotes, single or double, may stand anywhere in a part, and are dropped. Within them, `\x` is `x`.
//! - Outside quotes a backslash stands for itself, except before a quote, which it makes a literal character.
//! - `null` without quotes, in any case, is a null. A part without a character is the empty text.
//!
//! Beyond DuckDB, the parser accepts JSON and PostgreSQL's arrays: `\n`, `\u00e9` and JSON's other escapes within
//! double quotes, a colon after a quoted map key, and `{a,b}` as a list.
//!
//! Cost: one pass over the text, and a copy of each part.

/// The error for a text that is not a value of the wanted kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedNestedText;

type Result<T> = std::result::Result<T, MalformedNestedText>;

/// The text of a part; `None` for a null.
pub(crate) type NestedPartText = Option<String>;

/// The parts of a struct.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StructMembers {
    /// Names and values.
    Named(Vec<(String, NestedPartText)>),
    /// Values in the order of the fields; there may be fewer.
    Positional(Vec<NestedPartText>),
}

/// Splits the text of a list into its items.
pub(crate) fn split_list(text: &str) -> Result<Vec<NestedPartText>> {
    let mut scanner = NestedTextScanner { text, position: 0 };
    let end = match scanner.next_byte()? {
        b'[' => b']',
        b'{' => b'}',
        _ => return Err(MalformedNestedText),
    };
    let mut items = Vec::new();
    loop {
        let item = scanner.take_value(&[b',', end])?;
        let is_last = scanner.next_byte()? == end;
        if !(is_last && items.is_empty() && item.is_empty()) {
            items.push(parse_part(item)?);
        }
        if is_last {
            return scanner.finish(items);
        }
    }
}

/// Splits the text of a struct into its members.
pub(crate) fn split_struct(text: &str) -> Result<StructMembers> {
    let mut scanner = NestedTextScanner { text, position: 0 };
    match scanner.next_byte()? {
        b'(' => {
            let values = split_tuple(&mut scanner)?;
            scanner.finish(StructMembers::Positional(values))
        }
        b'{' => {
            let mut members = Vec::new();
            if scanner.take_byte(b'}') {
                return scanner.finish(StructMembers::Named(members));
            }
            loop {
                let name = scanner.take_field_name()?;
                scanner.next_byte()?;
                if name.is_empty() || is_null(name) {
                    return Err(MalformedNestedText);
                }
                let name = unquote(name, false)?;
                members.push((name, parse_part(scanner.take_value(b",}")?)?));
                if scanner.next_byte()? == b'}' {
                    return scanner.finish(StructMembers::Named(members));
                }
            }
        }
        _ => Err(MalformedNestedText),
    }
}

/// Splits the values between round brackets; the opening bracket is consumed already. A comma may follow the last one.
fn split_tuple(scanner: &mut NestedTextScanner) -> Result<Vec<NestedPartText>> {
    let mut values = Vec::new();
    while !scanner.take_byte(b')') {
        values.push(parse_part(scanner.take_value(b",)")?)?);
        if scanner.next_byte()? == b')' {
            break;
        }
    }
    Ok(values)
}

/// Splits the text of a map into its keys and values.
pub(crate) fn split_map_text(text: &str) -> Result<Vec<(String, NestedPartText)>> {
    let mut scanner = NestedTextScanner { text, position: 0 };
    if scanner.next_byte()? != b'{' {
        return Err(MalformedNestedText);
    }
    let mut entries = Vec::new();
    if scanner.take_byte(b'}') {
        return scanner.finish(entries);
    }
    loop {
        let key = match scanner.take_json_key() {
            Some(key) => key,
            None => scanner.take_value(b"=")?,
        };
        scanner.next_byte()?;
        // A map key cannot be null.
        let key = parse_part(key)?.ok_or(MalformedNestedText)?;
        entries.push((key, parse_part(scanner.take_value(b",}")?)?));
        if scanner.next_byte()? == b'}' {
            return scanner.finish(entries);
        }
    }
}

/// Appends a leaf value, in quotes if it would not be parsed back without them.
pub(crate) fn write_leaf_value(text: &str, out: &mut String) {
    let is_special = |byte: u8| b",:='\"()[]{}".contains(&byte);
    let bytes = text.as_bytes();
    let needs_quotes = text.is_empty()
        || is_null(text)
        || bytes.first().is_some_and(is_space)
        || bytes.last().is_some_and(is_space)
        || text.bytes().any(is_special);
    match needs_quotes {
        true => out.push_str(&quote_text(text)),
        false => out.push_str(text),
    }
}

/// Quotes a text with single quotes.
pub(crate) fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn is_null(text: &str) -> bool {
    text.eq_ignore_ascii_case("null")
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'\'' | b'"')
}

/// A text with a read position. All significant bytes are ASCII, so that the scanner never cuts a text within a
/// character.
struct NestedTextScanner<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> NestedTextScanner<'a> {
    fn peek(&self) -> Result<u8> {
        self.text.as_bytes().get(self.position).copied().ok_or(MalformedNestedText)
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_ok_and(|byte| is_space(&byte)) {
            self.position += 1;
        }
    }

    /// Takes the next byte that is not white space.
    fn next_byte(&mut self) -> Result<u8> {
        self.skip_spaces();
        let byte = self.peek()?;
        self.position += 1;
        Ok(byte)
    }

    /// Takes `byte`, if it is the next one that is not white space.
    fn take_byte(&mut self, byte: u8) -> bool {
        self.skip_spaces();
        let is_next = self.peek() == Ok(byte);
        self.position += usize::from(is_next);
        is_next
    }

    /// Returns `value` if nothing but white space is left.
    fn finish<T>(&mut self, value: T) -> Result<T> {
        self.skip_spaces();
        if self.position == self.text.len() { Ok(value) } else { Err(MalformedNestedText) }
    }

    /// Takes a value as written, up to one of `ends` outside quotes and brackets.
    fn take_value(&mut self, ends: &[u8]) -> Result<&'a str> {
        let start = self.position;
        let mut is_escaped = false;
        loop {
            let byte = self.peek()?;
            if ends.contains(&byte) {
                return Ok(self.trimmed_text_since(start));
            }
            match byte {
                quote if is_quote(quote) && !is_escaped => self.skip_quoted()?,
                b'[' | b'{' | b'(' => self.skip_brackets()?,
                _ => self.position += 1,
            }
            is_escaped = byte == b'\\';
        }
    }

    /// Takes the name of a struct field as written, up to a colon outside quotes. Brackets are part of the name.
    fn take_field_name(&mut self) -> Result<&'a str> {
        let start = self.position;
        let mut is_escaped = false;
        loop {
            let byte = self.peek()?;
            match byte {
                b':' => return Ok(self.trimmed_text_since(start)),
                quote if is_quote(quote) && !is_escaped => self.skip_quoted()?,
                _ => self.position += 1,
            }
            is_escaped = byte == b'\\' && !is_escaped;
        }
    }

    /// Takes a JSON key: a quoted text before a colon, which is not taken.
    fn take_json_key(&mut self) -> Option<&'a str> {
        self.skip_spaces();
        let start = self.position;
        if self.peek().is_ok_and(is_quote) && self.skip_quoted().is_ok() {
            let key = self.trimmed_text_since(start);
            self.skip_spaces();
            if self.peek() == Ok(b':') {
                return Some(key);
            }
        }
        self.position = start;
        None
    }

    /// Returns the text from `start` to the position, without surrounding white space.
    fn trimmed_text_since(&self, start: usize) -> &'a str {
        let is_space = |sign: char| sign.is_ascii() && is_space(&(sign as u8));
        self.text[start..self.position].trim_matches(is_space)
    }

    /// Takes four hexadecimal digits.
    fn take_utf16_unit(&mut self) -> Result<u16> {
        let digits = self.text.get(self.position..self.position + 4).ok_or(MalformedNestedText)?;
        self.position += 4;
        match digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => u16::from_str_radix(digits, 16).map_err(|_| MalformedNestedText),
            false => Err(MalformedNestedText),
        }
    }

    /// Skips a quoted text, whose opening quote is the next byte.
    fn skip_quoted(&mut self) -> Result<()> {
        let quote = self.peek()?;
        self.position += 1;
        loop {
            let byte = self.peek()?;
            self.position += 1;
            if byte == quote {
                return Ok(());
            }
            if byte == b'\\' {
                self.peek()?;
                self.position += 1;
            }
        }
    }

    /// Skips a bracket and everything up to its closing bracket.
    fn skip_brackets(&mut self) -> Result<()> {
        let mut closers = Vec::new();
        let mut is_escaped = false;
        loop {
            let byte = self.peek()?;
            match byte {
                quote if is_quote(quote) && !is_escaped => self.skip_quoted()?,
                _ => self.position += 1,
            }
            match byte {
                b'[' => closers.push(b']'),
                b'{' => closers.push(b'}'),
                b'(' => closers.push(b')'),
                byte if closers.last() == Some(&byte) => {
                    closers.pop();
                    if closers.is_empty() {
                        return Ok(());
                    }
                }
                _ => {}
            }
            is_escaped = byte == b'\\';
        }
    }
}

/// Parses a part: drops its quotes; `None` for a null.
fn parse_part(written: &str) -> Result<NestedPartText> {
    if is_null(written) { Ok(None) } else { unquote(written, true).map(Some) }
}

/// Removes quotes and backslashes. With `keeps_brackets`, text within brackets is copied unchanged.
fn unquote(written: &str, keeps_brackets: bool) -> Result<String> {
    let mut out = String::with_capacity(written.len());
    let mut scanner = NestedTextScanner { text: written, position: 0 };
    let mut opened = None;
    while let Some(sign) = written[scanner.position..].chars().next() {
        let start = scanner.position;
        scanner.position += sign.len_utf8();
        match (sign, opened) {
            ('\\', Some(quote)) => {
                let escaped =
                    written[scanner.position..].chars().next().ok_or(MalformedNestedText)?;
                scanner.position += escaped.len_utf8();
                out.push(match quote {
                    '"' => json_escape_character(escaped, &mut scanner)?,
                    _ => escaped,
                });
            }
            ('\\', None) if scanner.peek().is_ok_and(is_quote) => {
                out.push(char::from(scanner.peek()?));
                scanner.position += 1;
            }
            ('\'' | '"', None) => opened = Some(sign),
            (sign, Some(quote)) if sign == quote => opened = None,
            ('[' | '{' | '(', None) if keeps_brackets => {
                scanner.position = start;
                scanner.skip_brackets()?;
                out.push_str(&written[start..scanner.position]);
            }
            _ => out.push(sign),
        }
    }
    Ok(out)
}

/// Returns the character of JSON's escape `\escaped`, or `escaped` itself if JSON has no such escape. The digits of
/// `\u` follow in the scanner.
fn json_escape_character(escaped: char, scanner: &mut NestedTextScanner) -> Result<char> {
    Ok(match escaped {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let mut units = vec![scanner.take_utf16_unit()?];
            // The first half of a surrogate pair, for a character beyond U+FFFF.
            let is_first_half = (0xd800..0xdc00).contains(&units[0]);
            if is_first_half && scanner.text[scanner.position..].starts_with("\\u") {
                scanner.position += 2;
                units.push(scanner.take_utf16_unit()?);
            }
            let mut characters = char::decode_utf16(units);
            match (characters.next(), characters.next()) {
                (Some(Ok(character)), None) => character,
                _ => return Err(MalformedNestedText),
            }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(parts: &[Option<&str>]) -> Vec<NestedPartText> {
        parts.iter().map(|part| part.map(str::to_owned)).collect()
    }

    /// DuckDB's results, except for JSON's escapes and PostgreSQL's arrays.
    #[test]
    fn lists_are_split_as_duckdb_splits_them() {
        for (text, items) in [
            (" [] ", &[][..]),
            ("[ a b , ]", &[Some("a b"), Some("")]),
            ("[,]", &[Some(""), Some("")]),
            (
                "[NULL, nUlL, 'null', \"NULL\", NULLz]",
                &[None, None, Some("null"), Some("NULL"), Some("NULLz")],
            ),
            (r"[hello\ world, a\,b]", &[Some(r"hello\ world"), Some(r"a\"), Some("b")]),
            (r#"["hello\ world", "a\,b"]"#, &[Some("hello world"), Some("a,b")]),
            (r#"[hello\"quoted\"text, can\'t]"#, &[Some("hello\"quoted\"text"), Some("can't")]),
            (r"[escaped\\backslash]", &[Some(r"escaped\\backslash")]),
            (r#"["escaped\\backslash", "\""]"#, &[Some(r"escaped\backslash"), Some("\"")]),
            (r#"[nested"["bracket, 'a' "b" c]"#, &[Some("nested[bracket"), Some("a b c")]),
            (
                r#"[[a, "b]"], {x: [1]}, f(x, y)]"#,
                &[Some(r#"[a, "b]"]"#), Some("{x: [1]}"), Some("f(x, y)")],
            ),
            (r#"[{"bar":"\""}]"#, &[Some(r#"{"bar":"\""}"#)]),
            (r"[\  \\abc\\ \ , def]", &[Some(r"\  \\abc\\ \"), Some("def")]),
            ("[:)]", &[Some(":)")]),
            (r#"["a\n\u00e9\ud83e\udd86\/\w"]"#, &[Some("a\né🦆/w")]),
            (r"['a\n']", &[Some("an")]),
            ("{1,NULL,3}", &[Some("1"), None, Some("3")]),
        ] {
            assert_eq!(split_list(text), Ok(texts(items)), "{text}");
        }
    }

    #[test]
    fn structs_are_split_by_name_and_by_position() {
        let named = |members: &[(&str, Option<&str>)]| {
            let members =
                members.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)));
            Ok(StructMembers::Named(members.collect()))
        };
        for (text, members) in [
            ("{ }", &[][..]),
            (
                "{a: 1, b  :  hello world, c:}",
                &[("a", Some("1")), ("b", Some("hello world")), ("c", Some(""))],
            ),
            (
                r#"{"a": "x,y", 'b': [1, {c: 2}]}"#,
                &[("a", Some("x,y")), ("b", Some("[1, {c: 2}]"))],
            ),
            (
                "{user,name: Alice, {x}: 3, user(name: y}",
                &[("user,name", Some("Alice")), ("{x}", Some("3")), ("user(name", Some("y"))],
            ),
            (
                r#"{"name\:": test, back\slash: NULL}"#,
                &[("name:", Some("test")), (r"back\slash", None)],
            ),
            (r#"{\"quote at start\": a:b}"#, &[("\"quote at start\"", Some("a:b"))]),
        ] {
            assert_eq!(split_struct(text), named(members), "{text}");
        }
        for (text, values) in [
            ("()", &[][..]),
            ("(a, NULL, 'null')", &[Some("a"), None, Some("null")]),
            ("([1,2],)", &[Some("[1,2]")]),
            ("((42), {b: (1)})", &[Some("(42)"), Some("{b: (1)}")]),
        ] {
            assert_eq!(split_struct(text), Ok(StructMembers::Positional(texts(values))), "{text}");
        }
    }

    #[test]
    fn maps_are_split() {
        for (text, entries) in [
            ("{}", &[][..]),
            ("{k=1, 'l m'=NULL}", &[("k", Some("1")), ("l m", None)]),
            ("{=}", &[("", Some(""))]),
            ("{key,with,comma = value}", &[("key,with,comma", Some("value"))]),
            ("{key=with=equals = value}", &[("key", Some("with=equals = value"))]),
            (r#"{key"with"quote = a{b}c}"#, &[("keywithquote", Some("a{b}c"))]),
            (r#"{"k": 1, "x=y": [2, 3]}"#, &[("k", Some("1")), ("x=y", Some("[2, 3]"))]),
        ] {
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)))
                .collect();
            assert_eq!(split_map_text(text), Ok(entries), "{text}");
        }
    }

    #[test]
    fn malformed_texts_are_refused() {
        for text in [
            "",
            "1",
            "[1",
            "[1] x",
            "[[1]",
            "['a]",
            "[a\"b]",
            "[unescaped[bracket]",
            "[\"\\\"]",
            "[\"\\u12\"]",
            "[\"\\ud800\"]",
            "[\"\\udc00\"]",
            "[it's, ok]",
        ] {
            assert_eq!(split_list(text), Err(MalformedNestedText), "{text}");
        }
        for text in
            ["{a 1}", "{a: 1,}", "{: 1}", "{NULL: 1}", "{a: 1}}", "{a: \"b}", "(a", "[a: 1]"]
        {
            assert_eq!(split_struct(text), Err(MalformedNestedText), "{text}");
        }
        for text in ["{k:1}", "{NULL=1}", "{k = a,b}", "{k=1,}", "(k=1)"] {
            assert_eq!(split_map_text(text), Err(MalformedNestedText), "{text}");
        }
    }

    #[test]
    fn values_are_quoted_only_when_needed_to_read_them_back() {
        for (value, written) in [
            ("a b", "a b"),
            ("", "''"),
            ("nUll", "'nUll'"),
            (" a", "' a'"),
            ("a\u{b}", "'a\u{b}'"),
            (r"\back\slash\", r"\back\slash\"),
            (r"C:\x", r"'C:\\x'"),
            ("it's", r"'it\'s'"),
        ] {
            let mut out = String::new();
            write_leaf_value(value, &mut out);
            assert_eq!(out, written);
            assert_eq!(split_list(&format!("[{out}]")), Ok(vec![Some(value.to_owned())]));
        }
    }
}
