//! The decoder of logs whose lines the user describes: by Apache's `LogFormat`, by nginx's `log_format`, or
//! by named patterns in the style of grok.
//!
//! ```text
//!   %h %l %u %t "%r" %>s %b %D            LogFormat, as in httpd.conf
//!   $remote_addr [$time_local] $status    log_format, as in nginx.conf
//!   %{IP:ip} %{WORD:verb} %{INT:ms:int}   named patterns
//! ```
//!
//! Sources: the Apache HTTP server's documentation of `mod_log_config`, `mod_logio` and "Log
//! Files"; nginx's `ngx_http_log_module`, `ngx_http_core_module` and `ngx_http_upstream_module`; the
//! manual of Logstash's grok filter. The patterns in [`grok`] follow the meaning of their names.
//!
//! # Grammar
//! A description is compiled once into text that stands in every line, and **fields** between.
//! A field ends at the first occurrence of the whole text after it (for a time whose own
//! spelling contains that text, at a later one). If that text begins with a quote and the field began with
//! one, an escaped quote (`\"`) does not end the field. The text after the last field ends its line. So a
//! user with spaces is whole in `%u [`, and an unescaped quote does little harm. Some fields may contain the
//! text after them. A host before its port (`%v:%p`) extends to the last colon before the port's end, since
//! an IPv6 address contains colons. A value that nginx writes for several servers that were asked
//! (`0.004, 0.001 : 0.002`) does not end at the spaces in it, nor does `X-Forwarded-For`
//! (`10.0.0.1, 10.0.0.2`), nor a client (`%h`, `%a`, `$remote_addr`), in whose place servers behind proxies
//! write such a list. A request without quotes before a space (`%r %>s`) contains the spaces between its
//! method, its path and its protocol. The parser refuses a description with two adjacent fields: nothing
//! would separate them.
//!
//! A blank line is no record. `-` is null in every column except Apache's `%X` and the texts of named
//! patterns, where it is a value. An empty value in a column that is not text is null. `\"`, `\\`,
//! `\n`, `\xhh` … are resolved as in [`access_log`](crate::access_log), in a
//! `log_format … escape=json` as in JSON, and not at all in one with `escape=none` and in patterns.
//!
//! Columns have the same names as in [`access_log`](crate::access_log), `request_time` is in
//! seconds whoever wrote it, and a repeated name gets a number: `ip_2`.
//!
//! # Method
//! In each line, one `memchr` for the first byte of the text after a field finds the field's end, and the
//! tokenizer records spans only for wanted fields. Patterns are compiled to a regular
//! expression, which [`backtracking_matcher`] matches by runs of bytes.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::Float64Type;
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};

use crate::access_log::{self, ClfDayCache, parse_seconds};
use crate::array_builders::{self, DecodingContext};
use crate::block_decoder::{FormatDecoder, TokenizedWindow, Tokenizer, WINDOW_BYTES, decodes};
use crate::column_decoder::{ColumnDecoder, ColumnNode};
use crate::lines;
use crate::predicate_filter::SpanFilter;
use crate::text_fault::{TextFault, TextFaultKind};
use crate::value_parsing::{NullStrings, is_text_type};
use crate::value_span::ValueSpan;
use strftime_times::StrftimeFormat;

mod apache;
mod backtracking_matcher;
pub mod grok;
mod nginx;
mod strftime_times;

