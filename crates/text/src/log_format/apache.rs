//! Apache's `LogFormat`: directives after `%`.

use super::{BadFormat, Kind, Token};

/// The string of a line `LogFormat "…" nickname`, if it is one.
pub(super) fn directive(text: &str) -> Result<Option<String>, BadFormat> {
    let Some(at) = text.find(char::is_whitespace) else { return Ok(None) };
    let (word, rest) = text.split_at(at);
    if !["LogFormat", "CustomLog", "TransferLog", "GlobalLog"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(word))
    {
        return Ok(None);
    }
    // `CustomLog` has the file's name first.
    let mut rest = rest.trim();
    if !word.eq_ignore_ascii_case("LogFormat") {
        rest = match super::string(rest) {
            Some((_, behind)) => behind.trim(),
            None => rest.split_once(char::is_whitespace).map_or("", |(_, behind)| behind.trim()),
        };
    }
    match super::string(rest) {
        Some((format, _)) => Ok(Some(format)),
        None if word.eq_ignore_ascii_case("LogFormat") && !rest.is_empty() => {
            Ok(Some(super::unescaped(rest.split_whitespace().next().unwrap_or(rest))))
        }
        None => Err(BadFormat::new(
            format!("`{word}` has no format in quotes"),
            "copy the string of the LogFormat line: '%h %l %u %t \"%r\" %>s %b'",
        )),
    }
}

/// A directive: `%>s`, `%{Referer}i`, `%!200{Referer}i`.
struct Directive<'a> {
    written: &'a str,
    argument: Option<&'a str>,
    /// The letter, or `^` and two.
    name: &'a str,
}

impl<'a> Directive<'a> {
    /// The one that a text begins with, behind its `%`.
    fn new(text: &'a str) -> Option<Self> {
        let mut rest = text;
        // Statuses for which it is written, and which of several requests is meant.
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

/// Returns true if a directive is a header with a value for each proxy, separated by `, `.
pub(super) fn is_list(written: &str) -> bool {
    let directive = written.strip_prefix('%').and_then(Directive::new);
    directive.is_some_and(|directive| {
        let is_list = |header: &str| header.eq_ignore_ascii_case("X-Forwarded-For");
        directive.name == "i" && directive.argument.is_some_and(is_list)
    })
}

/// A description taken apart.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, BadFormat> {
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
            BadFormat::new(
                format!("`{shown}` is no directive of Apache's LogFormat"),
                "they are in the documentation of mod_log_config; `%%` is a percent sign",
            )
        };
        let directive = Directive::new(behind).ok_or_else(unknown)?;
        rest = &behind[directive.written.len()..];
        if !literal.is_empty() {
            tokens.push(Token::Text(std::mem::take(&mut literal).into_bytes()));
        }
        if directive.name == "t" && directive.argument.is_none() {
            // Its brackets are its own.
            tokens.push(Token::Text(b"[".to_vec()));
            tokens.push(field("ts", Kind::Clf, "%t"));
            literal.push(']');
            continue;
        }
        let written = format!("%{}", directive.written);
        let Some((name, kind)) = meaning(directive.name, directive.argument) else {
            return Err(unknown());
        };
        // A path and its query are one: nothing stands between them.
        if directive.name == "q"
            && let Some(Token::Field { name, written, .. }) = tokens.last_mut()
            && name == "path"
            && written == "%U"
        {
            *written = "%U%q".into();
            continue;
        }
        tokens.push(field(&name, kind, &written));
    }
    if !literal.is_empty() {
        tokens.push(Token::Text(literal.into_bytes()));
    }
    Ok(joined(tokens))
}

fn field(name: &str, kind: Kind, written: &str) -> Token {
    Token::Field { name: name.into(), kind, written: written.into() }
}

