//! Named patterns in the style of grok: `%{IPORHOST:client} %{NUMBER:took:float}`.
//!
//! `%{PATTERN}` matches what a pattern of the list below matches, `%{PATTERN:column}` makes a
//! column of it, and `%{PATTERN:column:type}` states the column's type: `int`, `float` or `text`. The text
//! between is a regular expression in the syntax of Rust's `regex`, which has no lookaround
//! and takes time in proportion to the line's length; `(?<column>…)` makes a column, too.
//! The whole line must match; `%{GREEDYDATA}` takes the rest.

use std::collections::HashMap;
use std::ops::Range;

use regex::{CaptureLocations, Regex, RegexBuilder};

use super::backtracking_matcher::{MatchOutcome, MatchProgram};
use super::{EscapeStyle, LineMatcher, LogFieldKind, LogFormat, LogFormatError, UniqueColumnNames};
use crate::text_fault::{TextFault, TextFaultKind};

/// The patterns: each name with its expression.
pub const GROK_PATTERNS: &[(&str, &str)] = &[
    // Words and text.
    ("WORD", r"\b\w+\b"),
    ("NOTSPACE", r"[^ \t\r\n\x0b\x0c]+"),
    ("SPACE", r"[ \t]*"),
    ("DATA", r".*?"),
    ("GREEDYDATA", r".*"),
    ("QUOTEDSTRING", r#"(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"#),
    ("QS", "%{QUOTEDSTRING}"),
    ("UUID", r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"),
    ("USERNAME", r"[A-Za-z0-9._-]+"),
    ("USER", "%{USERNAME}"),
    ("EMAILLOCALPART", r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+"),
    ("EMAILADDRESS", "%{EMAILLOCALPART}@%{HOSTNAME}"),
    ("HTTPDUSER", "(?:%{EMAILADDRESS}|%{USER})"),
    // Numbers.
    ("INT", r"[+-]?[0-9]+"),
    ("POSINT", r"\b[1-9][0-9]*\b"),
    ("NONNEGINT", r"\b[0-9]+\b"),
    ("BASE10NUM", r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"),
    ("NUMBER", "%{BASE10NUM}"),
    ("BASE16NUM", r"[+-]?(?:0x)?[0-9A-Fa-f]+"),
    // Hosts and paths.
    ("IPV4", r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}"),
    ("IPV6", r"[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[0-9A-Za-z]+)?"),
    ("IP", "(?:%{IPV4}|%{IPV6})"),
    ("HOSTNAME", r"[0-9A-Za-z][0-9A-Za-z_.-]*"),
    ("HOST", "%{HOSTNAME}"),
    ("IPORHOST", "(?:%{IP}|%{HOSTNAME})"),
    ("HOSTPORT", "%{IPORHOST}:%{POSINT}"),
    ("MAC", r"[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}"),
    ("UNIXPATH", r"(?:/[^ \t/]*)+"),
    ("WINPATH", r"(?:[A-Za-z]:|\\)(?:\\[^\\?*]*)+"),
    ("PATH", "(?:%{UNIXPATH}|%{WINPATH})"),
    ("URIPROTO", r"[A-Za-z][A-Za-z0-9+.-]*"),
    ("URIHOST", "%{IPORHOST}(?::%{POSINT})?"),
    ("URIPATH", r"/[^ \t?#]*"),
    ("URIPARAM", r"\?[^ \t#]*"),
    ("URIPATHPARAM", "%{URIPATH}(?:%{URIPARAM})?"),
    ("URI", r"%{URIPROTO}://(?:%{USER}(?::[^@ \t]*)?@)?(?:%{URIHOST})?(?:%{URIPATHPARAM})?"),
    // Times.
    (
        "MONTH",
        r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:tember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)",
    ),
    ("MONTHNUM", r"(?:0?[1-9]|1[0-2])"),
    ("MONTHDAY", r"(?:0[1-9]|[12][0-9]|3[01]|[1-9])"),
    ("DAY", r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"),
    ("YEAR", r"(?:[0-9]{4}|[0-9]{2})"),
    ("HOUR", r"(?:2[0-3]|[01]?[0-9])"),
    ("MINUTE", r"[0-5][0-9]"),
    ("SECOND", r"(?:[0-5]?[0-9]|60)(?:[:.,][0-9]+)?"),
    ("TIME", "%{HOUR}:%{MINUTE}(?::%{SECOND})?"),
    ("DATE_US", "%{MONTHNUM}[/-]%{MONTHDAY}[/-]%{YEAR}"),
    ("DATE_EU", "%{MONTHDAY}[./-]%{MONTHNUM}[./-]%{YEAR}"),
    ("DATE", "(?:%{DATE_US}|%{DATE_EU})"),
    ("DATESTAMP", "%{DATE}[- ]%{TIME}"),
    ("TZ", r"(?:[A-Z]{3,4})"),
    ("ISO8601_TIMEZONE", r"(?:Z|[+-]%{HOUR}(?::?%{MINUTE})?)"),
    (
        "TIMESTAMP_ISO8601",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:%{ISO8601_TIMEZONE})?",
    ),
    ("HTTPDATE", r"[0-9]{2}/[A-Za-z]{3}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}"),
    ("SYSLOGTIMESTAMP", "%{MONTH} +%{MONTHDAY} %{TIME}"),
    // System logs.
    ("PROG", r"[!-Z\\^-~]+"),
    ("SYSLOGPROG", r"%{PROG:program}(?:\[%{POSINT:pid:int}\])?"),
    ("SYSLOGHOST", "%{IPORHOST}"),
    ("SYSLOGFACILITY", "<%{NONNEGINT:facility:int}.%{NONNEGINT:priority:int}>"),
    (
        "SYSLOGBASE",
        "%{SYSLOGTIMESTAMP:timestamp} (?:%{SYSLOGFACILITY} )?%{SYSLOGHOST:logsource} %{SYSLOGPROG}:",
    ),
    (
        "LOGLEVEL",
        r"(?i:alert|trace|debug|notice|info(?:rmation)?|warn(?:ing)?|err(?:or)?|crit(?:ical)?|fatal|severe|emerg(?:ency)?)",
    ),
    // Access logs, under the names known from grok.
    (
        "COMMONAPACHELOG",
        r#"%{IPORHOST:clientip} %{HTTPDUSER:ident} %{HTTPDUSER:auth} \[%{HTTPDATE:timestamp}\] "(?:%{WORD:verb} %{NOTSPACE:request}(?: HTTP/%{NUMBER:httpversion:text})?|%{DATA:rawrequest})" (?:%{INT:response}|-) (?:%{INT:bytes}|-)"#,
    ),
    ("COMBINEDAPACHELOG", "%{COMMONAPACHELOG} %{QS:referrer} %{QS:agent}"),
    ("HTTPD_COMMONLOG", "%{COMMONAPACHELOG}"),
    ("HTTPD_COMBINEDLOG", "%{COMBINEDAPACHELOG}"),
];

/// Patterns that must not begin directly after certain characters, which their own texts may contain.
const FORBIDDEN_PREDECESSORS: &[(&str, &str)] = &[
    ("BASE10NUM", "0-9.+-"),
    ("NUMBER", "0-9.+-"),
    ("BASE16NUM", "0-9A-Fa-f"),
    ("IPV4", "0-9"),
    ("IP", "0-9"),
    ("IPORHOST", "0-9A-Za-z_"),
    ("HOSTNAME", "0-9A-Za-z_"),
];

/// Maximum nesting depth of patterns, and maximum number of references to patterns.
const PATTERN_DEPTH_MAX: usize = 16;
const PATTERN_REFERENCES_MAX: usize = 1000;
/// Maximum size of the compiled expression.
const REGEX_BYTES_MAX: usize = 8 << 20;

fn find_pattern(name: &str) -> Option<&'static str> {
    GROK_PATTERNS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// A compiled description by named patterns.
#[derive(Debug, Clone)]
pub(super) struct GrokPattern {
    /// The faster matcher for the wanted fields, if the expression allows one.
    program: Option<MatchProgram>,
    regex: Regex,
    /// The groups of each field, at most one of which matches.
    groups: Vec<Vec<usize>>,
    locations: CaptureLocations,
}

impl GrokPattern {
    /// Returns a copy that finds only the wanted fields.
    pub(super) fn with_wanted_fields(&self, is_wanted: impl Fn(usize) -> bool) -> Self {
        let places = self.groups.iter().enumerate().filter(|(place, _)| is_wanted(*place));
        let wanted: Vec<usize> = places.flat_map(|(_, groups)| groups.iter().copied()).collect();
        let program = MatchProgram::new(self.regex.as_str(), |group| wanted.contains(&group));
        Self { program, ..self.clone() }
    }

    /// Returns the fields of a line as the regular expression finds them; `None` if it does not match.
    #[cfg(test)]
    pub(super) fn match_by_regex(&self, line: &str) -> Option<Vec<Option<String>>> {
        let captures = self.regex.captures(line)?;
        let of = |groups: &Vec<usize>| groups.iter().find_map(|group| captures.get(*group));
        Some(self.groups.iter().map(|groups| Some(of(groups)?.as_str().to_owned())).collect())
    }

    /// Finds the fields of a line, whose range in the block is `line`.
    pub(super) fn find_fields(
        &mut self,
        block: &[u8],
        line: Range<usize>,
        take: &mut dyn FnMut(usize, Range<usize>),
    ) -> Result<(), TextFault> {
        let found = match &mut self.program {
            Some(program) => program.match_line(&block[line.clone()]),
            None => MatchOutcome::Undecided,
        };
        if let (MatchOutcome::Match, Some(program)) = (found, &self.program) {
            for (place, groups) in self.groups.iter().enumerate() {
                if let Some((start, end)) =
                    groups.iter().find_map(|group| program.group_range(*group))
                {
                    take(place, line.start + start..line.start + end);
                }
            }
            return Ok(());
        }
        let text = std::str::from_utf8(&block[line.clone()]).map_err(|error| {
            TextFault::new(error.valid_up_to(), TextFaultKind::InvalidUtf8 { field: None })
        })?;
        if found == MatchOutcome::NoMatch {
            return Err(TextFault::new(0, TextFaultKind::PatternMismatch));
        }
        if self.regex.captures_read(&mut self.locations, text).is_none() {
            return Err(TextFault::new(0, TextFaultKind::PatternMismatch));
        }
        for (place, groups) in self.groups.iter().enumerate() {
            let found = groups.iter().find_map(|group| self.locations.get(*group));
            if let Some((start, end)) = found {
                take(place, line.start + start..line.start + end);
            }
        }
        Ok(())
    }
}

/// A reference to a pattern: `%{NAME}`, `%{NAME:column}` or `%{NAME:column:type}`.
struct PatternReference<'a> {
    name: &'a str,
    column: Option<&'a str>,
    kind: Option<&'a str>,
}

impl<'a> PatternReference<'a> {
    /// Parses the reference that a text begins with; returns it and the rest of the text.
    fn new(text: &'a str) -> Option<(Self, &'a str)> {
        let inner = text.strip_prefix("%{")?;
        let (inner, rest) = inner.split_once('}')?;
        let mut parts = inner.splitn(3, ':');
        let name = parts.next()?;
        if name.is_empty() || !name.chars().all(is_pattern_name_char) {
            return None;
        }
        let column = parts.next().filter(|column| !column.is_empty());
        Some((Self { name, column, kind: parts.next() }, rest))
    }
}

/// Returns whether a pattern's name may contain a character.
fn is_pattern_name_char(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

/// Returns the pattern name nearest to an unknown one: at most a third of its letters, or one,
/// may differ.
fn nearest_pattern_name(name: &str) -> Option<&'static str> {
    let near =
        GROK_PATTERNS.iter().map(|(known, _)| (strsim::damerau_levenshtein(name, known), *known));
    let near =
        near.filter(|(distance, _)| *distance <= (name.len() / 3).max(1) && *distance < name.len());
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// Returns whether a description has a named pattern; `%{USER}e` is one of Apache's directives.
pub(super) fn has_named_pattern(text: &str) -> bool {
    let mut is_one = has_named_groups(text);
    for (at, _) in text.match_indices("%{") {
        if let Some((reference, rest)) = PatternReference::new(&text[at..]) {
            let is_directive = reference.column.is_none()
                && (rest.starts_with('^') || rest.starts_with(|c: char| c.is_ascii_alphabetic()));
            is_one |= !is_directive;
        }
    }
    is_one
}

/// Returns whether a description has named groups of a regular expression.
fn has_named_groups(text: &str) -> bool {
    ["(?<", "(?P<"].iter().any(|group| {
        text.match_indices(group).any(|(at, _)| {
            let inner = &text[at + group.len()..];
            inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && inner.contains('>')
        })
    })
}

/// Returns the column name of a field: `[source][ip]` becomes `source.ip`.
fn parse_column_name(written: &str) -> Result<String, LogFormatError> {
    let nested = written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let name = nested.map_or_else(|| written.to_owned(), |inner| inner.replace("][", "."));
    let is_plain = |c: char| c.is_alphanumeric() || "_.-@".contains(c);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(LogFormatError::new(
            format!("`{written}` is no name of a column"),
            "a name is letters, digits, `_`, `.`, `-` and `@`",
        ));
    }
    Ok(name)
}

/// Returns the kind of a pattern's column, from its stated type if there is one.
fn column_kind(pattern: &str, said: Option<&str>) -> Result<LogFieldKind, LogFormatError> {
    Ok(match said {
        Some("int" | "long") => LogFieldKind::Int,
        Some("float" | "double") => LogFieldKind::Float,
        Some("text" | "string") => LogFieldKind::Text,
        Some(other) => {
            return Err(LogFormatError::new(
                format!("`{other}` is no type of a named pattern's column"),
                "they are int, float and text; --schema 'column TYPE' gives any other",
            ));
        }
        None => match pattern {
            "INT" | "POSINT" | "NONNEGINT" => LogFieldKind::Int,
            "NUMBER" | "BASE10NUM" => LogFieldKind::Float,
            "HTTPDATE" => LogFieldKind::ClfTime,
            "TIMESTAMP_ISO8601" => LogFieldKind::IsoTime,
            _ => LogFieldKind::Text,
        },
    })
}

/// A compiler from a description to a regular expression.
#[derive(Default)]
struct GrokCompiler {
    expression: String,
    /// Fields in order: name, kind, and the group's name.
    fields: Vec<(String, LogFieldKind, String)>,
    references: usize,
}

/// Prefix of the names of groups that are fields.
const GROUP_PREFIX: &str = "tidemill_";

/// Returns the columns by name and kind, with the names of their groups. Fields of one name are one column
/// if they are alternatives and cannot match together; otherwise they are several columns.
fn merge_alternatives(
    fields: Vec<(String, LogFieldKind, String)>,
    expression: &str,
) -> Vec<(String, LogFieldKind, Vec<String>)> {
    let places = group_positions(expression);
    let are_alternatives = |one: &String, other: &String| match (places.get(one), places.get(other))
    {
        (Some(one), Some(other)) => one
            .iter()
            .zip(other)
            .find(|(one, other)| one != other)
            .is_some_and(|(one, other)| one.0 == other.0),
        _ => false,
    };
    let mut columns: Vec<(String, LogFieldKind, Vec<String>)> = Vec::new();
    for (name, kind, group) in fields {
        let known = columns.iter_mut().find(|(known, _, groups)| {
            *known == name && groups.iter().all(|other| are_alternatives(other, &group))
        });
        match known {
            Some((_, _, groups)) => groups.push(group),
            None => columns.push((name, kind, vec![group])),
        }
    }
    columns
}

/// Returns the positions of the groups in an expression: the number of each pair of brackets around them,
/// from the outermost on, and the number of the alternative inside it.
fn group_positions(expression: &str) -> HashMap<String, Vec<(usize, usize)>> {
    let mut found = HashMap::new();
    let mut within = vec![(0, 0)];
    let mut pairs = 0;
    let mut classes = 0_usize;
    let mut rest = expression;
    while let Some(c) = rest.chars().next() {
        let at = c.len_utf8();
        match c {
            '\\' => {
                let escaped = rest[at..].chars().next().map_or(0, char::len_utf8);
                rest = &rest[at + escaped..];
                continue;
            }
            '[' => {
                classes += 1;
                // A bracket at the beginning of a class is one of its characters.
                let first = rest[at..].strip_prefix('^').unwrap_or(&rest[at..]);
                rest = first.strip_prefix(']').unwrap_or(first);
                continue;
            }
            ']' => classes = classes.saturating_sub(1),
            _ if classes > 0 => {}
            '(' => {
                pairs += 1;
                let group = rest.strip_prefix("(?P<").and_then(|rest| rest.split_once('>'));
                if let Some((name, _)) = group {
                    found.insert(name.to_owned(), within.clone());
                }
                within.push((pairs, 0));
            }
            ')' if within.len() > 1 => {
                within.pop();
            }
            '|' => {
                if let Some((_, alternative)) = within.last_mut() {
                    *alternative += 1;
                }
            }
            _ => {}
        }
        rest = &rest[at..];
    }
    found
}

impl GrokCompiler {
    /// Prevents a preceding wildcard (`.*`) from ending with one of these characters: it would take all
    /// digits of a number but the last.
    fn restrict_preceding_text(&mut self, characters: &str) {
        let open = self.expression.trim_end_matches(')').len();
        let (text, brackets) = self.expression.split_at(open);
        let found = [
            (".*?", format!("(?:.*?[^{characters}])??")),
            (".+?", format!(".*?[^{characters}]")),
            (".*", format!("(?:.*[^{characters}])?")),
            (".+", format!(".*[^{characters}]")),
        ];
        let any = found.iter().find_map(|(any, other)| Some((text.strip_suffix(any)?, other)));
        if let Some((before, other)) = any
            && (before.len() - before.trim_end_matches('\\').len()) % 2 == 0
        {
            self.expression = format!("{before}{other}{brackets}");
        }
    }

    fn expand_patterns(&mut self, text: &str, depth: usize) -> Result<(), LogFormatError> {
        if depth > PATTERN_DEPTH_MAX {
            return Err(LogFormatError::new(
                format!(
                    "named patterns stand within one another more than {PATTERN_DEPTH_MAX} deep"
                ),
                "write less of them",
            ));
        }
        let mut rest = text;
        while let Some(at) = rest.find("%{") {
            self.expression.push_str(&rest[..at]);
            let Some((reference, behind)) = PatternReference::new(&rest[at..]) else {
                let name = &rest[at + 2..];
                let end = name.find(|c: char| !is_pattern_name_char(c)).unwrap_or(name.len());
                if end > 0 && !name.contains('}') {
                    return Err(LogFormatError::new(
                        format!("`%{{{}` is not ended", name.split(' ').next().unwrap_or(name)),
                        "a named pattern is %{PATTERN:column} or %{PATTERN}; the sign itself is %\\{",
                    ));
                }
                self.expression.push_str("%\\{");
                rest = name;
                continue;
            };
            rest = behind;
            self.references += 1;
            let Some(inner) =
                find_pattern(reference.name).filter(|_| self.references <= PATTERN_REFERENCES_MAX)
            else {
                let names: Vec<&str> = GROK_PATTERNS.iter().map(|(name, _)| *name).collect();
                let meant = nearest_pattern_name(reference.name);
                let meant =
                    meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
                return Err(LogFormatError::new(
                    format!("there is no pattern `{}`{meant}", reference.name),
                    format!("they are {}", names.join(", ")),
                ));
            };
            if let Some((_, behind)) =
                FORBIDDEN_PREDECESSORS.iter().find(|(name, _)| *name == reference.name)
            {
                self.restrict_preceding_text(behind);
            }
            match reference.column {
                None => self.expression.push_str("(?:"),
                Some(column) => {
                    let name = parse_column_name(column)?;
                    let kind = column_kind(reference.name, reference.kind)?;
                    let group = format!("{GROUP_PREFIX}{}", self.references);
                    self.expression.push_str(&format!("(?P<{group}>"));
                    self.fields.push((name, kind, group));
                }
            }
            self.expand_patterns(inner, depth + 1)?;
            self.expression.push(')');
        }
        self.expression.push_str(rest);
        Ok(())
    }
}

/// Compiles a description by named patterns.
pub(super) fn compile_format(text: &str) -> Result<LogFormat, LogFormatError> {
    let mut compiler = GrokCompiler::default();
    compiler.expand_patterns(text, 0)?;
    let GrokCompiler { expression, fields, .. } = compiler;
    let mut named = merge_alternatives(fields, &expression);
    let regex = RegexBuilder::new(&format!("^(?:{expression})$"))
        .size_limit(REGEX_BYTES_MAX)
        .build()
        .map_err(|error| {
            let reason = error.to_string();
            let last = reason.lines().last().unwrap_or_default();
            LogFormatError::new(
                format!("the patterns are no regular expression: {}", last.trim_start_matches("error: ")),
                "a bracket, dot or star that stands in the line is written `\\[`, `\\.`, `\\*`; there is no \
                 looking around (`(?=`, `(?<!`) and no `(?>`",
            )
        })?;
    // Groups that the user has named.
    for name in regex.capture_names().flatten() {
        if !named.iter().any(|(_, _, groups)| groups.iter().any(|group| group == name)) {
            named.push((name.to_owned(), LogFieldKind::Text, vec![name.to_owned()]));
        }
    }
    if named.is_empty() {
        return Err(LogFormatError::new(
            "the patterns name no column",
            "%{IPORHOST:client} makes a column `client` of what matches",
        ));
    }
    let index = |wanted: &String| regex.capture_names().position(|name| name == Some(wanted));
    // Columns in the order of the line.
    let mut found: Vec<(Vec<usize>, String, LogFieldKind)> = named
        .into_iter()
        .map(|(name, kind, groups)| (groups.iter().filter_map(index).collect(), name, kind))
        .collect();
    found.sort_by_key(|(groups, _, _): &(Vec<usize>, _, _)| groups.first().copied());
    let (mut columns, mut names, mut groups) =
        (Vec::new(), UniqueColumnNames::default(), Vec::new());
    for (place, (of, name, kind)) in found.into_iter().enumerate() {
        names.add_columns(&mut columns, &name, &kind, place);
        groups.push(of);
    }
    let locations = regex.capture_locations();
    let pattern = GrokPattern { program: None, regex, groups, locations };
    Ok(LogFormat {
        columns,
        matcher: LineMatcher::NamedPatterns(pattern),
        escapes: EscapeStyle::NoEscapes,
    })
}
