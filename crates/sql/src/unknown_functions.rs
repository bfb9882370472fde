//! What was meant by a function that there is not.
//!
//! A slip of the pen is told by its letters. The name that another engine has for something is not
//! like ours at all, and what is nearest to it misleads: for these there is a table of what is
//! written here, each row of which a test runs.

use std::collections::BTreeSet;

use datafusion::execution::SessionStateBuilder;
use tidemill_base::error::Error;

use crate::dialects::calls::{calls_of, rows};

/// Functions of other engines, and what is written here: of a number `n`, a text `x`, a time `ts`, a day
/// `d`, a condition `c`, a `list`.
pub const ELSEWHERE: [(&[&str], &str); 29] = [
    (&["epoch", "unix_timestamp", "tounixtimestamp"], "extract(epoch FROM ts)"),
    (&["unix_millis"], "extract(epoch FROM ts) * 1000"),
    (&["epoch_ms", "make_timestamp_ms"], "to_timestamp_millis(n)"),
    (&["epoch_us", "make_timestamp"], "to_timestamp_micros(n)"),
    (&["dayname", "day_name"], "to_char(ts, '%A')"),
    (&["monthname", "month_name"], "to_char(ts, '%B')"),
    (
        &["strptime", "parse_datetime", "parse_timestamp", "date_parse"],
        "to_timestamp('20/11/2026', '%d/%m/%Y')",
    ),
    (&["str_to_date", "parse_date"], "to_date('20/11/2026', '%d/%m/%Y')"),
    (
        &["strftime", "format_datetime", "format_date", "format_timestamp"],
        "to_char(ts, '%Y-%m-%d')",
    ),
    (&["date_diff", "datediff", "timestampdiff"], "extract(epoch FROM ts - ts)"),
    (&["date_add", "dateadd", "adddate", "timestampadd"], "d + INTERVAL '1 day'"),
    (&["date_sub", "datesub", "subdate"], "d - INTERVAL '1 day'"),
    (&["add_months"], "d + INTERVAL '1 month'"),
    (&["last_day", "eomonth"], "date_trunc('month', d) + INTERVAL '1 month' - INTERVAL '1 day'"),
    (&["time_bucket", "time_slice"], "date_bin(INTERVAL '5 minutes', ts, TIMESTAMP '2000-01-03')"),
    (&["sign"], "signum(n)"),
    (&["truncate"], "trunc(n)"),
    (&["len", "str_len"], "length(x)"),
    (&["hex"], "encode(x, 'hex')"),
    (&["unhex"], "decode('6162', 'hex')"),
    (&["try_cast", "safe_cast"], "TRY_CAST(x AS BIGINT)"),
    (&["typeof", "pg_typeof"], "arrow_typeof(x)"),
    (&["regexp_matches"], "x ~ 'pattern'"),
    (&["regexp_full_match"], "x ~ '^(pattern)$'"),
    (&["regexp_extract", "regexp_substr"], "regexp_match(x, '(pattern)')[1]"),
    (&["string_split", "str_split", "split"], "string_to_array(x, ',')"),
    (&["to_int", "toint", "tointeger", "to_number"], "CAST(x AS BIGINT)"),
    (&["str"], "CAST(n AS TEXT)"),
    (&["size", "array_size"], "array_length(list)"),
];

/// The same, of aggregates.
pub const AGGREGATES: [(&[&str], &str); 4] = [
    (&["any"], "bool_or(c), any_value(x)"),
    (&["quantile_disc"], "quantile(n, 0.9)"),
    (&["sum_if"], "sum(n) FILTER (WHERE c)"),
    (&["avg_if", "averageif"], "avg(n) FILTER (WHERE c)"),
];

/// Functions that look into text as JSON.
const OF_JSON: [&str; 6] = [
    "json_extract",
    "json_extract_string",
    "json_extract_scalar",
    "json_value",
    "get_json_object",
    "jsonextract",
];

