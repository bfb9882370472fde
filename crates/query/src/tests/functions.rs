//! Functions that Tidemill adds to SQL, and the replacements that it suggests for functions of other engines.

use tidemill_base::{Error, RunSettings};
use tidemill_dialect::statement::{check_syntax, parse_select};
use tidemill_dialect::translation::function_calls;
use tidemill_dialect::unknown_functions::{ADDED_AGGREGATES, FOREIGN_AGGREGATES, FOREIGN_SCALARS};
use tidemill_tables::aggregates::aggregate_functions::TidemillAggregate;
use tidemill_tables::sessions;

use crate::{Query, QueryPlan};

#[test]
fn added_function_names_match_sql_crate() {
    assert_eq!(ADDED_AGGREGATES, TidemillAggregate::ALL.map(TidemillAggregate::sql_name));
}

#[test]
fn unsupported_clauses_of_added_functions_are_refused() {
    let context = sessions::open_session(64 << 20, &RunSettings::new(64 << 20)).unwrap();
    for (sql, expected) in [
        ("SELECT collect(a, 3) FILTER (WHERE b) FROM t", None),
        ("SELECT collect(a, 3 ORDER BY b) FROM t", Some("`collect(… ORDER BY …)`")),
        ("SELECT collect(DISTINCT a, 5) FROM t", Some("`collect(DISTINCT …)`")),
    ] {
        let found = check_syntax(&parse_select(sql).unwrap(), &context);
        let found = found.map_err(|error| error.to_string());
        match expected {
            None => assert_eq!(found, Ok(()), "{sql}"),
            Some(expected) => assert!(found.unwrap_err().starts_with(expected), "{sql}"),
        }
    }
}

#[test]
fn suggested_replacements_of_functions_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.json");
    let row = "{\"ts\":\"2026-11-20T10:00:00\",\"d\":\"2026-11-20\",\"x\":\"2026-11-20\",\
               \"n\":5,\"c\":true,\"list\":[1,2]}\n";
    std::fs::write(&file, row).unwrap();
    for (names, written) in FOREIGN_SCALARS.iter().chain(&FOREIGN_AGGREGATES) {
        // This replacement is for text that holds a number.
        let written = written.replace("CAST(x AS BIGINT)", "CAST('7' AS BIGINT)");
        let query = Query {
            sql: format!("SELECT {written} AS z FROM '{}'", file.display()),
            schema: Some("ts TIMESTAMP, d DATE, x TEXT".into()),
            ..Query::default()
        };
        let settings = RunSettings::new(128 << 20);
        let rows = QueryPlan::new(&query, &settings).and_then(|plan| plan.run()?.collect());
        let rows: Result<Vec<_>, Error> = rows;
        assert!(rows.is_ok(), "{names:?}: {written}: {}", rows.unwrap_err());
    }
}

/// Calls of functions as documented, and the same calls with arguments that the file has.
const CALLS_WITH_LITERAL_ARGUMENTS: [(&str, &str); 52] = [
    ("convert_timezone(zone, other, ts)", "convert_timezone('UTC', 'Asia/Tokyo', ts)"),
    ("multisearchany(x, list)", "multisearchany(x, words)"),
    ("multisearchfirstindex(x, list)", "multisearchfirstindex(x, words)"),
    ("element_at(map, key)", "element_at(map('a', 1), 'a')"),
    ("arrayfirstindex(f, list)", "arrayfirstindex(e -> e > 1, list)"),
    ("arrayzip(x, …)", "arrayzip(list, words)"),
    ("arrayconcat(x, …)", "arrayconcat(list, [1], [2])"),
    ("array_replace(list, x, y)", "array_replace(list, 1, 2)"),
    ("list_replace(list, x, y)", "list_replace(list, 1, 2)"),
    ("list_where(list, other)", "list_where(list, [true, false])"),
    ("array_where(list, other)", "array_where(list, [true, false])"),
    ("l2distance(list, other)", "l2distance(list, [1, 1])"),
    ("arraydotproduct(list, other)", "arraydotproduct(list, [1, 1])"),
    ("bytehammingdistance(x, y)", "bytehammingdistance(x, x)"),
    ("mapcontains(m, k)", "mapcontains(map('a', 1), 'b')"),
    ("mapcontainskey(m, k)", "mapcontainskey(map('a', 1), 'b')"),
    ("map_contains(m, k)", "map_contains(map('a', 1), 'b')"),
    ("map_contains_key(m, k)", "map_contains_key(map('a', 1), 'b')"),
    ("map_contains_value(m, x)", "map_contains_value(map('a', 1), 1)"),
    ("map_from_arrays(list, other)", "map_from_arrays(words, list)"),
    ("mapfromarrays(list, other)", "mapfromarrays(words, list)"),
    ("map_concat(m, other)", "map_concat(map('a', 1), map('b', 2))"),
    ("laginframe(x)", "laginframe(x) OVER (ORDER BY n)"),
    ("laginframe(x, n)", "laginframe(x, 1) OVER (ORDER BY n)"),
    ("laginframe(x, n, y)", "laginframe(x, 1, '-') OVER (ORDER BY n)"),
    ("leadinframe(x)", "leadinframe(x) OVER (ORDER BY n)"),
    ("leadinframe(x, n)", "leadinframe(x, 1) OVER (ORDER BY n)"),
    ("leadinframe(x, n, y)", "leadinframe(x, 1, '-') OVER (ORDER BY n)"),
    ("retention(c, f)", "retention(c, n > 1)"),
    ("map_from_entries(list)", "map_from_entries([struct('a', 1)])"),
    ("str_to_map(x, part, separator)", "str_to_map(x, ',', ':')"),
    ("to_number(x)", "to_number('7.5')"),
    ("to_number(x, pattern)", "to_number('1,234', '9,999')"),
    ("throwif(c)", "throwif(n > 9)"),
    ("throwif(c, x)", "throwif(n > 9, x)"),
    ("toipv4(x)", "toipv4('10.0.0.1')"),
    ("jsonb_path_query_first(x, pattern)", "jsonb_path_query_first('[1]', '$[0]')"),
    ("json_query(x, pattern)", "json_query('[1]', '$[0]')"),
    ("hll_union(sketch, other_sketch)", "hll_union('\\x118b7f', '\\x118b7f')"),
    ("hll_union_agg(x)", "hll_union_agg('\\x118b7f')"),
    ("hll_add_agg(x, n)", "hll_add_agg(x, 12)"),
    ("hll_add_agg(x, n, k)", "hll_add_agg(x, 12, 5)"),
    ("maximum(x, n)", "maximum(x, 2)"),
    ("minimum(x, n)", "minimum(x, 2)"),
    ("maximum(x, n, weight)", "maximum(x, 2, m)"),
    ("minimum(x, n, weight)", "minimum(x, 2, m)"),
    ("sample(x, n)", "sample(x, 2)"),
    ("sample(x, n, seed)", "sample(x, 2, 7)"),
    ("weighted_sample(x, n, weight)", "weighted_sample(x, 2, m)"),
    ("weighted_sample(x, n, weight, seed)", "weighted_sample(x, 2, m, 7)"),
    ("id_set_union(x, y)", "id_set_union('\\x9100', '\\x9100')"),
    ("id_set_intersection(x, y)", "id_set_intersection('\\x9100', '\\x9100')"),
];

