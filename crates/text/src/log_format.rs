//! Logs whose lines the user describes: by Apache's `LogFormat`, by nginx's `log_format`, or by
//! named patterns in grok's manner.
//!
//! ```text
//!   %h %l %u %t "%r" %>s %b %D            LogFormat, as it stands in httpd.conf
//!   $remote_addr [$time_local] $status    log_format, as it stands in nginx.conf
//!   %{IP:ip} %{WORD:verb} %{INT:ms:int}   named patterns
//! ```
//!
//! Sources: the Apache HTTP server's documentation of `mod_log_config`, `mod_logio` and "Log
//! Files"; nginx's `ngx_http_log_module`, `ngx_http_core_module` and `ngx_http_upstream_module`; the
//! manual of Logstash's grok filter. The patterns in [`grok`] are written from what their names mean.
//!
//! # Grammar
//! A description is compiled once into **steps**: text that stands in every line, and fields between.
//! A field ends where the text behind it begins for the first time, as a whole (of a time whose own
//! spelling has it, behind that); where that begins with a quote and the field began with one, an
//! escaped quote (`\"`) does not end it. The text behind the last field ends its line. So a user with spaces is whole in `%u [`, and a quote that
//! nobody escaped does little harm. Two kinds of fields hold what is behind them: a host before its
//! port (`%v:%p`) goes on to the last colon before the port's end, as an address of IPv6 has colons
//! itself; and what nginx writes of several servers that were asked (`0.004, 0.001 : 0.002`) does not
//! end at the spaces in it, nor does `X-Forwarded-For` (`10.0.0.1, 10.0.0.2`), nor a client (`%h`, `%a`, `$remote_addr`), in whose
//! place servers behind proxies write such a list. A request that stands in no quotes before a space (`%r %>s`) has the
//! spaces between its method, its path and its protocol. Two fields with nothing between are refused when the
//! description is read: nothing would tell them apart.
//!
//! A blank line is no record, `-` is null in every column but Apache's `%X` and the texts of named
//! patterns, where it is a value, and so is an empty value in a column that is not text. `\"`, `\\`,
//! `\n`, `\xhh` … are undone as in [`access_log`](crate::access_log), in a
//! `log_format … escape=json` as in JSON, in one of `escape=none` and in patterns not at all.
//!
//! Columns have the names that [`access_log`](crate::access_log) has for them, `request_time` is in
//! seconds whoever wrote it, and a name that is taken gets a number: `ip_2`.
//!
//! # How
//! Per line, the end of each field is one `memchr` for the first byte of the text behind it, and
//! spans are written down for the fields that are wanted alone. Patterns are compiled to a regular
//! expression, which [`backtrack`] matches by runs of bytes.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::Float64Type;
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};

use crate::access_log::{self, Days, seconds};
use crate::column::{Column, Node};
use crate::decoder::{Decoder, Tokenizer, WINDOW_BYTES, Window, decodes};
use crate::fault::{Fault, FaultKind};
use crate::filter::Filter;
use crate::leaf::{self, Context};
use crate::lines;
use crate::span::Span;
use crate::values::{Nulls, is_text};
use times::TimeFormat;

mod apache;
mod backtrack;
pub mod grok;
mod nginx;
mod times;

/// Descriptions that have names, and what they are.
pub const NICKNAMES: [(&str, &str); 6] = [
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
const CLIENT: &str = "ip";

/// The longest description.
const DESCRIPTION_BYTES_MAX: usize = 16 << 10;

/// Why a description is not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFormat {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub hint: String,
}

impl BadFormat {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl std::fmt::Display for BadFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadFormat {}

/// What the lines of a log look like.
#[derive(Debug, Clone)]
pub struct LogFormat {
    columns: Vec<LogColumn>,
    matcher: Matcher,
    escapes: Escapes,
}

/// A column, and what it is made of.
#[derive(Debug, Clone)]
struct LogColumn {
    field: FieldRef,
    /// Which field of the line.
    place: usize,
    part: Part,
    read: Read,
    /// Of a time, how it is written, in the words of `strftime`.
    words: Option<String>,
}

/// What of a field a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// Of a request: its method, path, protocol.
    Request(usize),
}

