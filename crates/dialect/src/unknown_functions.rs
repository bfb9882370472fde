//! Errors and suggestions for unknown functions.
//!
//! A misspelled name is recognised by its letters. Another engine's name for a function is often unlike
//! Tidemill's, and the nearest name would mislead. Tables list such names with Tidemill's expression; a test
//! runs each expression.

use std::collections::BTreeSet;

use datafusion::execution::SessionStateBuilder;
use tidemill_base::error::Error;

use crate::translation::function_calls::{call_rewrites, foreign_signatures};

/// Scalar functions of other engines, with Tidemill's expression over a number `n`, a text `x`, a time `ts`,
/// a day `d`, a condition `c` and a `list`.
pub const FOREIGN_SCALARS: [(&[&str], &str); 3] = [
    (&["parse_date"], "CAST(strptime('20/11/2026', '%d/%m/%Y') AS DATE)"),
    (&["time_slice"], "time_bucket(INTERVAL '5 minutes', ts)"),
    (&["try_cast", "safe_cast"], "TRY_CAST(x AS BIGINT)"),
];

/// Aggregates of other engines, with Tidemill's expression.
pub const FOREIGN_AGGREGATES: [(&[&str], &str); 2] =
    [(&["any"], "bool_or(c), any_value(x)"), (&["averageif"], "avg(n) FILTER (WHERE c)")];

