//! Patterns, alternatives and local paths, for all names of files.
//!
//! `*`, `?` and `[..]` match characters within one component; `*` and `?` do not match a `.` at its
//! beginning. `**` is a whole component and matches any number of components. `{a,b}` are alternatives, which
//! expand to one pattern each. Paths and keys follow the same rules.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tidemill_base::panics;

use crate::error::{Error, Result};

const MATCH_OPTIONS: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Maximum number of patterns that alternatives may expand to.
const ALTERNATIVES_MAX: usize = 100_000;
/// Maximum size of these patterns, in bytes.
const ALTERNATIVES_BYTES_MAX: usize = 64 << 20;
/// Maximum number of braces, each of which is a recursive call.
const BRACES_MAX: usize = 256;

/// Maximum length of a pattern of keys, in bytes: twice that of a path, and keys are shorter than paths.
const PATTERN_BYTES_MAX: usize = 8 << 10;

/// A compiled pattern for keys, without alternatives.
///
/// It matches the same names as `glob` does on a disk. `glob` backtracks: it tries one way to match after the
/// other, and `*a*a*a*a*b` has too many. This matcher tracks all ways at once, character by character, so
/// that the cost is at most the product of both lengths.
#[derive(Debug, Clone)]
pub struct KeyPattern(Vec<PatternToken>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternToken {
    Char(char),
    /// `?`
    AnyChar,
    /// `[a-c]`, or `[!a-c]` if not `is_inclusive`.
    CharClass {
        ranges: Vec<(char, char)>,
        is_inclusive: bool,
    },
    /// `*`
    AnySequence,
    /// `**/`, or `**` at the end.
    AnyFolders,
}

impl KeyPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid pattern, with the reason.
    pub fn new(pattern: &str) -> Result<KeyPattern> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(Error::usage(format!(
                "`{}…` is a pattern of {} bytes, and {PATTERN_BYTES_MAX} are the most",
                message_excerpt(pattern),
                pattern.len()
            )));
        }
        glob::Pattern::new(pattern).map_err(|error| invalid_pattern_error(pattern, &error))?;
        let chars: Vec<char> = pattern.chars().collect();
        let (mut tokens, mut rest) = (Vec::new(), &chars[..]);
        while let [first, tail @ ..] = rest {
            // `glob` has checked that `**` is a whole component and that every `[` is closed.
            (tokens, rest) = match (first, tail) {
                ('?', _) => (push_token(tokens, PatternToken::AnyChar), tail),
                ('*', ['*', '/', tail @ ..] | ['*', tail @ ..]) => {
                    (push_token(tokens, PatternToken::AnyFolders), tail)
                }
                ('*', _) => (push_token(tokens, PatternToken::AnySequence), tail),
                ('[', _) => {
                    let is_within = tail.first() != Some(&'!');
                    let members = &tail[usize::from(!is_within)..];
                    // A leading `]` is a member of the class.
                    let end = members.iter().skip(1).position(|c| *c == ']');
                    let end = end.map_or(members.len(), |end| end + 1);
                    let ranges = parse_class_ranges(&members[..end]);
                    let behind = members.get(end + 1..).unwrap_or_default();
                    (
                        push_token(
                            tokens,
                            PatternToken::CharClass { ranges, is_inclusive: is_within },
                        ),
                        behind,
                    )
                }
                (other, _) => (push_token(tokens, PatternToken::Char(*other)), tail),
            };
        }
        Ok(KeyPattern(tokens))
    }

    /// Returns true if the pattern matches a key, or a folder's name without a `/` at its end.
    pub fn matches(&self, key: &str) -> bool {
        let KeyPattern(tokens) = self;
        // `now` holds the token positions that the characters read so far may have reached. `known` holds,
        // for each position, the number of the character after which it was last added.
        let (mut now, mut next) = (Vec::new(), Vec::new());
        let mut known = vec![0; tokens.len() + 1];
        let mut is_first = true;
        self.add_reachable(0, is_first, 1, &mut known, &mut now);
        for (at, c) in key.chars().enumerate() {
            let is_separator = c == '/';
            let is_hidden = is_first && c == '.';
            for place in now.drain(..) {
                let follows = match tokens.get(place) {
                    None => None,
                    Some(PatternToken::Char(own)) => (*own == c).then_some(place + 1),
                    Some(_) if is_hidden => None,
                    Some(PatternToken::AnyFolders) => Some(place),
                    Some(_) if is_separator => None,
                    Some(PatternToken::AnyChar) => Some(place + 1),
                    Some(PatternToken::CharClass { ranges, is_inclusive: is_within }) => {
                        let is_there = ranges.iter().any(|(from, to)| (*from..=*to).contains(&c));
                        (is_there == *is_within).then_some(place + 1)
                    }
                    Some(PatternToken::AnySequence) => Some(place),
                };
                if let Some(place) = follows {
                    self.add_reachable(place, is_separator, at + 2, &mut known, &mut next);
                }
            }
            std::mem::swap(&mut now, &mut next);
            is_first = is_separator;
            if now.is_empty() {
                return false;
            }
        }
        let is_free = |token: &PatternToken| {
            matches!(token, PatternToken::AnySequence | PatternToken::AnyFolders)
        };
        now.iter().any(|place| tokens[*place..].iter().all(is_free))
    }

    /// Adds a position, and the positions reachable from it by tokens that match the empty string.
    fn add_reachable(
        &self,
        place: usize,
        is_first: bool,
        count: usize,
        known: &mut [usize],
        found: &mut Vec<usize>,
    ) {
        let mut place = place;
        while known[place] != count {
            known[place] = count;
            found.push(place);
            match self.0.get(place) {
                Some(PatternToken::AnySequence) => place += 1,
                Some(PatternToken::AnyFolders) if is_first => place += 1,
                _ => return,
            }
        }
    }
}

