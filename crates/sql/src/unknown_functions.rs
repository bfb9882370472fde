//! What was meant by a function that there is not.
//!
//! A slip of the pen is told by its letters. The name that another engine has for something is not
//! like ours at all, and what is nearest to it misleads: for these there is a table of what is
//! written here, each row of which a test runs.

use std::collections::BTreeSet;

use datafusion::execution::SessionStateBuilder;
use tidemill_base::error::Error;

/// Functions of other engines, and what is written here: of a number `n`, a text `x`, a time `ts`, a day
/// `d`, a condition `c`, a `list`.
pub const ELSEWHERE: [(&[&str], &str); 67] = [
    (&["year"], "extract(year FROM ts)"),
    (&["quarter"], "extract(quarter FROM ts)"),
    (&["month"], "extract(month FROM ts)"),
    (&["week", "weekofyear"], "extract(week FROM ts)"),
    (&["day", "dayofmonth", "day_of_month"], "extract(day FROM ts)"),
    (&["dayofweek", "day_of_week", "weekday", "dow"], "extract(dow FROM ts)"),
    (&["isodow"], "extract(isodow FROM ts)"),
    (&["dayofyear", "day_of_year", "doy"], "extract(doy FROM ts)"),
    (&["hour"], "extract(hour FROM ts)"),
    (&["minute"], "extract(minute FROM ts)"),
    (&["second"], "extract(second FROM ts)"),
    (&["epoch", "unix_timestamp", "to_epoch", "tounixtimestamp"], "extract(epoch FROM ts)"),
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
    (&["date", "todate"], "CAST(ts AS DATE)"),
    (&["timestamp", "datetime", "todatetime"], "CAST(x AS TIMESTAMP)"),
    (&["date_diff", "datediff", "timestampdiff"], "extract(epoch FROM ts - ts)"),
    (&["date_add", "dateadd", "adddate", "timestampadd"], "d + INTERVAL '1 day'"),
    (&["date_sub", "datesub", "subdate"], "d - INTERVAL '1 day'"),
    (&["add_months"], "d + INTERVAL '1 month'"),
    (&["last_day", "eomonth"], "date_trunc('month', d) + INTERVAL '1 month' - INTERVAL '1 day'"),
    (&["time_bucket", "time_slice"], "date_bin(INTERVAL '5 minutes', ts, TIMESTAMP '2000-01-03')"),
    (&["getdate", "sysdate", "current_datetime"], "now()"),
    (&["mod", "modulo"], "n % 2"),
    (&["div"], "n / 2"),
    (&["sign"], "signum(n)"),
    (&["truncate"], "trunc(n)"),
    (&["safe_divide"], "n / nullif(n, 0)"),
    (&["zeroifnull"], "coalesce(n, 0)"),
    (&["isnull"], "x IS NULL"),
    (&["if", "iif", "iff"], "CASE WHEN c THEN n ELSE 0 END"),
    (&["len", "str_len"], "length(x)"),
    (&["strlen"], "octet_length(x)"),
    (&["ucase"], "upper(x)"),
    (&["lcase"], "lower(x)"),
    (&["mid"], "substr(x, 2, 3)"),
    (&["locate", "charindex"], "strpos(x, 'part')"),
    (&["space"], "repeat(' ', n)"),
    (&["ord"], "ascii(x)"),
    (&["hex"], "encode(x, 'hex')"),
    (&["unhex"], "decode('6162', 'hex')"),
    (&["ceiling"], "ceil(n)"),
    (&["ilike"], "x ILIKE 'a%'"),
    (&["try_cast", "safe_cast"], "TRY_CAST(x AS BIGINT)"),
    (&["typeof", "pg_typeof"], "arrow_typeof(x)"),
    (&["like"], "x LIKE 'a%'"),
    (&["prefix"], "starts_with(x, 'a')"),
    (&["suffix"], "ends_with(x, 'a')"),
    (&["regexp_matches", "regexp_contains", "rlike", "regexp"], "x ~ 'pattern'"),
    (&["regexp_full_match"], "x ~ '^(pattern)$'"),
    (&["regexp_extract", "regexp_substr"], "regexp_match(x, '(pattern)')[1]"),
    (&["string_split", "str_split", "split"], "string_to_array(x, ',')"),
    (&["to_int", "toint", "tointeger", "to_number"], "CAST(x AS BIGINT)"),
    (&["to_string", "tostring", "str"], "CAST(n AS TEXT)"),
    (&["explode"], "unnest(list)"),
    (&["size", "array_size"], "array_length(list)"),
    (&["list", "grouparray"], "array_agg(x)"),
    (&["list_min"], "array_min(list)"),
    (&["list_reverse_sort", "array_reverse_sort"], "array_sort(list, 'DESC')"),
    (&["group_concat", "listagg"], "string_agg(x, ',')"),
    (&["arg_max", "argmax", "max_by"], "first_value(x ORDER BY n DESC NULLS LAST)"),
];

/// The same, of aggregates.
pub const AGGREGATES: [(&[&str], &str); 12] = [
    (&["arg_min", "argmin", "min_by"], "first_value(x ORDER BY n)"),
    (&["first", "any"], "first_value(x ORDER BY ts)"),
    (&["last"], "last_value(x ORDER BY ts)"),
    (&["mode"], "top_k(x, 1)[1]['value']"),
    (&["quantile_disc"], "quantile(n, 0.9)"),
    (&["variance"], "var(n)"),
    (&["approx_quantile", "approx_percentile", "percentile"], "quantile(n, 0.9)"),
    (&["count_if", "countif"], "count() FILTER (WHERE c)"),
    (&["sum_if", "sumif"], "sum(n) FILTER (WHERE c)"),
    (&["avg_if", "avgif", "averageif"], "avg(n) FILTER (WHERE c)"),
    (&["count_distinct", "countd", "uniqexact"], "count(DISTINCT x)"),
    (&["approx_count_distinct", "uniq", "ndv"], "unique(x)"),
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
        let first = if written.contains("(dow ") { ", which is 0 on Sundays" } else { "" };
        return Error::usage_hint(message, format!("it is written here as {written}{first}"));
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

/// The names of all functions, in order.
fn known() -> BTreeSet<String> {
    let state = SessionStateBuilder::new().with_default_features().build();
    let ours = ADDED.into_iter().map(str::to_owned);
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
            ("lowr", "unknown function `lowr`; did you mean `lower`?"),
            ("date_prt", "unknown function `date_prt`; did you mean `date_part`?"),
            ("startswith", "unknown function `startswith`; did you mean `starts_with`?"),
            ("xyzzy", "unknown function `xyzzy`"),
            ("md6", "unknown function `md6`"),
            ("months_between", "unknown function `months_between`"),
            ("Year", "unknown function `Year`\nhint: it is written here as extract(year FROM ts)"),
        ] {
            assert_eq!(refused(name).to_string(), expected);
        }
    }
}
