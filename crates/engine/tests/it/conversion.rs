//! Tests of conversions to one file and to a folder, of rowfile checks and salvage, and of schema comparison.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Int32Array, RecordBatch, StringArray};
use arrow::compute::cast;
use tidemill_engine::convert::{Conversion, ConversionReport};
use tidemill_engine::run_handle::{RunHandle, write_to_sink};
use tidemill_engine::sink::{OutputSummary, SinkSpec};
use tidemill_engine::source::SourceSpec;
use tidemill_engine::source::files::rowfile_check::{
    CheckableRowfiles, RowfileCheck, RowfileSalvage,
};
use tidemill_engine::source::schema::schema_compatibility::find_schema_conflicts;
use tidemill_engine::{CancelFlag, Error, Result, RunId, RunProgress};
use tidemill_rowfile as rowfile;

use crate::cluster_execution::check_conversion_with_workers;
use crate::common::{Folder, Random, settings, string_rows};

fn source_spec(folder: &Folder, names: &[&str]) -> SourceSpec {
    let path = |name: &&str| folder.path().join(name).display().to_string();
    let mut urls = names.iter().map(path);
    SourceSpec { url: urls.next().unwrap(), more_urls: urls.collect(), ..SourceSpec::default() }
}

pub(crate) fn conversion(folder: &Folder, names: &[&str], output: &str) -> Conversion {
    Conversion {
        source: source_spec(folder, names),
        select: None,
        condition: None,
        sink: SinkSpec::new(format!("{}/{output}", folder.path().display())),
        skip_existing: false,
        workers: None,
    }
}

pub(crate) fn convert_to_one_file(conversion: &Conversion) -> Result<OutputSummary> {
    let settings = settings();
    let mut running = RunHandle::start_query(conversion.to_query()?, settings.clone())?;
    let run = RunId::new();
    write_to_sink(&mut running, &conversion.sink, &run, settings.memory_bytes, |_| Ok(()))
}

fn convert_to_folder(conversion: &Conversion) -> Result<ConversionReport> {
    let converted = conversion.run_to_folder(&settings(), &RunId::new());
    if !conversion.skip_existing && !conversion.sink.overwrite {
        check_conversion_with_workers(conversion, &converted);
    }
    converted
}

#[test]
fn every_format_converts_to_every_other_in_row_order() {
    let folder = Folder::new();
    let mut random = Random(7);
    let mut csv = String::from("day,n,word,ratio\n");
    for row in 0..20_000 {
        let word = ["", "plain", "\"a, b\"", "ünï", "x y"][random.next_below(5) as usize];
        let ratio =
            if random.next_below(4) == 0 { String::new() } else { format!("{}.5", row % 90) };
        csv.push_str(&format!("2013-01-{:02},{row},{word},{ratio}\n", 1 + row % 28));
    }
    folder.write("a.csv", csv);
    let expected = folder.run_sql("SELECT * FROM '$/a.csv'").rows();
    let suffixes = ["csv", "tsv", "json", "parquet", "rowfile"];
    for from in suffixes {
        if from != "csv" {
            let written =
                convert_to_one_file(&conversion(&folder, &["a.csv"], &format!("a.{from}")))
                    .unwrap();
            assert_eq!(written.rows, 20_000);
        }
        for to in suffixes {
            let output = format!("{from}-{to}.{to}");
            convert_to_one_file(&conversion(&folder, &[&format!("a.{from}")], &output)).unwrap();
            let rows = folder.run_sql(&format!("SELECT * FROM '$/{output}'")).rows();
            assert!(rows == expected, "{from} to {to}");
        }
    }
}

