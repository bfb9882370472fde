//! Hides credentials in text that is kept: command lines, URLs, SQL, errors.
//!
//! What is hidden: the user and password in a URL, what a web URL asks for after `?` or `#`, the value
//! of an assignment whose name says that it is secret, the word after a flag of such a name, and the
//! words that go to a program of the user's, which have rules of its own.
//! It errs on the side of hiding: a harmless value lost is a smaller fault than a key kept.

use crate::remote::location::{next_url, shown_in};

/// What stands for what was hidden.
const HIDDEN: &str = "***";

/// Parts of names whose values are secret, in lower case and without `_` and `-`.
const SECRET: [&str; 16] = [
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

/// Whether a name says that its value is secret.
fn is_secret(name: &str) -> bool {
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    // `sig` is the signature of a shared access URL; within a word it is nothing.
    name == "sig" || name == "auth" || SECRET.iter().any(|part| name.contains(part))
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// A text with its credentials hidden.
pub fn text(text: &str) -> String {
    assignments(&urls(text))
}

/// A message with its credentials hidden. Only URLs are changed, and words that look as if they
/// were a piece of one: what else it says has to stay readable.
pub fn message(text: &str) -> String {
    let text = shown_in(text);
    if !text.contains('?') {
        return text;
    }
    let is_end = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
    let words = text.split_inclusive(is_end);
    words.map(|word| if word.contains('?') { assignments(word) } else { word.into() }).collect()
}

/// What may be said of `key=value`, a key of a job file and what is to be its value: nothing where
/// that goes to a store or to a program.
pub fn override_value<'a>(key: &str, value: &'a str) -> &'a str {
    let mut steps = key.split('.').map(str::trim);
    let is_hidden = |step: &str| is_secret(step) || step.starts_with("storage") || step == "exec";
    if steps.any(is_hidden) { HIDDEN } else { value }
}

/// The words of a command line with their credentials hidden.
pub fn words<S: AsRef<str>>(words: &[S]) -> Vec<String> {
    let mut hidden = Vec::with_capacity(words.len());
    let (mut is_value_next, mut is_option_next, mut is_override_next) = (false, false, false);
    // The program's name is shown, its arguments are not.
    let (mut programs, mut is_argument_next) = (Vec::new(), None);
    for word in words {
        let word = word.as_ref();
        if let Some(flag) = std::mem::take(&mut is_argument_next) {
            hidden.push(if programs.contains(&flag) { HIDDEN.to_owned() } else { text(word) });
            programs.push(flag);
            continue;
        }
        if let Some(flag) = PROGRAM_FLAGS.iter().find(|flag| word.starts_with(**flag)) {
            match word[flag.len()..].strip_prefix('=') {
                Some(name) if !programs.contains(flag) => {
                    hidden.push(format!("{flag}={}", text(name)));
                    programs.push(*flag);
                }
                Some(_) => hidden.push(format!("{flag}={HIDDEN}")),
                None => {
                    hidden.push(text(word));
                    is_argument_next = (word == *flag).then_some(*flag);
                }
            }
            continue;
        }
        let assigned = word.strip_prefix("--set=").map(|assigned| ("--set=", assigned));
        let is_override = std::mem::take(&mut is_override_next).then_some(("", word));
        if let Some((flag, assigned)) = is_override.or(assigned) {
            hidden.push(match assigned.split_once('=') {
                Some((key, value)) if override_value(key, value) == HIDDEN => {
                    format!("{flag}{}={HIDDEN}", text(key))
                }
                _ => text(word),
            });
            continue;
        }
        if std::mem::take(&mut is_value_next) && !word.starts_with('-') {
            hidden.push(HIDDEN.to_owned());
            continue;
        }
        // What is given to a store may be a secret in the wrong place, or without its name.
        if std::mem::take(&mut is_option_next) {
            hidden.push(option(word));
            continue;
        }
        if let Some(value) = word.strip_prefix("--storage-option=") {
            hidden.push(format!("--storage-option={}", option(value)));
            continue;
        }
        is_option_next = word == "--storage-option";
        is_override_next = word == "--set";
        is_value_next = word.starts_with('-') && !word.contains('=') && is_secret(word);
        match word.split_once('=') {
            // A whole word KEY=VALUE: the value may hold blanks, quotes, anything.
            Some((name, value))
                if !value.is_empty()
                    && name.chars().all(|c| is_name(c) || c == '"' || c == '\'')
                    && is_secret(name) =>
            {
                hidden.push(format!("{name}={HIDDEN}"));
            }
            _ => hidden.push(text(word)),
        }
    }
    hidden
}