/// Functions of other engines without an equivalent expression, with an alternative.
pub const FUNCTION_ALTERNATIVES: &[(&[&str], &str)] = &[
    // Aggregates.
    (
        &["histogram_numeric", "histogram_values"],
        "SELECT x, count(*) FROM t GROUP BY x counts each value, and width_bucket(n, 0, 100, 10) in place of x \
         each range of them; top_k(x, 10) is a list of the most frequent",
    ),
    (
        &["summap", "summapwithoverflow", "minmap", "maxmap"],
        "unnest the map's keys and values in a subquery, and GROUP BY the key",
    ),
    (&["deltasum"], "sum(n - before) of a subquery with lag(n) OVER (ORDER BY ts) AS before"),
    (
        &["simplelinearregression"],
        "regr_slope(y, x) and regr_intercept(y, x) are the two numbers of the line",
    ),
    (
        &["windowfunnel", "sequencematch", "sequencecount"],
        "min(ts) FILTER (WHERE c) of each step, GROUP BY user, and compare the times in the query \
         around it",
    ),
    (&["quantileexactexclusive", "quantileexactweighted"], "percentile_cont(n, 0.9) is exact, too"),
    (&["grouping_id"], "grouping(x) is 1 in the rows that are of all values of x"),
    (
        &["fill"],
        "last_value(x) IGNORE NULLS OVER (ORDER BY ts) takes the value before; regr_slope and \
         regr_intercept draw a line",
    ),
    (
        &["rownumberinallblocks", "rownumberinblock", "monotonically_increasing_id"],
        "row_number() OVER (ORDER BY ts) numbers rows",
    ),
    // Lists and structs.
    (
        &["posexplode", "posexplode_outer"],
        "SELECT unnest(list) AS col, unnest(range(0, array_length(list))) AS pos",
    ),
    (
        &["inline", "inline_outer"],
        "SELECT s['a'] AS a, s['b'] AS b FROM (SELECT unnest(list) AS s FROM t)",
    ),
    (&["stack"], "FROM (VALUES (1, 'a'), (2, 'b')) AS t(n, x) is a table of values"),
    (&["struct_concat"], "a struct's fields are written out: named_struct('a', s['a'], 'b', 2)"),
    (
        &["struct_values"],
        "list_transform(struct_entries(s), entry -> entry.value) is a list of a struct's values",
    ),
    (
        &["json_each", "jsonb_each"],
        "it stands in FROM: SELECT e.key, e.value FROM t, json_each(t.x) AS e; json_entries(x) is a list of the same",
    ),
    (
        &["json_each_text", "jsonb_each_text", "json_tree"],
        "FROM t, json_each(t.x) AS e has a row for each key, and e.value ->> '$' is a value as text",
    ),
    (
        &["arrayfill", "arrayreversefill", "arraysplit", "arrayreversesplit"],
        "unnest(list) makes rows of a list, and last_value(x) IGNORE NULLS OVER (…) looks back \
         from each",
    ),
    // Text.
    (&["soundex"], "jaro_winkler_similarity(x, y) says how alike two words are"),
    (
        &["stringjaccardindex", "ngramdistance"],
        "jaccard(x, y) compares the letters of two texts, levenshtein(x, y) their order, too",
    ),
    (&["normalize"], "nfc_normalize(x) composes letters and their marks"),
    (&["unistr"], "a letter is written as it is, or chr(233)"),
    (
        &["sentences"],
        "string_to_array(x, '. ') makes a list of sentences, and string_to_array(x, ' ') one of \
         words",
    ),
    (&["conv"], "to_hex(n) and bin(n) write a whole number in digits"),
    (
        &["urlhierarchy", "urlpathhierarchy"],
        "string_to_array(x, '/') makes a list of the parts, and array_to_string(array_slice(list, \
         1, 3), '/') the beginning of it",
    ),
    (
        &["randstr", "randomstring", "randomprintableascii"],
        "uuid() is a text by chance, and substr(uuid(), 1, 8) a shorter one",
    ),
    (
        &["cityhash64", "siphash64", "farmhash64", "murmurhash3_64", "metrohash64"],
        "xxhash64(x) and hash(x) are hashes of 64 bits",
    ),
    (
        &["reinterpretasstring", "reinterpretasint64", "reinterpretasuint64"],
        "CAST(x AS TEXT) writes a value, and to_hex(n) its bytes",
    ),
    (&["touuid", "touuidornull"], "a UUID is a TEXT here: lower(x) compares two of them"),
    (&["formatreadabletimedelta"], "n * INTERVAL '1 second' is a span of time"),
    // Times.
    (
        &["justify_days", "justify_hours", "justify_interval"],
        "days of a month are not counted together: a time plus the span says where it ends",
    ),
    (
        &["try_to_timestamp", "to_timestamp_ntz", "parsedatetimeornull"],
        "strptime('20/11/2026', '%d/%m/%Y') reads a format, try_strptime gives NULL for a text \
         that is none of it",
    ),
    (&["make_interval"], "make_interval(days => 10, hours => 2), or INTERVAL '10 days 2 hours'"),
    (&["toweek", "toyearweek"], "toISOWeek(ts) counts weeks from Monday, by ISO 8601"),
    // JSON.
    (
        &[
            "from_json",
            "json_transform",
            "json_structure",
            "schema_of_json",
            "json_transform_strict",
        ],
        "--promote makes columns with types of JSON in a text; json_extract_string(x, '$.a') \
         takes a field out of it",
    ),
    (&["jsontype"], "json_type(x, '$.a') is the type of a field"),
    (
        &["json_contains", "jsonb_contains"],
        "json_extract_string(x, '$.a') = 'value' compares a field",
    ),
    (
        &["json_merge_patch", "json_pretty", "jsonb_set", "jsonb_insert", "jsonb_pretty"],
        "json_object('a', 1) writes JSON; that of a text stays as it is",
    ),
    // PostgreSQL's `hll`.
    (
        &[
            "hll_hash_bigint",
            "hll_hash_integer",
            "hll_hash_smallint",
            "hll_hash_text",
            "hll_hash_bytea",
            "hll_hash_boolean",
            "hll_hash_any",
        ],
        "values are hashed within: hll_sketch(x) takes them as they are",
    ),
    (
        &["hll_empty", "hll_add"],
        "hll_sketch(x) makes a sketch of a column, hll_union(a, b) one of two",
    ),
    (
        &["hll_print", "hll_log2m", "hll_regwidth", "hll_type"],
        "tidemill hll info '\\x…' tells what is in a sketch",
    ),
    // Sketches, sets and samples of other systems.
    (
        &[
            "approx_set",
            "hll_sketch_agg",
            "hll_init_agg",
            "hll_accumulate",
            "uniqstate",
            "uniqcombinedstate",
        ],
        "hll_sketch(x) makes a sketch of a column, hll_union(s) one of many, and \
         hll_cardinality(s) counts",
    ),
    (
        &["hll_combine", "hll_combine_agg", "hll_merge_agg", "uniqmerge", "uniqcombinedmerge"],
        "hll_cardinality(hll_union(s)) counts stored sketches together",
    ),
    (&["hll_sketch_estimate", "hll_estimate"], "hll_cardinality(s)"),
    (
        &["uniqexactstate", "uniqexactmerge", "uniqexactmergestate"],
        "id_set(x) makes an exact set of whole numbers, id_set_union(s) unites stored ones, and \
         id_set_cardinality(s) counts",
    ),
    (
        &[
            "ds_theta",
            "theta_sketch",
            "theta_sketch_agg",
            "theta_union",
            "theta_sketch_union",
            "ds_theta_union",
            "uniqthetastate",
        ],
        "hll_sketch(x) makes a sketch of a column, and hll_intersection(a, b) estimates what two have \
         in common",
    ),
    (
        &["groupbitmap", "bitmap_count", "bitmapcardinality", "rb_cardinality"],
        "unique_exact(x) counts exactly; id_set_cardinality(s) of a stored set",
    ),
    (
        &["groupbitmapstate", "bitmap_construct_agg", "rb_build_agg", "bitmap_agg", "bitmapbuild"],
        "id_set(x) makes a set of whole numbers",
    ),
    (
        &[
            "groupbitmapor",
            "groupbitmaporstate",
            "groupbitmapmerge",
            "groupbitmapmergestate",
            "bitmap_or_agg",
            "rb_or_agg",
            "bitmap_union",
        ],
        "id_set_union(s) unites stored sets, of many rows or of two columns",
    ),
    (
        &["groupbitmapand", "groupbitmapandstate", "bitmap_and_agg", "rb_and_agg"],
        "id_set_intersection(s)",
    ),
    (
        &["grouparraysample", "reservoir_sample", "approx_sample", "array_sample"],
        "sample(x, n), and weighted_sample(x, n, weight)",
    ),
    (
        &[
            "approx_most_frequent",
            "approx_top_count",
            "approx_top_sum",
            "approx_topk",
            "space_saving",
        ],
        "top_k(x, k), or top_k(x, k, weight)",
    ),
    (&["max_n", "maxn", "top_n"], "maximum(x, n)"),
    (&["min_n", "minn", "bottom_n"], "minimum(x, n)"),
    // Functions that return no value of a row.
    (
        &["hostname", "fqdn", "currentdatabase", "current_database", "database"],
        "leave it out: a query reads files, and knows no server",
    ),
    (&["setseed"], "leave it out: random() begins anew with each query"),
    (&["getvariable", "getsetting"], "a value from outside is a parameter: $x with --param x=1"),
    (&["ignore"], "leave it out: it is always 0"),
    (&["in", "notin", "globalin"], "x IN (1, 2)"),
    (&["sleep", "pg_sleep"], "leave it out"),
    (&["nextval", "currval", "lastval"], "row_number() OVER (ORDER BY ts) numbers rows"),
];