/// Names of common formats, and their descriptions.
pub const NAMED_FORMATS: [(&str, &str); 6] = [
    ("common", r#"%h %l %u %t "%r" %>s %b"#),
    ("combined", r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#),
    ("combinedio", r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %I %O"#),
    ("vhost_common", r#"%v %h %l %u %t "%r" %>s %b"#),
    ("vhost_combined", r#"%v:%p %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#),
    (
        "main",
        r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for""#,
    ),
];

/// The column of the client.
const CLIENT_COLUMN: &str = "ip";

/// Maximum length of a description.
const DESCRIPTION_BYTES_MAX: usize = 16 << 10;

/// The reason why a description is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFormatError {
    /// The fault.
    pub message: String,
    /// A hint at a valid description.
    pub hint: String,
}

impl LogFormatError {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl std::fmt::Display for LogFormatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LogFormatError {}

/// The format of a log's lines.
#[derive(Debug, Clone)]
pub struct LogFormat {
    columns: Vec<LogColumn>,
    matcher: LineMatcher,
    escapes: EscapeStyle,
}

/// A column and its source.
#[derive(Debug, Clone)]
struct LogColumn {
    field: FieldRef,
    /// Index of the field in the line.
    line_field: usize,
    part: FieldPart,
    reading: ValueReading,
    /// Pattern of a time, in the directives of `strftime`.
    strftime_pattern: Option<String>,
}

/// The part of a field that a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldPart {
    WholeField,
    /// Method, path or protocol of a request.
    RequestPart(usize),
}

/// The way in which a field's text becomes a value.
#[derive(Debug, Clone, PartialEq)]
enum ValueReading {
    /// The common parsers of the column's type.
    PlainValue,
    /// A time of the Common Log Format: `10/Oct/2000:13:55:36 -0700`.
    ClfTime,
    /// A time with another pattern.
    PatternTime(StrftimeFormat),
    /// A time such as `2000-10-10 13:55:36,250`; without a zone it is UTC.
    IsoTime,
    /// Seconds, or the sum of the seconds of several servers that were asked one after the other.
    Seconds,
    /// Text in which `-` is a value.
    VerbatimText,
}

/// The escapes in values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EscapeStyle {
    /// Escapes of web servers.
    WebServer,
    /// Escapes of JSON strings.
    Json,
    NoEscapes,
}

/// The method of finding fields.
#[derive(Debug, Clone)]
enum LineMatcher {
    Delimited(DelimitedFields),
    /// By a regular expression.
    NamedPatterns(grok::GrokPattern),
}

/// The fields of a line with the text around them.
#[derive(Debug, Clone, Default, PartialEq)]
struct DelimitedFields {
    /// The text before the first field.
    leading_text: Vec<u8>,
    delimited_fields: Vec<DelimitedField>,
}

/// A field and the text after it.
#[derive(Debug, Clone, PartialEq)]
struct DelimitedField {
    /// Name of the field in messages.
    column_name: Arc<str>,
    /// The text after it; if empty, the field extends to the end of the line.
    end_text: Vec<u8>,
    /// True if it stands in quotes.
    is_quoted: bool,
    /// Delimiters that the field may contain.
    tolerance: DelimiterTolerance,
}

/// Occurrences of the text after a field that the field may contain, although that text would end another
/// field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum DelimiterTolerance {
    #[default]
    NoDelimiters,
    /// Colons: the field is a host, and a port follows its last colon.
    HostColons,
    /// Separators of list items: `, ` and ` : `.
    ListSeparators,
    /// Spaces beside commas, as in a list of clients.
    ClientListSpaces,
    /// Spaces of a request without quotes.
    RequestSpaces,
    /// A time whose pattern contains the text after it this many times.
    TimeDelimiters(usize),
}

/// A piece of a description, before its columns have their names.
#[derive(Debug, Clone, PartialEq)]
enum FormatToken {
    Text(Vec<u8>),
    Field { name: String, kind: LogFieldKind, written: String },
}

/// The kind of a field.
#[derive(Debug, Clone, PartialEq)]
enum LogFieldKind {
    Text,
    /// Text in which `-` is a value.
    VerbatimText,
    /// A response status.
    Status,
    /// A port number.
    Port,
    Int,
    Float,
    Seconds,
    /// A request: `GET /a HTTP/1.1`.
    Request,
    /// A time of the Common Log Format.
    ClfTime,
    /// A time with a `strftime` pattern.
    PatternTime(String),
    /// A timestamp in the common spelling, or without a zone, or with a comma before its fraction, as in
    /// Java's and Python's logs.
    IsoTime,
}

impl LogFormat {
    /// Parses a description, as it stands in a server's configuration, or the name of a common one.
    ///
    /// # Errors
    /// The fault of the description.
    pub fn new(description: &str) -> Result<Self, LogFormatError> {
        let text = description.trim();
        if text.len() > DESCRIPTION_BYTES_MAX {
            return Err(LogFormatError::new(
                format!("the log format is longer than {DESCRIPTION_BYTES_MAX} bytes"),
                "a line of a log is described, not its file",
            ));
        }
        if let Some((_, known)) = NAMED_FORMATS.iter().find(|(name, _)| *name == text) {
            return Self::new(known);
        }
        if let Some(format) = nginx::parse_directive(text)? {
            return Self::from_nginx(&format.text, format.escapes);
        }
        let text = match apache::parse_config_line(text)? {
            Some(text) => text,
            None if grok::has_named_pattern(text) => return grok::compile_format(text),
            None => unquote_description(text),
        };
        if has_apache_directive(&text) {
            return Self::from_tokens(apache::parse_tokens(&text)?, EscapeStyle::WebServer);
        }
        if nginx::has_variable(&text) {
            return Self::from_nginx(&text, EscapeStyle::WebServer);
        }
        let names: Vec<&str> = NAMED_FORMATS.iter().map(|(name, _)| *name).collect();
        Err(LogFormatError::new(
            format!("`{}` is no log format: it names no field", crate::value_excerpt(&text)),
            format!(
                "Apache's '%h %l %u %t \"%r\" %>s %b', nginx's '$remote_addr [$time_local] …', named \
                 patterns '%{{IP:ip}} %{{INT:ms:int}}', or one of {}",
                names.join(", ")
            ),
        ))
    }

    fn from_nginx(text: &str, escapes: EscapeStyle) -> Result<Self, LogFormatError> {
        Self::from_tokens(nginx::parse_tokens(text)?, escapes)
    }

    /// Builds a format from fields and the text between them.
    fn from_tokens(tokens: Vec<FormatToken>, escapes: EscapeStyle) -> Result<Self, LogFormatError> {
        let mut names = UniqueColumnNames::default();
        let (mut columns, mut steps) = (Vec::new(), DelimitedFields::default());
        // For each field, the literal characters of its time pattern.
        let mut written_times: Vec<String> = Vec::new();
        // The source text of the preceding field, if nothing stands after it yet.
        let mut before: Option<String> = None;
        for token in tokens {
            match token {
                FormatToken::Text(text) if steps.delimited_fields.is_empty() => {
                    steps.leading_text.extend(text)
                }
                FormatToken::Text(text) => {
                    before = None;
                    if let Some(step) = steps.delimited_fields.last_mut() {
                        step.end_text.extend(text);
                    }
                }
                FormatToken::Field { name, kind, written } => {
                    if let Some(before) = before {
                        return Err(LogFormatError::new(
                            format!(
                                "nothing stands between `{before}` and `{written}` in the log format"
                            ),
                            "nothing would tell where one ends; write something between them in \
                             the server's configuration, or leave one out",
                        ));
                    }
                    let place = steps.delimited_fields.len();
                    let first = columns.len();
                    if kind == LogFieldKind::Port
                        && let Some(host) = steps.delimited_fields.last_mut()
                        && host.end_text == b":"
                    {
                        host.tolerance = DelimiterTolerance::HostColons;
                    }
                    let holds = match nginx::is_list_variable(&written)
                        || apache::is_list_directive(&written)
                    {
                        true => DelimiterTolerance::ListSeparators,
                        false if name == CLIENT_COLUMN => DelimiterTolerance::ClientListSpaces,
                        false if kind == LogFieldKind::Request => DelimiterTolerance::RequestSpaces,
                        false => DelimiterTolerance::NoDelimiters,
                    };
                    names.add_columns(&mut columns, &name, &kind, place);
                    let name = match columns.get(first) {
                        Some(LogColumn { part: FieldPart::RequestPart(_), .. }) | None => name,
                        Some(column) => column.field.name().clone(),
                    };
                    written_times.push(match &kind {
                        LogFieldKind::PatternTime(pattern) => {
                            strftime_times::literal_signs(pattern)
                        }
                        _ => String::new(),
                    });
                    steps.delimited_fields.push(DelimitedField {
                        column_name: name.into(),
                        end_text: Vec::new(),
                        is_quoted: false,
                        tolerance: holds,
                    });
                    before = Some(written);
                }
            }
        }
        for (step, signs) in steps.delimited_fields.iter_mut().zip(&written_times) {
            let until = std::str::from_utf8(&step.end_text).unwrap_or_default();
            let count = if until.is_empty() { 0 } else { signs.matches(until).count() };
            if count > 0 {
                step.tolerance = DelimiterTolerance::TimeDelimiters(count);
            }
        }
        steps.mark_quoted_fields();
        Ok(Self { columns, matcher: LineMatcher::Delimited(steps), escapes })
    }

    /// Returns the columns in the order of their positions; all may be null.
    #[must_use]
    pub fn columns(&self) -> Vec<FieldRef> {
        self.columns.iter().map(|column| column.field.clone()).collect()
    }

    /// Returns the `strftime` pattern of a time column; `None` for any other column, and for times that
    /// `strftime` cannot express.
    #[must_use]
    pub fn strftime_pattern(&self, column: &str) -> Option<&str> {
        self.columns.iter().find(|own| own.field.name() == column)?.strftime_pattern.as_deref()
    }
}

impl DelimitedFields {
    /// Marks the fields that stand in quotes.
    fn mark_quoted_fields(&mut self) {
        let mut before = self.leading_text.last().copied();
        for step in &mut self.delimited_fields {
            step.is_quoted = before == Some(b'"') && step.end_text.first() == Some(&b'"');
            before = step.end_text.last().copied();
        }
    }

    /// Finds the fields of a line, whose range in the block is `line`.
    #[inline]
    fn find_fields(
        &self,
        block: &[u8],
        line: Range<usize>,
        mut take: impl FnMut(usize, Range<usize>),
    ) -> Result<(), TextFault> {
        let text = &block[..line.end];
        let syntax = |at: usize, reason: String| {
            Err(TextFault::new(at - line.start, TextFaultKind::SyntaxError(reason)))
        };
        let mut at = line.start;
        if !text[at..].starts_with(&self.leading_text) {
            return syntax(at, format!("expected `{}`", excerpt_bytes(&self.leading_text)));
        }
        at += self.leading_text.len();
        for (place, step) in self.delimited_fields.iter().enumerate() {
            let is_last = |place: usize| place + 1 == self.delimited_fields.len();
            let end_of = |step: &DelimitedField, place: usize| match is_last(place) {
                true => step.end_at_line_end(text, at),
                false => step.find_end(text, at),
            };
            let end = match (step.tolerance, self.delimited_fields.get(place + 1)) {
                (DelimiterTolerance::HostColons, Some(port)) => end_of(port, place + 1)
                    .and_then(|end| memchr::memrchr(b':', &text[at..end]))
                    .map(|colon| at + colon),
                _ => end_of(step, place),
            };
            let Some(end) = end else {
                let reason = format!("`{}` should follow", excerpt_bytes(&step.end_text));
                return Err(TextFault::in_column(
                    &*step.column_name,
                    at - line.start,
                    TextFaultKind::EndsInsideValue(reason),
                ));
            };
            take(place, at..end);
            at = end + step.end_text.len();
        }
        // A description without a field has all its text in `leading_text`.
        if at < text.len() {
            return Err(TextFault::new(at - line.start, TextFaultKind::TrailingBytes));
        }
        Ok(())
    }
}

impl DelimitedField {
    /// Returns the end of the last field of a line, which begins at `start`.
    #[inline(always)]
    fn end_at_line_end(&self, text: &[u8], start: usize) -> Option<usize> {
        let end = text.len().checked_sub(self.end_text.len()).filter(|end| *end >= start)?;
        (text.ends_with(&self.end_text) && !(self.is_quoted && is_escaped_at(text, start, end)))
            .then_some(end)
    }

    /// Returns the end of the field that begins at `start`.
    #[inline(always)]
    fn find_end(&self, text: &[u8], start: usize) -> Option<usize> {
        let Some((&first, rest)) = self.end_text.split_first() else { return Some(text.len()) };
        if self.tolerance == DelimiterTolerance::RequestSpaces
            && first == b' '
            && let Some(end) = find_request_end(text, start)
            && text[end..].starts_with(&self.end_text)
        {
            return Some(end);
        }
        let mut from = start;
        let mut within = match self.tolerance {
            DelimiterTolerance::TimeDelimiters(count) => count,
            _ => 0,
        };
        loop {
            let at = from + memchr::memchr(first, text.get(from..)?)?;
            let behind = match self.tolerance {
                DelimiterTolerance::ListSeparators => {
                    next_list_item(text, start, at, &self.end_text)
                }
                DelimiterTolerance::ClientListSpaces => {
                    next_client(text, start, at, &self.end_text)
                }
                _ => None,
            };
            if let Some(behind) = behind {
                from = behind;
                continue;
            }
            if text[at + 1..].starts_with(rest)
                && !(self.is_quoted && is_escaped_at(text, start, at))
            {
                if within == 0 {
                    return Some(at);
                }
                within -= 1;
                from = at + self.end_text.len();
                continue;
            }
            from = at + 1;
        }
    }
}

/// Returns the start of the next list item, if the text at `at` separates it from the one before:
/// `0.004, 0.001`, or ` : ` between the times of two groups of servers.
fn next_list_item(text: &[u8], start: usize, at: usize, until: &[u8]) -> Option<usize> {
    if text[at..].starts_with(b", ") && !until.starts_with(b", ") {
        return Some(at + 2);
    }
    if text[at..].starts_with(b" : ") && !until.starts_with(b" :") {
        return Some(at + 3);
    }
    next_client(text, start, at, until)
}

/// Returns where a list continues after a space at `at` that stands beside a comma and would end a field:
/// `10.0.0.1, 10.0.0.2`.
fn next_client(text: &[u8], start: usize, at: usize, until: &[u8]) -> Option<usize> {
    if text[at] != b' ' || until.first() != Some(&b' ') {
        return None;
    }
    let is_behind_comma = at > start && text[at - 1] == b',';
    let is_before_comma = text.get(at + 1) == Some(&b',') && !until.starts_with(b" ,");
    (is_behind_comma || is_before_comma).then_some(at + 1)
}

/// Returns the end of a request without quotes that begins at `start`: after its path, or after the protocol
/// that follows. Returns `None` if it does not begin with a method and a space.
fn find_request_end(text: &[u8], start: usize) -> Option<usize> {
    let word_end = |from: usize| Some(from + memchr::memchr(b' ', text.get(from..)?)?);
    let method_end = word_end(start)?;
    let method = &text[start..method_end];
    let is_method = method.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'-' | b'_'));
    if method.is_empty() || method == b"-" || !is_method {
        return None;
    }
    let path_end = word_end(method_end + 1).filter(|end| *end > method_end + 1)?;
    match text[path_end + 1..].starts_with(b"HTTP/") {
        true => word_end(path_end + 1),
        false => Some(path_end),
    }
}