/// How a field's text becomes a value.
#[derive(Debug, Clone, PartialEq)]
enum Read {
    /// As everywhere.
    Plain,
    /// `10/Oct/2000:13:55:36 -0700`.
    Clf,
    /// A time that is written in another way.
    Time(TimeFormat),
    /// `2000-10-10 13:55:36,250`: without a zone it is UTC.
    Iso,
    /// Seconds, or those of several servers that were asked one after the other, which are summed.
    Seconds,
    /// Text in which `-` is a value.
    Verbatim,
}

/// How values are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escapes {
    /// As web servers do.
    Log,
    /// As in strings of JSON.
    Json,
    None,
}

/// How fields are found.
#[derive(Debug, Clone)]
enum Matcher {
    Steps(Steps),
    /// By a regular expression.
    Pattern(grok::Pattern),
}

/// What stands in a line, from its start to its end.
#[derive(Debug, Clone, Default, PartialEq)]
struct Steps {
    /// The text before the first field.
    start: Vec<u8>,
    fields: Vec<Step>,
}

/// A field, and the text behind it.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    /// What messages call it.
    name: Arc<str>,
    /// The text behind it; empty, it goes on to the end of the line.
    until: Vec<u8>,
    /// Whether it stands in quotes.
    quoted: bool,
    /// What it may hold of the text behind it.
    holds: Holds,
}

/// What a field may hold of the text behind it, which would end another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Holds {
    #[default]
    Nothing,
    /// Colons: it is a host, and behind its last one is a port.
    Colons,
    /// What separates the items of a list: `, ` and ` : `.
    Separators,
    /// Spaces beside commas, as in a list of clients.
    Clients,
    /// The spaces of a request: it stands in no quotes.
    RequestSpaces,
    /// A time that is written with what is behind it in it, so many times.
    Times(usize),
}

/// A piece of a description, before its columns have their names.
#[derive(Debug, Clone, PartialEq)]
enum Token {
    Text(Vec<u8>),
    Field { name: String, kind: Kind, written: String },
}

/// What a field is.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Text,
    /// Text in which `-` is a value.
    Verbatim,
    /// A status.
    Status,
    /// A port.
    Port,
    Int,
    Float,
    Seconds,
    /// `GET /a HTTP/1.1`.
    Request,
    /// The time as the Common Log Format has it.
    Clf,
    /// A time in the words of `strftime`.
    Time(String),
    /// A timestamp as everywhere, or without a zone, or with a comma before its fraction, as Java's and Python's logs
    /// have it.
    Iso,
}