fn push_token(mut tokens: Vec<PatternToken>, token: PatternToken) -> Vec<PatternToken> {
    tokens.push(token);
    tokens
}

/// Parses the members of a class, such as `a-cx`, as ranges of characters.
fn parse_class_ranges(members: &[char]) -> Vec<(char, char)> {
    let (mut found, mut rest) = (Vec::new(), members);
    while let [first, tail @ ..] = rest {
        let (last, behind) = match tail {
            ['-', last, behind @ ..] => (last, behind),
            _ => (first, tail),
        };
        found.push((*first, *last));
        rest = behind;
    }
    found
}

/// Returns the first 60 characters of a text, for messages.
fn message_excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

fn invalid_pattern_error(pattern: &str, error: &glob::PatternError) -> Error {
    Error::usage(format!("`{pattern}` is not a valid pattern: {error}"))
}

/// Returns true if a path or key without alternatives has wildcards.
pub fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Returns the literal characters before the first wildcard or brace of a pattern.
pub fn literal_prefix(pattern: &str) -> &str {
    &pattern[..pattern.find(['*', '?', '[', '{']).unwrap_or(pattern.len())]
}

/// Expands alternatives: `a{b,c}d` becomes `abd` and `acd`. Alternatives may be nested.
///
/// # Errors
/// [`Error::Usage`] for an unclosed brace, and for more than 100,000 alternatives, 64 MiB of them, or 256
/// braces.
pub fn expand_alternatives(pattern: &str) -> Result<Vec<String>> {
    if pattern.bytes().filter(|b| *b == b'{').count() > BRACES_MAX {
        let start = message_excerpt(pattern);
        return Err(Error::usage(format!("`{start}…` has more than {BRACES_MAX} braces")));
    }
    expand_braces(pattern)
}

/// Returns the number of alternatives in a pattern without spelling them out; 1 if a brace is never closed.
///
/// Cost: linear in the pattern.
pub fn count_alternatives(pattern: &str) -> usize {
    // For each open brace, the sum of the closed alternatives and the product within the current one.
    let (mut outer, mut sum, mut product) = (Vec::new(), 0usize, 1usize);
    for byte in pattern.bytes() {
        match byte {
            b'{' => {
                outer.push((sum, product));
                (sum, product) = (0, 1);
            }
            b',' if !outer.is_empty() => (sum, product) = (sum.saturating_add(product), 1),
            b'}' => {
                if let Some((outer_sum, outer_product)) = outer.pop() {
                    let count = sum.saturating_add(product);
                    (sum, product) = (outer_sum, count.saturating_mul(outer_product));
                }
            }
            _ => {}
        }
    }
    if outer.is_empty() { product } else { 1 }
}

fn expand_braces(pattern: &str) -> Result<Vec<String>> {
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
    let mut found: Vec<String> = Vec::new();
    let mut bytes = 0;
    let mut from = open + 1;
    for to in commas.into_iter().chain([close]) {
        let spelled =
            format!("{}{}{}", &pattern[..open], &pattern[from..to], &pattern[close + 1..]);
        for alternative in expand_braces(&spelled)? {
            bytes += alternative.len();
            found.push(alternative);
        }
        if found.len() > ALTERNATIVES_MAX || bytes > ALTERNATIVES_BYTES_MAX {
            let start = message_excerpt(pattern);
            return Err(Error::usage(format!("`{start}…` has too many alternatives")));
        }
        from = to + 1;
    }
    Ok(found)
}

