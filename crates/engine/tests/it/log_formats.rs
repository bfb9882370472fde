//! Logs whose lines the user describes, and what a sample shows of others.

use std::fmt::Write as _;

use tidemill_engine::Query;
use tidemill_engine::source::{Format, SourceSpec, TextOptions};

use crate::common::{Folder, ask, query, settings, text};

fn described(log_format: &str, sql: String) -> Query {
    let options = TextOptions { log_format: Some(log_format.to_owned()), ..TextOptions::default() };
    Query {
        file_defaults: SourceSpec { text_options: options, ..SourceSpec::default() },
        ..query(sql)
    }
}

fn rows(query: &Query) -> Vec<Vec<String>> {
    ask(query, &settings()).unwrap_or_else(|error| panic!("{}: {error}", query.sql)).rows()
}

/// The same log as Apache writes it, as nginx does, and by named patterns, cut into several splits.
#[test]
fn one_log_by_three_descriptions_has_one_answer() {
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
        folder.sql(&format!(
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
    let expected = rows(&shown);
    assert_eq!(expected.len(), 2);
    for description in [apache, nginx, grok] {
        assert_eq!(rows(&described(description, sql("request_time"))), expected, "{description}");
    }
}

#[test]
fn a_call_of_a_source_takes_a_description() {
    let folder = Folder::new();
    folder.write("a.log", "u=1\nu=2\n");
    let sql =
        folder.sql("SELECT sum(u) AS u FROM read_files('$/a.log', log_format = 'u=%{INT:u}')");
    assert_eq!(rows(&query(sql)), text(&[&["3"]]));
    let sql = folder.sql("SELECT u FROM read_files('$/a.log', log_format = 'u')");
    let error = ask(&query(sql), &settings()).err().unwrap().to_string();
    assert!(error.contains("`u` is no log format"), "{error}");
}

#[test]
fn a_line_that_is_not_as_described_is_located() {
    let folder = Folder::new();
    folder.write("a.log", "10.0.0.1 200\n10.0.0.2\n");
    let error = ask(&described("%h %>s", folder.sql("SELECT ip FROM '$/a.log'")), &settings());
    let error = error.err().unwrap().to_string();
    assert!(error.contains("line 2 (byte 13)") && error.contains("`ip`"), "{error}");
}

#[test]
fn the_site_before_a_client_is_a_column_of_its_own() {
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
    let sql = folder.sql("SELECT host, port, count(*) AS n, count(DISTINCT ip) AS ips FROM '$/v.log' GROUP BY host, port ORDER BY host");
    let format = Some(Format::AccessLog);
    let query =
        Query { file_defaults: SourceSpec { format, ..SourceSpec::default() }, ..query(sql) };
    assert_eq!(
        rows(&query),
        text(&[&["a.example", "443", "1500", "9"], &["b.example", "443", "1500", "9"]])
    );
}

#[test]
fn delimiters_that_a_sample_shows_are_those_of_all_splits() {
    let folder = Folder::new();
    let mut table = "id;name;price\n".to_owned();
    for n in 0..30_000 {
        let _ = writeln!(table, "{n};\"a;{}\";{}", n % 3, n % 10);
    }
    folder.write("t.csv", table);
    let found = folder.ask(
        "SELECT name, count(*) AS n, sum(price) AS p FROM '$/t.csv' GROUP BY name ORDER BY name",
    );
    assert_eq!(
        found.rows(),
        text(&[&["a;0", "10000", "45000"], &["a;1", "10000", "45000"], &["a;2", "10000", "45000"]])
    );
}
