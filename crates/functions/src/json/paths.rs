//! Paths into JSON, as DuckDB, PostgreSQL, Spark and MySQL write them.
//!
//! | written | |
//! | --- | --- |
//! | `$.a.b[0]`, `$."a b"`, `$['a b']`, `$.a[-1]`, `$.a[#-1]` | from the whole, by keys and numbers from 0; from the end |
//! | `$.a.*`, `$.a[*]` | all members, all items: an answer is a list |
//! | `/a/b/0` | a JSON pointer (RFC 6901) |
//! | `a.b` | a key, as it stands |

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The member of an object.
    Key(String),
    /// The item of an array, from the end where it is negative.
    Index(i64),
    /// The member of an object, or the item of an array if it is a number.
    Either(String, Option<usize>),
    /// All members of an object.
    AllMembers,
    /// All items of an array.
    AllItems,
}

/// A path: the steps from the whole to a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Path {
    steps: Vec<Step>,
}

/// Why a path is not understood: what, behind so many letters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

impl Path {
    /// A path of these steps.
    pub(super) fn of(steps: Vec<Step>) -> Self {
        Path { steps }
    }

    /// A path as it is written.
    pub(super) fn read(text: &str) -> Result<Self, Wrong> {
        if let Some(rest) = text.strip_prefix('$') {
            return from_whole(text, rest);
        }
        if let Some(rest) = text.strip_prefix('/') {
            let step = |name: &str| either(&name.replace("~1", "/").replace("~0", "~"));
            return Ok(Path { steps: rest.split('/').map(step).collect() });
        }
        Ok(match text {
            "" => Path::default(),
            key => Path { steps: vec![Step::Key(key.to_owned())] },
        })
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether it may lead to several values.
    pub(super) fn has_stars(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::AllMembers | Step::AllItems))
    }
}

/// A key, and the number of an item if it is one.
pub(super) fn either(name: &str) -> Step {
    let is_number =
        name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    Step::Either(name.to_owned(), name.parse().ok().filter(|_| is_number))
}

fn from_whole(text: &str, mut rest: &str) -> Result<Path, Wrong> {
    let mut steps = Vec::new();
    let wrong = |rest: &str, what| {
        let before = text.get(..text.len() - rest.len()).unwrap_or_default();
        Err(Wrong { at: before.chars().count(), what })
    };
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix('.') {
            if behind.starts_with('.') {
                return wrong(behind, "one dot stands before a key: `..` is not supported");
            }
            if let Some(inner) = behind.strip_prefix('"') {
                let Some((key, more)) = quoted(inner, '"') else {
                    return wrong(behind, "a key in double quotes does not end");
                };
                steps.push(Step::Key(key));
                rest = more;
                continue;
            }
            let end = behind.find(['.', '[']).unwrap_or(behind.len());
            let (key, more) = behind.split_at(end);
            match key {
                "" => return wrong(behind, "a key follows a dot"),
                "*" => steps.push(Step::AllMembers),
                key => steps.push(Step::Key(key.to_owned())),
            }
            rest = more;
        } else if let Some(behind) = rest.strip_prefix('[') {
            if let Some(quote) = behind.chars().next().filter(|first| ['\'', '"'].contains(first)) {
                let inner = behind.get(1..).unwrap_or_default();
                let ends = quoted(inner, quote)
                    .and_then(|(key, more)| Some((key, more.strip_prefix(']')?)));
                let Some((key, more)) = ends else {
                    return wrong(rest, "a key in brackets does not end");
                };
                steps.push(Step::Key(key));
                rest = more;
                continue;
            }
            let Some((inner, more)) = behind.split_once(']') else {
                return wrong(rest, "a bracket is not closed");
            };
            let number = inner.strip_prefix('#').filter(|number| number.starts_with('-'));
            match number.unwrap_or(inner).parse() {
                _ if inner == "*" => steps.push(Step::AllItems),
                Ok(index) => steps.push(Step::Index(index)),
                Err(_) => {
                    return wrong(behind, "in brackets stands a number, a * or a key in quotes");
                }
            }
            rest = more;
        } else {
            return wrong(rest, "a dot or a bracket follows");
        }
    }
    Ok(Path { steps })
}

/// A key up to its closing quote, and the rest.
fn quoted(inner: &str, quote: char) -> Option<(String, &str)> {
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
    fn paths_are_read() {
        let key = |name: &str| Step::Key(name.into());
        for (text, expected) in [
            ("", vec![]),
            ("$", vec![]),
            ("a", vec![key("a")]),
            ("a.b", vec![key("a.b")]),
            ("$.a.b[0]", vec![key("a"), key("b"), Step::Index(0)]),
            ("$[0][-1][#-2]", vec![Step::Index(0), Step::Index(-1), Step::Index(-2)]),
            ("$.\"a.b\".c", vec![key("a.b"), key("c")]),
            ("$.\"a\\\"b\"", vec![key("a\"b")]),
            ("$['a.b'][\"c\"]", vec![key("a.b"), key("c")]),
            ("$.a b", vec![key("a b")]),
            ("$.a.*", vec![key("a"), Step::AllMembers]),
            ("$[*].a", vec![Step::AllItems, key("a")]),
            (
                "/a~1b/0/~0/01",
                vec![
                    Step::Either("a/b".into(), None),
                    Step::Either("0".into(), Some(0)),
                    Step::Either("~".into(), None),
                    Step::Either("01".into(), None),
                ],
            ),
            ("*", vec![key("*")]),
        ] {
            assert_eq!(Path::read(text).map(|path| path.steps), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_path_is_told_with_its_place() {
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
            assert_eq!(Path::read(text), Err(Wrong { at, what }), "{text}");
        }
    }
}
