//! Format detection for log files, whose names only show that they are logs.
//!
//! `access.log`, `syslog.log` and `app.log` all have the same suffix. A log's name
//! ([`log_names`](super::log_names)) therefore triggers an inspection of lines: those at the beginning of the
//! first file and, for several files, of some others. The lines have a format if every one of them, in every
//! inspected file, has it; otherwise they are plain lines, as the name says. Detection thus chooses a format
//! only beyond doubt. A later line of another format is a malformed record, as with a declared format.

use std::borrow::Cow;

use tidemill_text::access_log::{AccessLogDecoder, AccessLogShape};
use tidemill_text::syslog::{self, SyslogDecoder};
use tidemill_text::{BlockDecoder, DecodedBlocks, Options, infer, record_boundaries};

use crate::error::Result;
use crate::formats::Format;
use crate::schema::log_names::is_log_name;
use crate::schema::source_sample::SourceSample;
use crate::{SourceFile, SourceSpec};

/// Maximum number of lines that detection inspects.
const INSPECTED_LINES_MAX: usize = 1000;

/// Returns true if all files have names of logs and the user declared no format.
pub(crate) fn needs_log_detection<'a>(
    spec: &SourceSpec,
    mut names: impl Iterator<Item = &'a str>,
) -> bool {
    let is_said = spec.declared_format().is_some() || spec.filter_program.is_some();
    // A declared type of column `line` implies plain lines.
    let means_lines = spec
        .declared_schema
        .as_ref()
        .is_some_and(|schema| schema.column_with_name("line").is_some());
    !is_said && !means_lines && names.all(is_log_name)
}

/// Detects the format of log files; none for plain lines.
///
/// # Errors
/// Those of reading.
pub(crate) fn detect_log_format(sample: &mut SourceSample<'_>) -> Result<Option<Format>> {
    let Some((first, text)) = sample.read_beginning(record_boundaries::RecordGrammar::LINES)?
    else {
        return Ok(None);
    };
    let Some(told) = detect_format(&without_nul_lines(&text)) else { return Ok(None) };
    let others = sample.spread_files(first + 1);
    let look = |_: &SourceFile, text: &[u8]| {
        let lines = without_nul_lines(text);
        (text.is_empty() || !lines.is_empty()).then(|| detect_format(&lines) == Some(told))
    };
    let others =
        sample.inspect_beginnings(&others, record_boundaries::RecordGrammar::LINES, look)?;
    Ok(others.iter().all(|(_, is_same)| *is_same).then_some(told))
}

/// Returns a text without the lines that begin with NUL bytes, which are malformed records in any format.
fn without_nul_lines(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(0, text).is_none() {
        return text.into();
    }
    let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.first() != Some(&0));
    lines.flatten().copied().collect::<Vec<u8>>().into()
}

/// Detects the format of a text that may end within a line.
fn detect_format(text: &[u8]) -> Option<Format> {
    let text = match memchr::memrchr(b'\n', text) {
        Some(end) => text.get(..=end)?,
        None => text,
    };
    let text = match memchr::memchr_iter(b'\n', text).nth(INSPECTED_LINES_MAX - 1) {
        Some(end) => text.get(..=end)?,
        None => text,
    };
    let lines = || {
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        lines.filter(|line| !line.is_empty())
    };
    lines().next()?;
    if lines().all(|line| line.starts_with(b"{") && line.ends_with(b"}")) {
        return is_json_lines(text, lines().count()).then_some(Format::Json);
    }
    if is_access_log(text) {
        return Some(Format::AccessLog);
    }
    if is_syslog(text, lines()) {
        return Some(Format::Syslog);
    }
    lines().all(is_key_value_line).then_some(Format::Logfmt)
}

fn is_json_lines(text: &[u8], lines: usize) -> bool {
    let mut inference = infer::json::JsonInference::new(&[]);
    inference.add_block(text);
    inference.first_fault().is_none() && usize::try_from(inference.object_count()) == Ok(lines)
}

/// Decodes a text; returns none unless all of its records are good and there is at least one.
fn decode_all(decoder: &mut dyn BlockDecoder, text: &[u8]) -> Option<DecodedBlocks> {
    let mut out = DecodedBlocks::default();
    decoder.decode(text, &mut out);
    (out.rejected.is_empty() && out.rows > 0).then_some(out)
}

fn is_access_log(text: &[u8]) -> bool {
    let shape = AccessLogShape::infer_from_sample(text).shape;
    let columns = shape.columns().into_iter().enumerate().collect();
    let decoder = AccessLogDecoder::with_shape(&shape, columns, Options::default());
    decoder.is_ok_and(|mut decoder| decode_all(&mut decoder, text).is_some())
}

/// Words in a program's own log at the position of a system log's host.
const LOG_LEVEL_WORDS: [&str; 12] = [
    "trace", "debug", "info", "notice", "warn", "warning", "error", "err", "critical", "crit",
    "fatal", "panic",
];

fn is_syslog<'a>(text: &[u8], mut lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let columns = syslog::syslog_columns().into_iter().enumerate().collect();
    let format = syslog::SyslogFormat::default();
    let Ok(mut decoder) = SyslogDecoder::new(columns, &format, Options::default()) else {
        return false;
    };
    decode_all(&mut decoder, text).is_some() && lines.all(is_unambiguous_syslog)
}

