//! What a URL names: a path on this machine, an object in a bucket, something on the web.

use std::fmt;

use percent_encoding::percent_decode_str;

use crate::error::{Error, Result};

/// A remote URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// `s3://bucket/key`; the key as it is, with nothing encoded.
    S3 {
        /// The bucket.
        bucket: String,
        /// The key, a prefix or a pattern; empty for the whole bucket.
        key: String,
    },
    /// `http://` or `https://`, as written.
    Http(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::S3 { bucket, key } => write!(f, "s3://{bucket}/{key}"),
            Location::Http(url) => f.write_str(&shown(url)),
        }
    }
}

impl Location {
    /// The location of a remote URL; none for what is on this machine.
    ///
    /// # Errors
    /// [`Error::Usage`] for a scheme that is not known, for `s3://` without a bucket, and for what was
    /// meant as a URL: taken as a path, it would be a folder with a password in its name.
    pub(crate) fn parse(url: &str) -> Result<Option<Location>> {
        refuse_mistyped(url)?;
        let Some((scheme, rest)) = url.split_once("://") else { return Ok(None) };
        let is_word = !scheme.is_empty()
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
        if !is_word {
            return Ok(None);
        }
        match scheme.to_ascii_lowercase().as_str() {
            "file" => Ok(None),
            "s3" | "s3a" => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
                if bucket.is_empty() || !bucket.chars().all(is_name) {
                    return Err(Error::usage_hint(
                        format!("`{}` names no bucket", shown(url)),
                        "an S3 URL is s3://bucket/key; patterns are for keys",
                    ));
                }
                Ok(Some(Location::S3 { bucket: bucket.to_owned(), key: key.to_owned() }))
            }
            "http" | "https" => {
                if rest.split(['/', '?', '#']).next().unwrap_or_default().is_empty() {
                    return Err(Error::usage(format!("`{}` names no host", shown(url))));
                }
                Ok(Some(Location::Http(url.to_owned())))
            }
            other => Err(Error::usage_hint(
                format!("`{}`: `{other}://` is not known", shown(url)),
                "a path, file://, s3://, http:// or https://",
            )),
        }
    }
}

/// Refuses what was meant as a URL.
///
/// # Errors
/// [`Error::Usage`] that says which.
pub(crate) fn refuse_mistyped(url: &str) -> Result<()> {
    match meant(url) {
        Some(meant) => Err(Error::usage_hint(
            format!("`{}` is no URL, and no path either", shown_in(url)),
            format!("was `{}` meant?", shown(&meant)),
        )),
        None => Ok(()),
    }
}

/// The URL that somebody meant who typed a blank before it, or not all of `://`.
fn meant(text: &str) -> Option<String> {
    let trimmed = text.trim_start();
    let scheme = ["https", "http", "s3a", "s3"].into_iter().find(|scheme| {
        let start = trimmed.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            && trimmed[scheme.len()..].starts_with([':', '/'])
    })?;
    let rest = &trimmed[scheme.len()..];
    let is_url = rest.starts_with("://");
    let is_nearly = rest.starts_with(":/") || rest.starts_with("//");
    let rest = rest.trim_start_matches([':', '/']);
    let is_other = if is_url { trimmed.len() < text.len() } else { is_nearly };
    is_other.then(|| format!("{scheme}://{rest}"))
}

/// A URL as messages show it: without a user's name and password, whatever its scheme, and without
/// the values of its query, which may be a signature, unless it is a pattern's (`s3://b/a?.csv`).
pub fn shown(url: &str) -> String {
    let Some((0, after)) = next_url(url) else { return url.to_owned() };
    let (prefix, rest) = url.split_at(after);
    let scheme = prefix.split(':').next().unwrap_or_default();
    let is = |name: &str| scheme.eq_ignore_ascii_case(name);
    let is_pattern = is("file") || is("s3") || is("s3a");
    if scheme.is_empty() {
        return url.to_owned();
    }
    if is("file") {
        // With two slashes it is a host's, which may come with a password.
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
        // A password with a `/` or a `?` in it, which belong encoded: what looks like a port is none.
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
        return format!("{prefix}{rest}");
    }
    let rest = rest.split('#').next().unwrap_or_default();
    match rest.split_once('?') {
        Some((path, _)) => format!("{prefix}{path}?…"),
        None => format!("{prefix}{rest}"),
    }
}

