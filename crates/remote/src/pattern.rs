//! What a pattern, alternatives and a local path mean, wherever files are named.
//!
//! `*`, `?` and `[..]` stand for characters of one component, and `*` and `?` for no `.` at its beginning;
//! `**` is a whole component and stands for any number of them; `{a,b}` are alternatives, each taken by
//! itself. Paths and keys are matched alike.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tidemill_base::panics;

use crate::error::{Error, Result};

const OPTIONS: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The most that alternatives may stand for.
const ALTERNATIVES_MAX: usize = 100_000;

/// A pattern of keys, without alternatives.
#[derive(Debug, Clone)]
pub struct Pattern(glob::Pattern);

impl Pattern {
    /// Understands a pattern.
    ///
    /// # Errors
    /// [`Error::Usage`] that says what is wrong with it.
    pub fn new(pattern: &str) -> Result<Pattern> {
        glob::Pattern::new(pattern).map(Pattern).map_err(|error| invalid(pattern, &error))
    }

    /// Whether a key, or a folder without a `/` at its end, is one of those that it stands for.
    pub fn matches(&self, key: &str) -> bool {
        self.0.matches_with(key, OPTIONS)
    }
}

fn invalid(pattern: &str, error: &glob::PatternError) -> Error {
    Error::usage(format!("`{pattern}` is not a valid pattern: {error}"))
}

/// Whether a path or key without alternatives is a pattern.
pub fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// What comes before the first character of a pattern that is not literal.
pub fn literal_prefix(pattern: &str) -> &str {
    &pattern[..pattern.find(['*', '?', '[', '{']).unwrap_or(pattern.len())]
}

/// `a{b,c}d` as `abd` and `acd`; alternatives may hold alternatives.
///
/// # Errors
/// [`Error::Usage`] for what is never closed, and for more than 100,000.
pub fn alternatives(pattern: &str) -> Result<Vec<String>> {
    let Some(open) = pattern.find('{') else { return Ok(vec![pattern.to_string()]) };
    let (mut depth, mut close) = (0, None);
    let mut commas = Vec::new();
    for (at, byte) in pattern.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    close = Some(at);
                    break;
                }
            }
            b',' if depth == 1 => commas.push(at),
            _ => {}
        }
    }
    let Some(close) = close else {
        return Err(Error::usage(format!("`{pattern}`: `{{` is never closed")));
    };
    let mut found = Vec::new();
    let mut from = open + 1;
    for to in commas.into_iter().chain([close]) {
        let spelled =
            format!("{}{}{}", &pattern[..open], &pattern[from..to], &pattern[close + 1..]);
        found.extend(alternatives(&spelled)?);
        if found.len() > ALTERNATIVES_MAX {
            return Err(Error::usage(format!("`{pattern}` has too many alternatives")));
        }
        from = to + 1;
    }
    Ok(found)
}

/// The local path or pattern in what is no remote URL.
///
/// # Errors
/// [`Error::Usage`] for nothing at all, and for a `file://` URL of another host or of bytes that are
/// not UTF-8.
pub fn local_path(url: &str) -> Result<String> {
    if url.is_empty() {
        return Err(Error::usage("the source's url is empty"));
    }
    if let Some(rest) = url.strip_prefix("file://") {
        let path = rest.strip_prefix("localhost").unwrap_or(rest);
        if !path.starts_with('/') {
            return Err(Error::usage_hint(
                format!("`{url}` names a host"),
                "a file URL has three slashes: file:///folder/file.csv",
            ));
        }
        return percent_encoding::percent_decode_str(path)
            .decode_utf8()
            .map(|path| path.into_owned())
            .map_err(|_| Error::usage(format!("`{url}` is not valid UTF-8 once decoded")));
    }
    Ok(url.to_string())
}

/// `~/logs` as a shell reads it, which it does not inside quotes.
pub fn from_home(path: String) -> String {
    match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) if !home.is_empty() && !Path::new(&path).exists() => {
            format!("{home}/{rest}")
        }
        _ => path,
    }
}

/// The files and folders on this machine that a pattern without alternatives stands for, in the order of
/// their names; those that a link leads to from inside of itself once.
///
/// # Errors
/// [`Error::Usage`] for what is no pattern and for a name that is not UTF-8; [`Error::Io`].
pub fn on_disk(pattern: &str) -> Result<Vec<PathBuf>> {
    let mut found = glob::glob_with(pattern, OPTIONS).map_err(|error| invalid(pattern, &error))?;
    let mut loops = Loops::default();
    // `glob` panics at a name that is not UTF-8 among those it looks at.
    let mut next = || {
        panics::catch(|| found.next()).map_err(|_| {
            Error::usage_hint(
                format!("a name that `{pattern}` is compared with is not UTF-8"),
                "rename that file, or name the folder without a pattern",
            )
        })
    };
    let mut paths = Vec::new();
    while let Some(entry) = next()? {
        let path = entry.map_err(|error| {
            let shown = error.path().display().to_string();
            Error::io("read", shown, error.into())
        })?;
        if !(pattern.contains("**") && loops.are_in(&path)) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Whether folders lead through a link into themselves, by their paths.
#[derive(Default)]
struct Loops(HashMap<PathBuf, bool>);

impl Loops {
    fn are_in(&mut self, path: &Path) -> bool {
        let Some(folder) = path.parent() else { return false };
        if let Some(known) = self.0.get(folder) {
            return *known;
        }
        let is_link = folder.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let is_loop = self.are_in(folder)
            || is_link
                && folder.canonicalize().is_ok_and(|target| {
                    let parent = folder.parent().and_then(|parent| parent.canonicalize().ok());
                    parent.is_some_and(|parent| parent.starts_with(target))
                });
        self.0.insert(folder.to_owned(), is_loop);
        is_loop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_components() {
        for (pattern, key, expected) in [
            ("a/*.csv", "a/1.csv", true),
            ("a/*.csv", "a/b/1.csv", false),
            ("a/**/*.csv", "a/b/c/1.csv", true),
            ("a/*", "a/.hidden", false),
            ("a/[0-9]", "a/7", true),
            ("a/?", "a/é", true),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().matches(key), expected, "{pattern} {key}");
        }
        assert!(Pattern::new("a**b").is_err());
    }

    #[test]
    fn alternatives_are_spelled_out() {
        assert_eq!(alternatives("a{b,c{d,e}}f").unwrap(), ["abf", "acdf", "acef"]);
        assert!(alternatives("a{b").is_err());
        assert!(alternatives(&"{a,b,c,d,e,f,g,h,i,j}".repeat(6)).is_err());
    }
}