#[test]
fn inputs_are_concatenated_in_the_given_order() {
    let folder = Folder::new();
    folder.write("b.csv", "n,city\n1,rome\n");
    folder.write("a.csv", "n\n2\n3\n");
    folder.write("c/x.csv", "n\n4\n");
    let names = ["b.csv", "a.csv", "b.csv", "c"];
    let mut wanted = conversion(&folder, &names, "all.rowfile");
    assert_eq!(convert_to_one_file(&wanted).unwrap().rows, 5);
    let all = folder.run_sql("SELECT * FROM '$/all.rowfile'").rows();
    let rome = ["1", "rome"];
    assert_eq!(all, string_rows(&[&rome, &["2", "∅"], &["3", "∅"], &rome, &["4", "∅"]]));

    wanted.select = Some("n * 2 AS twice, upper(city) AS city -- as people shout".into());
    wanted.condition = Some("n <> 3".into());
    wanted.sink.overwrite = true;
    convert_to_one_file(&wanted).unwrap();
    let some = folder.run_sql("SELECT * FROM '$/all.rowfile'");
    assert_eq!(some.column_names(), ["twice", "city"]);
    let rome = ["2", "ROME"];
    assert_eq!(some.rows(), string_rows(&[&rome, &["4", "∅"], &rome, &["8", "∅"]]));
}

#[test]
fn conversion_refuses_expressions_over_several_records() {
    let folder = Folder::new();
    folder.write("a.csv", "n\n1\n");
    for (select, condition, expected) in [
        (Some("count()"), None, "sees one record at a time"),
        (Some("n, sum(n) OVER () AS s"), None, "sees one record at a time"),
        (Some("n FROM source"), None, "is not a list of columns"),
        (Some("n; DROP"), None, "is not a list of columns"),
        (Some(""), None, "is not a list of columns"),
        (Some("m"), None, "unknown column `m`"),
        (None, Some("n = 1 ORDER BY n"), "is not a condition"),
    ] {
        let mut wanted = conversion(&folder, &["a.csv"], "b.csv");
        wanted.select = select.map(str::to_owned);
        wanted.condition = condition.map(str::to_owned);
        let message = convert_to_one_file(&wanted).unwrap_err().to_string();
        assert!(message.contains(expected), "{select:?} {condition:?}: {message}");
        assert!(!folder.path().join("b.csv").exists());
    }
}

fn output_names(folder: &Folder, name: &str) -> Vec<String> {
    fn collect_file_names(folder: &Path, below: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{below}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                collect_file_names(&entry.path(), &format!("{name}/"), found);
            } else {
                found.push(name);
            }
        }
    }
    let mut found = Vec::new();
    collect_file_names(&folder.path().join(name), "", &mut found);
    found.sort();
    found
}

#[test]
fn folder_conversion_names_outputs_after_inputs() {
    let folder = Folder::new();
    for name in ["in/x/1.csv", "in/2.csv", "in/deep/er/3.csv"] {
        folder.write(name, format!("n,name\n1,{name}\n"));
    }
    folder.write("in/other.json", "{\"user\": {\"id\": 7}}\n");
    let mut wanted = conversion(&folder, &["in"], "out/");
    assert!(wanted.is_to_folder());
    let message = convert_to_folder(&wanted).unwrap_err().to_string();
    assert!(message.contains("does not tell the format"), "{message}");
    wanted.sink.format = Some("rowfile".parse().unwrap());
    let done = convert_to_folder(&wanted).unwrap();
    assert!(done.to_error().is_none(), "{:?}", done.failures);
    assert_eq!(
        (done.output_summary.files, done.output_summary.rows, done.coverage.files),
        (4, 4, 4)
    );
    let expected = ["2.rowfile", "deep/er/3.rowfile", "other.rowfile", "x/1.rowfile"];
    assert_eq!(output_names(&folder, "out"), expected);
    let rows = folder.run_sql("SELECT name FROM '$/out/deep/er/3.rowfile'").rows();
    assert_eq!(rows, string_rows(&[&["in/deep/er/3.csv"]]));

    // An output of a pattern has its name relative to the folder before the first wildcard.
    let mut wanted = conversion(&folder, &["in/*/*.csv", "in/2.csv"], "some/");
    wanted.sink.format = Some("json".parse().unwrap());
    wanted.select = Some("name".into());
    assert!(convert_to_folder(&wanted).unwrap().to_error().is_none());
    assert_eq!(output_names(&folder, "some"), ["2.json", "x/1.json"]);
}

