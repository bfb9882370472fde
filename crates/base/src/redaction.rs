//! Hides credentials in text that is kept: command lines, URLs, SQL, errors.
//!
//! Hidden are:
//! - the user and password in a URL, the part of a web URL after `?` or `#`, and the values of `?name=value`
//!   in a store's URL;
//! - the value of an assignment, and the word after a flag, whose name says that the value is secret;
//! - the value of a parameter of such a name wherever it occurs ([`register_secret_value`]);
//! - the words that go to a program of the user's, which has rules of its own.
//!
//! The module errs on the side of hiding: losing a harmless value is a smaller fault than keeping a key.

use std::collections::VecDeque;

use parking_lot::RwLock;

/// The text that replaces hidden values.
const REDACTED_PLACEHOLDER: &str = "***";

/// Values that are hidden wherever they occur, the latest last: an error repeats the value that did not fit.
static SECRET_VALUES: RwLock<VecDeque<String>> = RwLock::new(VecDeque::new());
/// Maximum number of values in [`SECRET_VALUES`].
const SECRET_VALUES_MAX: usize = 64;
/// Minimum length of a secret value: a shorter one is no secret, and hiding it would cut letters out of
/// words.
const SECRET_VALUE_BYTES_MIN: usize = 4;

/// Parts of names that mark their values as secret, in lower case and without `_` and `-`.
const SECRET_NAME_PARTS: [&str; 16] = [
    "secret",
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "token",
    "credential",
    "signature",
    "accesskey",
    "accountkey",
    "apikey",
    "privatekey",
    "customerkey",
    "authorization",
    "bearer",
    "sharedaccess",
];

/// Returns true if a name says that its value is secret.
fn is_secret_name(name: &str) -> bool {
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    // `sig` is the signature of a shared access URL; within a word it is nothing.
    name == "sig" || name == "auth" || SECRET_NAME_PARTS.iter().any(|part| name.contains(part))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Hides the value in every text and message of this process from now on, if its name says that it is secret.
pub fn register_secret_value(name: &str, value: &str) {
    if !is_secret_name(name) || value.len() < SECRET_VALUE_BYTES_MIN {
        return;
    }
    let mut values = SECRET_VALUES.write();
    if !values.iter().any(|known| known == value) {
        values.push_back(value.to_owned());
        if values.len() > SECRET_VALUES_MAX {
            values.pop_front();
        }
    }
}

/// Replaces the registered secret values in a text.
fn redact_registered_values(text: &str) -> String {
    let values = SECRET_VALUES.read();
    values
        .iter()
        .fold(text.to_owned(), |text, value| text.replace(value.as_str(), REDACTED_PLACEHOLDER))
}

/// Returns a text with its credentials hidden.
pub fn redact_text(text: &str) -> String {
    redact_assignments(&redact_store_queries(&redact_url_credentials(&redact_registered_values(
        text,
    ))))
}

/// Returns a message with its credentials hidden. Changes only URLs and words that look like a piece of one:
/// the rest of the message has to stay readable.
pub fn redact_message(text: &str) -> String {
    let text = redact_urls_in_text(&redact_registered_values(text));
    if !text.contains('?') {
        return text;
    }
    let is_end = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
    let words = text.split_inclusive(is_end);
    words
        .map(|word| if word.contains('?') { redact_assignments(word) } else { word.into() })
        .collect()
}

/// Returns the part of `key=value`, an override of a job file's key, that may be shown: nothing of a value
/// that goes to a store or to a program.
pub fn redact_override_value<'a>(key: &str, value: &'a str) -> &'a str {
    let mut steps = key.split('.').map(str::trim);
    let is_hidden =
        |step: &str| is_secret_name(step) || step.starts_with("storage") || step == "exec";
    if steps.any(is_hidden) { REDACTED_PLACEHOLDER } else { value }
}