/// Returns the text of a description as messages show it.
fn excerpt_bytes(text: &[u8]) -> String {
    crate::value_excerpt(&String::from_utf8_lossy(text))
}

/// Returns whether an odd number of backslashes precede a byte, not counting those before `start`.
#[inline]
fn is_escaped_at(text: &[u8], start: usize, at: usize) -> bool {
    let before = &text[start..at];
    let others = before.iter().rposition(|byte| *byte != b'\\').map_or(0, |last| last + 1);
    (before.len() - others) % 2 == 1
}

/// Returns whether a description has one of Apache's directives.
fn has_apache_directive(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if rest.starts_with(|c: char| c.is_ascii_alphabetic() || "{<>!".contains(c)) {
            return true;
        }
        rest = rest.strip_prefix('%').unwrap_or(rest);
    }
    false
}

/// Returns a description without the quotes and escapes of its configuration file. nginx has several strings
/// one after the other, mostly in single quotes. Several in
/// double quotes may be fields.
fn unquote_description(text: &str) -> String {
    match parse_quoted_strings(text) {
        // A lone field stands in quotes in the log: a configuration has no reason to quote it.
        Some(whole) if text.starts_with('"') && whole.len() == 1 && is_single_field(&whole[0]) => {
            text.to_owned()
        }
        Some(whole) if whole.len() == 1 || text.starts_with('\'') => whole.concat(),
        _ => unescape_config(text),
    }
}

