//! Tests of malformed records and invalid SQL.

use std::fmt::Write as _;

use tidemill_engine::settings::BadRecordLimit;
use tidemill_engine::{Error, ErrorClass, Query, QueryPlan, RunSettings};

use crate::common::{Folder, collect_answer, query, run_query, settings, string_rows};

/// Writes 12 good records, with bad ones on lines 4 and 9; returns a query with their schema.
fn write_bad_records(folder: &Folder) -> Query {
    let mut out = String::from("k,x\n");
    for n in 0..14 {
        match n {
            2 => out.push_str("c,not a number\n"),
            7 => out.push_str("c,1,2,3\n"),
            n => writeln!(out, "{},{n}", ["a", "b"][n % 2]).unwrap(),
        }
    }
    folder.write("bad.csv", out);
    Query { schema: Some("k VARCHAR, x BIGINT".into()), ..query("") }
}

const PATH_QUERIES: [&str; 3] = [
    "SELECT x FROM '$/bad.csv'",
    "SELECT k, sum(x) FROM '$/bad.csv' GROUP BY k",
    "SELECT x FROM '$/bad.csv' ORDER BY x",
];

#[test]
fn bad_records_are_shown_without_failing_when_asked() {
    let folder = Folder::new();
    let query = write_bad_records(&folder);
    let look = RunSettings { max_bad: BadRecordLimit::Unlimited, ..settings() };
    for path in PATH_QUERIES {
        let query = Query { sql: folder.substitute_path(path), ..query.clone() };
        let coverage = run_query(&query, &look).unwrap().coverage;
        assert!(!coverage.complete && coverage.rejected_copy.is_none(), "{path}");
        assert_eq!((coverage.rows.done, coverage.rows.rejected), (12, 2), "{path}");
        let lines: Vec<_> = coverage.first_rejected.iter().map(|bad| bad.line).collect();
        assert_eq!(lines, [Some(4), Some(9)], "{path}");
    }
    // A file without bad records shows none.
    folder.write("good.csv", "k,x\na,1\n");
    let query = Query { sql: folder.substitute_path("SELECT x FROM '$/good.csv'"), ..query };
    let coverage = run_query(&query, &look).unwrap().coverage;
    assert!(coverage.complete && coverage.first_rejected.is_empty());
}

#[test]
fn too_many_bad_records_fail_every_path_with_locations() {
    let folder = Folder::new();
    let base = write_bad_records(&folder);
    for sql in PATH_QUERIES {
        let query = Query { sql: folder.substitute_path(sql), ..base.clone() };
        let asked = |max_bad| run_query(&query, &RunSettings { max_bad, ..settings() });
        for max_bad in
            [BadRecordLimit::Count(0), BadRecordLimit::Count(1), BadRecordLimit::Percent(10.0)]
        {
            let error = asked(max_bad).err().unwrap_or_else(|| panic!("{sql}: {max_bad}"));
            let Error::BadRecords { count, allowed, first } = &error else {
                panic!("{sql}: {error}");
            };
            assert!(*count > 0 && *allowed == max_bad.to_string(), "{sql}: {error}");
            assert!(first[0].path.ends_with("bad.csv"), "{error}");
            assert_eq!(
                (first[0].line, first[0].column.as_deref()),
                (Some(4), Some("x")),
                "{sql}: {error}"
            );
            assert_eq!(first[0].offset, 4 + 4 + 4);
        }
        for max_bad in [BadRecordLimit::Count(2), BadRecordLimit::Percent(20.0)] {
            let answer = asked(max_bad).unwrap();
            let coverage = answer.coverage;
            assert_eq!((coverage.rows.done, coverage.rows.rejected), (12, 2), "{sql}");
            assert!(coverage.complete);
            assert!(
                coverage.summary_line().contains("2 records rejected"),
                "{}",
                coverage.summary_line()
            );
        }
    }
}

#[test]
fn failed_result_is_not_marked_complete() {
    let folder = Folder::new();
    let base = write_bad_records(&folder);
    for sql in PATH_QUERIES {
        let query = Query { sql: folder.substitute_path(sql), ..base.clone() };
        let Ok(mut results) = QueryPlan::new(&query, &settings()).unwrap().run() else { continue };
        let failed = results.by_ref().any(|batch| batch.is_err());
        assert!(failed && !results.coverage().complete, "{sql}");
        assert!(results.next().is_none());
    }
}