impl LogFormat {
    /// Reads a description, as it stands in a server's configuration or by its nickname.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(description: &str) -> Result<Self, BadFormat> {
        let text = description.trim();
        if text.len() > DESCRIPTION_BYTES_MAX {
            return Err(BadFormat::new(
                format!("the log format is longer than {DESCRIPTION_BYTES_MAX} bytes"),
                "a line of a log is described, not its file",
            ));
        }
        if let Some((_, known)) = NICKNAMES.iter().find(|(name, _)| *name == text) {
            return Self::new(known);
        }
        if let Some(format) = nginx::directive(text)? {
            return Self::of_nginx(&format.text, format.escapes);
        }
        let text = match apache::directive(text)? {
            Some(text) => text,
            None if grok::is_grok(text) => return grok::format(text),
            None => unquoted(text),
        };
        if is_apache(&text) {
            return Self::of_tokens(apache::tokens(&text)?, Escapes::Log);
        }
        if nginx::has_variable(&text) {
            return Self::of_nginx(&text, Escapes::Log);
        }
        let names: Vec<&str> = NICKNAMES.iter().map(|(name, _)| *name).collect();
        Err(BadFormat::new(
            format!("`{}` is no log format: it names no field", crate::shown(&text)),
            format!(
                "Apache's '%h %l %u %t \"%r\" %>s %b', nginx's '$remote_addr [$time_local] …', named \
                 patterns '%{{IP:ip}} %{{INT:ms:int}}', or one of {}",
                names.join(", ")
            ),
        ))
    }

    fn of_nginx(text: &str, escapes: Escapes) -> Result<Self, BadFormat> {
        Self::of_tokens(nginx::tokens(text)?, escapes)
    }

    /// Of fields and the text between them.
    fn of_tokens(tokens: Vec<Token>, escapes: Escapes) -> Result<Self, BadFormat> {
        let mut names = Names::default();
        let (mut columns, mut steps) = (Vec::new(), Steps::default());
        // Of each field, what stands between the numbers of its time.
        let mut written_times: Vec<String> = Vec::new();
        // Of a description that lies, the field before.
        let mut before: Option<String> = None;
        for token in tokens {
            match token {
                Token::Text(text) if steps.fields.is_empty() => steps.start.extend(text),
                Token::Text(text) => {
                    before = None;
                    if let Some(step) = steps.fields.last_mut() {
                        step.until.extend(text);
                    }
                }
                Token::Field { name, kind, written } => {
                    if let Some(before) = before {
                        return Err(BadFormat::new(
                            format!(
                                "nothing stands between `{before}` and `{written}` in the log format"
                            ),
                            "nothing would tell where one ends; write something between them in \
                             the server's configuration, or leave one out",
                        ));
                    }
                    let place = steps.fields.len();
                    let first = columns.len();
                    if kind == Kind::Port
                        && let Some(host) = steps.fields.last_mut()
                        && host.until == b":"
                    {
                        host.holds = Holds::Colons;
                    }
                    let holds = match nginx::is_list(&written) || apache::is_list(&written) {
                        true => Holds::Separators,
                        false if name == CLIENT => Holds::Clients,
                        false if kind == Kind::Request => Holds::RequestSpaces,
                        false => Holds::Nothing,
                    };
                    names.add(&mut columns, &name, &kind, place);
                    let name = match columns.get(first) {
                        Some(LogColumn { part: Part::Request(_), .. }) | None => name,
                        Some(column) => column.field.name().clone(),
                    };
                    written_times.push(match &kind {
                        Kind::Time(pattern) => times::signs(pattern),
                        _ => String::new(),
                    });
                    steps.fields.push(Step {
                        name: name.into(),
                        until: Vec::new(),
                        quoted: false,
                        holds,
                    });
                    before = Some(written);
                }
            }
        }
        for (step, signs) in steps.fields.iter_mut().zip(&written_times) {
            let until = std::str::from_utf8(&step.until).unwrap_or_default();
            let count = if until.is_empty() { 0 } else { signs.matches(until).count() };
            if count > 0 {
                step.holds = Holds::Times(count);
            }
        }
        steps.settle();
        Ok(Self { columns, matcher: Matcher::Steps(steps), escapes })
    }

    /// The columns, in the order of their positions; all may be null.
    #[must_use]
    pub fn columns(&self) -> Vec<FieldRef> {
        self.columns.iter().map(|column| column.field.clone()).collect()
    }

    /// How a column of times is written, in the words of `strftime`; none for any other, and where
    /// there is no word for it.
    #[must_use]
    pub fn time_words(&self, column: &str) -> Option<&str> {
        self.columns.iter().find(|own| own.field.name() == column)?.words.as_deref()
    }
}

impl Steps {
    /// Finds out which fields stand in quotes.
    fn settle(&mut self) {
        let mut before = self.start.last().copied();
        for step in &mut self.fields {
            step.quoted = before == Some(b'"') && step.until.first() == Some(&b'"');
            before = step.until.last().copied();
        }
    }

    /// Finds the fields of a line, which stands at `line` in the block.
    #[inline]
    fn fields(
        &self,
        block: &[u8],
        line: Range<usize>,
        mut take: impl FnMut(usize, Range<usize>),
    ) -> Result<(), Fault> {
        let text = &block[..line.end];
        let syntax =
            |at: usize, reason: String| Err(Fault::new(at - line.start, FaultKind::Syntax(reason)));
        let mut at = line.start;
        if !text[at..].starts_with(&self.start) {
            return syntax(at, format!("expected `{}`", plain(&self.start)));
        }
        at += self.start.len();
        for (place, step) in self.fields.iter().enumerate() {
            let is_last = |place: usize| place + 1 == self.fields.len();
            let end_of = |step: &Step, place: usize| match is_last(place) {
                true => step.last_end(text, at),
                false => step.end(text, at),
            };
            let end = match (step.holds, self.fields.get(place + 1)) {
                (Holds::Colons, Some(port)) => end_of(port, place + 1)
                    .and_then(|end| memchr::memrchr(b':', &text[at..end]))
                    .map(|colon| at + colon),
                _ => end_of(step, place),
            };
            let Some(end) = end else {
                let reason = format!("`{}` should follow", plain(&step.until));
                return Err(Fault::of(&*step.name, at - line.start, FaultKind::Ends(reason)));
            };
            take(place, at..end);
            at = end + step.until.len();
        }
        // Without a field, all is in the text before the first.
        if at < text.len() {
            return Err(Fault::new(at - line.start, FaultKind::Trailing));
        }
        Ok(())
    }
}

