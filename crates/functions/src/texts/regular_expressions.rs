//! Regular expressions as in DuckDB: `regexp_extract` and related functions.
//!
//! Each thread keeps a few compiled expressions in a cache, by pattern and options. The planner reports a
//! faulty constant pattern with the position of the fault.

use std::cell::RefCell;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;
use regex::{CaptureLocations, Match, Regex, RegexBuilder};

use super::TEXT_SECTION;
use crate::closure_function::{
    ArgumentKind, CallBatch, ClosureFunction, IntegerOperand, PlannedCall, TextOperand,
    excerpt_for_message, list_type, usage_error,
};

const TEXT_ARGUMENT: ArgumentKind = ArgumentKind::Text;

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    vec![
        ClosureFunction::new(
            TEXT_SECTION,
            &[
                "regexp_extract(text, pattern)",
                "regexp_extract(text, pattern, group)",
                "regexp_extract(text, pattern, group, options)",
                "regexp_extract(text, pattern, names, options)",
            ],
            "The first part of a text that matches a regular expression, or a group of it; an empty text where \
             nothing matches, or the text itself with the option k. A list of names gives a struct of the first groups.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT, ArgumentKind::RegexGroup, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| check_constant_arguments(asked, Some(2), 3, DataType::Utf8View))
        .into_udf(|call| extract_first_match(call, Some(""))),
        ClosureFunction::new(
            TEXT_SECTION,
            &["regexp_substr(text, pattern)"],
            "The first part of a text that matches a regular expression; null where nothing matches.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| check_constant_arguments(asked, None, 2, DataType::Utf8View))
        .into_udf(|call| extract_first_match(call, None)),
        ClosureFunction::new(
            TEXT_SECTION,
            &[
                "regexp_extract_all(text, pattern)",
                "regexp_extract_all(text, pattern, group)",
                "regexp_extract_all(text, pattern, group, options)",
                "regexp_extract_all(text, pattern, names, options)",
            ],
            "All parts of a text that match a regular expression, or a group of each, as a list; a list of names gives \
             a struct of the first groups of each. An empty match counts behind another one, too.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT, ArgumentKind::RegexGroup, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| check_constant_arguments(asked, Some(2), 3, list_type(DataType::Utf8View)))
        .into_udf(|call| extract_all_matches(call, false)),
        ClosureFunction::new(
            TEXT_SECTION,
            &["extractall(text, pattern)"],
            "All parts of a text that match a regular expression, of each its first group if there is one, as a list.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| check_constant_arguments(asked, None, 2, list_type(DataType::Utf8View)))
        .into_udf(|call| extract_all_matches(call, true)),
        ClosureFunction::new(
            TEXT_SECTION,
            &["regexp_matches(text, pattern)", "regexp_matches(text, pattern, options)"],
            "Whether a regular expression matches somewhere in a text.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| check_constant_arguments(asked, None, 2, DataType::Boolean))
        .into_udf(|call| test_matches(call, false)),
        ClosureFunction::new(
            TEXT_SECTION,
            &["regexp_match(text, pattern)", "regexp_match(text, pattern, options)"],
            "The groups of the first part of a text that matches a regular expression, as a list, or that part where \
             the expression has none; a group that takes no part in it is null, as is all where nothing matches.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| check_constant_arguments(asked, None, 2, list_type(DataType::Utf8View)))
        .into_udf(first_match_groups),
        ClosureFunction::new(
            TEXT_SECTION,
            &["regexp_full_match(text, pattern)", "regexp_full_match(text, pattern, options)"],
            "Whether a regular expression matches all of a text.",
        )
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| check_constant_arguments(asked, None, 2, DataType::Boolean))
        .into_udf(|call| test_matches(call, true)),
        ClosureFunction::new(
            TEXT_SECTION,
            &[
                "regexp_split_to_array(text, pattern)",
                "regexp_split_to_array(text, pattern, options)",
            ],
            "The parts of a text between what matches a regular expression, as a list.",
        )
        .with_aliases(&["string_split_regex", "str_split_regex"])
        .with_arguments(&[TEXT_ARGUMENT, TEXT_ARGUMENT, TEXT_ARGUMENT], 2)
        .with_return_type_closure(|asked| check_constant_arguments(asked, None, 2, list_type(DataType::Utf8View)))
        .into_udf(split_by_regex),
        ClosureFunction::new(
            TEXT_SECTION,
            &["regexp_escape(text)"],
            "A regular expression that matches a text as it is.",
        )
        .with_arguments(&[TEXT_ARGUMENT], 1)
        .into_udf(|call| {
            let texts = call.text_operand(0)?;
            call.build_texts(|row, made| {
                let Some(text) = texts.get(row) else { return Ok(false) };
                // DuckDB escapes every ASCII punctuation character except `_`; `\<` and `\>` are word
                // boundaries here.
                for letter in text.chars() {
                    match letter {
                        '\0' => made.push_str("\\x00"),
                        '_' | '<' | '>' => made.push(letter),
                        _ if regex_syntax::is_escapeable_character(letter) => {
                            made.push('\\');
                            made.push(letter);
                        }
                        _ => made.push(letter),
                    }
                }
                Ok(true)
            })
        }),
    ]
}

/// Applies options in the letters of PostgreSQL and DuckDB.
fn apply_options(builder: &mut RegexBuilder, options: &str) -> PlanResult<()> {
    for option in options.chars() {
        match option {
            'i' => builder.case_insensitive(true),
            'c' => builder.case_insensitive(false),
            's' => builder.dot_matches_new_line(true),
            'm' | 'n' | 'p' => builder.multi_line(true),
            'x' => builder.ignore_whitespace(is_whitespace_ignored(options)),
            // `l` is applied by escaping the pattern; `k` concerns texts that do not match.
            'l' | 'k' => builder,
            _ if option.is_whitespace() => builder,
            other => return Err(unknown_option_error(other)),
        };
    }
    Ok(())
}

/// Returns whether whitespace in a pattern is ignored; in a literal text it is not.
fn is_whitespace_ignored(options: &str) -> bool {
    options.contains('x') && !options.contains('l')
}

fn unknown_option_error(option: char) -> datafusion_common::DataFusionError {
    usage_error(
        format!("`{option}` is no option of a regular expression"),
        "there are i (letters of either case), c (of their own), s (`.` is a line's end, too), m \
         (`^` and `$` are at each line), x (spaces mean nothing), l (a text, no pattern), and for regexp_extract k \
         (a text that does not match is kept)",
    )
}

/// Returns whether a function accepts the option `k`, which returns a text that does not match.
fn accepts_option_k(name: &str) -> bool {
    matches!(name, "regexp_extract" | "regexp_extract_groups")
}

/// Fails for the option `k` in functions that do not accept it.
pub(super) fn check_option_k(name: &str, options: &str) -> PlanResult<()> {
    match options.contains('k') && !accepts_option_k(name) {
        true => Err(unknown_option_error('k')),
        false => Ok(()),
    }
}

/// Compiles an expression that matches all of a text, or a part of it.
fn compile_regex(pattern: &str, options: &str, is_whole: bool) -> PlanResult<Regex> {
    let literal;
    let pattern = match options.contains('l') {
        true => {
            literal = regex::escape(pattern);
            &literal
        }
        false => pattern,
    };
    let build = |pattern: &str| {
        let mut builder = RegexBuilder::new(pattern);
        apply_options(&mut builder, options)?;
        builder.build().map_err(|error| invalid_pattern_error(pattern, &error))
    };
    let part = build(pattern)?;
    match is_whole {
        // A comment of the option x ends at the end of its line.
        true if is_whitespace_ignored(options) => build(&format!("\\A(?:{pattern}\n)\\z")),
        true => build(&format!("\\A(?:{pattern})\\z")),
        false => Ok(part),
    }
}

/// Returns the error for an invalid pattern, with the position of the fault.
fn invalid_pattern_error(
    pattern: &str,
    error: &regex::Error,
) -> datafusion_common::DataFusionError {
    let shown = excerpt_for_message(pattern);
    if let regex::Error::CompiledTooBig(bytes) = error {
        return usage_error(
            format!("the pattern `{shown}` takes more than {} MiB", bytes >> 20),
            "repetitions such as {1,1000} are written out: * and + are not",
        );
    }
    let (what, at) = match regex_syntax::parse(pattern) {
        Err(regex_syntax::Error::Parse(error)) => {
            (error.kind().to_string(), Some(error.span().start.offset))
        }
        Err(regex_syntax::Error::Translate(error)) => {
            (error.kind().to_string(), Some(error.span().start.offset))
        }
        _ => (error.to_string().lines().last().unwrap_or_default().to_owned(), None),
    };
    let letter = at.and_then(|at| Some(pattern.get(..at)?.chars().count() + 1));
    let place = letter.map_or_else(String::new, |letter| format!(" at character {letter}"));
    let hint = match what.contains("backreferences") || what.contains("look-around") {
        true => {
            "expressions are matched in one pass, which neither backreferences nor look-around allow"
        }
        false => "a backslash before a sign means the sign itself: \\( \\[ \\. \\* \\+ \\?",
    };
    usage_error(format!("the pattern `{shown}` is not understood{place}: {what}"), hint)
}

/// A cache of expressions that a thread has compiled recently.
struct RegexCache(Vec<((String, String, bool), Regex)>);

thread_local! {
    static REGEX_CACHE: RefCell<RegexCache> = const { RefCell::new(RegexCache(Vec::new())) };
}

/// Returns a compiled expression, from the cache if possible.
pub(super) fn cached_regex(pattern: &str, options: &str, is_whole: bool) -> PlanResult<Regex> {
    const CACHED_REGEXES_MAX: usize = 16;
    REGEX_CACHE.with_borrow_mut(|RegexCache(kept)| {
        let found = kept.iter().rposition(|((of, with, whole), _)| {
            of == pattern && with == options && *whole == is_whole
        });
        if let Some(index) = found {
            // The most recently used is the last.
            kept[index..].rotate_left(1);
        } else {
            let made = compile_regex(pattern, options, is_whole)?;
            if kept.len() == CACHED_REGEXES_MAX {
                kept.remove(0);
            }
            kept.push(((pattern.to_owned(), options.to_owned(), is_whole), made));
        }
        match kept.last() {
            Some((_, regex)) => Ok(regex.clone()),
            None => compile_regex(pattern, options, is_whole),
        }
    })
}

/// Checks constant arguments at planning time. Returns `answer`, the result type.
fn check_constant_arguments(
    asked: &PlannedCall<'_>,
    group: Option<usize>,
    options: usize,
    answer: DataType,
) -> PlanResult<DataType> {
    let text_options = asked.constant_text(options).unwrap_or_default();
    check_option_k(asked.function_name(), text_options)?;
    let has_options = asked.argument_count() <= options || asked.constant_text(options).is_some();
    if let Some(pattern) = asked.constant_text(1).filter(|_| has_options) {
        let regex =
            cached_regex(pattern, text_options, asked.function_name() == "regexp_full_match")?;
        if let Some(index) = group.and_then(|group| asked.constant_integer(group)) {
            check_group_number(&regex, pattern, index)?;
        }
    } else if has_options {
        apply_options(&mut RegexBuilder::new(""), text_options)?;
    }
    Ok(answer)
}

/// Checks that a pattern has a group. Returns the group's number.
fn check_group_number(regex: &Regex, pattern: &str, group: i64) -> PlanResult<usize> {
    match usize::try_from(group) {
        Ok(group) if group < regex.captures_len() => Ok(group),
        _ => Err(usage_error(
            format!("the pattern `{}` has no group {group}", excerpt_for_message(pattern)),
            match regex.captures_len() {
                1 => "round brackets make groups: (…); 0 is all that matches".to_owned(),
                groups => format!("it has 1 to {}; 0 is all that matches", groups - 1),
            },
        )),
    }
}

/// The patterns and options of a batch.
pub(super) struct RegexArgument {
    patterns: TextOperand,
    options: TextOperand,
    has_options: bool,
    is_whole: bool,
    /// Name of the function.
    name: &'static str,
    /// The expression that all rows share.
    constant: Option<Regex>,
}

impl RegexArgument {
    pub(super) fn from_arguments(
        call: &CallBatch,
        options: usize,
        is_whole: bool,
    ) -> PlanResult<Self> {
        let patterns = call.text_operand(1)?;
        let has_options = call.argument_count() > options;
        let options = call.text_operand(options)?;
        let constant = match (patterns.constant(), options.constant()) {
            (Some(pattern), Some(options)) => Some(cached_regex(pattern, options, is_whole)?),
            (Some(pattern), None) if !has_options => Some(cached_regex(pattern, "", is_whole)?),
            _ => None,
        };
        Ok(RegexArgument {
            patterns,
            options,
            has_options,
            is_whole,
            name: call.function_name(),
            constant,
        })
    }

    /// Returns whether a text that does not match is returned as it is.
    fn keeps_unmatched_text(&self, row: usize) -> bool {
        self.has_options && self.options.get(row).is_some_and(|options| options.contains('k'))
    }

    /// Calls `then` with a row's expression, unless it is null.
    pub(super) fn with_regex<T>(
        &self,
        row: usize,
        then: impl FnOnce(&Regex) -> PlanResult<Option<T>>,
    ) -> PlanResult<Option<T>> {
        if let Some(regex) = &self.constant {
            return then(regex);
        }
        let options = match self.has_options {
            true => self.options.get(row),
            false => Some(""),
        };
        let (Some(pattern), Some(options)) = (self.patterns.get(row), options) else {
            return Ok(None);
        };
        check_option_k(self.name, options)?;
        then(&cached_regex(pattern, options, self.is_whole)?)
    }
}

/// The group that each row asks for.
enum GroupArgument {
    /// The first group, if the pattern has one.
    First,
    /// By number; 0 without the argument.
    ByNumber { numbers: IntegerOperand, are_said: bool },
}

impl GroupArgument {
    fn from_argument(call: &CallBatch) -> PlanResult<Self> {
        Ok(GroupArgument::ByNumber {
            numbers: call.integer_operand(2)?,
            are_said: call.argument_count() > 2,
        })
    }

    fn group_number(&self, row: usize, regex: &Regex) -> PlanResult<Option<usize>> {
        match self {
            GroupArgument::First => Ok(Some(usize::from(regex.captures_len() > 1))),
            GroupArgument::ByNumber { are_said: false, .. } => Ok(Some(0)),
            GroupArgument::ByNumber { numbers, .. } => match numbers.get(row) {
                Some(group) => check_group_number(regex, regex.as_str(), group).map(Some),
                None => Ok(None),
            },
        }
    }
}

fn extract_first_match(call: &CallBatch, otherwise: Option<&'static str>) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    let patterns = RegexArgument::from_arguments(call, 3, false)?;
    let groups = GroupArgument::from_argument(call)?;
    let mut places = patterns.constant.as_ref().map(Regex::capture_locations);
    call.build_borrowed_texts(|row| {
        let Some(text) = texts.get(row) else { return Ok(None) };
        let is_kept = patterns.keeps_unmatched_text(row);
        patterns.with_regex(row, |regex| {
            Ok(match groups.group_number(row, regex)? {
                None => None,
                Some(_) if is_kept && !regex.is_match(text) => Some(text),
                Some(0) => regex.find(text).map(|found| found.as_str()).or(otherwise),
                Some(group) => {
                    let places = places.get_or_insert_with(|| regex.capture_locations());
                    if patterns.constant.is_none() {
                        *places = regex.capture_locations();
                    }
                    let found = regex.captures_read(places, text);
                    let part = found.and_then(|_| places.get(group));
                    part.and_then(|(start, end)| text.get(start..end)).or(otherwise)
                }
            })
        })
    })
}

/// An iterator over the groups of all matches in a text, as RE2 and DuckDB count them: an empty match
/// directly behind another match counts, where `Regex::find_iter` skips it.
pub(super) struct GroupMatches<'a> {
    regex: &'a Regex,
    text: &'a str,
    group_spans: CaptureLocations,
    /// Start of the next search; `None` behind the last match.
    search_start: Option<usize>,
}

impl<'a> GroupMatches<'a> {
    pub(super) fn new(regex: &'a Regex, text: &'a str) -> Self {
        GroupMatches { regex, text, group_spans: regex.capture_locations(), search_start: Some(0) }
    }

    /// Returns the spans of the next match and its groups.
    pub(super) fn next_match(&mut self) -> Option<&CaptureLocations> {
        let found =
            self.regex.captures_read_at(&mut self.group_spans, self.text, self.search_start?)?;
        self.search_start = next_search_start(self.text, &found);
        Some(&self.group_spans)
    }
}

/// Returns the start of the search after a match: its end, or behind the next character after an empty match.
fn next_search_start(text: &str, found: &Match<'_>) -> Option<usize> {
    match found.is_empty() {
        false => Some(found.end()),
        true => {
            let letter = text.get(found.end()..)?.chars().next()?;
            Some(found.end() + letter.len_utf8())
        }
    }
}

fn extract_all_matches(call: &CallBatch, is_first: bool) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    let patterns = RegexArgument::from_arguments(call, 3, false)?;
    let groups = if is_first { GroupArgument::First } else { GroupArgument::from_argument(call)? };
    call.build_text_lists(|row, items| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let done = patterns.with_regex(row, |regex| {
            match groups.group_number(row, regex)? {
                None => return Ok(None),
                Some(group) if is_first => {
                    for found in regex.captures_iter(text) {
                        items.append_item(found.get(group).map(|part| part.as_str()))?;
                    }
                }
                Some(0) => {
                    let mut start = Some(0);
                    while let Some(found) = start.and_then(|start| regex.find_at(text, start)) {
                        items.append_item(Some(found.as_str()))?;
                        start = next_search_start(text, &found);
                    }
                }
                Some(group) => {
                    let mut matches = GroupMatches::new(regex, text);
                    while let Some(places) = matches.next_match() {
                        let part = places.get(group);
                        items.append_item(part.and_then(|(start, end)| text.get(start..end)))?;
                    }
                }
            }
            Ok(Some(()))
        })?;
        Ok(done.is_some())
    })
}

fn first_match_groups(call: &CallBatch) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    let patterns = RegexArgument::from_arguments(call, 2, false)?;
    call.build_text_lists(|row, items| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let done = patterns.with_regex(row, |regex| {
            let Some(found) = regex.captures(text) else { return Ok(None) };
            // Without groups, the whole match.
            for group in usize::from(found.len() > 1)..found.len() {
                items.append_item(found.get(group).map(|part| part.as_str()))?;
            }
            Ok(Some(()))
        })?;
        Ok(done.is_some())
    })
}