/// The refusal of a function that is not known.
pub fn refused(name: &str) -> Error {
    let message = format!("unknown function `{name}`");
    let folded = name.to_lowercase();
    let elsewhere = ELSEWHERE.iter().chain(&AGGREGATES);
    if let Some((_, written)) =
        elsewhere.into_iter().find(|(names, _)| names.contains(&folded.as_str()))
    {
        return Error::usage_hint(message, format!("it is written here as {written}"));
    }
    let calls = calls_of(&folded);
    if !calls.is_empty() {
        return Error::usage_hint(
            format!("`{name}` takes other arguments"),
            format!("it is called as {}", calls.join(", ")),
        );
    }
    if OF_JSON.contains(&folded.as_str()) {
        return Error::usage_hint(
            message,
            "fields of JSON are named with dots: a.b; --promote makes columns of JSON in a string",
        );
    }
    match nearest(&folded, &known()) {
        Some(meant) => Error::usage(format!("{message}; did you mean `{meant}`?")),
        None => Error::usage(message),
    }
}

/// Aggregates that SQL gains, and DataFusion does not know.
pub const ADDED: [&str; 4] = ["unique", "top_k", "quantile", "collect"];

/// The names of all functions that may be called, in order.
fn known() -> BTreeSet<String> {
    let state = SessionStateBuilder::new().with_default_features().build();
    let elsewhere = rows().filter_map(|(call, _)| call.split('(').next());
    let ours = ADDED.into_iter().chain(elsewhere).map(str::to_owned);
    let theirs = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
    theirs.chain(state.window_functions().keys()).cloned().chain(ours).collect()
}

/// The functions that a slip of the pen most likely meant, of several that are as near.
const USUAL: [&str; 20] = [
    "count",
    "sum",
    "min",
    "max",
    "mean",
    "avg",
    "median",
    "unique",
    "top_k",
    "quantile",
    "collect",
    "date_trunc",
    "date_part",
    "date_bin",
    "lower",
    "upper",
    "coalesce",
    "substr",
    "make_date",
    "regexp_match",
];

/// The first of the names that are most like a word: one letter may differ, of six two. A short name is
/// like many others.
fn nearest<'a>(word: &str, names: &'a BTreeSet<String>) -> Option<&'a str> {
    names
        .iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), name.as_str()))
        .filter(|(distance, name)| {
            let letters = word.chars().count().min(name.chars().count());
            let is_short = word.chars().count() <= 3;
            !is_short && letters > 2 && *distance <= (letters / 3).clamp(1, 2)
        })
        .min_by_key(|(distance, name)| (*distance, !USUAL.contains(name)))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_there_is_stands_in_no_table() {
        let known = known();
        let elsewhere = ELSEWHERE.iter().chain(&AGGREGATES).flat_map(|(names, _)| names.iter());
        let mut names = BTreeSet::new();
        for name in elsewhere.chain(&OF_JSON) {
            assert!(!known.contains(*name), "{name}");
            assert!(names.insert(*name), "{name} twice");
        }
    }

    #[test]
    fn only_a_near_name_is_suggested_and_always_the_same() {
        for (name, expected) in [
            ("uniqe", "unknown function `uniqe`; did you mean `unique`?"),
            ("cuont", "unknown function `cuont`; did you mean `count`?"),
            ("cout", "unknown function `cout`; did you mean `count`?"),
            ("bin", "unknown function `bin`"),
            ("summ", "unknown function `summ`; did you mean `sum`?"),
            ("yaer", "unknown function `yaer`; did you mean `year`?"),
            ("lowr", "unknown function `lowr`; did you mean `lower`?"),
            ("date_prt", "unknown function `date_prt`; did you mean `date_part`?"),
            ("starts_wth", "unknown function `starts_wth`; did you mean `starts_with`?"),
            ("xyzzy", "unknown function `xyzzy`"),
            ("md6", "unknown function `md6`"),
            ("months_between", "unknown function `months_between`"),
            ("Year", "`Year` takes other arguments\nhint: it is called as year(ts)"),
            (
                "Epoch",
                "unknown function `Epoch`\nhint: it is written here as extract(epoch FROM ts)",
            ),
        ] {
            assert_eq!(refused(name).to_string(), expected);
        }
    }
}
