//! Paths into JSON, as DuckDB, PostgreSQL, Spark and MySQL write them.
//!
//! | written | |
//! | --- | --- |
//! | `$.a.b[0]`, `$."a b"`, `$['a b']`, `$.a[-1]`, `$.a[#-1]` | from the root, by keys and numbers from 0, or from the end |
//! | `$.a.*`, `$.a[*]` | all members, all items: the result is a list |
//! | `/a/b/0` | a JSON pointer (RFC 6901) |
//! | `a.b` | one key, taken literally |

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    /// A member of an object.
    Key(String),
    /// An item of an array, from the end if negative.
    Index(i64),
    /// A member of an object, or an item of an array if the key is a number.
    KeyOrIndex(String, Option<usize>),
    /// All members of an object.
    AllMembers,
    /// All items of an array.
    AllItems,
}

/// A path: the steps from the root to a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct JsonPath {
    steps: Vec<PathStep>,
}

/// A syntax error in a path; the offset counts the characters before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathSyntaxError {
    pub(super) offset: usize,
    pub(super) message: &'static str,
}

impl JsonPath {
    /// Creates a path of steps.
    pub(super) fn from_steps(steps: Vec<PathStep>) -> Self {
        JsonPath { steps }
    }

    /// Parses a path.
    pub(super) fn parse(text: &str) -> Result<Self, PathSyntaxError> {
        if let Some(rest) = text.strip_prefix('$') {
            return parse_dollar_path(text, rest);
        }
        if let Some(rest) = text.strip_prefix('/') {
            let step = |name: &str| parse_key_or_index(&name.replace("~1", "/").replace("~0", "~"));
            return Ok(JsonPath { steps: rest.split('/').map(step).collect() });
        }
        Ok(match text {
            "" => JsonPath::default(),
            key => JsonPath { steps: vec![PathStep::Key(key.to_owned())] },
        })
    }

    pub(super) fn steps(&self) -> &[PathStep] {
        &self.steps
    }

    /// Returns whether the path may lead to several values.
    pub(super) fn has_wildcards(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, PathStep::AllMembers | PathStep::AllItems))
    }
}

/// Parses a key, and its number if it is one.
pub(super) fn parse_key_or_index(name: &str) -> PathStep {
    let is_number =
        name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    PathStep::KeyOrIndex(name.to_owned(), name.parse().ok().filter(|_| is_number))
}

fn parse_dollar_path(text: &str, mut rest: &str) -> Result<JsonPath, PathSyntaxError> {
    let mut steps = Vec::new();
    let wrong = |rest: &str, what| {
        let before = text.get(..text.len() - rest.len()).unwrap_or_default();
        Err(PathSyntaxError { offset: before.chars().count(), message: what })
    };
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('.') {
            if behind.starts_with('.') {
                return wrong(behind, "one dot stands before a key: `..` is not supported");
            }
            if let Some(inner) = behind.strip_prefix('"') {
                let Some((key, more)) = parse_quoted_key(inner, '"') else {
                    return wrong(behind, "a key in double quotes does not end");
                };
                steps.push(PathStep::Key(key));
                rest = more;
                continue;
            }
            let end = behind.find(['.', '[']).unwrap_or(behind.len());
            let (key, more) = behind.split_at(end);
            match key {
                "" => return wrong(behind, "a key follows a dot"),
                "*" => steps.push(PathStep::AllMembers),
                key => steps.push(PathStep::Key(key.to_owned())),
            }
            rest = more;
        } else if let Some(behind) = rest.strip_prefix('[') {
            if let Some(quote) = behind.chars().next().filter(|first| ['\'', '"'].contains(first)) {
                let inner = behind.get(1..).unwrap_or_default();
                let ends = parse_quoted_key(inner, quote)
                    .and_then(|(key, more)| Some((key, more.strip_prefix(']')?)));
                let Some((key, more)) = ends else {
                    return wrong(rest, "a key in brackets does not end");
                };
                steps.push(PathStep::Key(key));
                rest = more;
                continue;
            }
            let Some((inner, more)) = behind.split_once(']') else {
                return wrong(rest, "a bracket is not closed");
            };
            let number = inner.strip_prefix('#').filter(|number| number.starts_with('-'));
            match number.unwrap_or(inner).parse() {
                _ if inner == "*" => steps.push(PathStep::AllItems),
                Ok(index) => steps.push(PathStep::Index(index)),
                Err(_) => {
                    return wrong(behind, "in brackets stands a number, a * or a key in quotes");
                }
            }
            rest = more;
        } else {
            return wrong(rest, "a dot or a bracket follows");
        }
    }
    Ok(JsonPath { steps })
}

/// Parses a key up to its closing quote. Returns the key and the rest.
fn parse_quoted_key(inner: &str, quote: char) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut letters = inner.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => key.push(letters.next()?.1),
            _ if letter == quote => return Some((key, inner.get(at + 1..)?)),
            _ => key.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_parse_to_steps() {
        let key = |name: &str| PathStep::Key(name.into());
        for (text, expected) in [
            ("", vec![]),
            ("$", vec![]),
            ("a", vec![key("a")]),
            ("a.b", vec![key("a.b")]),
            ("$.a.b[0]", vec![key("a"), key("b"), PathStep::Index(0)]),
            ("$[0][-1][#-2]", vec![PathStep::Index(0), PathStep::Index(-1), PathStep::Index(-2)]),
            ("$.\"a.b\".c", vec![key("a.b"), key("c")]),
            ("$.\"a\\\"b\"", vec![key("a\"b")]),
            ("$['a.b'][\"c\"]", vec![key("a.b"), key("c")]),
            ("$.a b", vec![key("a b")]),
            ("$.a.*", vec![key("a"), PathStep::AllMembers]),
            ("$[*].a", vec![PathStep::AllItems, key("a")]),
            (
                "/a~1b/0/~0/01",
                vec![
                    PathStep::KeyOrIndex("a/b".into(), None),
                    PathStep::KeyOrIndex("0".into(), Some(0)),
                    PathStep::KeyOrIndex("~".into(), None),
                    PathStep::KeyOrIndex("01".into(), None),
                ],
            ),
            ("*", vec![key("*")]),
        ] {
            assert_eq!(JsonPath::parse(text).map(|path| path.steps), Ok(expected), "{text}");
        }
    }

    #[test]
    fn path_syntax_errors_state_their_position() {
        for (text, at, what) in [
            ("$.", 2, "a key follows a dot"),
            ("$a", 1, "a dot or a bracket follows"),
            ("$.a[", 3, "a bracket is not closed"),
            ("$.a[x]", 4, "in brackets stands a number, a * or a key in quotes"),
            ("$..a", 2, "one dot stands before a key: `..` is not supported"),
            ("$.\"a", 2, "a key in double quotes does not end"),
            ("$['a", 1, "a key in brackets does not end"),
            ("$.ä[", 3, "a bracket is not closed"),
            ("$[0]a", 4, "a dot or a bracket follows"),
        ] {
            assert_eq!(
                JsonPath::parse(text),
                Err(PathSyntaxError { offset: at, message: what }),
                "{text}"
            );
        }
    }
}