#[test]
fn failed_input_does_not_stop_the_other_conversions() {
    let folder = Folder::new();
    for n in 0..8 {
        folder.write(&format!("in/{n}.csv"), format!("n,m\n{n},1\n"));
    }
    folder.write("in/bad.csv", "n,m\n1,2\n3\n");
    folder.write("in/cut.rowfile", "TIDE");
    let mut wanted = conversion(&folder, &["in"], "out/");
    wanted.sink.format = Some("csv".parse().unwrap());
    let done = convert_to_folder(&wanted).unwrap();
    assert_eq!(
        (done.output_summary.files, done.failures.len(), done.coverage.complete),
        (8, 2, false)
    );
    let message = done.to_error().unwrap().to_string();
    assert!(message.starts_with("2 of 10 files could not be converted"), "{message}");
    assert!(message.contains("bad.csv: line 3") && message.contains("cut.rowfile"), "{message}");
    assert_eq!(output_names(&folder, "out").len(), 8);

    // Existing outputs are not written again, unless the user asks for it.
    let message = convert_to_folder(&wanted).unwrap_err().to_string();
    assert!(message.contains("0.csv") && message.contains("7 other files"), "{message}");
    folder.write("in/bad.csv", "n,m\n1,2\n3,4\n");
    std::fs::remove_file(folder.path().join("in/cut.rowfile")).unwrap();
    wanted.skip_existing = true;
    let done = convert_to_folder(&wanted).unwrap();
    assert_eq!(
        (done.output_summary.files, done.output_summary.rows, done.skipped_outputs),
        (1, 2, 8)
    );
    assert!(done.coverage.complete);

    folder.write("in/bad.json", "{\"n\": 1}\n");
    let message = convert_to_folder(&wanted).unwrap_err().to_string();
    assert!(message.contains("would both be written to `bad.csv`"), "{message}");
}

#[test]
fn conversion_stops_after_many_failures() {
    let folder = Folder::new();
    for n in 0..150 {
        folder.write(&format!("in/{n}.csv"), "n,m\n1\n");
    }
    let mut wanted = conversion(&folder, &["in"], "out/");
    wanted.sink.format = Some("csv".parse().unwrap());
    let done = convert_to_folder(&wanted).unwrap();
    assert_eq!(done.failures.len() as u64 + done.untried_inputs, 150);
    assert!(done.untried_inputs > 0);
    assert!(!done.coverage.complete);
    assert!(done.to_error().unwrap().to_string().contains("were not tried"));
}

#[test]
fn cancelled_conversion_leaves_no_output() {
    let folder = Folder::new();
    for n in 0..20 {
        folder.write(&format!("in/{n}.csv"), "n\n1\n");
    }
    let mut wanted = conversion(&folder, &["in"], "out/");
    wanted.sink.format = Some("csv".parse().unwrap());
    let settings = settings();
    settings.cancel.cancel();
    let result = wanted.run_to_folder(&settings, &RunId::new());
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
    assert!(!folder.path().join("out").exists());
}

fn list_files(folder: &Folder, names: &[&str]) -> CheckableRowfiles {
    CheckableRowfiles::list(&source_spec(folder, names), &CancelFlag::new(), &RunProgress::new())
        .unwrap()
}

fn check_file(folder: &Folder, name: &str) -> Result<RowfileCheck> {
    Ok(list_files(folder, &[name]).check_file(0)?)
}