#[test]
fn bad_records_before_a_limit_are_counted() {
    let folder = Folder::new();
    let query = Query {
        sql: folder.substitute_path("SELECT x FROM '$/bad.csv' LIMIT 3"),
        ..write_bad_records(&folder)
    };
    let error = run_query(&query, &settings()).err().unwrap();
    assert!(matches!(error, Error::BadRecords { .. }), "{error}");
    let answer =
        run_query(&query, &RunSettings { max_bad: BadRecordLimit::Count(9), ..settings() })
            .unwrap();
    assert_eq!(answer.rows(), string_rows(&[&["0"], &["1"], &["3"]]));
    assert!(answer.coverage.rows.rejected > 0);
}

#[test]
fn bad_records_far_after_a_limit_are_ignored() {
    let folder = Folder::new();
    let mut out = String::from("x,pad\n");
    for n in 0..60_000 {
        writeln!(out, "{n},{n:0>90}").unwrap();
    }
    out.push_str("bad,bad\n");
    folder.write("e.csv", out);
    let sql = folder.substitute_path("SELECT x FROM '$/e.csv' LIMIT 10");
    let query = Query { schema: Some("x BIGINT, pad VARCHAR".into()), ..query(sql) };
    for _ in 0..20 {
        let answer = run_query(&query, &RunSettings { threads: 8, ..settings() }).unwrap();
        assert_eq!((answer.rows().len(), answer.coverage.rows.rejected), (10, 0));
    }
}

#[test]
fn rejected_records_are_copied_to_the_reject_folder() {
    let folder = Folder::new();
    let kept = Folder::new();
    let base = write_bad_records(&folder);
    for sql in PATH_QUERIES {
        let query = Query { sql: folder.substitute_path(sql), ..base.clone() };
        let settings = RunSettings {
            max_bad: BadRecordLimit::Count(5),
            rejected_folder: Some(kept.path().to_path_buf()),
            ..settings()
        };
        let answer = run_query(&query, &settings).unwrap();
        assert_eq!(answer.coverage.rejected_copy.as_deref(), kept.path().to_str());
    }
    for copy in 1..=3 {
        let path = kept.path().join(format!("rejected/{copy}.jsonl"));
        let copies = std::fs::read_to_string(path).unwrap();
        assert_eq!(copies.lines().count(), 2, "{copies}");
        assert!(copies.contains("c,not a number"), "{copies}");
    }
}

#[test]
fn invalid_sql_errors_suggest_a_fix() {
    let folder = Folder::new();
    folder.write("f.csv", "user_id,day,distance\n1,2,3\n");
    for (sql, expected) in [
        ("", "the SQL is empty"),
        ("  ;", "empty"),
        ("-- nothing", "the SQL is empty"),
        ("SELECT usr_id FROM '$/f.csv'", "did you mean `user_id`?"),
        ("SELECT sum(distnce) FROM '$/f.csv'", "did you mean `distance`?"),
        ("SELECT day FROM '$/f.csv' GROUP BY dya", "did you mean `day`?"),
        ("SELECT 1; SELECT 2", "more than one statement is not run here"),
        ("INSERT INTO x VALUES (1)", "`INSERT` is not run here"),
        ("DELETE FROM '$/f.csv'", "`DELETE` is not run here"),
        ("UPDATE '$/f.csv' SET day = 1", "`UPDATE` is not run here"),
        ("CREATE TABLE x (a INT)", "not run here"),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION 'x'", "not run here"),
        ("COPY '$/f.csv' TO 'x.csv'", "`COPY` is not run here\nhint: `tidemill query` and"),
        ("DROP TABLE x", "`DROP` is not run here"),
        ("SET x = 1", "not run here"),
        ("SELECT day INTO x FROM '$/f.csv'", ""),
        ("SELEC day FROM '$/f.csv'", "SQL is not understood"),
        ("SELECT * FROM flights.csv", "a file is named in single quotes: FROM 'flights.csv'"),
        ("SELECT * FROM flights", "FROM 'logs.csv'"),
        ("SELECT * FROM '$/no.csv'", "no such file"),
        ("SELECT nofunction(day) FROM '$/f.csv'", "nofunction"),
        ("SELECT unique() FROM '$/f.csv'", "unique"),
        (
            "SELECT unique(day, 99) FROM '$/f.csv'",
            "log2m of `unique` is a whole number from 4 to 24",
        ),
        ("SELECT top_k(day) FROM '$/f.csv'", "`top_k` is called as top_k(x, k)"),
        ("SELECT top_k(day, 0) FROM '$/f.csv'", "k of `top_k` is a whole number from 1"),
        ("SELECT top_k(day, day) FROM '$/f.csv'", "constant"),
        ("SELECT quantile(day, 1.5) FROM '$/f.csv'", "from 0 to 1"),
        ("SELECT quantile('a', 0.5) FROM '$/f.csv'", "`quantile` takes numbers"),
        (
            "SELECT collect(day, 2 ORDER BY day) FROM '$/f.csv'",
            "`collect(… ORDER BY …)` is not supported",
        ),
        ("SELECT collect(DISTINCT day, 2) FROM '$/f.csv'", "`collect(DISTINCT …)` is not"),
        ("SELECT collect(day) FROM '$/f.csv'", "collect(x, limit)"),
        ("SELECT collect(day, -1) FROM '$/f.csv'", "the limit of `collect`"),
        ("SELECT sum('a') FROM '$/f.csv'", "`sum` does not take an argument of type TEXT"),
        ("SELECT day FROM '$/f.csv' WHERE sum(day) > 1", ""),
        ("SELECT day, user_id FROM '$/f.csv' GROUP BY day", "user_id"),
        ("SELECT day FROM '$/f.csv' LIMIT -1", ""),
    ] {
        let error = folder.try_run_sql(sql, &settings()).err().unwrap_or_else(|| panic!("{sql}"));
        assert_ne!(error.class(), ErrorClass::Internal, "{sql}: {error}");
        let message = error.to_string();
        assert!(message.contains(expected), "{sql}: {message}");
        assert!(!message.ends_with('.'), "{sql}: {message}");
    }
}

