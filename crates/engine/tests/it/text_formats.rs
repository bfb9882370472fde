//! Tests of the text formats, and of the input that they skip: rows that a comparison drops, and fields of
//! nested columns that the query does not name.

use std::fmt::Write as _;

use proptest::prelude::*;
use tidemill_engine::Query;
use tidemill_engine::source::{Format, SourceSpec, TextOptions, TypeMismatchPolicy};

use crate::common::{Folder, query, run_query, settings};

fn query_as_format(format: Format, sql: String) -> Query {
    Query { file_defaults: SourceSpec { format: Some(format), ..Default::default() }, ..query(sql) }
}

fn query_rows(query: &Query) -> Vec<Vec<String>> {
    run_query(query, &settings()).unwrap_or_else(|error| panic!("{}: {error}", query.sql)).rows()
}

#[test]
fn text_formats_are_parsed_into_columns() {
    let folder = Folder::new();
    folder.write(
        "access",
        "10.0.0.1 - ann [10/Oct/2026:13:55:36 -0700] \"GET /a b HTTP/1.1\" 200 7 \"-\" \"curl\"\n\
         10.0.0.2 - - [10/Oct/2026:13:55:37 -0700] \"-\" 408 - \"-\" \"-\"\n",
    );
    folder.write(
        "sys",
        "<34>1 2026-10-11T22:14:15.003Z web1 su 77 ID47 [x@1 user=\"ann\"] failed\n\
         <13>Oct 11 22:14:16 web2 cron[9]: done\n",
    );
    folder.write("fmt", "n=1 level=info msg=\"all well\"\nn=2 slow\n");
    folder.write("array.json", "[{\"n\": 1, \"x\": {\"y\": [1,\n2]}},\n {\"n\": 2}]\n");
    for (format, sql, expected) in [
        (
            Format::AccessLog,
            "SELECT user, path, status, bytes, ts FROM '$/access'",
            vec![
                vec!["ann", "/a b", "200", "7", "2026-10-10T20:55:36Z"],
                vec!["∅", "∅", "408", "∅", "2026-10-10T20:55:37Z"],
            ],
        ),
        (
            Format::Syslog,
            "SELECT severity, host, app, pid, data['x@1.user'], message FROM '$/sys'",
            vec![
                vec!["2", "web1", "su", "77", "ann", "failed"],
                vec!["5", "web2", "cron", "9", "∅", "done"],
            ],
        ),
        (
            Format::Logfmt,
            "SELECT n + 1, level, msg, slow FROM '$/fmt'",
            vec![vec!["2", "info", "all well", "∅"], vec!["3", "∅", "∅", "true"]],
        ),
        (
            Format::Json,
            "SELECT n, x['y'][2] FROM '$/array.json'",
            vec![vec!["1", "2"], vec!["2", "∅"]],
        ),
    ] {
        let query = query_as_format(format, folder.substitute_path(sql));
        assert_eq!(query_rows(&query), expected, "{sql}");
    }
}

#[test]
fn truncated_json_array_is_an_error_and_bad_items_are_located() {
    let folder = Folder::new();
    folder.write("cut.json", "[{\"n\": 1},\n{\"n\": 2}");
    let error = folder.sql_error("SELECT n FROM '$/cut.json'");
    assert!(error.contains("ends before the array does"), "{error}");
    folder.write("bad.json", "[{\"n\": 1},\n{\"n\": tru}]\n");
    let error = folder.sql_error("SELECT n FROM '$/bad.json'");
    assert!(error.contains("line 2") && error.contains("not valid JSON"), "{error}");
}

#[test]
fn json_objects_are_read_with_any_separator() {
    let folder = Folder::new();
    for text in [
        "{\"n\": 1}{\"n\": 2}",
        "{\n  \"n\": 1\n}\n{\n  \"n\": 2\n}\n",
        "\u{1e}{\"n\": 1}\n\u{1e}{\"n\": 2}\n",
        "{\"n\": 1},\n{\"n\": 2},\n",
        "[{\"n\": 1}]\n[{\"n\": 2}]\n",
    ] {
        folder.write("a.json", text);
        let answer = folder.run_sql("SELECT count(*), sum(n) FROM '$/a.json'");
        assert_eq!(answer.rows(), [["2", "3"]], "{text:?}");
    }
}