/// Returns the error for an unknown function.
pub fn unknown_function_error(name: &str) -> Error {
    let message = format!("unknown function `{name}`");
    let folded = name.to_lowercase();
    let elsewhere = FOREIGN_SCALARS.iter().chain(&FOREIGN_AGGREGATES);
    if let Some((_, written)) =
        elsewhere.into_iter().find(|(names, _)| names.contains(&folded.as_str()))
    {
        return Error::usage_with_hint(message, format!("it is written here as {written}"));
    }
    if let Some(text) = function_alternative(&folded) {
        return Error::usage_with_hint(message, text);
    }
    let calls = foreign_signatures(&folded);
    if !calls.is_empty() {
        return Error::usage_with_hint(
            format!("`{name}` takes other arguments"),
            format!("it is called as {}", calls.join(", ")),
        );
    }
    match nearest_function(&folded, &known_function_names()) {
        Some(meant) => Error::usage(format!("{message}; did you mean `{meant}`?")),
        None => Error::usage_with_hint(
            message,
            "docs/reference/functions.md has all that there are; a program of your own runs over records by \
             --source-exec",
        ),
    }
}

/// Returns the alternative to a function that has no equivalent expression.
pub(crate) fn function_alternative(name: &str) -> Option<&'static str> {
    FUNCTION_ALTERNATIVES.iter().find(|(names, _)| names.contains(&name)).map(|(_, text)| *text)
}

