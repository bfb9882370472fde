//! Parser of Apache's `LogFormat`: directives after `%`.

use super::{FormatToken, LogFieldKind, LogFormatError};

/// Parses a line `LogFormat "…" nickname` and returns its string, if the text is such a line.
pub(super) fn parse_config_line(text: &str) -> Result<Option<String>, LogFormatError> {
    let Some(at) = text.find(char::is_whitespace) else { return Ok(None) };
    let (word, rest) = text.split_at(at);
    if !["LogFormat", "CustomLog", "TransferLog", "GlobalLog"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(word))
    {
        return Ok(None);
    }
    // In `CustomLog` the file's name comes first.
    let mut rest = rest.trim();
    if !word.eq_ignore_ascii_case("LogFormat") {
        rest = match super::parse_quoted_string(rest) {
            Some((_, behind)) => behind.trim(),
            None => rest.split_once(char::is_whitespace).map_or("", |(_, behind)| behind.trim()),
        };
    }
    match super::parse_quoted_string(rest) {
        Some((format, _)) => Ok(Some(format)),
        None if word.eq_ignore_ascii_case("LogFormat") && !rest.is_empty() => {
            Ok(Some(super::unescape_config(rest.split_whitespace().next().unwrap_or(rest))))
        }
        None => Err(LogFormatError::new(
            format!("`{word}` has no format in quotes"),
            "copy the string of the LogFormat line: '%h %l %u %t \"%r\" %>s %b'",
        )),
    }
}

/// A directive: `%>s`, `%{Referer}i`, `%!200{Referer}i`.
struct ApacheDirective<'a> {
    written: &'a str,
    argument: Option<&'a str>,
    /// The letter, or `^` and two letters.
    name: &'a str,
}

impl<'a> ApacheDirective<'a> {
    /// Parses the directive that a text begins with, after its `%`.
    fn new(text: &'a str) -> Option<Self> {
        let mut rest = text;
        // Conditions on the status, and the choice among several internal requests.
        let conditions = |c: char| c.is_ascii_digit() || matches!(c, '!' | ',' | '<' | '>');
        rest = rest.trim_start_matches(conditions);
        let mut argument = None;
        if let Some(inner) = rest.strip_prefix('{') {
            let end = inner.find('}')?;
            argument = Some(&inner[..end]);
            rest = inner[end + 1..].trim_start_matches(conditions);
        }
        let length = match rest.chars().next()? {
            '^' if rest.starts_with("^ti") || rest.starts_with("^to") => 3,
            c if c.is_ascii_alphabetic() => 1,
            _ => return None,
        };
        let used = text.len() - rest.len() + length;
        Some(Self { written: &text[..used], argument, name: &rest[..length] })
    }
}

/// Returns whether a directive is a header with a value for each proxy, separated by `, `.
pub(super) fn is_list_directive(written: &str) -> bool {
    let directive = written.strip_prefix('%').and_then(ApacheDirective::new);
    directive.is_some_and(|directive| {
        let is_list = |header: &str| header.eq_ignore_ascii_case("X-Forwarded-For");
        directive.name == "i" && directive.argument.is_some_and(is_list)
    })
}

/// Parses a description into its tokens.
pub(super) fn parse_tokens(text: &str) -> Result<Vec<FormatToken>, LogFormatError> {
    let mut tokens = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("%%") {
            literal.push('%');
            rest = behind;
            continue;
        }
        let Some(behind) = rest.strip_prefix('%') else {
            literal.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        let unknown = || {
            let shown: String = rest.chars().take(12).collect();
            LogFormatError::new(
                format!("`{shown}` is no directive of Apache's LogFormat"),
                "they are in the documentation of mod_log_config; `%%` is a percent sign",
            )
        };
        let directive = ApacheDirective::new(behind).ok_or_else(unknown)?;
        rest = &behind[directive.written.len()..];
        if !literal.is_empty() {
            tokens.push(FormatToken::Text(std::mem::take(&mut literal).into_bytes()));
        }
        if directive.name == "t" && directive.argument.is_none() {
            // The directive writes its own brackets.
            tokens.push(FormatToken::Text(b"[".to_vec()));
            tokens.push(field_token("ts", LogFieldKind::ClfTime, "%t"));
            literal.push(']');
            continue;
        }
        let written = format!("%{}", directive.written);
        let Some((name, kind)) = column_of_directive(directive.name, directive.argument) else {
            return Err(unknown());
        };
        // A path and its query are one field: nothing stands between them.
        if directive.name == "q"
            && let Some(FormatToken::Field { name, written, .. }) = tokens.last_mut()
            && name == "path"
            && written == "%U"
        {
            *written = "%U%q".into();
            continue;
        }
        tokens.push(field_token(&name, kind, &written));
    }
    if !literal.is_empty() {
        tokens.push(FormatToken::Text(literal.into_bytes()));
    }
    Ok(join_times(tokens))
}

fn field_token(name: &str, kind: LogFieldKind, written: &str) -> FormatToken {
    FormatToken::Field { name: name.into(), kind, written: written.into() }
}