/// What a directive is.
fn meaning(name: &str, argument: Option<&str>) -> Option<(String, Kind)> {
    let lower = |prefix: &str, name: &str| format!("{prefix}{}", super::column_name(name));
    let plain = |name: &str, kind: Kind| Some((name.to_owned(), kind));
    match (name, argument) {
        ("h" | "a", Some("c")) => plain("peer_ip", Kind::Text),
        ("h" | "a", _) => plain("ip", Kind::Text),
        ("A", _) => plain("server_ip", Kind::Text),
        ("l", _) => plain("ident", Kind::Text),
        ("u", _) => plain("user", Kind::Text),
        ("r", _) => plain("request", Kind::Request),
        ("m", _) => plain("method", Kind::Text),
        ("U", _) => plain("path", Kind::Text),
        ("q", _) => plain("query", Kind::Text),
        ("H", _) => plain("protocol", Kind::Text),
        ("s", _) => plain("status", Kind::Status),
        ("b" | "B", _) => plain("bytes", Kind::Int),
        ("I", _) => plain("bytes_received", Kind::Int),
        ("O", _) => plain("bytes_sent", Kind::Int),
        ("S", _) => plain("bytes_total", Kind::Int),
        ("v" | "V", _) => plain("host", Kind::Text),
        ("p", Some("remote")) => plain("remote_port", Kind::Port),
        ("p", _) => plain("port", Kind::Port),
        ("P", Some("tid" | "hextid")) => plain("tid", Kind::Text),
        ("P", _) => plain("pid", Kind::Int),
        ("D", _) => plain("request_time_us", Kind::Int),
        ("T", Some("us")) => plain("request_time_us", Kind::Int),
        ("T", Some("ms")) => plain("request_time_ms", Kind::Int),
        ("T", None | Some("s")) => plain("request_time", Kind::Seconds),
        ("f", _) => plain("file", Kind::Text),
        ("k", _) => plain("keepalive_requests", Kind::Int),
        ("L", _) => plain("log_id", Kind::Text),
        ("R", _) => plain("handler", Kind::Text),
        ("X", _) => plain("connection", Kind::Verbatim),
        ("i", Some(header)) => Some((super::header(header), Kind::Text)),
        ("o", Some(header)) => Some((lower("sent_", header), Kind::Text)),
        ("^ti" | "^to", Some(trailer)) => Some((lower("trailer_", trailer), Kind::Text)),
        ("C", Some(cookie)) => Some((lower("cookie_", cookie), Kind::Text)),
        ("e" | "n", Some(name)) => Some((lower("", name), Kind::Text)),
        ("t", Some(format)) => Some(("ts".into(), Kind::Time(time_pattern(format)))),
        _ => None,
    }
}

/// `strftime`'s words for the argument of a time.
fn time_pattern(argument: &str) -> String {
    let argument = ["begin:", "end:"]
        .iter()
        .find_map(|prefix| argument.strip_prefix(prefix))
        .unwrap_or(argument);
    match argument {
        "sec" => "%s",
        "msec" => super::times::MILLIS,
        "usec" => super::times::MICROS,
        "msec_frac" => "%3f",
        "usec_frac" => "%6f",
        "" => super::times::CLF,
        other => other,
    }
    .to_owned()
}

/// The same, where pieces of one time (`%{%d/%b/%Y:%T}t.%{msec_frac}t`) are one field.
fn joined(tokens: Vec<Token>) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::new();
    for token in tokens {
        let Token::Field { kind: Kind::Time(pattern), written, .. } = &token else {
            out.push(token);
            continue;
        };
        // What stands between them is short, and no bracket or quote.
        let between = match out.last() {
            Some(Token::Text(text))
                if text.len() <= 3 && !text.iter().any(|b| b"[]\"'|".contains(b)) =>
            {
                Some(String::from_utf8_lossy(text).replace('%', "%%"))
            }
            _ => None,
        };
        let place = out.len().wrapping_sub(1 + usize::from(between.is_some()));
        if let Some(Token::Field { kind: Kind::Time(before), written: all, .. }) =
            out.get_mut(place)
            && !super::times::is_number(before)
            && !super::times::is_number(pattern)
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
