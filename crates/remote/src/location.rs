//! Parsing of URLs: local paths, objects in buckets and files on the web.

use std::fmt;

use crate::error::{Error, Result};
use percent_encoding::percent_decode_str;
use tidemill_base::redaction::{redact_url, redact_urls_in_text};

/// A remote URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// `s3://bucket/key`; the key is literal, without percent-encoding.
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
            Location::Http(url) => f.write_str(&redact_url(url)),
        }
    }
}

impl Location {
    /// Parses a URL; returns `None` for a path or URL on this machine.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown scheme, for `s3://` without a bucket, and for a mistyped URL. Taken as
    /// a path, the latter would create a folder with a password in its name.
    pub fn parse(url: &str) -> Result<Option<Location>> {
        refuse_mistyped_url(url)?;
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
                if !is_bucket_name(bucket) {
                    return Err(Error::usage_with_hint(
                        format!("`{}` names no bucket", redact_url(url)),
                        "an S3 URL is s3://bucket/key; patterns are for keys",
                    ));
                }
                Ok(Some(Location::S3 { bucket: bucket.to_owned(), key: key.to_owned() }))
            }
            "http" | "https" => {
                if rest.split(['/', '?', '#']).next().unwrap_or_default().is_empty() {
                    return Err(Error::usage(format!("`{}` names no host", redact_url(url))));
                }
                Ok(Some(Location::Http(url.to_owned())))
            }
            other => Err(Error::usage_with_hint(
                format!("`{}`: `{other}://` is not known", redact_url(url)),
                "a path, file://, s3://, http:// or https://",
            )),
        }
    }
}

/// Maximum length of a bucket's name, in bytes. Old buckets have names of up to 255 bytes.
const BUCKET_NAME_BYTES_MAX: usize = 255;

/// Returns true if a name is valid for a bucket. The name becomes part of a URL's path or host without
/// escaping, so `..` would be another path and `x@y` another host.
fn is_bucket_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (1..=BUCKET_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.starts_with(['.', '-'])
        && !name.ends_with('.')
        && !name.contains("..")
}

/// Checks that a name is valid for a bucket.
///
/// # Errors
/// [`Error::Usage`] if it is not.
pub(crate) fn check_bucket_name(name: &str) -> Result<()> {
    match is_bucket_name(name) {
        true => Ok(()),
        false => Err(Error::usage_with_hint(
            format!("`{}` is no bucket's name", redact_url(name)),
            "letters, digits, `-`, `_` and single dots inside",
        )),
    }
}

/// Refuses a mistyped URL.
///
/// # Errors
/// [`Error::Usage`] that suggests the intended URL.
pub fn refuse_mistyped_url(url: &str) -> Result<()> {
    match guess_intended_url(url) {
        Some(meant) => Err(Error::usage_with_hint(
            format!("`{}` is no URL, and no path either", redact_urls_in_text(url)),
            format!("was `{}` meant?", redact_url(&meant)),
        )),
        None => Ok(()),
    }
}

/// Returns the intended URL for a text with a leading blank, or with an incomplete `://`.
fn guess_intended_url(text: &str) -> Option<String> {
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

/// Returns the decoded path of a web URL, whose extension indicates the format.
pub fn decoded_web_path(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_into_locations() {
        let s3 =
            |bucket: &str, key: &str| Some(Location::S3 { bucket: bucket.into(), key: key.into() });
        for (url, expected) in [
            ("a/b.csv", None),
            ("file:///a", None),
            ("a b://c", None),
            ("s3://b/k", s3("b", "k")),
            ("S3://b", s3("b", "")),
            ("s3a://b/", s3("b", "")),
            ("s3://My_bucket.v2-x/k", s3("My_bucket.v2-x", "k")),
            ("s3://b/a b%20+?é*/{x,y}", s3("b", "a b%20+?é*/{x,y}")),
            ("http://h/x?y", Some(Location::Http("http://h/x?y".into()))),
        ] {
            assert_eq!(Location::parse(url).unwrap(), expected, "{url}");
        }
        for (url, expected) in [
            ("s3:///key", "names no bucket"),
            ("s3://b*/key", "names no bucket"),
            ("s3://../key", "names no bucket"),
            ("s3://./key", "names no bucket"),
            ("s3://.b/key", "names no bucket"),
            ("s3://b./key", "names no bucket"),
            ("s3://a..b/key", "names no bucket"),
            ("s3://-b/key", "names no bucket"),
            ("s3://b@example.org/key", "names no bucket"),
            ("s3://b:80/key", "names no bucket"),
            ("s3://b?x/key", "names no bucket"),
            ("s3://b#x/key", "names no bucket"),
            ("s3://b%2F/key", "names no bucket"),
            ("s3://b\\x/key", "names no bucket"),
            ("s3://b\n/key", "names no bucket"),
            ("https:///x", "names no host"),
            ("gs://b/k", "`gs://` is not known"),
            (" http://u:p@h/x", "was `http://h/x` meant?"),
            ("http//u:p@h/x", "was `http://h/x` meant?"),
            ("https:/h/x?sig=s", "was `https://h/x?…` meant?"),
            ("S3:/b/k", "was `s3://b/k` meant?"),
        ] {
            let error = Location::parse(url).unwrap_err();
            let message = tidemill_base::Error::from(error).to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn the_path_of_a_web_url_is_decoded() {
        assert_eq!(decoded_web_path("https://u:p@h/a%20b/c.csv.gz?x=/y"), "/a b/c.csv.gz");
        assert_eq!(decoded_web_path("https://h"), "");
    }
}