#[test]
fn expression_error_fails_every_path() {
    let folder = Folder::new();
    let mut out = String::from("x,s\n");
    for n in 0..30_000 {
        writeln!(out, "{},{}", 20_000 - n, if n == 25_000 { "text" } else { "7" }).unwrap();
    }
    folder.write("e.csv", out);
    let schema = Some("x BIGINT, s VARCHAR".to_string());
    for (expression, expected) in [
        ("100 / x", "by zero"),
        ("100 % x", "by zero"),
        ("CAST(s AS BIGINT)", "text"),
        ("CAST(x * 1000 AS SMALLINT)", ""),
        ("x * 9223372036854775807", ""),
    ] {
        for sql in [
            format!("SELECT {expression} AS y FROM '$/e.csv'"),
            format!("SELECT sum(y), count(*) FROM (SELECT {expression} AS y FROM '$/e.csv')"),
            format!("SELECT {expression} AS y FROM '$/e.csv' ORDER BY x"),
        ] {
            let query = Query { schema: schema.clone(), ..query(folder.substitute_path(&sql)) };
            let error = match run_query(&query, &settings()) {
                Err(error) => error,
                // SQL's integers wrap in DataFusion; that is no silent loss of ours.
                Ok(_) if expected.is_empty() => continue,
                Ok(_) => panic!("{sql} was answered"),
            };
            assert_eq!(error.class(), ErrorClass::Failed, "{sql}: {error:?}");
            assert!(error.to_string().contains(expected), "{sql}: {error}");
        }
    }
}