/// Returns the words of a command line with their credentials hidden.
pub fn redact_command_line<S: AsRef<str>>(words: &[S]) -> Vec<String> {
    let mut hidden = Vec::with_capacity(words.len());
    let (mut is_value_next, mut is_option_next, mut is_override_next) = (false, false, false);
    // Shows the program's name and hides its arguments.
    let (mut programs, mut is_argument_next) = (Vec::new(), None);
    for word in words {
        let word = word.as_ref();
        if let Some(flag) = std::mem::take(&mut is_argument_next) {
            hidden.push(if programs.contains(&flag) {
                REDACTED_PLACEHOLDER.to_owned()
            } else {
                redact_text(word)
            });
            programs.push(flag);
            continue;
        }
        if let Some(flag) = PROGRAM_FLAGS.iter().find(|flag| word.starts_with(**flag)) {
            match word[flag.len()..].strip_prefix('=') {
                Some(name) if !programs.contains(flag) => {
                    hidden.push(format!("{flag}={}", redact_text(name)));
                    programs.push(*flag);
                }
                Some(_) => hidden.push(format!("{flag}={REDACTED_PLACEHOLDER}")),
                None => {
                    hidden.push(redact_text(word));
                    is_argument_next = (word == *flag).then_some(*flag);
                }
            }
            continue;
        }
        let assigned = word.strip_prefix("--set=").map(|assigned| ("--set=", assigned));
        let is_override = std::mem::take(&mut is_override_next).then_some(("", word));
        if let Some((flag, assigned)) = is_override.or(assigned) {
            hidden.push(match assigned.split_once('=') {
                Some((key, value)) if redact_override_value(key, value) == REDACTED_PLACEHOLDER => {
                    format!("{flag}{}={REDACTED_PLACEHOLDER}", redact_text(key))
                }
                _ => redact_text(word),
            });
            continue;
        }
        if std::mem::take(&mut is_value_next) && !word.starts_with('-') {
            hidden.push(REDACTED_PLACEHOLDER.to_owned());
            continue;
        }
        // A store option's text may be a secret in the wrong place, or one without its name.
        if std::mem::take(&mut is_option_next) {
            hidden.push(redact_store_option(word));
            continue;
        }
        if let Some(value) = word.strip_prefix("--storage-option=") {
            hidden.push(format!("--storage-option={}", redact_store_option(value)));
            continue;
        }
        is_option_next = word == "--storage-option";
        is_override_next = word == "--set";
        is_value_next = word.starts_with('-') && !word.contains('=') && is_secret_name(word);
        match word.split_once('=') {
            // A whole word KEY=VALUE: the value may hold blanks, quotes, anything.
            Some((name, value))
                if !value.is_empty()
                    && name.chars().all(|c| is_name_char(c) || c == '"' || c == '\'')
                    && is_secret_name(name) =>
            {
                hidden.push(format!("{name}={REDACTED_PLACEHOLDER}"));
            }
            _ => hidden.push(redact_text(word)),
        }
    }
    hidden
}

/// Flags whose first value is a program's name, and all others its arguments.
const PROGRAM_FLAGS: [&str; 2] = ["--source-exec", "--sink-exec"];

/// Returns a store's option without its value.
fn redact_store_option(word: &str) -> String {
    let is_plain = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    match word.split_once('=').map(|(name, _)| name).filter(is_plain) {
        Some(name) => format!("{name}={REDACTED_PLACEHOLDER}"),
        None => REDACTED_PLACEHOLDER.to_owned(),
    }
}

/// Hides `user:password@` in URLs, and everything after `?` or `#` in web URLs.
fn redact_url_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((_, at)) = find_next_url(rest) {
        let (before, after) = rest.split_at(at);
        shown.push_str(before);
        let end = after
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '\'' | '"' | '`'))
            .unwrap_or(after.len());
        // A password may itself contain an `@`: the host follows the last one.
        let host = after[..end].rfind('@').or_else(|| {
            // A password with a `/` or a `?` in it: the text after the colon is no port.
            let (_, port) = after[..end].rsplit_once(':')?;
            let is_port = port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit());
            let quote = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
            let word = &after[..after.find(quote).unwrap_or(after.len())];
            (!is_port).then(|| word.rfind('@')).flatten()
        });
        rest = match host {
            Some(host) => {
                shown.push_str(REDACTED_PLACEHOLDER);
                &after[host..]
            }
            None => after,
        };
        // The names in a web query do not say which values are keys: the server chooses them.
        let scheme = before.trim_end_matches(['/', ':']).rsplit(|c| !is_name_char(c)).next();
        if scheme.is_some_and(is_web_scheme) {
            let is_end = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
            let (word, later) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
            if let Some(query) = word.find(['?', '#']) {
                shown.push_str(&word[..=query]);
                shown.push('…');
                rest = later;
            }
        }
    }
    shown.push_str(rest);
    shown
}