/// Returns whether a description is exactly one field.
fn is_single_field(text: &str) -> bool {
    let tokens = match has_apache_directive(text) {
        true => apache::parse_tokens(text),
        false => nginx::parse_tokens(text),
    };
    matches!(tokens.as_deref(), Ok([FormatToken::Field { .. }]))
}

/// Parses a text that consists of quoted strings only.
fn parse_quoted_strings(text: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (string, behind) = parse_quoted_string(rest)?;
        found.push(string);
        // A space or the end must follow a string.
        let next = behind.trim_start();
        if next.len() == behind.len() && !next.is_empty() {
            return None;
        }
        rest = next;
    }
    Some(found)
}

/// Parses the quoted string that a text begins with; returns it and the rest of the text.
fn parse_quoted_string(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return Some((unescape_config(&text[1..at]), &text[at + 1..]));
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

/// Resolves the escapes of a configuration file.
fn unescape_config(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = (c == '\\').then(|| chars.peek().copied()).flatten();
        let stands_for = match next {
            Some('t') => Some('\t'),
            Some(c @ ('"' | '\'' | '\\')) => Some(c),
            _ => None,
        };
        out.push(stands_for.unwrap_or(c));
        if stands_for.is_some() {
            chars.next();
        }
    }
    out
}

/// Returns the column name for a word of a configuration: `X-Request-Id` becomes `x_request_id`.
fn to_column_name(word: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    word.chars().map(plain).collect()
}

