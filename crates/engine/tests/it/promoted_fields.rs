//! Tests of promoted fields: fields of nested records as columns, in files of the old shape and of the new.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use serde_json::json;
use tidemill_engine::convert::Conversion;
use tidemill_engine::run_handle::{RunHandle, write_to_sink};
use tidemill_engine::sink::SinkSpec;
use tidemill_engine::source::SourceSpec;
use tidemill_engine::{Error, NamedSource, Query, Result, RunId, RunSettings};
use tidemill_rowfile as rowfile;

use crate::common::{Folder, QueryAnswer, Random, run_query, settings, string_rows};

fn promoting_source(folder: &Folder, names: &[&str], promote: &[&str]) -> SourceSpec {
    let path = |name: &&str| folder.path().join(name).display().to_string();
    let mut urls = names.iter().map(path);
    SourceSpec {
        url: urls.next().unwrap(),
        more_urls: urls.collect(),
        promotions: promote.iter().map(|text| text.parse().unwrap()).collect(),
        ..SourceSpec::default()
    }
}

fn try_query_source(spec: SourceSpec, sql: &str) -> Result<QueryAnswer> {
    let sources = vec![NamedSource { name: "source".into(), spec }];
    run_query(&Query { sql: sql.into(), sources, ..Query::default() }, &settings())
}