#[test]
fn deeply_nested_sql_is_answered_or_refused_without_a_crash() {
    let folder = Folder::new();
    folder.write("f.csv", "x\n1\n2\n");
    let nested = |open: &str, close: &str, n| format!("{}x{}", open.repeat(n), close.repeat(n));
    // The deepest nesting that is allowed, on this small stack and on those of the workers.
    let deep = format!("x{}", " + 1".repeat(998));
    for (sql, expected) in [
        (format!("SELECT {deep} AS y FROM '$/f.csv' LIMIT 1"), "999"),
        (format!("SELECT sum({deep}) AS y FROM '$/f.csv'"), "1999"),
        (format!("SELECT {deep} AS y FROM '$/f.csv' ORDER BY x DESC LIMIT 1"), "1000"),
        (
            format!(
                "SELECT count(*) AS y FROM '$/f.csv' WHERE {}",
                vec!["x = 1"; 999].join(" OR ")
            ),
            "1",
        ),
        (
            format!(
                "SELECT count(*) AS y FROM '$/f.csv' WHERE x IN ({})",
                vec!["1"; 20_000].join(",")
            ),
            "1",
        ),
    ] {
        let plan =
            tidemill_engine::QueryPlan::new(&query(folder.substitute_path(&sql)), &settings())
                .unwrap();
        assert!(!plan.explain().unwrap().to_string().is_empty());
        // Planned only once, because a plan of such a sum takes seconds; workers plan the alternatives too,
        // on their own stacks.
        let answer = match sql.contains(&deep) {
            true => collect_answer(plan.run().unwrap()).unwrap(),
            false => folder.run_sql(&sql),
        };
        assert_eq!(answer.single_value(), expected);
    }
    let error = folder.sql_error(&format!("SELECT {deep} + 1 + 1 FROM '$/f.csv'"));
    assert!(error.starts_with("the SQL nests expressions 1001 deep; 1000 is the most"), "{error}");
    let many = |count, one: &str, between: &str| vec![one; count].join(between);
    for (sql, expected) in [
        (many(20_000, "SELECT 1 AS x", " UNION ALL "), "the SQL has 20000 queries in a row"),
        (
            format!("SELECT 1 FROM {}", many(20_000, "range(1)", ", ")),
            "the SQL has 20000 tables in a row",
        ),
    ] {
        let error = folder.sql_error(&sql);
        assert!(error.starts_with(expected), "{error}");
    }
    for expression in [
        nested("(", ")", 10_000),
        nested("abs(", ")", 10_000),
        nested("NOT ", "", 10_000),
        nested("- ", "", 10_000),
        nested("CASE WHEN true THEN ", " END", 10_000),
        format!("x{}", " + x".repeat(10_000)),
        format!("x = 1{}", " OR x = 2".repeat(10_000)),
        format!("x IN (1{})", ", 2".repeat(10_000)),
        format!("'a'{}", " || 'b'".repeat(10_000)),
    ] {
        for sql in [
            format!("SELECT {expression} AS y FROM '$/f.csv'"),
            format!("SELECT count({expression}) AS y FROM '$/f.csv'"),
            format!("SELECT {expression} AS y FROM '$/f.csv' ORDER BY 1"),
        ] {
            if let Err(error) = folder.try_run_sql(&sql, &settings()) {
                let message = error.to_string();
                assert_eq!(error.class(), ErrorClass::Usage, "{}: {message}", &sql[..60]);
                assert!(message.len() < 1000, "{}", &message[..1000]);
            }
        }
    }
    let selects =
        format!("{}SELECT x FROM '$/f.csv'{}", "SELECT * FROM (".repeat(5000), ")".repeat(5000));
    assert!(folder.try_run_sql(&selects, &settings()).is_err());
}