/// Returns the column name for a request's header.
fn header_column_name(name: &str) -> String {
    match to_column_name(name).as_str() {
        "referer" => "referrer".into(),
        other => other.to_owned(),
    }
}

/// The column names so far, each of which is unique.
#[derive(Debug, Default)]
struct UniqueColumnNames(std::collections::HashSet<String>);

impl UniqueColumnNames {
    fn make_unique(&mut self, name: &str) -> String {
        let mut found = name.to_owned();
        let mut number = 2;
        while !self.0.insert(found.clone()) {
            found = format!("{name}_{number}");
            number += 1;
        }
        found
    }

    /// Adds the columns of a field.
    fn add_columns(
        &mut self,
        columns: &mut Vec<LogColumn>,
        name: &str,
        kind: &LogFieldKind,
        place: usize,
    ) {
        let instant = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let (data_type, read) = match kind {
            LogFieldKind::Request => {
                for (index, name) in ["method", "path", "protocol"].into_iter().enumerate() {
                    let field = Field::new(self.make_unique(name), DataType::Utf8View, true);
                    let (field, part) = (Arc::new(field), FieldPart::RequestPart(index));
                    let read = ValueReading::PlainValue;
                    columns.push(LogColumn {
                        field,
                        line_field: place,
                        part,
                        reading: read,
                        strftime_pattern: None,
                    });
                }
                return;
            }
            LogFieldKind::Text => (DataType::Utf8View, ValueReading::PlainValue),
            LogFieldKind::VerbatimText => (DataType::Utf8View, ValueReading::VerbatimText),
            LogFieldKind::Status => (DataType::Int16, ValueReading::PlainValue),
            LogFieldKind::Port => (DataType::Int32, ValueReading::PlainValue),
            LogFieldKind::Int => (DataType::Int64, ValueReading::PlainValue),
            LogFieldKind::Float => (DataType::Float64, ValueReading::PlainValue),
            LogFieldKind::Seconds => (DataType::Float64, ValueReading::Seconds),
            LogFieldKind::ClfTime => (instant(), ValueReading::ClfTime),
            LogFieldKind::IsoTime => (instant(), ValueReading::IsoTime),
            LogFieldKind::PatternTime(pattern) => match StrftimeFormat::new(pattern) {
                Some(format) => (instant(), ValueReading::PatternTime(format)),
                // The pattern gives no instant, for example a clock without a date.
                None => (DataType::Utf8View, ValueReading::PlainValue),
            },
        };
        let words = match (kind, &read) {
            (LogFieldKind::ClfTime, _) => Some(strftime_times::CLF_PATTERN.to_owned()),
            (LogFieldKind::PatternTime(pattern), ValueReading::PatternTime(_)) => {
                (!strftime_times::is_epoch_number(pattern)).then(|| pattern.clone())
            }
            _ => None,
        };
        let field = Arc::new(Field::new(self.make_unique(name), data_type, true));
        columns.push(LogColumn {
            field,
            line_field: place,
            part: FieldPart::WholeField,
            reading: read,
            strftime_pattern: words,
        });
    }
}