#[test]
fn unsampled_json_key_is_reported_and_can_be_declared() {
    let folder = Folder::new();
    let mut text: String = (0..40_000).map(|n| format!("{{\"a\":{n}}}\n")).collect();
    text.push_str("{\"a\":1,\"late\":2}\n");
    folder.write("a.json", text);
    let answer = folder.run_sql("SELECT count(*) FROM '$/a.json'");
    let keys = &answer.coverage.unknown_keys.keys;
    assert_eq!(keys.len(), 1);
    assert_eq!((keys[0].key.as_str(), keys[0].count, keys[0].line), ("late", 1, Some(40_001)));
    let warning = answer.coverage.unknown_keys.warning().unwrap();
    assert!(warning.contains("--schema 'late TEXT'"), "{warning}");
    let error = folder.sql_error("SELECT late FROM '$/a.json'");
    assert!(error.contains("no sampled record has `late`"), "{error}");
    assert!(error.contains("--schema 'late TEXT'"), "{error}");
    let mut query = query(folder.substitute_path("SELECT max(late) FROM '$/a.json'"));
    query.schema = Some("late BIGINT".into());
    assert_eq!(query_rows(&query), [["2"]]);
}

#[test]
fn large_json_array_is_read_completely() {
    let folder = Folder::new();
    let mut array = String::from("[");
    for n in 0..150_000 {
        write!(array, "{}{{\"n\": {n}, \"pad\": \"{n:0>120}\"}}", if n == 0 { "" } else { ",\n" })
            .unwrap();
    }
    array.push_str("]\n");
    folder.write("large.json", array);
    let answer = folder.run_sql("SELECT count(*), sum(n) FROM '$/large.json'");
    assert_eq!(answer.rows(), [["150000", "11249925000"]]);
}

#[test]
fn strict_option_validates_unread_columns() {
    let folder = Folder::new();
    folder.write("lax.json", "{\"a\": 1, \"b\": 1}\n{\"a\": 2, \"b\": 01}\n");
    let mut query = query(folder.substitute_path("SELECT a FROM '$/lax.json'"));
    assert_eq!(query_rows(&query), [["1"], ["2"]]);
    query.file_defaults.text_options = TextOptions { strict: Some(true), ..Default::default() };
    let error = run_query(&query, &settings()).err().unwrap().to_string();
    assert!(error.contains("line 2"), "{error}");
}

#[test]
fn schema_can_declare_zones_and_unsampled_keys() {
    let folder = Folder::new();
    folder.write("z.csv", "t\n2026-01-02T03:04:05+02:00\n2026-01-02 03:04:05\n");
    let mut query = query(folder.substitute_path("SELECT t FROM '$/z.csv'"));
    query.schema = Some("t TIMESTAMP(6) WITH TIME ZONE".into());
    assert_eq!(query_rows(&query), [["2026-01-02T01:04:05Z"], ["2026-01-02T03:04:05Z"]]);
    folder.write("k.json", "{\"a\": 1}\n");
    query.sql = folder.substitute_path("SELECT a, late FROM '$/k.json'");
    query.schema = Some("late BIGINT".into());
    assert_eq!(query_rows(&query), [["1", "∅"]]);
}

#[test]
fn type_mismatch_is_null_when_configured() {
    let folder = Folder::new();
    folder.write("m.csv", "n,x\n1,2\noops,3\n");
    folder.write("m.json", "{\"n\": 1}\n{\"n\": {\"a\": 1}}\n{\"n\": \"x\"}\n");
    for (file, expected) in [("m.csv", "1 2"), ("m.json", "1 3")] {
        let mut query =
            query(folder.substitute_path(&format!("SELECT count(n), count(*) FROM '$/{file}'")));
        query.schema = Some("n BIGINT".into());
        assert!(run_query(&query, &settings()).is_err());
        query.file_defaults.text_options =
            TextOptions { mismatch: Some(TypeMismatchPolicy::Null), ..Default::default() };
        assert_eq!(query_rows(&query)[0].join(" "), expected, "{file}");
    }
}