/// Writes a rowfile with several blocks and returns its bytes.
fn write_event_rowfile(folder: &Folder) -> Vec<u8> {
    let mut csv = String::from("n,word\n");
    let mut random = Random(3);
    for n in 0..200_000u64 {
        csv.push_str(&format!("{n},{:x}\n", random.next()));
    }
    folder.write("events.csv", csv);
    convert_to_one_file(&conversion(folder, &["events.csv"], "events.rowfile")).unwrap();
    std::fs::read(folder.path().join("events.rowfile")).unwrap()
}

#[test]
fn check_finds_damage_and_salvage_keeps_intact_blocks() {
    let folder = Folder::new();
    let whole = write_event_rowfile(&folder);
    let found = check_file(&folder, "events.rowfile").unwrap();
    assert!(found.whole && found.blocks > 3 && found.rows == 200_000, "{found:?}");
    assert_eq!(found.bytes, whole.len() as u64);

    let salvaged = |name: &str| -> RowfileSalvage {
        let (bytes, kept) =
            list_files(&folder, &[name]).salvage_file(0, Vec::new(), "kept").unwrap();
        folder.write("kept.rowfile", bytes);
        assert!(check_file(&folder, "kept.rowfile").unwrap().whole);
        let rows = folder.run_sql("SELECT count(), min(n), max(n) FROM '$/kept.rowfile'").rows();
        assert_eq!(rows[0][0], kept.rows.to_string());
        kept
    };
    // Truncated in the last third.
    folder.write("cut.rowfile", &whole[..whole.len() * 2 / 3]);
    let found = check_file(&folder, "cut.rowfile").unwrap();
    assert!(!found.whole && found.rows > 0 && found.rows < 200_000, "{found:?}");
    let kept = salvaged("cut.rowfile");
    assert_eq!((kept.rows, kept.blocks), (found.rows, found.blocks));
    let message = folder.sql_error("SELECT count() FROM '$/cut.rowfile'");
    assert!(message.contains("cut off") && message.contains("whole block"), "{message}");

    // A flipped bit in the middle.
    let mut flipped = whole.clone();
    let middle = whole.len() / 2;
    flipped[middle] ^= 4;
    folder.write("flipped.rowfile", flipped);
    let found = check_file(&folder, "flipped.rowfile").unwrap();
    let damage = &found.damages[0];
    assert!(!found.whole && found.damages.len() == 1 && damage.offset < middle as u64);
    let kept = salvaged("flipped.rowfile");
    assert_eq!(kept.rows, found.rows);
    assert!(kept.rows < 200_000 && kept.damages == found.damages);

    folder.write("note.rowfile", "no rows at all");
    let message = check_file(&folder, "note.rowfile").unwrap_err().to_string();
    assert!(message.contains("is not a rowfile"), "{message}");
    let message = check_file(&folder, "events.csv").unwrap_err().to_string();
    assert!(message.contains("is not a rowfile"), "{message}");
}