/// Flags of which the first is a program's name, and all others are its arguments.
const PROGRAM_FLAGS: [&str; 2] = ["--source-exec", "--sink-exec"];

/// A store's option without its value.
fn option(word: &str) -> String {
    let is_plain = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    match word.split_once('=').map(|(name, _)| name).filter(is_plain) {
        Some(name) => format!("{name}={HIDDEN}"),
        None => HIDDEN.to_owned(),
    }
}

/// Hides `user:password@` of URLs.
fn urls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((_, at)) = next_url(rest) {
        let (before, after) = rest.split_at(at);
        shown.push_str(before);
        let end = after
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '\'' | '"' | '`'))
            .unwrap_or(after.len());
        // A password may itself hold an `@`: the host is what follows the last.
        let host = after[..end].rfind('@').or_else(|| {
            // A password with a `/` or a `?` in it: what looks like a port is none.
            let (_, port) = after[..end].rsplit_once(':')?;
            let is_port = port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit());
            let quote = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
            let word = &after[..after.find(quote).unwrap_or(after.len())];
            (!is_port).then(|| word.rfind('@')).flatten()
        });
        rest = match host {
            Some(host) => {
                shown.push_str(HIDDEN);
                &after[host..]
            }
            None => after,
        };
        // The names of a query's values say little of which are keys: the server's own, or none.
        let scheme = before.trim_end_matches(['/', ':']).rsplit(|c| !is_name(c)).next();
        if scheme.is_some_and(is_web) {
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

fn is_web(scheme: &str) -> bool {
    ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web))
}

/// Hides the values of `name=value`, `name = 'value'` and `"name": "value"` with secret names.
fn assignments(text: &str) -> String {
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
            .rfind(|c| !is_name(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        if !is_secret(&before[start..]) {
            continue;
        }
        let blank = value.len() - value.trim_start_matches([' ', '\t']).len();
        let (gap, value) = value.split_at(blank);
        let length = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                // An end that is missing hides everything.
                let end = value[1..].find(quote).map_or(value.len() - 1, |end| end);
                shown.push_str(gap);
                shown.push(quote);
                shown.push_str(HIDDEN);
                rest = &value[1 + end..];
                continue;
            }
            // `token = other.token` in SQL, or `token::TEXT`: no value.
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
            shown.push_str(HIDDEN);
        }
        rest = &value[length..];
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(text(given), expected, "{given}");
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
            assert_eq!(words(given), expected);
        }
    }

    #[test]
    fn a_message_keeps_its_words_and_loses_its_credentials() {
        for (given, expected) in [
            ("`http://a:b@h/x?sig=s` is not a time", "`http://h/x?…` is not a time"),
            ("no run of `h/x.csv?sig=s&x=1`", "no run of `h/x.csv?sig=***&x=1`"),
            ("unknown column `token`: 'a' = password", "unknown column `token`: 'a' = password"),
            ("did you mean `key`?\nkeys: auth, b", "did you mean `key`?\nkeys: auth, b"),
        ] {
            assert_eq!(message(given), expected);
        }
        for (key, expected) in [
            ("source.url", "x"),
            ("sink.storage_options", "***"),
            ("source.storage.region", "***"),
            ("source.exec", "***"),
            ("source.password", "***"),
        ] {
            assert_eq!(override_value(key, "x"), expected, "{key}");
        }
    }

    proptest::proptest! {
        #[test]
        fn hiding_takes_any_text_and_is_done_once(given in "[a-z:/@='\" &?é\\-]{0,40}(token|key)?[ =:'\"a-z]{0,20}") {
            let once = text(&given);
            proptest::prop_assert_eq!(text(&once), once);
        }
    }
}