#[test]
fn functions_of_other_databases_run_under_their_own_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.json");
    let row = "{\"ts\":\"2026-11-20T10:00:00\",\"d\":\"2026-11-20\",\"x\":\"2026-11-20\",\
               \"n\":5,\"m\":2,\"c\":true,\"list\":[1,2],\"words\":[\"a\",\"b\"],\"s\":{\"a\":1}}\n";
    std::fs::write(&file, row).unwrap();
    // Literals in the place of arguments that are no columns.
    let literals = [
        ("pattern", "'2%'"),
        ("part", "'20'"),
        ("other", "'21'"),
        ("separator", "','"),
        ("fill", "' '"),
        ("unit", "'day'"),
        ("name", "'a'"),
        ("map", "MAP {'a': 1}"),
        ("key", "'a'"),
        ("q", "0.5"),
        ("k", "1"),
        ("first", "1"),
        ("seed", "7"),
        ("start", "0"),
        ("last", "3"),
        ("step", "1"),
        ("y", "'-'"),
        ("zone", "'UTC'"),
        ("span", "INTERVAL '1 day'"),
        ("…", "'b'"),
    ];
    let mut wrong = Vec::new();
    for (call, made) in function_calls::call_rewrites() {
        let (name, arguments) = call.trim_end_matches(')').split_once('(').unwrap();
        let of_list = arguments.contains("list");
        let argument = |argument: &str| match argument {
            "list" if made.contains("array_to_string") || made.contains("strpos") => {
                "words".to_owned()
            }
            "f" if made.contains("array_transform") => "e -> e + 1".to_owned(),
            "f" if made.contains("list_reduce") => "(a, b) -> a + b".to_owned(),
            "f" => "e -> e > 1".to_owned(),
            "other" if of_list => "[1]".to_owned(),
            "x" if of_list => "1".to_owned(),
            "x" if name.contains("int") || name.contains("float") || name == "double" => {
                "'7'".to_owned()
            }
            "x" if name == "boolean" || name == "tobool" => "'true'".to_owned(),
            "x" if made.trim_start_matches("CAST(").starts_with("decode") => "'YQ=='".to_owned(),
            "k" | "q" if of_list => "1".to_owned(),
            "m" if name.starts_with("map") => "map('a', 1)".to_owned(),
            other => {
                let literal = literals.iter().find(|(name, _)| *name == other);
                literal.map_or(other, |(_, literal)| literal).to_owned()
            }
        };
        let given: Vec<String> =
            arguments.split(", ").filter(|name| !name.is_empty()).map(argument).collect();
        let written = match CALLS_WITH_LITERAL_ARGUMENTS.iter().find(|(row, _)| *row == call) {
            Some((_, written)) => (*written).to_owned(),
            None => format!("{name}({})", given.join(", ")),
        };
        let query = Query {
            sql: format!("SELECT {written} AS z FROM '{}'", file.display()),
            schema: Some("ts TIMESTAMP, d DATE, x TEXT".into()),
            ..Query::default()
        };
        let settings = RunSettings::new(128 << 20);
        let rows = QueryPlan::new(&query, &settings).and_then(|plan| plan.run()?.collect());
        let rows: Result<Vec<_>, Error> = rows;
        wrong.extend(rows.err().map(|error| format!("{call}: {made}: {error}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