#[test]
fn only_named_fields_of_nested_columns_are_read() {
    let folder = Folder::new();
    // A field that cannot be read, next to one that can: it is an error only if a query reads it.
    let mut lines = String::new();
    for n in 0..50 {
        writeln!(lines, "{{\"s\": {{\"a\": {n}, \"b\": {{\"c\": {n}, \"d\": {n}}}}}}}").unwrap();
    }
    lines.push_str("{\"s\": {\"a\": 50, \"b\": {\"c\": 50, \"d\": \"no number\"}}}\n");
    folder.write("nested.json", lines);
    let schema = Some("s STRUCT<a BIGINT, b STRUCT<c BIGINT, d BIGINT>>".to_string());
    let asked = |sql: &str| {
        let query = Query { schema: schema.clone(), ..query(folder.substitute_path(sql)) };
        run_query(&query, &settings()).map(|answer| answer.rows())
    };
    for (sql, expected) in [
        ("SELECT sum(s['a']), sum(s['b']['c']) FROM '$/nested.json'", "1275 1275"),
        ("SELECT s['b']['c'] FROM '$/nested.json' WHERE s['a'] = 7", "7"),
        ("SELECT sum(x) FROM (SELECT s['a'] AS x FROM '$/nested.json')", "1275"),
        ("SELECT (SELECT max(s['a']) FROM '$/nested.json')", "50"),
    ] {
        assert_eq!(asked(sql).unwrap()[0].join(" "), expected, "{sql}");
    }
    for sql in [
        "SELECT sum(s['b']['d']) FROM '$/nested.json'",
        "SELECT s FROM '$/nested.json'",
        "SELECT * FROM '$/nested.json'",
        "SELECT count(b['c']) FROM (SELECT s['b'] AS b FROM '$/nested.json')",
        "SELECT s['a'] FROM '$/nested.json' ORDER BY s['b']['d']",
    ] {
        let error = asked(sql).unwrap_err().to_string();
        assert!(error.contains("s.b.d"), "{sql}: {error}");
    }
}

#[test]
fn filtered_row_is_counted_without_reading_other_columns() {
    let folder = Folder::new();
    folder.write("a.csv", "k,x\na,1\nb,oops\na,3\n");
    let asked = |sql: &str| {
        run_query(
            &Query { schema: Some("x BIGINT".into()), ..query(folder.substitute_path(sql)) },
            &settings(),
        )
    };
    let answer = asked("SELECT sum(x) FROM '$/a.csv' WHERE k = 'a'").unwrap();
    assert_eq!((answer.rows(), answer.coverage.rows.done), (vec![vec!["4".to_string()]], 3));
    assert!(asked("SELECT sum(x) FROM '$/a.csv' WHERE k = 'b'").is_err());
    assert!(asked("SELECT sum(x) FROM '$/a.csv' WHERE k || '' = 'a'").is_err());
}