/// A text, such as a message or SQL, with each URL in it as [`shown`] shows it.
pub(crate) fn shown_in(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((start, after)) = next_url(rest) {
        let is_end = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
        let end = rest[after..].find(is_end).map_or(rest.len(), |at| after + at);
        // What ends a clause is the message's.
        let end = after + rest[after..end].trim_end_matches([':', ',', ';', '.', ')']).len();
        found.push_str(&rest[..start]);
        found.push_str(&shown(&rest[start..end]));
        rest = &rest[end..];
    }
    found.push_str(rest);
    found
}

/// Where the next URL of a text begins, and where what follows its scheme does. `http:/host` is no URL,
/// and was meant as one, and so was `//user:password@host`.
pub(crate) fn next_url(text: &str) -> Option<(usize, usize)> {
    let without_scheme = text.match_indices("//").find_map(|(at, slashes)| {
        let after = at + slashes.len();
        let is_end = |c: char| c == '/' || c.is_whitespace() || matches!(c, '\'' | '"' | '`');
        let host = text[after..].find(is_end).map_or(&text[after..], |end| &text[after..][..end]);
        let is_start = !text[..at].ends_with([':', '/']);
        let has_password = host.split_once(':').is_some_and(|(_, rest)| rest.contains('@'));
        (is_start && has_password).then_some((at, after))
    });
    let with_scheme = next_with_scheme(text);
    match (without_scheme, with_scheme) {
        (Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
        (one, other) => one.or(other),
    }
}

fn next_with_scheme(text: &str) -> Option<(usize, usize)> {
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

/// The path of a web URL, decoded: what tells the format.
pub(crate) fn web_path(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_shown_in_no_kind_of_url() {
        for (text, expected) in [
            ("`file://bob:PW@x/y.csv` names a host", "`file://x/y.csv` names a host"),
            ("file:///tmp/a:b@c/d.csv", "file:///tmp/a:b@c/d.csv"),
            ("no file `//bob:PW@127.0.0.1/x.csv?sig=S`", "no file `//127.0.0.1/x.csv?…`"),
            ("a//b/c and 'http://bob:PW@h/x'", "a//b/c and 'http://h/x'"),
            ("a//b.csv:12 and c@d", "a//b.csv:12 and c@d"),
        ] {
            assert_eq!(shown_in(text), expected);
        }
    }

    #[test]
    fn a_url_tells_where_its_bytes_are() {
        let s3 =
            |bucket: &str, key: &str| Some(Location::S3 { bucket: bucket.into(), key: key.into() });
        for (url, expected) in [
            ("a/b.csv", None),
            ("file:///a", None),
            ("a b://c", None),
            ("s3://b/k", s3("b", "k")),
            ("S3://b", s3("b", "")),
            ("s3a://b/", s3("b", "")),
            ("s3://b/a b%20+?é*/{x,y}", s3("b", "a b%20+?é*/{x,y}")),
            ("http://h/x?y", Some(Location::Http("http://h/x?y".into()))),
        ] {
            assert_eq!(Location::parse(url).unwrap(), expected, "{url}");
        }
        for (url, expected) in [
            ("s3:///key", "names no bucket"),
            ("s3://b*/key", "names no bucket"),
            ("https:///x", "names no host"),
            ("gs://b/k", "`gs://` is not known"),
            (" http://u:p@h/x", "was `http://h/x` meant?"),
            ("http//u:p@h/x", "was `http://h/x` meant?"),
            ("https:/h/x?sig=s", "was `https://h/x?…` meant?"),
            ("S3:/b/k", "was `s3://b/k` meant?"),
        ] {
            let message = Location::parse(url).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn what_is_shown_of_a_url_is_no_secret() {
        for (url, expected) in [
            ("https://u:p@h:1/a/b.csv?sig=s#f", "https://h:1/a/b.csv?…"),
            ("https://h/a@b", "https://h/a@b"),
            ("http://u@h", "http://h"),
            ("s3://b/a?b", "s3://b/a?b"),
            ("s3://b/a#@b:c", "s3://b/a#@b:c"),
            ("s3://KEY:SECRET@b/a", "s3://b/a"),
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
            assert_eq!(shown(url), expected);
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
            assert_eq!(shown_in(text), expected);
        }
        assert_eq!(web_path("https://u:p@h/a%20b/c.csv.gz?x=/y"), "/a b/c.csv.gz");
        assert_eq!(web_path("https://h"), "");
    }
}