fn query_source(spec: SourceSpec, sql: &str) -> QueryAnswer {
    try_query_source(spec, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn source_error(spec: SourceSpec, sql: &str) -> String {
    match try_query_source(spec, sql) {
        Ok(answer) => panic!("{sql} was answered: {:?}", answer.rows()),
        Err(error) => error.to_string(),
    }
}

fn convert_source(source: SourceSpec, output: &str) {
    let conversion = Conversion {
        source,
        select: None,
        condition: None,
        sink: SinkSpec::new(output),
        skip_existing: false,
        workers: None,
    };
    let settings = settings();
    let query = conversion.to_query().unwrap();
    let mut running = RunHandle::start_query(query, settings.clone()).unwrap();
    write_to_sink(&mut running, &conversion.sink, &RunId::new(), settings.memory_bytes, |_| Ok(()))
        .unwrap();
}

/// Returns events with their input as a record in JSON, the same with the record's fields as their own, and
/// their rows.
fn nested_and_flat_events(seed: u64, count: u64) -> (String, String, Vec<Vec<String>>) {
    let mut random = Random(seed);
    let (mut nested, mut flat, mut rows) = (String::new(), String::new(), Vec::new());
    for n in 0..count {
        let day = format!("2013-01-{:02}", 1 + random.next_below(28));
        let mut fields: Vec<(&str, String, String)> = Vec::new();
        if random.next_below(5) > 0 {
            let id = random.next_below(1000);
            fields.push(("user", id.to_string(), id.to_string()));
        }
        if random.next_below(5) > 0 {
            let url = ["/", "/a b", "/\"q\"", "/ü"][random.next_below(4) as usize];
            fields.push(("url", format!("{:?}", url), url.to_owned()));
        }
        if random.next_below(5) > 0 {
            let a = random.next_below(9);
            fields.push(("geo", format!("{{\"a\": {a}}}"), format!("{{a: {a}}}")));
        }
        let members: Vec<String> =
            fields.iter().map(|(name, json, _)| format!("{name:?}: {json}")).collect();
        let members = members.join(", ");
        let record = if random.next_below(10) == 0 && fields.is_empty() {
            "null".to_owned()
        } else {
            format!("{{{members}}}")
        };
        nested.push_str(&format!("{{\"n\": {n}, \"input\": {record}, \"day\": \"{day}\"}}\n"));
        let comma = if members.is_empty() { "" } else { ", " };
        flat.push_str(&format!("{{\"n\": {n}{comma}{members}, \"day\": \"{day}\"}}\n"));
        let value = |wanted: &str| {
            let found = fields.iter().find(|(name, _, _)| *name == wanted);
            found.map_or("∅".to_owned(), |(_, _, shown)| shown.clone())
        };
        rows.push(vec![n.to_string(), value("user"), value("url"), value("geo"), day]);
    }
    (nested, flat, rows)
}

const ALL_FIELDS_SQL: &str = "SELECT n, \"user\", url, geo, day FROM source";

#[test]
fn nested_and_flat_files_form_one_table() {
    let folder = Folder::new();
    let (nested, _, old_rows) = nested_and_flat_events(1, 3000);
    let (_, flat, new_rows) = nested_and_flat_events(2, 2000);
    folder.write("old.json", nested);
    folder.write("new.json", flat);
    let at = |name: &str| folder.path().join(name).display().to_string();
    for suffix in ["rowfile", "parquet"] {
        convert_source(
            promoting_source(&folder, &["old.json"], &[]),
            &at(&format!("old.{suffix}")),
        );
        convert_source(
            promoting_source(&folder, &["new.json"], &[]),
            &at(&format!("new.{suffix}")),
        );
    }
    let both: Vec<Vec<String>> = old_rows.iter().chain(&new_rows).cloned().collect();
    let turned: Vec<Vec<String>> = new_rows.iter().chain(&old_rows).cloned().collect();
    for suffix in ["json", "rowfile", "parquet"] {
        let names = [format!("old.{suffix}"), format!("new.{suffix}")];
        let (old, new) = (names[0].as_str(), names[1].as_str());
        for (files, expected) in [
            (vec![old], &old_rows),
            (vec![new], &new_rows),
            (vec![old, new], &both),
            (vec![new, old], &turned),
        ] {
            let rows =
                query_source(promoting_source(&folder, &files, &["input"]), ALL_FIELDS_SQL).rows();
            assert!(rows == *expected, "{files:?}");
            // Some columns, in another order, with a condition on each kind.
            let sql = "SELECT url, n FROM source WHERE \"user\" > 500 AND n % 2 = 0";
            let some = query_source(promoting_source(&folder, &files, &["input"]), sql).rows();
            let wanted = expected.iter().filter(|row| {
                row[1].parse::<u64>().is_ok_and(|user| user > 500)
                    && row[0].parse::<u64>().unwrap() % 2 == 0
            });
            let wanted: Vec<_> = wanted.map(|row| vec![row[2].clone(), row[0].clone()]).collect();
            assert!(some == wanted, "{files:?}");
            let sql = "SELECT sum(geo.a) AS a, count() AS n FROM source";
            let sums = query_source(promoting_source(&folder, &files, &["input"]), sql).rows();
            let geo = |row: &Vec<String>| {
                row[3].strip_prefix("{a: ")?.strip_suffix('}')?.parse::<u64>().ok()
            };
            let sum: u64 = expected.iter().filter_map(geo).sum();
            assert_eq!(sums, [[sum.to_string(), expected.len().to_string()]], "{files:?}");
        }
        // A converted file has nothing left to promote, and promotion does no harm.
        let promoted = format!("promoted.{suffix}");
        convert_source(promoting_source(&folder, &[old, new], &["input"]), &at(&promoted));
        for promote in [&[][..], &["input"]] {
            assert!(
                query_source(promoting_source(&folder, &[&promoted], promote), ALL_FIELDS_SQL)
                    .rows()
                    == both,
                "{suffix}"
            );
        }
    }
}

#[test]
fn json_in_a_string_is_promoted() {
    let folder = Folder::new();
    let (nested, _, rows) = nested_and_flat_events(3, 4000);
    // The record as text, in a CSV field and in files of other formats.
    let mut csv = String::from("n,input,day\n");
    for line in nested.lines() {
        let (n, rest) = line.strip_prefix("{\"n\": ").unwrap().split_once(", \"input\": ").unwrap();
        let (record, day) = rest.rsplit_once(", \"day\": \"").unwrap();
        let record = if record == "null" { String::new() } else { record.replace('"', "\"\"") };
        let day = day.trim_end_matches("\"}");
        csv.push_str(&format!("{n},\"{record}\",{day}\n"));
    }
    folder.write("old.csv", csv);
    let at = |name: &str| folder.path().join(name).display().to_string();
    convert_source(promoting_source(&folder, &["old.csv"], &[]), &at("old.rowfile"));
    convert_source(promoting_source(&folder, &["old.csv"], &[]), &at("old.json"));
    convert_source(promoting_source(&folder, &["old.csv"], &["input"]), &at("new.rowfile"));
    for files in [&["old.csv"][..], &["old.rowfile"], &["old.json"], &["new.rowfile"]] {
        let found =
            query_source(promoting_source(&folder, files, &["input"]), ALL_FIELDS_SQL).rows();
        assert!(found == rows, "{files:?}");
    }
    let both = query_source(
        promoting_source(&folder, &["old.rowfile", "new.rowfile"], &["input"]),
        ALL_FIELDS_SQL,
    )
    .rows();
    assert!(both.len() == 8000 && both[..4000] == rows && both[4000..] == rows);

    folder.write("bad.csv", "n,input\n1,\"{\"\"a\"\": 1}\"\n2,\"{\"\"a\"\": 1\"\n");
    let message =
        source_error(promoting_source(&folder, &["bad.csv"], &["input"]), "SELECT a FROM source");
    assert!(message.contains("bad.csv") && message.contains("`{\"a\": 1`"), "{message}");
    folder.write("list.csv", "n,input\n1,[1]\n");
    let message =
        source_error(promoting_source(&folder, &["list.csv"], &["input"]), "SELECT n FROM source");
    assert!(message.contains("holds no JSON objects"), "{message}");
    // Spread over lines, as people write it.
    folder.write("lines.csv", "n,input\n1,\"{\r\n  \"\"a\"\":\n 7\n}\"\n2, \n");
    let rows = query_source(
        promoting_source(&folder, &["lines.csv"], &["input"]),
        "SELECT n, a FROM source",
    )
    .rows();
    assert_eq!(rows, string_rows(&[&["1", "7"], &["2", "∅"]]));
}

/// Queries the promoted fields of `input`, of which at most `max_bad` may be malformed.
fn query_with_bad_limit(
    folder: &Folder,
    name: &str,
    sql: &str,
    max_bad: &str,
) -> Result<QueryAnswer> {
    let sources = vec![NamedSource {
        name: "source".into(),
        spec: promoting_source(folder, &[name], &["input"]),
    }];
    let rejected_folder = Some(folder.path().join(format!("run-{name}-{max_bad}")));
    let settings = RunSettings { max_bad: max_bad.parse().unwrap(), rejected_folder, ..settings() };
    run_query(&Query { sql: sql.into(), sources, ..Query::default() }, &settings)
}

#[test]
fn invalid_promoted_json_is_a_malformed_record() {
    let folder = Folder::new();
    let bad: BTreeMap<usize, &str> =
        [(7, "{\"\"user\"\": "), (9_999, "[1]"), (20_000, "{\"\"user\"\": \"\"x\"\"}")].into();
    let (mut csv, mut places) = (String::from("n,input\n"), Vec::new());
    for n in 0..30_000 {
        match bad.get(&n) {
            Some(record) => {
                places.push((csv.lines().count() + 1, csv.len()));
                csv.push_str(&format!("{n},\"{record}\"\n"));
            }
            // A record over two lines, so that rows and lines differ.
            None if n == 5 => csv.push_str("5,\"{\"\"user\"\":\n5}\"\n"),
            None => csv.push_str(&format!("{n},\"{{\"\"user\"\": {n}}}\"\n")),
        }
    }
    folder.write("a.csv", &csv);
    let suffixes = ["json", "rowfile", "parquet", "arrow", "avro"];
    for suffix in suffixes {
        let at = folder.path().join(format!("a.{suffix}"));
        convert_source(promoting_source(&folder, &["a.csv"], &[]), &at.display().to_string());
    }
    let sum = (0..30_000).filter(|n| !bad.contains_key(n)).sum::<usize>().to_string();
    for suffix in ["csv"].iter().chain(&suffixes) {
        let name = &format!("a.{suffix}");
        let sql = "SELECT sum(\"user\") AS s, sum(n) AS n, count(*) AS c FROM source";
        for max_bad in ["3", "1%"] {
            let answer = query_with_bad_limit(&folder, name, sql, max_bad).unwrap();
            assert_eq!(answer.rows(), string_rows(&[&[&sum, &sum, "29997"]]), "{name}");
            let rows = answer.coverage.rows;
            assert_eq!((rows.done, rows.rejected), (29_997, 3), "{name}");
            assert!(answer.coverage.complete, "{name}");
        }
        for max_bad in ["0", "2", "0.001%"] {
            let error = query_with_bad_limit(&folder, name, sql, max_bad).err().unwrap();
            assert!(matches!(error, Error::BadRecords { .. }), "{name}: {error}");
            let message = error.to_string();
            let first = match *suffix {
                "csv" => format!("{name}: line {} (byte {}), ", places[0].0, places[0].1),
                "json" => format!("{name}: line 8 (byte "),
                _ => format!("{name}: row 8, "),
            };
            assert!(message.contains(&first), "{max_bad}: {message}");
            assert!(message.contains("column `input`: "), "{message}");
            assert!(message.contains(", in `{\"user\":`"), "{message}");
            assert!(message.contains("--max-bad N or N% skips rows with others"), "{message}");
        }
        // The reject file has each bad record: all of it in text formats, else the value.
        let copies = folder.path().join(format!("run-{name}-3/rejected/1.jsonl"));
        let copies = std::fs::read_to_string(copies).unwrap();
        let copies: Vec<serde_json::Value> =
            copies.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(copies.len(), 3, "{name}");
        for ((copy, (line, offset)), (row, record)) in copies.iter().zip(&places).zip(&bad) {
            if *suffix == "csv" {
                assert_eq!((&copy["line"], &copy["offset"]), (&json!(line), &json!(offset)));
                assert_eq!(copy["record"], format!("{row},\"{record}\""));
            } else if *suffix == "json" {
                assert_eq!(copy["line"], row + 1);
            } else {
                assert_eq!(copy["row"], row + 1, "{name}");
                assert_eq!(copy["record"], record.replace("\"\"", "\"").trim());
            }
        }
        assert_eq!(copies[2]["column"], "input.user", "{name}");
        // A column that is not read is not checked.
        let all = query_with_bad_limit(&folder, name, "SELECT count(n) FROM source", "0").unwrap();
        assert_eq!(
            (all.single_value().as_str(), all.coverage.rows.rejected),
            ("30000", 0),
            "{name}"
        );
    }

    // With several splits the rows have the same numbers; a row with two faults is one.
    let large: String = (0..60_000)
        .map(|n| match n {
            50_000 => "{\"n\": 50000, \"input\": \"{\", \"more\": \"[\"}\n".to_owned(),
            _ => format!("{{\"n\": {n}, \"input\": \"{{\\\"a\\\": {n}}}\", \"more\": \"{{\\\"b\\\": 1}}\"}}\n"),
        })
        .collect();
    folder.write("large.json", large);
    for suffix in ["json", "rowfile", "parquet"] {
        let name = format!("large.{suffix}");
        if suffix != "json" {
            let at = folder.path().join(&name).display().to_string();
            convert_source(promoting_source(&folder, &["large.json"], &[]), &at);
        }
        let spec = promoting_source(&folder, &[&name], &["input", "more"]);
        let message = source_error(spec, "SELECT sum(a), sum(b) FROM source");
        let place =
            if suffix == "json" { "line 50001 (byte " } else { "row 50001, column `input`" };
        assert!(message.contains("1 malformed record, 0 allowed"), "{message}");
        assert!(message.contains(&format!("{name}: {place}")), "{message}");
    }
    // The location of an array's item is where it begins.
    let array = "[{\"input\": \"{}\"},\n {\"input\": \"{\\\"a\\\": 1}\"},\n {\"input\": \"no\"}]\n";
    folder.write("array.json", array);
    let message = source_error(
        promoting_source(&folder, &["array.json"], &["input"]),
        "SELECT a FROM source",
    );
    let place = format!("line 3 (byte {}), column `input`", array.rfind('{').unwrap());
    assert!(message.contains(&format!("array.json: {place}")), "{message}");
}

#[test]
fn colliding_promoted_fields_are_refused_or_renamed() {
    let folder = Folder::new();
    folder.write("a.json", "{\"id\": 1, \"input\": {\"id\": 2, \"x\": 3}}\n");
    let promoted = |promote: &[&str]| promoting_source(&folder, &["a.json"], promote);
    let message = source_error(promoted(&["input"]), "SELECT id FROM source");
    assert!(message.contains("two values, `1` of its own and `2` in the record"), "{message}");
    let renamed = query_source(promoted(&["input=in_"]), "SELECT * FROM source");
    assert_eq!(renamed.column_names(), ["id", "in_id", "in_x"]);
    assert_eq!(renamed.rows(), string_rows(&[&["1", "2", "3"]]));
    // The other fields can still be read.
    assert_eq!(query_source(promoted(&["input"]), "SELECT x FROM source").single_value(), "3");

    let at = folder.path().join("a.rowfile").display().to_string();
    convert_source(promoted(&[]), &at);
    let typed = |promote: &[&str]| promoting_source(&folder, &["a.rowfile"], promote);
    let message = source_error(typed(&["input"]), "SELECT id FROM source");
    assert!(message.contains("has a column `id`, and its `input` has a field `id`"), "{message}");
    assert!(message.contains("--promote input=input_"), "{message}");

    folder.write("b.json", "{\"input\": {\"k\": \"word\"}}\n");
    folder.write("c.json", "{\"k\": 5}\n");
    let both = |name: &str| {
        let at = folder.path().join(name.replace("json", "rowfile")).display().to_string();
        convert_source(promoting_source(&folder, &[name], &[]), &at);
    };
    both("b.json");
    both("c.json");
    let files = ["b.rowfile", "c.rowfile"];
    let message =
        source_error(promoting_source(&folder, &files, &["input"]), "SELECT k FROM source");
    assert!(message.contains("BIGINT and TEXT"), "{message}");
    assert_eq!(
        query_source(promoting_source(&folder, &files, &["input=i_"]), "SELECT i_k, k FROM source")
            .rows()
            .len(),
        2
    );
}

#[test]
fn only_records_can_be_promoted() {
    let folder = Folder::new();
    folder.write("a.json", "{\"n\": 1, \"input\": {\"x\": 3}, \"in\": {\"x\": 4}}\n");
    for (promote, expected) in [
        (&["n"][..], "is BIGINT and holds no record"),
        (&["inptu"], "did you mean `input`?"),
        (&["input", "input"], "is promoted twice"),
        (&["input", "in"], "both give a column `x`"),
    ] {
        let message =
            source_error(promoting_source(&folder, &["a.json"], promote), "SELECT * FROM source");
        assert!(message.contains(expected), "{promote:?}: {message}");
    }
    // If every file has the new shape there is nothing left to promote.
    let rows = query_source(
        promoting_source(&folder, &["a.json"], &["elsewhere"]),
        "SELECT n FROM source",
    )
    .rows();
    assert_eq!(rows, string_rows(&[&["1"]]));
    let rows = query_source(
        promoting_source(&folder, &["a.json"], &["input", "in=b_"]),
        "SELECT * FROM source",
    )
    .rows();
    assert_eq!(rows, string_rows(&[&["1", "3", "4"]]));
}

/// Writes a rowfile whose column `input` holds whole rows.
fn write_rowfile_of_rows(path: &std::path::Path, first: i64, inputs: &RecordBatch) {
    let schema = rowfile::Schema::from_arrow(&inputs.schema()).unwrap();
    let rows = schema.encode_rows(inputs).unwrap();
    let fields = vec![Field::new("n", DataType::Int64, false), schema.rows_field("input", true)];
    // Every tenth event has no input.
    let is_there = (0..rows.len()).map(|row| row % 10 != 9);
    let rows: BinaryArray =
        rows.iter().zip(is_there).map(|(row, is_there)| row.filter(|_| is_there)).collect();
    let count = i64::try_from(rows.len()).unwrap();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from_iter_values(first..first + count)), Arc::new(rows)];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let schema = rowfile::Schema::from_arrow(&batch.schema()).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = rowfile::Writer::new(file, &schema, Default::default()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

#[test]
fn encoded_rows_in_bytea_are_promoted() {
    let folder = Folder::new();
    let users: Vec<i64> = (0..500).map(|n| n % 7).collect();
    let urls: Vec<String> = (0..500).map(|n| format!("/{}", "x".repeat(n))).collect();
    let one = RecordBatch::try_from_iter([
        ("user", Arc::new(Int64Array::from(users.clone())) as ArrayRef),
        ("url", Arc::new(StringArray::from(urls.clone()))),
    ])
    .unwrap();
    // A later file has another schema.
    let two = RecordBatch::try_from_iter([(
        "user",
        Arc::new(Int32Array::from_iter_values(users.iter().map(|user| *user as i32))) as ArrayRef,
    )])
    .unwrap();
    write_rowfile_of_rows(&folder.path().join("one.rowfile"), 0, &one);
    write_rowfile_of_rows(&folder.path().join("two.rowfile"), 500, &two);
    let expected = |file: usize| -> Vec<Vec<String>> {
        (0..500)
            .map(|row| {
                let is_there = row % 10 != 9;
                let user = if is_there { users[row].to_string() } else { "∅".into() };
                let url = if is_there && file == 0 { urls[row].clone() } else { "∅".into() };
                vec![(500 * file + row).to_string(), user, url]
            })
            .collect()
    };
    let both: Vec<_> = expected(0).into_iter().chain(expected(1)).collect();
    let sql = "SELECT n, \"user\", url FROM source";
    let files = ["one.rowfile", "two.rowfile"];
    assert!(query_source(promoting_source(&folder, &files, &["input"]), sql).rows() == both);
    // Conversions to other formats keep the rows.
    let at = |name: &str| folder.path().join(name).display().to_string();
    for name in ["copy.parquet", "copy.rowfile"] {
        convert_source(promoting_source(&folder, &["one.rowfile"], &[]), &at(name));
        assert!(
            query_source(promoting_source(&folder, &[name], &["input"]), sql).rows() == expected(0),
            "{name}"
        );
    }
    convert_source(promoting_source(&folder, &files, &["input"]), &at("flat.rowfile"));
    assert!(
        query_source(promoting_source(&folder, &["flat.rowfile"], &["input"]), sql).rows() == both
    );

    // Bytes that are not a row.
    let fields =
        vec![rowfile::Schema::from_arrow(&one.schema()).unwrap().rows_field("input", true)];
    let wrong: ArrayRef = Arc::new(BinaryArray::from_iter_values([b"\x01no row"]));
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![wrong]).unwrap();
    let schema = rowfile::Schema::from_arrow(&batch.schema()).unwrap();
    let file = std::fs::File::create(folder.path().join("wrong.rowfile")).unwrap();
    let mut writer = rowfile::Writer::new(file, &schema, Default::default()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let message = source_error(
        promoting_source(&folder, &["wrong.rowfile"], &["input"]),
        "SELECT url FROM source",
    );
    assert!(message.contains("wrong.rowfile") && message.contains("row 0"), "{message}");
}
