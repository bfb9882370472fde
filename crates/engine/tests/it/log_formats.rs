//! Tests of logs whose line format the user describes, and of delimiters inferred from a sample.

use std::fmt::Write as _;

use tidemill_engine::Query;
use tidemill_engine::source::{Format, SourceSpec, TextOptions};

use crate::common::{Folder, query, run_query, settings, string_rows};

fn query_with_log_format(log_format: &str, sql: String) -> Query {
    let options = TextOptions { log_format: Some(log_format.to_owned()), ..TextOptions::default() };
    Query {
        file_defaults: SourceSpec { text_options: options, ..SourceSpec::default() },
        ..query(sql)
    }
}

fn query_rows(query: &Query) -> Vec<Vec<String>> {
    run_query(query, &settings()).unwrap_or_else(|error| panic!("{}: {error}", query.sql)).rows()
}

/// The same log as an Apache format, as an nginx format and by named patterns, in several splits.
#[test]
fn equivalent_log_formats_give_equal_answers() {
    let folder = Folder::new();
    let mut log = String::new();
    for n in 0..40_000 {
        let _ = writeln!(
            log,
            "10.0.{}.{} - - [10/Oct/2026:13:{:02}:36 +0000] \"GET /{} HTTP/1.1\" {} {n} \"-\" \"curl \\\"{}\\\"\" 0.{:03}",
            n % 7,
            n % 11,
            n % 60,
            n % 5,
            200 + n % 3,
            n % 13,
            n % 1000
        );
    }
    folder.write("web.log", &log);
    let sql = |took: &str| {
        folder.substitute_path(&format!(
            "SELECT status, count(*) AS n, sum(bytes) AS bytes, round(sum({took}), 3) AS took, max(ts) AS last \
             FROM '$/web.log' WHERE status > 200 GROUP BY status ORDER BY status"
        ))
    };
    let apache = r#"%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\" %T"#;
    let nginx = r#"log_format timed '$remote_addr - $remote_user [$time_local] "$request" $status '
        '$body_bytes_sent "$http_referer" "$http_user_agent" $request_time';"#;
    let grok = r#"%{IPORHOST:ip} %{USER:ident} %{USER:user} \[%{HTTPDATE:ts}\] "%{DATA:request}" %{INT:status} %{INT:bytes} "%{DATA:e}" "%{DATA:a}" %{NUMBER:request_time}"#;
    let shown = {
        let format = Some(Format::AccessLog);
        Query {
            file_defaults: SourceSpec { format, ..SourceSpec::default() },
            ..query(sql("request_time"))
        }
    };
    let expected = query_rows(&shown);
    assert_eq!(expected.len(), 2);
    for description in [apache, nginx, grok] {
        assert_eq!(
            query_rows(&query_with_log_format(description, sql("request_time"))),
            expected,
            "{description}"
        );
    }
}

#[test]
fn read_files_accepts_a_log_format() {
    let folder = Folder::new();
    folder.write("a.log", "u=1\nu=2\n");
    let sql = folder.substitute_path(
        "SELECT sum(u) AS u FROM read_files('$/a.log', log_format = 'u=%{INT:u}')",
    );
    assert_eq!(query_rows(&query(sql)), string_rows(&[&["3"]]));
    let sql = folder.substitute_path("SELECT u FROM read_files('$/a.log', log_format = 'u')");
    let error = run_query(&query(sql), &settings()).err().unwrap().to_string();
    assert!(error.contains("`u` is no log format"), "{error}");
}

#[test]
fn line_not_matching_the_log_format_is_located() {
    let folder = Folder::new();
    folder.write("a.log", "10.0.0.1 200\n10.0.0.2\n");
    let error = run_query(
        &query_with_log_format("%h %>s", folder.substitute_path("SELECT ip FROM '$/a.log'")),
        &settings(),
    );
    let error = error.err().unwrap().to_string();
    assert!(error.contains("line 2 (byte 13)") && error.contains("`ip`"), "{error}");
}

#[test]
fn virtual_host_is_parsed_into_host_and_port() {
    let folder = Folder::new();
    let mut log = String::new();
    for n in 0..3000 {
        let _ = writeln!(
            log,
            "{}.example:443 10.0.0.{} - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" 200 {n} \"-\" \"curl\" 0.{:03}",
            ["a", "b"][n % 2],
            n % 9,
            n % 1000
        );
    }
    folder.write("v.log", log);
    let sql = folder.substitute_path("SELECT host, port, count(*) AS n, count(DISTINCT ip) AS ips FROM '$/v.log' GROUP BY host, port ORDER BY host");
    let format = Some(Format::AccessLog);
    let query =
        Query { file_defaults: SourceSpec { format, ..SourceSpec::default() }, ..query(sql) };
    assert_eq!(
        query_rows(&query),
        string_rows(&[&["a.example", "443", "1500", "9"], &["b.example", "443", "1500", "9"]])
    );
}

#[test]
fn delimiter_inferred_from_the_sample_applies_to_all_splits() {
    let folder = Folder::new();
    let mut table = "id;name;price\n".to_owned();
    for n in 0..30_000 {
        let _ = writeln!(table, "{n};\"a;{}\";{}", n % 3, n % 10);
    }
    folder.write("t.csv", table);
    let found = folder.run_sql(
        "SELECT name, count(*) AS n, sum(price) AS p FROM '$/t.csv' GROUP BY name ORDER BY name",
    );
    assert_eq!(
        found.rows(),
        string_rows(&[
            &["a;0", "10000", "45000"],
            &["a;1", "10000", "45000"],
            &["a;2", "10000", "45000"]
        ])
    );
}