/// Returns true if a system log record cannot be a line of a program that also begins its lines with the
/// time.
fn is_unambiguous_syslog(line: &[u8]) -> bool {
    // A priority, or the name of a month.
    if !line.first().is_some_and(u8::is_ascii_digit) {
        return true;
    }
    let mut words = line.split(|byte| *byte == b' ').skip(1).filter(|word| !word.is_empty());
    let (Some(host), Some(app)) = (words.next(), words.next()) else { return false };
    let host = String::from_utf8_lossy(host).to_ascii_lowercase();
    let is_host = !LOG_LEVEL_WORDS.contains(&host.as_str()) && !host.starts_with(['[', '(', '-']);
    is_host && app.ends_with(b":") && !host.ends_with(':')
}

/// Returns true if a line consists of at least two `key=value` pairs.
fn is_key_value_line(line: &[u8]) -> bool {
    let is_key = |key: &[u8]| {
        let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || b"_@".contains(byte);
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@.-/".contains(byte);
        key.first().is_some_and(is_letter) && key.iter().all(is_part)
    };
    let (mut rest, mut pairs) = (line, 0);
    while !rest.is_empty() {
        let Some(end) = memchr::memchr(b'=', rest) else { return false };
        let (key, value) = rest.split_at(end);
        if !is_key(key) {
            return false;
        }
        pairs += 1;
        let value = value.get(1..).unwrap_or_default();
        let length = match value.first() {
            Some(b'"') => match quoted_value_end(value) {
                Some(end) => end,
                None => return false,
            },
            _ => memchr::memchr2(b' ', b'\t', value).unwrap_or(value.len()),
        };
        let behind = value.get(length..).unwrap_or_default();
        if !behind.is_empty() && !matches!(behind.first(), Some(b' ' | b'\t')) {
            return false;
        }
        rest = behind.trim_ascii_start();
    }
    pairs >= 2
}

/// Returns the end of a value that begins with a quote.
fn quoted_value_end(value: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match value.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_behind_nuls_tell_no_format() {
        let pairs = "level=info n=1\n";
        for (text, expected) in [
            (format!("\0\0{pairs}{pairs}"), Some(Format::Logfmt)),
            (format!("{pairs}\0some rest\n{pairs}\0\0\0"), Some(Format::Logfmt)),
            (format!("{pairs}\0some rest\nelse\n"), None),
            (format!("\0{pairs}"), None),
            (format!("{pairs}a\0b\n"), None),
        ] {
            assert_eq!(detect_format(&without_nul_lines(text.as_bytes())), expected, "{text:?}");
        }
    }

    #[test]
    fn lines_tell_their_format_where_all_of_them_are_of_it() {
        let common = "1.2.3.4 - bob [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.0\" 200 2326";
        let combined = format!("{common} \"http://r/\" \"Mozilla/5.0 (X11)\"");
        for (line, expected) in [
            (common, Some(Format::AccessLog)),
            (&combined, Some(Format::AccessLog)),
            (&format!("www.example.com:80 {combined}"), Some(Format::AccessLog)),
            (&format!("{combined} 0.123"), Some(Format::AccessLog)),
            (&format!("{combined} 0.123 0.120"), Some(Format::AccessLog)),
            (&format!("Nov 10 12:11:55 10.10.1.13 nginx: {combined}"), Some(Format::Syslog)),
            (&format!("<190>Nov 10 12:11:55 web1 nginx: {common}"), Some(Format::Syslog)),
            (&format!("web_1  | {combined}"), None),
            (&format!("2022-11-10T12:11:55.123456789Z {combined}"), None),
            ("Oct 11 22:14:15 mymachine su[12]: failed", Some(Format::Syslog)),
            ("<34>Oct 11 22:14:15 mymachine su: failed", Some(Format::Syslog)),
            ("<34>1 2003-10-11T22:14:15.003Z host su - ID47 - failed", Some(Format::Syslog)),
            ("2024-03-27T13:06:56.123456+00:00 ip-10-77 sshd[1291]: Server", Some(Format::Syslog)),
            ("2024-03-27T13:06:56Z INFO main: started", None),
            ("2024-03-27T13:06:56Z started", None),
            ("2024-03-27 13:06:56,123 INFO [main] c.x.Y - started", None),
            (
                "level=info ts=2024-01-01T00:00:00Z msg=\"hello \\\"there\\\"\" n=3",
                Some(Format::Logfmt),
            ),
            ("level=info done", None),
            ("x=1", None),
            ("a = b c = d", None),
            ("{\"a\": 1, \"b\": {\"c\": []}}", Some(Format::Json)),
            ("{not json}", None),
            ("{\"a\": 1} {\"a\": 2}", None),
            ("just some text", None),
            ("", None),
            ("\u{feff}", None),
        ] {
            for text in
                [line.to_owned(), format!("{line}\n"), format!("{line}\n\n{line}\r\n{line}")]
            {
                assert_eq!(detect_format(text.as_bytes()), expected, "{text}");
            }
            if expected.is_some() {
                let mixed = format!("{line}\nsomething else\n{line}\n");
                assert_eq!(detect_format(mixed.as_bytes()), None, "{mixed}");
            }
        }
    }
}