/// Aggregates that Tidemill adds to those of DataFusion.
pub const ADDED_AGGREGATES: [&str; 15] = [
    "unique",
    "hll_sketch",
    "hll_union",
    "top_k",
    "quantile",
    "histogram",
    "bootstrap_sum",
    "unique_exact",
    "id_set",
    "id_set_union",
    "id_set_intersection",
    "distinct_values",
    "distinct_sample",
    "inverse_histogram",
    "collect",
];

/// Returns the names of all functions that a query can call, in order.
fn known_function_names() -> BTreeSet<String> {
    let state = SessionStateBuilder::new().with_default_features().build();
    let elsewhere = call_rewrites().filter_map(|(call, _)| call.split('(').next());
    let ours = ADDED_AGGREGATES.into_iter().chain(elsewhere).map(str::to_owned);
    let native = tidemill_functions::scalar_functions().flat_map(|function| {
        let names =
            std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str));
        names.map(str::to_owned).collect::<Vec<_>>()
    });
    let theirs = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
    theirs.chain(state.window_functions().keys()).cloned().chain(ours).chain(native).collect()
}

/// Functions that are preferred among several equally near suggestions.
const COMMON_FUNCTIONS: [&str; 20] = [
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

/// Returns the first of the names that are nearest to a word. One letter may differ, of six letters two. A
/// short name is near to many others, so it gets no suggestion.
fn nearest_function<'a>(word: &str, names: &'a BTreeSet<String>) -> Option<&'a str> {
    names
        .iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), name.as_str()))
        .filter(|(distance, name)| {
            let letters = word.chars().count().min(name.chars().count());
            let is_short = word.chars().count() <= 3;
            !is_short && letters > 2 && *distance <= (letters / 3).clamp(1, 2)
        })
        .min_by_key(|(distance, name)| (*distance, !COMMON_FUNCTIONS.contains(name)))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_list_no_known_function() {
        let known = known_function_names();
        let elsewhere =
            FOREIGN_SCALARS.iter().chain(&FOREIGN_AGGREGATES).flat_map(|(names, _)| names.iter());
        let mut names = BTreeSet::new();
        let instead = FUNCTION_ALTERNATIVES.iter().flat_map(|(names, _)| names.iter());
        for name in elsewhere.chain(instead) {
            assert!(!known.contains(*name), "{name}");
            assert!(names.insert(*name), "{name} twice");
        }
    }

    #[test]
    fn only_near_names_are_suggested_deterministically() {
        for (name, expected) in [
            ("uniqe", "unknown function `uniqe`; did you mean `unique`?"),
            ("cuont", "unknown function `cuont`; did you mean `count`?"),
            ("cout", "unknown function `cout`; did you mean `count`?"),
            ("bin", "unknown function `bin`\nhint: docs/reference/functions.md has all"),
            ("summ", "unknown function `summ`; did you mean `sum`?"),
            ("yaer", "unknown function `yaer`; did you mean `year`?"),
            ("lowr", "unknown function `lowr`; did you mean `lower`?"),
            ("date_prt", "unknown function `date_prt`; did you mean `date_part`?"),
            ("starts_wth", "unknown function `starts_wth`; did you mean `starts_with`?"),
            ("xyzzy", "unknown function `xyzzy`\nhint: docs/reference/functions.md has all"),
            ("md6", "unknown function `md6`\nhint: docs/reference/functions.md has all"),
            ("Year", "`Year` takes other arguments\nhint: it is called as year(ts)"),
            (
                "hostName",
                "unknown function `hostName`\nhint: leave it out: a query reads files, and knows no server",
            ),
        ] {
            let found = unknown_function_error(name).to_string();
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
