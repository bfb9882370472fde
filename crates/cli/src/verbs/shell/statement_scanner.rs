//! Scans shell input: splits it into statements, and finds quotes and comments.

/// The lexical context of a position in SQL text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LexicalContext {
    PlainSql,
    /// Inside quotes that opened at this byte offset.
    Quotes {
        start: usize,
        quote: char,
    },
    LineComment,
    BlockComment,
}

/// Returns the command that a bare word means, as in other shells, with or without a semicolon.
pub(super) fn bare_word_command(text: &str) -> Option<&'static str> {
    match text.trim().trim_end_matches(';').trim_end().to_ascii_lowercase().as_str() {
        "exit" | "quit" | "\\q" => Some("quit"),
        "help" | "\\?" | "?" => Some("help"),
        _ => None,
    }
}

/// Splits a text into statements, without their semicolons, and the rest after the last semicolon.
pub(super) fn split_statements(text: &str) -> (Vec<&str>, &str) {
    let mut found = Vec::new();
    let mut start = 0;
    scan_characters(text, |at, c, within| {
        if c == ';' && within == LexicalContext::PlainSql {
            found.push(&text[start..at]);
            start = at + 1;
        }
    });
    (found, &text[start..])
}

/// Returns the lexical context at the end of a text.
pub(super) fn context_at_end(text: &str) -> LexicalContext {
    scan_characters(text, |_, _, _| {})
}

/// Returns the texts in single quotes, except for an unterminated one.
pub(super) fn single_quoted_texts(text: &str) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let end = scan_characters(text, |_, c, within| {
        if let LexicalContext::Quotes { start: at, quote: '\'' } = within {
            match found.last_mut() {
                Some((last, text)) if *last == at => text.push(c),
                _ => found.push((at, String::new())),
            }
        }
    });
    if let LexicalContext::Quotes { quote: '\'', .. } = end {
        found.pop();
    }
    let inner = |text: &str| text.strip_suffix('\'').unwrap_or(text).replace("''", "'");
    found.iter().map(|(_, text)| inner(text)).collect()
}

/// Calls `see` with each character, its offset and its context. Quotes and comment marks belong to the
/// context that they open or close. Returns the context at the end.
fn scan_characters(text: &str, mut see: impl FnMut(usize, char, LexicalContext)) -> LexicalContext {
    let mut within = LexicalContext::PlainSql;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let (of_this, then, is_pair) = match (within, c, next) {
            (LexicalContext::PlainSql, '\'' | '"', _) => {
                let quotes = LexicalContext::Quotes { start: at, quote: c };
                (quotes, quotes, false)
            }
            (LexicalContext::PlainSql, '-', Some('-')) => {
                (LexicalContext::LineComment, LexicalContext::LineComment, true)
            }
            (LexicalContext::PlainSql, '/', Some('*')) => {
                (LexicalContext::BlockComment, LexicalContext::BlockComment, true)
            }
            // A doubled quote is one quote character of the text.
            (LexicalContext::Quotes { quote, .. }, c, Some(next))
                if c == quote && next == quote =>
            {
                (within, within, true)
            }
            (LexicalContext::Quotes { quote, .. }, c, _) if c == quote => {
                (within, LexicalContext::PlainSql, false)
            }
            (LexicalContext::LineComment, '\n', _) => (within, LexicalContext::PlainSql, false),
            (LexicalContext::BlockComment, '*', Some('/')) => {
                (within, LexicalContext::PlainSql, true)
            }
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

/// Returns true if a text has only whitespace and comments.
pub(super) fn is_blank(text: &str) -> bool {
    let mut is_blank = true;
    scan_characters(text, |_, c, within| {
        is_blank &= match within {
            LexicalContext::LineComment | LexicalContext::BlockComment => true,
            LexicalContext::Quotes { .. } => false,
            LexicalContext::PlainSql => c.is_whitespace(),
        };
    });
    is_blank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_quotes_and_comments_end_no_statement() {
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
            assert_eq!(split_statements(text), (expected.to_vec(), rest), "{text}");
        }
    }

    #[test]
    fn context_at_end_finds_open_quotes_and_comments() {
        for (text, expected) in [
            ("SELECT ", LexicalContext::PlainSql),
            ("FROM 'log", LexicalContext::Quotes { start: 5, quote: '\'' }),
            ("FROM 'log' WHERE \"a", LexicalContext::Quotes { start: 17, quote: '"' }),
            ("FROM 'it''", LexicalContext::Quotes { start: 5, quote: '\'' }),
            ("FROM 'it''s'", LexicalContext::PlainSql),
            ("-- it's", LexicalContext::LineComment),
            ("/* it's", LexicalContext::BlockComment),
            ("/* it's */ '", LexicalContext::Quotes { start: 11, quote: '\'' }),
        ] {
            assert_eq!(context_at_end(text), expected, "{text}");
        }
    }

    #[test]
    fn single_quoted_texts_are_found() {
        for (text, expected) in [
            ("SELECT 1", &[][..]),
            ("FROM 'a.csv' JOIN 'b.csv' ON \"c\"", &["a.csv", "b.csv"]),
            ("FROM 'a.csv' WHERE x = 'beg", &["a.csv"]),
            ("-- 'no'\nFROM ''", &[""]),
            ("FROM 'it''s.csv', 'a'''", &["it's.csv", "a'"]),
        ] {
            assert_eq!(single_quoted_texts(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_and_whitespace_are_blank() {
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