/// Hides the values of `?name=value` in URLs that are neither web nor file URLs.
fn redact_store_queries(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
    let hidden = |word: &str| {
        let is_of_store = |at: &usize| {
            let scheme = word[..*at].rsplit(|c| !is_name_char(c)).next().unwrap_or_default();
            !is_web_scheme(scheme) && !scheme.eq_ignore_ascii_case("file")
        };
        let (url, end) = word.split_at(word.trim_end_matches(is_end).len());
        match word.match_indices("://").map(|(at, _)| at).find(is_of_store) {
            Some(at) => format!("{}{}{end}", &url[..at], redact_query_values(&url[at..])),
            None => word.to_owned(),
        }
    };
    text.split_inclusive(is_end).map(hidden).collect()
}

/// Returns the part of a URL after its scheme, without the values of `?name=value&…`. S3 has no such query:
/// the user has copied it from a signed URL. A `?` without a following `name=` belongs to a pattern.
fn redact_query_values(rest: &str) -> String {
    let is_named = |pair: &str| {
        let name = pair.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(is_name_char)
    };
    let found = rest.match_indices('?').map(|(at, _)| at + 1).find(|at| is_named(&rest[*at..]));
    let Some(at) = found else { return rest.to_owned() };
    let mut shown = rest[..at].to_owned();
    for (number, pair) in rest[at..].split('&').enumerate() {
        match pair.split_once('=').filter(|_| is_named(pair)) {
            Some((name, value)) => {
                shown.push_str(if number > 0 { "&" } else { "" });
                shown.push_str(name);
                // A quoted value has ended the URL.
                shown.push_str(if value.is_empty() { "=" } else { "=***" });
            }
            // The rest of a value, which is hidden in part or not yet.
            None if shown.ends_with('=') => shown.push_str(REDACTED_PLACEHOLDER),
            None => {}
        }
    }
    shown
}

fn is_web_scheme(scheme: &str) -> bool {
    ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web))
}

/// Hides the values of `name=value`, `name = 'value'` and `"name": "value"` with secret names.
fn redact_assignments(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['=', ':']) {
        let (before, after) = rest.split_at(at);
        let (sign, value) = after.split_at(1);
        shown.push_str(before);
        shown.push_str(sign);
        rest = value;
        let before = before.trim_end().trim_end_matches(['"', '\'']);
        let start = before
            .rfind(|c| !is_name_char(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        if !is_secret_name(&before[start..]) {
            continue;
        }
        let blank = value.len() - value.trim_start_matches([' ', '\t']).len();
        let (gap, value) = value.split_at(blank);
        let length = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                // A missing closing quote hides everything.
                let end = value[1..].find(quote).map_or(value.len() - 1, |end| end);
                shown.push_str(gap);
                shown.push(quote);
                shown.push_str(REDACTED_PLACEHOLDER);
                rest = &value[1 + end..];
                continue;
            }
            // `token = other.token` in SQL, or `token::TEXT`: not a value.
            _ if blank > 0 && sign == "=" => continue,
            Some(':' | '=') | None => continue,
            Some(_) => value
                .find(|c: char| {
                    c.is_whitespace() || matches!(c, '&' | ',' | ';' | '"' | '\'' | '`' | ')' | '}')
                })
                .unwrap_or(value.len()),
        };
        if length > 0 {
            shown.push_str(gap);
            shown.push_str(REDACTED_PLACEHOLDER);
        }
        rest = &value[length..];
    }
    shown.push_str(rest);
    shown
}

