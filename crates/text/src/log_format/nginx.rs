//! Parser of nginx's `log_format`: variables after `$`.

use super::{EscapeStyle, FormatToken, LogFieldKind, LogFormatError};

/// A `log_format` directive: its concatenated strings, and the escapes of its values.
pub(super) struct LogFormatDirective {
    pub(super) text: String,
    pub(super) escapes: EscapeStyle,
}

/// Parses `log_format name [escape=…] '…' '…';`, if the text is such a directive.
pub(super) fn parse_directive(text: &str) -> Result<Option<LogFormatDirective>, LogFormatError> {
    let Some(rest) = text.strip_prefix("log_format") else { return Ok(None) };
    if !rest.starts_with(char::is_whitespace) {
        return Ok(None);
    }
    let no_strings = || {
        LogFormatError::new(
            "`log_format` has no strings in quotes",
            "log_format main '$remote_addr [$time_local] \"$request\"' '$status';",
        )
    };
    let rest = rest.trim().trim_end_matches(';').trim_end();
    let (_, mut rest) = rest.split_once(char::is_whitespace).ok_or_else(no_strings)?;
    rest = rest.trim_start();
    let mut escapes = EscapeStyle::WebServer;
    if let Some(behind) = rest.strip_prefix("escape=") {
        let (word, behind) = behind.split_once(char::is_whitespace).ok_or_else(no_strings)?;
        escapes = match word {
            "default" => EscapeStyle::WebServer,
            "json" => EscapeStyle::Json,
            "none" => EscapeStyle::NoEscapes,
            other => {
                return Err(LogFormatError::new(
                    format!("`escape={other}` is none of nginx's"),
                    "they are default, json and none",
                ));
            }
        };
        rest = behind.trim_start();
    }
    let text = super::parse_quoted_strings(rest).filter(|strings| !strings.is_empty());
    Ok(Some(LogFormatDirective { text: text.ok_or_else(no_strings)?.concat(), escapes }))
}

/// Parses the variable that a text begins with; returns its name and its length with the `$`.
fn parse_variable(text: &str) -> Option<(&str, usize)> {
    let rest = text.strip_prefix('$')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(inner) = rest.strip_prefix('{') {
        let end = inner.find('}')?;
        let name = &inner[..end];
        return (!name.is_empty() && name.chars().all(is_name)).then_some((name, end + 3));
    }
    let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    (end > 0).then_some((&rest[..end], end + 1))
}

/// Returns whether a variable has a value for each server that was asked, separated by `, ` and ` : `, or for
/// each proxy, separated by `, `.
pub(super) fn is_list_variable(written: &str) -> bool {
    let Some((name, _)) = parse_variable(written) else { return false };
    if matches!(name, "http_x_forwarded_for" | "proxy_add_x_forwarded_for") {
        return true;
    }
    match name.strip_prefix("upstream_") {
        Some("addr" | "status" | "response_length" | "bytes_sent" | "bytes_received") => true,
        Some(other) => other.ends_with("_time"),
        None => false,
    }
}

/// Returns whether a text has a variable.
pub(super) fn has_variable(text: &str) -> bool {
    text.match_indices('$').any(|(at, _)| parse_variable(&text[at..]).is_some())
}

/// Parses a description into its tokens.
pub(super) fn parse_tokens(text: &str) -> Result<Vec<FormatToken>, LogFormatError> {
    if text.trim_start().starts_with('{') && text.trim_end().ends_with('}') && text.contains("\":")
    {
        return Err(LogFormatError::new(
            "a log of this format is JSON",
            "--source-format json reads it, by the names that are in it",
        ));
    }
    let mut tokens = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let Some((name, used)) = parse_variable(rest) else {
            literal.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        if !literal.is_empty() {
            tokens.push(FormatToken::Text(std::mem::take(&mut literal).into_bytes()));
        }
        let (column, kind) = column_of_variable(name);
        tokens.push(FormatToken::Field { name: column, kind, written: rest[..used].to_owned() });
        rest = &rest[used..];
    }
    if !literal.is_empty() {
        tokens.push(FormatToken::Text(literal.into_bytes()));
    }
    if !tokens.iter().any(|token| matches!(token, FormatToken::Field { .. })) {
        return Err(LogFormatError::new(
            "the log format has no variable",
            "$remote_addr [$time_local] \"$request\" $status",
        ));
    }
    Ok(tokens)
}

/// Returns column name and kind of a variable; a variable of the user's own is text.
fn column_of_variable(variable: &str) -> (String, LogFieldKind) {
    let (name, kind) = match variable {
        "remote_addr" => ("ip", LogFieldKind::Text),
        "realip_remote_addr" => ("peer_ip", LogFieldKind::Text),
        "remote_user" => ("user", LogFieldKind::Text),
        "server_addr" => ("server_ip", LogFieldKind::Text),
        "time_local" => ("ts", LogFieldKind::ClfTime),
        "time_iso8601" => ("ts", LogFieldKind::PatternTime("%Y-%m-%dT%H:%M:%S%z".into())),
        "msec" => ("ts", LogFieldKind::PatternTime("%s.%3f".into())),
        "request" => ("request", LogFieldKind::Request),
        "request_method" => ("method", LogFieldKind::Text),
        "request_uri" => ("path", LogFieldKind::Text),
        "args" | "query_string" => ("query", LogFieldKind::Text),
        "server_protocol" => ("protocol", LogFieldKind::Text),
        "status" => ("status", LogFieldKind::Status),
        "body_bytes_sent" => ("bytes", LogFieldKind::Int),
        "bytes_sent"
        | "request_length"
        | "connection"
        | "connection_requests"
        | "pid"
        | "content_length" => (variable, LogFieldKind::Int),
        "server_port" => ("port", LogFieldKind::Port),
        "remote_port" | "proxy_port" => (variable, LogFieldKind::Port),
        "request_time"
        | "connection_time"
        | "session_time"
        | "upstream_response_time"
        | "upstream_connect_time"
        | "upstream_header_time"
        | "upstream_queue_time"
        | "upstream_session_time"
        | "upstream_first_byte_time" => (variable, LogFieldKind::Seconds),
        "gzip_ratio" => (variable, LogFieldKind::Float),
        _ => match variable.strip_prefix("http_") {
            Some(header) => return (super::header_column_name(header), LogFieldKind::Text),
            None => match variable.strip_prefix("sent_http_") {
                Some(header) => return (format!("sent_{header}"), LogFieldKind::Text),
                None => (variable, LogFieldKind::Text),
            },
        },
    };
    (name.to_owned(), kind)
}