// --------------------------------------------------------------------------------- decoding

/// A decoder of a log whose lines a [`LogFormat`] describes.
///
/// ```
/// use arrow_array::{cast::AsArray, types::Float64Type};
/// use tidemill_text::log_format::{LogFormat, LogFormatDecoder};
/// use tidemill_text::{BlockDecoder, DecodedBlocks, Options};
///
/// let format = LogFormat::new(r#"$host $remote_addr "$request" $request_time"#).unwrap();
/// let all = format.columns();
/// let wanted = [(0, all[0].clone()), (5, all[5].clone())].to_vec();
/// let mut decoder = LogFormatDecoder::new(&format, wanted, Options::default()).unwrap();
/// let mut out = DecodedBlocks::default();
/// decoder.decode(b"a.example 10.0.0.1 \"GET / HTTP/1.1\" 0.025\n", &mut out);
/// let batch = &out.batches[0];
/// assert_eq!(batch.column(0).as_string_view().value(0), "a.example");
/// assert_eq!(batch.column(1).as_primitive::<Float64Type>().value(0), 0.025);
/// ```
pub struct LogFormatDecoder {
    decoder: FormatDecoder<LogFormatTokenizer>,
}

impl LogFormatDecoder {
    /// Returns a decoder of `columns`, each a position among the format's columns and the column that it
    /// becomes: with the format's type, or any type that text can be read as.
    ///
    /// # Errors
    /// The first column of a type that its text cannot be read as.
    ///
    /// # Panics
    /// If a position is not one of the format's columns.
    pub fn new(
        format: &LogFormat,
        columns: Vec<(usize, FieldRef)>,
        options: crate::Options,
    ) -> Result<Self, FieldRef> {
        assert!(columns.iter().all(|(place, _)| *place < format.columns.len()), "no such column");
        // If `-` is a value in one column, the tokenizer turns it into null in the other ones.
        // In named patterns it is text like any other.
        let is_pattern = matches!(format.matcher, LineMatcher::NamedPatterns(_));
        let is_verbatim = |place: usize, field: &FieldRef| {
            format.columns[place].reading == ValueReading::VerbatimText
                || is_pattern && is_text_type(field.data_type())
        };
        let marks_nulls = columns.iter().any(|(place, field)| is_verbatim(*place, field));
        let words = if marks_nulls { vec![] } else { vec!["-".to_owned()] };
        let context = DecodingContext {
            nulls: NullStrings::new(&words, false),
            unescape: match format.escapes {
                EscapeStyle::WebServer => Arc::new(access_log::unescape_log_value),
                EscapeStyle::Json => Arc::new(crate::json::unescape_string),
                EscapeStyle::NoEscapes => Arc::new(|_, _| false),
            },
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            reads_hex_bytes: false,
        };
        let (mut built, mut fields, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for (place, field) in columns {
            let of = &format.columns[place];
            let column = match (field.data_type(), &of.reading) {
                (data_type, _) if data_type.is_nested() => None,
                (data_type @ DataType::Timestamp(..), ValueReading::ClfTime) => {
                    let mut days = ClfDayCache::default();
                    array_builders::new_instant_builder(data_type, move |bytes| {
                        days.parse_precise_instant(bytes)
                    })
                    .map(|leaf| ColumnDecoder::with_builder(&field, leaf))
                }
                (data_type @ DataType::Timestamp(..), ValueReading::IsoTime) => {
                    array_builders::new_instant_builder(data_type, strftime_times::parse_iso_time)
                        .map(|leaf| ColumnDecoder::with_builder(&field, leaf))
                }
                (data_type @ DataType::Timestamp(..), ValueReading::PatternTime(time)) => {
                    let time = time.clone();
                    array_builders::new_instant_builder(data_type, move |bytes| {
                        time.parse_instant(bytes)
                    })
                    .map(|leaf| ColumnDecoder::with_builder(&field, leaf))
                }
                (
                    DataType::Date32 | DataType::Date64,
                    ValueReading::ClfTime | ValueReading::PatternTime(_),
                ) => None,
                (data_type @ DataType::Float64, ValueReading::Seconds) => {
                    let leaf = array_builders::new_custom_spelling_builder::<Float64Type>(
                        data_type,
                        parse_seconds,
                    );
                    Some(ColumnDecoder::with_builder(&field, leaf))
                }
                _ => ColumnDecoder::new(&field, &context),
            };
            built.push(column.ok_or_else(|| field.clone())?);
            let is_text = is_text_type(field.data_type());
            let marks_nulls = marks_nulls && !is_verbatim(place, &field);
            wanted.push(WantedLogColumn {
                slot: of.line_field,
                part: of.part,
                is_text,
                reads_dash_as_null: marks_nulls,
            });
            fields.push(field);
        }
        let filter = SpanFilter::new(options.predicates, &fields);
        let tokenizer = LogFormatTokenizer::new(format, wanted);
        let decoder =
            FormatDecoder::with_columns(tokenizer, built, context, filter, options.batch_rows);
        Ok(Self { decoder })
    }
}

decodes!(LogFormatDecoder);

/// A wanted column and its source.
#[derive(Debug, Clone, Copy)]
struct WantedLogColumn {
    /// Index of the line's field; in [`LogFormatTokenizer`], its slot among the wanted fields.
    slot: usize,
    part: FieldPart,
    is_text: bool,
    /// True if the tokenizer turns `-` into null, and not the array builder.
    reads_dash_as_null: bool,
}

/// The tokenizer of logs with a described format.
struct LogFormatTokenizer {
    matcher: LineMatcher,
    has_escapes: bool,
    /// Slot of each field of a line, if it is wanted.
    slot_by_field: Vec<Option<usize>>,
    /// Number of wanted fields in a line.
    slot_count: usize,
    wanted_columns: Vec<WantedLogColumn>,
    /// Slots of the wanted fields that are requests.
    request_slots: Vec<usize>,
    /// Spans found in a window: `slot_count` for each row.
    found_spans: Vec<ValueSpan>,
    /// The parts of a window's requests.
    request_parts: Vec<[ValueSpan; 3]>,
}

impl LogFormatTokenizer {
    fn new(format: &LogFormat, wanted: Vec<WantedLogColumn>) -> Self {
        let fields = format.columns.iter().map(|column| column.line_field + 1).max().unwrap_or(0);
        let mut slots = vec![None; fields];
        let mut count = 0;
        let mut columns = Vec::new();
        let mut requests: Vec<usize> = Vec::new();
        for column in wanted {
            let slot = *slots[column.slot].get_or_insert_with(|| {
                count += 1;
                count - 1
            });
            if matches!(column.part, FieldPart::RequestPart(_)) && !requests.contains(&slot) {
                requests.push(slot);
            }
            columns.push(WantedLogColumn { slot, ..column });
        }
        let matcher = match &format.matcher {
            LineMatcher::NamedPatterns(pattern) => LineMatcher::NamedPatterns(
                pattern.with_wanted_fields(|place| slots.get(place).is_some_and(Option::is_some)),
            ),
            steps @ LineMatcher::Delimited(_) => steps.clone(),
        };
        Self {
            matcher,
            has_escapes: format.escapes != EscapeStyle::NoEscapes,
            slot_by_field: slots,
            slot_count: count,
            wanted_columns: columns,
            request_slots: requests,
            found_spans: Vec::new(),
            request_parts: Vec::new(),
        }
    }