impl Step {
    /// Where the last field of a line ends that begins at `start`.
    #[inline(always)]
    fn last_end(&self, text: &[u8], start: usize) -> Option<usize> {
        let end = text.len().checked_sub(self.until.len()).filter(|end| *end >= start)?;
        (text.ends_with(&self.until) && !(self.quoted && is_escaped(text, start, end)))
            .then_some(end)
    }

    /// Where the field that begins at `start` ends.
    #[inline(always)]
    fn end(&self, text: &[u8], start: usize) -> Option<usize> {
        let Some((&first, rest)) = self.until.split_first() else { return Some(text.len()) };
        if self.holds == Holds::RequestSpaces
            && first == b' '
            && let Some(end) = request_end(text, start)
            && text[end..].starts_with(&self.until)
        {
            return Some(end);
        }
        let mut from = start;
        let mut within = match self.holds {
            Holds::Times(count) => count,
            _ => 0,
        };
        loop {
            let at = from + memchr::memchr(first, text.get(from..)?)?;
            let behind = match self.holds {
                Holds::Separators => item_behind(text, start, at, &self.until),
                Holds::Clients => client_behind(text, start, at, &self.until),
                _ => None,
            };
            if let Some(behind) = behind {
                from = behind;
                continue;
            }
            if text[at + 1..].starts_with(rest) && !(self.quoted && is_escaped(text, start, at)) {
                if within == 0 {
                    return Some(at);
                }
                within -= 1;
                from = at + self.until.len();
                continue;
            }
            from = at + 1;
        }
    }
}

/// Where the next item of a list begins, if what stands at `at` separates it from one before:
/// `0.004, 0.001`, or ` : ` between what two groups of servers took.
fn item_behind(text: &[u8], start: usize, at: usize, until: &[u8]) -> Option<usize> {
    if text[at..].starts_with(b", ") && !until.starts_with(b", ") {
        return Some(at + 2);
    }
    if text[at..].starts_with(b" : ") && !until.starts_with(b" :") {
        return Some(at + 3);
    }
    client_behind(text, start, at, until)
}

/// Returns where a list goes on behind a space at `at` that stands beside a comma and would end a field: `10.0.0.1, 10.0.0.2`.
fn client_behind(text: &[u8], start: usize, at: usize, until: &[u8]) -> Option<usize> {
    if text[at] != b' ' || until.first() != Some(&b' ') {
        return None;
    }
    let is_behind_comma = at > start && text[at - 1] == b',';
    let is_before_comma = text.get(at + 1) == Some(&b',') && !until.starts_with(b" ,");
    (is_behind_comma || is_before_comma).then_some(at + 1)
}

