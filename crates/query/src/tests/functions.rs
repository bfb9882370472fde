//! The functions that SQL gains, and what is written here for those of other engines.

use tidemill_base::{Error, Settings};
use tidemill_sql::dialects::calls;
use tidemill_sql::statement::{honoured, one_select};
use tidemill_sql::unknown_functions::{ADDED, AGGREGATES, ELSEWHERE};
use tidemill_tables::added::Added;
use tidemill_tables::sessions;

use crate::{Plan, Query};

#[test]
fn the_functions_that_sql_gains_are_known_by_name() {
    assert_eq!(ADDED, Added::ALL.map(Added::name));
}

#[test]
fn what_an_added_function_does_not_take_is_refused_by_name() {
    let context = sessions::open(64 << 20, &Settings::new(64 << 20)).unwrap();
    for (sql, expected) in [
        ("SELECT collect(a, 3) FILTER (WHERE b) FROM t", None),
        ("SELECT collect(a, 3 ORDER BY b) FROM t", Some("`collect(… ORDER BY …)`")),
        ("SELECT collect(DISTINCT a, 5) FROM t", Some("`collect(DISTINCT …)`")),
    ] {
        let found = honoured(&one_select(sql).unwrap(), &context);
        let found = found.map_err(|error| error.to_string());
        match expected {
            None => assert_eq!(found, Ok(()), "{sql}"),
            Some(expected) => assert!(found.unwrap_err().starts_with(expected), "{sql}"),
        }
    }
}

#[test]
fn what_is_written_here_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.json");
    let row = "{\"ts\":\"2026-11-20T10:00:00\",\"d\":\"2026-11-20\",\"x\":\"2026-11-20\",\
               \"n\":5,\"c\":true,\"list\":[1,2]}\n";
    std::fs::write(&file, row).unwrap();
    for (names, written) in ELSEWHERE.iter().chain(&AGGREGATES) {
        // A number in a text is what this one is for.
        let written = written.replace("CAST(x AS BIGINT)", "CAST('7' AS BIGINT)");
        let query = Query {
            sql: format!("SELECT {written} AS z FROM '{}'", file.display()),
            schema: Some("ts TIMESTAMP, d DATE, x TEXT".into()),
            ..Query::default()
        };
        let settings = Settings::new(128 << 20);
        let rows = Plan::new(&query, &settings).and_then(|plan| plan.run()?.collect());
        let rows: Result<Vec<_>, Error> = rows;
        assert!(rows.is_ok(), "{names:?}: {written}: {}", rows.unwrap_err());
    }
}

#[test]
fn functions_of_other_databases_are_answered_as_they_are_called_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.json");
    let row = "{\"ts\":\"2026-11-20T10:00:00\",\"d\":\"2026-11-20\",\"x\":\"2026-11-20\",\
               \"n\":5,\"m\":2,\"c\":true,\"list\":[1,2],\"words\":[\"a\",\"b\"],\"s\":{\"a\":1}}\n";
    std::fs::write(&file, row).unwrap();
    // What stands for an argument that is no column.
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
        ("last", "3"),
        ("step", "1"),
        ("y", "'-'"),
        ("…", "'b'"),
    ];
    let mut wrong = Vec::new();
    for (call, made) in calls::rows() {
        let (name, arguments) = call.trim_end_matches(')').split_once('(').unwrap();
        let of_list = arguments.contains("list");
        let argument = |argument: &str| match argument {
            "list" if made.contains("array_to_string") => "words".to_owned(),
            "f" if made.contains("array_transform") => "e -> e + 1".to_owned(),
            "f" => "e -> e > 1".to_owned(),
            "other" if of_list => "[1]".to_owned(),
            "x" if of_list => "1".to_owned(),
            "x" if name.contains("int") || name.contains("float") || name == "double" => {
                "'7'".to_owned()
            }
            "x" if name == "boolean" => "'true'".to_owned(),
            "x" if made.starts_with("decode") => "'YQ=='".to_owned(),
            "k" | "q" if of_list => "1".to_owned(),
            other => {
                let literal = literals.iter().find(|(name, _)| *name == other);
                literal.map_or(other, |(_, literal)| literal).to_owned()
            }
        };
        let given: Vec<String> =
            arguments.split(", ").filter(|name| !name.is_empty()).map(argument).collect();
        let query = Query {
            sql: format!("SELECT {name}({}) AS z FROM '{}'", given.join(", "), file.display()),
            schema: Some("ts TIMESTAMP, d DATE, x TEXT".into()),
            ..Query::default()
        };
        let settings = Settings::new(128 << 20);
        let rows = Plan::new(&query, &settings).and_then(|plan| plan.run()?.collect());
        let rows: Result<Vec<_>, Error> = rows;
        wrong.extend(rows.err().map(|error| format!("{call}: {made}: {error}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