fn test_matches(call: &CallBatch, is_whole: bool) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    let patterns = RegexArgument::from_arguments(call, 2, is_whole)?;
    call.build_booleans(|row| match texts.get(row) {
        Some(text) => patterns.with_regex(row, |regex| Ok(Some(regex.is_match(text)))),
        None => Ok(None),
    })
}

/// Splits as PostgreSQL does: an empty match does not count at the ends of the text or directly behind a
/// part. Thus `x*` splits `abc` into its letters.
fn split_by_regex(call: &CallBatch) -> PlanResult<ArrayRef> {
    let texts = call.text_operand(0)?;
    let patterns = RegexArgument::from_arguments(call, 2, false)?;
    call.build_text_lists(|row, items| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let done = patterns.with_regex(row, |regex| {
            let mut start = 0;
            for found in regex.find_iter(text) {
                let is_none =
                    found.is_empty() && (found.start() == start || found.end() == text.len());
                if is_none {
                    continue;
                }
                items.append_item(text.get(start..found.start()))?;
                start = found.end();
            }
            items.append_item(text.get(start..))?;
            Ok(Some(()))
        })?;
        Ok(done.is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::{call_in_all_forms, check_text_calls, text_constant};
    use datafusion_common::ScalarValue;
    use proptest::prelude::*;

    #[test]
    fn regex_functions_match_duckdb() {
        check_text_calls(&[
            ("regexp_extract", &["abc", "x"], ""),
            ("regexp_extract", &["/index.html?a=1", "^[^?]*"], "/index.html"),
            ("regexp_substr", &["abc", "x"], "NULL"),
            ("regexp_match", &["abc", "x"], "NULL"),
            ("regexp_match", &["abc", "b."], "[bc]"),
            ("regexp_match", &["abc", "(a)(z)?"], "[a, NULL]"),
            ("regexp_match", &["ABC", "(b)(.)", "i"], "[B, C]"),
            ("regexp_substr", &["abc", "b."], "bc"),
            ("regexp_extract_all", &["a1b22", "[0-9]+"], "[1, 22]"),
            ("regexp_extract_all", &["abc", "x*"], "['', '', '', '']"),
            ("regexp_extract_all", &["abc", "x"], "[]"),
            ("regexp_extract_all", &["aabca", "a*"], "[aa, '', '', a, '']"),
            ("regexp_extract_all", &["baac", "a*"], "['', aa, '', '']"),
            ("regexp_extract_all", &["щццф", "ц*"], "['', цц, '', '']"),
            ("regexp_extract_all", &["aaa", "^a?"], "[a]"),
            ("regexp_extract_all", &["a b", "\\b"], "['', '', '', '']"),
            ("regexp_extract_all", &["", "a*"], "['']"),
            ("regexp_extract_all", &["a__b", "(.*?)(?:_|$)"], "[a_, _, b, '']"),
            ("extractall", &["a=1&b=2", "[a-z]=([0-9])"], "[1, 2]"),
            ("extractall", &["a=1&b=2", "[0-9]"], "[1, 2]"),
            ("regexp_matches", &["abc", "B", "i"], "true"),
            ("regexp_matches", &["abc", "B"], "false"),
            ("regexp_matches", &["a\nb", "a.b"], "false"),
            ("regexp_matches", &["a\nb", "a.b", "s"], "true"),
            ("regexp_matches", &["a\nb", "^b"], "false"),
            ("regexp_matches", &["a\nb", "^b", "m"], "true"),
            ("regexp_matches", &["a.b", "a.b", "l"], "true"),
            ("regexp_matches", &["axb", "a.b", "l"], "false"),
            ("regexp_full_match", &["abc", "b"], "false"),
            ("regexp_full_match", &["abc", "a.c"], "true"),
            ("regexp_full_match", &["abc", "a|abc"], "true"),
            ("regexp_full_match", &["abc", "a b c # all", "x"], "true"),
            ("regexp_split_to_array", &["a1b22c", "[0-9]+"], "[a, b, c]"),
            ("string_split_regex", &["abc", ""], "[a, b, c]"),
            ("string_split_regex", &["abc", "x*"], "[a, b, c]"),
            ("string_split_regex", &["äö", ""], "[ä, ö]"),
            ("string_split_regex", &["", "x"], "['']"),
            ("string_split_regex", &["1a", "[0-9]"], "['', a]"),
            ("regexp_escape", &["a.b"], "a\\.b"),
            ("regexp_escape", &["https://a_b c"], "https\\:\\/\\/a_b\\ c"),
            ("regexp_escape", &["<_>"], "<_>"),
            ("regexp_escape", &["日本 \n-\0"], "日本\\ \\\n\\-\\x00"),
            ("regexp_matches", &["abcSDx", ".*sd.*", " i\t"], "true"),
            ("regexp_matches", &["a b", "a b", "lx"], "true"),
            ("regexp_full_match", &["a b", "A b", "xli"], "true"),
            ("regexp_matches", &["axB", "xb", "ci"], "true"),
            ("regexp_matches", &["axB", "xb", "ic"], "false"),
            (
                "regexp_matches",
                &["abc", "(b"],
                "the pattern `(b` is not understood at character 1: unclosed group\nhint: a backslash before a sign means the sign itself: \\( \\[ \\. \\* \\+ \\?",
            ),
            (
                "regexp_matches",
                &["abc", "ä*b[z-a]"],
                "the pattern `ä*b[z-a]` is not understood at character 5: invalid character class range, the start must be <= the end\nhint: a backslash before a sign means the sign itself: \\( \\[ \\. \\* \\+ \\?",
            ),
            (
                "regexp_full_match",
                &["abc", "a)(b"],
                "the pattern `a)(b` is not understood at character 2: unopened group\nhint: a backslash before a sign means the sign itself: \\( \\[ \\. \\* \\+ \\?",
            ),
            (
                "regexp_matches",
                &["abc", "(a)\\1"],
                "the pattern `(a)\\1` is not understood at character 4: backreferences are not supported\nhint: expressions are matched in one pass, which neither backreferences nor look-around allow",
            ),
            (
                "regexp_matches",
                &["abc", "b", "z"],
                "`z` is no option of a regular expression\nhint: there are i (letters of either case), c (of their own), s (`.` is a line's end, too), m (`^` and `$` are at each line), x (spaces mean nothing), l (a text, no pattern), and for regexp_extract k (a text that does not match is kept)",
            ),
        ]);
    }

    #[test]
    fn group_numbers_start_at_one() {
        let group = |number: i64| ScalarValue::from(number);
        for (name, args, expected) in [
            ("regexp_extract", vec![text_constant("a=1"), text_constant("(.)=(.)"), group(2)], "1"),
            (
                "regexp_extract",
                vec![text_constant("a=1"), text_constant("(.)=(.)"), group(0)],
                "a=1",
            ),
            ("regexp_extract", vec![text_constant("abc"), text_constant("(b)(x)?"), group(2)], ""),
            (
                "regexp_extract",
                vec![text_constant("ABC"), text_constant("(b)"), group(1), text_constant("i")],
                "B",
            ),
            (
                "regexp_extract",
                vec![ScalarValue::Utf8(None), text_constant("(b)"), group(1)],
                "NULL",
            ),
            ("regexp_extract", vec![text_constant("b"), ScalarValue::Utf8(None), group(1)], "NULL"),
            (
                "regexp_extract",
                vec![text_constant("b"), text_constant("(b)"), ScalarValue::Int64(None)],
                "NULL",
            ),
            (
                "regexp_extract_all",
                vec![text_constant("a1b"), text_constant("([a-z])([0-9])?"), group(2)],
                "[1, NULL]",
            ),
            (
                "regexp_extract",
                vec![text_constant("abc"), text_constant("(b)"), group(3)],
                "the pattern `(b)` has no group 3\nhint: it has 1 to 1; 0 is all that matches",
            ),
            (
                "regexp_extract_all",
                vec![text_constant("abc"), text_constant("b"), group(-1)],
                "the pattern `b` has no group -1\nhint: round brackets make groups: (…); 0 is all that matches",
            ),
            (
                "regexp_extract_all",
                vec![text_constant("aabca"), text_constant("(a)*"), group(1)],
                "[a, NULL, NULL, a, NULL]",
            ),
            (
                "regexp_extract",
                vec![text_constant("foobar"), text_constant("(zzz)"), group(1), text_constant("k")],
                "foobar",
            ),
            (
                "regexp_extract",
                vec![
                    text_constant("foobar"),
                    text_constant("(b..)"),
                    group(1),
                    text_constant("ik"),
                ],
                "bar",
            ),
            (
                "regexp_extract",
                vec![text_constant("foobar"), text_constant("b(z)?"), group(1), text_constant("k")],
                "",
            ),
        ] {
            assert_eq!(call_in_all_forms(name, &args), expected, "{name}{args:?}");
        }
    }

    #[test]
    fn pattern_column_applies_row_by_row() {
        use crate::closure_function::tests::{call_function, format_value};
        use arrow::array::StringArray;
        use datafusion_expr::ColumnarValue;
        use std::sync::Arc;

        let patterns: Vec<String> = (0..100).map(|row| format!("({}).", row % 40)).collect();
        let patterns: ArrayRef = Arc::new(StringArray::from(patterns));
        let texts: Vec<String> = (0..100).map(|row| format!("a{}b", row % 40)).collect();
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        let args = vec![
            ColumnarValue::Array(texts),
            ColumnarValue::Array(patterns),
            ColumnarValue::Scalar(ScalarValue::from(1_i64)),
        ];
        let made = call_function("regexp_extract", args, 100).unwrap();
        for row in 0..100 {
            assert_eq!(format_value(&made, row), (row % 40).to_string());
        }
    }

    #[test]
    fn option_column_applies_row_by_row() {
        use crate::closure_function::tests::{call_function, error_message, format_value};
        use arrow::array::StringArray;
        use datafusion_expr::ColumnarValue;
        use std::sync::Arc;

        let of = |name: &str, options: [&str; 3]| {
            let args = ["aBc", "b"].map(|of| ColumnarValue::Scalar(text_constant(of)));
            let group = ColumnarValue::Scalar(ScalarValue::from(0_i64));
            let options = ColumnarValue::Array(Arc::new(StringArray::from(options.to_vec())));
            let with_group = (name == "regexp_extract").then_some(group);
            let args = args.into_iter().chain(with_group).chain([options]).collect();
            let made = call_function(name, args, 3).map_err(error_message)?;
            Ok::<_, String>((0..3).map(|row| format_value(&made, row)).collect::<Vec<_>>())
        };
        assert_eq!(of("regexp_matches", ["i", "", "c"]).unwrap(), ["true", "false", "false"]);
        assert_eq!(of("regexp_extract", ["i", "k", ""]).unwrap(), ["B", "aBc", ""]);
        for name in ["regexp_matches", "regexp_full_match", "regexp_split_to_array"] {
            let refused = of(name, ["i", "k", ""]).unwrap_err();
            assert!(refused.starts_with("`k` is no option"), "{name}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_matches_itself(text in "[\0-~äß\n]{0,12}") {
            let text = ScalarValue::from(text.as_str());
            let pattern = ScalarValue::from(call_in_all_forms("regexp_escape", std::slice::from_ref(&text)));
            prop_assert_eq!(call_in_all_forms("regexp_full_match", &[text.clone(), pattern]), "true");
        }

        #[test]
        fn split_parts_join_to_the_text(text in "[ab,;]{0,12}") {
            let call = call_in_all_forms("string_split_regex", &[ScalarValue::from(text.as_str()), ScalarValue::from(",|;")]);
            let parts = text.split([',', ';']);
            let parts: Vec<&str> = parts.map(|part| if part.is_empty() { "''" } else { part }).collect();
            prop_assert_eq!(call, format!("[{}]", parts.join(", ")));
        }
    }
}
