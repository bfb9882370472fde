//! Completes SQL words, functions, columns of the files in a statement, and files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};
use tidemill_engine::ResultCache;
use tidemill_engine::query::statements::completion_words;
use tidemill_engine::source::{Source, SourceSpec};

use super::statement_scanner::{self, LexicalContext};
use super::{LAST_RESULT_NAME, SHELL_COMMANDS};

/// Maximum number of files of a folder that completion inspects.
const INSPECTED_FILES_MAX: usize = 10_000;

/// The line editor's helper: completion and detection of complete input.
pub(super) struct ShellEditorHelper {
    functions: Vec<String>,
    /// Columns of files by the files' names; empty if the file cannot be read.
    columns_by_file: RefCell<HashMap<String, Vec<String>>>,
    last_result_columns: Vec<String>,
    /// The files of the last statement, whose columns are likely to be used again.
    recent_files: Vec<String>,
}

impl ShellEditorHelper {
    pub(super) fn new() -> Self {
        ShellEditorHelper {
            // An error only means fewer completions.
            functions: completion_words::function_names().unwrap_or_default(),
            columns_by_file: RefCell::default(),
            last_result_columns: Vec::new(),
            recent_files: Vec::new(),
        }
    }

    /// Records the last input and its result.
    pub(super) fn record_input(&mut self, text: &str, last: Option<&ResultCache>) {
        let named = statement_scanner::single_quoted_texts(text);
        if !named.is_empty() {
            self.recent_files = named;
        }
        self.last_result_columns = last.map_or_else(Vec::new, |kept| {
            kept.schema().fields().iter().map(|field| field.name().clone()).collect()
        });
    }

    /// Returns the columns that a statement may use.
    fn usable_columns(&self, line: &str) -> Vec<String> {
        let mut named = statement_scanner::single_quoted_texts(line);
        let speaks_of_last = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == LAST_RESULT_NAME);
        if named.is_empty() && !speaks_of_last {
            named.clone_from(&self.recent_files);
        }
        let mut known = self.columns_by_file.borrow_mut();
        let mut columns =
            if speaks_of_last { self.last_result_columns.clone() } else { Vec::new() };
        for name in named {
            let of_file = known.entry(name.clone()).or_insert_with(|| columns_of_file(&name));
            columns.extend(of_file.iter().cloned());
        }
        columns
    }

    fn completions(&self, line: &str, position: usize) -> (usize, Vec<Pair>) {
        let before = line.get(..position).unwrap_or(line);
        if let Some(command) = before.strip_prefix('.') {
            return match command.split_once(' ') {
                None => (0, command_completions(before)),
                Some((_, rest)) => {
                    let rest = rest.trim_start();
                    (position - rest.len(), file_completions(rest, ""))
                }
            };
        }
        match statement_scanner::context_at_end(before) {
            LexicalContext::Quotes { start: at, quote: '\'' } => {
                (at + 1, file_completions(&before[at + 1..], "'"))
            }
            LexicalContext::Quotes { start: at, .. } => {
                let begun = &before[at + 1..];
                let fits = |name: &String| has_prefix_ignoring_case(name, begun);
                let names = self.usable_columns(line).into_iter().filter(fits);
                (
                    at + 1,
                    names
                        .map(|name| {
                            completion_pair(&name, format!("{}\"", double_quotes_in(&name, '"')))
                        })
                        .collect(),
                )
            }
            LexicalContext::LineComment | LexicalContext::BlockComment => (position, Vec::new()),
            LexicalContext::PlainSql => {
                let start = before
                    .char_indices()
                    .rev()
                    .take_while(|(_, c)| c.is_alphanumeric() || *c == '_')
                    .last()
                    .map_or(position, |(at, _)| at);
                (start, self.word_completions(line, &before[start..]))
            }
        }
    }

    /// Returns the SQL words, functions and columns that begin with `begun`.
    fn word_completions(&self, line: &str, begun: &str) -> Vec<Pair> {
        let mut found: Vec<Pair> = Vec::new();
        let mut columns = self.usable_columns(line);
        columns.sort();
        columns.dedup();
        for name in columns.iter().filter(|name| has_prefix_ignoring_case(name, begun)) {
            let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
                && !completion_words::SQL_KEYWORDS.contains(&name.to_ascii_uppercase().as_str());
            let written = match is_plain {
                true => name.clone(),
                false => format!("\"{}\"", double_quotes_in(name, '"')),
            };
            found.push(completion_pair(name, written));
        }
        // Without a prefix there are too many to be useful.
        if begun.is_empty() {
            return found;
        }
        let is_small = begun.chars().all(|c| !c.is_uppercase());
        for word in completion_words::SQL_KEYWORDS
            .iter()
            .filter(|word| has_prefix_ignoring_case(word, begun))
        {
            let word = if is_small { word.to_lowercase() } else { (*word).to_owned() };
            found.push(completion_pair(&word, word.clone()));
        }
        for name in self.functions.iter().filter(|name| has_prefix_ignoring_case(name, begun)) {
            found.push(completion_pair(name, format!("{name}(")));
        }
        found
    }
}

fn has_prefix_ignoring_case(word: &str, begun: &str) -> bool {
    let mut letters = word.chars().flat_map(char::to_lowercase);
    begun.chars().flat_map(char::to_lowercase).all(|c| letters.next() == Some(c))
}

fn double_quotes_in(text: &str, quote: char) -> String {
    text.replace(quote, &format!("{quote}{quote}"))
}

fn completion_pair(display: &str, replacement: String) -> Pair {
    Pair { display: display.to_owned(), replacement }
}