/// Returns a URL as messages show it: without user name and password, whatever its scheme, and without
/// the values of its query, which may be a signature. The `?` of a pattern stays (`s3://b/a?.csv`).
pub fn redact_url(url: &str) -> String {
    let Some((0, after)) = find_next_url(url) else { return url.to_owned() };
    let (prefix, rest) = url.split_at(after);
    let scheme = prefix.split(':').next().unwrap_or_default();
    let is = |name: &str| scheme.eq_ignore_ascii_case(name);
    let is_pattern = is("file") || is("s3") || is("s3a");
    if scheme.is_empty() {
        return url.to_owned();
    }
    if is("file") {
        // With two slashes, the first part is a host, which may come with a password.
        let host = rest.find('/').map_or(rest, |end| &rest[..end]);
        return match (prefix.ends_with(":///"), host.rfind('@')) {
            (false, Some(at)) => format!("{prefix}{}", &rest[at + 1..]),
            _ => url.to_owned(),
        };
    }
    let is_end = |c: char| c == '/' || (!is_pattern && matches!(c, '?' | '#'));
    let authority = &rest[..rest.find(is_end).unwrap_or(rest.len())];
    let rest = match (authority.rfind('@'), authority.rsplit_once(':')) {
        (Some(at), _) => &rest[at + 1..],
        // A password with an unencoded `/` or `?` in it: the text after the colon is no port.
        (None, Some((_, port)))
            if !port.ends_with(']') && port.bytes().any(|byte| !byte.is_ascii_digit()) =>
        {
            match rest.rfind('@') {
                Some(at) => &rest[at + 1..],
                None => "…",
            }
        }
        _ => rest,
    };
    if is_pattern {
        return format!("{prefix}{}", redact_query_values(rest));
    }
    let rest = rest.split('#').next().unwrap_or_default();
    match rest.split_once('?') {
        Some((path, _)) => format!("{prefix}{path}?…"),
        None => format!("{prefix}{rest}"),
    }
}

/// Returns a text, such as a message or SQL, with each of its URLs as [`redact_url`] shows it.
pub fn redact_urls_in_text(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((start, after)) = find_next_url(rest) {
        let is_end = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
        let end = rest[after..].find(is_end).map_or(rest.len(), |at| after + at);
        // Punctuation that ends a clause belongs to the message.
        let end = after + rest[after..end].trim_end_matches([':', ',', ';', '.', ')']).len();
        found.push_str(&rest[..start]);
        found.push_str(&redact_url(&rest[start..end]));
        rest = &rest[end..];
    }
    found.push_str(rest);
    found
}

/// Returns the start of the next URL in a text, and the end of its scheme. Includes `http:/host` and
/// `//user:password@host`, which are no URLs but were meant as such.
fn find_next_url(text: &str) -> Option<(usize, usize)> {
    let without_scheme = text.match_indices("//").find_map(|(at, slashes)| {
        let after = at + slashes.len();
        let is_end = |c: char| c == '/' || c.is_whitespace() || matches!(c, '\'' | '"' | '`');
        let host = text[after..].find(is_end).map_or(&text[after..], |end| &text[after..][..end]);
        let is_start = !text[..at].ends_with([':', '/']);
        let has_password = host.split_once(':').is_some_and(|(_, rest)| rest.contains('@'));
        (is_start && has_password).then_some((at, after))
    });
    let with_scheme = find_next_url_with_scheme(text);
    match (without_scheme, with_scheme) {
        (Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
        (one, other) => one.or(other),
    }
}

fn find_next_url_with_scheme(text: &str) -> Option<(usize, usize)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.match_indices(':').find_map(|(at, _)| {
        let start = text[..at].trim_end_matches(is_word).len();
        let scheme = text[start..at].trim_start_matches('-');
        let rest = &text[at + 1..];
        let slashes = rest.len() - rest.trim_start_matches('/').len();
        let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        (slashes >= 2 || is_web).then_some((start, at + 1 + slashes))
    })
}