/// Returns where a request ends that begins at `start` and stands in no quotes: behind its path, or behind the protocol
/// that follows. None if no method and a space begin it.
fn request_end(text: &[u8], start: usize) -> Option<usize> {
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

/// Text of a description, as a message shows it.
fn plain(text: &[u8]) -> String {
    crate::shown(&String::from_utf8_lossy(text))
}

/// Whether an odd number of backslashes stand before a byte, not counting those before `start`.
#[inline]
fn is_escaped(text: &[u8], start: usize, at: usize) -> bool {
    let before = &text[start..at];
    let others = before.iter().rposition(|byte| *byte != b'\\').map_or(0, |last| last + 1);
    (before.len() - others) % 2 == 1
}

/// Whether a description is Apache's: it has a directive of its.
fn is_apache(text: &str) -> bool {
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

/// A description without the quotes that it stands in in the configuration, and without their
/// escapes; nginx has several strings one behind the other, in single quotes mostly. Several in
/// double quotes may be fields.
fn unquoted(text: &str) -> String {
    match strings(text) {
        // A field alone stands in quotes in the log: a configuration has no reason to quote it.
        Some(whole) if text.starts_with('"') && whole.len() == 1 && is_field(&whole[0]) => {
            text.to_owned()
        }
        Some(whole) if whole.len() == 1 || text.starts_with('\'') => whole.concat(),
        _ => unescaped(text),
    }
}

/// Whether a description is one field, and nothing besides.
fn is_field(text: &str) -> bool {
    let tokens = match is_apache(text) {
        true => apache::tokens(text),
        false => nginx::tokens(text),
    };
    matches!(tokens.as_deref(), Ok([Token::Field { .. }]))
}

/// The strings of a text that is nothing but such.
fn strings(text: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (string, behind) = string(rest)?;
        found.push(string);
        // Behind a string stands a space, or the next one.
        let next = behind.trim_start();
        if next.len() == behind.len() && !next.is_empty() {
            return None;
        }
        rest = next;
    }
    Some(found)
}

/// The string in quotes that a text begins with, and what is behind it.
fn string(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return Some((unescaped(&text[1..at]), &text[at + 1..]));
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

/// Undoes the escapes of a configuration file.
fn unescaped(text: &str) -> String {
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

/// A column for a word of a configuration: `X-Request-Id` is `x_request_id`.
fn column_name(word: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    word.chars().map(plain).collect()
}

/// The column of a request's header.
fn header(name: &str) -> String {
    match column_name(name).as_str() {
        "referer" => "referrer".into(),
        other => other.to_owned(),
    }
}

/// Names that are there, each once.
#[derive(Debug, Default)]
struct Names(std::collections::HashSet<String>);

impl Names {
    fn free(&mut self, name: &str) -> String {
        let mut found = name.to_owned();
        let mut number = 2;
        while !self.0.insert(found.clone()) {
            found = format!("{name}_{number}");
            number += 1;
        }
        found
    }

    /// The columns that a field is.
    fn add(&mut self, columns: &mut Vec<LogColumn>, name: &str, kind: &Kind, place: usize) {
        let instant = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let (data_type, read) = match kind {
            Kind::Request => {
                for (index, name) in ["method", "path", "protocol"].into_iter().enumerate() {
                    let field = Field::new(self.free(name), DataType::Utf8View, true);
                    let (field, part) = (Arc::new(field), Part::Request(index));
                    let read = Read::Plain;
                    columns.push(LogColumn { field, place, part, read, words: None });
                }
                return;
            }
            Kind::Text => (DataType::Utf8View, Read::Plain),
            Kind::Verbatim => (DataType::Utf8View, Read::Verbatim),
            Kind::Status => (DataType::Int16, Read::Plain),
            Kind::Port => (DataType::Int32, Read::Plain),
            Kind::Int => (DataType::Int64, Read::Plain),
            Kind::Float => (DataType::Float64, Read::Plain),
            Kind::Seconds => (DataType::Float64, Read::Seconds),
            Kind::Clf => (instant(), Read::Clf),
            Kind::Iso => (instant(), Read::Iso),
            Kind::Time(pattern) => match TimeFormat::new(pattern) {
                Some(format) => (instant(), Read::Time(format)),
                // No point in time: a clock without a date, say.
                None => (DataType::Utf8View, Read::Plain),
            },
        };
        let words = match (kind, &read) {
            (Kind::Clf, _) => Some(times::CLF.to_owned()),
            (Kind::Time(pattern), Read::Time(_)) => {
                (!times::is_number(pattern)).then(|| pattern.clone())
            }
            _ => None,
        };
        let field = Arc::new(Field::new(self.free(name), data_type, true));
        columns.push(LogColumn { field, place, part: Part::Whole, read, words });
    }
}

// --------------------------------------------------------------------------------- decoding

/// Decodes a log whose lines a [`LogFormat`] describes.
///
/// ```
/// use arrow_array::{cast::AsArray, types::Float64Type};
/// use tidemill_text::log_format::{LogFormat, LogFormatDecoder};
/// use tidemill_text::{Decode, Decoded, Options};
///
/// let format = LogFormat::new(r#"$host $remote_addr "$request" $request_time"#).unwrap();
/// let all = format.columns();
/// let wanted = [(0, all[0].clone()), (5, all[5].clone())].to_vec();
/// let mut decoder = LogFormatDecoder::new(&format, wanted, Options::default()).unwrap();
/// let mut out = Decoded::default();
/// decoder.decode(b"a.example 10.0.0.1 \"GET / HTTP/1.1\" 0.025\n", &mut out);
/// let batch = &out.batches[0];
/// assert_eq!(batch.column(0).as_string_view().value(0), "a.example");
/// assert_eq!(batch.column(1).as_primitive::<Float64Type>().value(0), 0.025);
/// ```
pub struct LogFormatDecoder {
    decoder: Decoder<Lines>,
}

impl LogFormatDecoder {
    /// A decoder of `columns`, each a position among the format's and what it becomes: what it is
    /// there, or any type that text can be read as.
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
        // Where `-` is a value in one column, those of the others are nulls before they get there.
        // In named patterns it is text like any other.
        let is_pattern = matches!(format.matcher, Matcher::Pattern(_));
        let is_verbatim = |place: usize, field: &FieldRef| {
            format.columns[place].read == Read::Verbatim || is_pattern && is_text(field.data_type())
        };
        let marks_nulls = columns.iter().any(|(place, field)| is_verbatim(*place, field));
        let words = if marks_nulls { vec![] } else { vec!["-".to_owned()] };
        let context = Context {
            nulls: Nulls::new(&words, false),
            unescape: match format.escapes {
                Escapes::Log => Arc::new(access_log::unescape),
                Escapes::Json => Arc::new(crate::json::unescape),
                Escapes::None => Arc::new(|_, _| false),
            },
            mismatch_is_null: options.mismatch_is_null,
            mismatches: Default::default(),
            has_hex_bytes: false,
        };
        let (mut built, mut fields, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for (place, field) in columns {
            let of = &format.columns[place];
            let column = match (field.data_type(), &of.read) {
                (data_type, _) if data_type.is_nested() => None,
                (data_type @ DataType::Timestamp(..), Read::Clf) => {
                    let mut days = Days::default();
                    leaf::instants(data_type, move |bytes| days.precise_instant(bytes))
                        .map(|leaf| Column::with_leaf(&field, leaf))
                }
                (data_type @ DataType::Timestamp(..), Read::Iso) => {
                    leaf::instants(data_type, times::iso)
                        .map(|leaf| Column::with_leaf(&field, leaf))
                }
                (data_type @ DataType::Timestamp(..), Read::Time(time)) => {
                    let time = time.clone();
                    leaf::instants(data_type, move |bytes| time.instant(bytes))
                        .map(|leaf| Column::with_leaf(&field, leaf))
                }
                (DataType::Date32 | DataType::Date64, Read::Clf | Read::Time(_)) => None,
                (data_type @ DataType::Float64, Read::Seconds) => {
                    let leaf = leaf::spelled::<Float64Type>(data_type, seconds);
                    Some(Column::with_leaf(&field, leaf))
                }
                _ => Column::new(&field, &context),
            };
            built.push(column.ok_or_else(|| field.clone())?);
            let is_text = is_text(field.data_type());
            let marks_nulls = marks_nulls && !is_verbatim(place, &field);
            wanted.push(Wanted { of: of.place, part: of.part, is_text, marks_nulls });
            fields.push(field);
        }
        let filter = Filter::new(options.predicates, &fields);
        let tokenizer = Lines::new(format, wanted);
        let decoder = Decoder::with_columns(tokenizer, built, context, filter, options.batch_rows);
        Ok(Self { decoder })
    }
}

decodes!(LogFormatDecoder);

/// What a column is made of.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// Which field of the line; in [`Lines`], which of the wanted ones.
    of: usize,
    part: Part,
    is_text: bool,
    /// Whether `-` becomes null here, and not where values are built.
    marks_nulls: bool,
}

/// Finds the fields of lines.
struct Lines {
    matcher: Matcher,
    has_escapes: bool,
    /// Of each field of a line, which of the wanted ones it is.
    slots: Vec<Option<usize>>,
    /// Wanted fields of a line.
    count: usize,
    columns: Vec<Wanted>,
    /// The wanted fields that are requests.
    requests: Vec<usize>,
    /// What was found of a window: `count` for each row.
    found: Vec<Span>,
    /// The requests of a window, taken apart.
    parts: Vec<[Span; 3]>,
}

impl Lines {
    fn new(format: &LogFormat, wanted: Vec<Wanted>) -> Self {
        let fields = format.columns.iter().map(|column| column.place + 1).max().unwrap_or(0);
        let mut slots = vec![None; fields];
        let mut count = 0;
        let mut columns = Vec::new();
        let mut requests: Vec<usize> = Vec::new();
        for column in wanted {
            let slot = *slots[column.of].get_or_insert_with(|| {
                count += 1;
                count - 1
            });
            if matches!(column.part, Part::Request(_)) && !requests.contains(&slot) {
                requests.push(slot);
            }
            columns.push(Wanted { of: slot, ..column });
        }
        let matcher = match &format.matcher {
            Matcher::Pattern(pattern) => Matcher::Pattern(
                pattern.of_wanted(|place| slots.get(place).is_some_and(Option::is_some)),
            ),
            steps @ Matcher::Steps(_) => steps.clone(),
        };
        Self {
            matcher,
            has_escapes: format.escapes != Escapes::None,
            slots,
            count,
            columns,
            requests,
            found: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Writes down the wanted fields of a line.
    #[inline]
    fn take(&mut self, block: &[u8], line: Range<usize>) -> Result<(), Fault> {
        let base = self.found.len();
        self.found.resize(base + self.count, Span::NULL);
        let (found, slots) = (&mut self.found[base..], &self.slots);
        let mut take = |place: usize, range: Range<usize>| {
            if let Some(Some(slot)) = slots.get(place) {
                found[*slot] = lines::span(range);
            }
        };
        let taken = match &mut self.matcher {
            Matcher::Steps(steps) => steps.fields(block, line, &mut take),
            Matcher::Pattern(pattern) => pattern.fields(block, line, &mut take),
        };
        if taken.is_err() {
            self.found.truncate(base);
        }
        taken
    }

    /// Gives the columns what was found in a stretch of the block.
    fn give(&mut self, block: &[u8], of: Range<usize>, columns: &mut [Column]) {
        let escapes = self.has_escapes && memchr::memchr(b'\\', &block[of]).is_some();
        let rows = self.found.chunks_exact(self.count.max(1));
        let value = |span: Span| match span.is_null() {
            true => Span::NULL,
            false => access_log::value(block, span.start(), span.start() + span.len(), escapes),
        };
        for &request in &self.requests {
            self.parts.clear();
            self.parts.extend(rows.clone().map(|row| match row.get(request) {
                Some(span) if !span.is_null() => {
                    let end = span.start() + span.len();
                    access_log::request(block, span.start(), end, escapes)
                }
                _ => [Span::NULL; 3],
            }));
            for (column, wanted) in columns.iter_mut().zip(&self.columns) {
                let (Node::Leaf { spans, .. }, Part::Request(which)) =
                    (&mut column.node, wanted.part)
                else {
                    continue;
                };
                if wanted.of == request {
                    spans.extend(self.parts.iter().map(|parts| parts[which]));
                }
            }
        }
        for (column, wanted) in columns.iter_mut().zip(&self.columns) {
            let Node::Leaf { spans, .. } = &mut column.node else { continue };
            let slot = wanted.of;
            match (wanted.part, wanted.is_text) {
                (Part::Request(_), _) => {}
                (Part::Whole, true) => spans.extend(rows.clone().map(|row| value(row[slot]))),
                // What is empty is no number.
                (Part::Whole, false) => spans.extend(rows.clone().map(|row| {
                    let span = row[slot];
                    if span.len() == 0 { Span::NULL } else { value(span) }
                })),
            }
            if wanted.marks_nulls {
                // The window's spans are all that there are.
                for span in spans.iter_mut().filter(|span| !span.is_null()) {
                    if span.raw(block) == b"-" {
                        *span = Span::NULL;
                    }
                }
            }
        }
    }
}

impl Tokenizer for Lines {
    fn window(
        &mut self,
        block: &[u8],
        at: usize,
        rows_max: usize,
        columns: &mut [Column],
        _: &Context,
    ) -> Window {
        let until = at.saturating_add(WINDOW_BYTES).min(block.len());
        self.found.clear();
        let (mut next, mut rows) = (at, 0);
        while next < until && rows < rows_max {
            let line = lines::next_line(block, next);
            let text = lines::trim(block, line.clone());
            if !text.is_empty() {
                if block[text.start] == 0 || self.take(block, text).is_err() {
                    break;
                }
                rows += 1;
            }
            next = line.end;
        }
        if rows == 0 {
            return Window::Doubtful;
        }
        if simdutf8::basic::from_utf8(&block[at..next]).is_err() {
            return Window::Irregular;
        }
        self.give(block, at..next, columns);
        Window::Rows { end: next, rows }
    }

    fn next(&self, block: &[u8], at: usize) -> Range<usize> {
        lines::next_filled(block, at, <[u8]>::is_empty)
    }

    fn record(
        &mut self,
        block: &[u8],
        record: Range<usize>,
        columns: &mut [Column],
        _: &Context,
    ) -> Result<(), Fault> {
        let line = lines::trim(block, record.clone());
        self.found.clear();
        self.take(block, line.clone())?;
        self.give(block, line, columns);
        lines::check_utf8(block, record, columns)
    }
}

#[cfg(test)]
mod tests;
