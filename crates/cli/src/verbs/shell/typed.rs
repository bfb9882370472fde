//! What has been typed: is it whole, and which statements are in it?

/// Where in a text one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    Nothing,
    /// In quotes that began there.
    Quotes {
        at: usize,
        quote: char,
    },
    LineComment,
    Comment,
}

/// The command that a word by itself is, as in other shells, whether a semicolon follows it or not.
pub(super) fn command(text: &str) -> Option<&'static str> {
    match text.trim().trim_end_matches(';').trim_end().to_ascii_lowercase().as_str() {
        "exit" | "quit" | "\\q" => Some("quit"),
        "help" | "\\?" | "?" => Some("help"),
        _ => None,
    }
}

/// The statements of a text, without the semicolons that end them; and the rest behind the last.
pub(super) fn statements(text: &str) -> (Vec<&str>, &str) {
    let mut found = Vec::new();
    let mut start = 0;
    walk(text, |at, c, within| {
        if c == ';' && within == Within::Nothing {
            found.push(&text[start..at]);
            start = at + 1;
        }
    });
    (found, &text[start..])
}

/// Where the end of a text is.
pub(super) fn within(text: &str) -> Within {
    walk(text, |_, _, _| {})
}

/// The texts of a statement that stand in single quotes, those that are not ended left out.
pub(super) fn quoted(text: &str) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let end = walk(text, |_, c, within| {
        if let Within::Quotes { at, quote: '\'' } = within {
            match found.last_mut() {
                Some((last, text)) if *last == at => text.push(c),
                _ => found.push((at, String::new())),
            }
        }
    });
    if let Within::Quotes { quote: '\'', .. } = end {
        found.pop();
    }
    let inner = |text: &str| text.strip_suffix('\'').unwrap_or(text).replace("''", "'");
    found.iter().map(|(_, text)| inner(text)).collect()
}

/// Calls `see` with each character, its place, and what it belongs to: quotes and the marks of comments to what they
/// begin and end. Returns what the end is in.
fn walk(text: &str, mut see: impl FnMut(usize, char, Within)) -> Within {
    let mut within = Within::Nothing;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let (of_this, then, is_pair) = match (within, c, next) {
            (Within::Nothing, '\'' | '"', _) => {
                let quotes = Within::Quotes { at, quote: c };
                (quotes, quotes, false)
            }
            (Within::Nothing, '-', Some('-')) => (Within::LineComment, Within::LineComment, true),
            (Within::Nothing, '/', Some('*')) => (Within::Comment, Within::Comment, true),
            // A quote that is written twice is one of the text.
            (Within::Quotes { quote, .. }, c, Some(next)) if c == quote && next == quote => {
                (within, within, true)
            }
            (Within::Quotes { quote, .. }, c, _) if c == quote => (within, Within::Nothing, false),
            (Within::LineComment, '\n', _) => (within, Within::Nothing, false),
            (Within::Comment, '*', Some('/')) => (within, Within::Nothing, true),
            (same, _, _) => (same, same, false),
        };
        see(at, c, of_this);
        if let (true, Some((at, c))) = (is_pair, characters.peek().copied()) {
            characters.next();
            see(at, c, of_this);
        }
        within = then;
    }
    within
}

/// Whether there is nothing but blanks and comments.
pub(super) fn is_blank(text: &str) -> bool {
    let mut is_blank = true;
    walk(text, |_, c, within| {
        is_blank &= match within {
            Within::LineComment | Within::Comment => true,
            Within::Quotes { .. } => false,
            Within::Nothing => c.is_whitespace(),
        };
    });
    is_blank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_where_its_semicolon_is_no_text() {
        for (text, expected, rest) in [
            ("", &[][..], ""),
            ("SELECT 1", &[], "SELECT 1"),
            ("SELECT 1;", &["SELECT 1"], ""),
            ("SELECT 1; SELECT 2 ;  ", &["SELECT 1", " SELECT 2 "], "  "),
            ("SELECT ';'", &[], "SELECT ';'"),
            ("SELECT 'it''s; so';", &["SELECT 'it''s; so'"], ""),
            ("SELECT \"a;b\";x", &["SELECT \"a;b\""], "x"),
            ("SELECT 1 -- one;\n;", &["SELECT 1 -- one;\n"], ""),
            ("SELECT /* ; */ 1;", &["SELECT /* ; */ 1"], ""),
            ("SELECT /*/ ; */ 1;", &["SELECT /*/ ; */ 1"], ""),
            ("SELECT 4 - 2 / 1;", &["SELECT 4 - 2 / 1"], ""),
            ("SELECT '--;", &[], "SELECT '--;"),
            ("日本;語", &["日本"], "語"),
        ] {
            assert_eq!(statements(text), (expected.to_vec(), rest), "{text}");
        }
    }

    #[test]
    fn the_end_of_a_text_is_within_quotes_or_not() {
        for (text, expected) in [
            ("SELECT ", Within::Nothing),
            ("FROM 'log", Within::Quotes { at: 5, quote: '\'' }),
            ("FROM 'log' WHERE \"a", Within::Quotes { at: 17, quote: '"' }),
            ("FROM 'it''", Within::Quotes { at: 5, quote: '\'' }),
            ("FROM 'it''s'", Within::Nothing),
            ("-- it's", Within::LineComment),
            ("/* it's", Within::Comment),
            ("/* it's */ '", Within::Quotes { at: 11, quote: '\'' }),
        ] {
            assert_eq!(within(text), expected, "{text}");
        }
    }

    #[test]
    fn quoted_texts_are_found() {
        for (text, expected) in [
            ("SELECT 1", &[][..]),
            ("FROM 'a.csv' JOIN 'b.csv' ON \"c\"", &["a.csv", "b.csv"]),
            ("FROM 'a.csv' WHERE x = 'beg", &["a.csv"]),
            ("-- 'no'\nFROM ''", &[""]),
            ("FROM 'it''s.csv', 'a'''", &["it's.csv", "a'"]),
        ] {
            assert_eq!(quoted(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_are_no_statement() {
        for (text, expected) in [
            ("", true),
            (" \n", true),
            ("-- a\n /* b; */ ", true),
            ("-", false),
            ("''", false),
            ("-- a\nb", false),
        ] {
            assert_eq!(is_blank(text), expected, "{text}");
        }
    }
}