fn command_completions(begun: &str) -> Vec<Pair> {
    let names = SHELL_COMMANDS.iter().filter_map(|(command, _)| command.split(' ').next());
    let fitting = names.filter(|name| name.starts_with(begun));
    fitting.map(|name| completion_pair(name, name.to_owned())).collect()
}

/// Completes a path; `end` follows the name of a file.
fn file_completions(begun: &str, end: &str) -> Vec<Pair> {
    let (folder, name) = match begun.rsplit_once('/') {
        Some((folder, name)) => (format!("{folder}/"), name),
        None => (String::new(), begun),
    };
    let Ok(entries) = std::fs::read_dir(if folder.is_empty() { "." } else { &folder }) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.take(INSPECTED_FILES_MAX).flatten() {
        let other = entry.file_name().to_string_lossy().into_owned();
        let is_hidden = other.starts_with('.') && !name.starts_with('.');
        if is_hidden || !other.starts_with(name) {
            continue;
        }
        let is_folder = std::fs::metadata(entry.path()).is_ok_and(|known| known.is_dir());
        let (other, end) = if is_folder { (format!("{other}/"), "") } else { (other, end) };
        let quoted = if end.is_empty() { other.clone() } else { double_quotes_in(&other, '\'') };
        found.push(completion_pair(&other, format!("{folder}{quoted}{end}")));
    }
    found.sort_by(|one, two| one.display.cmp(&two.display));
    found
}

/// Returns the columns of a local file, or of the first file that a pattern matches.
fn columns_of_file(name: &str) -> Vec<String> {
    let is_here = !name.contains("://") && (Path::new(name).is_file() || name.contains(['*', '?']));
    if !is_here {
        return Vec::new();
    }
    let spec = SourceSpec {
        url: name.to_owned(),
        layout_policy: "same".parse().ok(),
        ..SourceSpec::default()
    };
    let Ok(source) = Source::open(&spec) else { return Vec::new() };
    let own = source.schema().fields().iter().map(|field| field.name().clone());
    // Of the hidden columns, only those with Tidemill's own names; the others belong to other databases.
    let hidden = source.hidden_columns().iter().map(|field| field.name().clone());
    own.chain(hidden.filter(|name| name.starts_with("file"))).collect()
}

impl Completer for ShellEditorHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(self.completions(line, position))
    }
}

impl Validator for ShellEditorHelper {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        let is_whole = text.trim_start().starts_with('.')
            || statement_scanner::is_blank(text)
            || statement_scanner::bare_word_command(text).is_some()
            || statement_scanner::is_blank(statement_scanner::split_statements(text).1);
        Ok(if is_whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Hinter for ShellEditorHelper {
    type Hint = String;
}

impl Highlighter for ShellEditorHelper {}

impl Helper for ShellEditorHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper_with_columns() -> ShellEditorHelper {
        let typing = ShellEditorHelper {
            functions: vec!["substr".to_owned(), "sum".to_owned()],
            columns_by_file: RefCell::default(),
            last_result_columns: vec!["day".to_owned()],
            recent_files: Vec::new(),
        };
        let columns = ["state", "Sub total", "sales"].map(str::to_owned).to_vec();
        typing.columns_by_file.borrow_mut().insert("a.csv".to_owned(), columns);
        typing
    }

    #[test]
    fn completions_fit_the_lexical_context() {
        for (line, start, expected) in [
            ("SELECT su", 7, &["substr(", "sum("][..]),
            ("SELECT su|FROM 'a.csv'", 7, &["\"Sub total\"", "substr(", "sum("]),
            ("SELECT | FROM 'a.csv'", 7, &["\"Sub total\"", "sales", "state"]),
            (
                "SELECT sum(s|) FROM 'a.csv'",
                11,
                &["\"Sub total\"", "sales", "state", "select", "substr(", "sum("],
            ),
            ("SELECT \"Su| FROM 'a.csv'", 8, &[]),
            ("SELECT d| FROM _", 7, &["day", "desc", "distinct"]),
            ("sel", 0, &["select"]),
            ("SEL", 0, &["SELECT"]),
            ("-- sel", 6, &[]),
            (".sc", 0, &[".schema"]),
        ] {
            let position = line.find('|').unwrap_or(line.len());
            let (from, found) =
                helper_with_columns().completions(&line.replace('|', " "), position);
            let found: Vec<&str> = found.iter().map(|pair| pair.replacement.as_str()).collect();
            assert_eq!((from, found.as_slice()), (start, expected), "{line}");
        }
    }

    #[test]
    fn files_and_their_columns_are_completed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["it's.csv", "items.json", ".hidden"] {
            std::fs::write(folder.path().join(name), "a\n1\n").unwrap();
        }
        std::fs::create_dir(folder.path().join("items")).unwrap();
        let root = folder.path().display();
        for (begun, end, expected) in [
            ("it", "'", &["it''s.csv'", "items.json'", "items/"][..]),
            ("it", "", &["it's.csv", "items.json", "items/"]),
            ("items.", "'", &["items.json'"]),
            (".", "'", &[".hidden'"]),
            ("no", "'", &[]),
        ] {
            let found = file_completions(&format!("{root}/{begun}"), end);
            let mut found: Vec<_> = found.into_iter().map(|pair| pair.replacement).collect();
            found.sort();
            let mut expected: Vec<_> =
                expected.iter().map(|name| format!("{root}/{name}")).collect();
            expected.sort();
            assert_eq!(found, expected, "{begun}");
        }
        let columns = columns_of_file(&folder.path().join("it's.csv").display().to_string());
        assert_eq!(columns, ["a", "filename", "file_row_number"]);
        assert!(columns_of_file("s3://bucket/a.csv").is_empty());
    }
}