/// Returns the local path or pattern in a path or `file://` URL.
///
/// # Errors
/// [`Error::Usage`] for an empty text, and for a `file://` URL of another host or whose bytes are not UTF-8.
pub fn local_path_from_url(url: &str) -> Result<String> {
    if url.is_empty() {
        return Err(Error::usage("the source's url is empty"));
    }
    if let Some(rest) = url.strip_prefix("file://") {
        let path = rest.strip_prefix("localhost").unwrap_or(rest);
        if !path.starts_with('/') {
            return Err(Error::usage_with_hint(
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

/// Expands `~/` to the home folder, as a shell does outside of quotes.
pub fn expand_home(path: String) -> String {
    match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) if !home.is_empty() && !Path::new(&path).exists() => {
            format!("{home}/{rest}")
        }
        _ => path,
    }
}

/// Returns the local files and folders that match a pattern without alternatives, in the order of their
/// names. Paths that lead through a symbolic link back into a parent folder appear once.
///
/// # Errors
/// [`Error::Usage`] for an invalid pattern and for a name that is not UTF-8; [`Error::Io`].
pub fn glob_on_disk(pattern: &str) -> Result<Vec<PathBuf>> {
    let mut found = glob::glob_with(pattern, MATCH_OPTIONS)
        .map_err(|error| invalid_pattern_error(pattern, &error))?;
    let mut loops = SymlinkLoops::default();
    // `glob` panics at a name that is not UTF-8 among those that it compares.
    let mut next = || {
        panics::catch_silently(|| found.next()).map_err(|_| {
            Error::usage_with_hint(
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
        if !(pattern.contains("**") && loops.is_inside_loop(&path)) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Folders whose path leads through a symbolic link into a parent folder, cached by path.
#[derive(Default)]
struct SymlinkLoops(HashMap<PathBuf, bool>);

impl SymlinkLoops {
    fn is_inside_loop(&mut self, path: &Path) -> bool {
        let Some(folder) = path.parent() else { return false };
        if let Some(known) = self.0.get(folder) {
            return *known;
        }
        let is_link = folder.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let is_loop = self.is_inside_loop(folder)
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
            assert_eq!(KeyPattern::new(pattern).unwrap().matches(key), expected, "{pattern} {key}");
        }
        assert!(KeyPattern::new("a**b").is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(20_000))]
        #[test]
        fn pattern_matches_the_same_names_as_glob(
            pattern in "([*?/.ab]|\\*\\*|\\*\\*/|/\\*\\*|\\[!?[ab./\\]*-]{1,4}\\]){0,7}",
            key in "[/.ab*-]{0,8}",
        ) {
            let expected = glob::Pattern::new(&pattern).ok();
            let found = KeyPattern::new(&pattern).ok();
            proptest::prop_assert_eq!(expected.is_some(), found.is_some());
            if let (Some(expected), Some(found)) = (expected, found) {
                proptest::prop_assert_eq!(found.matches(&key), expected.matches_with(&key, MATCH_OPTIONS));
            }
        }
    }

    #[test]
    fn pattern_with_many_wildcards_matches_in_linear_passes() {
        // `glob` would try more than 10^20 ways.
        let pattern = KeyPattern::new(&format!("**/{}b/x", "*a".repeat(40))).unwrap();
        assert!(!pattern.matches(&format!("{}/x", "a".repeat(500))));
        assert!(pattern.matches(&format!("c/{}b/x", "a".repeat(500))));
        // `glob` would recurse once for each `*`.
        let pattern = KeyPattern::new(&"*?".repeat(4000)).unwrap();
        assert!(pattern.matches(&"a".repeat(4000)));
        assert!(!pattern.matches(&"a".repeat(3999)));
        let error = KeyPattern::new(&"*?".repeat(5000)).unwrap_err().to_string();
        assert!(error.contains("8192 are the most"), "{error}");
    }

    #[test]
    fn alternatives_are_spelled_out() {
        assert_eq!(expand_alternatives("a{b,c{d,e}}f").unwrap(), ["abf", "acdf", "acef"]);
        assert!(expand_alternatives("a{b").is_err());
        assert!(expand_alternatives(&"{a,b,c,d,e,f,g,h,i,j}".repeat(6)).is_err());
        assert_eq!(
            expand_alternatives(&"{a}".repeat(BRACES_MAX)).unwrap(),
            ["a".repeat(BRACES_MAX)]
        );
    }

    #[test]
    fn alternatives_are_counted_as_they_are_spelled_out() {
        let check = |pattern: &str| {
            let spelled = expand_alternatives(pattern).map_or(1, |found| found.len());
            assert_eq!(count_alternatives(pattern), spelled, "{pattern}");
        };
        for pattern in [
            "",
            "a,b.csv",
            "a}b,c}",
            "{}",
            "{a}",
            "{a,b}",
            "{,}{,}x",
            "a{b,{c,d}e}f{g,h,i}",
            "{a,{b,c}{d,e},{f}}{,g}",
            "{a}},b}{c,d}",
            "{a,b",
            "{a,{b}",
            "{a,b}{c",
        ] {
            check(pattern);
        }
        check(&"{a,b}".repeat(12));
        assert_eq!(count_alternatives(&"{a,b}".repeat(1000)), usize::MAX);
    }

    #[test]
    fn too_many_alternatives_or_braces_are_refused() {
        // A recursive call for each brace would overflow the stack.
        for text in [
            "{".repeat(500_000) + &"}".repeat(500_000),
            "{a}".repeat(300_000),
            "{".repeat(1_000_000),
        ] {
            let error = expand_alternatives(&text).unwrap_err().to_string();
            assert!(error.contains("256 braces") && error.len() < 200, "{error}");
        }
        // 65,536 alternatives of a mebibyte each.
        let long = format!("{}{}", "x".repeat(1 << 20), "{a,b}".repeat(16));
        assert!(
            expand_alternatives(&long).unwrap_err().to_string().contains("too many alternatives")
        );
    }
}