/// Escapes everything in a text that a terminal might obey, except for the control characters in `kept`.
pub fn escape_control_chars(text: &str, kept: &[char]) -> String {
    let hostile = |c: char| {
        (c.is_control() && !kept.contains(&c))
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}' | '\u{2029}'
                | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(hostile) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !hostile(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_url_contains_no_secret() {
        for (url, expected) in [
            ("https://u:p@h:1/a/b.csv?sig=s#f", "https://h:1/a/b.csv?…"),
            ("https://h/a@b", "https://h/a@b"),
            ("http://u@h", "http://h"),
            ("s3://b/a?b", "s3://b/a?b"),
            ("s3://b/a#@b:c", "s3://b/a#@b:c"),
            ("s3://KEY:SECRET@b/a", "s3://b/a"),
            ("s3://KEY:SECRET@b/a.csv?X=S", "s3://b/a.csv?X=***"),
            (
                "s3a://b/a?.csv?X-Amz-Signature=a/b&Y=c=d&e",
                "s3a://b/a?.csv?X-Amz-Signature=***&Y=***",
            ),
            ("s3://b/day=2026-1?/n=??.csv", "s3://b/day=2026-1?/n=??.csv"),
            ("s3://b/a?=b", "s3://b/a?=b"),
            ("gs://b/a?sig=s", "gs://b/a?…"),
            ("postgres://u:p@h:5432/db?password=x", "postgres://h:5432/db?…"),
            ("http://u:p/q@h/x", "http://h/x"),
            ("http://u:p?q@h/x?y", "http://h/x?…"),
            ("http://u:pw/q", "http://…"),
            ("http://[::1]/x", "http://[::1]/x"),
            ("http://[::1]:80/x", "http://[::1]:80/x"),
            ("http://h:80/x@y", "http://h:80/x@y"),
            ("no scheme://u:p@h", "no scheme://u:p@h"),
            ("a?b", "a?b"),
            ("http:/u:p@h/x?sig=s", "http:/h/x?…"),
            ("https:u:p@h/x", "https:h/x"),
            ("http:///u:p@h/x", "http:///h/x"),
            ("a:/u:p@h/x?y", "a:/u:p@h/x?y"),
        ] {
            assert_eq!(redact_url(url), expected);
        }
        for (text, expected) in [
            (
                "no `http://u:p@h/x?sig=s`: 'https:/u:p@h', é s3://K:S@b/a?b",
                "no `http://h/x?…`: 'https:/h', é s3://b/a?b",
            ),
            ("http: it is 3:4 https", "http: it is 3:4 https"),
            ("x=http://h/x?sig=s: unknown", "x=http://h/x?…: unknown"),
            (
                "a path, file://, s3://, http:// or https://",
                "a path, file://, s3://, http:// or https://",
            ),
            ("::/é:", "::/é:"),
        ] {
            assert_eq!(redact_urls_in_text(text), expected);
        }
    }

    #[test]
    fn urls_of_any_kind_are_shown_without_password() {
        for (text, expected) in [
            ("`file://bob:PW@x/y.csv` names a host", "`file://x/y.csv` names a host"),
            ("file:///tmp/a:b@c/d.csv", "file:///tmp/a:b@c/d.csv"),
            ("no file `//bob:PW@127.0.0.1/x.csv?sig=S`", "no file `//127.0.0.1/x.csv?…`"),
            ("a//b/c and 'http://bob:PW@h/x'", "a//b/c and 'http://h/x'"),
            ("a//b.csv:12 and c@d", "a//b.csv:12 and c@d"),
        ] {
            assert_eq!(redact_urls_in_text(text), expected);
        }
    }

    #[test]
    fn credentials_are_hidden_in_text() {
        for (given, expected) in [
            ("s3://bucket/day.csv", "s3://bucket/day.csv"),
            ("https://ann:pa@ss@host/x", "https://***@host/x"),
            ("FROM 's3://AKIA:x/y' z", "FROM 's3://AKIA:x/y' z"),
            ("https://ann:pa/ss?x@host/y z@w", "https://***@host/y z@w"),
            ("http://[::1]/x@y http://h:80/x@y", "http://[::1]/x@y http://h:80/x@y"),
            ("https://h/x?a=1&X-Amz-Signature=ab12&b=2", "https://h/x?…"),
            ("FROM 'http://h/x?code=k' WHERE a=1", "FROM 'http://h/x?…' WHERE a=1"),
            ("https://h/x#key", "https://h/x#…"),
            ("https://h/x?X-Amz-Credential=AK/20/s3", "https://h/x?…"),
            ("https://h/x?sig=a%2Fb&se=1", "https://h/x?…"),
            (
                "FROM 's3://k:p@b/x?.csv?X=S&Y=T' WHERE a=1",
                "FROM 's3://***@b/x?.csv?X=***&Y=***' WHERE a=1",
            ),
            ("FROM 's3://b/day=1?/x=?.csv' x", "FROM 's3://b/day=1?/x=?.csv' x"),
            ("gs://b/x?X=S y=1", "gs://b/x?X=*** y=1"),
            ("s3://b/x?a=S&token='T' y", "s3://b/x?a=***&token='***' y"),
            ("s3://b/x,http://u:p@h/y?X=S", "s3://b/x,http://***@h/y?…"),
            ("s3://b/x?a=&S&b=T", "s3://b/x?a=***&b=***"),
            ("file:///a?b=c/d.csv", "file:///a?b=c/d.csv"),
            ("secret_access_key=abc region=eu", "secret_access_key=*** region=eu"),
            ("aws_secret_access_key = \"a b\", x", "aws_secret_access_key = \"***\", x"),
            ("{\"session_token\": \"abc\", \"n\": 1}", "{\"session_token\": \"***\", \"n\": 1}"),
            ("Authorization: Bearer abc.def", "Authorization: *** abc.def"),
            ("password: hunter2", "password: ***"),
            ("a.token = b.token AND x=1", "a.token = b.token AND x=1"),
            ("token::TEXT", "token::TEXT"),
            ("SELECT token, sum(x) AS s", "SELECT token, sum(x) AS s"),
            ("WHERE token = 'abc", "WHERE token = '***"),
            ("ключ=значение password=тайна é", "ключ=значение password=*** é"),
            ("design=1 signal=2", "design=1 signal=2"),
            ("'http:/ann:pa@host/x' https:ann:pa@h", "'http:/***@host/x' https:***@h"),
            ("", ""),
        ] {
            assert_eq!(redact_text(given), expected, "{given}");
        }
    }

    #[test]
    fn credentials_are_hidden_in_command_lines() {
        for (given, expected) in [
            (&["tidemill", "run", "job.toml"][..], &["tidemill", "run", "job.toml"][..]),
            (
                &["--storage-option", "secret_access_key=a b'c", "--threads", "2"],
                &["--storage-option", "secret_access_key=***", "--threads", "2"],
            ),
            (
                &["--set", "source.storage.session_token=x"],
                &["--set", "source.storage.session_token=***"],
            ),
            (&["--password", "hunter2", "x"], &["--password", "***", "x"]),
            (&["--api-key=abc"], &["--api-key=***"]),
            (&["--token", "--other"], &["--token", "--other"]),
            (&["--storage-option", "region=hush"], &["--storage-option", "region=***"]),
            (&["--storage-option=acces_key=hush", "x"], &["--storage-option=acces_key=***", "x"]),
            (&["--storage-option", "hush"], &["--storage-option", "***"]),
            (&["--storage-option", "wJal/hu+sh="], &["--storage-option", "***"]),
            (&["https://a:b@h/x"], &["https://***@h/x"]),
            (
                &[
                    "--source-exec",
                    "curl",
                    "--source-exec",
                    "-u",
                    "--source-exec=a:b",
                    "--null",
                    "c",
                ],
                &[
                    "--source-exec",
                    "curl",
                    "--source-exec",
                    "***",
                    "--source-exec=***",
                    "--null",
                    "c",
                ],
            ),
            (
                &["--sink-exec=mail", "--sink-exec", "--to", "--source-exec", "http://a:b@h"],
                &["--sink-exec=mail", "--sink-exec", "***", "--source-exec", "http://***@h"],
            ),
            (
                &[
                    "--set",
                    "source.exec=['curl', '-u', 'a:b']",
                    "--set=source.storage_options.x=hush",
                ],
                &["--set", "source.exec=***", "--set=source.storage_options.x=***"],
            ),
            (&["--set", "source.url=http://a:b@h"], &["--set", "source.url=http://***@h"]),
        ] {
            assert_eq!(redact_command_line(given), expected);
        }
    }

    #[test]
    fn message_keeps_words_and_loses_credentials() {
        for (given, expected) in [
            ("`http://a:b@h/x?sig=s` is not a time", "`http://h/x?…` is not a time"),
            ("no run of `h/x.csv?sig=s&x=1`", "no run of `h/x.csv?sig=***&x=1`"),
            ("unknown column `token`: 'a' = password", "unknown column `token`: 'a' = password"),
            ("did you mean `key`?\nkeys: auth, b", "did you mean `key`?\nkeys: auth, b"),
        ] {
            assert_eq!(redact_message(given), expected);
        }
        for (key, expected) in [
            ("source.url", "x"),
            ("sink.storage_options", "***"),
            ("source.storage.region", "***"),
            ("source.exec", "***"),
            ("source.password", "***"),
        ] {
            assert_eq!(redact_override_value(key, "x"), expected, "{key}");
        }
    }

    proptest::proptest! {
        #[test]
        fn redaction_accepts_any_text_and_is_idempotent(given in "[a-z:/@='\" &?é\\-]{0,40}(token|key)?[ =:'\"a-z]{0,20}") {
            let once = redact_text(&given);
            proptest::prop_assert_eq!(redact_text(&once), once);
        }
    }
}