#[test]
fn columns_are_read_by_name_in_input_order() {
    let folder = Folder::new();
    let path = folder.write("c.json", "{\"a\": {\"b\": 1}, \"q\\\"\": 2}\n{\"a\": {\"b\": 3}}\n");
    let spec = || SourceSpec { url: path.display().to_string(), ..Default::default() };
    let columns = ["q\"", "a.b"].map(String::from);
    let query = Query::select_columns(spec(), Some(&columns), Some("a['b'] > 0 -- all")).unwrap();
    assert_eq!(query_rows(&query), [["2", "1"], ["∅", "3"]]);
    assert_eq!(query_rows(&Query::select_columns(spec(), None, None).unwrap()).len(), 2);
    assert!(Query::select_columns(spec(), Some(&[]), None).is_err());
    for condition in ["1 = 1) OR (2", "a GROUP BY 1", "", "a; DROP"] {
        let error = Query::select_columns(spec(), None, Some(condition)).err().unwrap().to_string();
        assert!(error.contains("is not a condition"), "{condition}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(15))]

    /// A filter that is pushed down decides as the filter itself; `coalesce` keeps it from being pushed.
    #[test]
    fn filters_give_the_same_rows_pushed_down_or_not(
        values in prop::collection::vec((0i64..6, prop::option::of(-2i64..3), 0usize..5), 1..60),
        limit in -2i64..4,
    ) {
        let folder = Folder::new();
        let (mut csv, mut json) = (String::from("n,x,t,f\n"), String::new());
        let texts = ["", "a", "b", "a long one, beyond a view", "é"];
        let floats = ["0.0", "-0.0", "NaN", "1.5", "-2"];
        for (n, x, t) in &values {
            let x_csv = x.map_or(String::new(), |x| x.to_string());
            let x_json = x.map_or("null".to_string(), |x| x.to_string());
            writeln!(csv, "{n},{x_csv},\"{}\",{}", texts[*t], floats[*t]).unwrap();
            writeln!(json, "{{\"n\": {n}, \"x\": {x_json}, \"t\": {:?}, \"f\": {}}}", texts[*t],
                floats[*t].replace("NaN", "null")).unwrap();
        }
        folder.write("v.csv", csv);
        folder.write("v.json", json);
        let schema = Some("n BIGINT, x BIGINT, t TEXT, f DOUBLE".to_string());
        for file in ["v.csv", "v.json"] {
            for (pushed, kept) in [
                (format!("x > {limit}"), format!("coalesce(x) > {limit}")),
                (format!("{limit} >= x"), format!("{limit} >= coalesce(x)")),
                (format!("x <> {limit} AND t = 'a'"), format!("coalesce(x) <> {limit} AND coalesce(t) = 'a'")),
                ("t IN ('b', 'a long one, beyond a view')".into(),
                 "coalesce(t) IN ('b', 'a long one, beyond a view')".into()),
                ("t >= 'a'".into(), "coalesce(t) >= 'a'".into()),
                ("x IS NULL".into(), "coalesce(x) IS NULL".into()),
                ("x IS NOT NULL".into(), "coalesce(x) IS NOT NULL".into()),
                ("f = 0.0".into(), "coalesce(f) = 0.0".into()),
                ("f < 0.0".into(), "coalesce(f) < 0.0".into()),
                ("f > 1.0".into(), "coalesce(f) > 1.0".into()),
            ] {
                let asked = |filter: &str| {
                    let sql = format!("SELECT n, x, t FROM '$/{file}' WHERE {filter}");
                    query_rows(&Query { schema: schema.clone(), ..query(folder.substitute_path(&sql)) })
                };
                prop_assert_eq!(asked(&pushed), asked(&kept), "{}: {}", file, pushed);
            }
        }
    }
}

#[test]
fn times_of_day_are_inferred_if_their_spelling_is_kept() {
    let folder = Folder::new();
    folder.write("a.csv", "t,n\n12:00:00,1\n07:30:00.5,2\n,3\n23:59:59,4\n");
    folder.write("b.logfmt", "t=12:00:00 n=1\nt=07:30:00.5 n=2\nn=3\nt=23:59:59 n=4\n");
    folder.write(
        "c.json",
        "{\"t\":\"12:00:00\",\"n\":1}\n{\"t\":\"07:30:00.5\",\"n\":2}\n{\"n\":3}\n{\"t\":\"23:59:59\",\"n\":4}\n",
    );
    for file in ["a.csv", "b.logfmt", "c.json"] {
        for (sql, expected) in [
            ("SELECT DISTINCT arrow_typeof(t) FROM source", "Time64(µs)"),
            ("SELECT sum(n) FROM source WHERE t >= '12:00'", "5"),
            ("SELECT sum(n) FROM source WHERE t IN ('12:00:00', '07:30:00.500')", "3"),
            ("SELECT sum(n) FROM source WHERE t IS NULL", "3"),
            ("SELECT string_agg(hour(t)::TEXT, ' ' ORDER BY t) FROM source", "7 12 23"),
            ("SELECT max(t) FROM source", "23:59:59"),
            ("SELECT min(t) FROM source", "07:30:00.500"),
            ("SELECT count(*) FROM (SELECT t FROM source GROUP BY t)", "4"),
            ("SELECT count(*) FROM source a JOIN source b ON a.t = b.t", "3"),
        ] {
            let sql = folder.substitute_path(&sql.replace("source", &format!("'$/{file}'")));
            assert_eq!(folder.run_sql(&sql).single_value(), expected, "{sql}");
        }
    }
    // The values of a partition column, too.
    folder.write("k/at=12%3A00%3A00/x.csv", "n\n1\n");
    folder.write("k/at=18:30:00/x.csv", "n\n2\n");
    let sql = "SELECT sum(n) FROM '$/k/*/x.csv' WHERE at > '13:00'";
    assert_eq!(folder.run_sql(sql).single_value(), "2");
    // Text in another spelling is no time.
    for values in ["07:30", "7:30:00", "24:00:00", "07:30:00Z", "07:30:00.1234567"] {
        folder.write("d.csv", format!("t\n12:00:00\n{values}\n"));
        assert_eq!(
            folder.run_sql("SELECT DISTINCT arrow_typeof(t) FROM '$/d.csv'").single_value(),
            "Utf8View"
        );
    }
}

#[test]
fn time_in_another_spelling_after_the_sample_is_located() {
    let folder = Folder::new();
    let times = "12:00:00\n".repeat(60_000);
    folder.write("a.csv", format!("t\n{times}12:30\n"));
    folder.write(
        "b.json",
        format!("{}{{\"t\":\"12:30\"}}\n", "{\"t\":\"12:00:00\"}\n".repeat(60_000)),
    );
    for (file, line, value) in [("a.csv", 60_002, "12:30"), ("b.json", 60_001, "12:30")] {
        let error = folder.sql_error(&format!("SELECT max(t) FROM '$/{file}'"));
        assert!(error.contains(&format!("line {line} ")), "{error}");
        assert!(
            error.contains(&format!("expected a time of day (HH:MM:SS), found `{value}`")),
            "{error}"
        );
        assert!(error.contains("--schema 't TIME(6)' reads them as times of day"), "{error}");
        let mut declared =
            query(folder.substitute_path(&format!("SELECT count(t) FROM '$/{file}'")));
        declared.schema = Some("t TIME(6)".into());
        assert_eq!(query_rows(&declared), [["60001"]], "{file}");
    }
}

#[test]
fn unknown_keys_are_reported_per_source() {
    let folder = Folder::new();
    let lines: String = (0..30_000).map(|n| format!("{{\"a\":{n}}}\n")).collect();
    folder.write("x.json", format!("{lines}{{\"a\":1,\"late\":1}}\n"));
    folder.write(
        "y.json",
        format!("{lines}{{\"a\":2,\"late\":1}}\n{{\"a\":3,\"late\":1,\"own\":2}}\n"),
    );
    let sql = "SELECT count(*) FROM '$/x.json' x JOIN '$/y.json' y ON x.a = y.a";
    let answer = folder.run_sql(sql);
    let keys = &answer.coverage.unknown_keys;
    let file = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let found: Vec<_> = keys
        .keys
        .iter()
        .map(|key| (key.key.as_str(), key.count, file(&key.path), key.source.as_deref().map(file)))
        .collect();
    assert_eq!(
        found,
        [
            ("late", 1, "x.json".to_owned(), Some("x.json".to_owned())),
            ("late", 2, "y.json".to_owned(), Some("y.json".to_owned())),
            ("own", 1, "y.json".to_owned(), None),
        ]
    );
    assert!(keys.warning().unwrap().starts_with("3 keys are in no column"));
}

/// Unquoted names in a schema do not tell keys apart by case, as everywhere in SQL. A key of exactly that
/// spelling is read; one of another case in its place would be null in every record.
#[test]
fn schema_name_in_another_case_than_the_key_is_refused() {
    let folder = Folder::new();
    folder.write("c.json", "{\"userId\":\"a\",\"Id\":1}\n{\"userId\":\"b\",\"Id\":2}\n");
    folder.write("a.json", "[{\"userId\":\"a\",\"Id\":1},\n{\"userId\":\"b\",\"Id\":2}]\n");
    folder.write("c.logfmt", "userId=a Id=1\nuserId=b Id=2\n");
    folder.write("c.csv", "userId,Id\na,1\nb,2\n");
    for file in ["c.json", "a.json", "c.logfmt", "c.csv"] {
        let with = |schema: &str| {
            let sql = folder.substitute_path(&format!("SELECT * FROM '$/{file}'"));
            run_query(&Query { schema: Some(schema.into()), ..query(sql) }, &settings())
        };
        for schema in ["userid TEXT", "USERID TEXT", "userId TEXT, ID BIGINT"] {
            let error = with(schema).map(|answer| answer.rows()).unwrap_err().to_string();
            let meant = if schema.contains("ID B") { "Id" } else { "userId" };
            assert!(
                error.contains(&format!("did you mean `{meant}`?")),
                "{file}, {schema}: {error}"
            );
        }
        assert_eq!(
            with("userId TEXT, Id TEXT").unwrap().rows(),
            [["a", "1"], ["b", "2"]],
            "{file}"
        );
        if file != "c.csv" {
            let quoted = with("\"userid\" TEXT").unwrap();
            assert_eq!(quoted.column_names(), ["userId", "Id", "userid"], "{file}");
            assert_eq!(quoted.rows(), [["a", "1", "∅"], ["b", "2", "∅"]], "{file}");
            // A key that no sampled record has in any case.
            assert_eq!(
                with("later TEXT").unwrap().column_names(),
                ["userId", "Id", "later"],
                "{file}"
            );
        }
    }
}