/// Returns column name and kind of a directive.
fn column_of_directive(name: &str, argument: Option<&str>) -> Option<(String, LogFieldKind)> {
    let lower = |prefix: &str, name: &str| format!("{prefix}{}", super::to_column_name(name));
    let plain = |name: &str, kind: LogFieldKind| Some((name.to_owned(), kind));
    match (name, argument) {
        ("h" | "a", Some("c")) => plain("peer_ip", LogFieldKind::Text),
        ("h" | "a", _) => plain("ip", LogFieldKind::Text),
        ("A", _) => plain("server_ip", LogFieldKind::Text),
        ("l", _) => plain("ident", LogFieldKind::Text),
        ("u", _) => plain("user", LogFieldKind::Text),
        ("r", _) => plain("request", LogFieldKind::Request),
        ("m", _) => plain("method", LogFieldKind::Text),
        ("U", _) => plain("path", LogFieldKind::Text),
        ("q", _) => plain("query", LogFieldKind::Text),
        ("H", _) => plain("protocol", LogFieldKind::Text),
        ("s", _) => plain("status", LogFieldKind::Status),
        ("b" | "B", _) => plain("bytes", LogFieldKind::Int),
        ("I", _) => plain("bytes_received", LogFieldKind::Int),
        ("O", _) => plain("bytes_sent", LogFieldKind::Int),
        ("S", _) => plain("bytes_total", LogFieldKind::Int),
        ("v" | "V", _) => plain("host", LogFieldKind::Text),
        ("p", Some("remote")) => plain("remote_port", LogFieldKind::Port),
        ("p", _) => plain("port", LogFieldKind::Port),
        ("P", Some("tid" | "hextid")) => plain("tid", LogFieldKind::Text),
        ("P", _) => plain("pid", LogFieldKind::Int),
        ("D", _) => plain("request_time_us", LogFieldKind::Int),
        ("T", Some("us")) => plain("request_time_us", LogFieldKind::Int),
        ("T", Some("ms")) => plain("request_time_ms", LogFieldKind::Int),
        ("T", None | Some("s")) => plain("request_time", LogFieldKind::Seconds),
        ("f", _) => plain("file", LogFieldKind::Text),
        ("k", _) => plain("keepalive_requests", LogFieldKind::Int),
        ("L", _) => plain("log_id", LogFieldKind::Text),
        ("R", _) => plain("handler", LogFieldKind::Text),
        ("X", _) => plain("connection", LogFieldKind::VerbatimText),
        ("i", Some(header)) => Some((super::header_column_name(header), LogFieldKind::Text)),
        ("o", Some(header)) => Some((lower("sent_", header), LogFieldKind::Text)),
        ("^ti" | "^to", Some(trailer)) => Some((lower("trailer_", trailer), LogFieldKind::Text)),
        ("C", Some(cookie)) => Some((lower("cookie_", cookie), LogFieldKind::Text)),
        ("e" | "n", Some(name)) => Some((lower("", name), LogFieldKind::Text)),
        ("t", Some(format)) => {
            Some(("ts".into(), LogFieldKind::PatternTime(strftime_pattern(format))))
        }
        _ => None,
    }
}

/// Returns the `strftime` pattern for the argument of a time.
fn strftime_pattern(argument: &str) -> String {
    let argument = ["begin:", "end:"]
        .iter()
        .find_map(|prefix| argument.strip_prefix(prefix))
        .unwrap_or(argument);
    match argument {
        "sec" => "%s",
        "msec" => super::strftime_times::MILLIS_PATTERN,
        "usec" => super::strftime_times::MICROS_PATTERN,
        "msec_frac" => "%3f",
        "usec_frac" => "%6f",
        "" => super::strftime_times::CLF_PATTERN,
        other => other,
    }
    .to_owned()
}

/// Joins pieces of one time (`%{%d/%b/%Y:%T}t.%{msec_frac}t`) into one field.
fn join_times(tokens: Vec<FormatToken>) -> Vec<FormatToken> {
    let mut out: Vec<FormatToken> = Vec::new();
    for token in tokens {
        let FormatToken::Field { kind: LogFieldKind::PatternTime(pattern), written, .. } = &token
        else {
            out.push(token);
            continue;
        };
        // The text between them is short, without brackets or quotes.
        let between = match out.last() {
            Some(FormatToken::Text(text))
                if text.len() <= 3 && !text.iter().any(|b| b"[]\"'|".contains(b)) =>
            {
                Some(String::from_utf8_lossy(text).replace('%', "%%"))
            }
            _ => None,
        };
        let place = out.len().wrapping_sub(1 + usize::from(between.is_some()));
        if let Some(FormatToken::Field {
            kind: LogFieldKind::PatternTime(before),
            written: all,
            ..
        }) = out.get_mut(place)
            && !super::strftime_times::is_epoch_number(before)
            && !super::strftime_times::is_epoch_number(pattern)
        {
            let between = between.unwrap_or_default();
            before.push_str(&between);
            before.push_str(pattern);
            all.push_str(&between);
            all.push_str(written);
            out.truncate(place + 1);
            continue;
        }
        out.push(token);
    }
    out
}