#[test]
fn schema_conflicts_are_found_across_formats() {
    let folder = Folder::new();
    folder.write("old.csv", "n,word,gone\n1,x,true\n");
    folder.write("new.json", "{\"n\": 1.5, \"word\": \"x\", \"more\": {\"a\": 1}}\n");
    let schema = |fields: &str| format!("{{\"fields\": [{fields}]}}");
    let word = r#"{"name": "word", "type": "string", "nullable": true}"#;
    let n = |kind: &str| format!(r#"{{"name": "n", "type": "{kind}", "nullable": true}}"#);
    folder.write("ints.schema.json", schema(&format!("{}, {word}", n("int32"))));
    let strict = r#"{"name": "must", "type": "int64"}"#;
    folder.write("strict.schema.json", schema(&format!("{}, {strict}", n("boolean"))));
    convert_to_one_file(&conversion(&folder, &["old.csv"], "old.rowfile")).unwrap();
    convert_to_one_file(&conversion(&folder, &["old.csv"], "old.parquet")).unwrap();
    let found = |old: &str, new: &str| -> Vec<String> {
        let found =
            find_schema_conflicts(&source_spec(&folder, &[old]), &source_spec(&folder, &[new]))
                .unwrap();
        found.into_iter().map(|conflict| conflict.column).collect()
    };
    for old in ["old.csv", "old.rowfile", "old.parquet", "ints.schema.json"] {
        assert_eq!(found(old, "new.json"), [""; 0], "{old}");
        assert_eq!(found(old, "strict.schema.json"), ["n", "must"], "{old}");
    }
    assert_eq!(found("old.rowfile", "ints.schema.json"), ["n"]);
    assert_eq!(found("new.json", "old.csv"), ["n"]);
    folder.write("broken.schema.json", "{\"fields\": [{\"name\": 1}]}");
    let error = find_schema_conflicts(
        &source_spec(&folder, &["old.csv"]),
        &source_spec(&folder, &["broken.schema.json"]),
    );
    let message = error.unwrap_err().to_string();
    assert!(message.contains("broken.schema.json"), "{message}");
}

#[test]
fn avro_schemas_are_compared_by_declaration() {
    let folder = Folder::new();
    folder.write("old.csv", "n,word,gone\n1,x,true\n");
    convert_to_one_file(&conversion(&folder, &["old.csv"], "old.avro")).unwrap();
    let write = |name: &str, fields: &str| {
        let json = format!(r#"{{"type": "record", "name": "Event", "fields": [{fields}]}}"#);
        folder.write(name, json);
    };
    let found = |old: &str, new: &str| -> Vec<String> {
        let found =
            find_schema_conflicts(&source_spec(&folder, &[old]), &source_spec(&folder, &[new]))
                .unwrap();
        found.into_iter().map(|conflict| conflict.column).collect()
    };
    let n = r#"{"name": "n", "type": ["null", "long"], "default": null}"#;
    let word = r#"{"name": "word", "type": ["null", "string"]}"#;
    let gone = r#"{"name": "gone", "type": ["null", "boolean"]}"#;
    write("all.avsc", &format!("{n}, {word}, {gone}"));
    for (fields, expected) in [
        (r#"{"name": "n", "type": ["null", "double"]}"#, &[][..]),
        (r#"{"name": "n", "type": ["null", "int"]}"#, &["n"]),
        // A null value is detected when it is read.
        (r#"{"name": "n", "type": "long"}"#, &[]),
        (r#"{"name": "number", "type": ["null", "long"], "aliases": ["n"]}"#, &[]),
        (r#"{"name": "more", "type": "int"}"#, &["more"]),
        (r#"{"name": "more", "type": "int", "default": 3}"#, &[]),
        (r#"{"name": "more", "type": "int", "default": "x"}"#, &["more"]),
        (r#"{"name": "more", "type": ["null", "int", "string"], "default": null}"#, &[]),
        (r#"{"name": "more", "type": ["int", "string"], "default": 3}"#, &[]),
        (r#"{"name": "more", "type": {"type": "map", "values": "int"}, "default": {}}"#, &[]),
        (
            r#"{"name": "more", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                "scale": 2}, "default": "\u00ff\u0038"}"#,
            &[],
        ),
        (
            r#"{"name": "more", "type": {"type": "enum", "name": "E", "symbols": ["a", "b"]},
                "default": "a"}"#,
            &[],
        ),
    ] {
        write("new.avsc", &format!("{fields}, {word}"));
        for old in ["old.csv", "old.avro", "all.avsc"] {
            assert_eq!(found(old, "new.avsc"), expected, "{old}: {fields}");
        }
    }
    assert_eq!(found("all.avsc", "old.csv"), [""; 0]);
    // Nested records are compared, too.
    let within = |fields: &str| {
        let record = format!(r#"{{"type": "record", "name": "S", "fields": [{fields}]}}"#);
        format!(r#"{{"name": "s", "type": ["null", {record}]}}"#)
    };
    let (x, y) = (r#"{"name": "x", "type": "long"}"#, r#"{"name": "y", "type": "long"}"#);
    let default = r#"{"name": "y", "type": "long", "default": 0}"#;
    write("x.avsc", &within(x));
    write("xy.avsc", &within(&format!("{x}, {y}")));
    write("default.avsc", &within(&format!("{x}, {default}")));
    assert_eq!(found("x.avsc", "xy.avsc"), ["s.y"]);
    assert_eq!(found("x.avsc", "default.avsc"), [""; 0]);
    assert_eq!(found("xy.avsc", "x.avsc"), [""; 0]);

    for (json, expected) in [
        ("{", "its schema is not JSON"),
        (r#"{"type": "record", "name": "R"}"#, "has no fields"),
        (
            r#"{"type": "record", "name": "R", "fields": [{"name": "x", "type": "R"}]}"#,
            "holds itself",
        ),
    ] {
        folder.write("broken.avsc", json);
        let error = find_schema_conflicts(
            &source_spec(&folder, &["old.csv"]),
            &source_spec(&folder, &["broken.avsc"]),
        );
        let message = error.unwrap_err().to_string();
        assert!(message.contains("broken.avsc`") && message.contains(expected), "{message}");
    }
}

#[test]
fn conversion_keeps_schema_metadata_where_the_format_can() {
    let folder = Folder::new();
    let schema = r#"{"fields": [
        {"name": "id", "type": "int32", "aliases": ["old_id"], "doc": "who"},
        {"name": "kind", "type": {"enum": {"symbols": ["a", "b", "c"]}}, "default": "b"},
        {"name": "when", "type": "date", "nullable": true}
    ]}"#;
    let schema = match rowfile::Schema::parse(schema) {
        Ok(schema) => schema,
        Err(error) => panic!("{error}"),
    };
    let arrow = Arc::new(schema.to_arrow(rowfile::StringLayout::default()));
    let kinds: ArrayRef = Arc::new(StringArray::from(vec!["c", "a", "c"]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![1, 2, 3])),
        cast(&kinds, arrow.field(1).data_type()).unwrap(),
        Arc::new(Date32Array::from(vec![None, Some(5), Some(6)])),
    ];
    let batch = RecordBatch::try_new(arrow, columns).unwrap();
    let file = std::fs::File::create(folder.path().join("a.rowfile")).unwrap();
    let mut writer = rowfile::Writer::new(file, &schema, Default::default()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();

    let rows = folder.run_sql("SELECT * FROM '$/a.rowfile'").rows();
    convert_to_one_file(&conversion(&folder, &["a.rowfile"], "b.rowfile")).unwrap();
    let mut each = conversion(&folder, &["b.rowfile"], "each/");
    each.sink.format = Some("rowfile".parse().unwrap());
    assert!(convert_to_folder(&each).unwrap().to_error().is_none());
    let mut some = conversion(&folder, &["a.rowfile"], "some.rowfile");
    some.condition = Some("id > 1".into());
    convert_to_one_file(&some).unwrap();
    for name in ["b.rowfile", "each/b.rowfile", "some.rowfile"] {
        let found = rowfile::Reader::open(&folder.path().join(name)).unwrap();
        assert_eq!(*found.schema(), schema, "{name}");
        let expected = if name.starts_with("some") { &rows[1..] } else { &rows[..] };
        assert_eq!(folder.run_sql(&format!("SELECT * FROM '$/{name}'")).rows(), expected);
    }
    // By way of a format that keeps less metadata, and of one that keeps none.
    for suffix in ["parquet", "csv"] {
        convert_to_one_file(&conversion(&folder, &["a.rowfile"], &format!("c.{suffix}"))).unwrap();
        assert_eq!(folder.run_sql(&format!("SELECT * FROM '$/c.{suffix}'")).rows(), rows);
    }
}