#[test]
fn sample_of_only_malformed_records_is_an_error_when_a_type_is_needed() {
    let folder = Folder::new();
    folder.write("a.csv", "a,k\n1,x,3\n2,y,4\n");
    folder.write("b.csv", "a,k\n1,x\n");
    let all = RunSettings { max_bad: BadRecordLimit::Percent(100.0), ..settings() };
    for settings in [&all, &settings()] {
        let error = folder.try_run_sql("SELECT sum(a) FROM '$/a.csv'", settings).err().unwrap();
        let error = error.to_string();
        for part in [
            "a.csv`: all 2 records of the sample are malformed",
            "line 2 (byte 4): expected 2 fields, found 3",
            "--schema 'a BIGINT' declares the type of a column",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
    let answer = folder.run_sql_with("SELECT count(*) FROM '$/a.csv'", &all);
    assert_eq!((answer.single_value().as_str(), answer.coverage.rows.rejected), ("0", 2));
    // One valid record shows the types, and a declared type is known.
    let answer = folder.run_sql_with("SELECT sum(a) FROM '$/?.csv'", &all);
    assert_eq!((answer.single_value().as_str(), answer.coverage.rows.rejected), ("1", 2));
    let mut declared = query(folder.substitute_path("SELECT sum(a) FROM '$/a.csv'"));
    declared.schema = Some("a BIGINT".into());
    assert_eq!(run_query(&declared, &all).unwrap().single_value(), "∅");
    declared.schema = Some("a TEXT".into());
    let error = run_query(&declared, &all).err().unwrap().to_string();
    assert!(!error.contains("no value shows"), "{error}");
    // The other source of a join reports its own error.
    folder.write("c.csv", "t\nword\n");
    let error = folder.try_run_sql("SELECT sum(t) FROM '$/c.csv', '$/a.csv'", &all).err().unwrap();
    assert!(error.to_string().contains("TEXT"), "{error}");
}

/// Asserts that queries of each path fail with all of `parts` in the message, with one thread and with
/// several.
fn assert_fails_on_every_path(folder: &Folder, file: &str, column: &str, parts: &[&str]) {
    for sql in [
        format!("SELECT {column}, count(*) AS n FROM '$/{file}' GROUP BY 1"),
        format!("SELECT {column} FROM '$/{file}'"),
        format!("SELECT DISTINCT {column} FROM '$/{file}' ORDER BY 1 LIMIT 3"),
    ] {
        for threads in [1, 3] {
            let settings = RunSettings { threads, ..settings() };
            let error = match folder.try_run_sql(&sql, &settings) {
                Ok(answer) => panic!("{sql} was answered: {:?}", answer.rows().len()),
                Err(error) => error,
            };
            let told = error.to_string();
            assert!(parts.iter().all(|part| told.contains(part)), "{sql}: {told}");
        }
    }
}

#[test]
fn json_strings_after_the_sample_are_not_converted_to_numbers() {
    let folder = Folder::new();
    for (usual, odd, parts) in [
        (
            "1",
            "\"007\"",
            ["line 40001", "expected a BIGINT, found a string `\"007\"`", "--schema 'v TEXT'"],
        ),
        ("1", "\" 5 \"", ["line 40001", "expected a BIGINT", "--schema 'v TEXT'"]),
        ("1.5", "\"1e400\"", ["line 40001", "expected a DOUBLE", "--schema 'v TEXT'"]),
        (
            "true",
            "\"TRUE\"",
            [
                "line 40001",
                "expected a Boolean (true or false), found a string `\"TRUE\"`",
                "--schema 'v TEXT'",
            ],
        ),
        (
            "true",
            "1",
            [
                "line 40001",
                "expected a Boolean (true or false), found `1`",
                "--schema 'v TEXT' reads",
            ],
        ),
        ("[1]", "[\"2\"]", ["line 40001", "column `v[0]`", "--schema 'v TEXT'"]),
    ] {
        let text = format!("{}{{\"v\": {odd}}}\n", format!("{{\"v\": {usual}}}\n").repeat(40_000));
        folder.write("v.json", text);
        assert_fails_on_every_path(&folder, "v.json", "v", &parts);
    }
    // Within the sample, such a column is TEXT.
    folder.write("w.json", "{\"v\": 1}\n{\"v\": \"007\"}\n");
    assert_eq!(folder.run_sql("SELECT v FROM '$/w.json'").rows(), string_rows(&[&["1"], &["007"]]));
}

#[test]
fn unbalanced_quotes_error_names_the_quote_option() {
    let folder = Folder::new();
    folder.write(
        "t.tsv",
        "id\ttitle\tyear\n1\tA\t1975\n2\t\"Rome, Open City\t1945\n3\tB\t1950\n4\t\"Second\t1951\n5\tC\"\t1952\n6\tD\t1953\n",
    );
    assert_fails_on_every_path(&folder, "t.tsv", "year", &["line 3", "3 lines", "--quote ''"]);
    let unquoted = |quote| {
        let mut query =
            query(folder.substitute_path("SELECT count(*) AS n, sum(year) AS y FROM '$/t.tsv'"));
        query.file_defaults.text_options.quote = Some(quote);
        run_query(&query, &settings()).unwrap().rows()
    };
    assert_eq!(unquoted(None), string_rows(&[&["6", "11726"]]));
    assert_eq!(unquoted(Some(b'"')), string_rows(&[&["4", "7831"]]));
    let late = format!("id,s\n{}2,\"say \\\"hi\\\"\"\n", "1,\"plain\"\n".repeat(40_000));
    folder.write("e.csv", late);
    assert_fails_on_every_path(&folder, "e.csv", "s", &["line 40002", "--escape '\\'"]);
    // A quoted field with line ends is valid.
    folder.write("a.csv", "id,name,address\n1,Bob,\"12 Main St\nSpringfield, IL, 62701\"\n");
    assert_eq!(folder.run_sql("SELECT count(*) FROM '$/a.csv'").single_value(), "1");
}

#[test]
fn file_without_valid_records_is_an_error_with_the_cause() {
    let folder = Folder::new();
    folder.write("x.logfmt", "a=\"x\"y b=1\n");
    let told = folder.sql_error("SELECT * FROM '$/x.logfmt'");
    assert!(told.contains("its records are not logfmt"), "{told}");
    folder.write("e.json", "[]\n");
    let told = folder.sql_error("SELECT * FROM '$/e.json'");
    assert!(told.contains("blank lines or empty arrays"), "{told}");
    for (name, bytes, part) in [
        ("dos.csv", &b"a,b\n1,2\n\x1a"[..], "0x1A"),
        ("mark.csv", b"a,b\n1,2\n\xef\xbb\xbfa,b\n3,4\n", "byte-order mark"),
        ("latin.csv", b"a,b\n1,caf\xe9\n", "iconv"),
    ] {
        folder.write(name, bytes);
        let mut query = query(folder.substitute_path(&format!("SELECT * FROM '$/{name}'")));
        query.schema = Some("a BIGINT".into());
        let error = run_query(&query, &settings()).err().unwrap();
        let told = error.to_string();
        assert!(told.contains(part) && told.contains("line"), "{told}");
    }
}