    /// Records the spans of the wanted fields of a line.
    #[inline]
    fn match_line(&mut self, block: &[u8], line: Range<usize>) -> Result<(), TextFault> {
        let base = self.found_spans.len();
        self.found_spans.resize(base + self.slot_count, ValueSpan::NULL);
        let (found, slots) = (&mut self.found_spans[base..], &self.slot_by_field);
        let mut take = |place: usize, range: Range<usize>| {
            if let Some(Some(slot)) = slots.get(place) {
                found[*slot] = lines::plain_span(range);
            }
        };
        let taken = match &mut self.matcher {
            LineMatcher::Delimited(steps) => steps.find_fields(block, line, &mut take),
            LineMatcher::NamedPatterns(pattern) => pattern.find_fields(block, line, &mut take),
        };
        if taken.is_err() {
            self.found_spans.truncate(base);
        }
        taken
    }

    /// Pushes the spans found in a stretch of the block to the columns.
    fn push_spans(&mut self, block: &[u8], of: Range<usize>, columns: &mut [ColumnDecoder]) {
        let escapes = self.has_escapes && memchr::memchr(b'\\', &block[of]).is_some();
        let rows = self.found_spans.chunks_exact(self.slot_count.max(1));
        let value = |span: ValueSpan| match span.is_null() {
            true => ValueSpan::NULL,
            false => {
                access_log::value_span(block, span.start(), span.start() + span.len(), escapes)
            }
        };
        for &request in &self.request_slots {
            self.request_parts.clear();
            self.request_parts.extend(rows.clone().map(|row| match row.get(request) {
                Some(span) if !span.is_null() => {
                    let end = span.start() + span.len();
                    access_log::split_request(block, span.start(), end, escapes)
                }
                _ => [ValueSpan::NULL; 3],
            }));
            for (column, wanted) in columns.iter_mut().zip(&self.wanted_columns) {
                let (ColumnNode::Leaf { spans, .. }, FieldPart::RequestPart(which)) =
                    (&mut column.node, wanted.part)
                else {
                    continue;
                };
                if wanted.slot == request {
                    spans.extend(self.request_parts.iter().map(|parts| parts[which]));
                }
            }
        }
        for (column, wanted) in columns.iter_mut().zip(&self.wanted_columns) {
            let ColumnNode::Leaf { spans, .. } = &mut column.node else { continue };
            let slot = wanted.slot;
            match (wanted.part, wanted.is_text) {
                (FieldPart::RequestPart(_), _) => {}
                (FieldPart::WholeField, true) => {
                    spans.extend(rows.clone().map(|row| value(row[slot])))
                }
                // An empty text is null in a column that is not text.
                (FieldPart::WholeField, false) => spans.extend(rows.clone().map(|row| {
                    let span = row[slot];
                    if span.len() == 0 { ValueSpan::NULL } else { value(span) }
                })),
            }
            if wanted.reads_dash_as_null {
                // The columns hold only the window's spans.
                for span in spans.iter_mut().filter(|span| !span.is_null()) {
                    if span.raw_bytes(block) == b"-" {
                        *span = ValueSpan::NULL;
                    }
                }
            }
        }
    }
}

impl Tokenizer for LogFormatTokenizer {
    fn tokenize_window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> TokenizedWindow {
        let until = at.saturating_add(WINDOW_BYTES).min(block.len());
        self.found_spans.clear();
        let (mut next, mut rows) = (at, 0);
        while next < until && rows < rows_max {
            let line = lines::next_line_range(block, next);
            let text = lines::trim_line_end(block, line.clone());
            if !text.is_empty() {
                if block[text.start] == 0 || self.match_line(block, text).is_err() {
                    break;
                }
                rows += 1;
            }
            next = line.end;
        }
        if rows == 0 {
            return TokenizedWindow::IrregularFirstRow;
        }
        if simdutf8::basic::from_utf8(&block[at..next]).is_err() {
            return TokenizedWindow::IrregularRows;
        }
        self.push_spans(block, at..next, columns);
        TokenizedWindow::RegularRows { end: next, rows }
    }

    fn next_record_range(&self, block: &[u8], at: usize) -> Range<usize> {
        lines::next_nonblank_line(block, at, <[u8]>::is_empty)
    }

    fn tokenize_record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [ColumnDecoder],
        _: &DecodingContext,
    ) -> Result<(), TextFault> {
        let line = lines::trim_line_end(block, record.clone());
        self.found_spans.clear();
        self.match_line(block, line.clone())?;
        self.push_spans(block, line, columns);
        lines::check_record_utf8(block, record, columns)
    }
}

#[cfg(test)]
mod tests;
